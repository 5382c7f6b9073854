"""Budgets in their running period: what is used, how fast, and when it will be used up."""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from django.db.models import Count, Max, Min, Q, QuerySet, Sum

from apps.accounts.permissions import Visibility
from apps.accounts.selectors import team_names
from apps.clusters.domain.calendar import day_of, day_start, day_window
from apps.clusters.domain.window import Window
from apps.clusters.models import Cluster
from apps.clusters.selectors import report
from apps.quotas.domain.burn import Burn
from apps.quotas.domain.periods import period_at
from apps.quotas.domain.spending import (
    Allowance,
    ClusterHours,
    Known,
    Purse,
    Spending,
    burn_of,
    day_of_end,
    ordered,
    points_of,
    whole_days,
)
from apps.quotas.models import Budget, BudgetAlert
from apps.quotas.selectors.rows import BudgetAlertRow, BudgetRow, BurnPoint
from apps.usage.domain.amounts import NANO
from apps.usage.domain.collection import CollectionState
from apps.usage.models import CollectionWindow, TeamDay, TeamHour

GPU_HOURS = "gpu_hours"
PATTERN_DAYS = 56
"""How many days back the pattern of a team's weekdays is read from."""
DAYS_AT_A_TIME = 100
_HOUR, _DAY, _WEEK = timedelta(hours=1), timedelta(days=1), timedelta(days=7)
_WITH_FACTS = (CollectionState.COMPLETE.value, CollectionState.PARTIAL.value)
_NO_BURN = Burn(None, None, None, None, None, None)

HoursOf = Callable[
    [Mapping[date, Collection[str]]], Mapping[tuple[Purse, date], Sequence[tuple[datetime, float]]]
]
"""Local days with names of teams → what each of their hours spent, the oldest first."""


def budget_rows(
    at: datetime, *, visibility: Visibility, team: str | None = None, points: bool = True
) -> list[BudgetRow]:
    """Return the GPU-hour budgets that run at `at`, of one team or all, by team and period.

    Without `points` no row has a burn-down.

    Sums of GPUs at the level of a team, which everybody may see: `visibility` narrows nothing.
    Facts of the hour that is not closed yet are not there; used counts allocated GPU-hours of all
    clusters, those no longer in the catalog too. Budgets in money come from the room of costs, by
    `burn_rows`. Ten queries and one for each 100 days on which budgets were used up.
    """
    zone = report().zone
    allowances = gpu_hour_allowances(at, zone, team=team)
    if not allowances:
        return []
    rows = CollectionWindow.objects.filter(state__in=_WITH_FACTS)
    known = known_hours(rows, allowances, at=at, zone=zone)
    spending = Spending() if known is None else _gpu_hours(allowances, known, zone, team)
    return burn_rows(
        allowances, spending, known, at=at, zone=zone, hours_of=_hours_of(zone), points=points
    )


def with_points(rows: Sequence[BudgetRow], at: datetime) -> list[BudgetRow]:
    """Return budgets in GPU-hours with their burn-down by local day. Two queries."""
    if not rows:
        return []
    zone = report().zone
    first = min(day_of(row.period_start, zone) for row in rows)
    sums = TeamDay.objects.filter(
        cluster_id__in=list(Cluster.objects.order_by("pk").values_list("pk", flat=True)),
        day__gte=first,
        team__name__in={row.team for row in rows},
    )
    days: dict[Purse, dict[date, float]] = defaultdict(dict)
    for name, day, amount in (
        sums.order_by().values_list("team__name", "day").annotate(n=Sum("allocated"))
    ):
        days[name, GPU_HOURS][day] = amount / NANO
    return [_drawn(row, Spending(days), at, zone) for row in rows]


def _drawn(row: BudgetRow, spending: Spending, at: datetime, zone: ZoneInfo) -> BudgetRow:
    if row.as_of is None:
        return row
    window = Window(row.period_start.astimezone(UTC), row.period_end.astimezone(UTC))
    one = Allowance(row.team, row.period, window, row.unit, row.allowance)
    found = points_of(one, spending, min(at, row.as_of), zone)
    return replace(row, points=tuple(BurnPoint(*point) for point in found))


