"""An hour's fairness from facts, entitlements and pending work; the numbers are worked out by
hand.
"""

from datetime import timedelta
from typing import Any

import pytest
from pytest_django import DjangoAssertNumQueries

from apps.clusters.models import Cluster, NamespaceTeam, Tier, WatchCoverage
from apps.fairness.models import FairnessDay, LoanHour, TeamFairnessHour, TierFairnessHour
from apps.fairness.services import HourForgotten, compute_hour
from apps.pending.domain.placement.node_search import NONE_OFFERED
from apps.pending.models import CauseInterval
from apps.quotas.models import Entitlement
from apps.usage.models import TeamHour, TierDay, TierHour
from tests.factories import make_cluster, make_team, make_tier, note_collection
from tests.fairness.ledger import DAY, HALF, HOUR, START, World, make_world, tier_told, told
from tests.shared_rows import copy_of, shared

NOW = START + 2 * HOUR
ALL = (
    *("entitlement", "weight", "demand", "fair_share", "allocated", "borrowed", "lent", "denied"),
    *("from_pool", "overdrawn", "idle"),
)


_world = shared(make_world)
world = copy_of("_world")


def test_an_hour_is_judged_as_the_measures_say(world: World) -> None:
    # Vision holds 6 of 8 GPUs, 2 above its own; speech holds 1 and asks for 2 more of its 4.
    world.hour(held={"vision": 6.0, "speech": 1.0}, idle={"vision": 2.5})
    world.waits("speech", 2.0, START, NOW)
    assert compute_hour(START, now=NOW) == 2
    assert told(START, *ALL) == {
        "vision": {
            "entitlement": 4.0,
            "weight": 4.0,
            "demand": 6.0,
            "fair_share": 5.0,
            "allocated": 6.0,
            "borrowed": 2.0,
            "overdrawn": 1.0,
            "idle": 2.5,
        },
        "speech": {
            "entitlement": 4.0,
            "weight": 4.0,
            "demand": 3.0,
            "fair_share": 3.0,
            "allocated": 1.0,
            "lent": 1.0,
            "denied": 2.0,
        },
    }
    assert tier_told() == {
        "state": "complete",
        "watched": True,
        "capacity": 8.0,
        "overdrawn": 1.0,
    }
    loan = LoanHour.objects.get()
    assert (loan.lender.name, loan.borrower.name, loan.amount) == ("speech", "vision", 10**9)


def test_halves_of_an_hour_are_judged_by_themselves(world: World) -> None:
    # Over the hour vision held 4 on average, as much as it is entitled to.
    world.hour(held={"vision": (8.0, 0.0), "speech": (0.0, 4.0)})
    compute_hour(START, now=NOW)
    assert told(START, "borrowed", "lent", "allocated") == {
        "speech": {"allocated": 2.0, "lent": 2.0},
        "vision": {"allocated": 4.0, "borrowed": 2.0},
    }


def test_what_joins_in_mid_hour_counts_from_then(world: World) -> None:
    world.hour(held={"vision": (4.0, 4.0)}, capacity=(4.0, 8.0))
    compute_hour(START, now=NOW)
    assert tier_told()["capacity"] == 6.0
    assert told(START, "allocated", "fair_share")["vision"] == {"allocated": 4.0, "fair_share": 4.0}


def test_facts_without_halves_are_spread_evenly(world: World) -> None:
    world.hour(held={"vision": (0.0, 6.0)}, capacity=(0.0, 8.0))
    TierHour.objects.update(capacity_first=None)
    TeamHour.objects.update(allocated_first=None)
    compute_hour(START, now=NOW)
    # 3 GPU-hours of an hour in which nothing is said of its first half: 3 GPUs throughout.
    assert told(START, "allocated", "borrowed")["vision"] == {"allocated": 3.0}


def test_a_tier_that_came_in_the_second_half_had_nothing_in_the_first(world: World) -> None:
    world.hour(held={"vision": (0.0, 6.0)}, capacity=(0.0, 8.0))
    compute_hour(START, now=NOW)
    # 6 GPUs for half an hour, 2 of them above its own.
    assert told(START, "allocated", "borrowed")["vision"] == {"allocated": 3.0, "borrowed": 1.0}


