"""Entitlements and budgets: what teams were allocated, how fast, and until when it lasts."""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from datetime import date, datetime, timedelta
from itertools import pairwise
from typing import Any, cast
from zoneinfo import ZoneInfo

from django.db.models import Count, Max, Min, OuterRef, Q, QuerySet, Subquery, Sum
from msgspec import Struct

from apps.accounts.domain.rows import row_from
from apps.accounts.permissions import Visibility
from apps.clusters.domain.window import Window, day_of, day_start, day_window, month_after
from apps.clusters.models import Cluster, holds_at, holds_within
from apps.clusters.selectors import report
from apps.quotas.domain.budgets import (
    Allowance,
    BudgetKey,
    Burn,
    ClusterHours,
    KnownHours,
    Spending,
    SpendingAt,
    burn_of,
    day_of_end,
    ordered,
    period_at,
    points_of,
    whole_days,
)
from apps.quotas.models import Budget, BudgetAlert, Entitlement
from apps.quotas.selectors.rows import BudgetAlertRow, BudgetRow, BurnPoint
from apps.usage.domain.amounts import NANO
from apps.usage.domain.usage_query import Grouping
from apps.usage.models import HAS_FACTS, CollectionWindow, TeamDay, TeamHour
from apps.usage.selectors import NameLookup
from gpuportal.queries import BatchQuery, BoundQuery, read_batch, read_once


def entitled_over(
    window: Window, *, visibility: Visibility, teams: Collection[str], tiers: Collection[str] = ()
) -> list[tuple[datetime, float]]:
    """Return the GPU-equivalents that these teams may count on together, by when that begins.

    The first is as of the window's start; empty `tiers` means all. Sums of GPUs at the level of
    a team, which everybody may see: `visibility` narrows nothing. One query.
    """
    steps: dict[datetime, float] = defaultdict(float)
    for start, end, gpus in ENTITLED_OVER.rows(window, tuple(teams), tuple(tiers)):
        steps[max(start, window.start)] += gpus
        if end is not None and end < window.end:
            steps[end] -= gpus
    found, sum_of = [], 0.0
    for at in sorted({window.start, *steps}):
        sum_of += steps.get(at, 0.0)
        found.append((at, sum_of))
    return found


def _entitled_over(
    window: Window, teams: tuple[str, ...], tiers: tuple[str, ...]
) -> QuerySet[Entitlement, Any]:
    rows = Entitlement.objects.filter(
        holds_within(window), gpus__gt=0, team__active=True, team__name__in=teams
    )
    rows = rows.filter(tier__name__in=tiers) if tiers else rows
    return rows.order_by("pk").values_list("valid_from", "valid_to", "gpus")


ENTITLED_OVER = BatchQuery(_entitled_over, is_pure=True)
GPU_HOURS = "gpu_hours"
DAYS_AT_A_TIME = 100
_DAY, _WEEK = timedelta(days=1), timedelta(days=7)
DaySpending = dict[BudgetKey, dict[date, float]]
HoursOf = Callable[
    [Mapping[date, Collection[str]]],
    Mapping[tuple[BudgetKey, date], Sequence[tuple[datetime, float]]],
]
"""Local days with names of teams → what each of their hours spent, the oldest first."""
PATTERN_DAYS = 56
"""How many days back the pattern of a team's weekdays is read from."""
_HOUR = timedelta(hours=1)
_NO_BURN = Burn(None, None, None, None, None, None)


class EntitledTeam(Struct, frozen=True):
    """A team and the GPU-equivalents of a tier that it may count on."""

    tier: str
    team: str
    gpus: float


def entitled_teams(at: datetime, *, visibility: Visibility) -> list[EntitledTeam]:
    """Return who is entitled to what at `at`: by tier, then the largest, then by team. One query.

    Sums of GPUs at the level of a team, which everybody may see: `visibility` narrows nothing.
    An entitlement of 0, which is a weight alone, is left out.
    """
    return [EntitledTeam(*row) for row in ENTITLED_TEAMS.rows(at)]


def _entitled_teams(at: datetime) -> QuerySet[Entitlement, Any]:
    rows = Entitlement.objects.filter(holds_at(at), gpus__gt=0, team__active=True)
    rows = rows.order_by("tier__name", "-gpus", "team__name", "pk")
    return rows.values_list("tier__name", "team__name", "gpus")


