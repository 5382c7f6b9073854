"""Filters and saved views in a real browser, with scripts and without."""

import pytest
from playwright.sync_api import Page, Route, expect

from tests.web.appearances import WAYS
from tests.web.conftest import DAILY, Screen
from tests.web.test_browser import choose_range, sign_in

pytestmark = pytest.mark.browser


def open_bar(page: Page) -> None:
    """Open the scope bar of a phone."""
    button = page.locator(".picker-toggle")
    if button.is_visible():
        button.click()


@pytest.mark.parametrize(("width", "scripts"), WAYS)
def test_a_filter_is_added_and_taken_off(
    served: str, screen: Screen, width: int, scripts: bool
) -> None:
    def steps(page: Page) -> None:
        sign_in(page, "cleo", target=f"/?{DAILY}")
        open_bar(page)
        page.locator(".filter-menu summary").click()
        page.locator("#filter-tier").select_option("silver")
        page.get_by_label("Team", exact=True).select_option("speech")
        page.get_by_role("button", name="Add").click()
        open_bar(page)
        expect(page.locator(".chip")).to_have_count(2)
        expect(page.locator("#tiers tbody tr")).to_have_count(1)
        page.get_by_role("link", name="Remove the filter Team speech").click()
        expect(page.locator(".chip")).to_have_count(1)
        assert page.url.endswith("tier=silver")
        page.goto(page.locator(".topnav a[data-key=m]").get_attribute("href") or "")
        expect(page.get_by_role("heading", level=1)).to_have_text("Teams")
        open_bar(page)
        expect(page.get_by_role("link", name="Remove the filter Tier silver")).to_be_visible()

    screen.visit(served, steps, width=width, scripts=scripts)


@pytest.mark.parametrize("scripts", [True, False], ids=["with scripts", "without"])
def test_a_view_is_saved_opened_and_deleted(served: str, screen: Screen, scripts: bool) -> None:
    def steps(page: Page) -> None:
        sign_in(page, target="/capacity/teams/vision/?window=30d&tier=gold")
        page.locator(".views-menu summary").click()
        page.get_by_label("View name").fill("Our gold")
        page.get_by_role("button", name="Save", exact=True).click()
        page.goto("/")
        page.locator(".views-menu summary").click()
        page.get_by_role("link", name="Our gold").click()
        expect(page.get_by_role("heading", level=1)).to_have_text("Team vision")
        assert page.url.endswith("/capacity/teams/vision/?window=30d&tier=gold")
        page.locator(".user-menu summary").click()
        page.get_by_role("link", name="Saved views").click()
        page.get_by_role("button", name="Delete the view Our gold").click()
        expect(page.get_by_text("No saved views")).to_be_visible()

    screen.visit(served, steps, scripts=scripts)


def test_links_of_the_header_follow_a_window_that_was_swapped_in(
    served: str, screen: Screen
) -> None:
    def steps(page: Page) -> None:
        sign_in(page, target=f"/capacity/teams/vision/?{DAILY}&tier=gold")
        choose_range(page, "30 days")
        crumb = page.locator(".crumbs a")
        expect(crumb).to_have_attribute("href", "/capacity/teams/?window=30d&tier=gold")
        hidden = page.locator(".topbar form[role='search'] input[type='hidden']")
        assert [field.get_attribute("value") for field in hidden.all()] == ["30d", "gold"]
        page.locator(".topnav").get_by_role("link", name="Home").click()
        expect(page.locator(".preset[aria-current]")).to_have_text("30 days")
        expect(page.get_by_role("link", name="Remove the filter Tier gold")).to_be_visible()

    screen.visit(served, steps)


def test_what_is_being_fetched_is_dim_and_busy_within_100_ms(served: str, screen: Screen) -> None:
    held: list[Route] = []

    def steps(page: Page) -> None:
        sign_in(page, target=f"/capacity/tiers/gold/?{DAILY}")
        results = page.locator("#results")
        page.route("**/tiers/gold/?*tab=teams*", lambda route: held.append(route))
        page.locator("#tab-teams").click()
        expect(results).to_have_attribute("aria-busy", "true")
        expect(results).to_have_css("opacity", "0.55")
        times = results.evaluate(
            "e => (s => [s.transitionDelay, s.transitionDuration])(getComputedStyle(e))"
        )
        assert sum(float(time.removesuffix("s")) for time in times) <= 0.1
        held[0].continue_()
        expect(page.locator("#teams")).to_be_visible()
        expect(results).not_to_have_attribute("aria-busy", "true")
        expect(results).to_have_css("opacity", "1")

    screen.visit(served, steps)
