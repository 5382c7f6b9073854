"""The page of recommendations: what it says, to whom, and deciding with and without htmx."""

from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from apps.accounts.models import User
from apps.costs.domain.recommendations.recommendation import RecommendationKind, RecommendationState
from apps.costs.models import Recommendation
from tests.costs.recommendation_rows import AT, make
from tests.factories import Portal
from tests.web.pages import records_of, text_of

SignIn = Callable[[User], Client]
HTMX = {"HX-Request": "true"}


def path_of(one: Recommendation, what: str) -> str:
    return f"/costs/recommendations/{one.pk}/{what}"


def test_a_line_says_what_to_do_what_it_saves_and_why(portal: Portal, admin: Client) -> None:
    one = make()
    page = text_of(admin, "/costs/recommendations/")
    assert f'id="recommendation-{one.pk}"' in page
    for words in (
        "Stop it: it has been idle for 30 hours.",
        "$2,122 a month",
        "confidence medium: 14 days, 100 % measured",
        "95 % of half-hours at most",
        "5.0 %",
        "6,144 MiB",
        "3.06 USD per GPU-hour",
        "scale statefulset/notebook-0 --replicas=0",
        "/workloads/west/vision/StatefulSet/notebook-0/",
    ):
        assert words in page, words


def test_an_empty_page_says_that_nothing_was_looked_at(portal: Portal, admin: Client) -> None:
    assert "No evidence was looked at yet" in text_of(admin, "/costs/recommendations/")


def test_an_unpriced_one_is_never_zero(portal: Portal, admin: Client) -> None:
    make(saving_per_month=None, currency="")
    page = text_of(admin, "/costs/recommendations/")
    assert "<strong>unpriced</strong>" in page
    assert "0.00" not in page


def test_what_is_about_capacity_names_its_tier_and_cluster(portal: Portal, admin: Client) -> None:
    make(
        kind=RecommendationKind.EMPTY_NODES.value,
        workload="Pool/unknown/NVIDIA-A10",
        namespace="",
        team=None,
    )
    page = text_of(admin, "/costs/recommendations/")
    assert "<h3>gold on west: GPU model NVIDIA-A10, capacity type unknown</h3>" in page


def test_names_of_a_cluster_are_text(portal: Portal, admin: Client) -> None:
    make(workload="Pod/<script>alert(1)</script>")
    assert "<script>alert" not in text_of(admin, "/costs/recommendations/")


@pytest.mark.parametrize(
    ("query", "shown"),
    [
        ("", {0, 1}),
        ("kind=mig-profile", {1}),
        ("team=speech", {1}),
        ("tier=gold", {0, 1}),
        ("state=dismissed", {2}),
        ("state=&kind=&team=&tier=&cluster=", {0, 1}),
        ("kind=nothing", {0, 1}),
    ],
)
def test_the_list_is_narrowed(query: str, shown: set[int], portal: Portal, admin: Client) -> None:
    make(0)
    make(1, kind=RecommendationKind.MIG_PROFILE.value, team=portal.speech)
    make(2, state=RecommendationState.DISMISSED.value, dismiss_reason="No.")
    page = text_of(admin, f"/costs/recommendations/?{query}")
    there = {number for number in range(3) if f"StatefulSet/notebook-{number}/" in page}
    assert there == shown


def test_people_see_those_of_their_teams(portal: Portal, signed_in: SignIn) -> None:
    make(0)
    make(1, team=None, kind=RecommendationKind.EMPTY_NODES.value, workload="", namespace="")
    lead, outsider = signed_in(portal.ada), signed_in(portal.dan)
    page = text_of(lead, "/costs/recommendations/")
    assert "notebook-0" in page
    assert "nodes that stand empty" not in page
    assert "notebook-0" not in text_of(outsider, "/costs/recommendations/")
    assert "nodes that stand empty" in text_of(signed_in(portal.finn), "/costs/recommendations/")


def test_only_who_decides_is_offered_to(portal: Portal, signed_in: SignIn) -> None:
    one = make()
    for person, offered in ((portal.ada, True), (portal.ben, False), (portal.finn, False)):
        page = text_of(signed_in(person), "/costs/recommendations/")
        assert (path_of(one, "accept") in page) == offered, person.username


@pytest.mark.parametrize(
    ("who", "status"), [("ada", 302), ("cleo", 302), ("ben", 403), ("finn", 403), ("dan", 404)]
)
def test_who_may_accept(who: str, status: int, portal: Portal, signed_in: SignIn) -> None:
    one = make()
    response = signed_in(getattr(portal, who)).post(path_of(one, "accept"))
    assert response.status_code == status
    one.refresh_from_db()
    assert one.state == (
        RecommendationState.ACCEPTED if status == 302 else RecommendationState.OPEN
    )


