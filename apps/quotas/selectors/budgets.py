"""Budgets in their running period: what is used, how fast, and when it will be used up."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from datetime import date, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from django.db.models import Count, Max, Min, OuterRef, Q, QuerySet, Subquery

from apps.accounts.permissions import Visibility
from apps.clusters.domain.calendar import day_of, day_start
from apps.clusters.domain.window import Window
from apps.clusters.models import Cluster
from apps.clusters.models.validity import holds_at
from apps.clusters.selectors import report
from apps.quotas.domain.burn import Burn
from apps.quotas.domain.periods import period_at
from apps.quotas.domain.spending import (
    Allowance,
    ClusterHours,
    KnownHours,
    Spending,
    SpendingAt,
    burn_of,
    day_of_end,
    ordered,
    points_of,
    whole_days,
)
from apps.quotas.models import Budget, BudgetAlert
from apps.quotas.selectors.allocated import _DAY, _WEEK, GPU_HOURS, GpuHours, HoursOf, hours_in
from apps.quotas.selectors.rows import BudgetAlertRow, BudgetRow, BurnPoint
from apps.usage.models import HAS_FACTS, CollectionWindow

PATTERN_DAYS = 56
"""How many days back the pattern of a team's weekdays is read from."""
_HOUR = timedelta(hours=1)
_NO_BURN = Burn(None, None, None, None, None, None)


def budget_rows(
    at: datetime,
    *,
    visibility: Visibility,
    team: str | None = None,
    points: bool = True,
    ranges: bool = True,
) -> list[BudgetRow]:
    """Return the GPU-hour budgets that run at `at`, of one team or all, by team and period.

    Without `points` no row has a burn-down. Without `ranges` none has that, nor its earliest and
    latest end: days are read of what is used up alone, for a year of a thousand teams is summed
    by the database. `in_full` gives the rows that are shown the rest.

    Sums of GPUs at the level of a team, which everybody may see: `visibility` narrows nothing.
    Facts of the hour that is not closed yet are not there; used counts allocated GPU-hours of all
    clusters, those no longer in the catalog too. Budgets in money come from the room of costs, by
    `burn_rows`. Ten queries and one for each 100 days on which budgets were used up.
    """
    teams = None if team is None else [team]
    return _rows_of(at, teams, points=points and ranges, ranges=ranges)


def in_full(rows: Sequence[BudgetRow], at: datetime, *, points: bool = True) -> list[BudgetRow]:
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
    known = known_hours(rows, allowances, at=at, zone=zone, pattern=ranges)
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
    rows = _budgets(at, teams).filter(gpu_hours__isnull=False)
    return [
        Allowance(team, period, period_at(period, at, zone), GPU_HOURS, amount)
        for team, period, amount in rows.values_list("team__name", "period", "gpu_hours")
        if amount is not None
    ]


def money_allowances(
    at: datetime, zone: ZoneInfo, *, visibility: Visibility, team: str | None = None
) -> list[Allowance]:
    """Return the budgets in money that hold at `at`, of teams that the reader sees. One query."""
    rows = _budgets(at, None if team is None else [team]).filter(money__isnull=False)
    if not visibility.everything:
        rows = rows.filter(team__in=sorted(visibility.team_ids))
    columns = ("team__name", "period", "currency", "money")
    return [
        Allowance(team, period, period_at(period, at, zone), currency, float(amount), amount)
        for team, period, currency, amount in rows.values_list(*columns)
        if amount is not None
    ]


def known_hours(
    rows: QuerySet[Any],
    allowances: Iterable[Allowance],
    *,
    at: datetime,
    zone: ZoneInfo,
    pattern: bool = True,
) -> KnownHours | None:
    """Return which hours before `at` are known; None while there are none. Four queries.

    Without `pattern` no whole days are told, which takes a query less.

    `rows` have a cluster and an hour each: of what was collected, or priced. Up to when anything
    is known says any cluster, and so does how much is; until when all is, the active ones.
    """
    rows = rows.filter(hour__lte=at - _HOUR)
    last = rows.aggregate(last=Max("hour"))["last"]
    if last is None:
        return None
    end = last + _HOUR
    starts = sorted({one.window.start for one in allowances})
    clusters, retired = _cluster_hours(rows, end, starts)
    if not pattern:
        return KnownHours(end, clusters, retired=retired)
    of_pattern = rows.filter(hour__gte=_pattern_start(end, zone), cluster__active=True)
    counts = of_pattern.order_by("hour").values_list("hour").annotate(known=Count("pk"))
    before = day_of(end, zone)
    whole = tuple(whole_days(counts, clusters.values(), before=before, zone=zone))
    return KnownHours(end, clusters, whole, retired)


