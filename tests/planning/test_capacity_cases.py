"""Buy, return, move, share or keep: what outlooks of tiers speak for."""

from datetime import UTC, datetime, timedelta

import pytest

from apps.accounts.domain.structs import replace
from apps.planning.domain.capacity_cases import (
    BookedGpus,
    CapacityCase,
    CaseAction,
    SizePoint,
    TierOutlook,
    booked_by_day,
    capacity_cases,
    replay_size,
    sizes_to_replay,
    with_typical_runs,
)
from apps.planning.domain.forecast import Forecast
from apps.planning.domain.replay import ReplayWork, TierPlan


def size(gpus: float, unmet: float, demand: float = 1000.0) -> SizePoint:
    return SizePoint(gpus, demand, demand - unmet, unmet, 60.0)


def outlook(tier: str = "a100", capacity: float = 16.0, **more: object) -> TierOutlook:
    known = TierOutlook(
        tier=tier,
        first_day="2025-10-01",
        demand=(10.0,),
        capacity=(capacity,),
        capacity_now=capacity,
        gpu_models=("A100",),
        sizes=tuple(size(gpus, 0.0) for gpus in sizes_to_replay(capacity)),
        forecast=level(capacity - 1, capacity, capacity + 1),
    )
    return replace(known, **more)  # type: ignore[arg-type]


def level(low: float, middle: float, high: float) -> Forecast:
    return Forecast((low,) * 14, (middle,) * 14, (high,) * 14, None)


def sized(capacity: float, unmet: dict[float, float]) -> tuple[SizePoint, ...]:
    return tuple(size(gpus, unmet.get(gpus, 0.0)) for gpus in sorted({capacity, *unmet}))


def actions(cases: list[CapacityCase]) -> list[tuple[str, CaseAction, int, str]]:
    return [(one.tier, one.action, one.gpus, one.to_tier) for one in cases]


def test_a_tier_that_meets_forecast_and_demand_is_kept() -> None:
    assert actions(capacity_cases([outlook()])) == [("a100", CaseAction.KEEP, 0, "")]


def test_a_forecast_above_capacity_is_bought() -> None:
    found = capacity_cases([outlook(forecast=level(15, 18.2, 22))])
    assert actions(found) == [("a100", CaseAction.BUY, 3, "")]


def test_pending_work_buys_the_smallest_size_that_meets_nine_tenths() -> None:
    sizes = sized(16.0, {16.0: 100.0, 18.0: 40.0, 20.0: 9.0, 24.0: 0.0})
    (case,) = capacity_cases([outlook(sizes=sizes)])
    assert (case.action, case.gpus) == (CaseAction.BUY, 4)
    assert (case.before, case.after) == (sizes[0], sizes[2])


def test_where_no_size_is_enough_the_largest_is_bought() -> None:
    sizes = sized(16.0, {16.0: 100.0, 20.0: 60.0, 32.0: 50.0})
    assert capacity_cases([outlook(sizes=sizes)])[0].gpus == 16
    alone = sized(16.0, {16.0: 100.0})
    assert actions(capacity_cases([outlook(sizes=alone)])) == [("a100", CaseAction.KEEP, 0, "")]


def test_a_booking_keeps_gpus_and_buys_none() -> None:
    idle = outlook(forecast=level(7, 8, 9), sizes=sized(16.0, {8.0: 0.0, 10.0: 0.0, 12.0: 0.0}))
    assert actions(capacity_cases([idle])) == [("a100", CaseAction.RETURN, 6, "")]
    booked = replace(idle, booked=(0.0, 4.0, *(0.0,) * 12))
    assert booked.booked_peak == 12
    assert actions(capacity_cases([booked])) == [("a100", CaseAction.RETURN, 4, "")]
    full = replace(idle, booked=(9.0,) * 14)
    assert actions(capacity_cases([full])) == [("a100", CaseAction.KEEP, 0, "")]


def test_bookings_are_a_mean_of_each_day() -> None:
    days = [datetime(2025, 10, day, tzinfo=UTC) for day in (1, 2, 3, 4)]
    bookings = [
        BookedGpus(4.0, days[0] - timedelta(days=9), days[1] + timedelta(hours=6)),
        BookedGpus(2.0, days[1], days[2]),
    ]
    assert booked_by_day(bookings, days) == (4.0, 3.0, 0.0)


def test_little_pending_work_buys_nothing() -> None:
    sizes = sized(16.0, {16.0: 9.0, 20.0: 0.0})
    assert capacity_cases([outlook(sizes=sizes)])[0].action is CaseAction.KEEP


def test_what_neither_forecast_nor_replay_needs_is_returned() -> None:
    sizes = sized(16.0, {8.0: 500.0, 12.0: 5.0, 14.0: 0.0, 16.0: 0.0})
    (case,) = capacity_cases([outlook(forecast=level(6, 8, 11), sizes=sizes)])
    assert (case.action, case.gpus, case.after) == (CaseAction.RETURN, 4, sizes[1])
    (none,) = capacity_cases([outlook(forecast=level(6, 8, 15), sizes=sizes)])
    assert none.action is CaseAction.KEEP


