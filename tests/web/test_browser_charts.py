"""What can be done with a chart, in a real browser."""

import pytest
from playwright.sync_api import FloatRect, Locator, Page, expect
from pytest_django import Settings

from tests.web.conftest import DAILY, HOURLY, Screen
from tests.web.test_browser import draw_all, sign_in

pytestmark = pytest.mark.browser

DAYS = 4  # of DAILY


def plot_of(page: Page) -> FloatRect:
    """Draw the first chart; return the place of its plot on the screen."""
    draw_all(page)
    page.locator("[data-chart]").first.scroll_into_view_if_needed()
    box = page.locator(".nsewdrag").first.bounding_box()
    assert box is not None
    return box


def drag(page: Page, start: float, end: float) -> None:
    """Drag over the plot; both are parts of its width, 0..1."""
    plot = plot_of(page)
    height = plot["y"] + plot["height"] / 2
    page.mouse.move(plot["x"] + start * plot["width"], height)
    page.mouse.down()
    page.mouse.move(plot["x"] + end * plot["width"], height, steps=8)
    page.mouse.up()


def caption_of(page: Page) -> Locator:
    """Return the caption of the chart of average GPUs, which tells its window."""
    return page.locator("figcaption", has_text="Average GPUs")


def point_at(page: Page, where: float) -> None:
    plot = plot_of(page)
    page.mouse.move(plot["x"] + where * plot["width"], plot["y"] + plot["height"] / 2, steps=2)


def test_dragging_over_days_makes_them_the_window(served: str, screen: Screen) -> None:
    def steps(page: Page) -> None:
        sign_in(page, target=f"/capacity/tiers/gold/?{DAILY}&cluster=west&sort=x")
        drag(page, 1 / DAYS + 0.02, 3 / DAYS - 0.02)
        page.wait_for_url("**/tiers/gold/?cluster=west&sort=x&first=2025-10-25&last=2025-10-26")
        expect(caption_of(page)).to_contain_text("25 Oct")

    screen.visit(served, steps)


def test_dragging_over_hours_makes_them_the_window(served: str, screen: Screen) -> None:
    def steps(page: Page) -> None:
        sign_in(page, target="/capacity/tiers/gold/?first=2025-10-24&last=2025-10-24")
        drag(page, 6 / 24 + 0.01, 12 / 24 - 0.01)
        page.wait_for_url("**start=2025-10-24T04%3A00%3A00Z&end=2025-10-24T10%3A00%3A00Z")
        expect(caption_of(page)).to_contain_text("06:00 – 12:00")

    screen.visit(served, steps)


def test_a_click_on_a_day_opens_its_hours(served: str, screen: Screen) -> None:
    def steps(page: Page) -> None:
        sign_in(page, target=f"/capacity/tiers/gold/?{DAILY}")
        point_at(page, 2.5 / DAYS)
        expect(page.locator(".chart-box-period")).to_contain_text("26 Oct 2025")
        page.mouse.down()
        page.mouse.up()
        page.wait_for_url("**/tiers/gold/?first=2025-10-26&last=2025-10-26")
        expect(caption_of(page)).to_contain_text("26 Oct 2025")

    screen.visit(served, steps)


def test_pointing_at_a_bar_tells_its_classes_and_their_sum(served: str, screen: Screen) -> None:
    def steps(page: Page) -> None:
        sign_in(page, target=f"/capacity/tiers/gold/?{DAILY}")
        point_at(page, 1.5 / DAYS)
        box = page.locator(".chart-box")
        expect(box.locator(".chart-box-period")).to_contain_text("25 Oct 2025, 2 h missing")
        expect(box.locator("li").last).to_contain_text("Active")
        expect(box.locator(".chart-box-sum")).to_have_text("6.0 GPUs in all")
        page.mouse.move(0, 0)
        expect(box).to_have_count(0)

    screen.visit(served, steps)


def test_a_chart_is_saved_as_a_picture(served: str, screen: Screen) -> None:
    def steps(page: Page) -> None:
        sign_in(page, target=f"/capacity/tiers/gold/?{HOURLY}")
        draw_all(page)
        with page.expect_download() as started:
            page.get_by_role("button", name="PNG picture of Average GPUs").click()
        picture = started.value
        assert picture.suggested_filename == "gpuportal_average-gpus_2025-10-25_2025-10-27.png"
        head = picture.path().read_bytes()[:24]
        assert head.startswith(b"\x89PNG")
        assert [int.from_bytes(head[at : at + 4]) for at in (16, 20)] == [2400, 960]

    screen.visit(served, steps)


def test_on_a_touch_screen_a_drag_is_left_to_scroll_the_page(served: str, screen: Screen) -> None:
    def steps(page: Page) -> None:
        page.add_init_script(
            "const real = window.matchMedia; window.matchMedia = (query) =>"
            " query.includes('pointer') ? { matches: false } : real.call(window, query)"
        )
        sign_in(page, target=f"/capacity/tiers/gold/?{HOURLY}")
        before = page.url
        drag(page, 0.1, 0.9)
        expect(page.locator(".chart-hint")).to_be_hidden()
        assert page.locator(".zoomlayer path").count() == 0
        assert page.url == before

    screen.visit(served, steps, width=390, left_as_found=False)


def test_what_is_next_to_nothing_is_drawn_so_that_it_can_be_seen(
    served: str, screen: Screen, settings: Settings
) -> None:
    settings.DEBUG = True

    def steps(page: Page) -> None:
        page.goto("/styleguide/")
        draw_all(page)
        classes = page.locator("[aria-labelledby=hours-heading] .trace.bars")
        expect(classes).to_have_count(7)
        unmeasured = classes.nth(4).locator(".point path")
        heights = unmeasured.evaluate_all("bars => bars.map(bar => bar.getBBox().height)")
        seen = [height for height in heights if height > 0]
        assert len(seen) == 21  # of 24 hours, three of which were not collected
        assert min(seen) >= 1.9

    screen.visit(served, steps, dark=True)
