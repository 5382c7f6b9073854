"""Jobs that hold GPUs for nothing because their other pods wait."""

import pytest

from apps.pending.domain.day_sums import nearest_rank
from apps.pending.domain.queues.gangs import GangMember, find_partial_gangs
from apps.usage.domain.amounts import NANO

NOW = 7200.0


def holder(name: str, *, group: int = 1, bound: float = 0.0, busy: int = 0) -> GangMember:
    """Return a pod that holds 2 GPUs; where it was busy, 100 nano-GPU-hours were measured."""
    return GangMember(group, name, 2.0, bound, busy, 100 if busy else 0)


def test_what_holders_held_since_the_others_wait_was_for_nothing() -> None:
    holders = [holder("a"), holder("b", bound=5400.0)]
    (found,) = find_partial_gangs(holders, {1: 3600.0}, now=NOW, idle_below=0.1)
    assert [one.name for one in found.holding] == ["a", "b"]
    assert found.held == 2 * NANO + NANO
    assert (found.gpu_equivalents, found.utilization) == (4.0, None)


@pytest.mark.parametrize(
    ("holders", "since"),
    [
        pytest.param([holder("a")], {}, id="all hold"),
        pytest.param([], {1: 0.0}, id="all wait"),
        pytest.param([holder("a", busy=10)], {1: 0.0}, id="who holds is busy"),
        pytest.param([holder("a")], {2: 0.0}, id="of different jobs"),
    ],
)
def test_these_are_no_partial_gangs(holders: list[GangMember], since: dict[int, float]) -> None:
    assert find_partial_gangs(holders, since, now=NOW, idle_below=0.1) == []


def test_a_busy_holder_is_left_out_of_what_is_held_for_nothing() -> None:
    holders = [holder("a", busy=90), holder("b", busy=2)]
    (found,) = find_partial_gangs(holders, {1: 0.0}, now=NOW, idle_below=0.1)
    assert [one.name for one in found.holding] == ["b"]
    assert (found.held, found.utilization) == (4 * NANO, 0.02)


def test_who_holds_most_for_nothing_comes_first() -> None:
    holders = [holder("a", bound=3600.0), holder("b", group=2), holder("c", group=3)]
    found = find_partial_gangs(holders, {1: 0.0, 2: 0.0, 3: 0.0}, now=NOW, idle_below=0.1)
    assert [one.group for one in found] == [2, 3, 1]


@pytest.mark.parametrize(
    ("counts", "found"),
    [
        pytest.param({7.0: 1}, [7.0, 7.0], id="one"),
        pytest.param({1.0: 1, 2.0: 1}, [1.0, 2.0], id="two"),
        pytest.param({float(n): 1 for n in range(1, 21)}, [10.0, 19.0], id="twenty"),
        pytest.param({0.0: 95, 9.0: 5}, [0.0, 0.0], id="just enough"),
        pytest.param({0.0: 94, 9.0: 6}, [0.0, 9.0], id="just too few"),
    ],
)
def test_percentiles_are_real_waits(counts: dict[float, int], found: list[float]) -> None:
    assert nearest_rank(counts, (0.5, 0.95)) == found
