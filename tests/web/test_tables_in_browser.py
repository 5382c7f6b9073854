"""Tables as people use them: sort by a click, and follow a figure to the pods behind it."""

import re

import pytest
from playwright.sync_api import Page, Route, expect

from tests.web.conftest import DAILY, HOURLY, Screen
from tests.web.test_browser import sign_in

pytestmark = pytest.mark.browser
SCRIPTS = pytest.mark.parametrize("scripts", [True, False], ids=["with scripts", "without"])


@SCRIPTS
def test_a_click_on_a_head_sorts(served: str, screen: Screen, scripts: bool) -> None:
    def steps(page: Page) -> None:
        sign_in(page, "cleo", f"/capacity/teams/?{HOURLY}")
        head = page.locator("#teams").get_by_role("link", name="Team", exact=True)
        head.click()
        expect(page.locator("#teams th[aria-sort=ascending]")).to_have_text("Team")
        head.click()
        expect(page.locator("#teams th[aria-sort=descending]")).to_have_text("Team")
        shown = page.locator("#teams tbody td:first-child").all_inner_texts()
        assert shown == sorted(shown, reverse=True)
        assert "sort=-team" in page.url

    screen.visit(served, steps, scripts=scripts)


@SCRIPTS
def test_a_figure_leads_to_the_pods_behind_it(served: str, screen: Screen, scripts: bool) -> None:
    def steps(page: Page) -> None:
        sign_in(page, "ada", f"/capacity/teams/vision/?tab=workloads&{HOURLY}")
        page.locator("#workloads tbody .explained").first.click()
        expect(page.get_by_role("heading", level=1)).to_contain_text("workload")
        page.locator("#pods tbody a:not(.explained)").first.click()
        expect(page.get_by_role("heading", level=1)).to_contain_text("Pod")

    screen.visit(served, steps, scripts=scripts)


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_an_explanation_fits_a_phone(served: str, screen: Screen, dark: bool) -> None:
    def steps(page: Page) -> None:
        sign_in(page, "cleo", f"/explain/?figure=utilization_ratio&tier=gold&{DAILY}")
        expect(page.locator(".explain-value")).to_be_visible()
        wide = page.evaluate("[document.documentElement.scrollWidth, innerWidth]")
        assert wide[0] <= wide[1]

    screen.visit(served, steps, width=390, dark=dark)


def test_a_table_has_no_scroller_of_its_own_and_its_head_stays_below_the_bar(
    served: str, screen: Screen
) -> None:
    def steps(page: Page) -> None:
        sign_in(page, "cleo", f"/explain/?figure=busy&{HOURLY}&cluster=west&pod=uid-train-0")
        frame = page.locator("#hours .table-scroll")
        assert frame.evaluate("el => el.scrollHeight <= el.clientHeight + 1")
        expect(frame).to_have_class("table-scroll fits")
        frame.evaluate("el => window.scrollTo(0, el.getBoundingClientRect().top + scrollY + 200)")
        head = page.locator("#hours thead th").first.bounding_box()
        bar = page.evaluate("parseFloat(document.documentElement.style.cssText.split(':')[1])")
        assert head
        assert abs(head["y"] - bar) <= 2

    screen.visit(served, steps)


@SCRIPTS
def test_on_a_phone_controls_are_behind_a_button_and_rows_are_blocks(
    served: str, screen: Screen, scripts: bool
) -> None:
    def steps(page: Page) -> None:
        sign_in(page, "cleo", f"/capacity/teams/?{HOURLY}")
        second = page.locator("#teams tbody tr").first.locator("td").nth(1)
        label = second.get_attribute("data-label")
        assert label in second.evaluate("el => getComputedStyle(el, '::before').content")
        page.goto(f"/costs/?{HOURLY}")
        group = page.get_by_label("Group by")
        expect(group).to_be_hidden()
        page.locator(".filter-row > summary").click()
        expect(group).to_be_visible()
        block = page.get_by_role("heading", name="Cost breakdown")
        expect(block).to_be_hidden()
        page.locator(".phone-fold > summary").first.click()
        expect(block).to_be_visible()
        page.get_by_role("link", name="Line items").click()
        expect(page.get_by_role("heading", name="Line items")).to_be_visible()
        expect(block).to_be_visible(visible=scripts)  # a page that is loaded anew is folded
        page.set_viewport_size({"width": 1440, "height": 900})
        page.reload()
        expect(page.locator(".filter-row > summary")).to_be_hidden()
        expect(page.locator(".phone-fold > summary").first).to_be_hidden()
        expect(group).to_be_visible()
        expect(block).to_be_visible()

    screen.visit(served, steps, width=390, scripts=scripts)


def test_what_is_being_fetched_is_seen_to_be_within_a_tenth_of_a_second(
    served: str, screen: Screen
) -> None:
    held: list[Route] = []

    def hold(route: Route) -> None:
        held.append(route)

    def steps(page: Page) -> None:
        sign_in(page, "cleo", f"/capacity/teams/?{HOURLY}")
        page.route(re.compile("sort="), hold)
        page.locator("#teams").get_by_role("link", name="Team", exact=True).click()
        results = page.locator("#results")
        expect(results).to_have_class("htmx-request")
        expect(results).to_have_css("opacity", "0.55")
        expect(results).to_have_css("cursor", "progress")
        after = results.evaluate(
            "el => { const style = getComputedStyle(el);"
            " return [style.transitionDelay, style.transitionDuration].map(parseFloat) }"
        )
        assert sum(after) <= 0.1
        held[0].continue_()
        expect(page.locator("#teams th[aria-sort=ascending]")).to_have_text("Team")
        expect(results).to_have_css("opacity", "1")

    screen.visit(served, steps)


def test_every_column_can_be_ticked_on_a_phone(served: str, screen: Screen) -> None:
    def steps(page: Page) -> None:
        sign_in(page, "cleo", f"/capacity/teams/?{HOURLY}")
        page.locator("#teams .column-menu > summary").click()
        box = page.locator("#teams .column-menu > .menu-sheet").bounding_box()
        assert box is not None
        # Beside a short title it once began left of the screen, with all its boxes.
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= 390

    screen.visit(served, steps, width=390)
