"""What a backtest compares: queue times, unmet and allocated GPU-hours."""

from pathlib import Path

import pytest

from apps.planning.domain.cluster_replay.backtest import (
    ALL_TIERS,
    RecordedSpan,
    WorkTimes,
    backtest,
    nearest_packing,
    replayed_times,
    tier_times,
)
from apps.planning.domain.cluster_replay.engine import replay_cluster
from apps.planning.domain.cluster_replay.inputs import (
    ClosedSpan,
    Packing,
    ReplayAssumption,
    ReplayCluster,
    ReplayPolicy,
)
from tests.planning.clusters import TIER, node, pool, queue, work
from tests.planning.scenario_backtest import (
    AS_STARTED,
    AS_STARTED_TOLERANCE,
    HELD,
    TOLERANCE,
    as_started,
    differences,
    recorded_backtest,
)


def test_sums_are_of_the_window_and_waits_of_what_started_in_it() -> None:
    hour = 3600.0
    works = [
        WorkTimes("a", 2, 0, hour, 3 * hour),
        WorkTimes("a", 1, hour, None, 2 * hour),
        WorkTimes("a", 4, -hour, -hour, None, running=True),
        WorkTimes("b", 1, 3 * hour, None, None),
        WorkTimes("b", 1, 3 * hour, 9 * hour, None),
    ]
    found = tier_times(works, start=0, end=4 * hour)
    sums = {key: (own.unmet_gpu_hours, own.allocated_gpu_hours) for key, own in found.items()}
    assert sums == {"a": (3, 20), "b": (2, 0), ALL_TIERS: (5, 20)}
    assert found["a"].percentiles() == (hour, hour)
    assert found["b"].percentiles() == (None, None)


def test_what_ran_before_and_lost_its_room_is_unmet_and_has_no_queue_time() -> None:
    hour = 3600.0
    works = [
        WorkTimes("a", 4, -hour, 2 * hour, None, running=True),
        WorkTimes("a", 1, -hour, None, None, running=True, delay=hour),
    ]
    own = tier_times(works, start=0, end=4 * hour)["a"]
    assert (own.unmet_gpu_hours, own.allocated_gpu_hours, own.delayed_gpu_hours) == (12, 8, 0)
    assert own.percentiles() == (None, None)


def test_time_between_the_runs_of_preempted_work_is_unmet_and_not_allocated() -> None:
    asked = [
        work(0, 8, runs=100.0, queue="low"),
        work(10, 8, runs=50.0, queue="low", priority=1),
        # Preempted by the second, and never started again.
        work(200, 8, runs=100.0, queue="low"),
        work(210, 8, runs=None, queue="low", priority=1),
    ]
    cluster = pool(8, queues=(queue("low", 8, preempts_own=True),))
    happened = [WorkTimes(TIER, one.units, one.asked_at, None, None) for one in asked]
    found = replay_cluster(asked, cluster, ReplayPolicy(), start=0, end=300)
    times = replayed_times(found.played, happened, end=300.0)
    assert [one.preempted for one in times] == [50, 0, 90, 0]
    own = tier_times(times, start=0, end=300)[TIER]
    # Held: 10 and 100 of the first, 50, 10 and 90.
    assert own.allocated_gpu_hours * 3600 == 8 * 260
    assert own.unmet_gpu_hours * 3600 == 8 * 140


def test_a_preempted_service_that_is_scaled_down_is_pending_no_longer() -> None:
    asked = [
        work(0, 8, runs=None, queue="low", ends_at=60.0),
        work(10, 8, runs=None, queue="low", priority=1),
    ]
    cluster = pool(8, queues=(queue("low", 8, preempts_own=True),))
    found = replay_cluster(asked, cluster, ReplayPolicy(), start=0, end=300)
    assert found.played[0].ended_at == 60
    happened = [WorkTimes(TIER, one.units, one.asked_at, None, None) for one in asked]
    assert replayed_times(found.played, happened, end=300.0)[0].preempted == 50


def test_what_no_replay_can_know_is_in_no_sum_that_is_compared() -> None:
    hour = 3600.0
    works = [
        WorkTimes("a", 2, 0, 3 * hour, None, delay=hour),
        # It was held up for as long as it was pending, and was canceled.
        WorkTimes("a", 1, 0, None, 2 * hour, delay=2 * hour),
    ]
    own = tier_times(works, start=0, end=4 * hour)["a"]
    assert (own.unmet_gpu_hours, own.delayed_gpu_hours) == (4, 4)
    assert own.percentiles() == (2 * hour, 2 * hour)


