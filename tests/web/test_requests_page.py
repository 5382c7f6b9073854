"""Quota requests: the list, asking, one with everything, editing, and the review queue."""

import html
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

import pytest
from django.core.cache import cache
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from pytest_django import Settings

from apps.accounts.models import AuditEntry, User
from apps.quota_requests import services
from apps.quota_requests.models import ChangeRequest
from apps.web.components.page_query import PER_PAGE
from tests.quota_requests import recorded
from tests.quota_requests.portal import KEY, OWNER, Portal
from tests.web.pages import file_of, records_of, text_of

pytestmark = pytest.mark.django_db
PLACE = f"west/ResourceQuota/team-vision/gpu/{KEY}"
NEW = f"/quotas/requests/new/?key={quote(PLACE, safe='')}"
SignIn = Callable[[User], Client]


def posted(**values: str) -> dict[str, str]:
    given = {"key": PLACE, "before": "6", "after": "8", "reason": "A larger model.", "team": ""}
    return given | values


def of(portal: Portal, signed_in: SignIn, name: str) -> Client:
    return signed_in(portal.people[name])


def do(client: Client, pk: int, action: str, **values: Any) -> Any:
    version = ChangeRequest.objects.get(pk=pk).version
    return client.post(f"/quotas/requests/{pk}/do/{action}", {"version": version} | values)


# ---------------------------------------------------------------- asking


def test_the_form_begins_with_the_quota_and_every_tier_it_can_reach(
    quota: Portal, signed_in: SignIn
) -> None:
    page = text_of(of(quota, signed_in, "ada"), f"{NEW}&after=9")
    assert 'name="before" value="6"' in page
    assert 'name="after" value="9"' in page
    assert "This key can reach" in page
    assert "whole" in page


def test_a_request_is_submitted_and_shows_all_that_was_frozen(
    asked: Portal, signed_in: SignIn
) -> None:
    ada = of(asked, signed_in, "ada")
    response = ada.post("/quotas/requests/create", posted(then="submit", needed_by="2030-01-31"))
    request = ChangeRequest.objects.get()
    assert (response.status_code, response["Location"]) == (302, f"/quotas/requests/{request.pk}/")
    assert (request.state, request.after, request.reason) == ("submitted", "8", "A larger model.")
    page = text_of(ada, f"/quotas/requests/{request.pk}/")
    for text in (
        "6 → 8",
        "A larger model.",
        "whole",
        "Σ quota against capacity",
        "Cost at most",
    ):
        assert text in page
    assert "31 Jan 2030" in page
    assert "Withdraw" in page
    assert "Approve" not in page


@pytest.mark.parametrize(
    ("values", "status", "said"),
    [
        pytest.param({"after": "many"}, 422, "quantity", id="no amount"),
        pytest.param({"after": "6"}, 422, "", id="no change"),
        pytest.param({"before": "5"}, 422, "Request a change from 6", id="another value is there"),
        pytest.param({"reason": ""}, 400, "needs its reason", id="no reason"),
        pytest.param({"until": "2020-01-01T00:00"}, 422, "must lie ahead", id="an end gone by"),
        pytest.param({"until": "soon"}, 400, "This is no time", id="no time"),
        pytest.param({"needed_by": "9999-12-31"}, 400, "out of reach", id="a far year"),
    ],
)
def test_what_cannot_be_asked_is_said_and_nothing_typed_is_lost(
    values: dict[str, str], status: int, said: str, quota: Portal, signed_in: SignIn
) -> None:
    typed = posted(then="submit", reason="Weights of <b>70</b> billion.") | values
    response = of(quota, signed_in, "ada").post("/quotas/requests/create", typed)
    page = response.content.decode()
    assert response.status_code == status
    assert said in page
    assert f'value="{typed["after"]}"' in page
    assert "Weights of &lt;b&gt;70&lt;/b&gt; billion." in page or not typed["reason"]
    assert not ChangeRequest.objects.exists()


def test_a_preview_keeps_nothing_and_asks_the_cluster(asked: Portal, signed_in: SignIn) -> None:
    ada = of(asked, signed_in, "ada")
    given = posted(then="preview", reason="")
    part = ada.post(
        "/quotas/requests/create", given, headers={"HX-Request": "true"}
    ).content.decode()
    assert "<html" not in part
    assert "Quota ÷ capacity" in part
    page = ada.post("/quotas/requests/create", given).content.decode()
    assert "<html" in page
    assert "Quota ÷ capacity" in page
    assert 'name="after" value="8"' in page
    assert not ChangeRequest.objects.exists()
    assert not AuditEntry.objects.exists()


