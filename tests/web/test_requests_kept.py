"""What a person typed, or pressed twice, on the pages of quota requests; and what they read."""

from typing import Any, cast
from zoneinfo import ZoneInfo

import pytest
from django.test import Client

from apps.quota_requests import services
from apps.quota_requests.domain.snapshots import Evidence, ImpactPreview
from apps.quota_requests.models import ChangeRequest
from apps.quota_requests.selectors import read
from apps.web.quota_requests.impact_view import evidence_summary, impact_summary
from tests.quota_requests.portal import Portal
from tests.quota_requests.requests import EVIDENCE, PREVIEW
from tests.web.pages import text_of
from tests.web.test_requests_page import SignIn, of, posted

pytestmark = pytest.mark.django_db
PART = {"HX-Request": "true"}


# ---------------------------------------------------------------- signed out meanwhile


def test_who_was_signed_out_while_writing_gets_back_what_was_typed(quota: Portal) -> None:
    pk = quota.submitted()
    gone = Client()
    long = "<b>For the deadline</b>\n" + "x" * 3000
    for path, typed in (
        ("/quotas/requests/create", posted(reason=long, then="submit")),
        (f"/quotas/requests/{pk}/save", posted(reason=long, version="2")),
        (f"/quotas/requests/{pk}/do/reject", {"text": long, "version": "2"}),
    ):
        response = gone.post(path, typed)
        page = response.content.decode()
        assert response.status_code == 403
        assert "no-store" in response["Cache-Control"]
        assert "You are signed out" in page
        assert "&lt;b&gt;For the deadline&lt;/b&gt;" in page
        assert "x" * 3000 in page
        assert "/sign-in/?next=/quotas/requests/" in page
    assert ChangeRequest.objects.get().version == quota.of(pk).version


def test_a_button_without_text_leads_a_signed_out_person_to_the_request(quota: Portal) -> None:
    pk = quota.submitted()
    response = Client().post(f"/quotas/requests/{pk}/do/take", {"version": "2"})
    assert response.status_code == 302
    assert response["Location"] == f"/sign-in/?next=/quotas/requests/{pk}/"


def test_a_preview_for_who_was_signed_out_leaves_the_form_alone(quota: Portal) -> None:
    response = Client().post("/quotas/requests/create", posted(then="preview"), headers=PART)
    part = response.content.decode()
    assert response.status_code == 200
    assert "<html" not in part
    assert "You are signed out" in part
    assert 'name="password"' not in part


def test_a_preview_of_a_quota_that_is_gone_says_so(quota: Portal, signed_in: SignIn) -> None:
    ada = of(quota, signed_in, "ada")
    quota.see(None)
    response = ada.post("/quotas/requests/create", posted(then="preview"), headers=PART)
    assert response.status_code == 200
    assert "does not see" in response.content.decode()


def test_a_field_is_described_by_what_is_wrong_with_it(quota: Portal, signed_in: SignIn) -> None:
    response = of(quota, signed_in, "ada").post(
        "/quotas/requests/create", posted(reason="", after="")
    )
    page = response.content.decode()
    for name in ("reason", "after"):
        assert f'aria-describedby="id_{name}_error"' in page
        assert page.count(f'id="id_{name}_error"') == 1


# ---------------------------------------------------------------- pressed twice


def test_a_button_pressed_twice_makes_one_request(asked: Portal, signed_in: SignIn) -> None:
    ada = of(asked, signed_in, "ada")
    answers = [ada.post("/quotas/requests/create", posted(then="submit")) for _ in range(2)]
    request = ChangeRequest.objects.get()
    assert request.state == "submitted"
    assert [answer.status_code for answer in answers] == [302, 302]
    assert {answer["Location"] for answer in answers} == {f"/quotas/requests/{request.pk}/"}


# ---------------------------------------------------------------- what is read


def test_what_was_edited_after_it_was_submitted_is_frozen_anew(
    asked: Portal, signed_in: SignIn
) -> None:
    pk = asked.submitted()
    first = asked.of(pk).submitted_at
    asked.wait(days=-1)  # as if it had been handed in a day later than it was edited
    ada = asked.actor("ada")
    edited = services.Edited(after="9")
    services.edit(pk, edited, by=ada, version=asked.of(pk).version, now=asked.now)
    page = text_of(of(asked, signed_in, "ada"), f"/quotas/requests/{pk}/")
    assert first is not None
    for at, there in ((asked.now, True), (first, False)):
        words = f'Snapshot of <time datetime="{at.astimezone(ZoneInfo("UTC")):%Y-%m-%dT%H:%M:%S}'
        assert (words in page) is there


def test_the_gpu_of_a_review_has_money_pending_and_budget_at_a_glance(
    asked: Portal, signed_in: SignIn
) -> None:
    pk = asked.submitted()
    page = text_of(of(asked, signed_in, "cleo"), "/quotas/approvals/")
    for label in ("Idle", "Pending", "Blocked by quota", "Unmet fair share", "Budget"):
        assert f"<dt>{label}</dt>" in page
    assert "the team has no budget" in page
    assert "The team has no budget." in page
    assert f'href="/quotas/requests/{pk}/outlook/#live-title"' in page


def told(evidence: dict[str, Any]) -> dict[str, tuple[str, str]]:
    glance = evidence_summary(read(evidence, Evidence), ZoneInfo("UTC")).glance
    return {label: (text, words) for label, text, words in glance}


def test_a_budget_and_idle_money_are_said_or_said_not_to_be_known() -> None:
    money = [{"currency": "USD", "cost": "90", "idle": "12.5", "wasted": "20"}]
    budget: dict[str, Any] = cast("Any", EVIDENCE)["budgets"][0]
    glance = told(EVIDENCE | {"money": money, "budgets": [budget | {"burn_rate": "1.2"}, budget]})
    assert glance["Idle"] == ("20.0 GPU-h", "of 30 days, worth $12")
    assert glance["Budget"] == (
        "burn rate 1.2",
        "the fastest, of those that are known; 1 uses exactly the budget",
    )
    assert told(EVIDENCE)["Idle"][1] == "of 30 days; cost not known"
    assert told(EVIDENCE)["Budget"][0] == "not known"
    assert told(EVIDENCE | {"budgets": []})["Budget"][0] == "none"


def test_promises_over_capacity_are_one_sentence_for_all_tiers() -> None:
    over: dict[str, Any] = cast("Any", PREVIEW)["promised"][0] | {"before_units": "4"}
    promised = [over, over | {"tier": "bronze", "capacity_units": "4"}]
    found = impact_summary(read(PREVIEW | {"promised": promised}, ImpactPreview), before="8.0")
    assert found.warnings == ["Overcommitted by this change: 14 of 8 of gold, 14 of 4 of bronze."]


def test_nothing_is_said_to_start_where_it_is_not_known_what_is_used() -> None:
    found = impact_summary(read(PREVIEW | {"used": None}, ImpactPreview), before="8")
    assert found.facts is not None
    (unblocks,) = [one for one in found.facts.figures if one.label == "Unblocks"]
    assert unblocks.missing == "What is used of the quota is not known."
    assert "starts" not in {grid.id for grid in found.grids}
    assert "What is used of the quota is not known, nor what would start." in found.notes