def gpu_hour_allowances(
    at: datetime, zone: ZoneInfo, *, team: str | None = None
) -> list[Allowance]:
    """Return the GPU-hour budgets of active teams, or of one, that hold at `at`. One query."""
    rows = _budgets(at, team).filter(gpu_hours__isnull=False)
    return [
        Allowance(team, period, period_at(period, at, zone), GPU_HOURS, amount)
        for team, period, amount in rows.values_list("team__name", "period", "gpu_hours")
        if amount is not None
    ]


def money_allowances(
    at: datetime, zone: ZoneInfo, *, visibility: Visibility, team: str | None = None
) -> list[Allowance]:
    """Return the budgets in money that hold at `at`, of teams that the reader sees. One query."""
    rows = _budgets(at, team).filter(money__isnull=False)
    if not visibility.everything:
        rows = rows.filter(team__in=sorted(visibility.team_ids))
    columns = ("team__name", "period", "currency", "money")
    return [
        Allowance(team, period, period_at(period, at, zone), currency, float(amount), amount)
        for team, period, currency, amount in rows.values_list(*columns)
        if amount is not None
    ]


def known_hours(
    rows: QuerySet[Any], allowances: Iterable[Allowance], *, at: datetime, zone: ZoneInfo
) -> Known | None:
    """Return which hours before `at` are known; None while there are none. Four queries.

    `rows` have a cluster and an hour each: of what was collected, or priced. Up to when anything
    is known says any cluster; how much is known, the active ones.
    """
    rows = rows.filter(hour__lte=at - _HOUR)
    last = rows.aggregate(last=Max("hour"))["last"]
    if last is None:
        return None
    end = last + _HOUR
    clusters = _cluster_hours(rows, end, sorted({one.window.start for one in allowances}))
    of_pattern = rows.filter(hour__gte=_pattern_start(end, zone), cluster__active=True)
    counts = of_pattern.order_by("hour").values_list("hour").annotate(known=Count("pk"))
    before = day_of(end, zone)
    return Known(
        end, clusters, tuple(whole_days(counts, clusters.values(), before=before, zone=zone))
    )


def _cluster_hours(
    rows: QuerySet[Any], end: datetime, starts: Sequence[datetime]
) -> dict[str, ClusterHours]:
    """Return the known hours of each active cluster, of one without any too. Two queries."""
    since = {f"since_{n}": Count("pk", filter=Q(hour__gte=start)) for n, start in enumerate(starts)}
    counts = rows.filter(cluster__active=True).order_by().values_list("cluster__name").annotate(
        first=Min("hour"),
        last=Max("hour"),
        day=Count("pk", filter=Q(hour__gte=end - _DAY)),
        week=Count("pk", filter=Q(hour__gte=end - _WEEK)),
        **since,
    )  # fmt: skip
    names = Cluster.objects.filter(active=True).order_by("name").values_list("name", flat=True)
    found = {name: ClusterHours() for name in names}
    for name, first, last, day, week, *by_start in counts:
        found[name] = ClusterHours(first, last, day, week, dict(zip(starts, by_start, strict=True)))
    return found


def burn_rows(
    allowances: Sequence[Allowance],
    spending: Spending,
    known: Known | None,
    *,
    at: datetime,
    zone: ZoneInfo,
    hours_of: HoursOf,
    points: bool = True,
) -> list[BudgetRow]:
    """Return budgets with what was spent of them, by team, period and unit.

    `hours_of` is asked once, for the days on which budgets were used up: when in the day.
    """
    ends: dict[Allowance, date] = {}
    for one in allowances:
        found = day_of_end(spending.of_days(one, zone), one.amount)
        if found is not None:
            ends[one] = found[0]
    teams: dict[date, set[str]] = defaultdict(set)
    for one, day in ends.items():
        teams[day].add(one.team)
    by_hour = hours_of(teams) if teams else {}
    return [
        _row(
            one,
            spending,
            known,
            at=at,
            zone=zone,
            hours=by_hour.get((one.purse, ends[one]), ()) if one in ends else (),
            drawn=points,
        )
        for one in ordered(allowances)
    ]


