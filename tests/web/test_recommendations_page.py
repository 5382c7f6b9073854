"""Recommendations: the list by state, the page of one, who sees and who decides."""

from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from apps.accounts.models import User
from apps.costs.domain.recommendations.recommendation import (
    REPLAYED_KINDS,
    RecommendationKind,
    RecommendationState,
    ReplayGap,
)
from apps.costs.models import Recommendation
from tests.costs.recommendation_rows import AT, make
from tests.factories import Portal
from tests.web.pages import check_explained, records_of, text_of

SignIn = Callable[[User], Client]
LIST = "/costs/recommendations/"


def path_of(one: Recommendation, what: str = "") -> str:
    return f"{LIST}{one.pk}/{what}"


def figures_of(client: Client, query: str = "") -> dict[str, tuple[str, str]]:
    """Return (value, note) of the figures at the top, by label."""
    response: Any = client.get(f"{LIST}?{query}")
    row = response.context["figures"].figures
    return {one.label: (one.value or "no data", one.note) for one in row}


def test_a_line_says_what_to_do_where_and_what_it_saves(portal: Portal, admin: Client) -> None:
    one = make(evidence={"days": 14.0, "saved_gpu_hours_per_month": 693.5})
    page = text_of(admin, LIST)
    for words in (
        f'<a href="{path_of(one)}?window=7d">Stop idle notebook</a>',
        "/workloads/west/vision/StatefulSet/notebook-0/",
        "$2,122",
        "693.5",
        "medium",
    ):
        assert words in page, words


def test_the_page_of_one_has_the_change_its_risk_and_the_evidence(
    portal: Portal, admin: Client
) -> None:
    page = text_of(admin, path_of(make()))
    for words in (
        "Stop idle notebook: StatefulSet/notebook-0",
        "Stop it: it has been idle for 30 hours.",
        "What is in memory and not saved is lost.",
        "$2,122",
        "14 days, 100 % measured",
        "p95 activity",
        "5.0 %",
        "6,144 MiB",
        "3.06 USD per GPU-hour",
        "scale statefulset/notebook-0 --replicas=0",
        "/workloads/west/vision/StatefulSet/notebook-0/",
    ):
        assert words in page, words


def test_the_page_of_one_says_whether_its_effects_are_replayed(
    portal: Portal, admin: Client
) -> None:
    never, later = "Effects of this kind are not replayed", "have not been replayed"
    page = text_of(admin, path_of(make()))
    assert never in page
    assert later not in page
    timeout = make(1, kind=RecommendationKind.IDLE_TIMEOUT.value, workload="")
    page = text_of(admin, path_of(timeout))
    assert never not in page
    assert later in page
    replay = {"replayed_days": 14.0, "replayed_freed_gpu_hours": 12.0}
    Recommendation.objects.filter(pk=timeout.pk).update(replay=replay)
    page = text_of(admin, path_of(timeout))
    assert "Freed in replay" in page
    assert "replayed:" not in page
    assert later not in page


def test_each_kind_that_is_not_replayed_and_each_gap_has_its_reason(
    portal: Portal, admin: Client
) -> None:
    others = [kind for kind in RecommendationKind if kind not in REPLAYED_KINDS]
    for number, kind in enumerate(others):
        one = make(number, kind=kind.value, workload="Pool/spot/A10")
        assert "Effects of this kind are not replayed: " in text_of(admin, path_of(one)), kind
    for number, gap in enumerate(ReplayGap):
        of = {"kind": RecommendationKind.MIG_PROFILE.value, "workload": f"Job/{number}"}
        one = make(number, replay_gap=gap.value, **of)
        assert "have not been replayed: " in text_of(admin, path_of(one)), gap


def test_the_page_of_one_shows_what_a_move_does(portal: Portal, admin: Client) -> None:
    replay = {
        "replayed_days": 14.0,
        "replayed_freed_gpu_hours": 288.0,
        "replayed_unmet_before_gpu_hours": 108.0,
        "replayed_unmet_after_gpu_hours": 0.0,
        "replayed_p95_before_seconds": 32400.0,
        "replayed_held_gpu_hours": 48.0,
        "replayed_works": 2,
        "replayed_works_started": 1,
        "replayed_saving_per_month": "1607.14",
    }
    one = make(kind=RecommendationKind.SHARED_TIER.value, replay=replay)
    page = text_of(admin, path_of(one))
    for words in (
        "<dt>Unmet</dt><dd>108 → 0 GPU-hours</dd>",
        "<dt>p95 queue time</dt><dd>9h 0m → –</dd>",
        "<dt>Started with it</dt><dd>1 of 2</dd>",
        "<dt>Saving in replay</dt><dd>$1,607 a month</dd>",
        "run as long as it did",
        "no free unit or no quota",
    ):
        assert words in page, words
    Recommendation.objects.update(replay={**replay, "replayed_works_started": 2})
    assert "no free unit or no quota" not in text_of(admin, path_of(one))


