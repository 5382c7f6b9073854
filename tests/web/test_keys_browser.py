"""The keys of the pages: rows, pages of the navigation, the list of keys, and their switch."""

import pytest
from playwright.sync_api import Page, expect

from tests.web.conftest import HOURLY, Screen
from tests.web.test_browser import sign_in

pytestmark = pytest.mark.browser


def _focused(page: Page) -> str:
    return str(page.evaluate("document.activeElement.textContent.trim()"))


def test_keys_move_through_rows_open_them_and_lead_to_pages(served: str, screen: Screen) -> None:
    def steps(page: Page) -> None:
        sign_in(page)
        names = page.locator("main tbody tr td:first-child a")
        page.goto(f"/capacity/teams/?{HOURLY}")
        first, second = names.nth(0).inner_text(), names.nth(1).inner_text()
        for key, name in (("j", first), ("j", second), ("k", first), ("k", first)):
            page.keyboard.press(key)
            assert _focused(page) == name
        page.keyboard.press("Enter")
        page.wait_for_url(f"**/capacity/teams/{first}/**")
        page.locator("a[href]").first.evaluate("link => { link.dataset.key = 'h'; }")
        home = page.locator("a[data-key]").first.get_attribute("href")
        assert home is not None
        page.keyboard.press("?")
        dialog = page.get_by_role("dialog", name="Keyboard")
        expect(dialog).to_be_visible()
        page.keyboard.press("j")  # nothing behind the dialog moves
        expect(dialog).to_be_visible()
        page.get_by_label("Single-key shortcuts").uncheck()
        page.keyboard.press("Escape")
        expect(dialog).to_be_hidden()

    screen.visit(served, steps)


def test_keys_rest_while_somebody_types_or_switched_them_off(served: str, screen: Screen) -> None:
    def steps(page: Page) -> None:
        sign_in(page)
        page.goto(f"/capacity/teams/?{HOURLY}")
        page.keyboard.press("/")
        page.keyboard.type("jk?")
        assert page.locator("#search-box").input_value() == "jk?"
        expect(page.get_by_role("dialog")).to_be_hidden()
        page.evaluate("localStorage.setItem('gpuportal-keys', 'off')")
        page.goto(f"/capacity/teams/?{HOURLY}")
        page.keyboard.press("j")
        assert page.evaluate("document.activeElement === document.body")
        page.keyboard.press("?")  # how they are switched on again
        page.get_by_label("Single-key shortcuts").check()
        page.keyboard.press("Escape")
        page.keyboard.press("j")
        assert page.evaluate("document.activeElement.closest('tbody') !== null")
        page.goto(f"/workloads/?{HOURLY}")
        page.keyboard.press("j")  # the table of its chart is folded
        assert page.evaluate("document.activeElement.closest('#workloads') !== null")

    screen.visit(served, steps)
