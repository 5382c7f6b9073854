"""Sums of money beyond 2^63 units, as a weak currency makes them, on every database."""

from datetime import timedelta
from decimal import Decimal

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from apps.accounts.permissions import EVERYTHING
from apps.costs.domain.costing import money
from apps.costs.models import PoolCostDay, TeamCostDay
from apps.costs.selectors.budgets import money_budget_rows
from apps.costs.selectors.cost_reader import rows_with_costs
from apps.quotas.models import Budget
from apps.usage.domain.usage_query import Grouping, TimeStep
from tests.costs.portal import PRICES, cost_of_capacity, make_priced, rows, total
from tests.factories import BEGINNING

pytestmark = pytest.mark.django_db

DEAR = tuple((model, kind, "150000000") for model, kind, _ in PRICES)
DAYS = 4
HOUR = timedelta(hours=1)
COSTS = ("busy", "unmeasured", "underused", "idle", "not_running", "energy")


def test_sums_beyond_64_bits_are_exact() -> None:
    priced = make_priced(DAYS, prices=DEAR)
    whole = total(rows(priced.window))
    assert whole > 2**63
    by_day = rows(priced.window, interval=TimeStep.DAY, group_by=(Grouping.TEAM,))
    assert total(by_day) == whole
    # Each row of an hour is rounded by itself.
    assert abs(whole - cost_of_capacity(priced.window, DEAR)) < 10_000


def test_two_parts_of_a_sum_are_its_sum_below_0_too() -> None:
    make_priced()
    PoolCostDay.objects.update(cost_idle=-(2**62) - 123_456_789)
    count = PoolCostDay.objects.count()
    assert count >= 3
    ((_, found),) = rows_with_costs(
        PoolCostDay.objects.order_by().values("currency"), ("currency",), ("idle",), {}
    )
    assert int(found) == count * (-(2**62) - 123_456_789)


def test_one_query_is_enough_where_sums_fit() -> None:
    make_priced()
    with CaptureQueriesContext(connection) as caught:
        list(rows_with_costs(PoolCostDay.objects.values("currency"), ("currency",), ("idle",), {}))
    assert len(caught) == 1


def test_a_money_budget_counts_days_beyond_64_bits() -> None:
    priced = make_priced(DAYS, prices=DEAR)
    Budget.objects.create(
        team=priced.portal.vision,
        period="month",
        money=Decimal(10) ** 11,
        currency="USD",
        valid_from=BEGINNING,
    )
    TeamCostDay.objects.filter(team=priced.portal.vision).update(cost_busy=2**62)
    (row,) = money_budget_rows(priced.window.end - HOUR, visibility=EVERYTHING)
    days = TeamCostDay.objects.filter(team=priced.portal.vision, currency="USD")
    first = row.period_start.astimezone(priced.portal.zone).date()
    counted = list(days.filter(day__gte=first).order_by("day"))
    # Some days are in several rows, so that a day alone is beyond them.
    assert len({day.day for day in counted}) * 2 <= len(counted)
    assert row.used == money(sum(getattr(day, f"cost_{name}") for day in counted for name in COSTS))
    assert row.used > money(2**63)