def test_one_cluster_without_halves_leaves_those_of_another_as_they_are(world: World) -> None:
    east = make_cluster("east")
    world.hour(held={"vision": (0.0, 6.0)})
    world.hour(held={"vision": (4.0, 0.0)}, cluster=east)
    TeamHour.objects.filter(cluster=east).update(allocated_first=None)
    compute_hour(START, now=NOW)
    # 2 and 8 GPUs in the halves: 4 above its own in the second.
    assert told(START, "allocated", "borrowed")["vision"] == {"allocated": 5.0, "borrowed": 2.0}


def test_an_entitlement_that_changes_in_mid_slot_makes_two_of_it(world: World) -> None:
    at = START + HALF / 2
    Entitlement.objects.filter(team__name="vision").update(valid_to=at)
    world.entitle("vision", 8.0, since=at)
    world.hour(held={"vision": 6.0})
    compute_hour(START, now=NOW)
    assert told(START, "entitlement", "borrowed", "allocated")["vision"] == {
        "entitlement": 7.0,
        "borrowed": 0.5,
        "allocated": 6.0,
    }
    # While vision had 4 to itself it borrowed 2, which speech did not ask for.
    assert told(START, "lent")["speech"] == {"lent": 0.5}


def test_an_entitlement_that_begins_in_mid_hour_was_none_before(world: World) -> None:
    world.entitle("robotics", 2.0, since=START + HALF, until=START + HALF + HALF / 3)
    world.hour(held={})
    compute_hour(START, now=NOW)
    assert told(START, "entitlement")["robotics"] == {"entitlement": pytest.approx(1 / 3)}


def test_weights_steer_what_is_left(world: World) -> None:
    Entitlement.objects.update(gpus=0.0)
    Entitlement.objects.filter(team__name="vision").update(weight=12.0)
    world.hour(held={"vision": 4.0, "speech": 4.0})
    world.waits("vision", 8.0, START, None)
    world.waits("speech", 8.0, START, None)
    compute_hour(START, now=NOW)
    shares = {team: row["fair_share"] for team, row in told(START, "fair_share").items()}
    assert shares == {"vision": 6.0, "speech": 2.0}


def test_a_namespace_that_moves_takes_its_waits_along(world: World) -> None:
    at = START + HALF / 2
    NamespaceTeam.objects.filter(team__name="speech").update(valid_to=at)
    make_team("vision", "speech", since=at)
    world.hour(held={})
    world.waits("speech", 2.0, START, NOW)
    compute_hour(START, now=NOW)
    assert told(START, "demand") == {"speech": {"demand": 0.5}, "vision": {"demand": 1.5}}


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        pytest.param({}, 2.0, id="pods that nobody has room for"),
        pytest.param({"cause": "quota", "counts": "suppressed"}, 2.0, id="work refused by a quota"),
        pytest.param({"cause": "affinity"}, 0.0, id="an affinity is the asker's to mend"),
        pytest.param({"cause": "other"}, 0.0, id="nobody saw what it waited for"),
        pytest.param({"counts": "nothing"}, 0.0, id="what others stand for"),
        pytest.param({"counts": "starting"}, 0.0, id="what is bound"),
        pytest.param({"tier": None}, 0.0, id="several tiers could serve it"),
        pytest.param({"units": 50.0}, 8.0, id="no more than there is"),
        pytest.param({"units": 4.0, "counted": 1.0}, 1.0, id="what counts once"),
    ],
)
def test_pending_work_counts_as_demand(
    world: World, values: dict[str, Any], expected: float
) -> None:
    world.hour(held={})
    given = {"units": 2.0, **values}
    world.waits("speech", given.pop("units"), START, NOW, **given)
    compute_hour(START, now=NOW)
    assert told(START, "demand")["speech"].get("demand", 0.0) == expected


def test_pending_work_for_an_undetermined_tier_belongs_to_none(world: World) -> None:
    world.hour(held={})
    world.waits("speech", 2.0, START, NOW, tier=Tier.objects.get(name="undetermined"))
    compute_hour(START, now=NOW)
    assert told(START, "demand")["speech"] == {}
    assert TierFairnessHour.objects.count() == 1


def test_what_no_node_offers_raises_nobodys_share(world: World) -> None:
    world.hour(held={})
    world.waits("speech", 2.0, START, NOW)
    CauseInterval.objects.update(detail=NONE_OFFERED)
    compute_hour(START, now=NOW)
    assert told(START, "demand", "denied")["speech"] == {}


