"""Quota requests over the API: asking, editing without losing, deciding, carrying out."""

from collections.abc import Iterator
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from apps.accounts.domain.identity import TokenScope
from apps.accounts.services import issue_token
from apps.quota_requests.models import ChangeRequest
from tests.api.conftest import client_of
from tests.api.test_schema import document, validate
from tests.quota_requests.portal import KEY, OWNER, Portal, as_of_now, served_portal

__all__ = ["document"]
pytestmark = pytest.mark.django_db
ROOT = "/api/v1/quota-requests"
BODY = {
    "cluster": "west",
    "namespace": "team-vision",
    "source": "ResourceQuota",
    "name": "gpu",
    "key": KEY,
    "from": "6",
    "to": "8",
    "reason": "A larger model.",
}


@pytest.fixture
def served() -> Iterator[Portal]:
    """Return a portal whose cluster answers."""
    with served_portal() as portal:
        yield as_of_now(portal)


def of(portal: Portal, name: str) -> Client:
    return client_of(portal.people[name])


def send(client: Client, pk: int, action: str = "", *, verb: str = "post", **body: Any) -> Any:
    """Send a body to a request, at the version that it has unless told."""
    given = {"version": ChangeRequest.objects.get(pk=pk).version} | body
    path = f"{ROOT}/{pk}/{action}" if action else f"{ROOT}/{pk}"
    kept = {name: value for name, value in given.items() if value is not ...}
    return getattr(client, verb)(path, kept, content_type="application/json")


def problem(response: Any, status: int) -> str:
    """Return the detail of a problem document of this status."""
    assert response.status_code == status, response.content
    assert response["content-type"] == "application/problem+json"
    told: dict[str, Any] = response.json()
    assert told["status"] == status
    return str(told["detail"])


# ---------------------------------------------------------------- asking and reading


def test_a_request_is_written_read_and_listed_as_the_document_says(
    quota: Portal, document: str
) -> None:
    ada = of(quota, "ada")
    made = ada.post(ROOT, BODY | {"until": "2030-01-31T00:00:00Z"}, content_type="application/json")
    pk = ChangeRequest.objects.get().pk
    assert made.status_code == 201
    assert made["Location"].endswith(f"{ROOT}/{pk}")
    assert made["ETag"] == '"1"'
    one = ada.get(f"{ROOT}/{pk}").json()
    assert one == made.json()
    assert (one["from"], one["to"], one["state"], one["tiers"]) == ("6", "8", "draft", ["whole"])
    assert (one["until"], one["needed_by"]) == ("2030-01-31T00:00:00Z", None)
    assert set(one["actions"]) == {"edit", "submit", "withdraw", "comment"}
    (row,) = ada.get(ROOT).json()["results"]
    assert row == {name: one[name] for name in row}
    validate(document, "QuotaRequestDetail", one)
    validate(document, "QuotaRequestsPage", ada.get(ROOT).json())


@pytest.mark.parametrize(
    ("change", "status", "said"),
    [
        pytest.param({"to": "many"}, 422, "not a quantity", id="no amount"),
        pytest.param({"from": "5"}, 422, "is 6 now, not 5", id="another value is there"),
        pytest.param({"name": "other"}, 422, "", id="no such quota"),
        pytest.param({"until": "2020-01-01T00:00:00Z"}, 422, "lie ahead", id="an end gone by"),
        pytest.param({"reason": ""}, 400, "reason:", id="no reason"),
        pytest.param({"source": "Bag"}, 400, "source:", id="no such source"),
        pytest.param({"until": "soon"}, 400, "until:", id="no time"),
        pytest.param({"frob": 1}, 400, "allowed: from, to", id="an unknown field"),
        pytest.param({"reason": "a\x00b"}, 400, "reason:", id="a null character"),
        pytest.param({"name": "x" * 254}, 400, "name:", id="a long name"),
    ],
)
def test_what_cannot_be_asked_is_a_problem_that_says_why(
    change: dict[str, Any], status: int, said: str, quota: Portal
) -> None:
    response = of(quota, "ada").post(ROOT, BODY | change, content_type="application/json")
    assert said in problem(response, status)
    assert not ChangeRequest.objects.exists()


@pytest.mark.parametrize("body", ["[]", "7", '"text"', "null"])
def test_a_body_that_is_no_object_is_a_problem(body: str, quota: Portal) -> None:
    response = of(quota, "ada").post(ROOT, body, content_type="application/json")
    assert "body" in problem(response, 400)
    assert "JSON" in problem(of(quota, "ada").post(ROOT, "{", "application/json"), 400)


@pytest.mark.parametrize(("who", "status"), [("ben", 403), ("finn", 403), ("dan", 422)])
def test_who_may_not_ask_is_told_so(who: str, status: int, quota: Portal) -> None:
    response = of(quota, who).post(ROOT, BODY, content_type="application/json")
    assert problem(response, status)


