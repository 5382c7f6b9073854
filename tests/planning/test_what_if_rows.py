"""What would have been if: the ledger's work of a window replayed."""

from datetime import datetime
from typing import Any

import pytest
from pytest_django import DjangoAssertNumQueries

from apps.accounts.permissions import Visibility
from apps.clusters.domain.window import Window
from apps.clusters.models import NamespaceTeam, Pod, WatchCoverage
from apps.fairness.models import TierFairnessHour
from apps.fairness.selectors import fairness_rows
from apps.fairness.services import compute_hour, compute_hours
from apps.pending.models import Episode
from apps.pending.services import refresh
from apps.planning.domain.replay import AddGpus, ChangeImpossible, Entitle, MoveGpus, MoveWork
from apps.planning.selectors import (
    CapacityUnknown,
    OutcomeRow,
    TierOutcomeRow,
    TooMuchToReplay,
    what_if,
)
from apps.planning.selectors.what_if import ReplayLimits
from tests.factories import (
    make_cluster,
    make_gpus,
    make_pod,
    make_team,
    make_tier,
    make_workload,
    note_collection,
)
from tests.fairness.ledger import DAY, HOUR, START, World, make_world
from tests.shared_rows import copy_of, shared

NOW = START + 52 * HOUR
WINDOW = Window(START + 20 * HOUR, START + 52 * HOUR)
OUTSIDER = Visibility(everything=False)


def make_pods() -> World:
    """Make a world of 32 hours and the pods behind them: speech's second waits for a ninth GPU.

    Vision holds 7 of 8, speech 1; it wants 1 more for 10 hours, and 1 from the last hour on.
    """
    world = make_world()
    world.entitle("robotics", 0.0, weight=0.0)
    for number in range(20, 52):
        world.hour(START + number * HOUR, held={"vision": 7.0, "speech": 1.0})
    world.waits("speech", 1.0, START + 40 * HOUR, START + 50 * HOUR)
    world.waits("speech", 1.0, START + 51 * HOUR, None)
    compute_hours(now=NOW, at_most=100)
    node_gpus = make_gpus(world.cluster, "n1", world.gold)
    train = make_workload(world.cluster, "vision", "train")
    notes = make_workload(world.cluster, "speech", "train")
    make_pod(train, "big", created_at=START, node_gpus=node_gpus, units=7.0)
    make_pod(notes, "small", created_at=START, node_gpus=node_gpus, units=1.0)
    late = Episode.objects.get(since=START + 40 * HOUR)
    values: dict[str, Any] = {"tier": world.gold, "node_name": "n1", "units": 1.0}
    make_pod(
        notes,
        "late",
        created_at=late.since,
        bound_at=late.until,
        ended_at=START + 55 * HOUR,
        **values,
    )
    open_one = Episode.objects.get(until__isnull=True)
    make_pod(notes, "asks", uid=open_one.uid, created_at=open_one.since)
    return world


_pods = shared(make_pods)
pods = copy_of("_pods")


def of_team(tier: TierOutcomeRow, name: str) -> OutcomeRow:
    return next(row for row in tier.teams if row.team == name)


def test_what_if_replays_the_ledger_before_and_after(pods: World) -> None:
    report = what_if(WINDOW, [AddGpus("gold", 2)], visibility=OUTSIDER)
    (before,), (after,) = report.before, report.after
    assert report.summary == ("+2 GPUs in gold",)
    assert (before.capacity_gpu_hours, after.capacity_gpu_hours) == (256.0, 320.0)
    rows = {row.team: row for row in before.teams}
    assert list(rows) == ["robotics", "speech", "vision"]
    # All 8 GPUs are held, so that the later two of speech wait to the end.
    assert (rows["speech"].waits_ended, rows["speech"].waiting_now) == (0, 2)
    assert rows["speech"].denied_gpu_hours == 13.0
    then = {row.team: row for row in after.teams}
    assert (then["speech"].waits_ended, then["speech"].waiting_now) == (2, 0)
    assert then["speech"].wait_p95_seconds == 0.0
    assert (then["speech"].denied_gpu_hours, after.denied_gpu_hours) == (0.0, 0.0)
    assert any("Nothing is preempted" in text for text in report.assumptions)


