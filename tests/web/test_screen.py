"""The browser of the tests: a window that is kept between visits forgets the visit before."""

import pytest
from playwright.sync_api import Page

from tests.web.conftest import Screen

pytestmark = pytest.mark.browser

FOUND = """() => [localStorage.getItem("a"), sessionStorage.getItem("a"), innerWidth,
  matchMedia("(prefers-color-scheme: dark)").matches, matchMedia("print").matches]"""


def test_a_window_that_is_kept_forgets_who_was_there(address: str, screen: Screen) -> None:
    windows: list[Page] = []

    def leave_traces(page: Page) -> None:
        page.goto("/sign-in/")
        page.context.add_cookies([{"name": "a", "value": "b", "url": address}])
        page.evaluate("localStorage.setItem('a', 'b'), sessionStorage.setItem('a', 'b')")
        page.emulate_media(media="print")
        page.route("**/sign-in/", lambda route: route.abort())
        assert page.evaluate(FOUND) == ["b", "b", 390, True, True]
        windows.append(page)

    def find_none(page: Page) -> None:
        page.goto("/sign-in/")
        assert "a" not in {one.get("name") for one in page.context.cookies()}
        assert page.evaluate(FOUND) == [None, None, 1280, False, False]
        windows.append(page)

    screen.visit(address, leave_traces, width=390, dark=True)
    screen.visit(address, find_none)
    assert windows[0] is windows[1]
