"""Which parts of a window come from daily sums and which from hours."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta

from django.db.models import Q

from apps.clusters.domain.window import Window
from apps.usage.domain.periods import Periods, day_end, day_start
from apps.usage.domain.rows import Interval
from apps.usage.models import Day

_BRANCHES = 200
"""Spans in one query: SQLite refuses expressions nested deeper than 1,000."""

DayRun = tuple[date, date]
HourSpan = tuple[datetime, datetime]


@dataclass(frozen=True, slots=True)
class Stretch:
    """How the clusters `clusters` read a window: runs of whole days, and hours for the rest.

    A day run holds its last day; an hour span does not hold its end.
    """

    clusters: tuple[int, ...]
    days: tuple[DayRun, ...]
    hours: tuple[HourSpan, ...]


@dataclass(frozen=True, slots=True)
class Plan:
    """The stretches of a window, and the period that each day read from daily sums is in."""

    stretches: tuple[Stretch, ...]
    period_of_day: dict[date, datetime]

    def day_conditions(self) -> list[Q]:
        """Return conditions on day rows, each for one query; their rows do not overlap."""
        return _conditions(
            Q(cluster_id__in=s.clusters, day__gte=first, day__lte=last)
            for s in self.stretches
            for first, last in s.days
        )

    def hour_conditions(self) -> list[Q]:
        """Return conditions on hour rows, each for one query; their rows do not overlap."""
        return _conditions(
            Q(cluster_id__in=s.clusters, hour__gte=start, hour__lt=end)
            for s in self.stretches
            for start, end in s.hours
        )


def hours_only(window: Window, clusters: Sequence[int]) -> Plan:
    """Return the plan that reads every hour."""
    if not clusters:
        return Plan((), {})
    return Plan((Stretch(tuple(clusters), (), ((window.start, window.end),)),), {})


def with_days(window: Window, *, clusters: Sequence[int], periods: Periods, rolled: bool) -> Plan:
    """Return the plan that reads whole days where their sums may be used. One query.

    A day's sum may be used when the day lies within the window and within one period; a day that
    was closed in another time zone may not, nor one that overlaps the day before. `rolled`: only
    days whose workload sums are up to date.
    """
    if periods.interval is Interval.HOUR or not clusters:
        return hours_only(window, clusters)
    days = Day.objects.filter(cluster_id__in=clusters, start__gte=window.start, end__lte=window.end)
    if rolled:
        days = days.filter(rolled=True)
    usable: dict[int, list[tuple[date, datetime, datetime]]] = {c: [] for c in clusters}
    period_of_day: dict[date, datetime] = {}
    rows = days.order_by("cluster_id", "start", "pk")
    for cluster, day, start, end in rows.values_list("cluster_id", "day", "start", "end"):
        period = _period(periods, day, start, end)
        before = usable[cluster][-1][2] if usable[cluster] else window.start
        if period and start >= before and period_of_day.setdefault(day, period) == period:
            usable[cluster].append((day, start, end))
    return Plan(tuple(_stretches(window, usable)), period_of_day)


def _period(periods: Periods, day: date, start: datetime, end: datetime) -> datetime | None:
    """Return the period that holds a closed day whole; None when none does."""
    if start == day_start(day, periods.zone) and end == day_end(day, periods.zone):
        return periods.of_day(day)
    period = periods.start_of(start)
    return period if period == periods.start_of(end - timedelta(seconds=1)) else None


def _stretches(
    window: Window, usable: dict[int, list[tuple[date, datetime, datetime]]]
) -> Iterable[Stretch]:
    alike: dict[tuple[tuple[DayRun, ...], tuple[HourSpan, ...]], list[int]] = {}
    for cluster, days in usable.items():
        spans = _rest(window, [(start, end) for _, start, end in days])
        alike.setdefault((_runs([day for day, _, _ in days]), spans), []).append(cluster)
    for (runs, spans), clusters in alike.items():
        yield Stretch(tuple(clusters), runs, spans)


def _runs(days: list[date]) -> tuple[DayRun, ...]:
    runs: list[DayRun] = []
    for day in days:
        if runs and day - runs[-1][1] == timedelta(days=1):
            runs[-1] = (runs[-1][0], day)
        else:
            runs.append((day, day))
    return tuple(runs)


def _rest(window: Window, covered: list[HourSpan]) -> tuple[HourSpan, ...]:
    rest = []
    at = window.start
    for start, end in covered:
        if start > at:
            rest.append((at, start))
        at = end
    if at < window.end:
        rest.append((at, window.end))
    return tuple(rest)


def _conditions(parts: Iterable[Q]) -> list[Q]:
    every = list(parts)
    joined = []
    for first in range(0, len(every), _BRANCHES):
        where = Q()
        for part in every[first : first + _BRANCHES]:
            where |= part
        joined.append(where)
    return joined
