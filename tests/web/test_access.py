"""Who gets what: every page × every verb × every role."""

import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from django.test import Client, override_settings
from django.urls import URLPattern, URLResolver, get_resolver, resolve
from django.views import View
from pytest_django import Settings

from apps.accounts.models import User
from apps.alerts.domain.alerts import AlertKind
from apps.alerts.domain.channels import ChannelKind
from apps.alerts.models import Alert
from apps.alerts.services import ChannelInput, add_channel
from apps.api import urls as api_urls
from apps.clusters.domain.pods.people import person_sources
from apps.clusters.models import Pod, PodPerson
from apps.operations.services.person_digests import gather_person_digests
from apps.web import navigation, urls
from gpuportal.people import People
from tests.factories import Portal
from tests.quota_requests.requests import make_request
from tests.shared_rows import shared
from tests.web.appearances import is_exhaustive
from tests.web.campus_portal import OF_A_ROW
from tests.web.conftest import HOURLY, client_of, session_of
from tests.web.conftest import ROLES as SIGNED_IN
from tests.web.pages import PAGES, STANDING, file_of
from tests.web.persons import idle

SignIn = Callable[[User], Client]
VERBS = ("get", "head", "options", "post", "put", "patch", "delete")
ROLES = ("anonymous", *SIGNED_IN)

