"""Usage by period and group, and the pods that a figure sums."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from functools import cache
from math import ceil
from operator import getitem, itemgetter
from typing import Any
from zoneinfo import ZoneInfo

from django.db.models import Aggregate, Q, QuerySet, Sum
from msgspec import Struct

from apps.accounts.domain.structs import replace
from apps.accounts.permissions import Visibility
from apps.clusters.domain.window import Window
from apps.clusters.models import Cluster, Pod, Workload
from apps.clusters.selectors import report
from apps.usage.domain.amounts import HELD_FIELDS, Amounts
from apps.usage.domain.usage_query import (
    BEGINNING,
    Filters,
    Grouping,
    GroupingRefused,
    Periods,
    RowPage,
    TimeStep,
    UsageQuery,
    UsageRow,
    cursor_time,
    decode_cursor,
    encode_cursor,
    is_day_start,
)
from apps.usage.models import Day, PodHour, TeamHour
from apps.usage.selectors.fact_tables import (
    DETAILED,
    DayTable,
    FactTables,
    HourTable,
    ReadPlan,
    amounts_of,
    condition,
    filtered,
    hours_only,
    source_of,
    sums_of,
    with_days,
    workloads_named,
)
from apps.usage.selectors.names import NameLookup, check_known
from gpuportal.database_functions import LargestOf, LargeSum, SmallSum, WholeSeconds, WholeSum
from gpuportal.queries import GroupedQuery, rows_of_both

_PODS = FactTables(PodHour, None, detailed=True)
_STATES = HELD_FIELDS.index("busy") + 1
_RUNNING = ("unmeasured", "idle", "underused", "busy", "not_running")
_ROWS_AT_A_TIME = 5000
_WHOLE_HOUR = 0.95  # part of an hour's allocation from which the hour is called by it

HOURLY_DAYS = 92
"""The longest window that is read by the hour, in days."""
# More periods than this are not read at once.
_PERIODS_MOST = 40_000
# One more hour than 92 days have, for the autumn's clock change.
_HOURLY_MOST = timedelta(days=HOURLY_DAYS, hours=1)
_Ids = tuple[Any, ...]
_Key = tuple[datetime, tuple[str, ...]]
_Keyed = tuple[_Key, Amounts]


class PodPart(Struct, frozen=True):
    """One pod's part of a figure; `workload` reads `Kind/name`."""

    cluster: str
    namespace: str
    workload: str
    pod: str
    uid: str
    amounts: Amounts


class PodParts(Struct, frozen=True):
    """The pods of a figure, those first that hold most of it, and what all held together."""

    total: Amounts
    ranked: Sequence[tuple[int, Amounts]]

    @property
    def count(self) -> int:
        return len(self.ranked)

    def named(self, rows: slice) -> list[PodPart]:
        """Return the pods at these places. One query."""
        return _named(dict(self.ranked[rows]))


def pod_parts(
    window: Window, *, fields: Sequence[str], filters: Filters, visibility: Visibility
) -> PodParts:
    """Return what each pod held that `filters` leave, those first that hold most.

    Most by the sum of `fields`, which are of HELD_FIELDS. Only pods whose hours are kept by the
    pod count, and only those that the reader sees. One query. Raises ValueError for other fields.
    """
    unknown = set(fields) - set(HELD_FIELDS)
    if unknown or not fields:
        raise ValueError(f"pods have no {', '.join(sorted(unknown)) or 'rank without a field'}")
    held = sums_of(capacity=False, kind=SmallSum)
    facts = _facts(window, filters, visibility).order_by()
    # Ranked and summed here: a day of a tier is read twice as fast as once for each.
    rows = facts.values("pod_id").annotate(**held).values_list("pod_id", *held)
    found = [(row[0], amounts_of(row[1:])) for row in rows]
    total = Amounts()
    for _, amounts in found:
        total.add(amounts)
    found.sort(key=lambda one: (-sum(getattr(one[1], name) for name in fields), one[0]))
    return PodParts(total, found)


def pod_hours(
    cluster: str, uid: str, *, window: Window, visibility: Visibility
) -> list[tuple[datetime, Amounts]]:
    """Return what a pod held in each of the window's collected hours, oldest first. One query."""
    facts = _facts(window, Filters(cluster=(cluster,)), visibility).filter(pod__uid=uid)
    held = sums_of(capacity=False, kind=SmallSum)
    hours = facts.values("hour").annotate(**held).order_by("hour")
    return [(row[0], amounts_of(row[1:])) for row in hours.values_list("hour", *held)]


