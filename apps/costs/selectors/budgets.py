"""The burn of money budgets: what teams were charged on the allocated basis."""

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Annotated
from zoneinfo import ZoneInfo

from django.db.models import F, Sum

from apps.accounts.domain.rows import row_from
from apps.accounts.permissions import Visibility
from apps.clusters.domain.columns import Column
from apps.clusters.domain.window import Window, day_of, day_start
from apps.clusters.selectors import report
from apps.costs.domain.costing import HELD, SCALE, Cause, money
from apps.costs.models import Adjustment, PricedHour, TeamCostDay, TeamCostHour
from apps.costs.selectors.cost_reader import rows_with_costs
from apps.quotas.domain.budgets import (
    Allowance,
    BudgetKey,
    KnownHours,
    Spending,
    SpendingAt,
    ordered,
)
from apps.quotas.selectors import (
    BudgetRow,
    BurnRow,
    burn_rows,
    known_hours,
    last_hour,
    money_allowances,
    on_days,
    since,
)
from apps.usage.domain.amounts import hours

_DAY, _WEEK = timedelta(days=1), timedelta(days=7)
_COSTS = ("busy", "unmeasured", "underused", "idle", "not_running", "energy")
"""What a team is charged: the sums of `cost_` of each, which may be larger than the database's."""
_HELD = Sum(F("busy") + F("unmeasured") + F("underused") + F("idle") + F("not_running"))
_Cents = dict[BudgetKey, dict[date, int]]
"""Whole units by local day: 1e-8 of a currency, or nano-GPU-hours of what has no currency."""
_Hours = list[tuple[datetime, float]]


class MoneyBudgetRow(BurnRow, frozen=True):
    """A budget in money, in full; `unit` is the currency, known hours are those with a price.

    With `unpriced_gpu_hours`, or hours missing, `used` is a lower bound. `used` counts corrections
    of closed months on the day on which they were booked; it is the sum of `days`, by local day.
    """

    allowance: Annotated[Decimal, Column("Budget")]
    used: Annotated[Decimal, Column("Used")]
    unpriced_gpu_hours: Annotated[
        float, Column("Unpriced", "GPU-h", "Used and without a price, so not counted.")
    ] = 0.0
    days: tuple[tuple[date, Decimal], ...] = ()


def money_budget_rows(
    now: datetime, *, visibility: Visibility, team: str | None = None
) -> list[MoneyBudgetRow]:
    """Return the money budgets that hold at `now`, of one team or all, by team and period.

    Only of teams whose money the reader may see. Eleven queries and one for each 100 days on
    which budgets were used up, however many budgets there are.
    """
    zone = report().zone
    allowances = money_allowances(now, zone, visibility=visibility, team=team)
    if not allowances:
        return []
    priced = PricedHour.objects.all()
    last = list(last_hour(priced, now))
    known = known_hours(priced, allowances, last=last, at=now, zone=zone)
    # Before the first priced hour nothing was charged, and there is nothing to read.
    charged = _Charged() if known is None else _charged(allowances, known, zone)
    spent = SpendingAt(now, zone, charged.spending, known)
    rows = burn_rows(allowances, spent, hours_of=charged.hours_of(zone), points=False)
    return [
        _row(row, one.exact, charged, zone)
        for row, one in zip(rows, ordered(allowances), strict=True)
    ]


# ---------------------------------------------------------------- what was charged


class _Charged:
    """What teams were charged, in whole units, which sum exactly; `spending` is made of them."""

    def __init__(self) -> None:
        self.days: _Cents = {}
        self.booked: _Cents = {}
        self.spending = Spending()

    def used(self, budget_key: BudgetKey, first: date) -> int:
        """Return what counts against a budget from a local day on."""
        days = (self.days.get(budget_key, {}), self.booked.get(budget_key, {}))
        return sum(cost for by_day in days for day, cost in by_day.items() if day >= first)

    def by_day(self, budget_key: BudgetKey, first: date) -> tuple[tuple[date, Decimal], ...]:
        """Return what `used` adds up, by local day; days without any are left out."""
        found: dict[date, int] = defaultdict(int)
        for by_day in (self.days.get(budget_key, {}), self.booked.get(budget_key, {})):
            for day, cost in by_day.items():
                found[day] += cost
        return tuple((day, money(found[day])) for day in sorted(found) if day >= first)

    def hours_of(self, zone: ZoneInfo) -> Callable[..., dict[tuple[BudgetKey, date], _Hours]]:
        """Return a function that reads the hours of some days; what was booked comes first."""

        def read(teams: Mapping[date, Collection[str]]) -> dict[tuple[BudgetKey, date], _Hours]:
            found: dict[tuple[BudgetKey, date], _Hours] = defaultdict(list)
            for budget_key, days in self.booked.items():
                for day in days.keys() & teams.keys():
                    found[budget_key, day].append((day_start(day, zone), days[day] / SCALE))
            for condition in on_days(teams, zone):
                rows = TeamCostHour.objects.filter(condition).order_by("hour")
                columns = ("team__name", "currency", "hour")
                sums = rows_with_costs(rows.values(*columns), columns, _COSTS, {})
                for name, currency, hour, *costs in sums:
                    # Only the curve is of floats: what is used is summed up in whole units.
                    whole = int(sum(costs)) / SCALE
                    found[(name, currency), day_of(hour, zone)].append((hour, whole))
            return found

        return read