# Page name → an address of it. Ada and Ben are on vision, Dan is not.
ADDRESSES = {
    "home": "/",
    "tier": "/capacity/tiers/gold/",
    "teams": "/capacity/teams/",
    "team": "/capacity/teams/vision/",
    "workloads": "/workloads/",
    "workload": "/workloads/west/vision/Job/train/",
    "pod": "/pods/west/uid-train-0/",
    "pending": "/pending/",
    "pending-detail": "/pending/west/uid-train-2/",
    "preflight": "/preflight/",
    "check-manifest": "/preflight/check",
    "quotas": "/quotas/",
    "budgets": "/costs/budgets/",
    "quota": "/quotas/west/ResourceQuota/vision/gpus/requests.nvidia.com/gpu/",
    "requests": "/quotas/requests/",
    "new-request": "/quotas/requests/new/",
    "create-request": "/quotas/requests/create",
    "request": "/quotas/requests/1/",
    "request-outlook": "/quotas/requests/1/outlook/",
    "edit-request": "/quotas/requests/1/edit/",
    "save-request": "/quotas/requests/1/save",
    "request-file": "/quotas/requests/1/file",
    "act-on-request": "/quotas/requests/1/do/take",
    "proposals": "/quotas/proposals/",
    "new-proposal": "/quotas/proposals/new/",
    "create-proposal": "/quotas/proposals/create",
    "proposal": "/quotas/proposals/0/",
    "decide-proposal": "/quotas/proposals/0/do/approve",
    "approvals": "/quotas/approvals/",
    "fairness": "/capacity/fairness/",
    "tier-fairness": "/capacity/fairness/gold/",
    "backtest": "/capacity/backtest/",
    "goodput": "/capacity/goodput/",
    "serving": "/capacity/serving/",
    "reliability": "/capacity/reliability/",
    "what-if": "/capacity/fairness/gold/what-if/",
    "layouts": "/capacity/layouts/",
    "plan-outage": "/capacity/outages/plan",
    "plan-step-outages": "/capacity/outages/steps",
    "cancel-outage": "/capacity/outages/cancel",
    "layout-file": "/capacity/layouts/west/mig-parted.yaml",
    "plan": "/capacity/plan/",
    "policies": "/capacity/policies/",
    "simulate-policies": "/capacity/policies/simulate",
    "policy-simulation": "/capacity/policies/0/",
    "request-policies": "/capacity/policies/0/request",
    "tier-plan": "/capacity/plan/gold/",
    "tier-case": "/capacity/plan/gold/case/",
    "statement": "/capacity/teams/vision/statement/",
    "costs": "/costs/",
    "costs-file": "/costs/file",
    "waste": "/costs/waste/",
    "waste-file": "/costs/waste/file",
    "recommendations": "/costs/recommendations/",
    "recommendation": "/costs/recommendations/0/",
    "accept-recommendation": "/costs/recommendations/0/accept",
    "dismiss-recommendation": "/costs/recommendations/0/dismiss",
    "reopen-recommendation": "/costs/recommendations/0/reopen",
    "prices": "/costs/prices/",
    "exports": "/costs/exports/",
    "month-file": "/costs/exports/file",
    "export-list": "/costs/exports/list",
    "month-warnings": "/costs/exports/warnings",
    "create-export": "/costs/exports/create",
    "export-file": "/costs/exports/1/file",
    "reopen-month": "/costs/exports/2025-10/reopen",
    "bill": "/costs/bill/",
    "import-bill": "/costs/bill/import",
    "map-skus": "/costs/bill/mapping",
    "delete-bill": "/costs/bill/0/delete",
    "report": "/costs/report/",
    "month-report": "/costs/report/2025-10/",
    "report-file": "/costs/report/2025-10/file",
    "gpus": "/capacity/gpus/",
    "topology": "/capacity/topology/",
    "gpu": "/capacity/gpus/west/GPU-00000000-0000-0000-0000-000000000001/",
    "data-quality": "/admin/data-quality/",
    "explain": "/explain/",
    "explain-figure": "/explain/pending_gpu_hours/",
    "search": "/search/",
    "tiers": "/capacity/tiers/",
    "first-run": "/first-run/",
    "views": "/views/",
    "save-view": "/views/save",
    "delete-view": "/views/1/delete",
    "styleguide": "/styleguide/",
    "sign-in": "/sign-in/",
    "sign-in-provider": "/sign-in/provider/",
    "sign-in-callback": "/sign-in/provider/callback/",
    "sign-out": "/sign-out/",
    "sign-out-everywhere": "/sign-out/everywhere",
    "tokens": "/tokens/",
    "create-token": "/tokens/create",
    "revoke-token": "/tokens/1/revoke",
    "password": "/password/",
    "change-password": "/password/change",
    "users": "/admin/users/",
    "create-user": "/admin/users/create",
    "user": "/admin/users/0/",
    "set-role": "/admin/users/0/role",
    "set-team": "/admin/users/0/team",
    "revoke-access": "/admin/users/0/revoke-access",
    "disable-user": "/admin/users/0/disable",
    "enable-user": "/admin/users/0/enable",
    "my-workloads": "/my/workloads/",
    "my-finding": "/my/workloads/0/",
    "answer-my-workload": "/my/workloads/0/answer",
    "alerts": "/alerts/",
    "mark-alerts-read": "/alerts/read",
    "alert": "/alerts/0/",
    "answer-alert": "/alerts/0/answer",
    "channels": "/alerts/channels/",
    "create-channel": "/alerts/channels/create",
    "channel": "/alerts/channels/0/",
    "change-channel": "/alerts/channels/0/change",
    "switch-channel": "/alerts/channels/0/switch",
    "test-channel": "/alerts/channels/0/test",
    "mute-channel": "/alerts/channels/0/mute",
    "remove-channel": "/alerts/channels/0/remove",
    "end-mute": "/alerts/mutes/0/end",
    "deliveries": "/alerts/deliveries/",
    "send-again": "/alerts/deliveries/0/again",
    "audit": "/admin/audit/",
    "audit-file": "/admin/audit/file",
    "moved": "/teams/vision/",
}
OPEN = {"sign-in"}
DEVELOPMENT = {"styleguide"}
CHANGES = {
    "save-view": 400,
    "delete-view": 404,
    "create-token": 400,
    "revoke-token": 404,
    "accept-recommendation": 404,
    "dismiss-recommendation": 404,
    "reopen-recommendation": 404,
    "change-password": 400,
    "create-user": 400,
    **dict.fromkeys(("set-role", "set-team", "revoke-access"), 404),
    "disable-user": 404,
    "enable-user": 404,
    **dict.fromkeys(("sign-out-everywhere", "mark-alerts-read"), 302),
    "create-export": 400,
    "reopen-month": 404,
    "import-bill": 400,
    "map-skus": 400,
    "delete-bill": 404,
    "check-manifest": 400,
    "create-proposal": 400,
    "simulate-policies": 400,
    **dict.fromkeys(("plan-outage", "plan-step-outages", "cancel-outage"), 400),
    "request-policies": 404,
    "decide-proposal": 404,
    # Without a key, without fields, and of no version.
    "create-request": 400,
    "save-request": 400,
    "act-on-request": 409,
    "answer-my-workload": 404,
    # With channels and notices there: test_alerts_access.
    "create-channel": 400,
    **dict.fromkeys(
        ("answer-alert", "change-channel", "switch-channel", "test-channel", "mute-channel"), 404
    ),
    **dict.fromkeys(("remove-channel", "end-mute", "send-again"), 404),
}
HIDDEN = ("vision-prod", "uid-train", "Job/train", "train-0", "serve-abc")
"""Names that an outsider may not see."""
# Addresses that end the session which the next verbs need: tested in test_sign_in.
ENDING = {"sign-out", "sign-out-everywhere"}
# Where no sign-in provider is set up; with one: test_single_sign_on.
PROVIDER = {"sign-in-provider", "sign-in-callback"}
# Whose it is gets it: test_exports_page, test_notices_access; an account: test_people.
# Before a plan is computed there is none of its files: test_layout_plans.
NOBODYS = {
    "export-file",
    "channel",
    "user",
    "proposal",
    "alert",
    "recommendation",
    "policy-simulation",
    "layout-file",
}
# Where it is kept who is behind pods, each has their own; who answers what: test_my_findings.
OF_PERSONS = {"my-workloads", "my-finding", "answer-my-workload"}
# Files, parts of pages, and addresses that lead on.
NO_PAGES = {
    *("costs-file", "waste-file", "month-file", "export-file", "report-file", "request-file"),
    *("audit-file", "export-list", "month-warnings", "request-outlook", "report", "alert", "moved"),
    *("healthz", "readyz", "layout-file"),
}
OF_ADMINS = {
    *("users", "audit", "audit-file", "approvals", "create-user"),
    *("plan-outage", "plan-step-outages", "cancel-outage"),
}
OF_FINANCE = {"bill", "import-bill", "map-skus", "delete-bill"}
OF_TEAM_VISION = {
    *("workload", "pod", "gpu", "pending-detail", "quota"),
    *("request", "request-outlook", "edit-request", "save-request", "request-file"),
    "act-on-request",
}


