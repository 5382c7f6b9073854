"""Queue-time objectives: what counts as missed, what is left of the budget, and when it burns."""

from datetime import datetime, timedelta

import pytest
from pytest_django import DjangoAssertNumQueries

from apps.accounts.permissions import EVERYTHING
from apps.clusters.models import WatchCoverage
from apps.fairness.domain.objectives import (
    RULES,
    SPANS,
    Burn,
    WorkCounts,
    burn_of,
    rise_of,
    summed_spans,
)
from apps.fairness.models import QueueTimeObjective
from apps.fairness.selectors import ObjectiveRow, queue_time_objectives, rising_queue_times
from apps.fairness.services import compute_hour
from tests.factories import BEGINNING, make_tier, make_workload
from tests.fairness.ledger import DAY, HOUR, START, World, make_world
from tests.pending.rows import make_episode
from tests.shared_rows import copy_of, shared

MONTH = 28 * DAY
MINUTE = timedelta(minutes=1)
NOW = START + 3 * DAY


def burning(**missed: tuple[int, int]) -> Burn:
    """Return the burn by (total, missed) of spans, as `h1` or `m5`; of others nothing is known."""
    units = {"m": MINUTE, "h": HOUR, "d": DAY}
    named = {units[name[0]] * int(name[1:]): WorkCounts(*both) for name, both in missed.items()}
    return burn_of({span: named.get(span, WorkCounts()) for span in SPANS}, MONTH)


@pytest.mark.parametrize(
    ("counts", "burn"),
    [
        pytest.param({}, Burn.NONE, id="no work is no burn"),
        # 13.44 × 5 % = 67.2 % of an hour's work.
        pytest.param({"h1": (100, 68), "m5": (10, 7)}, Burn.FAST, id="fast over an hour"),
        pytest.param({"h1": (100, 67), "m5": (10, 7)}, Burn.NONE, id="just below"),
        pytest.param({"h1": (100, 68), "m5": (10, 6)}, Burn.NONE, id="over by now"),
        pytest.param({"h1": (100, 68)}, Burn.NONE, id="nothing in the short window"),
        pytest.param({"h1": (2, 2), "m5": (2, 2)}, Burn.NONE, id="too few pieces of work"),
        # 5.6 × 5 % = 28 %, 1 × 5 % = 5 %.
        pytest.param({"h6": (100, 29), "m30": (10, 3)}, Burn.FAST, id="fast over six hours"),
        pytest.param({"d3": (100, 5), "h6": (20, 1)}, Burn.SLOW, id="slow over three days"),
        pytest.param(
            {"d3": (100, 70), "h6": (50, 40), "m30": (10, 9)}, Burn.FAST, id="the more urgent"
        ),
    ],
)
def test_a_budget_burns_where_both_windows_of_a_rule_do(
    counts: dict[str, tuple[int, int]], burn: Burn
) -> None:
    assert burning(**counts) is burn


def test_burn_rates_follow_from_the_share_of_the_budget_as_in_the_workbook() -> None:
    # Its table is of 30 days: 14.4, 6 and 1.
    assert [rule.threshold(30 * DAY) for rule in RULES] == pytest.approx([14.4, 6.0, 1.0])
    assert [rule.threshold(7 * DAY) for rule in RULES] == pytest.approx([3.36, 1.4, 1.0])


def test_the_counts_of_a_band_are_in_every_span_that_is_not_shorter() -> None:
    found = summed_spans([(HOUR, WorkCounts(4, 1)), (3 * DAY, WorkCounts(8, 2))])
    assert found[HOUR] == found[6 * HOUR] == WorkCounts(4, 1)
    assert found[3 * DAY] == WorkCounts(12, 3)
    assert found[30 * MINUTE] == WorkCounts()
    assert summed_spans([(31 * DAY, WorkCounts(9, 9))])[3 * DAY] == WorkCounts()


def test_counts_without_work_have_no_attainment() -> None:
    assert (WorkCounts().attainment, WorkCounts().burn_rate, WorkCounts().budget_left) == (
        *(None, None, None),
    )
    half = WorkCounts(40, 1)
    assert half.attainment == 0.975
    assert half.budget_left == pytest.approx(0.5)
    assert WorkCounts(10, 1).budget_left == pytest.approx(-1.0)


@pytest.mark.parametrize(
    ("now", "before", "rise"),
    [
        pytest.param({3600.0: 10}, {1800.0: 10}, 2.0, id="twice as long"),
        pytest.param({1800.0: 10}, {1.0: 10}, 0.0, id="within half an hour"),
        pytest.param({3600.0: 9}, {1800.0: 10}, None, id="too little work now"),
        pytest.param({3600.0: 10}, {}, None, id="none before"),
        pytest.param({3600.0: 10}, {0.0: 10}, 3600.0, id="no wait before"),
    ],
)
def test_a_rise_is_of_enough_work_that_waits_for_long(
    now: dict[float, int], before: dict[float, int], rise: float | None
) -> None:
    assert rise_of(now, before) == rise


_world = shared(make_world)
world = copy_of("_world")


def aim(world: World, seconds: int = 1800, days: int = 7, **span: datetime) -> QueueTimeObjective:
    return QueueTimeObjective.objects.create(
        tier=world.gold,
        p95_seconds=seconds,
        days=days,
        **{"valid_from": BEGINNING, **span},
    )


def row_of(at: datetime = NOW, since: datetime | None = None) -> ObjectiveRow:
    (found,) = queue_time_objectives(at, since=since, visibility=EVERYTHING)
    return found


def waited(world: World, minutes: int, until: datetime, **values: object) -> None:
    world.waits("speech", 1.0, until - minutes * MINUTE, until, **values)


