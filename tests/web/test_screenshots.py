"""A picture of every page in both themes, on a desk and on a phone, for people to look at.

They are written to `screenshots` in the var folder, as `<page>-<width>-<theme>.png`. Tests say only
what can be counted: that no page is wider than its window, and that nothing went wrong on it.
"""

from pathlib import Path

import pytest
from django.conf import settings
from playwright.sync_api import Page
from pytest_django import Settings

from apps.accounts.models import User
from apps.accounts.services import save_view
from tests.web.conftest import DAILY, Screen
from tests.web.looks import LOOKS, PHONE, share_of
from tests.web.pages import PAGES, STANDING
from tests.web.test_accessibility import cookie_of
from tests.web.test_browser import draw_all

pytestmark = pytest.mark.browser

FOLDER: Path = settings.VAR_DIR / "screenshots"
READER = "cleo"
# Page → its address; the style guide is there with DEBUG alone.
ADDRESSES = {
    **{path: f"{path}?{DAILY}" for path in PAGES | STANDING},
    "/search/": f"/search/?q=train&{DAILY}",
    "/styleguide/": "/styleguide/",
}
# No picture is taller: of a long list its beginning tells how it looks.
TALLEST = 6000


def name_of(path: str) -> str:
    """Return the page as part of a file name: `/teams/vision/` is `teams-vision`."""
    return path.strip("/").replace("/", "-") or "overview"


def file_of(path: str, *, width: int, dark: bool) -> Path:
    return FOLDER / f"{name_of(path)}-{width}-{'dark' if dark else 'light'}.png"


def keep(page: Page, file: Path) -> str:
    """Draw the page at hand to its end and keep its picture; tell if it is wider than its window.

    A page that is too wide is kept as wide as it is, so that the picture shows what sticks out.
    """
    draw_all(page)
    page.evaluate("document.fonts.ready.then(() => scrollTo(0, 0))")
    wide, inner, height = page.evaluate(
        "[document.documentElement.scrollWidth, innerWidth, document.documentElement.scrollHeight]"
    )
    clip = {"x": 0, "y": 0, "width": max(wide, inner), "height": min(height, TALLEST)}
    page.screenshot(path=file, clip=clip, full_page=True, animations="disabled")  # type: ignore[arg-type]
    return "" if wide <= inner else f"{file}: {wide} px in a window of {inner} px"


@pytest.mark.parametrize(("dark", "width"), LOOKS)
def test_no_page_is_wider_than_its_window(
    served: str, screen: Screen, settings: Settings, dark: bool, width: int
) -> None:
    settings.DEBUG = True
    reader = User.objects.get(username=READER)
    save_view(reader, name="Vision by day", address=f"/teams/vision/?{DAILY}")
    cookie = cookie_of(READER, served)
    found: list[str] = []

    def steps(page: Page) -> None:
        page.goto("/sign-in/")
        found.append(keep(page, file_of("/sign-in/", width=width, dark=dark)))
        page.context.add_cookies([cookie])
        # A page that is too wide is so on a phone first: there all are looked at.
        for path in ADDRESSES if width == PHONE else share_of([*ADDRESSES], dark=dark):
            page.goto(ADDRESSES[path])
            found.append(keep(page, file_of(path, width=width, dark=dark)))

    screen.visit(served, steps, width=width, dark=dark)
    assert [wide for wide in found if wide] == []
