"""The case for a change of capacity on paper."""

from datetime import UTC, date, datetime

import msgspec
import pytest
from playwright.sync_api import Page

from apps.planning.domain.capacity_cases import SizePoint, TierOutlook
from apps.planning.domain.forecast import Forecast, ForecastSkill
from apps.planning.models import CapacityPlan
from tests.factories import Portal
from tests.web.conftest import Screen
from tests.web.test_browser import print_upright

pytestmark = pytest.mark.browser
CASE = "/capacity/plan/gold/case/"


@pytest.fixture
def planned(portal: Portal) -> Portal:
    """Return the portal with a plan of gold that has as much on it as there can be."""
    days, ahead = 90, 91
    sizes = [
        SizePoint(gpus, 900.0, 800.0, max(0.0, 12.0 - gpus) * 30, 3600.0 * max(0.0, 12.0 - gpus))
        for gpus in (4.0, 6.0, 7.0, 8.0, 9.0, 10.0, 12.0, 16.0)
    ]
    outlook = TierOutlook(
        tier="gold",
        first_day="2025-07-29",
        demand=(9.0,) * days,
        capacity=(8.0,) * days,
        capacity_now=8.0,
        unused=2.0,
        forecast=Forecast(
            (8.0,) * ahead, (10.0,) * ahead, (12.0,) * ahead, ForecastSkill(0.5, 0.7, 0.8, 99, 28)
        ),
        sizes=tuple(sizes),
        replayed_days=14,
        recorded_unmet_gpu_hours=130.0,
    )
    CapacityPlan.objects.create(
        tier=portal.tiers[0],
        through=date(2025, 10, 26),
        days=days,
        computed_at=datetime(2025, 10, 27, 3, tzinfo=UTC),
        outlook=msgspec.to_builtins(outlook),
    )
    return portal


def test_it_prints_upright_on_one_sheet(planned: Portal, screen: Screen, served: str) -> None:
    def print_it(page: Page) -> None:
        print_upright(page, CASE)
        for hidden in (".topbar", ".crumbs", ".csv-link", "footer"):
            assert not page.locator(hidden).first.is_visible()
        for there in ("#cases-title", "#backtest-title", "#assumptions-title"):
            assert page.locator(there).is_visible()

    screen.visit(served, print_it)
