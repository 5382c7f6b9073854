"""Sums of money beyond 2^63 units, as a weak currency makes them, on every database."""

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from apps.costs.models import PoolCostDay
from apps.costs.selectors.large_sums import rows_with_costs
from apps.usage.domain.rows import Grouping, Interval
from tests.costs.portal import PRICES, cost_of_capacity, make_priced, rows, total

pytestmark = pytest.mark.django_db

DEAR = tuple((model, kind, "150000000") for model, kind, _ in PRICES)
DAYS = 4


def test_sums_beyond_64_bits_are_exact() -> None:
    priced = make_priced(DAYS, prices=DEAR)
    whole = total(rows(priced.window))
    assert whole > 2**63
    by_day = rows(priced.window, interval=Interval.DAY, group_by=(Grouping.TEAM,))
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