def test_gpus_of_the_same_model_move_before_any_are_bought() -> None:
    spare = outlook("spare", sizes=sized(16.0, {12.0: 0.0, 16.0: 0.0}), forecast=level(2, 4, 6))
    short = outlook("short", forecast=level(16, 22, 26))
    found = capacity_cases([spare, short])
    assert actions(found) == [
        ("spare", CaseAction.MOVE, 4, "short"),
        ("short", CaseAction.BUY, 2, ""),
    ]
    enough = capacity_cases([spare, replace(short, forecast=level(16, 18, 20))])
    assert actions(enough) == [
        ("spare", CaseAction.MOVE, 2, "short"),
        ("spare", CaseAction.RETURN, 2, ""),
    ]
    other = capacity_cases([replace(spare, gpu_models=("T4",)), short])
    assert [one.action for one in other] == [CaseAction.RETURN, CaseAction.BUY]


def test_allocated_gpus_that_are_not_active_are_shared_first() -> None:
    found = capacity_cases([outlook(forecast=level(16, 22, 26), unused=3.7)])
    assert actions(found) == [
        ("a100", CaseAction.SHARE, 3, ""),
        ("a100", CaseAction.BUY, 3, ""),
    ]
    (enough,) = capacity_cases([outlook(forecast=level(16, 22, 26), unused=50.0)])
    assert (enough.action, enough.gpus) == (CaseAction.SHARE, 6)


@pytest.mark.parametrize(
    "unknown",
    [
        pytest.param(outlook(forecast=None), id="days"),
        pytest.param(outlook(sizes=()), id="replay"),
    ],
)
def test_too_little_known_is_no_reason_to_keep(unknown: TierOutlook) -> None:
    assert capacity_cases([unknown]) == []


def test_without_a_forecast_pending_work_still_buys() -> None:
    sizes = sized(16.0, {16.0: 100.0, 20.0: 0.0})
    found = capacity_cases([outlook(forecast=None, sizes=sizes)])
    assert actions(found) == [("a100", CaseAction.BUY, 4, "")]


@pytest.mark.parametrize(
    ("capacity", "sizes"),
    [
        (1.0, [1.0, 2.0]),
        (2.0, [1.0, 2.0, 3.0, 4.0]),
        (100.0, [50.0, 75.0, 90.0, 95.0, 100.0, 105.0, 110.0, 125.0, 150.0, 200.0]),
    ],
)
def test_sizes_are_whole_gpus_up_to_twice_as_many(capacity: float, sizes: list[float]) -> None:
    assert sizes_to_replay(capacity) == sizes


def test_a_size_counts_all_pending_work_also_what_never_fits() -> None:
    works = [
        ReplayWork("vision", "a100", 2.0, 0.0, runs_seconds=7200.0, running=True),
        ReplayWork("vision", "a100", 2.0, 0.0, runs_seconds=3600.0),
        ReplayWork("vision", "a100", 4.0, 3600.0, leaves_at=7200.0),
        ReplayWork("vision", "a100", 1.0, 0.0, runs_seconds=1800.0, of_queue=True),
    ]
    plan = TierPlan(2.0, {})
    small = replay_size(works, plan, 2.0, start=0.0, end=4 * 3600.0)
    # Two GPUs run for two hours, then the two that waited as long, then the queue's half hour.
    assert small.allocated_gpu_hours == pytest.approx(2 * 2 + 2 * 1 + 0.5)
    assert small.unmet_gpu_hours == pytest.approx(2 * 2 + 4 * 1 + 1 * 3)
    assert small.demand_gpu_hours == pytest.approx(
        small.allocated_gpu_hours + small.unmet_gpu_hours
    )
    assert small.p95_seconds == 7200.0
    large = replay_size(works, plan, 9.0, start=0.0, end=4 * 3600.0)
    assert (large.unmet_gpu_hours, large.p95_seconds) == (0.0, 0.0)


def test_a_tier_without_work_has_no_queue_time() -> None:
    assert replay_size([], TierPlan(2.0, {}), 2.0, start=0.0, end=3600.0).p95_seconds is None


def test_canceled_work_runs_as_the_median_does() -> None:
    ran = [ReplayWork("vision", "a100", 1.0, 0.0, runs_seconds=s) for s in (60.0, 600.0, 6000.0)]
    canceled = ReplayWork("vision", "a100", 1.0, 0.0, leaves_at=30.0)
    lasting = ReplayWork("vision", "a100", 1.0, 0.0)
    found = with_typical_runs([*ran, canceled, lasting])
    assert [work.runs_seconds for work in found] == [60.0, 600.0, 6000.0, 600.0, None]
    assert with_typical_runs([canceled]) == [canceled]
