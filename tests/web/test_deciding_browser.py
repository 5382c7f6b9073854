"""The pages of who decides, in every look: the queue, a request, and being signed out there."""

from collections.abc import Callable, Iterator

import pytest
from django.conf import settings
from django.utils import timezone
from playwright.sync_api import Page, expect

from apps.quota_requests import services
from apps.quota_requests.models import ChangeRequest
from apps.web.quota_requests.request_pages import OPEN_CARDS
from tests.quota_requests.portal import Portal, as_of_now, served_portal
from tests.web.appearances import DESK, LOOKS
from tests.web.axe import violations
from tests.web.conftest import Screen

pytestmark = pytest.mark.browser


@pytest.fixture
def asked(db: None) -> Iterator[Portal]:
    """Return a portal with one request in review, and another that came back."""
    with served_portal() as portal:
        as_of_now(portal)
        pk = portal.submitted(reason="A larger model.\nIts weights alone need two cards.")
        cleo = portal.actor("cleo")
        services.take(pk, by=cleo, version=portal.of(pk).version, now=timezone.now())
        yield portal


@pytest.fixture
def as_cleo(
    asked: Portal, address: str, screen: Screen
) -> Callable[[Callable[[Page], None], bool, int], None]:
    """Return what takes steps as an administrator."""

    def visit(steps: Callable[[Page], None], dark: bool, width: int) -> None:
        screen.visit(address, steps, person="cleo", dark=dark, width=width, provoked=("403",))

    return visit


def more_requests() -> int:
    """Copy the request until one does not stand open in the queue; return the last of them."""
    copy = ChangeRequest.objects.get()
    for number in range(OPEN_CARDS):
        copy.pk, copy.name = None, f"gpu-{number}"
        copy.save()
    return copy.pk


def sound(page: Page) -> None:
    page.wait_for_load_state("networkidle")
    assert violations(page) == []
    assert not page.evaluate("document.documentElement.scrollWidth > window.innerWidth")


@pytest.mark.parametrize(("dark", "width"), LOOKS)
def test_axe_finds_nothing_where_it_is_decided(
    as_cleo: Callable[..., None], asked: Portal, dark: bool, width: int
) -> None:
    def steps(page: Page) -> None:
        page.goto("/quotas/approvals/")
        page.locator("summary", has_text="Evidence").click()
        page.get_by_text("The other rules").click()
        sound(page)
        page.get_by_role("link", name="vision: ").click()
        sound(page)
        page.get_by_text("Reject…").click()
        page.get_by_label("Reason").fill("Not this month.")
        page.context.clear_cookies(name=settings.SESSION_COOKIE_NAME)
        page.get_by_role("button", name="Reject").click()
        expect(page.locator("h1")).to_have_text("Signed out")
        expect(page.get_by_label("What you said")).to_have_value("Not this month.")
        sound(page)

    as_cleo(steps, dark, width)


@pytest.mark.parametrize(("dark", "width"), LOOKS)
def test_axe_finds_nothing_on_what_was_approved(
    as_cleo: Callable[..., None], asked: Portal, dark: bool, width: int
) -> None:
    def steps(page: Page) -> None:
        page.goto("/quotas/approvals/")
        page.locator("form[action$='/do/approve'] button:not([name])").click()
        expect(page.locator("#done")).to_contain_text("Approved; nothing is changed yet.")
        expect(page.get_by_role("link", name="Download the file to commit")).to_be_visible()
        sound(page)

    as_cleo(steps, dark, width)


def test_on_a_desk_everything_that_decides_stands_on_one_screen(
    as_cleo: Callable[..., None], asked: Portal
) -> None:
    def steps(page: Page) -> None:
        page.goto("/quotas/approvals/")
        for shown in (
            page.get_by_role("heading", name="vision: "),
            page.get_by_text("Its weights alone need two cards."),
            page.get_by_text("One other person has to approve this"),
            page.get_by_text("Cost at most"),
            page.get_by_text("Quota ÷ capacity"),
            page.get_by_text("Unblocks"),
            page.get_by_role("button", name="Approve & apply"),
            page.get_by_text("Ask for changes…"),
            page.get_by_text("Reject…"),
        ):
            box = shown.first.bounding_box()
            assert box is not None
            assert box["y"] + box["height"] <= 900, shown

    as_cleo(steps, False, DESK)


def test_keys_go_through_requests_and_open_a_folded_one(
    as_cleo: Callable[..., None], asked: Portal
) -> None:
    more_requests()

    def steps(page: Page) -> None:
        page.goto("/quotas/approvals/")
        cards = page.locator(".approval-card")
        expect(cards).to_have_count(OPEN_CARDS + 1)
        approve = cards.get_by_role("button", name="Approve & apply")
        expect(approve.filter(visible=True)).to_have_count(OPEN_CARDS)
        for place in range(OPEN_CARDS):
            page.keyboard.press("j")
            expect(cards.nth(place).get_by_role("link", name="vision: ")).to_be_focused()
        last = cards.nth(OPEN_CARDS)
        for key in ("j", "k", "j"):
            page.keyboard.press(key)
        expect(last.locator("summary").first).to_be_focused()
        page.keyboard.press("Enter")
        expect(last.get_by_role("button", name="Approve & apply")).to_be_visible()
        sound(page)

    as_cleo(steps, False, DESK)


def test_a_link_opens_a_folded_request(as_cleo: Callable[..., None], asked: Portal) -> None:
    last = more_requests()

    def steps(page: Page) -> None:
        page.goto(f"/quotas/approvals/#request-{last}")
        card = page.locator(f"#request-{last}")
        expect(card.get_by_role("button", name="Approve & apply")).to_be_visible()

    as_cleo(steps, False, DESK)
