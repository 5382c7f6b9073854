"""The pages in a real browser: no error in its console, no request that leaves the host."""

import re
from collections.abc import Callable

import pytest
from playwright.sync_api import Locator, Page, Route, expect

from apps.clusters.models import Pod
from tests.factories import make_team
from tests.web.conftest import HOURLY, Screen

pytestmark = pytest.mark.browser


def sign_in(page: Page, username: str = "ada", target: str = f"/?{HOURLY}") -> None:
    """Send the form of the sign-in page without showing it, and open a page."""
    form = page.context.request.get("/sign-in/").text()
    token = re.search(r'name="csrfmiddlewaretoken" value="(\w+)"', form)
    assert token is not None
    given = {"username": username, "password": username, "csrfmiddlewaretoken": token[1]}
    answer = page.context.request.post("/sign-in/", form=given, max_redirects=0)
    assert answer.status == 302
    page.goto(target)
    _wait(page)


def print_upright(page: Page, target: str) -> None:
    """Open a page, hold that it prints upright on one sheet, and show it as on paper."""
    sign_in(page, target=target)
    paper = page.pdf(prefer_css_page_size=True)
    (box,) = set(re.findall(rb"/MediaBox \[([^\]]+)\]", paper))
    _, _, width, height = map(float, box.split())
    assert width < height
    assert len(re.findall(rb"/Type /Page\b", paper)) == 1
    page.emulate_media(media="print")


def fill_sign_in(page: Page, username: str = "ada", target: str = f"/?{HOURLY}") -> None:
    """Ask for a page, sign in on the way to it as people do, and wait until it is there."""
    page.goto(target)
    page.get_by_label("User name").fill(username)
    page.get_by_label("Password").fill(username)
    page.get_by_role("button", name="Sign in").click()
    _wait(page)


def _wait(page: Page) -> None:
    expect(account_menu(page)).to_be_visible()
    page.wait_for_load_state()  # the menu is seen before the deferred scripts have run


def account_menu(page: Page) -> Locator:
    """Return what opens the menu of who is signed in."""
    return page.locator(".user-menu summary")


def show_from(page: Page, first: str) -> None:
    """Open the days of the window control and ask for a window that starts on `first`."""
    page.locator(".days-menu summary").click()
    page.get_by_label("From").fill(first)
    page.get_by_role("button", name="Show").click()


def choose_range(page: Page, name: str) -> None:
    """Choose a time range of the window control."""
    page.locator(".days-menu summary").click()
    page.get_by_role("link", name=name, exact=True).click()


def draw_all(page: Page) -> int:
    """Open what a phone folds, scroll to every chart until it is drawn; return how many are."""
    page.evaluate("document.querySelectorAll('.phone-fold').forEach(one => (one.open = true))")
    charts = page.locator("[data-chart]")
    count = charts.count()
    for index in range(count):
        charts.nth(index).scroll_into_view_if_needed()
        expect(charts.nth(index)).to_have_attribute("data-drawn", "yes")
    return count


def test_a_lead_clicks_from_the_sign_in_to_a_pod(served: str, screen: Screen) -> None:
    def steps(page: Page) -> None:
        fill_sign_in(page)
        expect(page.get_by_role("heading", level=1)).to_contain_text("vision")
        page.locator("#main").get_by_role("link", name="gold", exact=True).first.click()
        expect(page.get_by_role("heading", level=1)).to_have_text("Tier gold")
        draw_all(page)
        page.goto(f"/capacity/tiers/gold/?tab=teams&{HOURLY}")
        page.locator("#teams").get_by_role("link", name="vision", exact=True).first.click()
        expect(page.get_by_role("heading", level=1)).to_have_text("Team vision")
        page.locator("#tab-workloads").click()
        page.locator("#workloads").get_by_role("link", name="Job/train").first.click()
        expect(page.get_by_role("heading", level=1)).to_have_text("Job train")
        page.locator("#tab-pods").click()
        page.locator("#main table").get_by_role("link", name="train-0").first.click()
        expect(page.get_by_role("heading", level=1)).to_have_text("Pod train-0")
        assert HOURLY in page.url
        account_menu(page).click()
        page.get_by_role("button", name="Sign out").click()
        expect(page.get_by_role("heading", level=1)).to_have_text("Sign in")

    screen.visit(served, steps)