def running_hours(
    pods: QuerySet[Pod, Any],
    window: Window,
    *,
    columns: Sequence[str],
    filters: Filters,
    visibility: Visibility,
) -> Iterator[tuple[Any, ...]]:
    """Yield (pod id, hour, amounts, *columns) of these pods' hours.

    The amounts, nano-GPU-hours: no metrics, idle, underutilized, active, not running. Only hours
    that are kept by the pod, of teams that the reader sees. One query.
    """
    facts = _facts(window, filters, visibility).filter(pod_id__in=pods.order_by().values("pk"))
    read = facts.order_by().values_list("pod_id", "hour", *_RUNNING, *columns)
    for pod, hour, *rest in read.iterator(_ROWS_AT_A_TIME):
        yield pod, hour, rest[: len(_RUNNING)], *rest[len(_RUNNING) :]


def held_by_pods(
    pods: QuerySet[Pod, Any],
    window: Window,
    *,
    columns: Sequence[str],
    filters: Filters,
    visibility: Visibility,
) -> dict[tuple[Any, ...], int]:
    """Return the nano-GPU-hours that these pods had allocated, by the values of `columns`.

    Only hours that are kept by the pod, of teams that the reader sees. One query.
    """
    total = WholeSum("allocated")
    facts = _facts(window, filters, visibility).filter(pod_id__in=pods.order_by().values("pk"))
    if not columns:
        return {(): facts.aggregate(total=total)["total"] or 0}
    rows = facts.order_by().values_list(*columns).annotate(total=total)
    return {tuple(ids): amount for *ids, amount in rows}


def pods_retained(window: Window) -> bool:
    """Say whether the hours of pods are kept for all of the window's days. One query."""
    gone = Day.objects.filter(pruned=True, end__gt=window.start, start__lt=window.end)
    return not gone.exists()


def workload_hours(
    window: Window, *, filters: Filters, visibility: Visibility
) -> dict[tuple[str, str, str], list[tuple[int, ...]]]:
    """Return what workloads held in each collected hour, oldest first, in nano-GPU-hours.

    An hour is its start in Unix seconds, then the amounts by state in the order of HELD_FIELDS. By
    cluster, namespace and `Kind/name`. One query, and those for names.
    """
    sums = {f"sum_{name}": SmallSum(name) for name in HELD_FIELDS[:_STATES]}
    by = (Grouping.CLUSTER, Grouping.NAMESPACE, Grouping.WORKLOAD)
    # Cluster and namespace are those of the workload: to group by them, too, would take a sort.
    of_it = {f"its_{one}": LargestOf(one.column) for one in by[:2]}
    # As seconds, and no Amounts: a page goes through the hours of a month of several workloads.
    facts = _workload_facts(window, filters, visibility).annotate(at=WholeSeconds("hour"))
    hours: dict[_Ids, list[tuple[int, ...]]] = defaultdict(list)
    rows = facts.values_list(by[2].column, "at").annotate(**of_it, **sums)
    for row in rows.values_list(*of_it, by[2].column, "at", *sums):
        hours[row[: len(by)]].append(row[len(by) :])
    lookup = NameLookup({Grouping.CLUSTER})
    names = [
        lookup.of(one, {ids[place] for ids in hours})
        # Workloads tell their namespaces.
        for place, one in reversed(list(enumerate(by)))
    ]
    return {
        (names[2][cluster], names[1][space], names[0][work]): sorted(own)
        for (cluster, space, work), own in hours.items()
    }


def _workload_facts(
    window: Window, filters: Filters, visibility: Visibility
) -> QuerySet[PodHour, PodHour]:
    """Return the rows of workloads that filters name, by the index that begins with these."""
    chosen = Workload.objects.order_by().filter(
        workloads_named(filters.workload),
        namespace__name__in=filters.namespace,
        namespace__cluster__name__in=filters.cluster,
    )
    others = replace(filters, cluster=(), namespace=(), workload=())
    return PodHour.objects.order_by().filter(
        condition(_PODS, others, visibility),
        workload__in=chosen.values("pk"),
        hour__gte=window.start,
        hour__lt=window.end,
    )