def test_a_wait_counts_as_long_as_it_lasted_in_each_half(world: World) -> None:
    world.hour(held={"vision": (8.0, 4.0)})
    world.waits("speech", 4.0, START - HOUR, START + HALF / 2)
    compute_hour(START, now=NOW)
    # 2 GPUs on average in the first half, when nothing was free.
    assert told(START, "demand", "denied")["speech"] == {"demand": 1.0, "denied": 1.0}


def test_clusters_are_one_tier_together(world: World) -> None:
    east = make_cluster("east")
    world.hour(held={"vision": 3.0}, capacity=4.0)
    world.hour(held={"vision": 3.0}, capacity=4.0, cluster=east)
    compute_hour(START, now=NOW)
    assert told(START, "allocated", "borrowed")["vision"] == {"allocated": 6.0, "borrowed": 2.0}
    assert tier_told() == {"state": "complete", "watched": False, "capacity": 8.0}


def test_a_tier_of_which_a_cluster_is_missing_is_not_judged(world: World) -> None:
    east, silver = make_cluster("east"), make_tier("silver", position=1)
    world.hour(START - HOUR, held={"vision": 3.0}, cluster=east)
    world.hour(held={"vision": 3.0})
    world.hour(held={"vision": 1.0}, tier=silver)
    world.hour(held={}, cluster=east, state="failed")
    compute_hour(START, now=NOW)
    assert tier_told() == {"state": "missing", "watched": False}
    row = TeamFairnessHour.objects.get()
    assert (row.tier, row.allocated) == (silver, 10**9)


def test_partial_facts_are_judged_and_said_to_be_so(world: World) -> None:
    world.hour(held={"vision": 3.0}, state="partial")
    compute_hour(START, now=NOW)
    assert tier_told()["state"] == "partial"
    assert told(START, "allocated")["vision"] == {"allocated": 3.0}


def test_an_hour_that_was_watched_in_part_is_not_watched(world: World) -> None:
    WatchCoverage.objects.update(end=START + HALF)
    world.hour(held={})
    compute_hour(START, now=NOW)
    assert tier_told()["watched"] is False


@pytest.mark.parametrize(
    ("gap", "watched"), [(90, True), (91, False)], ids=["soon", "after a while"]
)
@pytest.mark.parametrize(
    "ended", [-60, 0, 600, 3540, 3600], ids=lambda seconds: f"{seconds} s after it began"
)
def test_a_watch_that_is_taken_up_again_soon_saw_all_of_the_hour(
    world: World, ended: int, gap: int, watched: bool
) -> None:
    end = START + timedelta(seconds=ended)
    start = end + timedelta(seconds=gap)
    within = end < START + HOUR and start > START
    WatchCoverage.objects.update(end=end)
    WatchCoverage.objects.create(cluster=world.cluster, start=start, end=START + DAY)
    world.hour(held={})
    compute_hour(START, now=NOW)
    assert tier_told()["watched"] is (watched or not within)


def test_spans_of_two_clusters_do_not_make_one(world: World) -> None:
    WatchCoverage.objects.update(end=START + HALF)
    WatchCoverage.objects.create(cluster=make_cluster("east"), start=START + HALF, end=START + DAY)
    world.hour(held={})
    compute_hour(START, now=NOW)
    assert tier_told()["watched"] is False


def test_a_cluster_that_is_out_for_weeks_still_has_its_tiers(world: World) -> None:
    east = make_cluster("east")
    world.hour(START - 40 * DAY, held={"vision": 3.0}, cluster=east)
    world.hour(START - 30 * DAY, tier=make_tier("silver", position=1), cluster=east)
    world.hour(START - 30 * DAY, held={"vision": 3.0}, cluster=east)
    TierDay.objects.filter(day__lt=(START - 35 * DAY).date()).update(
        tier=make_tier("bronze", position=2)
    )
    world.hour(held={"vision": 3.0})
    note_collection(east, START, "failed")
    compute_hour(START, now=NOW)
    states = dict(TierFairnessHour.objects.values_list("tier__name", "state"))
    # What it had longer ago than its last day is not known to be there any more.
    assert states == {"gold": "missing", "silver": "missing"}


def test_a_cluster_that_left_the_catalog_is_not_missed(world: World) -> None:
    east = make_cluster("east", active=False)
    world.hour(START - 30 * DAY, held={"vision": 3.0}, cluster=east)
    world.hour(held={"vision": 3.0})
    compute_hour(START, now=NOW)
    assert tier_told()["state"] == "complete"