def test_one_that_cannot_be_submitted_is_kept_as_a_draft(quota: Portal, signed_in: SignIn) -> None:
    ada = of(quota, signed_in, "ada")
    first = quota.submitted()
    page = text_of(ada, NEW)
    assert f'href="/quotas/requests/{first}/"' in page
    response = ada.post("/quotas/requests/create", posted(then="submit", after="9"))
    assert response.status_code == 409
    assert f"Request {first} for the same quota key is open" in response.content.decode()
    assert ChangeRequest.objects.latest("pk").state == "draft"


@pytest.mark.parametrize(
    ("who", "status"),
    [("ada", 200), ("ben", 403), ("finn", 403), ("dan", 422), ("cleo", 200)],
)
def test_the_form_is_for_who_may_ask(
    who: str, status: int, quota: Portal, signed_in: SignIn
) -> None:
    client = of(quota, signed_in, who)
    assert client.get(NEW).status_code == status
    assert client.post("/quotas/requests/create", posted()).status_code == (
        302 if status == 200 else status
    )


def test_who_may_ask_finds_the_form_at_the_quota(quota: Portal, signed_in: SignIn) -> None:
    address = f"/quotas/{PLACE}/"
    link = f'href="/quotas/requests/new/?key={quote(PLACE, safe="")}&amp;'
    assert link in text_of(of(quota, signed_in, "ada"), address)
    assert "/quotas/requests/new/" not in text_of(of(quota, signed_in, "ben"), address)


# ---------------------------------------------------------------- the list


def test_the_list_is_of_ones_own_teams_and_can_be_narrowed(
    quota: Portal, signed_in: SignIn
) -> None:
    pk = quota.submitted()
    for who, there in (("ada", True), ("ben", True), ("cleo", True), ("dan", False)):
        page = text_of(of(quota, signed_in, who), "/quotas/requests/")
        assert (f'href="/quotas/requests/{pk}/"' in page) is there
    ada = of(quota, signed_in, "ada")
    assert f"/quotas/requests/{pk}/" not in text_of(ada, "/quotas/requests/?state=applied")
    assert f"/quotas/requests/{pk}/" in text_of(ada, "/quotas/requests/?state=submitted&which=mine")
    assert "There is no state" in text_of(ada, "/quotas/requests/?state=lost&which=others")
    (record,) = records_of(ada, "/quotas/requests/?format=csv&table=requests")
    assert (record["state"], record["from"], record["to"]) == ("submitted", "6", "8")


def test_a_long_list_goes_on_on_the_next_page(quota: Portal, signed_in: SignIn) -> None:
    first = quota.draft()
    one = ChangeRequest.objects.get(pk=first)
    for _ in range(PER_PAGE):
        one.pk = None
        one.save()
    ada = of(quota, signed_in, "ada")
    page = text_of(ada, "/quotas/requests/")
    (onward,) = {part for part in page.split('"') if "cursor=" in part}
    assert f'/quotas/requests/{first}/"' not in page
    assert f'/quotas/requests/{first}/"' in text_of(ada, html.unescape(onward))


@pytest.mark.parametrize("path", ["/quotas/requests/", "/quotas/approvals/"])
def test_more_requests_need_no_more_queries(path: str, quota: Portal, signed_in: SignIn) -> None:
    cleo = of(quota, signed_in, "cleo")
    quota.submitted()
    text_of(cleo, path)
    cache.clear()
    with CaptureQueriesContext(connection) as one:
        text_of(cleo, path)
    first = ChangeRequest.objects.get()
    for number in range(5):
        ChangeRequest.objects.filter(pk=first.pk).update(state="submitted")
        copy = ChangeRequest.objects.get(pk=first.pk)
        copy.pk, copy.name = None, f"gpu-{number}"
        copy.save()
    cache.clear()
    with CaptureQueriesContext(connection) as several:
        text_of(cleo, path)
    assert len(several) == len(one)


def test_a_request_of_others_looks_like_none(quota: Portal, signed_in: SignIn) -> None:
    pk = quota.submitted()
    dan = of(quota, signed_in, "dan")
    for tail in ("", "outlook/", "edit/", "file"):
        assert dan.get(f"/quotas/requests/{pk}/{tail}").status_code == 404
        assert dan.get(f"/quotas/requests/{2**70}/{tail}").status_code == 404
    assert do(dan, pk, "withdraw").status_code == 404
    assert dan.post(f"/quotas/requests/{pk}/save", posted()).status_code == 404
    assert dan.get("/quotas/approvals/").status_code == 404


def test_one_request_needs_few_queries(
    quota: Portal, signed_in: SignIn, django_assert_max_num_queries: Any
) -> None:
    pk = quota.approved()
    cleo = of(quota, signed_in, "cleo")
    with django_assert_max_num_queries(16):
        text_of(cleo, f"/quotas/requests/{pk}/")