def _row(
    one: Allowance,
    spending: Spending,
    known: Known | None,
    *,
    at: datetime,
    zone: ZoneInfo,
    hours: Sequence[tuple[datetime, float]],
    drawn: bool,
) -> BudgetRow:
    used, found = 0.0, _NO_BURN
    points: tuple[BurnPoint, ...] = ()
    if known is not None:
        used, found = burn_of(one, spending, known, at=at, zone=zone, hours=hours)
        if drawn:
            points = tuple(BurnPoint(*p) for p in points_of(one, spending, known.end, zone))
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
        coverage_ratio=None if known is None else known.coverage(one.window),
        points=points,
    )


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


# ---------------------------------------------------------------- GPU-hours


def _gpu_hours(
    allowances: Sequence[Allowance], known: Known, zone: ZoneInfo, team: str | None
) -> Spending:
    """Return what teams were allocated. Four queries, which sum in the database.

    Straight from the sums by team, for a thousand teams are read in one go: their ledgers in full
    (`usage_rows`) would be ten times the work.
    """
    first = day_of(since(known.end, allowances, zone), zone)
    # Clusters are named, all of them, so that their index serves; teams go by id, as rows do.
    clusters = dict(Cluster.objects.order_by("pk").values_list("pk", "name"))
    purses = {pk: (name, GPU_HOURS) for pk, name in team_names().items()}
    of = {"cluster_id__in": list(clusters)} | ({} if team is None else {"team__name": team})
    days: dict[Purse, dict[date, float]] = defaultdict(dict)
    rows = TeamDay.objects.filter(day__gte=first, **of).order_by().values_list("team_id", "day")
    for pk, day, amount in rows.annotate(n=Sum("allocated")):
        days[purses[pk]][day] = amount / NANO
    spending = Spending(days, defaultdict(dict), defaultdict(dict))
    hours = TeamHour.objects.filter(hour__gte=known.end - _WEEK, hour__lt=known.end, **of)
    sums = hours.order_by().values_list("team_id", "cluster_id").annotate(
        week=Sum("allocated"),
        day=Sum("allocated", filter=Q(hour__gte=known.end - _DAY), default=0),
    )  # fmt: skip
    for pk, cluster, week, last_day in sums:
        spending.last_week[purses[pk]][clusters[cluster]] = week / NANO
        spending.last_day[purses[pk]][clusters[cluster]] = last_day / NANO
    return spending


def _hours_of(zone: ZoneInfo) -> HoursOf:
    def hours_of(
        teams: Mapping[date, Collection[str]],
    ) -> dict[tuple[Purse, date], list[tuple[datetime, float]]]:
        found: dict[tuple[Purse, date], list[tuple[datetime, float]]] = defaultdict(list)
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


def since(end: datetime, allowances: Iterable[Allowance], zone: ZoneInfo) -> datetime:
    """Return the start of the oldest day that is read: of a period, or of the weekday pattern."""
    return min([_pattern_start(end, zone), *(one.window.start for one in allowances)])


def _pattern_start(end: datetime, zone: ZoneInfo) -> datetime:
    return day_start(day_of(end, zone) - timedelta(days=PATTERN_DAYS), zone)


def _budgets(at: datetime, team: str | None = None) -> QuerySet[Budget]:
    rows = Budget.objects.filter(
        Q(valid_to__isnull=True) | Q(valid_to__gt=at), valid_from__lte=at, team__active=True
    )
    if team is not None:
        rows = rows.filter(team__name=team)
    return rows.order_by("team__name", "period", "pk")
