"""How fresh is what the portal knows of waiting, by cluster."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db.models import Max

from apps.accounts.permissions import Visibility
from apps.clusters.models import Cluster, WatchSpan
from apps.pending.models import Refreshed
from apps.pending.selectors.rows import LookRow

STALE = timedelta(seconds=90)
"""Nobody watches a cluster of which nothing was proven for so long."""
_LATE = timedelta(minutes=2)
"""A refresh comes every 15 seconds: so long without one is too long."""


@dataclass(frozen=True, slots=True)
class Freshness:
    """Until when a cluster's waiting is known; None: never was."""

    as_of: datetime | None
    stale: bool


def freshness(at: datetime) -> dict[int, Freshness]:
    """Return how fresh waiting is at `at`, by id of active clusters. Two queries.

    What is known of a cluster without API access comes from its metrics: as of the last refresh.
    """
    ends = dict(
        WatchSpan.objects.filter(cluster__active=True)
        .order_by("cluster_id")
        .values_list("cluster_id")
        .annotate(Max("end"))
    )
    rows = Cluster.objects.filter(active=True).order_by("pk")
    found = {}
    for pk, kubernetes, looked in rows.values_list("pk", "kubernetes", "refreshed__at"):
        times = [looked] if kubernetes is None else [looked, ends.get(pk)]
        known = [time for time in times if time is not None]
        as_of = min(known) if len(known) == len(times) else None
        late = looked is None or at - looked > _LATE
        unwatched = kubernetes is not None and (pk not in ends or at - ends[pk] > STALE)
        found[pk] = Freshness(as_of, late or unwatched)
    return found


def looks(at: datetime, *, visibility: Visibility) -> list[LookRow]:
    """Return how fresh waiting is of every active cluster, by name. Three queries.

    `error` is empty but for who sees how the portal runs.
    """
    known = freshness(at)
    rows = Refreshed.objects.filter(cluster__active=True).order_by("cluster__name")
    columns = ("cluster_id", "cluster__name", "at", "waiting", "error")
    return [
        LookRow(
            cluster=name,
            at=looked,
            as_of=known[pk].as_of,
            stale=known[pk].stale or bool(error),
            waiting=waiting,
            error=error if visibility.operations else "",
        )
        for pk, name, looked, waiting, error in rows.values_list(*columns)
        if pk in known
    ]
