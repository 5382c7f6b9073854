"""Jobs that hold GPUs for nothing because their other pods wait."""

import pytest

from apps.pending.domain.gangs import Member, partial_gangs
from apps.pending.domain.history import nearest_rank
from apps.usage.domain.amounts import NANO

NOW = 7200.0


def member(uid: str, **values: object) -> Member:
    return Member(**{"group": 1, "uid": uid, "gpu_equivalents": 2.0, "created": 0.0, **values})  # type: ignore[arg-type]


def test_what_holders_held_since_the_others_wait_was_for_nothing() -> None:
    members = [
        member("a", bound=0.0, started=1.0),
        member("b", bound=5400.0, started=None),
        member("c", created=3600.0),
    ]
    (found,) = partial_gangs(members, now=NOW, idle_below=0.1)
    assert found.since == 3600.0
    assert [one.uid for one in found.holding] == ["a", "b"]
    assert found.held == 2 * NANO + NANO


@pytest.mark.parametrize(
    "members",
    [
        pytest.param([member("a", bound=0.0)], id="all hold"),
        pytest.param([member("a")], id="all wait"),
        pytest.param(
            [member("a", bound=0.0, started=0.0, utilization=0.1), member("b")],
            id="who holds is busy",
        ),
        pytest.param([member("a", bound=0.0), member("b", group=2)], id="of different jobs"),
    ],
)
def test_these_are_no_partial_gangs(members: list[Member]) -> None:
    assert partial_gangs(members, now=NOW, idle_below=0.1) == []


def test_a_busy_holder_is_left_out_of_what_is_held_for_nothing() -> None:
    members = [
        member("a", bound=0.0, started=0.0, utilization=0.9),
        member("b", bound=0.0, started=0.0, utilization=0.02),
        member("c"),
    ]
    (found,) = partial_gangs(members, now=NOW, idle_below=0.1)
    assert [one.uid for one in found.holding] == ["b"]
    assert found.held == 4 * NANO


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
