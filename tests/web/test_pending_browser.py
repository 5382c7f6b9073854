"""The waiting pages in a real browser, with scripts and without."""

import pytest
from playwright.sync_api import Page, expect

from tests.web.appearances import WAYS, show_controls
from tests.web.conftest import DAILY, Screen
from tests.web.test_browser import draw_all, sign_in

pytestmark = pytest.mark.browser


@pytest.mark.parametrize(("width", "scripts"), WAYS)
def test_pending_work_is_narrowed_ordered_and_opened(
    served: str, screen: Screen, width: int, scripts: bool
) -> None:
    def steps(page: Page) -> None:
        sign_in(page, "cleo", target=f"/pending/?{DAILY}")
        names = page.locator("td.pending-what")
        expect(names).to_have_count(3)
        expect(names.first).to_contain_text("train")
        show_controls(page)
        page.get_by_role("link", name="most GPUs").click()
        expect(names.first).to_contain_text("notes")
        page.locator("#cause-capacity").click()
        expect(names).to_have_count(1)
        page.locator("#cause-all").click()
        expect(names).to_have_count(3)
        show_controls(page)
        page.get_by_label("Filter by name", exact=True).fill("serve")
        page.get_by_label("Filter by name", exact=True).press("Enter")
        expect(names).to_have_count(1)
        page.goto(f"{served}/pending/?{DAILY}&kind=PodGroup")
        expect(names).to_have_count(1)
        page.get_by_role("link", name="Remove the filter Kind PodGroup").click()
        expect(names).to_have_count(3)
        width_of_page = page.evaluate("document.documentElement.scrollWidth")
        assert width_of_page <= width
        names.get_by_role("link", name="train").click()
        expect(page.get_by_role("heading", level=1)).to_contain_text("Pod train-2")
        expect(page.locator(".answer")).to_contain_text("none has 4 free")
        assert page.evaluate("document.documentElement.scrollWidth") <= width

    screen.visit(served, steps, width=width, scripts=scripts)


def test_bars_are_drawn_by_class_of_cause_and_told_when_pointed_at(
    served: str, screen: Screen
) -> None:
    def steps(page: Page) -> None:
        sign_in(page, "cleo", target=f"/pending/?{DAILY}&tab=history")
        assert draw_all(page) >= 1
        bars = page.locator("#history-figure")
        assert '"--ledger-reason-capacity"' in (bars.text_content() or "")
        # The whole of the first day belongs to what waits for capacity.
        page.locator("[data-chart=history-figure] .nsewdrag").hover(position={"x": 60, "y": 150})
        box = page.locator(".chart-box")
        expect(box).to_contain_text("Capacity")
        expect(box.locator(".swatch.of-reason-capacity")).to_have_count(1)

    screen.visit(served, steps)


def test_an_address_and_a_snippet_are_copied(served: str, screen: Screen) -> None:
    def steps(page: Page) -> None:
        page.context.grant_permissions(["clipboard-read", "clipboard-write"])
        sign_in(page, "cleo", target=f"/pending/west/uid-train-2/?{DAILY}")
        page.get_by_role("button", name="Copy snippet of step 2").click()
        expect(page.locator("[data-copy=help-2]")).to_have_text("Copied")
        assert 'key: "dedicated"' in page.evaluate("navigator.clipboard.readText()")
        page.get_by_role("button", name="Copy the address of this page").click()
        copied = page.evaluate("navigator.clipboard.readText()")
        assert copied == f"{served}/pending/west/uid-train-2/"

    screen.visit(served, steps)
