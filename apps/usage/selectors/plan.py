"""Which parts of a window come from daily sums and which from hours."""

import functools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any, NamedTuple

from django.db.models import F, Q, QuerySet
from django.db.models.lookups import In

from apps.clusters.domain.window import Window
from apps.clusters.models.sql import DayNumber, WholeSeconds
from apps.usage.domain.periods import Periods, day_end, day_start
from apps.usage.domain.rows import TimeStep
from apps.usage.models import Day

_BRANCHES = 200
"""Spans in one query: SQLite refuses expressions nested deeper than 1,000."""

_FIRST_DAY = date(1970, 1, 1)

DayRun = tuple[date, date]
HourSpan = tuple[datetime, datetime]


class _DaySpan(NamedTuple):
    """A closed day, and the period that holds it whole; None when none does."""

    day: date
    start: datetime
    end: datetime
    period: datetime | None


@dataclass(frozen=True, slots=True)
class WindowPart:
    """How the clusters `clusters` read a window: runs of whole days, and hours for the rest.

    A day run holds its last day; an hour span does not hold its end.
    """

    clusters: tuple[int, ...]
    days: tuple[DayRun, ...]
    hours: tuple[HourSpan, ...]


@dataclass(frozen=True, slots=True)
class ReadPlan:
    """The stretches of a window, and the period that each day read from daily sums is in."""

    stretches: tuple[WindowPart, ...]
    period_of_day: dict[date, datetime]

    def day_conditions(self, *, few: bool = False) -> list[Q]:
        """Return conditions on day rows, each for one query; their rows do not overlap.

        With `few` something else of the query narrows the rows more than clusters and days do:
        a database without statistics would begin with the clusters all the same.
        """
        return _conditions(
            _of_clusters(part.clusters, few=few) & days
            for part in self.stretches
            for days in in_days(part.days)
        )

    def hour_conditions(self) -> list[Q]:
        """Return conditions on hour rows, each for one query; their rows do not overlap."""
        return _conditions(
            Q(cluster_id__in=part.clusters) & hours
            for part in self.stretches
            for hours in in_hours(part.hours)
        )


def _of_clusters(clusters: Sequence[int], *, few: bool) -> Q:
    # A sum, for which there is no index.
    return Q(In(F("cluster_id") + 0, clusters)) if few else Q(cluster_id__in=clusters)


def hours_only(window: Window, clusters: Sequence[int]) -> ReadPlan:
    """Return the plan that reads every hour."""
    if not clusters:
        return ReadPlan((), {})
    return ReadPlan((WindowPart(tuple(clusters), (), ((window.start, window.end),)),), {})


def with_days(
    window: Window, *, clusters: Sequence[int], periods: Periods, rolled: bool
) -> ReadPlan:
    """Return the plan that reads whole days where their sums may be used. One query.

    A day's sum may be used when the day lies within the window and within one period; a day that
    was closed in another time zone may not, nor one that overlaps the day before. `rolled`: only
    days whose workload sums are up to date.
    """
    if periods.interval is TimeStep.HOUR or not clusters:
        return hours_only(window, clusters)
    days = _days().filter(cluster_id__in=clusters, start__gte=window.start, end__lte=window.end)
    if rolled:
        days = days.filter(rolled=True)

    known = _known_spans(periods)
    usable: dict[int, list[_DaySpan]] = {c: [] for c in clusters}
    period_of_day: dict[date, datetime] = {}
    for cluster, start, end, number in sorted(days):
        of_day = known.get((start, end, number))
        if of_day is None:
            day = _FIRST_DAY + timedelta(days=number)
            of_day = known[start, end, number] = _day_span(periods, start, end, day)
        before = usable[cluster][-1].end if usable[cluster] else window.start
        if of_day.period is None or of_day.start < before:
            continue
        if period_of_day.setdefault(of_day.day, of_day.period) == of_day.period:
            usable[cluster].append(of_day)
    return ReadPlan(tuple(_stretches(window, usable)), period_of_day)


@functools.cache
def _days() -> QuerySet[Day, Any]:
    """Return (cluster, start, end, days since 1970), to be narrowed; kept: making it takes long.

    In no order, which the database needs longer for than Python.
    """
    return Day.objects.order_by().values_list(
        "cluster_id", WholeSeconds("start"), WholeSeconds("end"), DayNumber("day")
    )


@functools.lru_cache(maxsize=16)
def _known_spans(periods: Periods) -> dict[tuple[int, int, int], _DaySpan]:
    """Return the spans worked out so far: the same days are read for every figure of a page."""
    return {}


def _day_span(periods: Periods, start_seconds: int, end_seconds: int, day: date) -> _DaySpan:
    start = datetime.fromtimestamp(start_seconds, UTC)
    end = datetime.fromtimestamp(end_seconds, UTC)
    if start == day_start(day, periods.zone) and end == day_end(day, periods.zone):
        return _DaySpan(day, start, end, periods.of_day(day))
    period = periods.start_of(start)
    within = period == periods.start_of(end - timedelta(seconds=1))
    return _DaySpan(day, start, end, period if within else None)


def _stretches(window: Window, usable: dict[int, list[_DaySpan]]) -> Iterable[WindowPart]:
    alike: dict[tuple[tuple[DayRun, ...], tuple[HourSpan, ...]], list[int]] = {}
    for cluster, days in usable.items():
        spans = rest_of(window, [(span.start, span.end) for span in days])
        alike.setdefault((day_runs([span.day for span in days]), spans), []).append(cluster)
    for (runs, spans), clusters in alike.items():
        yield WindowPart(tuple(clusters), runs, spans)


def day_runs(days: Iterable[date]) -> tuple[DayRun, ...]:
    """Join neighbouring days, given in order."""
    runs: list[DayRun] = []
    for day in days:
        if runs and day - runs[-1][1] == timedelta(days=1):
            runs[-1] = (runs[-1][0], day)
        else:
            runs.append((day, day))
    return tuple(runs)


def rest_of(window: Window, covered: Iterable[HourSpan]) -> tuple[HourSpan, ...]:
    """Return what spans, given in order, leave of a window."""
    rest = []
    at = window.start
    for start, end in covered:
        if start > at:
            rest.append((at, start))
        at = end
    if at < window.end:
        rest.append((at, window.end))
    return tuple(rest)


def in_days(runs: Iterable[DayRun]) -> Iterator[Q]:
    """Yield the condition on `day` of each run."""
    return (Q(day__gte=first, day__lte=last) for first, last in runs)


def in_hours(spans: Iterable[HourSpan]) -> Iterator[Q]:
    """Yield the condition on `hour` of each span."""
    return (Q(hour__gte=start, hour__lt=end) for start, end in spans)


def _conditions(parts: Iterable[Q]) -> list[Q]:
    every = list(parts)
    joined = []
    for first in range(0, len(every), _BRANCHES):
        where = Q()
        for part in every[first : first + _BRANCHES]:
            where |= part
        joined.append(where)
    return joined