def test_a_window_is_changed_without_loading_the_page_anew(served: str, screen: Screen) -> None:
    def steps(page: Page) -> None:
        sign_in(page, target=f"/capacity/tiers/gold/?{HOURLY}")
        page.evaluate("window.same = true")
        show_from(page, "2025-10-24")
        expect(page.locator(".window-label")).to_contain_text("24 Oct – 27 Oct 2025")
        assert "first=2025-10-24&last=2025-10-27" in page.url
        draw_all(page)
        choose_range(page, "Yesterday")
        expect(page.get_by_text("Nothing to draw")).to_be_visible()
        assert page.evaluate("window.same") is True
        page.go_back()
        expect(page.locator(".window-label")).to_contain_text("24 Oct – 27 Oct 2025")
        draw_all(page)

    screen.visit(served, steps)


@pytest.mark.parametrize(
    ("fail", "provoked"),
    [
        (lambda route: route.abort(), ("ERR_FAILED", "htmx:sendError")),
        (lambda route: route.fulfill(status=503, body="away"), ("503",)),
    ],
    ids=["no answer", "an error"],
)
def test_a_part_that_cannot_be_fetched_becomes_the_whole_page_that_says_why(
    served: str, screen: Screen, fail: Callable[[Route], None], provoked: tuple[str, ...]
) -> None:
    def fail_parts(route: Route) -> None:
        if route.request.headers.get("hx-request"):
            fail(route)
        else:
            route.continue_()

    def steps(page: Page) -> None:
        sign_in(page, target=f"/capacity/tiers/gold/?{HOURLY}")
        page.evaluate("window.same = true")
        page.route("**/tiers/**", fail_parts)
        show_from(page, "2025-10-24")
        expect(page.locator(".window-label")).to_contain_text("24 Oct – 27 Oct 2025")
        assert page.url.endswith("first=2025-10-24&last=2025-10-27")
        assert page.evaluate("window.same === undefined")
        expect(account_menu(page)).to_be_visible()

    screen.visit(served, steps, provoked=provoked)


def test_pages_work_without_scripts_but_for_the_drawing(served: str, screen: Screen) -> None:
    def steps(page: Page) -> None:
        fill_sign_in(page, target=f"/capacity/tiers/gold/?{HOURLY}")
        expect(page.get_by_text("The chart is drawn here by JavaScript")).to_be_visible()
        page.get_by_text("Table of 25 of ").click()
        expect(page.locator("#ledger tbody tr").first).to_be_visible()
        choose_range(page, "Last 24 hours")
        expect(page.locator(".window-label")).not_to_contain_text("2025")

    screen.visit(served, steps, scripts=False)


def test_a_dark_page_is_printed_light_and_stays_dark_on_the_screen(
    served: str, screen: Screen
) -> None:
    def steps(page: Page) -> None:
        sign_in(page, target=f"/capacity/tiers/gold/?{HOURLY}")
        draw_all(page)
        page.evaluate(
            "window.addEventListener('beforeprint', () => {"
            " window.printed = document.documentElement.dataset.bsTheme; })"
        )
        page.pdf()
        assert page.evaluate("window.printed") == "light"
        expect(page.locator("html")).to_have_attribute("data-bs-theme", "dark")

    screen.visit(served, steps, dark=True)


def test_a_chart_fits_on_paper_and_fills_the_screen_again(served: str, screen: Screen) -> None:
    def steps(page: Page) -> None:
        sign_in(page, target=f"/capacity/tiers/gold/?{HOURLY}")
        draw_all(page)
        drawing = page.locator(".main-svg").first
        whole = drawing.get_attribute("width")
        page.evaluate("window.dispatchEvent(new Event('beforeprint'))")
        expect(drawing).to_have_attribute("width", "860")
        page.evaluate("window.dispatchEvent(new Event('afterprint'))")
        expect(drawing).to_have_attribute("width", str(whole))

    screen.visit(served, steps)


