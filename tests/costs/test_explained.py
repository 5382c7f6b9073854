"""Costs are explained by the GPU-hours and prices that they are made of."""

from decimal import Decimal

import pytest

from apps.accounts.permissions import EVERYTHING
from apps.costs.domain.costing import WASTE
from apps.costs.selectors import CostQuery, cost_rows, explain_cost
from apps.costs.selectors.explain_costs import FIGURES
from apps.usage.domain.explained import evaluate
from tests.costs.portal import make_priced


@pytest.mark.django_db
@pytest.mark.parametrize("figure", FIGURES)
def test_costs_are_gpu_hours_times_price(figure: str) -> None:
    priced = make_priced()
    one = explain_cost(figure, CostQuery(priced.window), visibility=EVERYTHING)
    found = cost_rows(CostQuery(priced.window), visibility=EVERYTHING)
    assert one is not None
    own = [row for row in found if row.currency == one.currency and row.amount is not None]
    if figure in ("cost", "waste_cost"):
        own = [row for row in own if figure == "cost" or row.cause in WASTE]
    else:
        own = [row for row in own if f"{row.cause.value}_cost" == figure]
    own = [row for row in own if not row.correction or figure == "cost"]
    assert (one.value or 0) == sum((row.amount or Decimal(0) for row in own), Decimal(0))
    assert one.value is None or float(evaluate(one) or 0) == pytest.approx(float(one.value))
    assert bool(one.prices) is bool(one.rows)
