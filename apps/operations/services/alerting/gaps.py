"""Clusters of which nothing is known: not collected, or not watched."""

from collections.abc import Iterator
from datetime import datetime, timedelta
from urllib.parse import urlencode
from zoneinfo import ZoneInfo

from django.conf import settings
from django.db.models import Max

from apps.alerts.domain.thresholds import AlertKind, Threshold
from apps.alerts.services import Measurement, NewAlert, evaluate
from apps.clusters.models import Cluster, WatchCoverage
from apps.usage.models import HAS_FACTS, CollectionWindow

_HOUR = timedelta(hours=1)


def gaps(now: datetime, zone: ZoneInfo) -> int:
    """Hold the hours since a cluster's last data against the levels, also while none comes."""
    threshold = Threshold(AlertKind.DATA_GAP, settings.ALERTS_GAP_HOURS)
    return evaluate(threshold, list(_measured(now)), now=now, zone=zone)


def _measured(now: datetime) -> Iterator[Measurement]:
    for cluster in Cluster.objects.filter(active=True).order_by("name"):
        done = CollectionWindow.objects.filter(HAS_FACTS, cluster=cluster)
        last = done.aggregate(last=Max("hour"))["last"]
        # The hour that runs cannot be collected yet.
        end = None if last is None else last + _HOUR
        closed = now.replace(minute=0, second=0, microsecond=0)
        yield _gap(cluster, "collected", "No hour has facts", end, closed)
        if cluster.kubernetes is not None:
            spans = WatchCoverage.objects.filter(cluster=cluster)
            seen = spans.aggregate(last=Max("end"))["last"]
            yield _gap(cluster, "watched", "Nobody watches what happens", seen, now)


def _gap(
    cluster: Cluster, what: str, trouble: str, until: datetime | None, now: datetime
) -> Measurement:
    hours = None if until is None else max(0.0, (now - until) / _HOUR)
    since = "" if until is None else f" since {until:%Y-%m-%d %H:%M} UTC"
    said = NewAlert(
        kind=AlertKind.DATA_GAP,
        subject=f"cluster:{cluster.name}/{what}",
        team_id=None,
        title=f"{cluster.name} has not been {what} for {hours or 0:.0f} hours",
        text=f"{trouble} of {cluster.name}{since}. Data quality says what failed.",
        path=f"/health/data/?{urlencode({'cluster': cluster.name})}",
        urgent=True,
    )
    return Measurement(said, hours)
