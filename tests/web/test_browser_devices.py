"""The devices page in a real browser, with scripts and without."""

import pytest
from playwright.sync_api import Page, expect

from tests.web.appearances import WAYS, show_controls
from tests.web.conftest import DAILY, Screen
from tests.web.test_browser import sign_in

pytestmark = pytest.mark.browser


@pytest.mark.parametrize(("width", "scripts"), WAYS)
def test_devices_are_narrowed_found_and_opened(
    served: str, screen: Screen, width: int, scripts: bool
) -> None:
    def steps(page: Page) -> None:
        sign_in(page, "cleo", target=f"/capacity/gpus/?{DAILY}")
        expect(page.locator(".fleet-broken")).to_contain_text("west-1")
        page.get_by_role("link", name="Table", exact=True).click()
        names = page.locator("#devices tbody td:first-child")
        expect(names).to_have_count(8)
        show_controls(page)
        page.get_by_role("link", name="watch 2").click()
        expect(names).to_have_count(2)
        show_controls(page)
        page.get_by_label("UUID").fill("000002")
        page.get_by_role("button", name="Find").click()
        expect(names).to_have_count(1)
        expect(page.locator("#device-uuid")).to_have_value("000002")
        page.get_by_role("link", name="Remove the filter UUID").click()
        expect(names).to_have_count(2)
        show_controls(page)
        page.get_by_role("link", name="all 8").click()
        expect(names).to_have_count(8)
        names.get_by_role("link", name="GPU 3").click()
        expect(page.get_by_role("heading", level=1)).to_contain_text("GPU 3")
        expect(page.locator("#xid")).to_contain_text("XID 79")

    screen.visit(served, steps, width=width, scripts=scripts)


# Administrators have the approvals, users and the audit besides.
@pytest.mark.parametrize(("person", "pages"), [("ada", 25), ("cleo", 30)])
def test_the_pages_are_behind_one_button_of_a_phone(
    served: str, screen: Screen, person: str, pages: int
) -> None:
    def steps(page: Page) -> None:
        sign_in(page, person, target=f"/capacity/gpus/?{DAILY}")
        links = page.locator(".topnav a[data-key]")
        expect(links).to_have_count(pages)
        expect(links.first).to_be_hidden()
        page.get_by_role("button", name="Menu").click()
        expect(links.first).to_be_visible()
        sizes = [link.bounding_box() for link in links.all()]
        assert min(box["height"] for box in sizes if box) >= 24
        page.locator(".topnav").get_by_role("link", name="Fairness").click()
        expect(page.get_by_role("heading", level=1)).to_have_text("Fairness")

    screen.visit(served, steps, width=390)