def pod_states(
    pods: Sequence[tuple[str, str]], *, window: Window, visibility: Visibility
) -> dict[tuple[str, str], list[tuple[datetime, str]]]:
    """Return the hours in which pods were `idle`, or had `no_metrics`, by cluster and UID.

    Other hours are left out, and pods of teams that the reader does not see. One query.
    """
    if not pods:
        return {}
    facts = _facts(window, Filters(cluster=tuple({name for name, _ in pods})), visibility)
    rows = facts.filter(pod__uid__in={uid for _, uid in pods}, allocated__gt=0).order_by("hour")
    columns = ("cluster__name", "pod__uid", "hour")
    sums = rows.values(*columns).annotate(
        held=Sum("allocated"), no_activity=Sum("idle"), unknown=Sum("unmeasured")
    )
    found: dict[tuple[str, str], list[tuple[datetime, str]]] = {}
    for cluster, uid, hour, held, idle, unknown in sums.values_list(
        *columns, "held", "no_activity", "unknown"
    ):
        state = "idle" if idle >= held * _WHOLE_HOUR else ""
        state = "no_metrics" if unknown >= held * _WHOLE_HOUR else state
        if state:
            found.setdefault((cluster, uid), []).append((hour, state))
    return found


def _facts(window: Window, filters: Filters, visibility: Visibility) -> QuerySet[PodHour, PodHour]:
    clusters = Cluster.objects.order_by()  # named even if all are meant: the index begins with it
    if filters.cluster:
        clusters = clusters.filter(name__in=filters.cluster)
    return PodHour.objects.filter(
        condition(_PODS, filters, visibility),
        cluster__in=clusters.values("pk"),
        hour__gte=window.start,
        hour__lt=window.end,
    )


def _named(sums: dict[int, Amounts]) -> list[PodPart]:
    pods = Pod.objects.filter(pk__in=list(sums)).order_by("pk")
    names = {
        row[0]: row[1:]
        for row in pods.values_list(
            *("pk", "cluster__name", "workload__namespace__name", "workload__kind"),
            *("workload__name", "name", "uid"),
        )
    }
    found = []
    for pk, amounts in sums.items():
        cluster, namespace, kind, owner, pod, uid = names[pk]
        found.append(PodPart(cluster, namespace, f"{kind}/{owner}", pod, uid, amounts))
    return found


def usage_rows(
    query: UsageQuery, *, visibility: Visibility, zone: ZoneInfo | None = None
) -> list[UsageRow]:
    """Return the ledger, ordered by period and then by group names.

    Capacity columns are None where a grouping or filter names team, namespace or workload, and
    where it names node and the reader does not see everything. Groups finer than a team
    (namespace, workload, node) hold only what `visibility` shows in detail. An hour that was not
    collected adds nothing, and a period without facts has no row: `freshness` says what is
    missing. Facts count to the window that their hour starts in. `zone` is the report's, where
    the caller has read it. Five queries, and one each for the names of namespaces, workloads and
    nodes. Raises GroupingRefused.
    """
    reading = _reading(query, visibility, zone)
    return reading.rows(reading.between(query.window))


def usage_page(
    query: UsageQuery,
    *,
    visibility: Visibility,
    cursor: str | None,
    page_size: int,
    zone: ZoneInfo | None = None,
    strict: bool = False,
) -> RowPage[UsageRow]:
    """Return one page of `usage_rows` in the same order, keyset by (period, groups).

    Only the periods that the page needs are read, so pages of a long window cost alike. `zone` is
    the report's, where the caller has read it. With `strict`, filters that name a cluster, tier
    or team that there never was are refused instead of matching nothing. Raises GroupingRefused,
    CursorRefused and NamesUnknown.
    """
    reading = _reading(query, visibility, zone)
    if strict:
        check_known(query.filters, reading.names)
    after, density = reading.position(cursor)
    found: list[_Keyed] = []
    for part in reading.parts(after, density, page_size, found):
        rows = reading.between(part)
        found.extend(row for row in rows if after is None or row[0] > after)
    shown = found[:page_size]
    more = len(found) > page_size
    return RowPage(
        rows=tuple(reading.rows(shown)),
        next_cursor=reading.cursor(shown) if more else None,
    )