# ---------------------------------------------------------------- deciding


def test_the_queue_shows_all_that_a_decision_needs_on_one_screen(
    asked: Portal, signed_in: SignIn
) -> None:
    pk = asked.submitted()
    cleo = of(asked, signed_in, "cleo")
    page = text_of(cleo, "/quotas/approvals/")
    for text in (
        "6 → 8",
        "Σ quota against capacity",
        "Cost at most",
        "Utilization",
        "Unmet fair share",
    ):
        assert text in page
    assert "One other person has to approve this" in page
    assert 'class="nav-count">1<' in page
    assert do(cleo, pk, "take", back="approvals")["Location"] == f"/quotas/approvals/#request-{pk}"
    page = text_of(cleo, "/quotas/approvals/")
    for label in ("Approve", "Ask for changes", "Reject", "Counter-offer"):
        assert label in page


def test_who_wrote_a_request_does_not_find_it_in_the_queue(
    quota: Portal, signed_in: SignIn
) -> None:
    pk = quota.draft(by="cleo")
    services.submit(pk, by=quota.actor("cleo"), version=1, now=quota.now)
    assert f"Request {pk}" not in text_of(of(quota, signed_in, "cleo"), "/quotas/approvals/")
    assert f"Request {pk}" in text_of(of(quota, signed_in, "carl"), "/quotas/approvals/")
    assert do(of(quota, signed_in, "cleo"), pk, "take").status_code == 409


def test_above_the_threshold_the_page_says_that_a_second_person_has_to_approve(
    quota: Portal, signed_in: SignIn, settings: Settings
) -> None:
    settings.REQUESTS_TWO_FROM_GPUS = 1
    pk = quota.submitted()
    cleo, carl = of(quota, signed_in, "cleo"), of(quota, signed_in, "carl")
    do(cleo, pk, "take")
    do(cleo, pk, "approve")
    assert "1 of 2 approvals (cleo)" in text_of(carl, "/quotas/approvals/")
    assert do(cleo, pk, "approve").status_code == 409
    do(carl, pk, "approve")
    assert ChangeRequest.objects.get(pk=pk).state == "approved"


def test_a_counter_offer_is_shown_and_accepted(quota: Portal, signed_in: SignIn) -> None:
    pk = quota.submitted()
    ada, cleo = of(quota, signed_in, "ada"), of(quota, signed_in, "cleo")
    do(cleo, pk, "take")
    refused = do(cleo, pk, "ask_changes", text="Seven would do.", offer="lots")
    assert refused.status_code == 422
    assert "Seven would do." in refused.content.decode()
    assert 'value="lots"' in refused.content.decode()
    do(cleo, pk, "ask_changes", text="Seven would do.", offer="7")
    assert "Offered instead: 7" in text_of(ada, f"/quotas/requests/{pk}/")
    do(ada, pk, "accept_offer")
    request = ChangeRequest.objects.get(pk=pk)
    assert (request.state, request.after) == ("submitted", "7")


def test_another_owner_has_to_be_confirmed(asked: Portal, signed_in: SignIn) -> None:
    pk = asked.approved()
    cleo = of(asked, signed_in, "cleo")
    page = text_of(cleo, f"/quotas/requests/{pk}/")
    assert f"Override {OWNER}" in page
    refused = do(cleo, pk, "apply", gitops="no")
    assert refused.status_code == 409
    assert "Choose GitOps mode, or confirm it." in refused.content.decode()
    assert do(cleo, pk, "apply", gitops="no", confirmed=[OWNER, "\0"]).status_code == 302
    assert ChangeRequest.objects.get(pk=pk).state == "applying"
    assert 'hx-trigger="every 2s"' in text_of(cleo, f"/quotas/requests/{pk}/")
    assert asked.carry_out(pk) == "applied"
    page = text_of(cleo, f"/quotas/requests/{pk}/")
    assert "every 2s" not in page
    assert "Limit in the cluster before: 6; after: 8" in page


def test_by_commit_the_file_can_be_downloaded_until_the_cluster_shows_it(
    asked: Portal, signed_in: SignIn
) -> None:
    pk = asked.approved()
    cleo = of(asked, signed_in, "cleo")
    do(cleo, pk, "apply", gitops="yes")
    response = cleo.get(f"/quotas/requests/{pk}/file")
    assert response["Content-Disposition"].startswith("attachment; filename=")
    assert KEY in file_of(response)
    page = text_of(cleo, f"/quotas/requests/{pk}/")
    assert "Download the file to commit" in page
    assert "Stop tracking the commit" in page
    do(cleo, pk, "give_up")
    assert ChangeRequest.objects.get(pk=pk).state == "failed"


