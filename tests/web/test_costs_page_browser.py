"""The pages of money in a real browser: both themes, a desk and a phone, without scripts too."""

import pytest
from playwright.sync_api import Page, expect

from tests.costs.portal import PRICES, make_priced
from tests.web.appearances import LOOKS, share_of
from tests.web.axe import settle, violations
from tests.web.conftest import Screen
from tests.web.test_browser import draw_all

pytestmark = pytest.mark.browser

DAYS = "first=2026-11-01&last=2026-11-02"


@pytest.fixture
def priced(address: str) -> str:
    """Return the address of a live server with four days of costs, some unpriced."""
    make_priced(4, prices=[price for price in PRICES if price[1] != "spot"])
    return address


@pytest.mark.long
@pytest.mark.parametrize(("dark", "width"), LOOKS)
def test_axe_finds_nothing_and_nothing_is_too_wide(
    priced: str, screen: Screen, dark: bool, width: int
) -> None:
    paths = (
        f"/costs/?{DAYS}",
        f"/costs/?{DAYS}&by=workload",
        f"/costs/waste/?{DAYS}",
        "/costs/exports/",
    )

    def steps(page: Page) -> None:
        for path in share_of(paths, dark=dark):
            page.goto(path)
            settle(page)
            assert violations(page) == [], path
            assert page.evaluate("document.documentElement.scrollWidth") <= width, path

    screen.visit(priced, steps, person="finn", width=width, dark=dark)


@pytest.mark.parametrize("scripts", [True, False], ids=["with scripts", "without"])
def test_costs_are_grouped_and_charged_otherwise_with_the_form(
    priced: str, screen: Screen, scripts: bool
) -> None:
    def steps(page: Page) -> None:
        page.goto(f"/costs/?{DAYS}")
        title = page.locator("#costs-title")
        expect(title).to_have_text("Costs in USD by team")
        page.get_by_label("Group by").select_option("tier")
        page.get_by_text("Terms and groups").click()
        page.get_by_label("then by").select_option("team")
        page.get_by_label("Unallocated cost").select_option("use")
        page.locator(".cost-choose").get_by_role("button", name="Show").click()
        expect(title).to_have_text("Costs in USD by tier and team")
        page.get_by_text("Terms", exact=True).click()
        expect(page.locator(".cost-terms")).to_contain_text("is apportioned by use")
        if scripts:
            assert draw_all(page) == 1

    screen.visit(priced, steps, person="finn", scripts=scripts)
