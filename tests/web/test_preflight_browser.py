"""The page of preflight in a real browser, with scripts and without."""

from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.planning.preflight_portal import add_slices, job, make_runs, watched_portal
from tests.web.appearances import LOOKS, WAYS
from tests.web.axe import violations
from tests.web.conftest import Screen
from tests.web.test_browser import sign_in

pytestmark = pytest.mark.browser


@pytest.fixture
def preflight(address: str) -> str:
    """Return the address of a live server with a cluster to check manifests against."""
    portal = watched_portal()
    make_runs(portal)
    add_slices(portal)
    return address


@pytest.mark.parametrize(("width", "scripts"), WAYS)
def test_a_manifest_is_pasted_corrected_and_its_quota_requested(
    preflight: str, screen: Screen, width: int, scripts: bool
) -> None:
    def steps(page: Page) -> None:
        sign_in(page, "ada", target="/preflight/")
        form = page.get_by_role("form", name="Manifest")
        form.get_by_label("Namespace").select_option("west/vision")
        form.get_by_label("Manifest YAML or JSON").fill("kind: Job\nspec: [")
        form.get_by_role("button", name="Check manifest").click()
        expect(page.get_by_role("alert")).to_contain_text("Line 3, spec[0]")
        text = form.get_by_label("Manifest YAML or JSON")
        expect(text).to_have_value("kind: Job\nspec: [")
        text.fill(job(1, 17))
        form.get_by_role("button", name="Check manifest").click()
        expect(page.get_by_role("heading", level=2).first).to_have_text("Pending Job train")
        assert "train" not in page.url
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        page.get_by_role("link", name="Request change").first.click()
        expect(page.get_by_label("To GPUs")).to_have_value("21")
        expect(page.get_by_label("Reason")).to_have_value(
            "Planned: 17 pods with 1 × nvidia.com/gpu; requests.nvidia.com/gpu leaves 16."
        )

    provoked = ("400 for", "status of 400")
    screen.visit(preflight, steps, width=width, scripts=scripts, provoked=provoked)


@pytest.mark.parametrize(("dark", "width"), LOOKS)
def test_an_answer_can_be_used_by_everybody_and_is_no_long_page(
    preflight: str, screen: Screen, dark: bool, width: int
) -> None:
    def steps(page: Page) -> None:
        sign_in(page, "ada", target="/preflight/?where=west/vision&on=gold&gpus=4&pods=2")
        assert violations(page) == []
        assert page.evaluate("document.documentElement.scrollHeight") <= 2_000
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        page.get_by_text("Check again").click()
        assert violations(page) == []

    screen.visit(preflight, steps, width=width, dark=dark)


@pytest.mark.parametrize(("width", "scripts"), WAYS)
def test_a_file_is_checked_and_a_request_has_an_address_to_share(
    preflight: str, screen: Screen, width: int, scripts: bool, tmp_path: Path
) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(job(2))

    def steps(page: Page) -> None:
        sign_in(page, "ada", target="/preflight/")
        form = page.get_by_role("form", name="Manifest")
        form.get_by_label("Namespace").select_option("west/vision")
        form.get_by_label("File").set_input_files(file)
        page.get_by_role("button", name="Check manifest").click()
        expect(page.get_by_role("heading", level=2).first).to_have_text("Starts now Job train")
        page.get_by_text("Check again").click()
        form = page.get_by_role("form", name="Request")
        form.get_by_label("Tier").select_option("gold")
        form.get_by_label("GPUs per pod").fill("4")
        form.get_by_role("button", name="Check request").click()
        expect(page.get_by_role("heading", level=2).first).to_have_text("Pending Job my-job")
        shared = page.locator("#preflight-address").text_content()
        page.goto(str(shared))
        expect(page.get_by_role("heading", level=2).first).to_have_text("Pending Job my-job")
        assert page.evaluate("document.documentElement.scrollWidth") <= width

    screen.visit(preflight, steps, width=width, scripts=scripts)
