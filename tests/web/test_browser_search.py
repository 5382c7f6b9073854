"""The search box of the top bar in a browser: its key, its suggestions, and without scripts."""

import pytest
from playwright.sync_api import Page, Route, expect

from tests.web.conftest import HOURLY, Screen

pytestmark = pytest.mark.browser


def test_the_keyboard_leads_from_the_slash_to_a_pod(served: str, screen: Screen) -> None:
    def steps(page: Page) -> None:
        page.goto(f"/capacity/teams/?{HOURLY}")
        page.keyboard.press("/")
        box = page.get_by_role("searchbox")
        expect(box).to_be_focused()
        page.keyboard.type("train-1")
        pod = page.locator("#search-suggestions").get_by_role("link", name="train-1")
        expect(pod).to_be_visible()
        page.keyboard.press("Escape")
        expect(pod).to_be_hidden()
        expect(box).to_have_value("train-1")
        page.keyboard.type(" ")
        page.keyboard.press("Backspace")
        expect(pod).to_be_visible()
        page.keyboard.press("ArrowDown")
        expect(pod).to_be_focused()
        page.keyboard.press("ArrowUp")
        expect(box).to_be_focused()
        page.keyboard.press("ArrowDown")
        page.keyboard.press("Enter")
        expect(page.get_by_role("heading", level=1)).to_contain_text("train-1")
        assert page.url.endswith(HOURLY)

    screen.visit(served, steps, person="ada")


def test_suggestions_that_do_not_come_leave_the_page_alone(served: str, screen: Screen) -> None:
    def fail(route: Route) -> None:
        route.fulfill(status=500, body="")

    def steps(page: Page) -> None:
        page.goto("/capacity/teams/")
        page.route("**/search/**", fail)
        page.get_by_role("searchbox").focus()
        with page.expect_response("**/search/**"):
            page.keyboard.type("train")
        expect(page.get_by_role("heading", level=1)).to_have_text("Teams")
        expect(page.locator("#search-suggestions")).to_be_hidden()

    screen.visit(served, steps, person="ada", provoked=("500", "Response Status Error"))


def test_the_search_works_without_scripts(served: str, screen: Screen) -> None:
    def steps(page: Page) -> None:
        page.goto(f"/capacity/teams/?{HOURLY}")
        page.get_by_role("searchbox").fill("train")
        page.keyboard.press("Enter")
        page.get_by_role("main").get_by_role("link", name="Job/train").click()
        assert page.url.endswith(f"/workloads/west/vision/Job/train/?{HOURLY}")

    screen.visit(served, steps, person="ada", scripts=False)