def test_a_replay_with_nothing_changed_is_compared_tier_by_tier() -> None:
    works = [work(0, 8), work(50, 4), work(60, 9, tier="other", leaves_at=500.0, runs=None)]
    happened = [
        WorkTimes(TIER, 8, 0, 0, 100),
        WorkTimes(TIER, 4, 50, 100, 200),
        WorkTimes("other", 9, 60, None, 500),
    ]
    found = backtest(RecordedSpan(works, happened, pool(8), 0, 1000), Packing.PACK)
    assert [row.tier for row in found.rows] == [ALL_TIERS, TIER, "other"]
    assert all(row.happened == row.replayed for row in found.rows)
    assert found.rows[1].happened.p95_seconds == 50
    assert ReplayAssumption.SAME_DEMAND in found.assumptions


def test_packing_or_spreading_is_read_off_what_happened() -> None:
    # Packed, the large one fits beside the small ones; spread, it never does.
    works = [work(0, 1, runs=900.0), work(0, 1, runs=900.0), work(10, 8, runs=900.0)]

    def found(start: float | None) -> Packing | None:
        small = WorkTimes(TIER, 1, 0, 0, 900)
        large = WorkTimes(TIER, 8, 10, start, None if start is None else 910)
        return nearest_packing(RecordedSpan(works, [small, small, large], pool(8, 8), 0, 1000))

    assert (found(10), found(None)) == (Packing.PACK, Packing.SPREAD)
    assert nearest_packing(RecordedSpan([], [], pool(8), 0, 1000)) is None


def test_work_in_line_as_it_started_is_replayed_as_it_was() -> None:
    """The later of two came first, on a node that takes no pods: no replay could know that."""
    works = [work(at, 8, nodes=("n",)) for at in (0, 10, 20)]
    happened = [
        WorkTimes(TIER, 8, 0, 0, 100),
        WorkTimes(TIER, 8, 10, 200, 300),
        WorkTimes(TIER, 8, 20, 100, 200),
    ]
    closed = (ClosedSpan(90, 150), ClosedSpan(800, 900))
    span = RecordedSpan(works, happened, ReplayCluster((node("n", closed=closed),)), 0, 1000)
    plain = backtest(span, Packing.PACK).rows[0]
    assert plain.replayed.p95_seconds != plain.happened.p95_seconds
    told = as_started(span)
    assert told.cluster.nodes[0].closed == closed[1:]
    row = backtest(told, Packing.PACK).rows[0]
    assert row.happened == row.replayed


def test_without_work_there_is_nothing_to_compare() -> None:
    assert backtest(RecordedSpan([], [], pool(8), 0, 1000), Packing.PACK).rows == ()


@pytest.mark.django_db
def test_a_day_of_openb_allocates_what_it_did() -> None:
    """Queue times of openb come from no lack of room: its waits are not replayed."""
    sums = recorded_backtest("openb", days=1).rows[0]
    assert list(differences("openb", sums)) == []
    assert list(differences("campus", sums)) != []


OF_ROWS = {
    "allocated GPU-hours": ("allocated_gpu_hours",),
    "unmet GPU-hours": ("unmet_gpu_hours",),
    "p50 and p95 queue time": ("p50_seconds", "p95_seconds"),
}


def test_the_document_says_which_sums_are_held_and_how_closely() -> None:
    text = (Path(__file__).parents[2] / "docs" / "definitions.md").read_text(encoding="utf-8")
    rows = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| ")]
    told = {row[0]: row[1:] for row in rows if len(row) == 4 and row[0] in OF_ROWS}
    for row, fields in OF_ROWS.items():
        for name, cell in zip(("openb", "campus", "campus-from-series"), told[row], strict=True):
            is_held = set(fields) <= set(HELD[name])
            close = f"; {AS_STARTED_TOLERANCE:.0%} given both" if name in AS_STARTED else ""
            held = f"{TOLERANCE:.0%}{close}" if is_held else "not held"
            assert cell == held.replace("%", " %")
