"""Deciding on quota requests: approving and applying at once, what is said, whose turn it is."""

from datetime import timedelta
from zoneinfo import ZoneInfo

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from pytest_django import Settings

from apps.accounts.models import AuditEntry
from apps.quota_requests import services
from apps.quota_requests.models import ChangeRequest, Execution
from apps.quota_requests.selectors import pending_count, turn_counts, turns_in
from tests.quota_requests.portal import KEY, OWNER, Portal
from tests.web.pages import text_of
from tests.web.test_requests_page import SignIn, do, of

pytestmark = pytest.mark.django_db
AT_ONCE = {"then": "apply", "confirmed": [OWNER], "back": "approvals"}


def in_review(portal: Portal, signed_in: SignIn) -> int:
    pk = portal.submitted()
    do(of(portal, signed_in, "cleo"), pk, "take")
    return pk


def actions(pk: int) -> list[str]:
    rows = AuditEntry.objects.filter(subject=f"quota-request/{pk}").order_by("number")
    return list(rows.values_list("action", flat=True))


# ---------------------------------------------------------------- at once


def test_one_click_approves_and_applies_as_two_steps_of_the_audit(
    asked: Portal, signed_in: SignIn
) -> None:
    pk = in_review(asked, signed_in)
    cleo = of(asked, signed_in, "cleo")
    assert "Approve &amp; apply" in text_of(cleo, "/quotas/approvals/")
    response = do(cleo, pk, "approve", text="Fits.", **AT_ONCE)
    assert response["Location"] == f"/quotas/approvals/?did=approve&of={pk}#done"
    assert ChangeRequest.objects.get(pk=pk).state == "applying"
    assert actions(pk)[-2:] == ["approve", "apply"]
    page = text_of(cleo, response["Location"])
    assert "The change is applying." in page
    assert f'href="/quotas/requests/{pk}/"' in page
    assert asked.carry_out(pk) == "applied"


def test_an_approval_stands_where_it_cannot_be_applied_and_says_so(
    asked: Portal, signed_in: SignIn
) -> None:
    pk = in_review(asked, signed_in)
    cleo = of(asked, signed_in, "cleo")
    response = do(cleo, pk, "approve", then="apply")  # the other owner is not confirmed
    page = response.content.decode()
    assert response.status_code == 409
    assert "It is approved, which stands. It is not applied:" in page
    assert "Choose GitOps mode, or confirm it." in page
    assert ChangeRequest.objects.get(pk=pk).state == "approved"
    assert actions(pk)[-1] == "approve"
    assert not Execution.objects.exists()


def test_the_first_of_two_approvals_applies_nothing(
    asked: Portal, signed_in: SignIn, settings: Settings
) -> None:
    settings.REQUESTS_TWO_FROM_GPUS = 1
    pk = in_review(asked, signed_in)
    cleo = of(asked, signed_in, "cleo")
    assert "Approve &amp; apply" not in text_of(cleo, "/quotas/approvals/")
    assert do(cleo, pk, "approve", **AT_ONCE).status_code == 302
    assert ChangeRequest.objects.get(pk=pk).state == "in review"
    carl = of(asked, signed_in, "carl")
    assert "Approve &amp; apply" in text_of(carl, "/quotas/approvals/")
    do(carl, pk, "approve", **AT_ONCE)
    assert ChangeRequest.objects.get(pk=pk).state == "applying"


def test_where_the_portal_does_not_write_only_approving_is_offered(
    asked: Portal, signed_in: SignIn
) -> None:
    asked.write_to(None)
    pk = in_review(asked, signed_in)
    cleo = of(asked, signed_in, "cleo")
    page = text_of(cleo, "/quotas/approvals/")
    assert "Approve &amp; apply" not in page
    assert "Download the file to commit" not in page
    do(cleo, pk, "approve")
    assert "Download the file to commit" in text_of(cleo, "/quotas/approvals/")


def test_who_may_not_approve_applies_nothing_with_it(asked: Portal, signed_in: SignIn) -> None:
    pk = in_review(asked, signed_in)
    for who, status in (("ada", 409), ("ben", 409), ("dan", 404)):
        assert do(of(asked, signed_in, who), pk, "approve", **AT_ONCE).status_code == status
    assert ChangeRequest.objects.get(pk=pk).state == "in review"


def test_deciding_takes_a_request_for_review_in_the_same_click(
    asked: Portal, signed_in: SignIn
) -> None:
    pk = asked.submitted()
    response = do(of(asked, signed_in, "cleo"), pk, "approve", **AT_ONCE)
    assert response["Location"] == f"/quotas/approvals/?did=approve&of={pk}#done"
    assert actions(pk)[-3:] == ["take", "approve", "apply"]


def test_one_goes_from_request_to_request_of_the_queue(quota: Portal, signed_in: SignIn) -> None:
    first = quota.submitted()
    copy = ChangeRequest.objects.get(pk=first)
    copy.pk, copy.name = None, "other"
    copy.save()
    cleo, onward = (
        of(quota, signed_in, "cleo"),
        f'href="/quotas/requests/{copy.pk}/" data-item="next"',
    )
    assert onward in text_of(cleo, f"/quotas/requests/{first}/")
    back = f'href="/quotas/requests/{first}/" data-item="previous"'
    assert back in text_of(cleo, f"/quotas/requests/{copy.pk}/")
    assert "data-item" not in text_of(of(quota, signed_in, "ada"), f"/quotas/requests/{first}/")


# ---------------------------------------------------------------- what was done


