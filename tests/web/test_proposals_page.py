"""Proposals for entitlements, namespaces and budgets on pages: proposing, deciding, visibility."""

from collections.abc import Callable
from datetime import UTC
from html import unescape
from types import SimpleNamespace
from typing import Any

import pytest
from django.core.cache import cache
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from apps.accounts.models import User
from apps.operations.domain.proposals import ProposalKind, ProposalTarget, ProposedChange
from apps.operations.models import CatalogProposal
from apps.operations.selectors import BudgetImpact
from apps.operations.services import ProposalDryRun
from apps.quotas.models import Entitlement
from apps.web.quotas.proposal_view import facts_of
from tests.factories import Portal
from tests.operations.catalogs import load, small
from tests.web.pages import file_of, text_of

pytestmark = pytest.mark.django_db
SignIn = Callable[[User], Client]
GIVEN = {"kind": "entitlement", "team": "speech", "subject": "any", "gpus": "6"}


@pytest.fixture
def ada() -> User:
    catalog = small()
    catalog["teams"][1]["leads"] = ["ada"]
    load(catalog)
    return User.objects.create_user("ada")


@pytest.fixture
def cleo() -> User:
    return User.objects.create_user("cleo", role="admin")


def client_of(user: User) -> Client:
    client = Client()
    client.force_login(user)
    return client


def test_a_lead_previews_and_submits_and_an_administrator_approves(ada: User, cleo: User) -> None:
    lead, admin = client_of(ada), client_of(cleo)
    form = text_of(lead, "/quotas/proposals/new/?kind=entitlement&team=speech&subject=any")
    assert 'value="4"' in form
    seen = lead.post("/quotas/proposals/create", {**GIVEN, "then": "preview"}).content.decode()
    assert "speech × any" in unescape(seen)
    assert "No closed hour of this tier" in seen
    assert not CatalogProposal.objects.exists()
    made = lead.post(
        "/quotas/proposals/create", {**GIVEN, "then": "submit", "reason": "The exam needs it."}
    )
    address = made["Location"]
    assert "An administrator decides" not in text_of(lead, address)
    assert "Cancel proposal" in text_of(lead, address)
    assert "Entitlement of speech in any: 4 → 6 GPUs" in text_of(admin, "/quotas/approvals/")
    assert "nav-count" in text_of(admin, "/quotas/approvals/")
    done = admin.post(f"{address}do/approve", {"decision": ""}, follow=True).content.decode()
    assert "manage.py export_catalog" in done
    assert Entitlement.objects.get(valid_to=None).gpus == 6.0
    again = admin.post(f"{address}do/reject", {"decision": "No."})
    assert again.status_code == 409
    assert "approved already" in again.content.decode()


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"gpus": "lots"}, "is no number"),
        ({"gpus": "4"}, "says already"),
        ({"reason": ""}, "Give a reason"),
        ({"subject": "none"}, "No tier of that name"),
        ({"kind": "budget", "subject": "day money", "amount": "1"}, "A budget is for a"),
    ],
)
def test_what_cannot_be_proposed_is_said_and_what_was_typed_stays(
    ada: User, changed: dict[str, str], says: str
) -> None:
    given = {**GIVEN, "then": "submit", "reason": "It is <b>needed</b>.", **changed}
    response = client_of(ada).post("/quotas/proposals/create", given)
    page = response.content.decode()
    assert response.status_code == 400
    assert says in page
    assert not changed.get("reason", "x") or "&lt;b&gt;needed" in page or "kind" in changed


def test_others_neither_propose_for_a_team_nor_see_its_proposals(ada: User, cleo: User) -> None:
    ben = client_of(User.objects.create_user("ben"))
    refused = ben.post("/quotas/proposals/create", {**GIVEN, "then": "submit", "reason": "I."})
    assert refused.status_code == 400
    client_of(cleo).post("/quotas/proposals/create", {**GIVEN, "then": "submit", "reason": "I."})
    pk = CatalogProposal.objects.get().pk
    assert ben.get(f"/quotas/proposals/{pk}/").status_code == 404
    assert ben.post(f"/quotas/proposals/{pk}/do/approve").status_code == 404
    assert "No open proposals of your teams." in text_of(ben, "/quotas/proposals/")
    own = client_of(cleo).post(f"/quotas/proposals/{pk}/do/approve")
    assert own.status_code == 403
    assert "Another administrator" in own.content.decode()
    assert client_of(ada).post(f"/quotas/proposals/{pk}/do/approve").status_code == 403
    assert client_of(cleo).post(f"/quotas/proposals/{pk}/do/swallow").status_code == 404


@pytest.mark.parametrize("kind", ["entitlement", "namespaces", "budget"])
def test_each_kind_has_its_form(portal: Portal, admin: Client, kind: str) -> None:
    subject = {"entitlement": "gold", "budget": "month money"}.get(kind, "")
    address = f"/quotas/proposals/new/?kind={kind}&team=vision&subject_{kind}={subject}"
    field = {"entitlement": "gpus", "namespaces": "patterns", "budget": "amount"}[kind]
    assert f'name="{field}"' in text_of(admin, address)
    assert 'name="kind"' in text_of(admin, "/quotas/proposals/new/")


