"""Read rows of cost and say who pays for what: for pages, API, files and closed months."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import date, datetime
from functools import cache, partial
from itertools import chain
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

from django.core.exceptions import EmptyResultSet
from django.db import OperationalError, connection
from django.db.models import Aggregate, Case, F, IntegerField, Q, QuerySet, Value, When
from msgspec import Struct

from apps.accounts.domain.structs import replace
from apps.accounts.permissions import Visibility
from apps.clusters.domain.window import Window
from apps.clusters.selectors import report
from apps.costs.domain.costing import CHARGED, FREE, HELD, Basis, Cause, Policy
from apps.costs.models import (
    Adjustment,
    PoolCostDay,
    PoolCostHour,
    TeamCostDay,
    TeamCostHour,
    WorkloadCostDay,
    WorkloadCostHour,
)
from apps.costs.selectors.rows import (
    CORRECTED_DAYS,
    PLATFORM_NAME,
    CostLine,
    CostQuery,
    CostRow,
    LineKey,
    covers_platform,
)
from apps.usage.domain.usage_query import (
    BEGINNING,
    Filters,
    Grouping,
    GroupingRefused,
    Periods,
    TimeStep,
    day_start,
)
from apps.usage.models import Day
from apps.usage.selectors import (
    DETAILED,
    NameLookup,
    ReadPlan,
    check_window,
    condition,
    filtered,
    hours_only,
    source_of,
    with_days,
)
from gpuportal.database_functions import LargestOf, LargeSum, LeastOf
from gpuportal.queries import Compiled, GroupedQuery, read_once

_PART = 10**9
"""What two parts of a sum are told apart by: neither comes near 2^63 then."""
_EVERYTHING = Visibility(everything=True)
# Sources of usage, for the conditions that filters become: rows of holders, and of pools.
_OF_HOLDERS = source_of((Grouping.NAMESPACE,), Filters(), _EVERYTHING)
_OF_POOLS = source_of((Grouping.CLUSTER,), Filters(), _EVERYTHING)
_SHARE = {
    (Policy.ENTITLEMENT, Basis.ALLOCATED): "by_entitlement",
    (Policy.ENTITLEMENT, Basis.USED): "by_entitlement",
    (Policy.USE, Basis.ALLOCATED): "by_held",
    (Policy.USE, Basis.USED): "by_used",
}
_OF_HOLDER = frozenset({Grouping.TEAM, *DETAILED})
# Energy beside the causes: what allocated GPUs drew, and what others did. Columns of money are
# named after these, as after causes; those of what was measured are not.
_ENERGY, _FREE_ENERGY = "energy", "free_energy"
_MEASURED = {_ENERGY: "energy_mwh", _FREE_ENERGY: "free_energy_mwh"}
_CARBON = {
    _ENERGY: ("carbon_mwh", "carbon_ug"),
    _FREE_ENERGY: ("free_carbon_mwh", "free_carbon_ug"),
}
_Ids = tuple[Any, ...]
_Read = Callable[[], Iterator[tuple[Any, ...]]]


def rows_with_costs(
    rows: QuerySet[Any, Any],
    columns: Sequence[str],
    names: Sequence[str],
    beside: Mapping[str, Aggregate],
) -> Iterator[tuple[Any, ...]]:
    """Yield grouped rows: `columns`, the sum of `cost_` of each of `names`, then what is `beside`.

    SQLite has no sum of 2^63 units or more, some 92 billion of a currency: only where it refuses
    one each sum is made of two, which takes longer. One query, or there two; none where a page
    has asked the same before.
    """
    grouped = _with_costs(rows, columns, names, beside)
    return _whole_or_in_parts(
        partial(_once_for_a_page, grouped), partial(_in_two_parts, rows, columns, names, beside)
    )


def _whole_or_in_parts(whole: _Read, in_parts: _Read) -> Iterator[tuple[Any, ...]]:
    if connection.vendor != "sqlite":
        yield from whole()
        return
    try:
        known = list(whole())
    except OperationalError as error:
        if "integer overflow" not in str(error):
            raise
    else:
        yield from known
        return
    yield from in_parts()


def _with_costs(
    rows: QuerySet[Any, Any],
    columns: Sequence[str],
    names: Sequence[str],
    beside: Mapping[str, Aggregate],
) -> QuerySet[Any, Any]:
    sums = {f"sum_cost_{name}": LargeSum(f"cost_{name}") for name in names}
    found: QuerySet[Any, Any] = rows.annotate(**sums, **beside)
    return found.values_list(*columns, *sums, *beside)


def _once_for_a_page(rows: QuerySet[Any, Any]) -> Iterator[tuple[Any, ...]]:
    """Yield the rows. What is charged and what is wasted are made of the same ones."""
    try:
        compiled = Compiled.of(rows, rows.db)
    except EmptyResultSet:
        return
    yield from compiled.rows(rows.db, compiled.sql, compiled.values)


def _in_two_parts(
    rows: QuerySet[Any, Any],
    columns: Sequence[str],
    names: Sequence[str],
    beside: Mapping[str, Aggregate],
) -> Iterator[tuple[Any, ...]]:
    # In two parts: a sum of 1e-8 units over years overflows 64 bits, as SQLite has them.
    large = {f"large_{name}": LargeSum(F(f"cost_{name}") / _PART) for name in names}
    small = {f"small_{name}": LargeSum(F(f"cost_{name}") % _PART) for name in names}
    found = rows.annotate(**large, **small, **beside)
    first, count = len(columns), len(names)
    for row in found.values_list(*columns, *large, *small, *beside):
        parts = row[first : first + count], row[first + count : first + 2 * count]
        costs = (high * _PART + low for high, low in zip(*parts, strict=True))
        yield (*row[:first], *costs, *row[first + 2 * count :])


def check_retained(plan: ReadPlan, window: Window, *, zone: ZoneInfo) -> None:
    """Raise GroupingRefused where a plan reads hours by workload of days that have none any more.

    One query; none where the plan reads whole days alone.
    """
    spans = [
        (cluster, start, end)
        for stretch in plan.stretches
        for start, end in stretch.hours
        for cluster in stretch.clusters
    ]
    if not spans:
        return
    pruned = Day.objects.filter(
        cluster__in={cluster for cluster, _, _ in spans},
        pruned=True,
        start__lt=window.end,
        end__gt=window.start,
    )
    for day in pruned.order_by("-day", "cluster"):
        if any(
            cluster == day.cluster_id and start < day.end and day.start < end
            for cluster, start, end in spans
        ):
            raise GroupingRefused(
                f"what each namespace and workload held up to {day.day} is kept by whole days "
                f"alone: let the window start and end at midnight in {zone.key} with interval day, "
                "week, month or total, or group by team"
            )


def _summed(name: str, *, unbilled: bool) -> LargeSum:
    """Return the sum of a cause's GPU-hours; of energy what was billed, or all that was drawn."""
    if name in _MEASURED:
        return _of_energy(_MEASURED[name], name, unbilled=unbilled)
    return LargeSum(name)