def test_a_request_of_others_is_not_there(quota: Portal) -> None:
    pk = quota.submitted()
    dan = of(quota, "dan")
    assert dan.get(ROOT).json()["results"] == []
    absent = problem(dan.get(f"{ROOT}/{pk + 1}"), 404).replace(str(pk + 1), "N")
    assert problem(dan.get(f"{ROOT}/{pk}"), 404).replace(str(pk), "N") == absent
    assert problem(dan.get(f"{ROOT}/{2**70}"), 404)
    assert problem(send(dan, pk, "withdraw"), 404)
    assert problem(send(dan, pk, "withdraw", version=...), 404)
    assert problem(send(dan, pk, verb="patch", reason="Mine."), 404)


def test_the_list_is_narrowed_and_goes_on(quota: Portal) -> None:
    pks = [quota.draft() for _ in range(3)]
    submitted = quota.submitted()
    ada = of(quota, "ada")
    assert [row["id"] for row in ada.get(ROOT, {"state": "submitted"}).json()["results"]] == [
        submitted
    ]
    cleo = of(quota, "cleo")
    assert [row["id"] for row in cleo.get(ROOT, {"which": "queue"}).json()["results"]] == [
        submitted
    ]
    first = ada.get(ROOT, {"page_size": 3}).json()
    rest = ada.get(first["next"]).json()
    found = [row["id"] for page in (first, rest) for row in page["results"]]
    assert sorted(found) == sorted([*pks, submitted])
    assert rest["next"] is None
    assert "which" in problem(ada.get(ROOT, {"which": "others"}), 400)
    assert "cursor" in problem(ada.get(ROOT, {"cursor": "x"}), 400)


def test_more_requests_need_no_more_queries(quota: Portal) -> None:
    ada = of(quota, "ada")
    quota.draft()
    ada.get(ROOT)
    with CaptureQueriesContext(connection) as one:
        ada.get(ROOT)
    for _ in range(4):
        quota.draft()
    with CaptureQueriesContext(connection) as several:
        ada.get(ROOT)
    assert len(several) == len(one)


# ---------------------------------------------------------------- editing


def test_an_edit_needs_the_version_that_was_read(quota: Portal) -> None:
    pk = quota.draft()
    ada = of(quota, "ada")
    assert "If-Match" in problem(send(ada, pk, verb="patch", version=..., to="9"), 428)
    edited = ada.patch(
        f"{ROOT}/{pk}", {"to": "9"}, content_type="application/json", headers={"If-Match": '"1"'}
    )
    assert (edited.status_code, edited.json()["to"], edited["ETag"]) == (200, "9", '"2"')
    late = problem(send(ada, pk, verb="patch", version=1, reason="Mine."), 409)
    assert "ada" in late
    assert ChangeRequest.objects.get(pk=pk).reason == "A larger model."
    both = ada.patch(
        f"{ROOT}/{pk}",
        {"to": "10", "version": 2},
        content_type="application/json",
        headers={"If-Match": '"1"'},
    )
    assert problem(both, 428)
    assert problem(
        ada.patch(f"{ROOT}/{pk}", {}, content_type="application/json", headers={"If-Match": "new"}),
        400,
    )


def test_null_empties_a_date_and_what_is_left_out_stays(quota: Portal) -> None:
    pk = quota.draft()
    ada = of(quota, "ada")
    send(ada, pk, verb="patch", until="2030-01-31T00:00:00Z", needed_by="2029-01-31T00:00:00Z")
    one = send(ada, pk, verb="patch", until=None).json()
    assert (one["until"], one["needed_by"]) == (None, "2029-01-31T00:00:00Z")
    assert one["reason"] == "A larger model."


# ---------------------------------------------------------------- actions


def test_the_way_from_a_draft_to_a_changed_quota_and_back(served: Portal) -> None:
    ada, cleo = of(served, "ada"), of(served, "cleo")
    pk = served.draft()
    submitted = send(ada, pk, "submit")
    assert submitted.json()["preview"]["dry_run_passed"] is True
    assert submitted.json()["evidence"]["window"]
    assert send(cleo, pk, "take").json()["reviewer"] == "cleo"
    assert send(cleo, pk, "approve", text="Go.").json()["approvals"] == ["cleo"]
    assert "confirm it" in problem(send(cleo, pk, "apply"), 409)
    assert send(cleo, pk, "apply", confirmed=[OWNER]).json()["state"] == "applying"
    assert served.carry_out(pk) == "applied"
    one = ada.get(f"{ROOT}/{pk}").json()
    assert (one["state"], one["goes_back_to"]) == ("applied", "6")
    assert (one["executions"][0]["cluster_before"], served.live()) == ("6", "8")
    assert [line["action"] for line in one["history"]][-3:] == ["take", "submit", "create"]
    assert send(cleo, pk, "revert").json()["state"] == "reverting"
    served.carry_out(pk)
    assert ada.get(f"{ROOT}/{pk}").json()["state"] == "reverted"
    assert served.live() == "6"