def test_the_page_of_a_pool_says_which_gpus_are_away(portal: Portal, admin: Client) -> None:
    replay = {"replayed_days": 14.0, "replayed_freed_gpu_hours": 288.0}
    one = make(kind=RecommendationKind.EMPTY_HOURS.value, workload="Pool/spot/A10", replay=replay)
    page = text_of(admin, path_of(one))
    assert "GPUs that were free in the same hour" in page
    assert "run as long as it did" not in page


def test_an_empty_page_says_that_nothing_was_looked_at(portal: Portal, admin: Client) -> None:
    assert "No evidence was looked at yet" in text_of(admin, LIST)
    assert figures_of(admin)["Open savings"] == ("no data", "not checked yet")


def test_an_unpriced_one_is_never_zero(portal: Portal, admin: Client) -> None:
    one = make(saving_per_month=None, currency="")
    assert ">unpriced<" in text_of(admin, path_of(one))
    assert ">unpriced<" in text_of(admin, LIST)
    assert figures_of(admin)["Open savings"] == ("unpriced", "1 counted")


def test_what_is_about_capacity_names_its_pool(portal: Portal, admin: Client) -> None:
    one = make(
        kind=RecommendationKind.EMPTY_NODES.value,
        workload="Pool/unknown/NVIDIA-A10",
        namespace="",
        team=None,
    )
    assert ">NVIDIA-A10, unknown</td>" in text_of(admin, LIST)
    assert "Empty nodes: NVIDIA-A10, unknown" in text_of(admin, path_of(one))


def test_figures_tell_what_is_open_accepted_and_realized(portal: Portal, admin: Client) -> None:
    make(0)
    make(1, alternative=True)
    make(2, kind=RecommendationKind.UNUSED_QUOTA.value)
    assert figures_of(admin) == {
        "Open savings": ("$2,122", "1 counted"),
        "Accepted savings": ("0", "0 counted"),
        "Realized savings": ("no data", "none judged yet"),
        "Waste covered": ("no data", ""),
        "Quota, no cash": ("$2,120", "1 counted"),
    }
    make(3, state=RecommendationState.ACCEPTED.value, verdict="too-early")
    assert figures_of(admin)["Realized savings"] == ("no data", "none judged yet")
    make(4, state=RecommendationState.DONE.value, **judged("came", "2000.40"))
    make(5, state=RecommendationState.ACCEPTED.value, **judged("partly", "500.20"))
    make(6, state=RecommendationState.ACCEPTED.value, **judged("did-not-come", "1.00"))
    found = figures_of(admin)
    assert found["Accepted savings"] == ("$8,470", "4 counted")
    assert found["Realized savings"] == ("$2,501", "2 of 3 judged")
    assert check_explained(admin, LIST) >= {"saving_per_month", "realized_savings"}


def judged(verdict: str, saved: str) -> dict[str, Any]:
    return {"verdict": verdict, "saved_per_month": Decimal(saved)}


def test_names_of_a_cluster_are_text(portal: Portal, admin: Client) -> None:
    one = make(workload="Pod/<script>alert(1)</script>")
    for path in (LIST, path_of(one)):
        assert "<script>alert" not in text_of(admin, path)


@pytest.mark.parametrize(
    ("query", "shown"),
    [
        ("", {0, 1}),
        ("kind=mig-profile", {1}),
        ("team=speech", {1}),
        ("tier=gold", {0, 1}),
        ("tab=dismissed", {2}),
        ("tab=nothing&kind=&team=&tier=&cluster=", {0, 1}),
        ("q=mig", {1}),
        ("sort=saving_per_month", {0, 1}),
        ("kind=nothing", {0, 1}),
    ],
)
def test_the_list_is_narrowed(query: str, shown: set[int], portal: Portal, admin: Client) -> None:
    make(0)
    make(1, kind=RecommendationKind.MIG_PROFILE.value, team=portal.speech)
    make(2, state=RecommendationState.DISMISSED.value, dismiss_reason="No.")
    page = text_of(admin, f"{LIST}?{query}")
    there = {number for number in range(3) if f"StatefulSet/notebook-{number}/" in page}
    assert there == shown


def test_tabs_count_all_states_and_old_addresses_lead_to_them(
    portal: Portal, admin: Client
) -> None:
    make(0)
    make(1, state=RecommendationState.DISMISSED.value, dismiss_reason="No.")
    response: Any = admin.get(LIST)
    counts = {link.tab.key: link.tab.count for link in response.context["tabs"].links}
    assert counts == {"open": 1, "accepted": 0, "dismissed": 1, "done": 0, "gone": 0}
    moved = admin.get(f"{LIST}?state=dismissed&team=vision")
    assert moved["Location"] == f"{LIST}?team=vision&tab=dismissed"
    assert admin.get(f"{LIST}?state=open")["Location"] == LIST