def expected(page: str, verb: str, role: str, *, persons: bool = False) -> int:
    """Return the status that an address answers with; `persons`: where these are kept."""
    if page in DEVELOPMENT:
        return 404
    if page == "sign-out":
        return {"post": 302, "options": 200}.get(verb, 405)
    if page == "sign-in":
        return _sign_in(verb, role)
    if page in CHANGES:
        # Nothing is asked for here, so what is signed in is told so.
        return _changed(page, verb, role)
    if verb not in {"get", "head"}:
        return 405
    if page == "moved":
        return 301
    if page in PROVIDER:
        return 404
    if page in OPEN:
        return 200
    if role == "anonymous":
        return 302
    return _shown(page, role, persons=persons)


def _changed(page: str, verb: str, role: str) -> int:
    if verb != "post":
        return 405
    hidden = page in OF_TEAM_VISION and role == "outsider"
    hidden = hidden or _is_for_others(page, role)
    return 302 if role == "anonymous" else 404 if hidden else CHANGES[page]


def _shown(page: str, role: str, *, persons: bool) -> int:
    if page == "my-workloads" and persons:
        return 200  # each has their own
    if page in NOBODYS | OF_PERSONS or _is_for_others(page, role):
        return 404
    if page in OF_TEAM_VISION and role == "outsider":
        return 404
    # Who asked edits, and the leads of the team; others are told so.
    return 409 if page == "edit-request" and role != "lead" else 200


