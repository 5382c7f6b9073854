"""The burn of money budgets: what teams were charged on the allocated basis."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

from django.db.models import F, Max, Q, Sum

from apps.accounts.permissions import Visibility
from apps.clusters.domain.calendar import day_of
from apps.clusters.domain.window import Window
from apps.clusters.selectors import report
from apps.costs.domain.money import SCALE
from apps.costs.domain.money_burn import ChargedHour, MoneyBurn, money_burn
from apps.costs.models import PricedHour, TeamCostDay, TeamCostHour
from apps.quotas.domain.burn import DayUse
from apps.quotas.models import Budget
from apps.usage.domain.periods import day_start

_HOUR = timedelta(hours=1)
_HOURLY = timedelta(days=8)
"""So far back hours are read; of what lies before, days."""
_PATTERN = timedelta(days=56)
_COST = Sum(
    F("cost_busy")
    + F("cost_unmeasured")
    + F("cost_underused")
    + F("cost_idle")
    + F("cost_not_running")
)
_HELD = Sum(F("busy") + F("unmeasured") + F("underused") + F("idle") + F("not_running"))


@dataclass(frozen=True, slots=True)
class MoneyBudgetRow:
    """A money budget in the period that holds the moment; money in full, rates 1.0 = even pace.

    `unit` is the currency. With `unpriced_gpu_hours` the rates are lower bounds.
    """

    team: str
    period: str
    period_start: datetime
    period_end: datetime
    unit: str
    allowance: Decimal
    used: Decimal
    burn_rate: float | None
    burn_rate_1d: float | None
    burn_rate_7d: float | None
    exhausted_at: datetime | None
    exhausted_at_early: datetime | None
    exhausted_at_late: datetime | None
    unpriced_gpu_hours: float = 0.0


def money_budget_rows(now: datetime, *, visibility: Visibility) -> list[MoneyBudgetRow]:
    """Return the money budgets that hold at `now`, by team and period.

    Only of teams whose money the reader may see. Three queries, and at most four for each budget.
    """
    zone = report().zone
    newest = PricedHour.objects.aggregate(newest=Max("hour"))["newest"]
    budgets = Budget.objects.filter(
        Q(valid_to__isnull=True) | Q(valid_to__gt=now), money__isnull=False, valid_from__lte=now
    )
    if not visibility.everything:
        budgets = budgets.filter(team__in=sorted(visibility.team_ids))
    rows = budgets.select_related("team").order_by("team__name", "period", "currency", "pk")
    return [_row(budget, now, newest, zone) for budget in rows]


def budget_window(period: str, at: datetime, zone: ZoneInfo) -> Window:
    """Return the local week, month, quarter or year that holds `at`."""
    day = day_of(at, zone)
    if period == "week":
        monday = day - timedelta(days=day.weekday())
        return Window(day_start(monday, zone), day_start(monday + timedelta(days=7), zone))
    months = {"month": 1, "quarter": 3, "year": 12}[period]
    first = date(day.year, (day.month - 1) // months * months + 1, 1)
    after = first.year * 12 + first.month - 1 + months
    following = date(after // 12, after % 12 + 1, 1)
    return Window(day_start(first, zone), day_start(following, zone))


def _row(budget: Budget, now: datetime, newest: datetime | None, zone: ZoneInfo) -> MoneyBudgetRow:
    period = budget_window(budget.period, now, zone)
    at = period.start if newest is None else max(period.start, min(now, newest + _HOUR))
    allowance = budget.money or Decimal(0)
    found = _burn(budget, allowance, at, period, zone)
    return MoneyBudgetRow(
        team=budget.team.name,
        period=budget.period,
        period_start=period.start,
        period_end=period.end,
        unit=budget.currency,
        allowance=found.allowance,
        used=found.used,
        burn_rate=found.burn.burn_rate,
        burn_rate_1d=found.burn.burn_rate_1d,
        burn_rate_7d=found.burn.burn_rate_7d,
        exhausted_at=found.burn.exhausted_at,
        exhausted_at_early=found.burn.exhausted_at_early,
        exhausted_at_late=found.burn.exhausted_at_late,
        unpriced_gpu_hours=found.unpriced_gpu_hours,
    )


def _burn(
    budget: Budget, allowance: Decimal, at: datetime, period: Window, zone: ZoneInfo
) -> MoneyBurn:
    turn = day_start(day_of(at - _HOURLY, zone), zone)
    days = list(_days(budget, min(period.start, at - _PATTERN), at, zone))
    early = [
        ChargedHour(start, cost, unpriced)
        for start, cost, unpriced, _ in days
        if period.start <= start < turn
    ]
    hours = list(_hours(budget, Window(turn, max(at, turn + _HOUR))))
    charged = [*_cut(early, budget, allowance, zone), *hours]
    whole = [
        DayUse(start.astimezone(zone).weekday(), cost / SCALE, length)
        for start, cost, _, length in days
        if at - _PATTERN <= start and start + timedelta(hours=length) <= at
    ]
    return money_burn(charged, allowance=allowance, at=at, period=period, zone=zone, days=whole)


def _cut(
    days: Sequence[ChargedHour], budget: Budget, allowance: Decimal, zone: ZoneInfo
) -> Iterable[ChargedHour]:
    """Return days as they are, but for the one that used the allowance up: that by its hours."""
    used = 0
    for day in days:
        used += day.cost
        if used >= allowance * SCALE > used - day.cost:
            local = day_of(day.start, zone)
            end = day_start(local + timedelta(days=1), zone)
            yield from _hours(budget, Window(day.start, end))
        else:
            yield day


def _hours(budget: Budget, window: Window) -> Iterator[ChargedHour]:
    """Yield what each priced hour cost the team, 0 where it held nothing. Two queries."""
    rows = TeamCostHour.objects.filter(
        team_id=budget.team_id, hour__gte=window.start, hour__lt=window.end
    )
    of_hour = _sums(rows, "hour", budget.currency)
    priced = PricedHour.objects.filter(hour__gte=window.start, hour__lt=window.end)
    for hour in priced.order_by("hour").values_list("hour", flat=True).distinct():
        cost, unpriced = of_hour.get(hour, (0, 0))
        yield ChargedHour(hour, cost, unpriced)


def _days(
    budget: Budget, start: datetime, end: datetime, zone: ZoneInfo
) -> Iterator[tuple[datetime, int, int, float]]:
    """Yield (start, cost, unpriced, hours) of local days, those without a cost left out."""
    rows = TeamCostDay.objects.filter(
        team_id=budget.team_id, day__gte=day_of(start, zone), day__lte=day_of(end, zone)
    )
    for day, (cost, unpriced) in sorted(_sums(rows, "day", budget.currency).items()):
        begins = day_start(day, zone)
        ends = day_start(day + timedelta(days=1), zone)
        yield begins, cost, unpriced, (ends - begins) / _HOUR


def _sums(rows: Any, time: str, currency: str) -> dict[Any, tuple[int, int]]:
    """Return (cost, nano-GPU-hours without a price) by hour or day. One query."""
    found: dict[Any, tuple[int, int]] = {}
    kept = rows.filter(currency__in=("", currency)).order_by()
    for at, of, cost, held in kept.values_list(time, "currency").annotate(cost=_COST, held=_HELD):
        known = found.get(at, (0, 0))
        found[at] = (known[0] + int(cost), known[1]) if of else (known[0], known[1] + int(held))
    return found
