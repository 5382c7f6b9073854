"""`recommendations`: the rows of the page, paged, and for whom."""

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from apps.accounts.models import Team, User
from apps.alerts.models import IdleAnswer
from apps.clusters.models import Tier
from apps.costs.domain.recommendations.recommendation import RecommendationKind, RecommendationState
from apps.costs.models import WasteSum
from tests.api.conftest import client_of
from tests.costs.recommendation_rows import make
from tests.factories import Portal

FIELDS = {
    *("id", "kind", "cluster", "namespace", "workload", "node", "tier", "team", "change", "patch"),
    *("saving_per_month", "currency", "alternative", "confidence", "reason", "evidence", "state"),
    *("first_seen", "last_seen", "dismiss_reason", "verdict", "saved_per_month"),
    *("kept_until", "kept_reason", "risk", "cash", "replay", "replay_gap"),
}


def get(user: User, *, status: int = 200, **params: Any) -> Any:
    response = client_of(user).get("/api/v1/recommendations", params)
    assert response.status_code == status
    return response.json()


def test_a_row_has_the_fields_of_the_contract(portal: Portal) -> None:
    one = make()
    (row,) = get(portal.ada)["results"]
    assert set(row) == FIELDS
    assert row["id"] == one.pk
    assert row["saving_per_month"] == 2122.11
    assert row["evidence"]["p95_activity"] == 0.05
    assert row["node"] is None
    assert row["verdict"] is None


def test_the_summary_counts_each_gpu_hour_once_and_for_who_may_see_it(portal: Portal) -> None:
    """Two recommendations of one cell, a third that was dismissed, and waste of the platform."""
    gold, usd = Tier.objects.get(name="gold"), 10**8
    west = portal.clusters[0]
    cell = ["vision|Job/a|A100|on-demand", "idle"]
    make(0, covers=[[*cell, 30 * usd]])
    make(1, covers=[[*cell, 50 * usd]])
    make(2, state="dismissed", dismiss_reason="no", covers=[[*cell, 70 * usd]])
    for team, cause, reason, cost in (
        (portal.vision, "idle", WasteSum.COVERED, 70),
        (portal.vision, "underused", "well-used", 30),
        (None, "unallocated", "needed", 100),
    ):
        WasteSum.objects.create(
            cluster=west,
            tier=gold,
            team=team,
            cause=cause,
            reason=reason,
            currency="USD",
            cost=cost * usd,
        )
    whole = get(portal.cleo)["summary"]
    assert (whole["waste_cost"], whole["covered_cost"]) == (200.0, 50.0)
    assert (whole["waste_covered_ratio"], whole["currency"]) == (0.25, "USD")
    assert whole["not_covered"] == {"needed": 100.0, "well-used": 30.0, "decided": 20.0}
    own = get(portal.ada)["summary"]
    assert (own["waste_cost"], own["waste_covered_ratio"]) == (100.0, 0.5)
    others = get(portal.dan)["summary"]
    assert (others["waste_cost"], others["waste_covered_ratio"]) == (0.0, None)
    # Accepted long ago and open again: what it was to avoid then is not there any more.
    make(3, covers=[["vision|Job/b|A100|on-demand", "underused", 500 * usd]])
    again = get(portal.cleo)["summary"]
    assert again["covered_cost"] + sum(again["not_covered"].values()) == again["waste_cost"]


def test_an_unpriced_saving_is_null(portal: Portal) -> None:
    make(saving_per_month=None, currency="")
    (row,) = get(portal.cleo)["results"]
    assert (row["saving_per_month"], row["currency"]) == (None, None)


@pytest.mark.parametrize(
    ("who", "count"), [("cleo", 2), ("finn", 2), ("ada", 1), ("ben", 1), ("dan", 0)]
)
def test_who_sees_how_many(who: str, count: int, portal: Portal) -> None:
    make(0)
    make(1, team=None)
    assert len(get(getattr(portal, who))["results"]) == count


def test_pages_give_every_row_once(portal: Portal) -> None:
    made = [make(number).pk for number in range(5)]
    page = get(portal.cleo, page_size=2)
    rows = page["results"]
    while page["next"]:
        page = client_of(portal.cleo).get(page["next"]).json()
        rows += page["results"]
    assert [row["id"] for row in rows] == made


def test_filters_narrow_and_unknown_ones_are_refused(portal: Portal) -> None:
    make(0)
    make(1, state=RecommendationState.GONE.value, kind=RecommendationKind.SPOT.value)
    assert len(get(portal.cleo, state="gone")["results"]) == 1
    assert len(get(portal.cleo, state="open,gone")["results"]) == 2
    assert get(portal.cleo, kind="spot")["results"] == []
    assert "kind" in get(portal.cleo, status=400, kind="cheaper")["errors"]


def test_who_keeps_an_idle_one_and_why_is_told(portal: Portal) -> None:
    make(0)
    make(1)
    until = timezone.now() + timedelta(days=2)
    IdleAnswer.objects.create(
        subject="workload:west/vision/StatefulSet/notebook-1",
        team=Team.objects.get(name="vision"),
        choice="keep",
        person="ada",
        at=timezone.now(),
        reason="a demo on Friday",
        until=until,
    )
    rows = {row["workload"]: row for row in get(portal.ada)["results"]}
    assert rows["StatefulSet/notebook-0"]["kept_until"] is None
    assert rows["StatefulSet/notebook-1"]["kept_reason"] == "a demo on Friday"
