"""Deciding on recommendations in a browser: with and without scripts, on a phone, in the dark."""

from collections.abc import Callable

import pytest
from playwright.sync_api import Page, expect

from apps.costs.models import Recommendation
from tests.costs.recommendation_rows import make
from tests.web.axe import cookie_of, violations
from tests.web.conftest import Screen

WIDTHS = pytest.mark.parametrize(("width", "dark"), [(1440, False), (390, True)])


@pytest.fixture
def notebooks(served: str) -> list[Recommendation]:
    return [make(number) for number in range(2)]


@pytest.fixture
def decide(served: str, screen: Screen) -> Callable[..., None]:
    """Return a function that takes steps as an admin, on the page of recommendations."""
    cookie = cookie_of("cleo", served)

    def visit(steps: Callable[[Page], None], **how: object) -> None:
        def signed_in(page: Page) -> None:
            page.context.add_cookies([cookie])
            page.goto("/costs/recommendations/")
            steps(page)

        screen.visit(served, signed_in, **how)  # type: ignore[arg-type]

    return visit


@pytest.mark.browser
@WIDTHS
def test_accepting_and_dismissing_change_their_line_alone(
    width: int, dark: bool, notebooks: list[Recommendation], decide: Callable[..., None]
) -> None:
    first, second = (page_id(one) for one in notebooks)

    def steps(page: Page) -> None:
        assert violations(page) == []
        assert not page.evaluate("document.documentElement.scrollWidth > window.innerWidth")
        page.locator(first).get_by_role("button", name="Accept").click()
        expect(page.locator(first)).to_contain_text("Accepted by cleo")
        page.locator(second).get_by_text("Dismiss…").click()
        page.locator(second).get_by_label("Why").fill("Needed for the review.")
        page.locator(second).get_by_role("button", name="Dismiss").click()
        expect(page.locator(second)).to_contain_text("Needed for the review.")
        expect(page.locator(first)).to_contain_text("Accepted by cleo")
        assert violations(page) == []

    decide(steps, width=width, dark=dark)


@pytest.mark.browser
def test_without_scripts_a_decision_leads_back_to_the_list(
    notebooks: list[Recommendation], decide: Callable[..., None]
) -> None:
    first, second = (page_id(one) for one in notebooks)

    def steps(page: Page) -> None:
        page.locator(first).get_by_role("button", name="Accept").click()
        expect(page.locator(first)).to_have_count(0)
        expect(page.locator(second)).to_be_visible()
        page.get_by_label("Show").select_option("accepted")
        page.get_by_role("button", name="Show").click()
        expect(page.locator(first)).to_contain_text("Accepted by cleo")

    decide(steps, scripts=False)


def page_id(one: Recommendation) -> str:
    return f"#recommendation-{one.pk}"