def _of_energy(column: str, name: str, *, unbilled: bool) -> LargeSum:
    """Return a sum over energy of a kind; over what was billed it is None for nothing."""
    return LargeSum(column, filter=None if unbilled else ~Q(**{f"cost_{name}": 0}))


class _CostGrouping(Struct, frozen=True):
    """Sums of a table by `columns`, of which `at` is `time`; None without such a column."""

    table: Any
    time: Any
    columns: tuple[str, ...]
    names: tuple[str, ...]
    unbilled: bool

    def rows(self, where: Q) -> Iterator[tuple[Any, ...]]:
        """Yield `columns`, sums of GPU-hours, of costs, what is beside. As `rows_with_costs`."""
        # To write it takes longer than to read it. What depends on the window is written each time.
        if self.time is None or isinstance(self.time, F):
            whole = partial(_cached_grouping(self).rows, where)
        else:
            whole = partial(_once_for_a_page, _with_costs(*self._parts(where)))
        return _whole_or_in_parts(whole, lambda: _in_two_parts(*self._parts(where)))

    def _parts(self, where: Q) -> tuple[Any, ...]:
        """Return the arguments of `_with_costs`."""
        sums = {f"sum_{name}": _summed(name, unbilled=self.unbilled) for name in self.names}
        beside: dict[str, Aggregate] = {"low": LeastOf("price"), "high": LargestOf("price")}
        for name in filter(_CARBON.get, self.names):
            beside |= {
                f"sum_{one}": _of_energy(one, name, unbilled=self.unbilled) for one in _CARBON[name]
            }
        rows = self.table._default_manager.order_by().filter(where)
        rows = rows if self.time is None else rows.annotate(at=self.time)
        grouped = rows.values(*self.columns).annotate(**sums)
        return grouped, (*self.columns, *sums), self.names, beside


