"""What axe-core finds on a page, and a session for the browser."""

from typing import Any

from django.conf import settings
from django.test import Client
from playwright.sync_api import Page

from apps.accounts.models import User

AXE = settings.NODE_MODULES / "axe-core" / "axe.min.js"
TAGS = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]


def cookie_of(username: str, url: str) -> Any:
    """Return the cookie of somebody's session, as the browser takes it."""
    client = Client()
    client.force_login(User.objects.get(username=username))
    name = settings.SESSION_COOKIE_NAME
    return {"name": name, "value": client.cookies[name].value, "url": url}


def settle(page: Page) -> None:
    """Wait for what is loaded once the page is there. To be idle takes half a second."""
    if page.locator("[hx-trigger*=load]").count():
        page.wait_for_load_state("networkidle")


def violations(page: Page) -> list[str]:
    """Return what axe-core holds against the page: the rule, then the element.

    The script is evaluated by the browser itself, which the page's security policy does not
    concern, rather than put into the page.
    """
    page.evaluate("scrollTo(0, 0)")  # the bars that stay in sight cover what is scrolled to
    page.evaluate(AXE.read_text(encoding="utf-8"))
    found = page.evaluate("tags => axe.run(document, {runOnly: {type: 'tag', values: tags}})", TAGS)
    return [
        f"{rule['id']}: {node['html'][:150]}"
        for rule in found["violations"]
        for node in rule["nodes"]
    ]
