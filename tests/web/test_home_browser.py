"""Home and the window control in a real browser."""

import pytest
from playwright.sync_api import Page, Request, Route, expect

from tests.web.conftest import DAILY, HOURLY, Screen
from tests.web.test_browser import choose_range, sign_in

pytestmark = pytest.mark.browser


def fetch_now(page: Page) -> None:
    """Do what the minute does: ask for the news, and wait until they are there."""
    with page.expect_response(lambda response: "part=now" in response.url):
        page.evaluate("htmx.trigger('#now', 'look')")


def test_the_window_control_stays_in_sight(served: str, screen: Screen) -> None:
    def steps(page: Page) -> None:
        sign_in(page)
        page.goto(f"/capacity/teams/vision/?{HOURLY}&tab=workloads")
        page.locator("#workloads").scroll_into_view_if_needed()
        expect(page.locator(".picker")).to_be_in_viewport()
        page.get_by_role("link", name="Earlier window").click()
        expect(page.locator(".window-label")).to_contain_text("22 Oct – 24 Oct 2025")
        assert "first=2025-10-22&last=2025-10-24" in page.url

    screen.visit(served, steps)


@pytest.mark.parametrize("scripts", [True, False], ids=["scripts", "no scripts"])
def test_the_comparison_is_switched_and_filters_are_taken_off(
    served: str, screen: Screen, *, scripts: bool
) -> None:
    def steps(page: Page) -> None:
        sign_in(page, target="/capacity/tiers/gold/?first=2025-10-27&last=2025-10-27&cluster=west")
        expect(page.locator(".key-change").first).to_be_visible()
        page.locator(".days-menu summary").click()
        page.get_by_role("link", name="Compare with the previous day: on").click()
        expect(page.locator(".key-change")).to_have_count(0)
        page.get_by_role("link", name="Remove the filter Cluster west").click()
        expect(page.locator(".chip")).to_have_count(0)
        assert page.url.endswith("/gold/?first=2025-10-27&last=2025-10-27&compare=no")

    screen.visit(served, steps, scripts=scripts)


def test_on_a_phone_the_scope_bar_is_behind_one_button(served: str, screen: Screen) -> None:
    def steps(page: Page) -> None:
        sign_in(page, target=f"/?{DAILY}")
        bar = page.locator(".picker").bounding_box()
        assert bar is not None
        assert bar["height"] < 100
        expect(page.locator(".days-menu")).to_be_hidden()
        page.locator(".picker-toggle").click()
        choose_range(page, "Yesterday")
        expect(page.locator(".picker-toggle")).not_to_contain_text("2025")

    screen.visit(served, steps, width=390)


def test_the_badge_opens_to_what_it_means(served: str, screen: Screen) -> None:
    def steps(page: Page) -> None:
        sign_in(page)
        details = page.get_by_text("1 hour of this window could not be collected:")
        expect(details).to_be_hidden()
        page.get_by_text("2 hours not collected").first.click()
        expect(details).to_be_visible()

    screen.visit(served, steps)


def test_pending_work_now_refreshes_itself_in_place(served: str, screen: Screen) -> None:
    def steps(page: Page) -> None:
        sign_in(page)
        page.evaluate("document.querySelector('h1').same = true")
        figure = page.locator("#pending-now .key-value")
        expect(figure).to_have_text("2")
        # The page as it was a minute ago: what comes must take its place.
        page.locator("#now-title").evaluate("e => { e.textContent = 'worn' }")
        figure.evaluate("e => { e.textContent = 'worn' }")
        fetch_now(page)
        expect(page.locator("#now-title")).to_have_text("Pending by reason")
        expect(figure).to_have_text("2")
        assert page.evaluate("document.querySelector('h1').same") is True
        expect(page.locator(".htmx-added, .htmx-settling")).to_have_count(0)
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
        expect(page.locator("#now")).to_contain_text("Pending by reason")

    screen.visit(served, steps, provoked=("503",))


def test_a_page_that_nobody_looks_at_requests_nothing(served: str, screen: Screen) -> None:
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
