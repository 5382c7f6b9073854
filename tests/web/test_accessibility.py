"""Every page as axe-core sees it: both themes, a desk and a phone (WCAG 2.2 A and AA)."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from django.conf import settings
from django.test import Client
from playwright.sync_api import Page

from apps.accounts.models import User
from tests.web.conftest import DAILY, Screen
from tests.web.looks import LOOKS, share_of
from tests.web.pages import PAGES, STANDING

pytestmark = pytest.mark.browser

AXE = settings.NODE_MODULES / "axe-core" / "axe.min.js"
# What a page shows only when it is asked for more.
MORE = (
    "/search/?q=train",
    "/health/data/?start=2025-10-25T00:00Z&end=2025-10-25T02:00Z",
    "/tiers/?gpus=part&memory=known&load=bursty&processes=few&attributes=no",
    "/tiers/nowhere/",
    f"/devices/?{DAILY}&node=west-1&health=broken&uuid=0&gpu_model=nothing",
    "/devices/west/GPU-00000000-0000-0000-0000-000000000004/",
    "/teams/vision/statement/?week=2025-10-26",
    f"/fairness/gold/what-if/?{DAILY}&gpus=4&who=vision&entitled=6&cards=x",
    f"/fairness/gold/what-if/?{DAILY}&gpus=4&who=vision&entitled=6",
    f"/quotas/?{DAILY}&source=Bag&effective=no",
    "/quotas/west/ResourceQuota/vision-prod/inert/nvidia.com/gpu/",
    "/requests/new/?key=west/ResourceQuota/vision/gpus/requests.nvidia.com/gpu",
    f"/?{DAILY}&team=vision&capacity_type=spot&gpu_model=nothing",
    f"/teams/vision/?{DAILY}&tier=gold&team=speech&namespace=vision",
)
TAGS = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]


def cookie_of(username: str, url: str) -> Any:
    """Return the cookie of somebody's session, as the browser takes it."""
    client = Client()
    client.force_login(User.objects.get(username=username))
    name = settings.SESSION_COOKIE_NAME
    return {"name": name, "value": client.cookies[name].value, "url": url}


def violations(page: Page) -> list[str]:
    """Return what axe-core holds against the page: the rule, then the element.

    The script is evaluated by the browser itself, which the page's security policy does not
    concern, rather than put into the page.
    """
    page.evaluate(AXE.read_text(encoding="utf-8"))
    found = page.evaluate("tags => axe.run(document, {runOnly: {type: 'tag', values: tags}})", TAGS)
    return [
        f"{rule['id']}: {node['html'][:150]}"
        for rule in found["violations"]
        for node in rule["nodes"]
    ]


def checker(
    paths: Sequence[str], cookie: Any
) -> tuple[Callable[[Page], None], dict[str, list[str]]]:
    """Return the steps that look at these pages, and where they put what they find.

    What is found goes by rule and element, with the pages that have it: most stands on many.
    """
    found: dict[str, list[str]] = {}

    def steps(page: Page) -> None:
        if cookie:
            page.context.add_cookies([cookie])
        for path in paths:
            page.goto(path)
            # To be idle takes half a second: only where more is loaded once the page is there.
            if page.locator("[hx-trigger*=load]").count():
                page.wait_for_load_state("networkidle")
            for violation in violations(page):
                found.setdefault(violation, []).append(path)

    return steps, found


def told(found: dict[str, list[str]]) -> str:
    """Return what was found, a line each."""
    return "\n".join(f"{what} on {len(paths)}: {paths[0]}" for what, paths in found.items())


@pytest.mark.parametrize(("dark", "width"), LOOKS)
def test_axe_finds_nothing_on_any_page(served: str, screen: Screen, dark: bool, width: int) -> None:
    paths = [f"{path}?{DAILY}" for path in PAGES | STANDING]
    steps, found = checker(share_of([*paths, *MORE], dark=dark), cookie_of("cleo", served))
    screen.visit(served, steps, width=width, dark=dark, provoked=("404",))
    assert not found, told(found)


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_axe_finds_nothing_on_the_sign_in(served: str, screen: Screen, dark: bool) -> None:
    steps, found = checker(["/sign-in/"], None)
    screen.visit(served, steps, dark=dark)
    assert not found, told(found)
