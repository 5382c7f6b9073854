"""Hours of which series cannot tell all: what only claims give out, and spans written late."""

from datetime import datetime

import pytest
from pytest_django import DjangoAssertNumQueries

from apps.clusters.domain.window import Window
from apps.clusters.models import Cluster, Tier, TierRule, WatchCoverage
from apps.fairness.models import FairnessWindow, TierFairnessHour
from apps.fairness.services import compute_hour, compute_hours
from apps.fairness.services.hour_inputs import read_hour
from apps.pending.services import refresh
from apps.usage.models import CollectionWindow, TierHour
from tests.factories import BEGINNING, make_cluster, make_pod, make_workload
from tests.fairness.ledger import DAY, HALF, HOUR, START, World, due_hours, make_world, told
from tests.shared_rows import copy_of, shared

NOW = START + 6 * HOUR


_world = shared(make_world)
world = copy_of("_world")


def _claims(world: World, **rule: object) -> Tier:
    """Make a tier that only ResourceClaims give out, to which vision is entitled."""
    tier = Tier.objects.create(name="claimed", position=3)
    given = {"sharing": "dra", "device_classes": ["gpu.nvidia.com"], "valid_from": BEGINNING}
    TierRule.objects.create(tier=tier, position=3, **{**given, **rule})
    world.entitle("vision", 2.0, tier=tier)
    return tier


def _watched_since(at: datetime) -> None:
    WatchCoverage.objects.update(start=at)


def _told(tier: Tier, hour: datetime = START) -> tuple[str, bool, float]:
    row = TierFairnessHour.objects.get(tier=tier, hour=hour)
    return row.state, row.watched, row.capacity / 10**9


def test_what_claims_give_out_is_not_known_of_the_time_before_the_watch(world: World) -> None:
    tier = _claims(world)
    _watched_since(START + HOUR)
    world.hour(held={"vision": 3.0})
    compute_hour(START, now=NOW)
    assert _told(tier) == ("missing", False, 0.0)
    assert _told(world.gold) == ("complete", False, 8.0)


def test_the_tier_under_which_their_activity_stands_has_no_capacity_that_is_known(
    world: World,
) -> None:
    _claims(world)
    unmatched, _ = Tier.objects.get_or_create(name="unmatched")
    _watched_since(START + HOUR)
    world.hour(held={"vision": 3.0})
    facts = TierHour.objects.get(tier=world.gold)
    facts.pk, facts.tier, facts.unattributed = None, unmatched, 5 * 10**9
    facts.capacity = facts.unallocated = facts.allocated = 0
    facts.save()
    compute_hour(START, now=NOW)
    assert _told(unmatched) == ("missing", False, 0.0)
    assert _told(world.gold) == ("complete", False, 8.0)


def test_it_stays_unknown_once_the_watch_has_seen_what_there_is(world: World) -> None:
    tier = _claims(world)
    _watched_since(START + HOUR)
    world.hour(held={"vision": 3.0})
    world.hour(START + HOUR, held={"vision": 2.0}, capacity=4.0, tier=tier)
    assert compute_hours(now=NOW) == 2
    assert _told(tier) == ("missing", False, 0.0)
    assert _told(tier, START + HOUR) == ("complete", True, 4.0)


def test_the_hour_in_which_the_watch_began_tells_too_little_of_claims(world: World) -> None:
    tier = _claims(world)
    _watched_since(START + HALF)
    world.hour(held={"vision": 2.0}, capacity=(0.0, 4.0), tier=tier)
    compute_hour(START, now=NOW)
    assert _told(tier)[0] == "missing"


def test_a_cluster_without_an_api_server_is_not_taken_to_have_what_another_has(
    world: World,
) -> None:
    tier, east = _claims(world), make_cluster("east")
    world.hour(held={"vision": 2.0}, capacity=4.0, tier=tier)
    world.hour(held={}, cluster=east)
    compute_hour(START, now=NOW)
    assert _told(tier) == ("complete", True, 4.0)


@pytest.mark.parametrize(
    "rule",
    [{"resources": ["nvidia.com/gpu"]}, {"valid_from": NOW}],
    ids=["series tell of it too", "the tier came later"],
)
def test_nothing_is_untold_of_a_tier(world: World, rule: dict[str, object]) -> None:
    tier = _claims(world, **rule)
    _watched_since(START + HOUR)
    world.hour(held={"vision": 3.0})
    compute_hour(START, now=NOW)
    assert _told(tier)[0] == "complete"


