"""`recommendations`: the rows of the page, paged, and for whom."""

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from apps.accounts.models import Team, User
from apps.costs.domain.recommendations.recommendation import Kind
from apps.costs.domain.recommendations.states import State
from apps.notices.models import IdleAnswer
from tests.api.conftest import client_of
from tests.costs.recommendation_rows import make
from tests.factories import Portal

FIELDS = {
    *("id", "kind", "cluster", "namespace", "workload", "node", "tier", "team", "change", "patch"),
    *("saving_per_month", "currency", "alternative", "confidence", "reason", "evidence", "state"),
    *("first_seen", "last_seen", "dismiss_reason", "verdict", "saved_per_month"),
    *("kept_until", "kept_reason"),
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
    make(1, state=State.GONE.value, kind=Kind.SPOT.value)
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
