"""Every page in both themes, on a desk and on a phone: axe-core (WCAG 2.2 A and AA) and its width.

In check-full a picture of each page is written to `screenshots` in the var folder, as
`<page>-<width>-<theme>.png`, for people to look at.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from django.urls import resolve
from playwright.sync_api import Page
from pytest_django import Settings

from apps.accounts.models import User
from apps.accounts.services import save_view
from tests.web.appearances import LOOKS, PHONE, is_exhaustive, share_of
from tests.web.axe import cookie_of, settle, violations
from tests.web.campus_portal import PAGE_NAMES
from tests.web.conftest import DAILY, Screen
from tests.web.pages import PAGES, STANDING
from tests.web.test_browser import draw_all

pytestmark = [pytest.mark.browser, pytest.mark.long]

FOLDER: Path = settings.VAR_DIR / "screenshots"
READER = "cleo"
STYLEGUIDE = "/styleguide/"
# Page → its address; the style guide is there with DEBUG alone.
ADDRESSES = {
    **{path: f"{path}?{DAILY}" for path in PAGES | STANDING},
    "/search/": f"/search/?q=train&{DAILY}",
    STYLEGUIDE: STYLEGUIDE,
}
# What a page shows only when it is asked for more.
MORE = (
    "/admin/data-quality/?start=2025-10-25T00:00Z&end=2025-10-25T02:00Z&tab=calendar",
    f"/admin/data-quality/?{DAILY}&tab=calendar",
    f"/admin/data-quality/?{DAILY}&tab=exporters",
    "/capacity/tiers/?gpus=part&memory=known&load=bursty&processes=few&attributes=no",
    "/capacity/tiers/nowhere/",
    f"/capacity/gpus/?{DAILY}&tab=table",
    f"/capacity/gpus/?{DAILY}&tab=nodes",
    f"/capacity/gpus/?{DAILY}&colour=health&group=node",
    f"/capacity/gpus/?{DAILY}&tab=table&node=west-1&health=broken&uuid=0&gpu_model=nothing",
    "/capacity/gpus/west/GPU-00000000-0000-0000-0000-000000000004/",
    "/capacity/teams/vision/statement/?week=2025-10-26",
    f"/capacity/fairness/gold/what-if/?{DAILY}&gpus=4&who=vision&entitled=6&cards=x",
    f"/capacity/fairness/gold/what-if/?{DAILY}&gpus=4&who=vision&entitled=6",
    f"/quotas/?{DAILY}&source=Bag&show=all",
    "/quotas/?tab=teams",
    f"/quotas/?tab=unused&{DAILY}",
    "/quotas/west/ResourceQuota/vision-prod/inert/nvidia.com/gpu/",
    "/quotas/requests/new/?key=west/ResourceQuota/vision/gpus/requests.nvidia.com/gpu",
    f"/?{DAILY}&team=vision&capacity_type=spot&gpu_model=nothing",
    f"/capacity/teams/vision/?{DAILY}&tier=gold&team=speech&namespace=vision",
)
# No picture is taller: of a long list its beginning tells how it looks.
TALLEST = 6000


def name_of(path: str) -> str:
    """Return the page as part of a file name: `/capacity/teams/vision/` is `teams-vision`."""
    return path.partition("?")[0].strip("/").replace("/", "-") or "overview"


class Examiner:
    """Looks at pages in one look, and keeps what is wrong with them.

    What axe-core finds goes by rule and element, with the pages that have it: most stands on many.
    """

    def __init__(self, *, width: int, dark: bool) -> None:
        self._look = f"{width}-{'dark' if dark else 'light'}"
        self.violations: dict[str, list[str]] = {}
        self.too_wide: list[str] = []

    def examine(self, page: Page, path: str, *, axe: bool = True) -> None:
        page.goto(ADDRESSES.get(path, path))
        settle(page)
        for violation in violations(page) if axe else ():
            self.violations.setdefault(violation, []).append(path)
        draw_all(page)
        page.evaluate("document.fonts.ready.then(() => scrollTo(0, 0))")
        wide, inner, height = page.evaluate(
            "(root => [root.scrollWidth, innerWidth, root.scrollHeight])(document.documentElement)"
        )
        if wide > inner:
            self.too_wide.append(f"{path}: {wide} px in a window of {inner} px")
        if is_exhaustive():
            # A page that is too wide is kept as wide as it is: the picture shows what sticks out.
            clip = {"x": 0, "y": 0, "width": max(wide, inner), "height": min(height, TALLEST)}
            file = FOLDER / f"{name_of(path)}-{self._look}.png"
            page.screenshot(path=file, clip=clip, full_page=True, animations="disabled")  # type: ignore[arg-type]


def told(found: dict[str, list[str]]) -> str:
    """Return what was found, a line each."""
    return "\n".join(f"{what} on {len(paths)}: {paths[0]}" for what, paths in found.items())


def steps_of(
    examiner: Examiner, cookie: Any, settings: Settings, *, width: int, dark: bool
) -> Callable[[Page], None]:
    """Return the steps to all pages that this look examines, the sign-in first."""
    share = share_of([*ADDRESSES, *MORE], dark=dark)
    # A page that is too wide is so on a phone first. test_page_limits looks at the others there.
    elsewhere = [path for path in ADDRESSES if resolve(path).url_name not in PAGE_NAMES]
    paths = dict.fromkeys([*elsewhere, *share] if width == PHONE else share)

    def steps(page: Page) -> None:
        examiner.examine(page, "/sign-in/")
        page.context.add_cookies([cookie])
        for path in paths:
            settings.DEBUG = path == STYLEGUIDE
            examiner.examine(page, path, axe=path in share and path != STYLEGUIDE)

    return steps


@pytest.mark.parametrize(("dark", "width"), LOOKS)
def test_axe_finds_nothing_and_no_page_is_wider_than_its_window(
    served: str, screen: Screen, settings: Settings, dark: bool, width: int
) -> None:
    reader = User.objects.get(username=READER)
    save_view(reader, name="Vision by day", address=f"/capacity/teams/vision/?{DAILY}")
    examiner = Examiner(width=width, dark=dark)
    steps = steps_of(examiner, cookie_of(READER, served), settings, width=width, dark=dark)
    screen.visit(served, steps, width=width, dark=dark, provoked=("404",))
    assert not examiner.violations, told(examiner.violations)
    assert not examiner.too_wide