@cache
def _cached_grouping(asked: _CostGrouping) -> GroupedQuery:
    return GroupedQuery(_with_costs(*asked._parts(Q())))


class _Tables(NamedTuple):
    hours: Any
    days: Any


_POOLS = _Tables(PoolCostHour, PoolCostDay)
_TEAMS = _Tables(TeamCostHour, TeamCostDay)
_WORKLOADS = _Tables(WorkloadCostHour, WorkloadCostDay)


class CostReader:
    """One question, checked; what it looks up is kept for the windows that follow.

    Raises GroupingRefused.
    """

    def __init__(
        self, asked: CostQuery, *, visibility: Visibility, zone: ZoneInfo | None = None
    ) -> None:
        self.asked = asked
        self._visibility = visibility
        self.periods = Periods(asked.interval, zone or report().zone)
        named = {*asked.group_by, *filtered(asked.filters)}
        if Grouping.NODE in named:
            raise GroupingRefused("costs are not kept by node: leave out node")
        check_window(asked, self.periods.zone)
        self._detailed = bool(named & DETAILED)
        # Who sees everything and asks by pool needs no payers: pools alone have far fewer rows.
        self._by_payer = bool(named & _OF_HOLDER) or not visibility.everything
        self.names = NameLookup({Grouping.CLUSTER, Grouping.TEAM, *asked.group_by})
        self.clusters = self.names.clusters(asked.filters)
        if self._detailed:
            # Two queries more, the second only where the window does not consist of whole days.
            check_retained(self._plan(asked.window), asked.window, zone=self.periods.zone)

    def sums(self, window: Window) -> dict[LineKey, CostLine]:
        """Return the sums of a window, in no order.

        One or two queries for pools. Where the payer matters, also one or two each for holders,
        unallocated capacity and its shares; one for the days, one for corrections.
        """
        found: dict[LineKey, CostLine] = {}
        plan = self._plan(window)
        parts = self._of_payers(plan) if self._by_payer else self._of_pools(plan)
        if self.asked.corrections and not self.asked.waste:
            parts = chain(parts, self._corrections(window))
        for key, amounts in parts:
            line = found.get(key)
            if line is None:
                line = found[key] = CostLine()
            line.add(*amounts)
        # A correction may cancel its line exactly; a row of zeros would only puzzle.
        return {
            key: line
            for key, line in found.items()
            if line.gpu_hours or line.cost or line.energy_mwh
        }

    def rows(self, window: Window) -> list[CostRow]:
        """Return the same as rows, ordered by period, groups, cause, currency and price."""
        found = {k: line for k, line in self.sums(window).items() if k.cause in self.asked.causes}
        names = self.names_of({key.ids for key in found})
        ordered = sorted(found, key=lambda key: _order(key, names))
        labels = {at: self.periods.label(at) for at in {key.period for key in found}}
        columns = tuple(map(str, self.asked.group_by))
        groups = {ids: dict(zip(columns, named, strict=True)) for ids, named in names.items()}
        return [_row(key, found[key], labels[key.period], groups[key.ids]) for key in ordered]

    # ------------------------------------------------------------ parts

    def _plan(self, window: Window) -> ReadPlan:
        if self.asked.interval is TimeStep.HOUR:
            return hours_only(window, self.clusters)
        return with_days(window, clusters=self.clusters, periods=self.periods, rolled=False)

    def _of_pools(self, plan: ReadPlan) -> Iterator[tuple[LineKey, _Ids]]:
        """Yield the whole capacity by cause, for all payers."""
        where = condition(_OF_POOLS, self.asked.filters, self._visibility)
        causes = (*HELD, *FREE)
        groups = self.asked.group_by
        for fact in self._sums(_POOLS, plan, where, groups, (*causes, _ENERGY, _FREE_ENERGY)):
            for cause, amounts in zip(causes, fact.amounts, strict=False):
                yield fact.key(fact.ids, cause), (*amounts, *fact.prices)
            for kind in range(2):
                yield fact.energy(fact.ids, kind, kinds=2)

    def _of_payers(self, plan: ReadPlan) -> Iterator[tuple[LineKey, _Ids]]:
        yield from self._held(plan)
        filters = self.asked.filters
        if filters.namespace or filters.workload:
            return
        if self._platform_pays():
            yield from self._free(plan)
        if self.asked.policy is not Policy.PLATFORM:
            yield from self._shares(plan)

    def _platform_pays(self) -> bool:
        return covers_platform(self.asked, self._visibility)

    def _teams_pay(self) -> Filters:
        """Return the filters, with those of teams only where no line of theirs is needed else."""
        filters = self.asked.filters
        # What teams are not charged is the platform's, so their rows are needed here too.
        return replace(filters, team=()) if PLATFORM_NAME in filters.team else filters

    def _pays(self, team: int) -> bool:
        """Say whether a team's own lines were asked for and may be seen."""
        wanted = self.asked.filters.team
        named = not wanted or self._team_name(team) in wanted
        return named and self._visibility.sees(team)

    def _team_name(self, team: int) -> str:
        return self.names.of(Grouping.TEAM, [team])[team]

    def _held(self, plan: ReadPlan) -> Iterator[tuple[LineKey, _Ids]]:
        """Yield what teams held: charged to them on the basis, else left with the platform."""
        tables = _WORKLOADS if self._detailed else _TEAMS
        where = condition(_OF_HOLDERS, self._teams_pay(), self._visibility)
        groups = self.asked.group_by
        # All teams are read then (`_teams_pay`): whether one pays is asked of each row.
        by_team = PLATFORM_NAME in self.asked.filters.team and Grouping.TEAM not in groups
        columns = (*groups, Grouping.TEAM) if by_team else groups
        charged = CHARGED[self.asked.basis]
        platform = self._platform_pays()
        for fact in self._sums(tables, plan, where, columns, (*HELD, _ENERGY)):
            ids = fact.ids[: len(groups)]
            pays = self._pays(fact.ids[-1]) if by_team else self._pays_of(ids)
            if pays:
                yield fact.energy(ids)
            for cause, amounts in zip(HELD, fact.amounts, strict=False):
                if cause in charged and pays:
                    yield fact.key(ids, cause), (*amounts, *fact.prices)
                elif cause not in charged and platform:
                    yield fact.key(self._by_platform(ids), cause), (*amounts, *fact.prices)

    def _pays_of(self, ids: _Ids) -> bool:
        groups = self.asked.group_by
        return Grouping.TEAM not in groups or self._pays(ids[groups.index(Grouping.TEAM)])

    def _by_platform(self, ids: _Ids) -> _Ids:
        groups = self.asked.group_by
        # None is the platform, which `names_of` gives its name.
        return tuple(None if g is Grouping.TEAM else pk for g, pk in zip(groups, ids, strict=True))

    def _free(self, plan: ReadPlan) -> Iterator[tuple[LineKey, _Ids]]:
        """Yield the unallocated capacity, as the platform's."""
        where = condition(_OF_POOLS, replace(self.asked.filters, team=()), self._visibility)
        columns = tuple(g for g in self.asked.group_by if g not in _OF_HOLDER)
        for fact in self._sums(_POOLS, plan, where, columns, (*FREE, _FREE_ENERGY)):
            ids = self._spread(columns, fact.ids)
            for cause, amounts in zip(FREE, fact.amounts, strict=False):
                yield fact.key(ids, cause), (*amounts, *fact.prices)
            yield fact.energy(ids)

    def _shares(self, plan: ReadPlan) -> Iterator[tuple[LineKey, _Ids]]:
        """Yield what teams pay of the unallocated by the policy, and take it off the platform."""
        filters = self._teams_pay()
        where = condition(_OF_POOLS, filters, self._visibility)
        share = _SHARE[self.asked.policy, self.asked.basis]
        columns = tuple(g for g in self.asked.group_by if g not in _OF_HOLDER)
        platform = self._platform_pays()
        for fact in self._sums(_TEAMS, plan, where, (*columns, Grouping.TEAM), (share,)):
            ((gpu_hours, cost),) = fact.amounts
            team = fact.ids[-1]
            if self._pays(team):
                ids = self._spread(columns, fact.ids[:-1], team)
                yield fact.key(ids, Cause.UNALLOCATED), (gpu_hours, cost, *fact.prices)
            if platform:
                ids = self._spread(columns, fact.ids[:-1])
                yield fact.key(ids, Cause.UNALLOCATED), (-gpu_hours, -cost, *fact.prices)

    def _spread(self, columns: Sequence[Grouping], ids: _Ids, team: int | None = None) -> _Ids:
        """Return ids of all groups: those known, the payer, and none of namespace or workload."""
        known: dict[Grouping, Any] = dict(zip(columns, ids, strict=True))
        known[Grouping.TEAM] = team
        return tuple(known.get(grouping) for grouping in self.asked.group_by)

    def _corrections(self, window: Window) -> Iterator[tuple[LineKey, _Ids]]:
        """Yield lines of closed months booked on the window's days. One query.

        By hour they stand in the first of the day: so every interval has the same sum.
        """
        zone = self.periods.zone
        first, last = (at.astimezone(zone).date() for at in (window.start, window.end))
        beside = ("booked_on", "cause", "currency", "gpu_hours", "cost", "team_id", "workload_id")
        columns = tuple(one.column for one in self.asked.group_by)
        rows = _adjustments(
            (*beside, *columns), first, last, self._teams_pay(), tuple(self.clusters)
        )
        for row in rows:
            day, cause, currency, gpu_hours, cost, team, workload = row[: len(beside)]
            starts = day_start(day, zone)
            if not window.start <= starts < window.end or not self._sees(team, workload):
                continue
            ids = row[len(beside) :]
            key = LineKey(
                self.periods.start_of(starts), ids, Cause(cause), currency, correction=True
            )
            yield key, (gpu_hours, cost, None, None)

    def _sees(self, team: int | None, workload: int | None) -> bool:
        if team is not None:
            return self._pays(team)
        # The platform pays, but a workload on the line names work of a team that is not seen.
        return self._platform_pays() and (self._visibility.everything or workload is None)

    # ------------------------------------------------------------ queries

    def _sums(
        self,
        tables: _Tables,
        plan: ReadPlan,
        where: Q,
        groups: Sequence[Grouping],
        names: Sequence[str],
    ) -> Iterator["_Fact"]:
        starts, time = self._day_periods(plan)
        for part in plan.day_conditions():
            for at, *values in self._query(tables.days, time, where & part, groups, names):
                yield _Fact(starts[at], *values)
        periods: dict[datetime, datetime] = {}
        for part in plan.hour_conditions():
            hour_of = None if self.asked.interval is TimeStep.TOTAL else F("hour")
            for hour, *values in self._query(tables.hours, hour_of, where & part, groups, names):
                if hour not in periods:
                    periods[hour] = self.periods.start_of(hour) if hour else BEGINNING
                yield _Fact(periods[hour], *values)

    def _day_periods(self, plan: ReadPlan) -> tuple[Mapping[Any, datetime], Any]:
        """Return what rows of days are grouped by, and the period that each value stands for.

        Weeks and months are made out by the database: of many workloads it would hand out thirty
        times as many rows by day.
        """
        interval = self.asked.interval
        if interval is TimeStep.TOTAL or not plan.period_of_day:
            return {None: BEGINNING}, None
        if interval is TimeStep.DAY:
            return plan.period_of_day, F("day")
        firsts: dict[datetime, date] = {}
        for day, period in plan.period_of_day.items():
            firsts[period] = min(day, firsts.get(period, day))
        periods = sorted(firsts)
        whens = [
            When(day__gte=firsts[periods[place]], then=Value(place))
            # The latest first: CASE takes the first condition that holds.
            for place in reversed(range(1, len(periods)))
        ]
        time = Case(*whens, default=Value(0), output_field=IntegerField()) if whens else Value(0)
        return dict(enumerate(periods)), time

    def _query(
        self, table: Any, time: Any, where: Q, groups: Sequence[Grouping], names: Sequence[str]
    ) -> Iterator[tuple[Any, ...]]:
        """Yield (time, then what a _Fact has) of a table by `time`; None: a total. One query."""
        total = time is None
        rate = ("price", "list_price") if self.asked.by_rate else ()
        columns = (*(() if total else ("at",)), "currency", *rate, *(one.column for one in groups))
        asked = _CostGrouping(table, time, columns, tuple(names), self.asked.unbilled_energy)
        found = asked.rows(where)
        first, width, count = int(not total), len(columns), len(names)
        after_rate = first + 1 + len(rate)
        for row in found:
            after = width + 2 * count
            amounts = zip(row[width : width + count], row[width + count : after], strict=True)
            yield (
                row[0] if first else None,
                row[after_rate:width],
                row[first],
                row[first + 1 : after_rate] if rate else (None, None),
                [(int(amount or 0), int(cost)) for amount, cost in amounts],
                row[after : after + 2],
                [int(amount or 0) for amount in row[after + 2 :]],
            )

    # ------------------------------------------------------------ names

    def names_of(self, found: set[_Ids]) -> dict[_Ids, tuple[str, ...]]:
        """Return the names of lines' groups; one query where namespaces or workloads are new."""
        tables = []
        for place, grouping in enumerate(self.asked.group_by):
            ids = {group[place] for group in found} - {None}
            tables.append({**self.names.of(grouping, ids), None: PLATFORM_NAME})
        return {
            ids: tuple(table[pk] for table, pk in zip(tables, ids, strict=True)) for ids in found
        }


