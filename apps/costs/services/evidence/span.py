"""The days of the evidence, and how much of them was collected."""

from collections import Counter
from collections.abc import Mapping
from datetime import date, datetime, timedelta
from zoneinfo import ZoneInfo

from django.db.models import Exists, Max, OuterRef, Q
from msgspec import Struct

from apps.clusters.domain.window import Window, day_of, day_start
from apps.clusters.models import Cluster
from apps.clusters.selectors import report
from apps.usage.models import HAS_FACTS, CollectionWindow, Day

EVIDENCE_DAYS = 30
FRESH = timedelta(hours=6)
"""What is older says nothing of now."""


class EvidenceSpan(Struct, frozen=True):
    """Some days of a cluster up to and with `last`, and the hours collected on each of them.

    `newest_hour` is the newest collected one; None where it is too old to say anything of now.
    `now` is when it is gathered, after the last day.
    """

    cluster: Cluster
    first: date
    last: date
    zone: ZoneInfo
    hours: Mapping[date, int]
    newest_hour: datetime | None
    now: datetime

    @property
    def window(self) -> Window:
        end = day_start(self.last + timedelta(days=1), self.zone)
        return Window(day_start(self.first, self.zone), end)

    @property
    def until_now(self) -> Window:
        """The window and what came after it: a change must not harm what is there now."""
        return Window(self.window.start, max(self.window.end, self.now))

    @property
    def in_hours(self) -> Q:
        """The condition on rows of the cluster by hour."""
        window = self.window
        return Q(cluster=self.cluster, hour__gte=window.start, hour__lt=window.end)

    @property
    def in_days(self) -> Q:
        """The condition on rows of the cluster by day."""
        return Q(cluster=self.cluster, day__gte=self.first, day__lte=self.last)

    def days(self, since: date) -> float:
        """Return how many days were collected from the day `since` on."""
        # Hours and not dates: a day that was half collected counts as half a day.
        return sum(count for day, count in self.hours.items() if day >= since) / 24

    def coverage(self, since: date) -> float:
        """Return which part of all hours from the day `since` on was collected.

        Days before the first collected one are not counted: how many there are says `days`.
        """
        # A cluster that joined in between did not miss the days before.
        began = max(since, min(self.hours, default=self.first))
        hours = (self.window.end - day_start(began, self.zone)) / timedelta(hours=1)
        return min(1.0, self.days(since) * 24 / hours) if hours > 0 else 0.0


def newest_day(cluster: Cluster) -> date | None:
    """Return the newest day whose workload sums are there. One query."""
    newest: date | None = Day.objects.filter(cluster=cluster, rolled=True).aggregate(
        newest=Max("day")
    )["newest"]
    return newest


def collected_until(cluster: Cluster, last: date) -> datetime | None:
    """Return when the newest of the hours was collected that the sums of these days hold.

    One query.
    """
    rolled = Day.objects.filter(
        cluster=OuterRef("cluster"), start__lte=OuterRef("hour"), end__gt=OuterRef("hour")
    ).filter(rolled=True, day__gt=last - timedelta(days=EVIDENCE_DAYS), day__lte=last)
    hours = CollectionWindow.objects.filter(HAS_FACTS, Exists(rolled), cluster=cluster)
    newest: datetime | None = hours.aggregate(newest=Max("collected_at"))["newest"]
    return newest


def span_of(
    cluster: Cluster, last: date, *, now: datetime, days: int = EVIDENCE_DAYS
) -> EvidenceSpan:
    """Return the `days` days up to `last`. Two queries."""
    zone = report().zone
    first = last - timedelta(days=days - 1)
    since = day_start(first, zone)
    collected = list(
        CollectionWindow.objects.filter(HAS_FACTS, cluster=cluster, hour__gte=since)
        .order_by("hour")
        .values_list("hour", flat=True)
    )
    by_day = Counter(day_of(hour, zone) for hour in collected)
    newest = collected[-1] if collected else None
    return EvidenceSpan(
        cluster=cluster,
        first=first,
        last=last,
        zone=zone,
        hours={day: count for day, count in sorted(by_day.items()) if day <= last},
        # Too old to say that something is idle now.
        newest_hour=newest if newest is not None and newest >= now - FRESH else None,
        now=now,
    )