def test_what_is_done_meanwhile_is_a_conflict_and_keeps_what_was_typed(
    quota: Portal, signed_in: SignIn
) -> None:
    pk = quota.submitted()
    cleo = of(quota, signed_in, "cleo")
    do(cleo, pk, "take")
    response = cleo.post(
        f"/quotas/requests/{pk}/do/reject",
        {"version": "1", "text": "Not this month, for a reason."},
    )
    assert response.status_code == 409
    assert "Not this month, for a reason." in response.content.decode()
    assert ChangeRequest.objects.get(pk=pk).state == "in review"
    assert cleo.post(f"/quotas/requests/{pk}/do/reject", {"text": "No."}).status_code == 409
    assert cleo.post(f"/quotas/requests/{pk}/do/expire", {}).status_code == 404


def test_comments_and_history_stand_on_the_page(quota: Portal, signed_in: SignIn) -> None:
    pk = quota.submitted()
    do(of(quota, signed_in, "ben"), pk, "comment", text="We need it <soon>.")
    page = text_of(of(quota, signed_in, "ada"), f"/quotas/requests/{pk}/")
    assert "We need it &lt;soon&gt;." in page
    assert 'id="history"' in page
    for action in ("created", "submitted", "commented"):
        assert f'<td role="cell">{action}</td>' in page


def test_the_live_outlook_shows_what_moved_on(asked: Portal, signed_in: SignIn) -> None:
    pk = asked.submitted()
    assert asked.api is not None
    asked.api.live = recorded.quota("gpu") | {"spec": {"hard": {KEY: "7"}}}
    ada = of(asked, signed_in, "ada")
    part = ada.get(
        f"/quotas/requests/{pk}/outlook/", headers={"HX-Request": "true"}
    ).content.decode()
    assert "The cluster shows 7 now, not 6." in part
    assert "<html" not in part
    assert "The cluster shows 7 now, not 6." in text_of(ada, f"/quotas/requests/{pk}/outlook/")


# ---------------------------------------------------------------- editing


def test_editing_begins_with_what_was_written_and_keeps_what_is_saved(
    quota: Portal, signed_in: SignIn
) -> None:
    pk = quota.draft()
    ada = of(quota, signed_in, "ada")
    assert 'name="after" value="8"' in text_of(ada, f"/quotas/requests/{pk}/edit/")
    given = {
        "version": "1",
        "before": "6",
        "after": "9",
        "reason": "More.",
        "until": "2030-05-01T18:00",
    }
    assert ada.post(f"/quotas/requests/{pk}/save", given).status_code == 302
    request = ChangeRequest.objects.get(pk=pk)
    assert (request.after, request.reason) == ("9", "More.")
    assert 'value="2030-05-01T18:00"' in text_of(ada, f"/quotas/requests/{pk}/edit/")
    given |= {"version": str(request.version), "until": ""}
    ada.post(f"/quotas/requests/{pk}/save", given)
    assert ChangeRequest.objects.get(pk=pk).until is None


def test_who_is_second_sees_both_texts_and_loses_neither(quota: Portal, signed_in: SignIn) -> None:
    pk = quota.draft()
    ada = of(quota, signed_in, "ada")
    services.edit(
        pk,
        services.Edited(after="10", reason="Theirs."),
        by=quota.actor("ada"),
        version=1,
        now=quota.now,
    )
    given = {"version": "1", "before": "6", "after": "9", "reason": "Mine, long and dear."}
    response = ada.post(f"/quotas/requests/{pk}/save", given)
    page = response.content.decode()
    assert response.status_code == 409
    assert "6 → 10" in page
    assert "Theirs." in page
    assert 'name="after" value="9"' in page
    assert "Mine, long and dear." in page
    assert ChangeRequest.objects.get(pk=pk).reason == "Theirs."
    version = ChangeRequest.objects.get(pk=pk).version
    assert f'name="version" value="{version}"' in page
    assert (
        ada.post(f"/quotas/requests/{pk}/save", given | {"version": str(version)}).status_code
        == 302
    )
    assert ChangeRequest.objects.get(pk=pk).reason == "Mine, long and dear."


def test_what_is_under_review_is_not_edited(quota: Portal, signed_in: SignIn) -> None:
    pk = quota.submitted()
    do(of(quota, signed_in, "cleo"), pk, "take")
    response = of(quota, signed_in, "ada").get(f"/quotas/requests/{pk}/edit/")
    assert response.status_code == 409
    assert "taken for review" in response.content.decode()