def _is_for_others(page: str, role: str) -> bool:
    of_admins = page in OF_ADMINS and role != "admin"
    return of_admins or (page in OF_FINANCE and role not in {"admin", "finance"})


def _sign_in(verb: str, role: str) -> int:
    if role != "anonymous":
        return 302  # already signed in: on to the overview, whatever the verb
    return 200 if verb in {"get", "head", "options", "post", "put"} else 405


MONDAY = datetime(2025, 10, 27, 7, tzinfo=UTC)
# Workload → who is behind its pods: Ben has a digest, and two persons have no account.
BEHIND = {"train": "ben", "serve": "zoe.unknown", "notes": "kim.unknown", "bare": "zoe.unknown"}
KEPT = People(person_sources(["created-by"]), days=36_500)
IN_HIS_DIGEST = "GPU-hours were allocated to you"


def make_readers(portal: Portal) -> dict[str, str]:
    """Make what pages hide from some: a request, persons behind pods, an alert, Ben's digest.

    Returns role → the key of a session.
    """
    make_request(portal, pk=1)
    pods = Pod.objects.select_related("workload").order_by("pk")
    PodPerson.objects.bulk_create(
        # Of his own team too there is somebody of whose work Ben learns nothing.
        PodPerson(pod=pod, person="zoe.unknown" if pod.name == "train-2" else person)
        for pod in pods
        if (person := BEHIND.get(pod.workload.name))
    )
    mail = ChannelInput("mine", ChannelKind.EMAIL, "ben@example.org", [AlertKind.DIGEST])
    add_channel(portal.ben, mail, now=MONDAY, own=True)
    with override_settings(PEOPLE=KEPT):
        assert gather_person_digests(MONDAY, portal.zone) == 1
    assert IN_HIS_DIGEST in Alert.objects.get(person=portal.ben).text
    idle(portal)
    return {role: session_of(getattr(portal, name)) for role, name in SIGNED_IN.items()}


_readers = shared(make_readers, upon="_facts")


@pytest.fixture
def clients(_readers: dict[str, str], portal: Portal, settings: Settings) -> dict[str, Client]:
    """Return a client of each role, where it is kept who is behind pods."""
    settings.PEOPLE = KEPT
    return {"anonymous": Client()} | {role: client_of(key) for role, key in _readers.items()}


def test_every_page_has_an_address_in_this_table() -> None:
    named = {p.name for p in urls.urlpatterns if isinstance(p, URLPattern)}
    assert named == set(ADDRESSES)


def test_axe_looks_at_every_page() -> None:
    """In test_examined, or in test_page_limits the pages of a row."""
    examined = {*PAGES, *STANDING, "/sign-in/", "/styleguide/"}
    looked_at = {resolve(path).url_name for path in examined} | OF_A_ROW | {"recommendation"}
    pages = set(ADDRESSES) - CHANGES.keys() - ENDING - PROVIDER - NO_PAGES - OF_PERSONS
    assert pages == looked_at - {"alert"}


def test_an_address_of_this_table_leads_to_the_page_that_it_is_for() -> None:
    assert {page: resolve(address).url_name for page, address in ADDRESSES.items()} == {
        page: page for page in ADDRESSES
    }


def test_there_are_no_addresses_but_those_of_the_tables_of_pages_and_of_the_api() -> None:
    """Nothing else may be mounted beside: it would be open to whoever its own views let in."""
    mounted = [one for one in get_resolver().url_patterns if isinstance(one, URLResolver)]
    assert mounted == get_resolver().url_patterns
    assert {str(one.pattern): one.urlconf_module for one in mounted} == {
        "": urls,
        "api/": api_urls,
    }


def test_every_verb_that_a_view_can_answer_is_in_this_table() -> None:
    assert set(VERBS) == set(View.http_method_names) - {"trace"}  # which no server lets through