def _entitled_tiers(at: datetime) -> QuerySet[Entitlement, Any]:
    """Return what all teams together are entitled to of each tier, by its name."""
    rows = Entitlement.objects.filter(holds_at(at), gpus__gt=0, team__active=True)
    of_tiers = rows.order_by().values("tier__name").annotate(gpus_of_all=Sum("gpus"))
    return of_tiers.order_by("tier__name").values_list("tier__name", "gpus_of_all")


ENTITLED_TEAMS = BatchQuery(_entitled_teams, is_pure=True)
ENTITLED_TIERS = BatchQuery(_entitled_tiers, is_pure=True)


_Ids = tuple[int, ...]


class GpuHours(Struct, frozen=True):
    """What teams were allocated, straight from the sums by team, which the database sums.

    Their ledgers in full (`usage_rows`) would be ten times the work. `own` are the ids that are
    read, None for all: teams go by id, as rows do. `clusters` are named in each query, all of
    them, so that their index serves.
    """

    names: Mapping[int, str]
    own: list[int] | None
    clusters: Mapping[int, str]

    @classmethod
    def read(cls, teams: Collection[str] | None) -> "GpuHours":
        """Read what everything goes by. One query."""
        lookup = NameLookup((Grouping.CLUSTER, Grouping.TEAM))
        names, clusters = (
            cast("Mapping[int, str]", lookup.known(one))
            for one in (Grouping.TEAM, Grouping.CLUSTER)
        )
        own = None if teams is None else [pk for pk, name in names.items() if name in teams]
        return cls(names, own, clusters)

    def spending(
        self,
        allowances: Sequence[Allowance],
        end: datetime,
        zone: ZoneInfo,
        *,
        days_since: date | None,
    ) -> Spending:
        """Return what was spent up to `end`, of each local day since one. Two queries.

        Without `days_since`, from the start of each period to the next; budgets that are used up
        also by day, which tells when, and takes a query more.
        """
        if days_since is None:
            starts = tuple(sorted({day_of(one.window.start, zone) for one in allowances}))
            # Both in one round trip: this is part of pages that show many teams.
            read_batch(*self._queries(starts, end))
        days = self._by_period(allowances, zone) if days_since is None else self._by_day(days_since)
        spending = Spending(days, defaultdict(dict), defaultdict(dict))
        for pk, cluster, week, last_day in self._last_week(end):
            budget_key = (self.names[pk], GPU_HOURS)
            spending.last_week[budget_key][self.clusters[cluster]] = week / NANO
            spending.last_day[budget_key][self.clusters[cluster]] = last_day / NANO
        return spending

    def _by_day(self, first: date) -> DaySpending:
        """Return GPU-hours by local day. One query."""
        days: DaySpending = defaultdict(dict)
        rows = TeamDay.objects.filter(day__gte=first, **self._of(self.own)).order_by()
        for pk, day, amount in rows.values_list("team_id", "day").annotate(n=Sum("allocated")):
            days[self.names[pk], GPU_HOURS][day] = amount / NANO
        return days

    def _by_period(self, allowances: Sequence[Allowance], zone: ZoneInfo) -> DaySpending:
        """Return GPU-hours from the start of a period to that of the next, as of their first day.

        Sums from any of these starts are those of the days. Where a budget is used up, its periods
        are read by month, and the month of its end by day, so that the end is exact. Three queries,
        at most.
        """
        starts = sorted({day_of(one.window.start, zone) for one in allowances})
        days = self._between(starts, self.own)
        used_up = [one for one in allowances if _day_used_up(one, days, zone)]
        if not used_up:
            return days
        own = {one.team for one in used_up}
        starts = sorted(
            {*starts, *_months(starts[0], max(day_of(one.window.end, zone) for one in used_up))}
        )
        # Of these teams alone: all others keep their coarse sums, which are enough.
        days |= self._between(starts, [pk for pk, name in self.names.items() if name in own])
        wanted: dict[date, set[BudgetKey]] = defaultdict(set)
        for one in used_up:
            found = _day_used_up(one, days, zone)
            if found is not None:
                wanted[found[0]].add(one.budget_key)
        self._refine(days, wanted, dict(pairwise([*starts, date.max])))
        return days

    def _between(self, starts: Sequence[date], teams: Collection[int] | None) -> DaySpending:
        """Return GPU-hours from each of these days to the next, as of the first. One query."""
        return {
            (self.names[pk], GPU_HOURS): {
                day: n / NANO for day, n in zip(starts, sums, strict=True) if n
            }
            for pk, *sums in _SPENT.rows(tuple(starts), *self._ids(teams))
        }

    def _refine(
        self,
        days: DaySpending,
        wanted: Mapping[date, Collection[BudgetKey]],
        ends: Mapping[date, date],
    ) -> None:
        """Put the days of some parts, by their first day, in the place of their sums."""
        # Where nothing is wanted this matches nothing; an empty Q would match every row.
        condition = Q(pk__in=())
        for start, budget_keys in wanted.items():
            ids = [pk for pk, name in self.names.items() if (name, GPU_HOURS) in budget_keys]
            condition |= Q(day__gte=start, day__lt=ends[start], team_id__in=ids)
            for budget_key in budget_keys:
                # The sum goes as its days come: both together would count twice.
                del days[budget_key][start]
        rows = TeamDay.objects.filter(condition, cluster_id__in=list(self.clusters)).order_by()
        for pk, day, amount in rows.values_list("team_id", "day").annotate(n=Sum("allocated")):
            days[self.names[pk], GPU_HOURS][day] = amount / NANO

    def _last_week(self, end: datetime) -> Iterable[tuple[int, int, int, int]]:
        """Return (team, cluster, GPU-hours of the last week, and of the last day). One query."""
        return _LAST_WEEK.rows(end, *self._ids(self.own))

    def _queries(self, starts: tuple[date, ...], end: datetime) -> list[BoundQuery]:
        ids = self._ids(self.own)
        return [_SPENT.query(starts, *ids), _LAST_WEEK.query(end, *ids)]

    def _of(self, teams: Collection[int] | None) -> dict[str, Collection[int]]:
        return _rows_of_ids(*self._ids(teams))

    def _ids(self, teams: Collection[int] | None) -> tuple[_Ids, _Ids | None]:
        return tuple(self.clusters), None if teams is None else tuple(teams)