def test_what_if_tries_other_entitlements(pods: World) -> None:
    report = what_if(WINDOW, [Entitle("speech", "gold", 1.0)], visibility=OUTSIDER)
    ((before,), (after,)) = report.before, report.after
    entitled = [
        next(row.entitlement_gpu_hours for row in tier.teams if row.team == "speech")
        for tier in (before, after)
    ]
    assert entitled == [128.0, 32.0]


def test_pods_of_a_namespace_that_moved_are_of_whose_it_was_then(pods: World) -> None:
    NamespaceTeam.objects.filter(team__name="speech").update(valid_to=START + 50 * HOUR)
    make_team("robotics", "speech", since=START + 50 * HOUR)
    (before,) = what_if(WINDOW, [], visibility=OUTSIDER).before
    waiting = {row.team: row.waiting_now for row in before.teams}
    assert waiting == {"robotics": 1, "speech": 1, "vision": 0}


def test_what_if_refuses_what_it_cannot_do(pods: World) -> None:
    with pytest.raises(ChangeImpossible, match="no tier"):
        what_if(WINDOW, [AddGpus("platinum", 1)], visibility=OUTSIDER)
    with pytest.raises(TooMuchToReplay, match="31 days are replayed: choose a shorter window"):
        what_if(Window(START, START + 32 * DAY), [], visibility=OUTSIDER)


def test_what_if_takes_a_known_number_of_queries(
    pods: World, django_assert_max_num_queries: DjangoAssertNumQueries
) -> None:
    with django_assert_max_num_queries(13):
        what_if(WINDOW, [], visibility=OUTSIDER)


def test_only_tiers_that_a_change_concerns_are_told(pods: World) -> None:
    make_tier("silver", position=1)
    assert [row.tier for row in what_if(WINDOW, [], visibility=OUTSIDER).before] == ["gold"]
    report = what_if(WINDOW, [MoveGpus(2, "gold", "silver")], visibility=OUTSIDER)
    assert [row.tier for row in report.before] == ["gold", "silver"]
    # Nobody had anything of it in hours of which all else is known: that is no capacity.
    assert [row.capacity_gpu_hours for row in report.before] == [256.0, 0.0]
    assert [row.capacity_gpu_hours for row in report.after] == [192.0, 64.0]


def test_work_that_moves_asks_in_the_other_tier(pods: World) -> None:
    make_tier("silver", position=1)
    move = MoveWork("speech", "gold", "silver", 1.0)
    report = what_if(WINDOW, [AddGpus("silver", 2), move], visibility=OUTSIDER)
    gold, silver = report.after
    assert of_team(gold, "speech").waiting_now == 0
    assert (of_team(silver, "speech").waits_ended, of_team(silver, "speech").waiting_now) == (2, 0)
    assert any("Work that moves to another tier" in text for text in report.assumptions)


# ---------------------------------------------------------------- what is not known


@pytest.mark.parametrize("all_hours", [True, False], ids=["hours without facts", "no hours"])
def test_a_tier_of_which_no_hour_is_known_is_not_taken_for_empty(
    pods: World, *, all_hours: bool
) -> None:
    if all_hours:
        TierFairnessHour.objects.update(state="missing", capacity=0)
    else:
        TierFairnessHour.objects.all().delete()
    with pytest.raises(CapacityUnknown, match="No data on the capacity of gold in this window"):
        what_if(WINDOW, [AddGpus("gold", 2)], visibility=OUTSIDER)
    assert what_if(WINDOW, [], visibility=OUTSIDER).before == ()


# ---------------------------------------------------------------- clusters that are gone


