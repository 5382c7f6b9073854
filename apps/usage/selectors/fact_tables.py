"""Which tables and which days or hours answer a query, and their sums in the database."""

import functools
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from datetime import UTC, date, datetime, timedelta
from functools import reduce
from hashlib import sha256
from itertools import chain
from operator import or_
from typing import Any, NamedTuple, Self, TypeVar

from django.core.cache import cache
from django.db.models import Aggregate, F, Max, Model, Q, QuerySet
from django.db.models.lookups import In
from msgspec import Struct

from apps.accounts.models import Team
from apps.accounts.permissions import Visibility
from apps.clusters.domain.tiers import model_key
from apps.clusters.domain.window import Window
from apps.clusters.models import GpuModel, Namespace, Node, Tier, Workload
from apps.usage.domain.amounts import (
    CAPACITY_FIELDS,
    HELD_FIELDS,
    LEVEL_FIELDS,
    SPLIT_FIELDS,
    Amounts,
)
from apps.usage.domain.usage_query import Filters, Grouping, Periods, TimeStep, day_end, day_start
from apps.usage.models import (
    Day,
    NodeHour,
    PodHour,
    TeamDay,
    TeamHour,
    TierDay,
    TierHour,
    WorkloadDay,
)
from gpuportal.database_functions import DayNumber, LargestOf, WholeSeconds, WholeSum
from gpuportal.queries import BatchQuery, read_once
from gpuportal.redis_errors import redis_errors

HourTable = type[PodHour] | type[TeamHour] | type[NodeHour] | type[TierHour]
DayTable = type[WorkloadDay] | type[TeamDay] | type[TierDay]

DETAILED = frozenset({Grouping.NAMESPACE, Grouping.WORKLOAD})
_BRANCHES = 200

_PEAK = len(HELD_FIELDS)
_LEVELS = (*chain.from_iterable(LEVEL_FIELDS), *SPLIT_FIELDS)
_MOST_SPANS = 200
"""Spans in one query: SQLite refuses expressions nested deeper than 1,000."""
_FIRST_DAY = date(1970, 1, 1)
DayRun = tuple[date, date]
HourSpan = tuple[datetime, datetime]
DayWithSpan = tuple[date, datetime, datetime]
_SECONDS = 3600
Found = TypeVar("Found")


class FactTables(Struct, frozen=True):
    """The tables of a grouping.

    `days` is None where only hours are kept. `capacity`: whether the whole ledger is there.
    `detailed`: rows finer than a team, which need visibility. `rolled`: day rows are made later
    than hour rows, so only days marked as rolled may be read.
    """

    hours: HourTable
    days: DayTable | None
    capacity: bool = False
    detailed: bool = False
    rolled: bool = False


_TIER = FactTables(TierHour, TierDay, capacity=True)
_TEAM = FactTables(TeamHour, TeamDay)
_WORKLOAD = FactTables(PodHour, WorkloadDay, detailed=True, rolled=True)
_NODE = FactTables(NodeHour, None, capacity=True)
_NODE_OF_TEAM = FactTables(PodHour, None, detailed=True)


def source_of(group_by: Sequence[Grouping], filters: Filters, visibility: Visibility) -> FactTables:
    """Return the coarsest tables that have everything the question names.

    A node is finer than a team, and its whole ledger tells what others held on it: it is for who
    sees everything. Others get what their own teams held there, without capacity.
    """
    named = {*group_by, *filtered(filters)}
    teams = Grouping.TEAM in named or bool(named & DETAILED)
    if Grouping.NODE in named:
        return _NODE_OF_TEAM if teams or not visibility.everything else _NODE
    if named & DETAILED:
        return _WORKLOAD
    return _TEAM if teams else _TIER


def filtered(filters: Filters) -> set[Grouping]:
    """Return the dimensions that the filters narrow."""
    return {Grouping(name) for name in filters.__struct_fields__ if getattr(filters, name)}