def test_where_it_was_watched_that_there_is_none_that_is_known(world: World) -> None:
    tier = _claims(world)
    world.hour(held={"vision": 3.0})
    compute_hour(START, now=NOW)
    assert _told(tier) == ("complete", True, 0.0)


def _without_watch(world: World) -> None:
    WatchCoverage.objects.all().delete()
    world.hour(held={"vision": 6.0})


@pytest.mark.parametrize("cause", ["unschedulable", "unrecorded"])
def test_demand_before_the_watch_is_what_series_show(world: World, cause: str) -> None:
    _without_watch(world)
    world.waits("speech", 2.0, START, START + HOUR, cause=cause)
    compute_hour(START, now=NOW)
    assert _told(world.gold) == ("complete", False, 8.0)
    assert told(START, "demand", "denied")["speech"] == {"demand": 2.0, "denied": 2.0}


def test_where_neither_watch_nor_series_tell_the_pods_nothing_is_judged(world: World) -> None:
    _without_watch(world)
    CollectionWindow.objects.update(slots_without_pods=1)
    compute_hour(START, now=NOW)
    assert _told(world.gold) == ("missing", False, 0.0)
    assert told() == {}


def test_demand_is_unknown_while_the_watch_is_away_and_estimated_when_it_is_back(
    world: World,
) -> None:
    """What pended when it went may pend on, or not: nobody tells before."""
    Cluster.objects.update(kubernetes={"in_cluster": True})
    WatchCoverage.objects.update(end=START)
    world.hour(held={"vision": 6.0})
    world.waits("speech", 2.0, START, None, cause="unrecorded")
    compute_hours(now=NOW)
    assert _told(world.gold) == ("missing", False, 0.0)
    WatchCoverage.objects.create(cluster=world.cluster, start=START + 2 * HOUR, end=NOW)
    compute_hours(now=NOW)
    assert _told(world.gold) == ("complete", False, 8.0)
    assert told(START, "demand")["speech"] == {"demand": 2.0}


def test_demand_is_unknown_until_the_pods_of_series_are_in_the_pending_history(
    world: World,
) -> None:
    _without_watch(world)
    make_pod(make_workload(world.cluster, "vision", "train"), created_at=START, source="metrics")
    assert compute_hours(now=NOW) == 1
    assert _told(world.gold)[0] == "missing"
    assert due_hours(now=NOW + 3 * DAY / 4) == []
    refresh(world.cluster.pk, now=NOW, diagnose=lambda _: ())
    assert due_hours(now=NOW + 3 * DAY / 4) == [START]
    assert compute_hours(now=NOW) == 1
    assert _told(world.gold)[0] == "complete"
    assert due_hours(now=NOW) == []


def test_an_hour_is_due_again_when_its_watch_is_written_late(world: World) -> None:
    WatchCoverage.objects.update(end=START + HALF)
    world.hour(held={"vision": 3.0})
    assert compute_hours(now=NOW) == 1
    assert _told(world.gold)[1] is False
    assert due_hours(now=NOW) == []
    WatchCoverage.objects.update(end=START + HOUR)
    assert due_hours(now=NOW) == [START]
    assert compute_hours(now=NOW) == 1
    assert _told(world.gold)[1] is True
    assert due_hours(now=NOW) == []


def test_a_watch_written_after_days_is_seen_when_all_is_looked_through(world: World) -> None:
    WatchCoverage.objects.update(end=START + HALF)
    world.hour(held={"vision": 3.0})
    compute_hours(now=NOW)
    WatchCoverage.objects.update(end=START + HOUR)
    assert due_hours(now=NOW + DAY) == [START]


def test_an_hour_of_which_it_was_not_noted_who_watched_is_due(world: World) -> None:
    world.hour(held={"vision": 3.0})
    compute_hours(now=NOW)
    FairnessWindow.objects.update(watch="")
    assert due_hours(now=NOW) == [START]


def test_reading_an_hour_takes_as_many_queries_for_many_tiers_and_clusters(
    world: World, django_assert_max_num_queries: DjangoAssertNumQueries
) -> None:
    _claims(world)
    for number in range(5):
        world.hour(held={"vision": 1.0}, cluster=make_cluster(f"east-{number}"))
    with django_assert_max_num_queries(17):
        read_hour(Window.hour(START))