def retired(world: World, facts: list[datetime]) -> None:
    """Make a cluster that was taken out of the catalog while a pod of speech held a GPU."""
    gone = make_cluster("gone")
    node_gpus = make_gpus(gone, "n9", world.gold)
    work = make_workload(gone, "speech", "train")
    make_pod(work, "forgotten", created_at=START, node_gpus=node_gpus, units=1.0)
    for hour in facts:
        note_collection(gone, hour, "complete", collected_at=hour + HOUR, coverage_ratio=1.0)
    gone.active = False
    gone.save()


def held_by_speech(window: Window = WINDOW) -> float:
    (before,) = what_if(window, [], visibility=OUTSIDER).before
    return of_team(before, "speech").allocated_gpu_hours


def test_pods_of_a_cluster_that_is_gone_hold_nothing_any_more(pods: World) -> None:
    without = held_by_speech()
    retired(pods, facts=[START])
    assert held_by_speech() == without == 32.0


def test_pods_of_a_cluster_that_went_within_the_window_held_until_then(pods: World) -> None:
    retired(pods, facts=[START + 20 * HOUR, START + 21 * HOUR])
    pods.hour(START + 20 * HOUR, held={"vision": 7.0, "speech": 2.0}, capacity=40.0)
    compute_hour(START + 20 * HOUR, now=NOW)
    # One more GPU runs the work of 5 hours that waited, and that of the last hour.
    assert held_by_speech() == 32.0 + 2.0 + 5.0 + 1.0


# ---------------------------------------------------------------- too much


@pytest.mark.parametrize(
    ("limits", "said"),
    [
        (ReplayLimits(pods=3), "More than 3 pods .* choose a shorter window"),
        (ReplayLimits(cells=3 * 48), "at most 1.0 days .* choose a shorter window"),
    ],
    ids=["pods", "teams and slots"],
)
def test_more_than_is_replayed_says_what_to_do(
    pods: World, limits: ReplayLimits, said: str
) -> None:
    with pytest.raises(TooMuchToReplay, match=said):
        what_if(WINDOW, [AddGpus("gold", 1)], visibility=OUTSIDER, limits=limits)


def test_as_much_as_is_replayed_at_most_is_replayed(pods: World) -> None:
    limits = ReplayLimits(pods=4, cells=3 * 64)
    assert what_if(WINDOW, [AddGpus("gold", 1)], visibility=OUTSIDER, limits=limits).before


def test_what_if_replays_the_demand_that_fairness_counts(pods: World) -> None:
    mend = {"cause": "affinity"}
    for number, (bound, values) in enumerate(((None, mend), (START + 50 * HOUR, mend))):
        one = pods.waits("vision", 1.0, START + 30 * HOUR, bound, **values)
        given = {"uid": one.uid, "created_at": one.since, "bound_at": bound, "tier": pods.gold}
        make_pod(one.workload, f"own-{number}", **given)
    (before,) = what_if(WINDOW, [], visibility=OUTSIDER).before
    vision = of_team(before, "vision")
    # Of the two only the one that was bound asks, and only from then on.
    assert (vision.waits_ended, vision.waiting_now) == (0, 1)
    assert vision.demand_gpu_hours == 7.0 * 32 + 1.0 * 2


def test_before_the_watch_what_if_and_fairness_deny_alike(pods: World) -> None:
    WatchCoverage.objects.all().delete()
    Episode.objects.all().delete()
    Pod.objects.filter(name="asks").delete()
    Pod.objects.update(source="metrics", unschedulable=True)
    refresh(pods.cluster.pk, now=NOW, diagnose=lambda _: ())
    compute_hours(now=NOW + DAY, at_most=100)
    window = Window(WINDOW.start, START + 50 * HOUR)
    (before,) = what_if(window, [], visibility=OUTSIDER).before
    (tier,) = fairness_rows(window, now=NOW, visibility=OUTSIDER)
    assert tier.hours.estimated == tier.hours.known == 30
    assert before.denied_gpu_hours == sum(team.denied_gpu_hours for team in tier.teams) == 10.0