def _charged(allowances: Sequence[Allowance], known: KnownHours, zone: ZoneInfo) -> _Charged:
    found = _Charged()
    teams = sorted({one.team for one in allowances})
    first = day_of(since(known.end, allowances, zone), zone)
    found.days = _days(teams, first)
    found.booked = _corrections(teams, first)
    found.spending = Spending(
        days=_in_full(found.days),
        booked=_in_full(found.booked),
        last_day=_by_cluster(teams, Window(known.end - _DAY, known.end)),
        last_week=_by_cluster(teams, Window(known.end - _WEEK, known.end)),
    )
    return found


def _days(teams: Collection[str], first: date) -> _Cents:
    """Return the cost of days, and of what has no price the nano-GPU-hours. One query."""
    rows = TeamCostDay.objects.filter(day__gte=first, team__name__in=teams).order_by()
    columns = ("team__name", "currency", "day")
    sums = rows_with_costs(rows.values(*columns), columns, _COSTS, {"held": _HELD})
    found: _Cents = defaultdict(dict)
    for team, currency, day, *costs, held in sums:
        # GPU-hours without a price have no currency: under that key stand they themselves.
        found[team, currency][day] = int(sum(costs)) if currency else int(held)
    return found


def _corrections(teams: Collection[str], first: date) -> _Cents:
    """Return the money that was booked of closed months by the day of booking. One query.

    What got a price later is less unpriced in its own month, not in the one it is booked in.
    """
    causes = [cause.value for cause in (*HELD, Cause.ENERGY)]
    rows = Adjustment.objects.filter(booked_on__gte=first, team__name__in=teams, cause__in=causes)
    sums = rows.exclude(currency="").order_by().values_list("team__name", "currency", "booked_on")
    found: _Cents = defaultdict(dict)
    for team, currency, day, cost in sums.annotate(sum_cost=Sum("cost")):
        found[team, currency][day] = int(cost)
    return found


def _by_cluster(teams: Collection[str], window: Window) -> dict[BudgetKey, dict[str, float]]:
    """Return what hours cost by cluster. One query."""
    rows = TeamCostHour.objects.filter(
        hour__gte=window.start, hour__lt=window.end, team__name__in=teams
    ).exclude(currency="")
    columns = ("team__name", "currency", "cluster__name")
    found: dict[BudgetKey, dict[str, float]] = defaultdict(dict)
    grouped = rows.order_by().values(*columns)
    for team, currency, cluster, *costs in rows_with_costs(grouped, columns, _COSTS, {}):
        found[team, currency][cluster] = int(sum(costs)) / SCALE
    return found


def _in_full(days: _Cents) -> dict[BudgetKey, dict[date, float]]:
    return {
        budget_key: {day: cost / SCALE for day, cost in by_day.items()}
        for budget_key, by_day in days.items()
        # Without a currency it is GPU-hours, which are no money.
        if budget_key[1]
    }


# ---------------------------------------------------------------- one budget


def _row(row: BudgetRow, allowance: Decimal, charged: _Charged, zone: ZoneInfo) -> MoneyBudgetRow:
    first = day_of(row.period_start, zone)
    # In place of the floats that every burn has: budget and use are exact decimals here.
    return row_from(
        MoneyBudgetRow,
        row,
        allowance=allowance,
        used=money(charged.used((row.team, row.unit), first)),
        unpriced_gpu_hours=hours(charged.used((row.team, ""), first)),
        days=charged.by_day((row.team, row.unit), first),
    )