def test_a_verb_that_nobody_knows_does_nothing(clients: dict[str, Client]) -> None:
    got = {
        (page, role, verb): clients[role].generic(verb, ADDRESSES[page]).status_code
        for page in ADDRESSES.keys() - {"sign-in"}
        for role in ("anonymous", "admin")
        for verb in ("TRACE", "PROPFIND")
    }
    assert {who: status for who, status in got.items() if status not in {404, 405}} == {}


def answers(page: str, role: str, client: Client) -> Iterator[tuple[str, int, str]]:
    """Yield verb, status and text of the answers to every verb that a role sends to a page."""
    address = ADDRESSES[page]
    if page == "alert":
        address = f"/alerts/{Alert.objects.get(person__username='ben').pk}/"
    for verb in VERBS:
        if page in ENDING and verb == "post":
            continue
        # It is answered as `get` is and loses its body: one role shows that, all in check-full.
        if verb == "head" and role not in {"anonymous", "outsider"} and not is_exhaustive():
            continue
        response: Any = client.generic(verb.upper(), f"{address}?{HOURLY}")
        text = file_of(response)
        # A page of work says to the leads of its team who ran it, in that line alone.
        if role == "lead" and (response.context or {}).get("run_by"):
            text = re.sub(r"<dt>Run by</dt>.*?</dd>", "", text)
        yield verb, response.status_code, text


def _hidden(page: str, role: str) -> set[str]:
    """Return what a role may not read on a page: a digest is on none, and no page names persons."""
    of_teams = role == "outsider" and page not in OF_TEAM_VISION
    return {IN_HIS_DIGEST, "zoe.unknown", "kim.unknown", *(HIDDEN if of_teams else ())}


@pytest.mark.parametrize("page", ADDRESSES)
def test_each_role_gets_what_it_may_see_and_no_name_beyond(
    page: str, clients: dict[str, Client]
) -> None:
    got, wanted, learnt = {}, {}, set()
    for role in ROLES:
        for verb, status, text in answers(page, role, clients[role]):
            got[role, verb] = status
            wanted[role, verb] = expected(page, verb, role, persons=True)
            learnt |= {(role, verb, name) for name in _hidden(page, role) if name in text}
    assert got == wanted
    assert learnt == set()


@pytest.mark.parametrize(
    "page",
    [
        page if page in OF_PERSONS else pytest.param(page, marks=pytest.mark.exhaustive)
        for page in ADDRESSES
    ],
)
def test_where_nobody_keeps_persons_there_are_no_pages_of_them(
    page: str, clients: dict[str, Client], settings: Settings
) -> None:
    """The other pages ask nothing more then: these are the ones that are there with the setting."""
    settings.PEOPLE = None
    found = {(role, *one[:2]) for role in ROLES for one in answers(page, role, clients[role])}
    assert found == {(role, verb, expected(page, verb, role)) for role, verb, _ in found}
    assert len(found) >= 2 * len(VERBS)


@pytest.mark.parametrize(
    "page",
    sorted(set(ADDRESSES) - OPEN - DEVELOPMENT - PROVIDER - set(CHANGES) - ENDING - {"moved"}),
)
def test_who_is_not_signed_in_comes_back_after_signing_in(page: str, portal: Portal) -> None:
    response = Client().get(f"{ADDRESSES[page]}?{HOURLY}")
    assert response.status_code == 302
    assert response["Location"].startswith("/sign-in/?next=")
    assert response["Location"].endswith("%3Ffirst%3D2025-10-25%26last%3D2025-10-27")


def test_htmx_leaves_the_page_for_the_sign_in_when_the_session_is_over(portal: Portal) -> None:
    headers = {
        "HX-Request": "true",
        "HX-Current-URL": "http://testserver/capacity/tiers/gold/?window=7d",
    }
    response = Client().get("/capacity/tiers/gold/?window=24h", headers=headers)
    assert response.status_code == 200
    assert response["HX-Redirect"] == "/sign-in/?next=/capacity/tiers/gold/%3Fwindow%3D7d"