class _LedgerQuery(Struct):
    """One question, checked; keeps what its pages look up."""

    query: UsageQuery
    source: FactTables
    where: Q
    periods: Periods
    clusters: tuple[int, ...]
    names: NameLookup

    def between(self, window: Window) -> list[_Keyed]:
        """Return the sums of a window in order."""
        # Ids first, names once for all rows: joins would repeat the names of each row.
        facts = list(self._facts(self._plan(window)))
        names_of = self._names_of({ids for _, ids, _ in facts})
        sums: dict[_Key, Amounts] = {}
        for period, ids, amounts in facts:
            known = sums.setdefault((period, names_of[ids]), amounts)
            if known is not amounts:
                known.add(amounts)
        return sorted(sums.items(), key=itemgetter(0))

    def _plan(self, window: Window) -> ReadPlan:
        if self.source.days is None:
            return hours_only(window, self.clusters)
        return with_days(
            window, clusters=self.clusters, periods=self.periods, rolled=self.source.rolled
        )

    def _names_of(self, groups: set[_Ids]) -> dict[_Ids, tuple[str, ...]]:
        tables = [
            self.names.of(grouping, {ids[place] for ids in groups})
            for place, grouping in enumerate(self.query.group_by)
        ]
        return {ids: tuple(map(getitem, tables, ids)) for ids in groups}

    def _facts(self, plan: ReadPlan) -> Iterator[tuple[datetime, _Ids, Amounts]]:
        """Yield (period, group ids, sums). One query of days and hours, as a rule."""
        of_days = self.source.days
        own = self.query.filters
        few = bool(own.workload or own.team)
        days = plan.day_conditions(few=few) if of_days is not None else []
        # Hours of pods have an index by workload, and none by team.
        by_team = bool(own.team) and self.source.hours is TeamHour
        hours = plan.hour_conditions(few=bool(own.workload) or by_team)
        if self.query.group_by and self.periods.interval is TimeStep.TOTAL:
            yield from self._totals(days, hours)
            return
        if of_days is not None:
            for where in days:
                for day, ids, amounts in self._sums(of_days, "day", where):
                    yield plan.period_of_day[day] if day else BEGINNING, ids, amounts
        period_of: dict[datetime, datetime] = {}
        for where in hours:
            for hour, ids, amounts in self._sums(self.source.hours, "hour", where):
                if hour not in period_of:
                    period_of[hour] = self.periods.start_of(hour) if hour else BEGINNING
                yield period_of[hour], ids, amounts

    def _totals(
        self, days: Sequence[Q], hours: Sequence[Q]
    ) -> Iterator[tuple[datetime, _Ids, Amounts]]:
        """Yield the sums of groups over the whole window, of days and of hours. One query."""
        columns = tuple(one.column for one in self.query.group_by)
        parts = [
            (_summed(table, columns, LargeSum, capacity=self.source.capacity), self.where & where)
            for table, conditions in ((self.source.days, days), (self.source.hours, hours))
            if table is not None
            for where in conditions
        ]
        for row in rows_of_both(*parts):
            yield BEGINNING, row[: len(columns)], amounts_of(row[len(columns) :])

    def _sums(
        self, table: HourTable | DayTable, time: str, where: Q
    ) -> Iterator[tuple[Any, _Ids, Amounts]]:
        """Yield (day or hour, group ids, sums); one query. The time is None for a total."""
        total = self.periods.interval is TimeStep.TOTAL
        columns = (*(() if total else (time,)), *(one.column for one in self.query.group_by))
        if not columns:
            sums = sums_of(capacity=self.source.capacity, kind=LargeSum)
            whole = table._default_manager.filter(self.where & where).aggregate(**sums)
            # An aggregate without rows is a row of NULL, where a group would have none.
            if whole["sum_allocated"] is not None:
                yield None, (), amounts_of([whole[name] for name in sums])
            return
        kind = LargeSum if total else SmallSum if table is self.source.hours else WholeSum
        facts = _summed(table, columns, kind, capacity=self.source.capacity)
        first, end = int(not total), len(columns)
        for row in facts.rows(self.where & where):
            yield row[0] if first else None, row[first:end], amounts_of(row[end:])

    def rows(self, found: Sequence[_Keyed]) -> list[UsageRow]:
        """Return what is shown of these sums; rows of one group share its names."""
        labels = {at: self.periods.label(at) for at in {key[0] for key, _ in found}}
        columns = tuple(map(str, self.query.group_by))
        groups = {
            names: dict(zip(columns, names, strict=True)) for names in {key[1] for key, _ in found}
        }
        return [UsageRow(labels[at], groups[names], amounts) for (at, names), amounts in found]

    # ------------------------------------------------------------ pages

    def _kind(self) -> str:
        return "-".join(("usage", self.periods.interval, *self.query.group_by))

    def cursor(self, shown: Sequence[_Keyed]) -> str:
        """Return the cursor after the last row shown, with how many rows its period had."""
        period, names = shown[-1][0]
        # The next page reads as many periods as this density says, and rarely has to read twice.
        density = ceil(len(shown) / len({key[0] for key, _ in shown}))
        return encode_cursor(self._kind(), (period.isoformat(), density, *names))

    def position(self, cursor: str | None) -> tuple[_Key | None, int]:
        """Return the last key shown and the rows a period can be expected to have."""
        if cursor is None:
            return None, self.names.groups_expected(self.query.group_by, self.query.filters)
        shape = (str, int, *(str for _ in self.query.group_by))
        period, density, *names = decode_cursor(self._kind(), cursor, shape)
        key = (cursor_time(period), tuple(str(name) for name in names))
        return key, min(max(int(density), 1), 1_000_000)

    def parts(
        self, after: _Key | None, density: int, page_size: int, found: Sequence[_Keyed]
    ) -> Iterator[Window]:
        """Yield parts of the window, period by period, until `found` fills the page."""
        window = self.query.window
        start = window.start if after is None else max(window.start, after[0])
        count = page_size // density + 2
        while start < window.end:
            end = self.periods.after(start, min(count, _PERIODS_MOST)) or window.end
            had = len(found)
            yield Window(start, min(end, window.end))
            if len(found) > page_size:
                return
            start = end
            if len(found) == had:
                count *= 4  # a gap: so that a long one takes few steps
            else:
                count = (page_size + 1 - len(found)) * count // (len(found) - had) + 2