def _rows_of_ids(clusters: _Ids, teams: _Ids | None) -> dict[str, Collection[int]]:
    own: dict[str, Collection[int]] = {"cluster_id__in": clusters}
    return own if teams is None else own | {"team_id__in": teams}


def _spent_between(
    starts: tuple[date, ...], clusters: _Ids, teams: _Ids | None
) -> QuerySet[TeamDay, Any]:
    """Return by team what was allocated from each of these days to the next."""
    parts = {
        # `default`, for a sum of no rows is NULL.
        f"part_{n}": Sum("allocated", filter=Q(day__gte=start, day__lt=end), default=0)
        for n, (start, end) in enumerate(pairwise([*starts, date.max]))
    }
    rows = TeamDay.objects.filter(day__gte=starts[0], **_rows_of_ids(clusters, teams)).order_by()
    return rows.values_list("team_id").annotate(**parts)


def _recently_spent(
    end: datetime, clusters: _Ids, teams: _Ids | None
) -> QuerySet[TeamHour, tuple[int, int, int, int]]:
    """Return by team and cluster what was allocated in the last week and on its last day."""
    own = _rows_of_ids(clusters, teams)
    hours = TeamHour.objects.filter(hour__gte=end - _WEEK, hour__lt=end, **own)
    return hours.order_by().values_list("team_id", "cluster_id").annotate(
        week=Sum("allocated"),
        day=Sum("allocated", filter=Q(hour__gte=end - _DAY), default=0),
    )  # fmt: skip


_SPENT = BatchQuery(_spent_between)
_LAST_WEEK = BatchQuery(_recently_spent, is_pure=True)


def _day_used_up(one: Allowance, days: DaySpending, zone: ZoneInfo) -> tuple[date, float] | None:
    return day_of_end(Spending(days).of_days(one, zone), one.amount)


