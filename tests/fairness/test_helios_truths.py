"""The whole Helios trace, minute by minute, against the published figures of its data.

One tier, each team entitled to its quota. Figures of fairness with all their digits are those of
docs/definitions.md#fairness, the others are the data's own truths.
"""

from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pytest

from apps.fairness.domain.measures import FairnessSums, Measured, TierSlots, integrate, measure
from apps.fairness.domain.shares import Array
from tests.fairness.tiers import helios
from tests.simulator.truths import truths

_FIRST = datetime(2020, 5, 1, tzinfo=UTC)
_ROUNDED = 5.1e-7
"""The truths are rounded to six decimals."""


@pytest.fixture(scope="module")
def measured() -> Measured:
    return measure(helios()[1])


@pytest.fixture(scope="module")
def sums(measured: Measured) -> FairnessSums:
    return integrate(measured)


@pytest.fixture(scope="module")
def cluster() -> Any:
    return truths()["cluster"]


def _minute(text: str) -> int:
    at = datetime.strptime(text, "%Y-%m-%d %H:%M").replace(tzinfo=UTC)
    return (at - _FIRST) // timedelta(minutes=1)


def _peak(values: Array) -> tuple[str, float]:
    """Return the first minute of the maximum, and the maximum."""
    at = int(values.argmax())
    return f"{_FIRST + timedelta(minutes=at):%Y-%m-%d %H:%M}", float(values[at])


def test_fairness_index_is_the_published_one_by_either_definition(
    sums: FairnessSums, cluster: Any
) -> None:
    published = cluster["jain_over_vcs_of_allocation_ratio"]
    assert sums.jain_allocation_ratio == pytest.approx(published, abs=_ROUNDED)
    assert sums.jain_allocation_ratio == pytest.approx(0.793167, abs=_ROUNDED)
    assert sums.jain_index == pytest.approx(0.995274, abs=_ROUNDED)


def test_denied_and_borrowable_hours_are_the_published_ones(
    sums: FairnessSums, cluster: Any
) -> None:
    assert sums.denied.sum() == pytest.approx(32_096.067, abs=5.1e-4)
    assert sums.borrowable == pytest.approx(32_034.450, abs=1e-6)
    assert sums.borrowable == pytest.approx(cluster["borrowable_gpu_hours"], abs=1e-6)


def test_capacity_and_allocated_hours_are_the_published_ones(
    sums: FairnessSums, cluster: Any
) -> None:
    assert sums.capacity == pytest.approx(cluster["capacity_gpus"] * cluster["minutes"] / 60)
    allocated = sums.allocated.sum()
    assert allocated == pytest.approx(cluster["allocated_gpu_hours"], abs=_ROUNDED)
    ratio = allocated / sums.capacity
    assert ratio == pytest.approx(cluster["allocation_ratio"], abs=_ROUNDED)


def test_nobody_borrows_where_running_is_clamped_to_the_quota(sums: FairnessSums) -> None:
    assert sums.borrowed.sum() == sums.lent.sum() == sums.from_pool == sums.overdrawn == 0


@pytest.mark.parametrize("team", truths()["vc"])
def test_sums_of_a_team_are_the_published_ones(sums: FairnessSums, team: str) -> None:
    teams, slots, _ = helios()
    i, expected = teams.index(team), truths()["vc"][team]
    unheld = sums.entitlement[i] - sums.allocated[i]
    pending = slots.pending[:, i].sum() / 60
    assert sums.allocated[i] == pytest.approx(expected["allocated_gpu_hours"], abs=_ROUNDED)
    assert unheld == pytest.approx(expected["idle_gpu_hours"], abs=_ROUNDED)
    assert pending == pytest.approx(expected["pending_gpu_hours"], abs=_ROUNDED)
    ratio = sums.allocated[i] / sums.entitlement[i]
    assert ratio == pytest.approx(expected["allocation_ratio"], abs=_ROUNDED)
    assert slots.held[:, i].max() == expected["peak_running_gpus"]
    assert slots.pending[:, i].max() == expected["peak_pending_gpus"]


def test_peaks_are_the_published_ones(cluster: Any) -> None:
    _, slots, jobs = helios()
    held, pending, waiting = (a.sum(axis=1) for a in (slots.held, slots.pending, jobs))
    for name, values, most in (
        ("peak_running", held, "peak_running_gpus"),
        ("peak_pending", pending, "peak_pending_gpus"),
        ("peak_pending_gpu_jobs", waiting, "peak_pending_gpu_jobs"),
    ):
        assert _peak(values) == (cluster[f"{name}_first_time"], cluster[most])
    unheld = slots.capacity - held
    assert pending[held.argmax()] == cluster["pending_gpus_at_peak_running"]
    assert unheld[pending.argmax()] == cluster["idle_gpus_at_peak_pending"]
    assert int((pending > 0).sum()) == cluster["minutes_with_pending"]


@pytest.mark.parametrize("day", truths()["daily"])
def test_days_are_the_published_ones(day: str) -> None:
    _, slots, _ = helios()
    first, expected = _minute(f"{day} 00:00"), truths()["daily"][day]
    held = slots.held[first : first + 1440].sum(axis=1)
    pending = slots.pending[first : first + 1440].sum(axis=1)
    assert held.mean() == pytest.approx(expected["mean_running_gpus"], abs=_ROUNDED)
    assert held.mean() / 856 == pytest.approx(expected["allocation_ratio"], abs=_ROUNDED)
    assert pending.max() == expected["max_pending_gpus"]


@pytest.mark.parametrize("time", truths()["snapshots"])
def test_snapshots_are_the_published_ones(time: str) -> None:
    teams, slots, jobs = helios()
    at = _minute(time)
    columns = [slots.held[at], (slots.entitlement - slots.held)[at], slots.pending[at], jobs[at]]
    found = {team: [column[i] for column in columns] for i, team in enumerate(teams)}
    assert found == truths()["snapshots"][time]


def test_at_the_peak_of_pending_all_that_nobody_holds_is_denied(measured: Measured) -> None:
    minute = _minute(truths()["cluster"]["peak_pending_first_time"])
    assert measured.fair_share[minute].sum() == pytest.approx(856)
    assert measured.denied[minute].sum() == pytest.approx(155)


def test_half_hours_say_nearly_the_same(sums: FairnessSums) -> None:
    # The portal has means over half hours, in which what was asked for and what was free at
    # different minutes meet.
    _, slots, _ = helios()

    def halves(values: Array) -> Array:
        means: Array = values.reshape(-1, 30, *values.shape[1:]).mean(axis=1)
        return means

    coarse = integrate(
        measure(
            TierSlots(
                hours=np.full(24 * 48, 0.5),
                capacity=halves(slots.capacity),
                entitlement=halves(slots.entitlement),
                weight=halves(slots.weight),
                held=halves(slots.held),
                pending=halves(slots.pending),
            )
        )
    )
    assert coarse.allocated == pytest.approx(sums.allocated)
    assert coarse.denied.sum() == pytest.approx(sums.denied.sum(), rel=0.01)
    assert coarse.jain_index == pytest.approx(sums.jain_index, abs=0.001)