def _reading(query: UsageQuery, visibility: Visibility, zone: ZoneInfo | None) -> _LedgerQuery:
    periods = Periods(query.interval, zone or report().zone)
    filters, named = query.filters, {*query.group_by, *filtered(query.filters)}
    source = source_of(query.group_by, filters, visibility)
    check_window(query, periods.zone)
    names = NameLookup({Grouping.CLUSTER, *named})
    return _LedgerQuery(
        query=query,
        source=source,
        where=condition(source, filters, visibility),
        periods=periods,
        clusters=names.clusters(filters),
        names=names,
    )


def check_window(query: UsageQuery, zone: ZoneInfo) -> None:
    """Refuse what is not kept for so long a window. Raises GroupingRefused."""
    window, named = query.window, {*query.group_by, *filtered(query.filters)}
    if len(set(query.group_by)) < len(query.group_by):
        raise GroupingRefused("each group can be named once")
    if window.end - window.start <= _HOURLY_MOST:
        return
    if query.interval is TimeStep.HOUR:
        raise GroupingRefused(
            f"hours can be had for at most {HOURLY_DAYS} days at a time: choose a shorter window "
            "or interval day, week, month or total"
        )
    if Grouping.NODE in named:
        raise GroupingRefused(
            f"nodes are kept by the hour and can be had for at most {HOURLY_DAYS} days at a time: "
            "choose a shorter window, or leave out node"
        )
    detailed = " and ".join(sorted(named & DETAILED))
    if detailed and not all(is_day_start(at, zone) for at in (window.start, window.end)):
        raise GroupingRefused(
            f"over more than {HOURLY_DAYS} days {detailed} is kept by whole days: let the window "
            f"start and end at midnight in {zone.key}"
        )


@cache
def _summed(
    table: HourTable | DayTable,
    columns: tuple[str, ...],
    kind: type[Aggregate],
    *,
    capacity: bool,
) -> GroupedQuery:
    """Return the sums of a table by `columns`, to be narrowed; kept, for making it takes long.

    In no order: it is sorted in Python, once names are known and the parts are joined.
    """
    sums = sums_of(capacity=capacity, kind=kind)
    grouped = table._default_manager.order_by().values(*columns).annotate(**sums)
    return GroupedQuery(grouped.values_list(*columns, *sums))
