"""Who waited how long, counted once, and who waited at a moment of the past."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from pytest_django import DjangoAssertNumQueries

from apps.accounts.permissions import EVERYTHING
from apps.clusters.domain.window import Window
from apps.clusters.models import Cluster, WatchCoverage
from apps.fairness.domain.queue_times import QueueTimes
from apps.fairness.selectors import FairnessFilters, fairness_rows
from apps.fairness.selectors.objectives import dark_tiers, team_queue_times
from apps.fairness.services import compute_hour
from apps.pending.models import CauseInterval
from apps.usage.models import TierDay
from tests.factories import make_tier, make_workload
from tests.fairness.ledger import DAY, HOUR, START, World, make_world
from tests.pending.rows import make_episode
from tests.shared_rows import copy_of, shared

NOW = START + 3 * DAY
WINDOW = Window(START, START + DAY)
SECOND = timedelta(seconds=1)


_world = shared(make_world)
world = copy_of("_world")


def speech_in(world: World, window: Window = WINDOW) -> QueueTimes:
    found = team_queue_times(window, [world.gold.pk], now=NOW)
    return found.get((world.gold.pk, world.team("speech").pk), QueueTimes())


def held_back(world: World, **values: Any) -> None:
    """Make work that waited from the first to the third hour before it had any pod."""
    given = {"kind": "Workload", "counts": "suppressed", "outcome": "settled", **values}
    world.waits("speech", 4.0, START + HOUR, START + 3 * HOUR, **given)


@pytest.mark.parametrize("kind", ["Workload", "PodGroup", "Job", "ReplicaSet"])
def test_work_that_was_let_in_waited_once_and_its_pods_not_again(world: World, kind: str) -> None:
    held_back(world, kind=kind)
    for _ in range(4):
        world.waits("speech", 1.0, START + 3 * HOUR + SECOND, START + 3 * HOUR + 21 * SECOND)
    assert dict(speech_in(world).ended) == {7200.0: 1}
    assert speech_in(world).percentiles() == (7200.0, 7200.0)


def test_pods_of_other_work_and_of_later_wait_for_themselves(world: World) -> None:
    held_back(world)
    late = START + 3 * HOUR + timedelta(minutes=6)
    world.waits("speech", 1.0, late, late + 60 * SECOND)
    other = make_workload(world.cluster, "speech", "notebook")
    at = START + 3 * HOUR
    make_episode(other, since=at, until=at + 30 * SECOND, tier=world.gold)
    assert dict(speech_in(world).ended) == {7200.0: 1, 60.0: 1, 30.0: 1}


def test_pods_of_a_group_that_was_let_in_before_the_window_are_not_counted(world: World) -> None:
    held_back(world)
    world.waits("speech", 1.0, START + 3 * HOUR, START + 4 * HOUR)
    assert not speech_in(world, Window(START + 3 * HOUR + SECOND, START + DAY)).ended


@pytest.mark.parametrize(
    "values",
    [{"counts": "nothing", "counted": 0.0}, {"outcome": "gave_up"}, {"outcome": "refused"}],
    ids=["all its pods are there", "it gave up", "it was refused"],
)
def test_where_work_was_not_let_in_for_itself_its_pods_tell(
    world: World, values: dict[str, Any]
) -> None:
    held_back(world, **values)
    for _ in range(2):
        world.waits("speech", 1.0, START + 2 * HOUR, START + 3 * HOUR)
    assert dict(speech_in(world).ended) == {3600.0: 2}


def test_a_group_that_got_its_pods_before_they_ran_counts_from_its_beginning(world: World) -> None:
    intervals = [(START + HOUR, "queue", "suppressed"), (START + 2 * HOUR, "gang", "nothing")]
    held_back(world, kind="PodGroup", counts="nothing", intervals=intervals)
    world.waits("speech", 1.0, START + 2 * HOUR, START + 3 * HOUR)
    assert dict(speech_in(world).ended) == {7200.0: 1}


def test_who_waited_at_the_end_of_a_past_window_is_told_as_it_was_then(world: World) -> None:
    # Until the second day it waited for itself; since then it holds a node and only starts.
    marks = [(START + HOUR, "capacity", "pending"), (START + 30 * HOUR, "starting", "starting")]
    world.waits("speech", 1.0, START + HOUR, None, counts="starting", intervals=marks)
    assert speech_in(world).waiting_now == 1
    assert speech_in(world, Window(START, START + 31 * HOUR)).waiting_now == 0
    assert speech_in(world, Window(START, NOW + DAY)).waiting_now == 0


def test_what_did_not_count_then_and_does_now_is_not_told_of_the_past(world: World) -> None:
    marks = [(START + HOUR, "claim", "nothing"), (START + 30 * HOUR, "capacity", "pending")]
    world.waits("speech", 1.0, START + HOUR, None, intervals=marks)
    assert speech_in(world).waiting_now == 0
    assert speech_in(world, Window(START, NOW)).waiting_now == 1


def test_what_ended_at_the_end_of_a_window_did_not_wait_any_more(world: World) -> None:
    world.waits("speech", 1.0, START + HOUR, START + DAY)
    assert speech_in(world).waiting_now == 0
    assert speech_in(world, Window(START, START + DAY - SECOND)).waiting_now == 1


def test_what_was_seen_to_wait_last_long_ago_is_not_said_to_wait(world: World) -> None:
    world.waits("speech", 1.0, START + HOUR, None)
    world.waits("speech", 1.0, START + HOUR, START + 10 * DAY)
    WatchCoverage.objects.update(end=START + 20 * HOUR)
    assert speech_in(world, Window(START, START + 21 * HOUR)).waiting_now == 2
    assert speech_in(world, WINDOW).waiting_now == 1


def test_no_wait_is_told_of_a_tier_of_a_cluster_that_nobody_watches(world: World) -> None:
    silver = make_tier("silver", position=1)
    for tier in (world.gold, silver):
        world.hour(START + 19 * HOUR, held={"vision": 4.0, "speech": 1.0}, tier=tier)
    TierDay.objects.filter(tier=silver).update(day=(START - 20 * DAY).date())
    compute_hour(START + 19 * HOUR, now=NOW)
    world.waits("vision", 1.0, START + HOUR, START + 10 * DAY)
    world.waits("speech", 1.0, START + HOUR, None)
    assert waiting_now() == (False, {"vision": 1, "speech": 1})
    WatchCoverage.objects.update(end=START + 20 * HOUR)
    # Of vision's it is known that it waited longer; of speech nothing is known.
    assert waiting_now() == (True, {"vision": 1, "speech": None})
    assert not dark_tiers(WINDOW, [silver.pk], now=NOW)
    assert not dark_tiers(Window(START, START + 21 * HOUR), [world.gold.pk], now=NOW)


def test_a_cluster_that_left_the_catalog_hides_no_wait(world: World) -> None:
    world.hour(START + 19 * HOUR, held={"vision": 4.0})
    WatchCoverage.objects.update(end=START + 20 * HOUR)
    assert dark_tiers(WINDOW, [world.gold.pk], now=NOW) == {world.gold.pk}
    Cluster.objects.update(active=False)
    assert not dark_tiers(WINDOW, [world.gold.pk], now=NOW)


def waiting_now() -> tuple[bool, dict[str, int | None]]:
    (gold,) = fairness_rows(
        WINDOW, now=NOW, visibility=EVERYTHING, filters=FairnessFilters(tier=("gold",))
    )
    return gold.dark, {row.team: row.waiting_now for row in gold.teams}


@pytest.mark.skipif(
    connection.vendor != "sqlite", reason="counts the steps of SQLite's virtual machine"
)
def test_the_work_of_a_read_grows_with_the_pods_of_a_workload_not_with_their_square(
    world: World,
) -> None:
    held_back(world)
    steps = []
    for _ in range(2):
        for _ in range(150):
            world.waits("speech", 1.0, START + 5 * HOUR, START + 6 * HOUR)
        steps.append(steps_of(lambda: speech_in(world)))
    assert steps[1] < 2.5 * steps[0]
    assert dict(speech_in(world).ended) == {7200.0: 1, 3600.0: 300}


def steps_of(read: Callable[[], object]) -> int:
    """Return how many hundreds of steps the database took."""
    count = 0

    def step() -> int:
        nonlocal count
        count += 1
        return 0

    connection.connection.set_progress_handler(step, 100)
    read()
    connection.connection.set_progress_handler(None, 0)
    return count


def test_waits_take_a_known_number_of_queries(
    world: World, django_assert_max_num_queries: DjangoAssertNumQueries
) -> None:
    held_back(world)
    assert CauseInterval.objects.exists()
    with django_assert_max_num_queries(10):
        speech_in(world)