def test_a_long_name_leaves_its_numbers_in_reach_on_a_phone(served: str, screen: Screen) -> None:
    make_team("t" * 90)
    Pod.objects.filter(name="train-0").update(name="p" * 200)

    def steps(page: Page) -> None:
        pods = "/workloads/west/vision/Job/train/"
        sign_in(page, target=f"{pods}?tab=pods&{HOURLY}")
        # On a phone a row's cells stand below each other, each with its label.
        cells = page.locator("#pods tr", has_text="pppp").locator("td")
        assert [one.is_visible() for one in cells.all()[:5]] == [True] * 4 + [False]
        page.locator("#pods .phone-more input").check()
        assert all(one.is_visible() for one in cells.all())
        for path in (f"{pods}?tab=pods&{HOURLY}", "/capacity/teams/", "/pods/west/uid-train-0/"):
            page.goto(path if "?" in path else f"{path}?{HOURLY}")
            wide = page.evaluate("[document.documentElement.scrollWidth, innerWidth]")
            assert wide[0] <= wide[1], (path, wide)

    screen.visit(served, steps, width=390)


def test_a_table_is_saved_as_a_file(served: str, screen: Screen) -> None:
    def steps(page: Page) -> None:
        sign_in(page, target=f"/capacity/teams/?{HOURLY}")
        with page.expect_download() as started:
            page.get_by_role("link", name="Download Teams as CSV").click()
        name = "gpuportal_teams_teams_2025-10-25_2025-10-27.csv"
        assert started.value.suggested_filename == name

    screen.visit(served, steps)


def test_the_keyboard_reaches_the_content_first(served: str, screen: Screen) -> None:
    def steps(page: Page) -> None:
        sign_in(page)
        page.goto(f"/?{HOURLY}")
        page.keyboard.press("Tab")
        skip = page.get_by_role("link", name="Skip to the content")
        expect(skip).to_be_focused()
        expect(skip).to_be_in_viewport()
        colours = skip.evaluate(
            "e => [getComputedStyle(e).color, getComputedStyle(e).backgroundColor]"
        )
        assert colours == ["rgb(10, 92, 153)", "rgb(255, 255, 255)"]
        page.keyboard.press("Enter")
        expect(page.locator("#main")).to_be_focused()
        page.keyboard.press("Tab")
        focused = page.locator(":focus")
        expect(focused).to_have_text("My teams")
        assert focused.evaluate("e => getComputedStyle(e).outlineStyle") == "solid"

    screen.visit(served, steps)


def test_hours_of_the_calendar_differ_by_colour_and_sign(served: str, screen: Screen) -> None:
    def steps(page: Page) -> None:
        sign_in(page, target=f"/admin/data-quality/?{HOURLY}&tab=calendar")
        looks = {
            page.locator(f".hour-cells i{kind}").first.evaluate(
                "e => [getComputedStyle(e, '::before').content, getComputedStyle(e).background]"
                ".join()"
            )
            for kind in ("[title$='%']", ".heat-failed", ".heat-no-data")
        }
        assert len(looks) == 3
        assert sum("×" in look for look in looks) == 1
        assert sum("gradient" in look for look in looks) == 1

    screen.visit(served, steps)


def test_a_gap_is_drawn_as_a_gap(served: str, screen: Screen) -> None:
    def steps(page: Page) -> None:
        sign_in(page, target=f"/capacity/tiers/gold/?{HOURLY}")
        draw_all(page)
        bars = page.locator(".chart-canvas .trace.bars").first.locator(".point path")
        heights = bars.evaluate_all("bars => bars.map(bar => bar.getBBox().height)")
        assert sum(height > 0 for height in heights) == 71
        expect(page.locator(".chart-canvas .shapelayer path")).to_have_count(1)
        expect(page.locator("figcaption").first).to_have_text(re.compile("2 hours not collected"))

    screen.visit(served, steps)