def test_people_see_those_of_their_teams(portal: Portal, signed_in: SignIn) -> None:
    mine = make(0)
    shared = make(
        1, team=None, kind=RecommendationKind.EMPTY_NODES.value, workload="", namespace=""
    )
    lead, outsider = signed_in(portal.ada), signed_in(portal.dan)
    page = text_of(lead, LIST)
    assert "notebook-0" in page
    assert "Empty nodes" not in page
    assert "notebook-0" not in text_of(outsider, LIST)
    assert "Empty nodes" in text_of(signed_in(portal.finn), LIST)
    assert lead.get(path_of(mine)).status_code == 200
    assert lead.get(path_of(shared)).status_code == 404
    assert outsider.get(path_of(mine)).status_code == 404


def test_only_who_decides_is_offered_to(portal: Portal, signed_in: SignIn) -> None:
    one = make()
    for person, offered in ((portal.ada, True), (portal.ben, False), (portal.finn, False)):
        client = signed_in(person)
        assert (">Decide<" in text_of(client, LIST)) == offered, person.username
        assert (path_of(one, "accept") in text_of(client, path_of(one))) == offered


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


def test_a_decision_shows_itself_and_keeps_the_way_back(portal: Portal, admin: Client) -> None:
    one = make()
    back = "kind=stop-idle-notebook&tab=open"
    response = admin.post(path_of(one, "dismiss"), {"reason": "Needed.", "back": back})
    assert response.status_code == 302
    assert response["Location"] == f"{path_of(one)}?{back}"
    page = text_of(admin, response["Location"])
    assert "Dismissed by cleo" in page
    assert "Needed." in page
    assert f'href="{LIST}?kind=stop-idle-notebook&amp;tab=open"' in page
    assert "Needed." in text_of(admin, f"{LIST}?tab=dismissed")


def test_back_never_leads_elsewhere(portal: Portal, admin: Client) -> None:
    one = make()
    back = "//evil.example/?x=1"
    response = admin.post(path_of(one, "accept"), {"back": back})
    assert response["Location"].startswith(f"{path_of(one)}?")


def test_a_dismissal_without_a_reason_is_told_so(portal: Portal, admin: Client) -> None:
    one = make()
    response = admin.post(path_of(one, "dismiss"), {"reason": " "})
    assert response.status_code == 400
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
    one = make(state=RecommendationState.ACCEPTED.value, decided_by="ada", decided_at=AT, **values)
    assert words in text_of(admin, path_of(one))


def test_the_file_has_the_rows_of_all_pages(portal: Portal, admin: Client) -> None:
    for number in range(60):
        make(number)
    page = text_of(admin, LIST)
    assert "1–25 of 60" in page
    records = records_of(admin, f"{LIST}?format=csv")
    assert len(records) == 60
    assert records[0]["saving_per_month"] == "2122.11"
    assert records[0]["change"] == "Stop it: it has been idle for 30 hours."
    assert len(records_of(admin, f"{LIST}?format=csv&q=notebook-59")) == 1


def test_more_rows_need_no_more_queries(portal: Portal, admin: Client) -> None:
    make(0)
    with CaptureQueriesContext(connection) as few:
        text_of(admin, LIST)
    for number in range(1, 40):
        make(number)
    with CaptureQueriesContext(connection) as many:
        text_of(admin, LIST)
    assert len(many) == len(few)


LOWERED = {"key": "requests.nvidia.com/gpu", "before": 8.0, "after": 3.0}


def test_a_quota_to_lower_is_headed_by_its_change_and_asked_for_with_the_form_filled_in(
    portal: Portal, signed_in: SignIn
) -> None:
    one = make(
        kind=RecommendationKind.UNUSED_QUOTA, workload="ResourceQuota/gpus", change_values=LOWERED
    )
    key = "west%2FResourceQuota%2Fvision%2Fgpus%2Frequests.nvidia.com%2Fgpu"
    for path in (LIST, path_of(one)):
        page = text_of(signed_in(portal.ada), path)
        assert "vision: requests.nvidia.com/gpu 8 → 3" in page
        assert f'href="/quotas/requests/new/?key={key}&amp;after=3' in page
        page = text_of(signed_in(portal.ben), path)
        assert "8 → 3" in page
        assert "/quotas/requests/new/" not in page


def test_one_whose_values_are_not_kept_yet_leads_to_no_form(portal: Portal, admin: Client) -> None:
    make(
        kind=RecommendationKind.UNUSED_QUOTA,
        workload="ResourceQuota/gpus",
        change="Give some of it back.",
    )
    page = text_of(admin, LIST)
    assert ">ResourceQuota/gpus<" in page
    assert "/quotas/requests/new/" not in page
