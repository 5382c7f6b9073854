"""Light and dark, and the menu in which they are chosen, in a real browser."""

import pytest
from playwright.sync_api import Page, expect

from tests.web.conftest import HOURLY, Screen
from tests.web.test_browser import account_menu, draw_all, sign_in

pytestmark = pytest.mark.browser

GROUND = "getComputedStyle(document.body).backgroundColor"
LIGHT, DARK = "rgb(245, 246, 248)", "rgb(15, 19, 25)"
BUSY = ".chart-canvas .trace.bars .point path"
BUSY_LIGHT, BUSY_DARK = "rgb(24, 68, 155)", "rgb(143, 203, 255)"


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_the_theme_follows_the_system_until_the_reader_chooses(
    served: str, screen: Screen, dark: bool
) -> None:
    def steps(page: Page) -> None:
        sign_in(page, target=f"/capacity/tiers/gold/?{HOURLY}")
        draw_all(page)
        bar = page.locator(BUSY).first
        assert page.evaluate(GROUND) == (DARK if dark else LIGHT)
        expect(bar).to_have_css("fill", BUSY_DARK if dark else BUSY_LIGHT)
        account_menu(page).click()
        expect(page.get_by_role("radio", name="Auto")).to_be_checked()
        page.get_by_role("radio", name="Light" if dark else "Dark").check()
        assert page.evaluate(GROUND) == (LIGHT if dark else DARK)
        expect(page.locator(BUSY).first).to_have_css("fill", BUSY_LIGHT if dark else BUSY_DARK)
        page.reload()
        assert page.evaluate(GROUND) == (LIGHT if dark else DARK)
        account_menu(page).click()
        page.get_by_role("radio", name="Auto").check()
        assert page.evaluate(GROUND) == (DARK if dark else LIGHT)

    screen.visit(served, steps, dark=dark)


def test_the_menu_tells_who_is_signed_in_and_works_by_keyboard(served: str, screen: Screen) -> None:
    def steps(page: Page) -> None:
        sign_in(page)
        account_menu(page).focus()
        page.keyboard.press("Enter")
        expect(page.get_by_text("Role: viewer")).to_be_visible()
        page.keyboard.press("Tab")
        expect(page.get_by_role("radio", name="Auto")).to_be_focused()
        page.keyboard.press("ArrowRight")
        page.keyboard.press("ArrowRight")
        expect(page.get_by_role("radio", name="Dark")).to_be_checked()
        expect(page.locator("html")).to_have_attribute("data-bs-theme", "dark")
        page.keyboard.press("Escape")
        expect(page.get_by_text("Role: viewer")).to_be_hidden()
        expect(account_menu(page)).to_be_focused()
        account_menu(page).click()
        page.get_by_role("heading", level=1).click()
        expect(page.get_by_text("Role: viewer")).to_be_hidden()

    screen.visit(served, steps)


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_without_scripts_the_theme_is_the_systems_and_signing_out_works(
    served: str, screen: Screen, dark: bool
) -> None:
    def steps(page: Page) -> None:
        sign_in(page)
        ground = page.locator("body")
        expect(ground).to_have_css("background-color", DARK if dark else LIGHT)
        account_menu(page).click()
        expect(page.get_by_role("group", name="Theme")).to_be_hidden()
        page.get_by_role("button", name="Sign out").click()
        expect(page.get_by_role("heading", level=1)).to_have_text("Sign in")
        expect(page.locator(".user-menu")).to_be_hidden()

    screen.visit(served, steps, scripts=False, dark=dark)


def test_the_theme_can_be_chosen_before_signing_in(served: str, screen: Screen) -> None:
    def steps(page: Page) -> None:
        page.goto("/sign-in/")
        account_menu(page).click()
        page.get_by_role("radio", name="Dark").check()
        assert page.evaluate(GROUND) == DARK

    screen.visit(served, steps)
