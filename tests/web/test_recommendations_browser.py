"""Deciding on recommendations in a browser: with and without scripts, on a phone, in the dark."""

from collections.abc import Callable

import pytest
from playwright.sync_api import Page, expect

from apps.costs.models import Recommendation
from tests.costs.recommendation_rows import make
from tests.web.axe import settle, violations
from tests.web.conftest import Screen
from tests.web.test_page_limits import USUAL, Measured, measured

pytestmark = pytest.mark.browser

WIDTHS = pytest.mark.parametrize(("width", "dark"), [(1440, False), (390, True)])


@pytest.fixture
def notebooks(served: str) -> list[Recommendation]:
    return [make(number) for number in range(2)]


@pytest.fixture
def decide(served: str, screen: Screen) -> Callable[..., None]:
    """Return a function that takes steps as an admin, on the page of recommendations."""

    def visit(steps: Callable[[Page], None], **how: object) -> None:
        def on_the_list(page: Page) -> None:
            page.goto("/costs/recommendations/")
            steps(page)

        screen.visit(served, on_the_list, person="cleo", **how)  # type: ignore[arg-type]

    return visit


@WIDTHS
def test_accepting_and_dismissing_on_the_page_of_one(
    width: int, dark: bool, notebooks: list[Recommendation], decide: Callable[..., None]
) -> None:
    def steps(page: Page) -> None:
        look(page)
        page.get_by_role("link", name="Decide").first.click()
        look(page)
        page.get_by_role("button", name="Accept").click()
        expect(page.locator("main")).to_contain_text("Accepted by cleo")
        page.get_by_text("Dismiss…").click()
        page.get_by_label("Reason").fill("Needed for the review.")
        page.get_by_role("button", name="Dismiss").click()
        expect(page.locator("main")).to_contain_text("Needed for the review.")
        look(page)
        page.get_by_role("link", name="All recommendations").click()
        expect(page.locator("#recommendations tbody tr")).to_have_count(1)

    decide(steps, width=width, dark=dark)


def look(page: Page) -> None:
    """Hold that what is open is accessible and no wider than the screen."""
    assert violations(page) == []
    assert not page.evaluate("document.documentElement.scrollWidth > window.innerWidth")


def test_without_scripts_the_list_is_sorted_and_decided_on(
    notebooks: list[Recommendation], decide: Callable[..., None]
) -> None:
    def steps(page: Page) -> None:
        page.get_by_role("link", name="Saving", exact=True).click()
        page.get_by_role("link", name="Decide").first.click()
        page.get_by_role("button", name="Accept").click()
        page.get_by_role("link", name="All recommendations").click()
        page.get_by_role("link", name="Accepted").click()
        expect(page.locator("#recommendations tbody tr")).to_have_count(1)

    decide(steps, scripts=False)


def test_a_full_list_is_short(served: str, decide: Callable[..., None]) -> None:
    for number in range(60):
        make(number, evidence={"days": 30.0, "saved_gpu_hours_per_month": 1234.5})
    found: list[Measured] = []

    def steps(page: Page) -> None:
        settle(page)
        found.append(measured(page))

    decide(steps, width=1440)
    assert list(found[0].breaches(USUAL)) == []