def _months(start: date, end: date) -> Iterator[date]:
    """Yield the first days of the months that begin after `start` and before `end`."""
    month = start
    while (month := month_after(month)) < end:
        yield month


def hours_in(zone: ZoneInfo) -> HoursOf:
    def hours_of(
        teams: Mapping[date, Collection[str]],
    ) -> dict[tuple[BudgetKey, date], list[tuple[datetime, float]]]:
        found: dict[tuple[BudgetKey, date], list[tuple[datetime, float]]] = defaultdict(list)
        for condition in on_days(teams, zone):
            rows = TeamHour.objects.filter(condition).order_by("hour")
            sums = rows.values_list("team__name", "hour").annotate(n=Sum("allocated"))
            for team, hour, amount in sums:
                found[(team, GPU_HOURS), day_of(hour, zone)].append((hour, amount / NANO))
        return found

    return hours_of


def on_days(teams: Mapping[date, Collection[str]], zone: ZoneInfo) -> Iterator[Q]:
    """Yield conditions on hours of teams (by name) on local days, some days in each."""
    days = sorted(teams.items())
    for start in range(0, len(days), DAYS_AT_A_TIME):
        condition = Q()
        for day, names in days[start : start + DAYS_AT_A_TIME]:
            span = day_window(day, zone)
            hours = Q(hour__gte=span.start, hour__lt=span.end)
            condition |= hours & Q(team__name__in=sorted(names))
        yield condition


def budget_rows(
    at: datetime,
    *,
    visibility: Visibility,
    team: str | None = None,
    points: bool = True,
    ranges: bool = True,
) -> list[BudgetRow]:
    """Return the GPU-hour budgets that run at `at`, of one team or all, by team and period.

    Without `points` no row has a burn-down. Without `ranges` rows lack burn-down, earliest and
    latest end, and the database adds up all days but those of used-up budgets. `with_ranges`
    completes the rows that are shown.

    GPU sums of teams are open to everybody: `visibility` narrows nothing. `used` counts allocated
    GPU-hours of closed hours on all clusters, retired ones too. Budgets in money come from the room
    of costs, by `burn_rows`. Ten queries, and one for each 100 days on which budgets were used up.
    """
    teams = None if team is None else [team]
    return _rows_of(at, teams, points=points and ranges, ranges=ranges)


def with_ranges(rows: Sequence[BudgetRow], at: datetime, *, points: bool = True) -> list[BudgetRow]:
    """Return budgets that were read without ranges with these and their burn-down.

    Without `points` they have no burn-down. Queries as of `budget_rows`.
    """
    teams = sorted({row.team for row in rows})
    found = _rows_of(at, teams, points=points, ranges=True) if rows else []
    by_name = {(row.team, row.period, row.allowance): row for row in found}
    return [by_name.get((row.team, row.period, row.allowance), row) for row in rows]


def _rows_of(
    at: datetime, teams: Sequence[str] | None, *, points: bool, ranges: bool
) -> list[BudgetRow]:
    zone = report().zone
    allowances = gpu_hour_allowances(at, zone, teams=teams)
    if not allowances:
        return []
    rows = CollectionWindow.objects.filter(HAS_FACTS)
    known = known_hours(
        rows, allowances, last=LAST_COLLECTED.rows(at), at=at, zone=zone, pattern=ranges
    )
    spending = Spending()
    if known is not None:
        first = day_of(since(known.end, allowances, zone), zone) if ranges else None
        spending = GpuHours.read(teams).spending(allowances, known.end, zone, days_since=first)
    spent = SpendingAt(at, zone, spending, known)
    return burn_rows(allowances, spent, hours_of=hours_in(zone), points=points)


def gpu_hour_allowances(
    at: datetime, zone: ZoneInfo, *, teams: Collection[str] | None = None
) -> list[Allowance]:
    """Return the GPU-hour budgets of active teams, or of some, that hold at `at`. One query."""
    return [
        Allowance(
            *(row.team.name, row.period, period_at(row.period, at, zone), GPU_HOURS, row.gpu_hours)
        )
        for row in _budgets(at, teams)
        if row.gpu_hours is not None
    ]