def test_another_teams_page_shows_sums_and_no_names(portal: Portal, signed_in: SignIn) -> None:
    page = signed_in(portal.dan).get(f"/capacity/teams/vision/?{HOURLY}").content.decode()
    assert "You see this team&#x27;s sums only" in page or "You see this team's sums only" in page
    assert 'id="tiers"' in page
    for hidden in ("vision-prod", "train", "Deployment", 'id="workloads"', 'id="namespaces"'):
        assert hidden not in page


@pytest.mark.parametrize("table", ["workloads", "namespaces"])
def test_tables_of_another_team_cannot_be_downloaded(
    table: str, portal: Portal, signed_in: SignIn
) -> None:
    address = f"/capacity/teams/vision/?{HOURLY}&format=csv&table={table}"
    assert signed_in(portal.dan).get(address).status_code == 404
    assert signed_in(portal.ben).get(address).status_code == 200


def without_tokens(content: bytes) -> str:
    """Return a page without its CSRF token, which differs each time."""
    return re.sub(r'name="csrfmiddlewaretoken" value="\w+"', "", content.decode())


def test_a_workload_that_is_not_there_looks_like_one_that_may_not_be_seen(
    portal: Portal, signed_in: SignIn
) -> None:
    client = signed_in(portal.dan)
    hidden = client.get("/workloads/west/vision/Job/train/")
    absent = client.get("/workloads/west/vision/Job/nowhere/")
    assert (hidden.status_code, absent.status_code) == (404, 404)
    assert without_tokens(hidden.content) == without_tokens(absent.content)


def test_errors_and_addresses_of_servers_are_for_admins(portal: Portal, signed_in: SignIn) -> None:
    address = f"/admin/data-quality/?{HOURLY}&state=failed"
    shown = signed_in(portal.cleo).get(address).content.decode()
    assert "answered 503" in shown
    assert "west.example" in shown
    for person in (portal.ada, portal.finn):
        others = signed_in(person).get(address).content.decode()
        assert "answered 503" not in others
        assert "west.example" not in others


def test_leads_and_cost_center_of_a_team_are_for_its_people(
    portal: Portal, signed_in: SignIn
) -> None:
    address = f"/capacity/teams/vision/?{HOURLY}"
    for person, there in ((portal.ben, True), (portal.finn, True), (portal.dan, False)):
        text = signed_in(person).get(address).content.decode()
        assert ("CC-100" in text, "Led by ada" in text) == (there, there)


@pytest.mark.parametrize(
    "address",
    [
        "/capacity/tiers/%00/",
        "/capacity/teams/a%00b/",
        "/workloads/west/%00/Job/train/",
        "/workloads/west/vision/Job/train%00/",
        "/pods/west/%00/",
        "/pods/%00/uid-train-0/",
    ],
)
def test_a_name_that_no_database_holds_is_not_found(
    address: str, portal: Portal, signed_in: SignIn
) -> None:
    for person in (portal.cleo, portal.dan):
        assert signed_in(person).get(address).status_code == 404


def test_an_open_portal_shows_everybody_everything(
    portal: Portal, signed_in: SignIn, settings: Settings
) -> None:
    settings.VISIBILITY = "open"
    assert signed_in(portal.dan).get("/workloads/west/vision/Job/train/").status_code == 200


def test_an_address_that_names_another_host_is_refused_on_a_page(
    portal: Portal, signed_in: SignIn
) -> None:
    response = signed_in(portal.dan).get("/", headers={"host": "elsewhere.example"})
    assert response.status_code == 400
    assert "cannot read the address of this request" in response.content.decode()
    assert "no-store" in response["Cache-Control"]


def test_each_key_of_the_navigation_leads_to_one_page() -> None:
    keys = [page.key for _, pages in navigation.GROUPS for page in pages]
    assert len(keys) == len(set(keys))