def test_a_tier_without_objective_has_no_row(
    world: World, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    waited(world, 5, NOW - HOUR)
    with django_assert_num_queries(1):
        assert queue_time_objectives(NOW, visibility=EVERYTHING) == ()


def test_work_within_its_queue_time_is_met_and_no_work_is_no_attainment(world: World) -> None:
    aim(world)
    nothing = row_of()
    assert (nothing.total, nothing.attainment_ratio, nothing.met) == (0, None, None)
    assert (nothing.budget_left_ratio, nothing.burn_rate_3d, nothing.burn) == (None, None, "")
    waited(world, 30, NOW - HOUR)
    waited(world, 31, NOW - HOUR)
    # Before the window, and of another tier.
    waited(world, 300, NOW - 8 * DAY)
    waited(world, 300, NOW - HOUR, tier=make_tier("other", position=2))
    row = row_of()
    assert (row.total, row.missed, row.attainment_ratio) == (2, 1, 0.5)
    assert row.budget_left_ratio == pytest.approx(-9.0)
    assert (row.start, row.end, row.met) == (NOW - 7 * DAY, NOW, False)
    assert row.burn_rate_3d == row.burn_rate_6h == pytest.approx(10.0)


def test_work_that_is_still_pending_is_missed_once_it_is_older(world: World) -> None:
    aim(world)
    world.waits("speech", 1.0, NOW - 29 * MINUTE, None)
    assert row_of().total == 0
    for _ in range(3):
        world.waits("speech", 1.0, NOW - 31 * MINUTE, None)
    row = row_of()
    assert (row.total, row.missed, row.missed_pending) == (3, 3, 3)
    # It is missed now, so every window burns.
    assert row.burn == Burn.FAST
    assert row.burn_rate_1h == pytest.approx(20.0)
    # Of a moment of the past what was pending then.
    assert row_of(NOW - HOUR).total == 0


def test_work_that_was_canceled_is_missed_where_it_had_waited_longer(world: World) -> None:
    aim(world)
    waited(world, 10, NOW - HOUR, outcome="gave_up")
    waited(world, 40, NOW - HOUR, outcome="gave_up")
    waited(world, 40, NOW - HOUR, outcome="gave_up", counts="nothing")
    row = row_of()
    assert (row.total, row.missed, row.missed_pending) == (1, 1, 0)


def test_work_counts_by_the_objective_of_its_moment(world: World) -> None:
    change = NOW - DAY
    aim(world, 3600, valid_from=NOW - 3 * DAY, valid_to=change)
    aim(world, 600, valid_from=change)
    waited(world, 30, change - HOUR)
    waited(world, 30, change + HOUR)
    # No objective held then.
    waited(world, 90, NOW - 4 * DAY)
    row = row_of()
    assert (row.p95_seconds, row.total, row.missed) == (600, 2, 1)
    assert row.start == NOW - 3 * DAY


def test_an_objective_that_ended_has_no_row_and_a_month_its_own_window(world: World) -> None:
    aim(world, valid_to=NOW - HOUR)
    assert queue_time_objectives(NOW, visibility=EVERYTHING) == ()
    waited(world, 5, NOW - 2 * HOUR)
    waited(world, 50, NOW - 20 * DAY)
    row = row_of(NOW - HOUR, since=NOW - 30 * DAY)
    assert (row.total, row.missed, row.start) == (2, 1, NOW - 30 * DAY)


def test_hours_before_the_watch_are_called_estimated(world: World) -> None:
    aim(world)
    WatchCoverage.objects.update(start=NOW - 2 * HOUR)
    for number in (4, 1):
        at = NOW - number * HOUR
        world.hour(at, {"speech": 1.0})
        compute_hour(at, now=at + 4 * HOUR)
    assert row_of().estimated_until == NOW - 3 * HOUR


def test_where_pending_work_is_not_known_the_missed_is_the_least(world: World) -> None:
    aim(world)
    world.hour(NOW - 2 * DAY, {"speech": 1.0})
    assert row_of().complete
    WatchCoverage.objects.update(end=NOW - 5 * HOUR)
    assert not row_of().complete


def test_the_number_of_queries_does_not_grow(
    world: World, django_assert_max_num_queries: DjangoAssertNumQueries
) -> None:
    for number in range(5):
        tier = make_tier(f"tier-{number}", position=number)
        QueueTimeObjective.objects.create(tier=tier, p95_seconds=60, days=28, valid_from=BEGINNING)
        for place in range(4):
            waited(world, 2 * place, NOW - HOUR, tier=tier)
            world.waits("speech", 1.0, NOW - HOUR, None, tier=tier)
    world.waits("speech", 1.0, NOW - 3 * HOUR, NOW - HOUR, kind="Workload", counts="suppressed",
                outcome="settled")  # fmt: skip
    with django_assert_max_num_queries(12):
        assert len(queue_time_objectives(NOW, visibility=EVERYTHING)) == 5
    with django_assert_max_num_queries(7):
        rising_queue_times(NOW, visibility=EVERYTHING)


def test_queue_times_of_training_on_whole_gpus_rise(world: World) -> None:
    for number in range(10):
        waited(world, 40, NOW - 3 * DAY - number * HOUR)
        waited(world, 120, NOW - number * HOUR - MINUTE)
    service = make_workload(world.cluster, "speech", "chat", kind="Deployment")
    for _ in range(9):
        make_episode(service, since=NOW - 20 * HOUR, until=NOW - HOUR, tier=world.gold)
    (found,) = rising_queue_times(NOW, visibility=EVERYTHING)
    assert (found.tier, found.rise) == ("gold", 3.0)