def money_allowances(
    at: datetime, zone: ZoneInfo, *, visibility: Visibility, team: str | None = None
) -> list[Allowance]:
    """Return the budgets in money that hold at `at`, of teams that the reader sees. One query."""
    return [
        Allowance(
            *(row.team.name, row.period, period_at(row.period, at, zone), row.currency),
            # The float serves rates; shown is the exact amount.
            *(float(row.money), row.money),
        )
        for row in _budgets(at, None if team is None else [team])
        if row.money is not None and visibility.sees(row.team_id)
    ]


def known_hours(
    rows: QuerySet[Any],
    allowances: Iterable[Allowance],
    *,
    last: Sequence[tuple[datetime]],
    at: datetime,
    zone: ZoneInfo,
    pattern: bool = True,
) -> KnownHours | None:
    """Return which hours before `at` are known; None while there are none. Three queries.

    `last` is what `last_hour` reads of the same rows. Without `pattern` there are no whole days,
    which takes a query less.

    `rows` have a cluster and an hour each: of what was collected, or priced. Any cluster counts for
    how much is known and up to when; only active ones for until when all is.
    """
    # The hour that runs is not closed: its facts would make the pace look slow.
    rows = rows.filter(hour__lte=at - _HOUR)
    if not last:
        return None
    end = last[0][0] + _HOUR
    starts = sorted({one.window.start for one in allowances})
    clusters, retired = _cluster_hours(rows, end, starts)
    if not pattern:
        return KnownHours(end, clusters, retired=retired)
    of_pattern = rows.filter(hour__gte=_pattern_start(end, zone), cluster__active=True)
    counts = of_pattern.order_by("hour").values_list("hour").annotate(known=Count("pk"))
    before = day_of(end, zone)
    whole = tuple(whole_days(counts, clusters.values(), before=before, zone=zone))
    return KnownHours(end, clusters, whole, retired)


def last_hour(rows: QuerySet[Any], at: datetime) -> QuerySet[Any, Any]:
    """Return the newest hour of these rows that has ended at `at`."""
    return rows.filter(hour__lte=at - _HOUR).order_by("-hour").values_list("hour")[:1]


LAST_COLLECTED = BatchQuery(
    lambda at: last_hour(CollectionWindow.objects.filter(HAS_FACTS), at), is_pure=True
)


def _cluster_hours(
    rows: QuerySet[Any], end: datetime, starts: Sequence[datetime]
) -> tuple[dict[str, ClusterHours], dict[str, ClusterHours]]:
    """Return the known hours of each active and each retired cluster, also where none is known.

    A cluster counts from its first hour to be collected on, a retired one until its last. Without
    such an hour nothing is expected of it. Two queries.
    """
    since = {f"since_{n}": Count("pk", filter=Q(hour__gte=start)) for n, start in enumerate(starts)}
    counts = rows.order_by().values_list("cluster__name").annotate(
        first=Min("hour"),
        last=Max("hour"),
        day=Count("pk", filter=Q(hour__gte=end - _DAY)),
        week=Count("pk", filter=Q(hour__gte=end - _WEEK)),
        **since,
    )  # fmt: skip
    known = {name: rest for name, *rest in counts}
    active: dict[str, ClusterHours] = {}
    retired: dict[str, ClusterHours] = {}
    for name, is_active, begun, latest in CLUSTER_HOURS_DUE.rows():
        first, last, day, week, *by_start = known.get(name, (None, None, 0, 0))
        (active if is_active else retired)[name] = ClusterHours(
            *(first, last, day, week),
            since=dict(zip(starts, by_start or [0] * len(starts), strict=True)),
            # What is known may be kept longer than the notes of its collection are.
            begun=min((at for at in (begun, first) if at is not None), default=None),
            ended=None
            if is_active
            else max((at + _HOUR for at in (latest, last) if at is not None), default=None),
        )
    return active, retired


def _cluster_hours_due() -> QuerySet[Cluster, Any]:
    """Return each cluster's name, whether it is active, its first and last hour to collect."""
    hours = CollectionWindow.objects.filter(cluster=OuterRef("pk"))
    rows = Cluster.objects.order_by("name").annotate(
        begun=Subquery(hours.order_by("hour").values("hour")[:1]),
        latest=Subquery(hours.order_by("-hour").values("hour")[:1]),
    )
    return rows.values_list("name", "active", "begun", "latest")


