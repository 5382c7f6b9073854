"""A team's statement on paper."""

import re

import pytest
from playwright.sync_api import Page

from tests.web.conftest import Screen
from tests.web.test_browser import sign_in

pytestmark = pytest.mark.browser
STATEMENT = "/capacity/teams/vision/statement/?week=2025-10-22"


def test_it_prints_upright_on_one_page_without_the_bars_of_the_screen(
    screen: Screen, served: str
) -> None:
    def print_it(page: Page) -> None:
        sign_in(page, target=STATEMENT)
        paper = page.pdf(prefer_css_page_size=True)
        (box,) = set(re.findall(rb"/MediaBox \[([^\]]+)\]", paper))
        _, _, width, height = map(float, box.split())
        assert width < height
        assert len(re.findall(rb"/Type /Page\b", paper)) == 1
        page.emulate_media(media="print")
        for hidden in (".topbar", ".statement-weeks", ".csv-link", "footer"):
            assert not page.locator(hidden).first.is_visible()
        assert page.locator(".statement-made").is_visible()

    screen.visit(served, print_it)
