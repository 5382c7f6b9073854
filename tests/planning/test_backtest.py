"""What a backtest compares: queue times, unmet and allocated GPU-hours."""

from apps.planning.domain.cluster_replay.backtest import ALL_TIERS, WorkTimes, tier_times
from tests.planning.scenario_backtest import backtest


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


def test_a_day_of_openb_allocates_what_it_did() -> None:
    """Queue times of openb come from no lack of room: its waits are not replayed."""
    real, played = backtest("openb", days=1)
    expected, found = (sums[ALL_TIERS].allocated_gpu_hours for sums in (real, played))
    assert abs(found - expected) <= 0.1 * expected