def test_without_htmx_a_decision_leads_back_to_the_list_as_it_was(
    portal: Portal, admin: Client
) -> None:
    one = make()
    response = admin.post(
        path_of(one, "dismiss"), {"reason": "Needed.", "back": "kind=stop-idle-notebook"}
    )
    assert response.status_code == 302
    expected = f"/costs/recommendations/?kind=stop-idle-notebook#recommendation-{one.pk}"
    assert response["Location"] == expected
    page = text_of(admin, "/costs/recommendations/?state=dismissed")
    assert "Dismissed by cleo" in page
    assert "Needed." in page


def test_back_never_leads_elsewhere(portal: Portal, admin: Client) -> None:
    one = make()
    back = "//evil.example/?x=1"
    response = admin.post(path_of(one, "accept"), {"back": back})
    assert response["Location"].startswith("/costs/recommendations/?")


def test_with_htmx_the_line_alone_is_swapped(portal: Portal, admin: Client) -> None:
    one = make()
    response = admin.post(path_of(one, "accept"), headers=HTMX)
    text = response.content.decode()
    assert response.status_code == 200
    assert "<html" not in text
    assert f'id="recommendation-{one.pk}"' in text
    assert "Accepted by cleo" in text


@pytest.mark.parametrize(("headers", "status"), [({}, 400), (HTMX, 200)], ids=["plain", "htmx"])
def test_a_dismissal_without_a_reason_is_told_so(
    headers: dict[str, str], status: int, portal: Portal, admin: Client
) -> None:
    one = make()
    response = admin.post(path_of(one, "dismiss"), {"reason": " "}, headers=headers)
    assert response.status_code == status
    assert "Say why it is dismissed" in response.content.decode()
    one.refresh_from_db()
    assert one.state == RecommendationState.OPEN


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({}, "its own cost before is not known"),
        ({"cost_before": Decimal(100), "days_before": 30.0}, "Too early to say"),
        ({"cost_before": Decimal(100), "days_before": 30.0, "days_after": 9.0}, "cannot be told"),
        (
            {
                "cost_before": Decimal(100),
                "days_before": 30.0,
                "cost_after": Decimal(10),
                "days_after": 8.0,
                "verdict": "came",
                "saved_per_month": Decimal("63.88"),
            },
            "The saving came. It costs $64 a month less than before.",
        ),
    ],
    ids=["not followed", "too early", "not told", "came"],
)
def test_what_came_of_an_accepted_one_is_said(
    values: dict[str, Any], words: str, portal: Portal, admin: Client
) -> None:
    make(state=RecommendationState.ACCEPTED.value, decided_by="ada", decided_at=AT, **values)
    assert words in text_of(admin, "/costs/recommendations/?state=accepted")


def test_the_file_has_the_rows_of_all_pages(portal: Portal, admin: Client) -> None:
    for number in range(60):
        make(number)
    page = text_of(admin, "/costs/recommendations/")
    assert 'rel="next"' in page
    records = records_of(admin, "/costs/recommendations/?format=csv")
    assert len(records) == 60
    assert records[0]["saving_per_month"] == "2122.11"


def test_more_rows_need_no_more_queries(portal: Portal, admin: Client) -> None:
    make(0)
    with CaptureQueriesContext(connection) as few:
        text_of(admin, "/costs/recommendations/")
    for number in range(1, 40):
        make(number)
    with CaptureQueriesContext(connection) as many:
        text_of(admin, "/costs/recommendations/")
    assert len(many) == len(few)


LOWERED = "Lower requests.nvidia.com/gpu from 8 to 3: at most 2 were ever used at once."


def test_a_quota_to_lower_is_headed_by_its_change_and_asked_for_with_the_form_filled_in(
    portal: Portal, signed_in: SignIn
) -> None:
    make(kind=RecommendationKind.UNUSED_QUOTA, workload="ResourceQuota/gpus", change=LOWERED)
    page = text_of(signed_in(portal.ada), "/costs/recommendations/")
    assert "<h3>vision: requests.nvidia.com/gpu 8 → 3</h3>" in page
    key = "west%2FResourceQuota%2Fvision%2Fgpus%2Frequests.nvidia.com%2Fgpu"
    assert f'href="/quotas/requests/new/?key={key}&amp;after=3' in page
    page = text_of(signed_in(portal.ben), "/costs/recommendations/")
    assert "8 → 3" in page
    assert "/quotas/requests/new/" not in page


def test_words_of_another_version_lead_to_no_form(portal: Portal, admin: Client) -> None:
    make(
        kind=RecommendationKind.UNUSED_QUOTA,
        workload="ResourceQuota/gpus",
        change="Give some of it back.",
    )
    page = text_of(admin, "/costs/recommendations/")
    assert "<h3>ResourceQuota/gpus</h3>" in page
    assert "/quotas/requests/new/" not in page
