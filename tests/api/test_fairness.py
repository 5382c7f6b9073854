"""`fairness`: shares, loans and denials by tier and team."""

import csv
import io
from typing import Any

import pytest

from apps.accounts.models import User
from apps.clusters.models import WatchCoverage
from apps.fairness.services import compute_hour
from apps.usage.models import CollectionWindow
from tests.api.conftest import client_of
from tests.factories import make_user
from tests.fairness.ledger import HOUR, START, World, make_world
from tests.shared_rows import copy_of, shared

TEAM = (
    *("entitlement_gpus", "demand_gpu_hours", "fair_share_gpu_hours", "allocated_gpu_hours"),
    *("borrowed_gpu_hours", "lent_gpu_hours", "denied_gpu_hours", "wait_p50_seconds"),
    *("wait_p95_seconds", "waiting_now", "gave_up", "usage_factor"),
)
WINDOW = {"start": START.isoformat(), "end": (START + 2 * HOUR).isoformat()}


def fill() -> World:
    """Return a world in which vision held 6 GPUs of its 4, and speech 1, for two hours."""
    world = make_world()
    for number in range(2):
        at = START + number * HOUR
        world.hour(at, {"vision": 6.0, "speech": 1.0})
        compute_hour(at, now=at + 4 * HOUR)
    return world


_world = shared(fill)
world = copy_of("_world")


@pytest.fixture
def reader(world: World) -> User:
    return make_user("eve")


def get(user: User, **params: str) -> Any:
    response = client_of(user).get("/api/v1/fairness", {**WINDOW, **params})
    assert response.status_code == 200, response.content
    return response


def test_tiers_and_teams_have_the_fields_of_the_contract(reader: User) -> None:
    (tier,) = get(reader).json()["results"]
    assert {"tier", "jain_index", "jain_allocation_ratio", "borrowable_gpu_hours"} <= tier.keys()
    assert tier["tier"] == "gold"
    assert tier["known_hours"] == 2
    assert tier["missing_hours"] == 0
    teams = {team["team"]: team for team in tier["teams"]}
    assert all(set(TEAM) <= team.keys() for team in teams.values())
    assert teams["vision"]["allocated_gpu_hours"] == 12.0
    assert teams["vision"]["borrowed_gpu_hours"] == 4.0
    assert teams["vision"]["entitlement_gpus"] == 4.0
    assert teams["speech"]["lent_gpu_hours"] == 4.0


def test_teams_can_be_picked_and_the_index_stays_that_of_all(reader: User) -> None:
    (whole,) = get(reader).json()["results"]
    (tier,) = get(reader, team="speech").json()["results"]
    assert [team["team"] for team in tier["teams"]] == ["speech"]
    assert tier["jain_index"] == whole["jain_index"]


def test_a_file_has_a_row_for_each_team(reader: User) -> None:
    text = b"".join(get(reader, format="csv").streaming_content).decode()
    rows = list(csv.DictReader(io.StringIO(text)))
    assert [(row["tier"], row["team"]) for row in rows] == [("gold", "speech"), ("gold", "vision")]


def test_an_unknown_tier_is_named(reader: User) -> None:
    response = client_of(reader).get("/api/v1/fairness", {**WINDOW, "tier": "lead"})
    assert response.status_code == 400
    assert "tier" in response.json()["errors"]


def test_hours_before_the_watch_are_estimated_and_judged(db: None) -> None:
    world = make_world()
    WatchCoverage.objects.all().delete()
    world.hour(START, {"vision": 6.0})
    world.waits("speech", 2.0, START, START + HOUR, cause="unschedulable")
    compute_hour(START, now=START + 4 * HOUR)
    (tier,) = get(make_user("eve")).json()["results"]
    names = ("hours_known", "hours_estimated", "hours_unknown", "known_hours", "watched_hours")
    assert [tier[name] for name in names] == [0, 1, 0, 1, 0]
    assert {t["team"]: t["denied_gpu_hours"] for t in tier["teams"]} == {"speech": 2, "vision": 0}


def test_hours_without_facts_or_demand_are_unknown(db: None) -> None:
    world = make_world()
    WatchCoverage.objects.all().delete()
    world.hour(START, {"vision": 6.0})
    CollectionWindow.objects.update(slots_without_pods=1)
    compute_hour(START, now=START + 4 * HOUR)
    world.waits("vision", 2.0, START, START + HOUR, bound_at=START + HOUR, outcome="started")
    (tier,) = get(make_user("eve")).json()["results"]
    assert [tier[f"hours_{name}"] for name in ("known", "estimated", "unknown")] == [0, 0, 1]
    assert (tier["jain_index"], tier["capacity_gpu_hours"]) == (None, None)


def test_who_waits_is_null_where_a_cluster_is_not_watched_any_more(reader: User) -> None:
    WatchCoverage.objects.update(end=START + HOUR)
    window = {"end": (START + 8 * HOUR).isoformat()}
    (tier,) = get(reader, **window).json()["results"]
    assert {team["waiting_now"] for team in tier["teams"]} == {None}
    WatchCoverage.objects.update(end=START + 8 * HOUR)
    (tier,) = get(reader, **window).json()["results"]
    assert {team["waiting_now"] for team in tier["teams"]} == {0}


def test_sums_are_null_where_no_hour_is_known_though_somebody_waits(
    reader: User, world: World
) -> None:
    since = START + 24 * HOUR
    world.waits("vision", 1.0, since, since + 2 * HOUR)
    window = {"start": since.isoformat(), "end": (since + HOUR).isoformat()}
    (tier,) = get(reader, **window).json()["results"]
    assert tier["known_hours"] == 0
    sums = {name: value for name, value in tier.items() if name.endswith("_gpu_hours")}
    assert set(sums.values()) == {None}
    (team,) = tier["teams"]
    told = {name for name, value in team.items() if name.endswith("_gpu_hours") and value == 0}
    assert (told, team["entitlement_gpus"]) == (set(), None)
