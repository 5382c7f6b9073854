"""The page of one's own tokens in a browser."""

import pytest
from playwright.sync_api import Page, expect

from tests.web.axe import violations
from tests.web.conftest import Screen


@pytest.mark.browser
def test_making_a_token_revoking_it_and_leaving_everywhere_in_a_browser(
    served: str, screen: Screen
) -> None:
    def steps(page: Page) -> None:
        page.goto("/tokens/")
        page.get_by_label("Purpose", exact=True).fill("nightly export")
        page.get_by_label("decide").check()
        page.get_by_role("button", name="Create token").click()
        expect(page.get_by_role("status")).to_contain_text("gpuportal_")
        expect(page.get_by_role("button", name="Copy the new token")).to_be_visible()
        assert violations(page) == []
        page.get_by_role("button", name="Revoke token nightly export").click()
        expect(page.get_by_role("cell", name="revoked")).to_be_visible()
        expect(page.get_by_text("gpuportal_")).to_have_count(0)
        page.get_by_role("button", name="Create token").click()  # the field is asked for
        page.goto("/admin/users/")
        page.get_by_role("button", name="Disable the account of ada").click()
        expect(page.get_by_role("button", name="Enable the account of ada")).to_be_visible()
        assert violations(page) == []
        page.goto("/tokens/")
        page.get_by_role("button", name="Sign out everywhere").click()
        expect(page.get_by_role("heading", name="Sign in")).to_be_visible()

    screen.visit(served, steps, person="cleo")
