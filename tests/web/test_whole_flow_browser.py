"""The whole flow as three people in a browser: a quota changes, and the pod that waited starts."""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime

import pytest
from playwright.sync_api import Page, expect
from pytest_django import Settings
from pytest_django.live_server_helper import LiveServer

from apps.accounts.domain.identity import Role
from apps.accounts.models import Team
from apps.quota_requests import services
from apps.quota_requests.models import ChangeRequest, Execution
from simulator.fault_scenarios import site
from tests.factories import make_user
from tests.pending.watched_lab import WatchedLab, watched_lab
from tests.simulator.applying import Kube
from tests.simulator.only_faults import OnlyFaults
from tests.simulator.test_applying import running, soon
from tests.web.axe import violations
from tests.web.conftest import Screen

pytestmark = [pytest.mark.browser, pytest.mark.long]
KEY = "requests.nvidia.com/gpu"
WAITS_AT = 22 * 60  # seconds into a cycle, when the quota of speech-lab holds a pod back
ADA, CLEO, CARL = "ada", "cleo", "carl"


def faults_now(now: int) -> OnlyFaults:
    """Return the fault scenarios, begun so that now a pod waits for a quota."""
    return OnlyFaults(now - site.CYCLE_SECONDS - WAITS_AT, now + site.CYCLE_SECONDS)


@pytest.fixture
def lab(transactional_db: None) -> Iterator[WatchedLab]:
    """Serve the fault scenarios, with an account that may write; and three people."""
    now = int(datetime.now(UTC).timestamp())
    with watched_lab(faults_now(now), now - 120) as lab:
        lab.cluster.kubernetes = {
            "api_server": lab.served.url,
            "writer": {"api_server": lab.served.url},
        }
        lab.cluster.save()
        lab.look()
        lab.served.clock.advance(120)
        lab.look()
        make_user(ADA, leads=[Team.objects.get(name="everybody")])
        make_user(CLEO, Role.ADMIN)
        make_user(CARL, Role.ADMIN)
        yield lab


def hard(lab: WatchedLab) -> str:
    quota = Kube(lab.served).get("ResourceQuota", "speech-lab", "gpus")
    return str(quota["spec"]["hard"][KEY])


def axe(page: Page) -> None:
    assert violations(page) == []
    assert not page.evaluate("document.documentElement.scrollWidth > window.innerWidth")


def open_last(page: Page) -> None:
    page.goto("/quotas/requests/")
    page.locator("#requests tbody a").first.click()


def test_a_lead_asks_two_admins_approve_and_the_pod_starts(
    lab: WatchedLab, live_server: LiveServer, screen: Screen, settings: Settings
) -> None:
    settings.REQUESTS_TWO_FROM_GPUS = 1
    url = str(live_server.url)

    def as_person(name: str, steps: Callable[[Page], None], *, dark: bool, width: int) -> None:
        screen.visit(url, steps, person=name, dark=dark, width=width)

    assert hard(lab) == "2"
    assert len(running(lab.served, "speech-lab", "voice-serve-")) < 3
    as_person(ADA, ada_asks, dark=False, width=1280)
    as_person(CLEO, cleo_approves_first, dark=True, width=390)
    assert ChangeRequest.objects.get().state == "in review"
    as_person(CARL, carl_approves_and_applies, dark=False, width=1440)
    assert hard(lab) == "2", "nothing is written before the order is carried out"
    execution = Execution.objects.get()
    assert services.carry_out(execution.pk, clock=lambda: datetime.now(UTC)) == "applied"
    assert hard(lab) == "3"
    assert any(soon(lab.served, "speech-lab", "voice-serve-", 3))
    as_person(ADA, ada_sees_it_applied, dark=True, width=390)


def ada_asks(page: Page) -> None:
    page.goto(f"/quotas/lab/ResourceQuota/speech-lab/gpus/{KEY}/")
    page.get_by_role("link", name="Request change").click()
    expect(page.locator("main")).to_contain_text("This key can reach whole")
    page.locator("#id_after").fill("3")
    page.get_by_label("Reason").fill("The third voice has waited since noon.")
    page.get_by_role("button", name="Preview impact").click()
    expect(page.locator("#outlook")).to_contain_text("What would start at once")
    expect(page.locator("#outlook")).to_contain_text("voice-serve-")
    axe(page)
    page.get_by_role("button", name="Submit request").click()
    expect(page.locator("#standing")).to_contain_text("submitted")
    expect(page.locator("#frozen")).to_contain_text("2 people have to approve this.")
    expect(page.get_by_role("button", name="Approve")).to_have_count(0)
    axe(page)


def cleo_approves_first(page: Page) -> None:
    page.goto("/quotas/approvals/")
    expect(page.locator(".subnav .nav-count")).to_contain_text("1")
    expect(page.locator(".approval-queue")).to_contain_text("2 → 3")
    page.get_by_role("button", name="Assign to me").click()
    axe(page)
    page.locator("form[action$='/do/approve'] button").click()
    expect(page.locator("#standing")).to_contain_text("1 of 2 approvals (cleo)")
    expect(page.locator(".subnav .nav-count")).to_have_count(0)


def carl_approves_and_applies(page: Page) -> None:
    page.goto("/quotas/approvals/")
    axe(page)
    for box in page.locator("input[name='confirmed']").all():
        box.check()
    page.get_by_role("button", name="Approve & apply").click()
    expect(page.locator("#done")).to_contain_text("The change is applying.")
    axe(page)
    page.get_by_role("link", name="See how it goes").click()
    expect(page.locator("#standing")).to_contain_text("applying")
    axe(page)


def ada_sees_it_applied(page: Page) -> None:
    open_last(page)
    expect(page.locator("#standing")).to_contain_text("applied")
    expect(page.locator("#standing")).to_contain_text("Limit in the cluster before: 2; after: 3")
    expect(page.locator("#history")).to_contain_text("approved by: cleo")
    expect(page.locator("#history")).not_to_contain_text("version")
    axe(page)


@pytest.mark.parametrize("scripts", [True, False])
def test_the_second_to_save_sees_both_texts(
    scripts: bool, lab: WatchedLab, live_server: LiveServer, screen: Screen
) -> None:
    url = str(live_server.url)

    def steps(page: Page) -> None:
        page.goto(f"/quotas/requests/new/?key=lab/ResourceQuota/speech-lab/gpus/{KEY}&after=3")
        page.get_by_label("Reason").fill("First words.")
        page.get_by_role("button", name="Save draft").click()
        other = page.context.new_page()
        other.goto(f"{page.url}edit/")
        page.get_by_role("link", name="Edit").click()
        page.get_by_label("Reason").fill("The words of the first.")
        page.get_by_role("button", name="Save").click()
        expect(page.locator("#standing")).to_contain_text("The words of the first.")
        other.get_by_label("Reason").fill("The words of the second.")
        other.get_by_role("button", name="Save").click()
        expect(other.locator(".request-theirs")).to_contain_text("The words of the first.")
        expect(other.get_by_label("Reason")).to_have_value("The words of the second.")
        if scripts:
            axe(other)
        other.get_by_role("button", name="Keep mine instead").click()
        expect(other.locator("#standing")).to_contain_text("The words of the second.")

    screen.visit(url, steps, person=ADA, scripts=scripts, provoked=("409",))
