"""Proposals to change the catalog over the API: proposing, reading, deciding."""

from typing import Any

import pytest

from apps.accounts.models import AuditEntry, User
from apps.operations.models import CatalogProposal
from apps.quotas.models import Entitlement
from tests.api.conftest import client_of
from tests.api.test_quota_requests import problem
from tests.api.test_schema import document, validate
from tests.operations.catalogs import load, small

__all__ = ["document"]
pytestmark = pytest.mark.django_db
ROOT = "/api/v1/proposals"
BODY = {
    "kind": "entitlement",
    "team": "speech",
    "subject": "any",
    "gpus": "6",
    "reason": "The exam needs it.",
}


@pytest.fixture
def people() -> dict[str, User]:
    """Return people of a portal whose catalog has ada lead speech."""
    catalog = small()
    catalog["teams"][1]["leads"] = ["ada"]
    load(catalog)
    found = {name: User.objects.create_user(name) for name in ("ada", "dan")}
    return found | {"cleo": User.objects.create_user("cleo", role="admin")}


def post(user: User, path: str, **body: Any) -> Any:
    return client_of(user).post(f"{ROOT}{path}", body, content_type="application/json")


def test_a_proposal_is_written_read_listed_and_approved_as_the_document_says(
    people: dict[str, User], document: str
) -> None:
    made = post(people["ada"], "", **BODY)
    pk = CatalogProposal.objects.get().pk
    assert made.status_code == 201
    assert made["Location"].endswith(f"{ROOT}/{pk}")
    one = client_of(people["ada"]).get(f"{ROOT}/{pk}").json()
    assert one == made.json() | {"catalog_changes": one["catalog_changes"]}
    assert (one["before"], one["after"], one["state"]) == (
        {"gpus": "4"},
        {"gpus": "6"},
        "submitted",
    )
    assert (one["dry_run_passed"], one["dry_run_detail"]) == (True, "")
    assert len(one["catalog_changes"]) == 1
    listed = client_of(people["cleo"]).get(ROOT, {"state": "submitted"}).json()
    assert listed["results"] == [{name: one[name] for name in listed["results"][0]}]
    validate(document, "ProposalDetail", one)
    validate(document, "ProposalsPage", listed)
    done = post(people["cleo"], f"/{pk}/approve", decision="Fits.").json()
    validate(document, "ProposalDetail", done)
    assert (done["state"], done["decided_by"], done["dry_run_passed"]) == ("approved", "cleo", None)
    assert [step["action"] for step in done["history"]] == ["submit_proposal", "approve_proposal"]
    assert Entitlement.objects.get(valid_to=None).gpus == 6.0
    assert AuditEntry.objects.filter(origin__startswith="api").count() == 2


@pytest.mark.parametrize(
    ("change", "status", "said"),
    [
        pytest.param({"gpus": "many"}, 422, "is no number", id="no amount"),
        pytest.param({"gpus": "4"}, 422, "says already", id="nothing changes"),
        pytest.param({"subject": "gold"}, 422, "No tier of that name", id="no such tier"),
        pytest.param({"team": "none"}, 422, "There is no team", id="no such team"),
        pytest.param({"amount": "5"}, 400, "amount:", id="a field of another change"),
        pytest.param({"kind": "price"}, 400, "kind:", id="no such change"),
        pytest.param({"reason": ""}, 400, "reason:", id="no reason"),
        pytest.param({"frob": 1}, 400, "allowed: kind", id="an unknown field"),
        pytest.param({"gpus": "6\x00"}, 400, "gpus:", id="a null character"),
    ],
)
def test_what_cannot_be_proposed_is_a_problem_that_says_why(
    people: dict[str, User], change: dict[str, Any], status: int, said: str
) -> None:
    assert said in problem(post(people["ada"], "", **BODY | change), status)
    assert not CatalogProposal.objects.exists()


def test_who_may_not_propose_decide_or_read_is_told_so(people: dict[str, User]) -> None:
    assert problem(post(people["dan"], "", **BODY), 403)
    pk = post(people["ada"], "", **BODY).json()["id"]
    assert problem(client_of(people["dan"]).get(f"{ROOT}/{pk}"), 404)
    assert problem(post(people["ada"], f"/{pk}/approve"), 403)
    assert "decision:" in problem(post(people["cleo"], f"/{pk}/reject"), 400)
    done = post(people["cleo"], f"/{pk}/reject", decision="No capacity.").json()
    assert (done["state"], done["decision"]) == ("rejected", "No capacity.")
    assert "rejected already" in problem(post(people["cleo"], f"/{pk}/approve"), 422)
    again = post(people["ada"], "", **BODY).json()["id"]
    assert post(people["ada"], f"/{again}/cancel").json()["state"] == "canceled"
    states = [row["state"] for row in client_of(people["ada"]).get(ROOT).json()["results"]]
    assert states == ["canceled", "rejected"]
