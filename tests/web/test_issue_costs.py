"""What an issue of data quality costs: GPU-hours, and about how much money."""

from collections.abc import Callable
from copy import deepcopy
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest
from django.test import Client

from apps.accounts.models import User
from apps.accounts.permissions import EVERYTHING, Visibility
from apps.costs.domain.costing import money
from apps.costs.selectors import CostQuery, capacity_values, cost_rows
from apps.operations.models import DoctorFinding
from apps.usage.domain.usage_query import Filters
from tests.costs.portal import Priced
from tests.web.pages import text_of
from tests.web.test_health_page import issues_of

pytestmark = pytest.mark.django_db
SEEN = datetime(2026, 11, 2, 12, tzinfo=UTC)


@pytest.fixture
def priced(_priced: Priced, monkeypatch: pytest.MonkeyPatch) -> Priced:
    priced = deepcopy(_priced)
    now = priced.window.end + timedelta(hours=1)
    monkeypatch.setattr("django.utils.timezone.now", lambda: now)
    return priced


def price_of(priced: Priced, **filters: tuple[str, ...]) -> Decimal:
    """Return what a GPU-hour of the capacity costs, from the rows of costs."""
    asked = CostQuery(priced.window, filters=Filters(**filters), waste=True)
    rows = [row for row in cost_rows(asked, visibility=EVERYTHING) if row.currency == "USD"]
    rows = [row for row in rows if row.cause.value != "energy"]
    hours = sum(row.gpu_hours for row in rows)
    return money(sum(row.cost or 0 for row in rows)) / Decimal(hours).scaleb(-9)


def test_the_value_of_capacity_is_that_of_the_costs(priced: Priced) -> None:
    now = priced.window.end + timedelta(hours=1)
    found = capacity_values(now, visibility=EVERYTHING)
    for (cluster, tier), value in found.items():
        filters = {"cluster": (cluster,), **({"tier": (tier,)} if tier else {})}
        assert float(value.per_gpu_hour) == pytest.approx(float(price_of(priced, **filters)))
    assert {cluster for cluster, _ in found} >= {"west"}
    own = Visibility(everything=False, team_ids=frozenset({priced.portal.vision.pk}))
    assert capacity_values(now, visibility=own) == {}


def test_an_issue_shows_its_gpu_hours_and_about_their_cost(
    priced: Priced, signed_in: Callable[[User], Client]
) -> None:
    for subject in ("gold", "vision gold", "something"):
        DoctorFinding.objects.create(
            cluster=priced.portal.clusters[0],
            code="activity-unattributed",
            subject=subject,
            severity="warning",
            first_seen=SEEN,
            last_seen=SEEN,
            body={"cost": {"gpu_hours": 1000}, "what": "x"},
        )
    told = issues_of(text_of(signed_in(priced.portal.cleo), "/admin/data-quality/?window=7d"))
    gold = f"{price_of(priced, cluster=('west',), tier=('gold',)) * 1000:,.0f}"
    whole = f"{price_of(priced, cluster=('west',)) * 1000:,.0f}"
    assert (
        f"Warning: GPUs are active without a pod west · gold 1,000.0 GPU-h · about ${gold}" in told
    )
    assert sum(line.endswith(f"about ${gold}") for line in told) == 2
    assert sum(line.endswith(f"about ${whole}") for line in told) == 1