def condition(source: FactTables, filters: Filters, visibility: Visibility) -> Q:
    """Return what rows must meet, the cluster and the time apart; adds no query."""
    where = Q()
    if filters.tier:
        where &= Q(tier_id__in=Tier.objects.filter(name__in=filters.tier).values("pk"))
    if filters.team:
        where &= Q(team_id__in=Team.objects.filter(name__in=filters.team).values("pk"))
    if filters.gpu_model:
        where &= Q(gpu_model_id__in=models_named(filters.gpu_model))
    if filters.capacity_type:
        where &= Q(capacity_type__in=filters.capacity_type)
    if filters.namespace:
        named = Namespace.objects.filter(name__in=filters.namespace)
        where &= Q(namespace_id__in=named.values("pk"))
    if filters.workload:
        chosen = Workload.objects.filter(workloads_named(filters.workload))
        where &= Q(workload_id__in=chosen.values("pk"))
    if filters.node:
        where &= Q(node_id__in=Node.objects.filter(name__in=filters.node).values("pk"))
    if source.detailed and not visibility.everything:
        where &= Q(team_id__in=sorted(visibility.team_ids))
    return where


def models_named(names: Collection[str]) -> list[int] | object:
    """Return a subquery of the GPU models of these names, however blanks and dashes stand."""
    return GpuModel.objects.filter(key__in={model_key(name) for name in names}).values("pk")


def workloads_named(names: Collection[str]) -> Q:
    """Return the condition on workloads written `Kind/name`; other spellings match nothing."""
    by_kind: dict[str, list[str]] = defaultdict(list)
    for name in names:
        kind, _, own = name.partition("/")
        by_kind[kind].append(own)
    return any_of(Workload, [Q(kind=kind, name__in=own) for kind, own in by_kind.items()])


def any_of(of: type[Model], parts: Sequence[Q]) -> Q:
    """Return the condition that one of the parts holds, on rows of `of`.

    SQLite refuses expressions nested deeper than 1,000, and n parts joined by OR are n deep: what
    is longer is cut into subqueries.
    """
    if len(parts) <= _BRANCHES:
        return reduce(or_, parts, Q(pk__in=[]))
    cuts = [parts[first : first + _BRANCHES] for first in range(0, len(parts), _BRANCHES)]
    # Without an order, which a subquery would sort by for nothing.
    found = of._default_manager.order_by()
    return any_of(of, [Q(pk__in=found.filter(any_of(of, cut)).values("pk")) for cut in cuts])


def sums_of(*, capacity: bool, kind: type[Aggregate] = WholeSum) -> dict[str, Aggregate]:
    """Return the aggregates whose values `amounts_of` takes, in this order.

    `kind` is LargeSum where a sum may be 2^63 nano-GPU-hours or more, as that of a million GPUs
    over a year, and SmallSum for sums of one pod or of one hour.
    """
    held = {f"sum_{name}": kind(name) for name in HELD_FIELDS}
    beside = {f"sum_{name}": kind(name) for name in (CAPACITY_FIELDS if capacity else ())}
    levels = {f"sum_{name}": kind(name) for name in _LEVELS}
    return {**held, "max_memory": LargestOf("memory_peak_mib"), **levels, **beside}


def sums_of_unused() -> dict[str, Aggregate]:
    """Return the aggregates of the four amounts that tell held from used, in this order."""
    return {
        f"sum_{name}": WholeSum(name) for name in ("allocated", "not_running", "idle", "underused")
    }


def sum_of_unused() -> Aggregate:
    """Return the aggregate of all that was held and not used."""
    return WholeSum(F("not_running") + F("idle") + F("underused"))


def amounts_of(values: Sequence[Any]) -> Amounts:
    """Return the amounts of a row of `sums_of`; without capacity its fields stay None.

    So do they where devices were active and no capacity is known, as of those that only claims
    give out before somebody watched: that they are none would be wrong.
    """
    # The usual case, in which nothing has to be converted row by row.
    if type(values[0]) is int:
        found = Amounts(*values)
    else:
        beside = (None if value is None else int(value) for value in values[_PEAK + 1 :])
        found = Amounts(*map(int, values[:_PEAK]), *values[_PEAK : _PEAK + 1], *beside)
    if found.capacity == 0 and found.unattributed:
        found.capacity = found.unhealthy = found.unallocated = found.stranded = None
        found.planned_outage = None
    return found


class _DaySpan(NamedTuple):
    """A closed day, and the period that holds it whole; None when none does."""

    day: date
    start: datetime
    end: datetime
    period: datetime | None