@read_once
def _adjustments(
    columns: tuple[str, ...], first: date, last: date, of: Filters, clusters: tuple[int, ...]
) -> Sequence[tuple[Any, ...]]:
    """Return what closed months were corrected by, as booked on these days. One query, or two."""
    if not any(first <= day <= last for (day,) in CORRECTED_DAYS.rows()):
        return ()
    rows = Adjustment.objects.filter(
        condition(_OF_HOLDERS, of, _EVERYTHING),
        cluster_id__in=clusters,
        booked_on__gte=first,
        booked_on__lte=last,
    )
    return list(rows.order_by().values_list(*columns))


class _Fact(Struct, frozen=True):
    """A row of sums: (GPU-hours, cost) for each cause, and the least and greatest price.

    Of energy it is (milliwatt-hours, cost); `carbon` has for each kind of energy the part of these
    with a factor and its carbon.
    """

    period: datetime
    ids: _Ids
    currency: str
    rate: tuple[int | None, int | None]
    amounts: Sequence[tuple[int, int]]
    prices: tuple[int | None, int | None]
    carbon: Sequence[int] = ()

    def key(self, ids: _Ids, cause: Cause) -> LineKey:
        price, list_price = self.rate
        return LineKey(self.period, ids, cause, self.currency, price=price, list_price=list_price)

    def energy(self, ids: _Ids, kind: int = 0, *, kinds: int = 1) -> tuple[LineKey, _Ids]:
        """Return the line of what was drawn; the price of a GPU-hour says nothing of it.

        It is that of the `kind` of so many `kinds` of energy, which are the last amounts.
        """
        measured, cost = self.amounts[kind - kinds]
        key = LineKey(self.period, ids, Cause.ENERGY, self.currency)
        # Where its price has no tariff nothing was summed, unless that was asked for: no line.
        return key, (0, cost, None, None, measured, *self.carbon[2 * kind : 2 * kind + 2])


_CAUSE_PLACES = {cause: place for place, cause in enumerate(Cause)}


def _order(key: LineKey, names: dict[_Ids, tuple[str, ...]]) -> tuple[Any, ...]:
    rate = (key.price or 0, key.list_price or 0)
    place = _CAUSE_PLACES[key.cause]
    return (key.period, names[key.ids], place, key.correction, key.currency, rate)


def _row(key: LineKey, line: CostLine, period: datetime | None, groups: dict[str, str]) -> CostRow:
    priced = bool(key.currency)
    # Two prices have no common one to show; `CostRow.price_units` then gives the mean.
    one = line.low if line.low == line.high else None
    return CostRow(
        period=period,
        groups=groups,
        cause=key.cause,
        gpu_hours=line.gpu_hours,
        cost=line.cost if priced else None,
        currency=key.currency or None,
        price=key.price if key.price is not None else one,
        list_price=key.list_price,
        correction=key.correction,
        energy_mwh=line.energy_mwh if key.cause is Cause.ENERGY else None,
        # Without a factor the carbon is not known; it is 0 where that of its hours is.
        carbon_ug=line.carbon_ug if line.carbon_mwh else None,
        carbon_mwh=line.carbon_mwh if key.cause is Cause.ENERGY else None,
    )
