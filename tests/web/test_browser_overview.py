"""The overview and the window control in a real browser."""

import pytest
from playwright.sync_api import Page, Request, Route, expect

from tests.web.conftest import DAILY, HOURLY, Screen
from tests.web.test_browser import draw_all, sign_in

pytestmark = pytest.mark.browser


def fetch_now(page: Page) -> None:
    """Do what the minute does: ask for the news, and wait until they are there."""
    with page.expect_response(lambda response: "part=now" in response.url):
        page.evaluate("htmx.trigger('#now', 'look')")


def test_the_window_control_stays_in_sight(served: str, screen: Screen) -> None:
    def steps(page: Page) -> None:
        sign_in(page)
        page.goto(f"/?{HOURLY}")
        page.locator("#teams").scroll_into_view_if_needed()
        expect(page.locator(".picker")).to_be_in_viewport()
        page.get_by_role("link", name="Earlier window").click()
        expect(page.locator(".window-label")).to_contain_text("Wed 22 Oct 2025")
        assert "first=2025-10-22&last=2025-10-24" in page.url

    screen.visit(served, steps)


@pytest.mark.parametrize("scripts", [True, False], ids=["scripts", "no scripts"])
def test_the_comparison_is_switched_and_filters_are_taken_off(
    served: str, screen: Screen, *, scripts: bool
) -> None:
    def steps(page: Page) -> None:
        sign_in(page, target="/?first=2025-10-27&last=2025-10-27&cluster=west")
        expect(page.locator(".change").first).to_be_visible()
        page.get_by_role("link", name="vs the day before: stop comparing").click()
        expect(page.locator(".change")).to_have_count(0)
        page.get_by_role("link", name="Remove the filter Cluster west").click()
        expect(page.locator(".chip")).to_have_count(0)
        assert page.url.endswith("/?first=2025-10-27&last=2025-10-27&compare=no")

    screen.visit(served, steps, scripts=scripts)


def test_on_a_phone_the_control_and_the_badge_take_a_line_each(served: str, screen: Screen) -> None:
    def steps(page: Page) -> None:
        sign_in(page, target=f"/?{DAILY}")
        heights = [
            page.locator(selector).bounding_box() for selector in (".picker", ".quality summary")
        ]
        assert [box is not None and box["height"] < 60 for box in heights] == [True, True]
        expect(page.get_by_role("link", name="Yesterday")).to_be_hidden()
        page.locator(".days-menu summary").click()
        page.get_by_role("link", name="Yesterday").click()
        expect(page.locator(".window-label")).not_to_contain_text("2025")

    screen.visit(served, steps, width=390)


def test_the_badge_opens_to_what_it_means(served: str, screen: Screen) -> None:
    def steps(page: Page) -> None:
        sign_in(page)
        details = page.get_by_text("1 hour of this window could not be collected:")
        expect(details).to_be_hidden()
        page.get_by_text("2 hours not collected").first.click()
        expect(details).to_be_visible()

    screen.visit(served, steps)


def test_what_waits_now_refreshes_itself_in_place(served: str, screen: Screen) -> None:
    def steps(page: Page) -> None:
        sign_in(page)
        draw_all(page)
        page.evaluate("document.querySelector('h1').same = true")
        gold = page.get_by_role("article", name="Tier gold")
        expect(gold).to_contain_text("in 1 pod, the oldest for")
        # The page as it was a minute ago: what comes must take its place.
        page.locator("#waits-title").evaluate("e => { e.textContent = 'worn' }")
        gold.locator("[id^=waiting-] .figure").evaluate("e => { e.textContent = 'worn' }")
        fetch_now(page)
        expect(page.locator("#waits-title")).to_have_text("Longest pending")
        expect(gold).not_to_contain_text("worn")
        expect(gold).to_contain_text("4 GPUs in 1 pod, the oldest for")
        expect(page.locator("[data-drawn=yes]")).to_have_count(2)
        assert page.evaluate("document.querySelector('h1').same") is True
        fetch_now(page)  # what came can be fetched again

    screen.visit(served, steps)


def test_news_that_do_not_come_leave_the_old_ones_with_their_time(
    served: str, screen: Screen
) -> None:
    def fail(route: Route) -> None:
        route.fulfill(status=503, body="away")

    def steps(page: Page) -> None:
        sign_in(page)
        page.evaluate("window.same = true")
        page.route("**/*part=now*", fail)
        fetch_now(page)
        expect(page.locator("[data-as-of]")).to_contain_text("could not be refreshed since")
        assert page.evaluate("window.same") is True
        expect(page.locator("#now")).to_contain_text("train-2")

    screen.visit(served, steps, provoked=("503",))


def test_a_page_that_nobody_looks_at_asks_for_nothing(served: str, screen: Screen) -> None:
    asked: list[str] = []

    def note(request: Request) -> None:
        if "part=now" in request.url:
            asked.append(request.url)

    def steps(page: Page) -> None:
        sign_in(page)
        page.on("request", note)
        hide = "Object.defineProperty(document, 'hidden', {configurable: true, value: %s})"
        page.evaluate(hide % "true")
        page.evaluate("htmx.trigger('#now', 'look')")
        assert asked == []
        page.evaluate(hide % "false")
        with page.expect_response(lambda response: "part=now" in response.url):
            page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
        assert len(asked) == 1

    screen.visit(served, steps)