@pytest.mark.parametrize("active", [True, False], ids=["of the catalog", "that left it"])
def test_pending_work_in_a_cluster_waits_no_longer_than_it_was_watched(
    world: World, active: bool
) -> None:
    Cluster.objects.update(active=active, kubernetes={"server": "https://west.example"})
    WatchCoverage.objects.update(end=START + HALF)
    world.hour(held={})
    world.hour(START + HOUR, held={})
    world.waits("speech", 2.0, START - HOUR, None)
    for hour in (START, START + HOUR):
        compute_hour(hour, now=NOW)
    if active:
        # Whether it waits on is not known before the watch is back: of no hour since.
        assert {tier_told(hour)["state"] for hour in (START, START + HOUR)} == {"missing"}
        return
    assert told(START, "demand")["speech"] == {"demand": 1.0}
    assert told(START + HOUR, "demand")["speech"] == {}


def test_pending_work_where_nobody_can_watch_waits_until_the_last_collected_hour(
    world: World,
) -> None:
    WatchCoverage.objects.all().delete()
    east = make_cluster("east")
    world.hour(held={})
    world.hour(START + HOUR, held={}, cluster=east)
    world.waits("speech", 2.0, START - HOUR, None)
    for hour in (START, START + HOUR):
        compute_hour(hour, now=NOW)
    assert told(START, "demand")["speech"] == {"demand": 2.0}
    assert told(START + HOUR, "demand")["speech"] == {}


def rows() -> list[object]:
    found: list[object] = []
    for model, keys in (
        (TeamFairnessHour, ("hour", "tier", "team", *ALL)),
        (TierFairnessHour, ("hour", "tier", "state", "watched", "capacity", "borrowable")),
        (LoanHour, ("hour", "tier", "lender", "borrower", "amount")),
    ):
        found += model._default_manager.order_by(*keys[:3], "pk").values_list(*keys)
    return found


def test_hours_in_any_order_and_again_are_the_same(world: World) -> None:
    hours = [START + number * HOUR for number in range(3)]
    for number, hour in enumerate(hours):
        world.hour(hour, held={"vision": 5.0 + number / 3, "speech": 1.0})
    world.waits("speech", 1.0, START + HALF / 3, START + 5 * HALF)
    for hour in hours:
        compute_hour(hour, now=NOW)
    before = rows()
    for hour in (*reversed(hours), hours[1]):
        compute_hour(hour, now=NOW + HOUR)
    assert rows() == before
    assert len(before) == 12


def test_what_is_gone_from_the_facts_is_gone_here(world: World) -> None:
    world.hour(held={"vision": 5.0, "robotics": 1.0})
    compute_hour(START, now=NOW)
    world.hour(held={"vision": 5.0})
    compute_hour(START, now=NOW)
    assert set(told()) == {"vision", "speech"}


def test_an_hour_whose_day_was_forgotten_stays_as_it_is(world: World) -> None:
    world.hour(held={"vision": 5.0})
    compute_hour(START, now=NOW)
    FairnessDay.objects.update(pruned=True, rolled=True)
    with pytest.raises(HourForgotten, match="2026-11-16"):
        compute_hour(START, now=NOW)
    assert TeamFairnessHour.objects.count() == 2


def test_an_hour_that_is_none_is_refused(db: None) -> None:
    with pytest.raises(ValueError, match="an hour of facts"):
        compute_hour(START + HALF / 3, now=NOW)


def test_an_hour_takes_few_queries_however_much_there_is(
    world: World, django_assert_max_num_queries: DjangoAssertNumQueries
) -> None:
    for number in range(30):
        world.entitle(f"team-{number}", 1.0)
        world.waits(f"team-{number}", 1.0, START, None)
    world.hour(held={f"team-{number}": 1.0 for number in range(8)})
    compute_hour(START, now=NOW)
    with django_assert_max_num_queries(35):
        compute_hour(START, now=NOW)


def test_a_tier_without_any_team_is_computed(db: None) -> None:
    world = make_world()
    silver = make_tier("silver", position=1)
    world.hour(tier=silver)
    compute_hour(START, now=START + 4 * HOUR)
    assert TierFairnessHour.objects.get(hour=START, tier=silver).capacity == 8_000_000_000
