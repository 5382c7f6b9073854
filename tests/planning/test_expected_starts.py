"""Queue times by replays forward: draws, states, and ranges held against earlier ones."""

from random import Random
from typing import Any

import pytest

from apps.planning.domain.cluster_replay.backtest import WorkTimes
from apps.planning.domain.cluster_replay.inputs import ReplayCluster, ReplayPolicy
from apps.planning.domain.expected_starts import (
    DAY,
    HORIZON,
    PastWork,
    RunHistory,
    TierForecaster,
    of_tier,
    tier_state,
)
from apps.planning.domain.queue_time_ranges import (
    ForecastRow,
    PastForecast,
    forecast,
    row_for,
)
from apps.planning.domain.recorded.works import WorkLife
from tests.planning.clusters import TIER, node, pool, work

NOW = 20 * DAY
HOUR = 3600.0


def past(
    asked: float, started: float | None, ended: float | None, units: float = 8, **more: Any
) -> PastWork:
    family = more.pop("family", "vision/Job/train-*")
    times = WorkTimes(TIER, units, asked, started, ended)
    return PastWork(work(asked, units, **more), WorkLife("u", family, times, nodes=("n0",)))


HISTORY = [
    past(NOW - 10 * DAY, NOW - 10 * DAY, NOW - 10 * DAY + hours * HOUR) for hours in range(1, 7)
]


def drawn_by(seed: int) -> Random:
    return Random(seed)  # noqa: S311 - no secret


def test_what_runs_goes_on_as_long_as_its_family_did_that_ran_so_long() -> None:
    runs = RunHistory(HISTORY, NOW)
    life = HISTORY[0].life
    drawn = {runs.left(life, 0.5 * HOUR, drawn_by(n)) / HOUR for n in range(99)}
    assert drawn == {0.5, 1.5, 2.5, 3.5, 4.5, 5.5}
    # Fewer than five have run for two hours: as long again.
    assert runs.left(life, 2 * HOUR, drawn_by(0)) == 2 * HOUR
    # Another family draws from its tier; and what was not over yet was not known.
    other = life._replace(family="speech/Job/other")
    assert runs.left(other, 0.0, drawn_by(0)) / HOUR in range(1, 7)
    assert RunHistory(HISTORY, NOW - 10 * DAY).left(life, 0.0, drawn_by(0)) == 60.0
    assert RunHistory([past(0, None, 5)], NOW).left(life, 90.0, drawn_by(0)) == 90.0


def test_a_state_has_what_was_known_then() -> None:
    works = [
        *HISTORY,
        past(NOW - DAY, NOW - DAY, None),
        past(NOW - DAY, NOW - DAY, NOW - HOUR),
        past(NOW - HOUR, NOW + HOUR, None),
        past(NOW - HOUR, None, NOW - 60),
        past(NOW, NOW, None),
    ]
    found = tier_state(works, NOW)
    assert [list(part) for part in (found.running, found.pending)] == [[works[6]], [works[8]]]
    assert found.earlier == works[6:10]


def test_waits_are_until_something_ends_and_repeat() -> None:
    cluster = pool(8)
    running = past(NOW - 0.5 * HOUR, NOW - 0.5 * HOUR, None)
    one = TierForecaster(cluster, [*HISTORY, running], ReplayPolicy(), samples=20)
    waits = one.waits(work(NOW, 8), NOW)
    assert waits == one.waits(work(NOW, 8), NOW)
    assert waits != one.waits(work(NOW, 8), NOW, seed=1)
    assert {wait / HOUR for wait in waits} <= {0.5, 1.5, 2.5, 3.5, 4.5, 5.5}
    assert one.waits(work(NOW, 9), NOW) == [HORIZON] * 20


def test_what_is_told_is_between_replays_and_what_was_usual() -> None:
    cluster, asked = pool(8), work(NOW, 8)
    queued = past(NOW - 2 * DAY, NOW - 2 * DAY + HOUR, NOW - DAY)
    free = TierForecaster(cluster, HISTORY, ReplayPolicy()).estimate(asked, NOW)
    assert free == (30.0, 1.0)
    usual = TierForecaster(cluster, [*HISTORY, queued], ReplayPolicy()).estimate(asked, NOW)
    assert usual.expected == pytest.approx((30.0 * HOUR) ** 0.5)


def test_who_is_pending_comes_first_and_what_came_before_may_come_again() -> None:
    ahead = past(NOW - HOUR, None, None)
    came = [past(NOW - back * DAY + 60, NOW - back * DAY + 60, NOW - back * DAY + HOUR, priority=9)
            for back in range(7, 0, -1)]  # fmt: skip
    one = TierForecaster(pool(8), [*HISTORY, *came, ahead], ReplayPolicy(), samples=10)
    waits = one.waits(work(NOW, 8), NOW)
    # It waits for the one ahead and, by its priority, for what comes after a minute.
    assert min(waits) > HOUR


def test_a_tier_has_the_nodes_that_offer_it() -> None:
    cluster = ReplayCluster((node("a"), node("b", tier="other")))
    assert [one.name for one in of_tier(cluster, TIER).nodes] == ["a"]


PAST = [PastForecast(TIER, 600.0, 600.0 * ratio / 10) for ratio in range(1, 41)]


def test_a_range_is_the_replayed_median_times_the_ratios_of_work_told_alike() -> None:
    found = forecast(TIER, 1200.0, 0.0, PAST)
    assert found is not None
    assert found.starts_now == 0.0
    assert found.queued == found.any
    assert [round(value) for value in found.queued] == [480, 2520, 4440]


def test_what_may_start_now_has_a_range_that_begins_there() -> None:
    found = forecast(TIER, 30.0, 0.5, PAST)
    assert found is not None
    assert (found.starts_now, found.any[:2]) == (0.5, (0.0, 0.0))
    assert found.any[2] > 60
    sure = forecast(TIER, 30.0, 1.0, PAST)
    assert sure is not None
    assert sure.any == (0.0, 0.0, 0.0)


def test_other_tiers_count_where_the_own_has_too_little() -> None:
    others = [PastForecast("other", 600.0, 60_000.0)] * 100
    own = [PastForecast(TIER, 600.0, 600.0)] * 60
    found = forecast(TIER, 600.0, 0.0, [*others, *own])
    assert found is not None
    assert found.queued == pytest.approx((600.0, 600.0, 600.0))


def test_without_earlier_forecasts_there_is_no_range() -> None:
    assert forecast(TIER, 600.0, 0.0, PAST[:29]) is None


def row(units: float, tier: str = TIER, queue: str = "q") -> ForecastRow:
    return ForecastRow(tier, queue, units, (1, 2, 3), (1, 2, 3), 0.0)


@pytest.mark.parametrize(
    ("units", "chosen"), [(2.0, 2.0), (3.0, 4.0), (9.0, 8.0)], ids=["same", "next", "largest"]
)
def test_the_size_is_the_next_larger_one(units: float, chosen: float) -> None:
    rows = [row(1), row(2), row(4), row(8), row(3, tier="x"), row(3, queue="y")]
    found = row_for(rows, TIER, "q", units)
    assert found is not None
    assert found.units == chosen
    assert row_for(rows, TIER, "none", units) is None