def _cluster_hours(
    rows: QuerySet[Any], end: datetime, starts: Sequence[datetime]
) -> tuple[dict[str, ClusterHours], dict[str, ClusterHours]]:
    """Return the known hours of each active and each retired cluster, also where none is known.

    A cluster was there from its first hour that was to be collected on, one that is retired until
    its last; of one that was never to be nothing is expected. Two queries.
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
    for name, is_active, begun, latest in _there():
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


def _there() -> QuerySet[Cluster, tuple[str, bool, datetime | None, datetime | None]]:
    """Return each cluster's name, whether it is active, its first and last hour to collect."""
    hours = CollectionWindow.objects.filter(cluster=OuterRef("pk"))
    rows = Cluster.objects.order_by("name").annotate(
        begun=Subquery(hours.order_by("hour").values("hour")[:1]),
        latest=Subquery(hours.order_by("-hour").values("hour")[:1]),
    )
    return rows.values_list("name", "active", "begun", "latest")


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
        _row(
            one,
            spent,
            hours=by_hour.get((one.purse, ends[one]), ()) if one in ends else (),
            drawn=points,
        )
        for one in ordered(allowances)
    ]


def _row(
    one: Allowance, spent: SpendingAt, *, hours: Sequence[tuple[datetime, float]], drawn: bool
) -> BudgetRow:
    at, zone, spending, known = spent.at, spent.zone, spent.spending, spent.known
    used, found = 0.0, _NO_BURN
    points: tuple[BurnPoint, ...] = ()
    if known is not None:
        used, found = burn_of(one, spending, known, at=at, zone=zone, hours=hours)
        if drawn:
            points = tuple(BurnPoint(*p) for p in points_of(one, spending, known, zone))
    return BudgetRow(
        team=one.team,
        period=one.period,
        period_start=one.window.start.astimezone(zone),
        period_end=one.window.end.astimezone(zone),
        unit=one.unit,
        allowance=one.amount,
        used=used,
        burn_rate=found.burn_rate,
        burn_rate_1d=found.burn_rate_1d,
        burn_rate_7d=found.burn_rate_7d,
        exhausted_at=found.exhausted_at,
        exhausted_at_early=found.exhausted_at_early,
        exhausted_at_late=found.exhausted_at_late,
        as_of=None if known is None else known.end,
        known_until=None if known is None else known.until,
        coverage_ratio=None if known is None else known.coverage(one.window, at=at),
        at=at,
        points=points,
        data_start=None if known is None else _data_start(one, known),
        known_hours=found.known_hours,
        last_day=found.last_day,
        last_week=found.last_week,
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
        *("team__name", "unit", "period_start", "period_end", "kind", "threshold"),
        *("at", "used", "allowance", "exhausted_at"),
    )
    return [BudgetAlertRow(*row) for row in rows.order_by("-at", "pk").values_list(*columns)]


def since(end: datetime, allowances: Iterable[Allowance], zone: ZoneInfo) -> datetime:
    """Return the start of the oldest day that is read: of a period, or of the weekday pattern."""
    return min([_pattern_start(end, zone), *(one.window.start for one in allowances)])


def _pattern_start(end: datetime, zone: ZoneInfo) -> datetime:
    return day_start(day_of(end, zone) - timedelta(days=PATTERN_DAYS), zone)


def _budgets(at: datetime, teams: Collection[str] | None) -> QuerySet[Budget]:
    rows = Budget.objects.filter(holds_at(at), team__active=True)
    if teams is not None:
        rows = rows.filter(team__name__in=teams)
    return rows.order_by("team__name", "period", "pk")
