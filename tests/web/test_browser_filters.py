"""Filters and saved views in a real browser, with scripts and without."""

import pytest
from playwright.sync_api import Page, expect

from tests.web.appearances import WAYS
from tests.web.conftest import DAILY, Screen
from tests.web.test_browser import sign_in

pytestmark = pytest.mark.browser


@pytest.mark.parametrize(("width", "scripts"), WAYS)
def test_a_filter_is_added_and_taken_off(
    served: str, screen: Screen, width: int, scripts: bool
) -> None:
    def steps(page: Page) -> None:
        sign_in(page, target=f"/?{DAILY}")
        page.locator(".filter-menu summary").click()
        page.get_by_label("Tier", exact=True).select_option("silver")
        page.get_by_label("Team", exact=True).select_option("speech")
        page.get_by_role("button", name="Add").click()
        expect(page.locator(".chip")).to_have_count(2)
        expect(page.locator("#tiers tbody tr")).to_have_count(1)
        page.get_by_role("link", name="Remove the filter Team speech").click()
        expect(page.locator(".chip")).to_have_count(1)
        assert page.url.endswith("tier=silver")
        page.locator(".topnav").get_by_role("link", name="Teams").click()
        expect(page.get_by_role("heading", level=1)).to_have_text("Teams")
        expect(page.get_by_role("link", name="Remove the filter Tier silver")).to_be_visible()

    screen.visit(served, steps, width=width, scripts=scripts)


@pytest.mark.parametrize("scripts", [True, False], ids=["with scripts", "without"])
def test_a_view_is_saved_opened_and_deleted(served: str, screen: Screen, scripts: bool) -> None:
    def steps(page: Page) -> None:
        sign_in(page, target="/teams/vision/?window=30d&tier=gold")
        page.locator(".views-menu summary").click()
        page.get_by_label("View name").fill("Our gold")
        page.get_by_role("button", name="Save", exact=True).click()
        page.goto("/")
        page.locator(".views-menu summary").click()
        page.get_by_role("link", name="Our gold").click()
        expect(page.get_by_role("heading", level=1)).to_have_text("Team vision")
        assert page.url.endswith("/teams/vision/?window=30d&tier=gold")
        page.locator(".user-menu summary").click()
        page.get_by_role("link", name="Saved views").click()
        page.get_by_role("button", name="Delete the view Our gold").click()
        expect(page.get_by_text("You have saved no view yet")).to_be_visible()

    screen.visit(served, steps, scripts=scripts)


def test_links_of_the_header_follow_a_window_that_was_swapped_in(
    served: str, screen: Screen
) -> None:
    def steps(page: Page) -> None:
        sign_in(page, target=f"/teams/vision/?{DAILY}&tier=gold")
        page.get_by_role("link", name="30 days", exact=True).click()
        crumb = page.locator(".crumbs a")
        expect(crumb).to_have_attribute("href", "/teams/?window=30d&tier=gold")
        hidden = page.locator(".topbar form[role='search'] input[type='hidden']")
        assert [field.get_attribute("value") for field in hidden.all()] == ["30d", "gold"]
        page.locator(".topnav").get_by_role("link", name="Home").click()
        expect(page.locator(".preset[aria-current]")).to_have_text("30 days")
        expect(page.get_by_role("link", name="Remove the filter Tier gold")).to_be_visible()

    screen.visit(served, steps)