@pytest.mark.parametrize(
    ("action", "given", "said"),
    [
        pytest.param("approve", {}, "Approved; nothing is changed yet.", id="approved"),
        pytest.param("ask_changes", {"text": "Why?"}, "Sent back to ada", id="sent back"),
        pytest.param("reject", {"text": "No."}, "Rejected; ada can read why.", id="rejected"),
    ],
)
def test_after_a_decision_the_queue_says_what_was_done_and_where_it_is(
    action: str, given: dict[str, str], said: str, quota: Portal, signed_in: SignIn
) -> None:
    pk = in_review(quota, signed_in)
    cleo = of(quota, signed_in, "cleo")
    response = do(cleo, pk, action, back="approvals", **given)
    page = text_of(cleo, response["Location"])
    assert said in page
    assert f'/quotas/requests/{pk}/"' in page or f'href="#request-{pk}"' in page


@pytest.mark.parametrize(
    "query", ["did=reject&of=1", "did=x&of=1", "did=approve&of=²", "did=approve&of=", "of=7777"]
)
def test_an_address_says_nothing_that_is_not_so(
    query: str, quota: Portal, signed_in: SignIn
) -> None:
    quota.submitted()
    assert 'id="done"' not in text_of(of(quota, signed_in, "cleo"), f"/quotas/approvals/?{query}")


# ---------------------------------------------------------------- whose turn it is


def test_what_came_back_or_ends_soon_counts_at_requests_of_who_wrote_it(
    quota: Portal, signed_in: SignIn
) -> None:
    pk = in_review(quota, signed_in)
    ada, ben = of(quota, signed_in, "ada"), of(quota, signed_in, "ben")
    assert "nav-count" not in text_of(ada, "/quotas/requests/")
    do(of(quota, signed_in, "cleo"), pk, "ask_changes", text="Why?")
    assert 'class="nav-count">1<' in text_of(ada, "/capacity/tiers/")
    assert "nav-count" not in text_of(ben, "/quotas/requests/")
    ends = quota.now + timedelta(days=1)
    ChangeRequest.objects.update(state="applied", reverts_at=ends, announced=0)
    assert "nav-count" not in text_of(ada, "/quotas/requests/")
    ChangeRequest.objects.update(announced=1)
    assert 'class="nav-count">1<' in text_of(ada, "/quotas/requests/")


def test_an_administrator_has_both_counts_in_one_query(quota: Portal, signed_in: SignIn) -> None:
    quota.submitted()
    own = quota.draft(by="cleo")
    ChangeRequest.objects.filter(pk=own).update(state="changes asked", name="other")
    cleo = quota.actor("cleo")
    with CaptureQueriesContext(connection) as queries:
        found = turns_in(turn_counts(cleo))
    assert len(queries) == 1
    assert (found.deciding, found.answering) == (1, 1)
    assert found.deciding == pending_count(cleo)


# ---------------------------------------------------------------- words


def test_the_page_is_named_after_what_is_asked_for(quota: Portal, signed_in: SignIn) -> None:
    pk = quota.submitted()
    page = text_of(of(quota, signed_in, "ada"), f"/quotas/requests/{pk}/")
    assert f"<h1>vision: {KEY} 6 → 8</h1>" in page
    assert f"<title>vision: {KEY} 6 → 8 · request {pk}" in page


def test_history_is_told_in_words_without_what_only_the_portal_counts_by(
    quota: Portal, signed_in: SignIn
) -> None:
    pk = quota.submitted()
    edited = services.Edited(after="9")
    version = quota.of(pk).version
    services.edit(pk, edited, by=quota.actor("ada"), version=version, now=quota.now)
    page = text_of(of(quota, signed_in, "ada"), f"/quotas/requests/{pk}/")
    history = page[page.index('id="history"') :]
    assert '<span class="subtle">to:</span> 8 → 9' in history
    for word in ("version", "nothing", "approvals needed", "submit<", "namespace"):
        assert word not in history


def test_the_same_moment_written_otherwise_is_no_change(quota: Portal, signed_in: SignIn) -> None:
    until = quota.now + timedelta(days=7)
    pk = quota.draft(until=until)
    for reason, zone in (("Longer words.", "Europe/Berlin"), ("Still longer.", "Asia/Tokyo")):
        moved = until.astimezone(ZoneInfo(zone))
        edited = services.Edited(reason=reason, until=moved)
        version = quota.of(pk).version
        services.edit(pk, edited, by=quota.actor("ada"), version=version, now=quota.now)
    page = text_of(of(quota, signed_in, "ada"), f"/quotas/requests/{pk}/")
    history = page[page.index('id="history"') :]
    assert history.count(">until:</span>") == 1, "of the line in which it was written"


def test_who_cannot_accept_an_offer_is_not_told_to(quota: Portal, signed_in: SignIn) -> None:
    pk = in_review(quota, signed_in)
    cleo = of(quota, signed_in, "cleo")
    do(cleo, pk, "ask_changes", text="Seven would do.", offer="7")
    assert "7 was offered instead; the author of the request can accept it." in text_of(
        cleo, f"/quotas/requests/{pk}/"
    )
    assert "Offered instead: 7. Accept it" in text_of(
        of(quota, signed_in, "ada"), f"/quotas/requests/{pk}/"
    )


def test_with_an_offer_one_button_is_the_likely_one(quota: Portal, signed_in: SignIn) -> None:
    pk = in_review(quota, signed_in)
    do(of(quota, signed_in, "cleo"), pk, "ask_changes", text="Seven would do.", offer="7")
    page = text_of(of(quota, signed_in, "ada"), f"/quotas/requests/{pk}/")
    assert page.count("btn-primary") == 1
    assert page.index("Accept the offer<") > page.index("btn-primary")
