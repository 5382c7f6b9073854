"""Budgets in their running period: what is used, how fast, and when it will be used up."""

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from zoneinfo import ZoneInfo

from django.db.models import Max, Q, QuerySet, Sum

from apps.accounts.permissions import Visibility
from apps.clusters.domain.calendar import day_of, day_start
from apps.clusters.domain.window import Window
from apps.clusters.selectors import report
from apps.quotas.domain.burn import DayUse, Spent, Usage, burn, used_up
from apps.quotas.domain.periods import period_at
from apps.quotas.models import Budget, BudgetAlert
from apps.quotas.selectors.rows import BudgetAlertRow, BudgetRow, BurnPoint
from apps.usage.domain.amounts import NANO
from apps.usage.domain.collection import CollectionState
from apps.usage.domain.periods import day_end
from apps.usage.domain.rows import Filters, Grouping, Interval
from apps.usage.models import CollectionWindow, TeamHour
from apps.usage.selectors import usage_rows

GPU_HOURS = "gpu_hours"
PATTERN_DAYS = 56
"""How many days back the pattern of a team's weekdays is read from."""
EVERYTHING = Filters()
_HOUR, _DAY, _WEEK = timedelta(hours=1), timedelta(days=1), timedelta(days=7)
_WITH_FACTS = (CollectionState.COMPLETE.value, CollectionState.PARTIAL.value)

HoursOf = Callable[[Collection[str], datetime], Mapping[str, Sequence[tuple[datetime, float]]]]
"""Team names and a start → by team the amount of each hour since then, the oldest first."""


@dataclass(frozen=True, slots=True)
class Closed:
    """Up to when facts are there, and how much of the time before is.

    `day_hours` and `week_hours` are the hours with facts among the last 24 and 168; `whole_days`
    the local days of the last weeks that have facts of every hour, with their hours.
    """

    end: datetime
    day_hours: int = 0
    week_hours: int = 0
    whole_days: tuple[tuple[date, float], ...] = ()


@dataclass(slots=True)
class Spending:
    """What teams used, by name: of each local day, and in the last day and week.

    Of GPU-hours or of one currency. `since` the oldest day read; amounts end at `Closed.end`.
    """

    days: Mapping[str, Mapping[date, float]] = field(default_factory=dict)
    last_day: Mapping[str, float] = field(default_factory=dict)
    last_week: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Allowance:
    """A team's budget in its running period, in one unit."""

    team: str
    period: str
    window: Window
    unit: str
    amount: float


def budget_rows(at: datetime, *, visibility: Visibility) -> list[BudgetRow]:
    """Return the GPU-hour budgets that run at `at`, by team and period.

    Sums of GPUs at the level of a team, which everybody may see: `visibility` narrows nothing.
    Facts of the hour that is not closed yet are not there; used counts allocated GPU-hours. Budgets
    in money come from the room of costs, by `burn_rows`. Twenty queries, at most.
    """
    zone = report().zone
    allowances = gpu_hour_allowances(at, zone)
    if not allowances:
        return []
    closed = closed_hours(at, zone)
    if closed is None:
        return burn_rows(allowances, Spending(), None, at=at, zone=zone, hours_of=_gpu_hours_since)
    spending = _gpu_hours(allowances, closed, zone)
    return burn_rows(allowances, spending, closed, at=at, zone=zone, hours_of=_gpu_hours_since)


def gpu_hour_allowances(at: datetime, zone: ZoneInfo) -> list[Allowance]:
    """Return the GPU-hour budgets of active teams that hold at `at`. One query."""
    rows = _budgets(at).filter(gpu_hours__isnull=False)
    return [
        Allowance(team, period, period_at(period, at, zone), GPU_HOURS, amount)
        for team, period, amount in rows.values_list("team__name", "period", "gpu_hours")
        if amount is not None
    ]


def money_allowances(at: datetime, zone: ZoneInfo) -> list[Allowance]:
    """Return the budgets in money that hold at `at`, of all teams. One query."""
    rows = _budgets(at).filter(money__isnull=False)
    columns = ("team__name", "period", "currency", "money")
    return [
        Allowance(team, period, period_at(period, at, zone), currency, float(amount))
        for team, period, currency, amount in rows.values_list(*columns)
        if amount is not None
    ]


def closed_hours(at: datetime, zone: ZoneInfo) -> Closed | None:
    """Return up to when there are facts before `at`; None while there are none. Two queries."""
    rows = CollectionWindow.objects.filter(
        cluster__active=True, state__in=_WITH_FACTS, hour__lte=at - _HOUR
    )
    last = rows.aggregate(last=Max("hour"))["last"]
    if last is None:
        return None
    end = last + _HOUR
    found = rows.filter(hour__gte=_pattern_start(end, zone)).order_by("hour")
    hours = list(found.values_list("hour", flat=True).distinct())
    return Closed(
        end,
        sum(hour >= end - _DAY for hour in hours),
        sum(hour >= end - _WEEK for hour in hours),
        tuple(_whole_days(hours, day_of(end, zone), zone)),
    )


def _whole_days(
    hours: Iterable[datetime], before: date, zone: ZoneInfo
) -> Iterator[tuple[date, float]]:
    for day, count in sorted(Counter(day_of(hour, zone) for hour in hours).items()):
        length = (day_end(day, zone) - day_start(day, zone)) / _HOUR
        if day < before and count >= length:
            yield day, length