CLUSTER_HOURS_DUE = BatchQuery(_cluster_hours_due)


def burn_rows(
    allowances: Sequence[Allowance], spent: SpendingAt, *, hours_of: HoursOf, points: bool = True
) -> list[BudgetRow]:
    """Return budgets with what was spent of them, by team, period and unit.

    `hours_of` is asked once, for the days on which budgets were used up: when in the day.
    """
    ends: dict[Allowance, date] = {}
    for one in allowances:
        found = day_of_end(spent.spending.of_days(one, spent.zone), one.amount)
        if found is not None:
            ends[one] = found[0]
    teams: dict[date, set[str]] = defaultdict(set)
    for one, day in ends.items():
        teams[day].add(one.team)
    by_hour = hours_of(teams) if teams else {}
    return [
        _budget_row(
            one,
            spent,
            hours=by_hour.get((one.budget_key, ends[one]), ()) if one in ends else (),
            drawn=points,
        )
        for one in ordered(allowances)
    ]


def _budget_row(
    one: Allowance, spent: SpendingAt, *, hours: Sequence[tuple[datetime, float]], drawn: bool
) -> BudgetRow:
    at, zone, spending, known = spent.at, spent.zone, spent.spending, spent.known
    used, found = 0.0, _NO_BURN
    points: tuple[BurnPoint, ...] = ()
    if known is not None:
        used, found = burn_of(one, spending, known, at=at, zone=zone, hours=hours)
        if drawn:
            points = tuple(BurnPoint(*p) for p in points_of(one, spending, known, zone))
    return row_from(
        BudgetRow,
        found,
        team=one.team,
        period=one.period,
        period_start=one.window.start.astimezone(zone),
        period_end=one.window.end.astimezone(zone),
        unit=one.unit,
        allowance=one.amount,
        used=used,
        as_of=None if known is None else known.end,
        known_until=None if known is None else known.until,
        coverage_ratio=None if known is None else known.coverage(one.window, at=at),
        at=at,
        points=points,
        data_start=None if known is None else _data_start(one, known),
        unpriced_gpu_hours=None,  # of money alone, which others fill in
    )


def _data_start(one: Allowance, known: KnownHours) -> datetime | None:
    start = known.data_start
    return start if start is not None and start > one.window.start else None


def budget_alerts(window: Window, *, visibility: Visibility) -> list[BudgetAlertRow]:
    """Return what was noted about budgets within a window, the newest first. One query.

    Those in money only of teams that the reader sees.
    """
    rows = BudgetAlert.objects.filter(at__gte=window.start, at__lt=window.end)
    if not visibility.everything:
        rows = rows.filter(Q(unit=GPU_HOURS) | Q(team_id__in=visibility.team_ids))
    columns = (
        *("at", "team__name", "kind", "threshold", "used", "allowance", "unit"),
        *("exhausted_at", "period_start", "period_end"),
    )
    return [BudgetAlertRow(*row) for row in rows.order_by("-at", "pk").values_list(*columns)]


def since(end: datetime, allowances: Iterable[Allowance], zone: ZoneInfo) -> datetime:
    """Return the start of the oldest day that is read: of a period, or of the weekday pattern."""
    return min([_pattern_start(end, zone), *(one.window.start for one in allowances)])


def _pattern_start(end: datetime, zone: ZoneInfo) -> datetime:
    return day_start(day_of(end, zone) - timedelta(days=PATTERN_DAYS), zone)


def _budgets(at: datetime, teams: Collection[str] | None) -> Sequence[Budget]:
    """Return the budgets of active teams, or of some, that hold at `at`. One query."""
    # Sorted, so that the same teams in another order are not read twice.
    return _budgets_at(at, None if teams is None else tuple(sorted(teams)))


@read_once
def _budgets_at(at: datetime, teams: tuple[str, ...] | None) -> Sequence[Budget]:
    rows = Budget.objects.filter(holds_at(at), team__active=True).select_related("team")
    if teams is not None:
        rows = rows.filter(team__name__in=teams)
    return list(rows.order_by("team__name", "period", "pk"))
