"""Alerts and channels in a browser: both themes, a desk and a phone, with and without scripts."""

import pytest
from django.core.cache import cache
from playwright.sync_api import Page, expect
from pytest_django import Settings

from apps.alerts.models import Delivery, IdleAnswer
from tests.factories import make_portal
from tests.web.alerts import SECRET, SLACK, Board, make_board, say_many
from tests.web.appearances import LOOKS, share_of
from tests.web.axe import settle, violations
from tests.web.conftest import Screen

pytestmark = pytest.mark.browser


@pytest.fixture
def board(db: None, settings: Settings) -> Board:
    settings.EMAIL_HOST = "mail.example.org"  # of which the test's mailbox takes the place
    cache.clear()
    portal = make_portal()
    made = make_board(portal)
    say_many(portal, 60)
    Delivery.objects.filter(channel=made.bens).update(
        state=Delivery.State.GIVEN_UP, failures=7, error="The mail server did not take it: " * 4
    )
    return made


@pytest.mark.parametrize(("dark", "width"), LOOKS)
def test_axe_finds_nothing_and_no_page_scrolls_sideways(
    board: Board, address: str, screen: Screen, dark: bool, width: int
) -> None:
    found: list[str] = []
    paths = (
        "/alerts/",
        "/alerts/channels/",
        f"/alerts/channels/{board.team.pk}/",
        f"/alerts/deliveries/?channel={board.bens.pk}",
    )

    def look(page: Page) -> None:
        for path in share_of(paths, dark=dark):
            page.goto(path)
            settle(page)
            for closed in page.locator("main details").all()[:3]:
                if closed.locator("> summary").is_visible():  # a desk has no button for filters
                    closed.locator("> summary").click()
            found.extend(f"{path}: {each}" for each in violations(page))
            if page.evaluate("document.documentElement.scrollWidth > window.innerWidth"):
                found.append(f"{path} scrolls sideways")

    screen.visit(address, look, person="cleo", width=width, dark=dark)
    assert not found, "\n".join(found)


@pytest.mark.parametrize("scripts", [True, False], ids=["scripts", "no scripts"])
def test_an_idle_alert_is_answered_in_its_line(
    board: Board, address: str, screen: Screen, scripts: bool
) -> None:
    def steps(page: Page) -> None:
        page.goto("/alerts/?kind=idle&team=vision")
        line = page.locator("li.alerts-line").first
        line.get_by_text("Answer").first.click()
        line.get_by_role("button", name="Keep").click()
        expect(page.get_by_role("alert")).to_contain_text("Choose an end day")
        line.get_by_label("Reason").fill("it is done")
        line.get_by_role("button", name="Release").click()
        expect(page.locator("li.alerts-line").first).to_contain_text("Released, because it is done")
        assert "kind=idle" in page.url

    screen.visit(address, steps, person="ada", scripts=scripts, provoked=("400",))
    assert IdleAnswer.objects.count() == 1


def test_a_channel_is_made_tried_muted_and_removed(
    board: Board, address: str, screen: Screen
) -> None:
    def steps(page: Page) -> None:
        page.goto("/tokens/")
        page.get_by_role("link", name="Alerts").click()
        page.get_by_role("link", name="Channels").first.click()
        page.locator("summary", has_text="New channel").click()
        page.get_by_label("Name", exact=True).fill("chat")
        form = page.get_by_role("region", name="New channel")
        form.get_by_label("Destination").select_option("slack")
        page.get_by_label("Address", exact=True).fill(SLACK)
        for kind in page.get_by_role("checkbox").all():
            kind.uncheck()
        page.get_by_role("button", name="Create channel").click()
        expect(page.get_by_role("alert").first).to_contain_text("Choose at least one kind")
        assert SECRET not in page.content()
        assert violations(page) == []
        form.get_by_label("Destination").select_option("email")
        page.get_by_label("Address", exact=True).fill("ada@example.org")
        page.get_by_label("Budgets: ").check()
        page.get_by_role("button", name="Create channel").click()
        expect(page.get_by_role("heading", name="chat")).to_be_visible()
        page.get_by_role("button", name="Send test message").click()
        expect(page.get_by_role("status")).to_contain_text("ada@example.org")
        page.locator("summary", has_text="Mute").click()
        page.get_by_label("Reason").fill("a holiday")
        page.get_by_role("button", name="Mute", exact=True).click()
        expect(page.get_by_role("cell", name="a holiday")).to_be_visible()
        page.get_by_role("button", name="Unmute").click()
        expect(page.get_by_text("No muted alerts.")).to_be_visible()
        page.get_by_text("Remove…").click()
        page.get_by_role("button", name="Remove channel").click()
        expect(page.get_by_role("link", name="chat", exact=True)).to_have_count(0)

    screen.visit(address, steps, person="ada", width=390, provoked=("400",))