def burn_rows(
    allowances: Sequence[Allowance],
    spending: Spending,
    closed: Closed | None,
    *,
    at: datetime,
    zone: ZoneInfo,
    hours_of: HoursOf,
) -> list[BudgetRow]:
    """Return budgets with what was spent of them; `spending` is in the unit of the allowances.

    `hours_of` is asked once, for the teams that have used theirs up: when that was.
    """
    used = {one: _used(one, spending, closed, zone) for one in allowances}
    over = [one for one in allowances if used[one] >= one.amount and used[one] > 0]
    by_hour: Mapping[str, Sequence[tuple[datetime, float]]] = {}
    if over:
        since = min(one.window.start for one in over)
        by_hour = hours_of({one.team for one in over}, since)
    return [
        _row(one, used[one], spending, closed, at, zone, by_hour.get(one.team, ()))
        for one in sorted(allowances, key=lambda a: (a.team, a.window.start, a.period, a.unit))
    ]


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


# ---------------------------------------------------------------- one budget


def _used(one: Allowance, spending: Spending, closed: Closed | None, zone: ZoneInfo) -> float:
    if closed is None:
        return 0.0
    first = day_of(one.window.start, zone)
    days = spending.days.get(one.team, {})
    return sum(amount for day, amount in days.items() if day >= first)


def _row(
    one: Allowance,
    used: float,
    spending: Spending,
    closed: Closed | None,
    at: datetime,
    zone: ZoneInfo,
    by_hour: Sequence[tuple[datetime, float]],
) -> BudgetRow:
    end = min(at, max(one.window.start, closed.end)) if closed else one.window.start
    days = spending.days.get(one.team, {})
    usage = Usage(end, used, Spent(0.0, 0.0), Spent(0.0, 0.0))
    if closed is not None:
        usage = Usage(
            at=end,
            used=used,
            last_day=Spent(spending.last_day.get(one.team, 0.0), closed.day_hours),
            last_week=Spent(spending.last_week.get(one.team, 0.0), closed.week_hours),
            days=[
                DayUse(day.weekday(), days.get(day, 0.0), hours) for day, hours in closed.whole_days
            ],
        )
    in_period = [(hour, amount) for hour, amount in by_hour if hour >= one.window.start]
    found = burn(
        usage,
        allowance=one.amount,
        period=one.window,
        zone=zone,
        used_up_at=used_up(in_period, allowance=one.amount),
    )
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
        as_of=None if closed is None else closed.end,
        points=_points(one, days, closed, zone),
    )


def _points(
    one: Allowance, days: Mapping[date, float], closed: Closed | None, zone: ZoneInfo
) -> tuple[BurnPoint, ...]:
    """Return what was used by the end of each local day of the period so far, from its start."""
    if closed is None or closed.end <= one.window.start:
        return ()
    points = [BurnPoint(one.window.start, 0.0)]
    day, used = day_of(one.window.start, zone), 0.0
    while (start := day_start(day, zone)) < closed.end:
        used += days.get(day, 0.0)
        end = day_end(day, zone)
        points.append(BurnPoint(min(end, closed.end), used))
        day = day_of(max(end, start + _HOUR), zone)
    return tuple(points)


# ---------------------------------------------------------------- GPU-hours


def _gpu_hours(allowances: Sequence[Allowance], closed: Closed, zone: ZoneInfo) -> Spending:
    since = _since(closed.end, allowances, zone)
    days: dict[str, dict[date, float]] = defaultdict(dict)
    window = Window(since, closed.end)
    for team, period, amount in _by_team(window, Interval.DAY, zone):
        if period is not None:
            days[team][period.date()] = amount
    return Spending(
        days=days,
        last_day=_total(Window(closed.end - _DAY, closed.end), zone),
        last_week=_total(Window(closed.end - _WEEK, closed.end), zone),
    )


def _total(window: Window, zone: ZoneInfo) -> dict[str, float]:
    return {team: amount for team, _, amount in _by_team(window, Interval.TOTAL, zone)}


def _by_team(
    window: Window, interval: Interval, zone: ZoneInfo
) -> list[tuple[str, datetime | None, float]]:
    rows = usage_rows(
        window,
        interval=interval,
        group_by=[Grouping.TEAM],
        filters=EVERYTHING,
        visibility=Visibility(everything=False),
        zone=zone,
    )
    return [
        (row.groups[Grouping.TEAM.value], row.period, row.amounts.allocated / NANO) for row in rows
    ]


def _gpu_hours_since(
    teams: Collection[str], since: datetime
) -> dict[str, list[tuple[datetime, float]]]:
    rows = TeamHour.objects.filter(team__name__in=teams, hour__gte=since, cluster__active=True)
    sums = rows.order_by("hour").values_list("team__name", "hour").annotate(n=Sum("allocated"))
    found: dict[str, list[tuple[datetime, float]]] = defaultdict(list)
    for team, hour, amount in sums:
        found[team].append((hour, amount / NANO))
    return found


def _since(end: datetime, allowances: Iterable[Allowance], zone: ZoneInfo) -> datetime:
    """Return the start of the oldest day that is read: of a period, or of the weekday pattern."""
    return min([_pattern_start(end, zone), *(one.window.start for one in allowances)])


def _pattern_start(end: datetime, zone: ZoneInfo) -> datetime:
    return day_start(day_of(end, zone) - timedelta(days=PATTERN_DAYS), zone)


def _budgets(at: datetime) -> QuerySet[Budget]:
    rows = Budget.objects.filter(
        Q(valid_to__isnull=True) | Q(valid_to__gt=at), valid_from__lte=at, team__active=True
    )
    return rows.order_by("team__name", "period", "pk")