def test_a_counter_offer_is_made_and_taken(quota: Portal) -> None:
    pk = quota.submitted()
    ada, cleo = of(quota, "ada"), of(quota, "cleo")
    send(cleo, pk, "take")
    assert "text" in problem(send(cleo, pk, "ask-changes", offer="7"), 400)
    assert problem(send(cleo, pk, "ask-changes", text="Seven?", offer="lots"), 422)
    assert send(cleo, pk, "ask-changes", text="Seven?", offer="7").json()["offer"] == "7"
    taken = send(ada, pk, "accept-offer").json()
    assert (taken["state"], taken["to"]) == ("submitted", "7")


def test_by_commit_an_order_has_its_file_and_can_be_given_up(served: Portal) -> None:
    pk = served.approved()
    cleo = of(served, "cleo")
    order = send(cleo, pk, "apply", gitops=True).json()["executions"][0]
    assert order["mode"] == "gitops"
    assert set(order["patch_file"]) == {"name", "text", "how"}
    assert send(cleo, pk, "give-up", version=...).json()["state"] == "failed"
    assert send(cleo, pk, "reopen").json()["state"] == "in review"
    assert send(cleo, pk, "release").json()["state"] == "submitted"


@pytest.mark.parametrize(
    ("who", "action", "body", "status"),
    [
        pytest.param("ada", "approve", {}, 409, id="who wrote it does not approve"),
        pytest.param("ben", "approve", {}, 409, id="who is on the team does not"),
        pytest.param("finn", "take", {}, 409, id="finance does not review"),
        pytest.param("cleo", "approve", {}, 409, id="not before it is taken"),
        pytest.param("cleo", "apply", {}, 409, id="not before it is approved"),
        pytest.param("cleo", "take", {"version": 9}, 409, id="of another version"),
        pytest.param("cleo", "take", {"version": ...}, 428, id="of no version"),
        pytest.param("cleo", "take", {"text": "x"}, 400, id="with what it does not take"),
        pytest.param("finn", "comment", {"version": ..., "text": "x"}, 403, id="a stranger's word"),
        pytest.param("ben", "give-up", {"version": ...}, 403, id="no admin gives up"),
        pytest.param("cleo", "give-up", {"version": ...}, 409, id="nothing to give up"),
        pytest.param("cleo", "accept-drift", {"version": ...}, 409, id="no drift to accept"),
    ],
)
def test_what_is_not_allowed_says_why_and_changes_nothing(
    who: str, action: str, body: dict[str, Any], status: int, quota: Portal
) -> None:
    pk = quota.submitted()
    # A token of these has no scope to decide; a session shows what the person may.
    client = Client(raise_request_exception=False)
    client.force_login(quota.people[who])
    before = ChangeRequest.objects.get(pk=pk).version
    assert problem(send(client, pk, action, **body), status)
    assert ChangeRequest.objects.get(pk=pk).version == before


def test_one_request_of_a_key_is_open_at_a_time(quota: Portal) -> None:
    first, second = quota.submitted(), quota.draft()
    said = problem(send(of(quota, "ada"), second, "submit"), 409)
    assert f"Request {first} for the same quota key is open" in said


@pytest.mark.parametrize(
    ("scopes", "verb", "action", "refused"),
    [
        pytest.param(
            {TokenScope.READ}, "patch", "", "request", id="a reader's token does not edit"
        ),
        pytest.param({TokenScope.READ}, "post", "withdraw", "request", id="nor withdraw"),
        pytest.param({TokenScope.REQUEST}, "post", "take", "decide", id="who asks does not decide"),
        pytest.param(
            {TokenScope.DECIDE}, "post", "submit", "request", id="who decides does not ask"
        ),
    ],
)
def test_a_token_is_used_only_for_what_it_was_made_for(
    scopes: set[TokenScope], verb: str, action: str, refused: str, quota: Portal
) -> None:
    pk = quota.submitted()
    user = quota.people["cleo"]
    key = issue_token(user, name="t", scopes=sorted(scopes), now=timezone.now()).key
    client = Client(headers={"authorization": f"Token {key}"}, raise_request_exception=False)
    assert client.get(f"{ROOT}/{pk}").status_code == 200
    assert f"scope “{refused}”" in problem(send(client, pk, action, verb=verb), 403)


def test_a_session_writes_only_with_its_csrf_token(quota: Portal) -> None:
    client = Client(enforce_csrf_checks=True, raise_request_exception=False)
    client.force_login(quota.people["ada"])
    pk = quota.draft()
    assert "CSRF" in problem(send(client, pk, "withdraw"), 403)


def test_another_verb_says_which_there_are(quota: Portal) -> None:
    pk = quota.draft()
    ada = of(quota, "ada")
    assert "POST" in problem(ada.get(f"{ROOT}/{pk}/submit"), 405)
    assert "PATCH" in problem(ada.put(f"{ROOT}/{pk}", {}, content_type="application/json"), 405)