class WindowCover(Struct, frozen=True):
    """The whole days of a window that are read from sums, in order, and the spans left of it."""

    days: Sequence[DayWithSpan]
    gaps: Sequence[HourSpan]

    @classmethod
    def of(cls, window: Window, days: Sequence[DayWithSpan]) -> Self:
        return cls(days, rest_of(window, [(start, end) for _, start, end in days]))


class WindowPart(Struct, frozen=True):
    """How the clusters `clusters` read a window: runs of whole days, and hours for the rest.

    A day run holds its last day; an hour span does not hold its end.
    """

    clusters: tuple[int, ...]
    days: tuple[DayRun, ...]
    hours: tuple[HourSpan, ...]


class ReadPlan(Struct, frozen=True):
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

    def hour_conditions(self, *, few: bool = False) -> list[Q]:
        """Return conditions on hour rows, as `day_conditions` does of days."""
        return _conditions(
            _of_clusters(part.clusters, few=few) & hours
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
    days = _days_within(window, tuple(clusters))
    return _plan_of(window, tuple(clusters), periods, rolled, days)


@functools.lru_cache(maxsize=64)
def _plan_of(
    window: Window,
    clusters: tuple[int, ...],
    periods: Periods,
    rolled: bool,  # noqa: FBT001 - a part of the key
    days: tuple[tuple[Any, ...], ...],
) -> ReadPlan:
    """Return the plan for these days; kept, for every figure of a page goes by the same ones."""
    known = _known_spans(periods)
    usable: dict[int, list[_DaySpan]] = {c: [] for c in clusters}
    period_of_day: dict[date, datetime] = {}
    for cluster, start, end, number, is_rolled in days:
        if rolled and not is_rolled:
            continue
        of_day = known.get((start, end, number))
        if of_day is None:
            day = _FIRST_DAY + timedelta(days=number)
            of_day = known[start, end, number] = _day_span(periods, start, end, day)
        before = usable[cluster][-1].end if usable[cluster] else window.start
        if of_day.period is None or of_day.start < before:
            continue
        # A date may lie in two periods where clusters closed it in different zones. The plan
        # has one period for a date: the other cluster is read by the hour.
        if period_of_day.setdefault(of_day.day, of_day.period) == of_day.period:
            usable[cluster].append(of_day)
    return ReadPlan(tuple(_stretches(window, usable)), period_of_day)


@read_once
def _days_within(window: Window, clusters: tuple[int, ...]) -> tuple[tuple[Any, ...], ...]:
    """Return the days that lie in the window, in order. One query."""
    return tuple(sorted(DAYS.rows(window, clusters)))


def _days_of(window: Window, clusters: tuple[int, ...]) -> QuerySet[Day, Any]:
    return _days().filter(cluster_id__in=clusters, start__gte=window.start, end__lte=window.end)


DAYS = BatchQuery(_days_of, is_pure=True)


@functools.cache
def _days() -> QuerySet[Day, Any]:
    """Return (cluster, start, end, days since 1970, rolled), to be narrowed.

    Kept: making it takes long. In no order, which the database needs longer for than Python.
    """
    return Day.objects.order_by().values_list(
        "cluster_id", WholeSeconds("start"), WholeSeconds("end"), DayNumber("day"), "rolled"
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
    for first in range(0, len(every), _MOST_SPANS):
        where = Q()
        for part in every[first : first + _MOST_SPANS]:
            where |= part
        joined.append(where)
    return joined


def cached(name: str, asked: object, read: Callable[[], Found]) -> Found:
    """Return what `read` gives, or gave for the same question since facts last changed.

    `asked` is the whole question, visibility included: its text tells questions apart. A cache
    that is away remembers nothing. One query.
    """
    # Every hour that is written has new rows: their last id tells of it, whenever it was begun.
    newest = TierHour.objects.aggregate(newest=Max("pk"))["newest"]
    key = f"{name}:{sha256(repr((newest, asked)).encode()).hexdigest()}"
    found: Found | None = _retained(key)
    if found is None:
        found = read()
        _keep(key, found)
    return found


def _retained(key: str) -> Any:
    try:
        return cache.get(key)
    except redis_errors():
        return None


def _keep(key: str, found: object) -> None:
    # Not `suppress`: what a cache raises is known once it was asked.
    try:
        cache.set(key, found, _SECONDS)
    except redis_errors():
        pass
