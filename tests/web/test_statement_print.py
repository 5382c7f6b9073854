"""A team's statement on paper."""

import pytest
from playwright.sync_api import Page

from tests.web.conftest import Screen
from tests.web.test_browser import print_upright

pytestmark = pytest.mark.browser
STATEMENT = "/capacity/teams/vision/statement/?week=2025-10-22"


def test_it_prints_upright_on_one_page_without_the_bars_of_the_screen(
    screen: Screen, served: str
) -> None:
    def print_it(page: Page) -> None:
        print_upright(page, STATEMENT)
        for hidden in (".topbar", ".statement-weeks", ".csv-link", "footer"):
            assert not page.locator(hidden).first.is_visible()
        assert page.locator(".statement-made").is_visible()

    screen.visit(served, print_it)