def proposed(user: User, **changed: str) -> int:
    given = {**GIVEN, "then": "submit", "reason": "The exam needs it.", **changed}
    assert client_of(user).post("/quotas/proposals/create", given).status_code == 302
    return CatalogProposal.objects.latest("pk").pk


def test_the_approvals_page_decides_on_a_proposal_and_says_what_was_done(
    ada: User, cleo: User
) -> None:
    pk, admin = proposed(ada), client_of(cleo)
    page = text_of(admin, "/quotas/approvals/")
    for fact in ("Allocated", "Share of entitlements", "Entitlements ÷ capacity", "Dry run"):
        assert f"<dt>{fact}" in page
    assert "entitlement speech × any" in page.split("Catalog changes")[1]
    done = admin.post(f"/quotas/proposals/{pk}/do/approve", {"back": "approvals"})
    assert done["Location"] == f"/quotas/approvals/?proposal={pk}#decided"
    page = text_of(admin, done["Location"])
    assert "Approved: the entitlement of speech in any." in page
    assert "No requests or proposals need your decision." in page


@pytest.mark.parametrize("query", ["proposal=x", "proposal=7777", "proposal=²", "proposal="])
def test_an_address_says_nothing_of_a_proposal_that_was_not_decided(
    ada: User, cleo: User, query: str
) -> None:
    pk = proposed(ada)
    for address in (f"/quotas/approvals/?{query}", f"/quotas/approvals/?proposal={pk}"):
        assert 'id="decided"' not in text_of(client_of(cleo), address)


def test_open_and_decided_proposals_have_tabs_with_addresses(ada: User, cleo: User) -> None:
    pk, admin = proposed(ada), client_of(cleo)
    assert "Dry run passed" in text_of(admin, "/quotas/proposals/")
    assert "No decided proposals." in text_of(admin, "/quotas/proposals/?tab=decided")
    admin.post(f"/quotas/proposals/{pk}/do/reject", {"decision": "No capacity."})
    assert "No open proposals." in text_of(admin, "/quotas/proposals/")
    assert "rejected" in text_of(admin, "/quotas/proposals/?tab=decided")
    page = text_of(admin, f"/quotas/proposals/{pk}/")
    assert "No capacity." in page[page.index('id="history"') :]
    file = admin.get("/quotas/proposals/?tab=decided&format=csv&table=proposals")
    assert "No capacity" not in file_of(file)
    assert "The exam needs it." in file_of(admin.get(file.wsgi_request.get_full_path()))


def test_a_proposal_that_cannot_be_approved_says_why(ada: User, cleo: User) -> None:
    pk = proposed(ada)
    other = small()
    other["teams"][1] |= {"leads": ["ada"], "entitlements": {"any": 5}}
    load(other, timezone.now())
    page = text_of(client_of(cleo), f"/quotas/proposals/{pk}/")
    assert "was changed after this was proposed" in page
    assert "disabled>Approve" in page


def test_each_proposal_leads_to_the_next_open_one(ada: User, cleo: User) -> None:
    first, second = proposed(ada), proposed(ada, kind="namespaces", patterns="*-speech lone")
    admin = client_of(cleo)
    onward = f'href="/quotas/proposals/{second}/" data-item="next"'
    assert onward in text_of(admin, f"/quotas/proposals/{first}/")
    back = f'href="/quotas/proposals/{first}/" data-item="previous"'
    assert back in text_of(admin, f"/quotas/proposals/{second}/")


def test_more_proposals_need_no_more_queries(ada: User, cleo: User) -> None:
    admin, address = client_of(cleo), "/quotas/approvals/"
    proposed(ada, kind="budget", subject="month money", amount="9", currency="USD")
    proposed(ada)
    proposed(ada, kind="namespaces", patterns="*-speech lone")
    text_of(admin, address)
    cache.clear()
    with CaptureQueriesContext(connection) as some:
        text_of(admin, address)
    proposed(ada, subject="a100")
    cache.clear()
    with CaptureQueriesContext(connection) as more:
        text_of(admin, address)
    assert len(more) == len(some) <= 110


@pytest.mark.parametrize(("unit", "of"), [("gpu_hours", "this period"), ("USD", ""), ("EUR", "")])
def test_a_budget_in_any_currency_is_told_alike(unit: str, of: str) -> None:
    target = ProposalTarget(ProposalKind.BUDGET, "vision", "month money")
    change = ProposedChange(target, {"amount": "100"}, {"amount": "200"})
    reading: Any = SimpleNamespace(choice=SimpleNamespace(zone=UTC))
    facts = facts_of(change, BudgetImpact(unit, 40.0, 80.0), ProposalDryRun(), reading)
    assert facts.figures[0].of == of
