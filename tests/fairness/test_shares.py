"""The fair share of one slot: cases told by hand, and what must hold of all."""

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from apps.fairness.domain.shares import Array, fair_shares

CASES = [
    pytest.param([4, 2], [8, 8], 16, None, [4, 2], id="all-demand-fits"),
    pytest.param([12, 20], [12, 12], 24, None, [12, 12], id="nothing-left-above-entitlements"),
    pytest.param([4, 20], [12, 12], 24, None, [4, 20], id="what-one-leaves-goes-to-the-other"),
    pytest.param([0, 20, 20], [12, 8, 4], 24, None, [0, 16, 8], id="rest-by-entitlement"),
    pytest.param([0, 9, 20], [12, 8, 4], 24, None, [0, 9, 15], id="who-is-full-leaves-the-rest"),
    pytest.param([10, 10], [8, 4], 9, None, [6, 3], id="entitlements-exceed-the-capacity"),
    pytest.param([10, 10], [8, 4], 6, None, [3.6, 2.4], id="an-entitlement-above-the-capacity"),
    pytest.param([1, 10], [8, 4], 4, None, [0.8, 3.2], id="one-factor-for-all-entitlements"),
    pytest.param([9, 9], [0, 0], 6, [1, 2], [2, 4], id="weights-without-entitlements"),
    pytest.param([20, 20], [4, 4], 16, [3, 1], [10, 6], id="weights-apart-from-entitlements"),
    pytest.param([9, 9, 9], [6, 0, 0], 12, None, [9, 1.5, 1.5], id="no-weight-gets-what-is-left"),
    pytest.param([9, 1, 9], [0, 0, 0], 6, None, [2.5, 1, 2.5], id="nobody-entitled-equal-parts"),
    pytest.param([9, 9], [0, 0], 6, [1e-300, 0], [6, 0], id="a-tiny-weight-alone-is-the-largest"),
    pytest.param([9, 4], [0, 0], 6, [1e-300, 8], [2, 4], id="a-weight-too-small-to-show-is-none"),
    pytest.param([5, 5], [4, 4], 0, None, [0, 0], id="no-capacity"),
    pytest.param([0, 1], [0, 2.3e-308], 4, [0, 0], [0, 1], id="next-to-nothing-entitled"),
    pytest.param([0, 0], [4, 4], 8, None, [0, 0], id="nobody-asks"),
    pytest.param([99, 10], [99, 10], 10, None, [5, 5], id="demand-counts-up-to-the-capacity"),
]


@pytest.mark.parametrize(("demand", "entitlement", "capacity", "weight", "expected"), CASES)
def test_fair_shares_are_as_told(
    demand: list[float],
    entitlement: list[float],
    capacity: float,
    weight: list[float] | None,
    expected: list[float],
) -> None:
    shares = fair_shares(demand=demand, entitlement=entitlement, capacity=capacity, weight=weight)
    assert shares == pytest.approx(expected, abs=1e-12)


def test_slots_are_reckoned_each_by_itself() -> None:
    demand = np.array([[4.0, 20.0], [20.0, 4.0], [20.0, 20.0]])
    capacity = np.array([24.0, 24.0, 6.0])
    together = fair_shares(demand=demand, entitlement=[12, 12], capacity=capacity)
    alone = [
        fair_shares(demand=row, entitlement=[12, 12], capacity=room)
        for row, room in zip(demand, capacity, strict=True)
    ]
    assert together.tolist() == [row.tolist() for row in alone]


def test_tiers_and_slots_may_be_stacked() -> None:
    demand = np.arange(24.0).reshape(2, 3, 4)
    shares = fair_shares(demand=demand, entitlement=np.ones(4), capacity=np.full((2, 3), 9.0))
    assert shares.shape == (2, 3, 4)
    assert (shares.sum(axis=-1) <= 9 + 1e-9).all()


def test_a_tier_without_teams_has_no_shares() -> None:
    assert fair_shares(demand=np.zeros((2, 0)), entitlement=[], capacity=[4, 4]).shape == (2, 0)


@pytest.mark.parametrize("bad", [-1.0, float("nan"), float("inf")])
@pytest.mark.parametrize("name", ["demand", "entitlement", "capacity", "weight"])
def test_impossible_amounts_are_refused(name: str, bad: float) -> None:
    given_amounts = {"demand": 1.0, "entitlement": 1.0, "capacity": 1.0, "weight": 1.0, name: bad}
    arguments = {k: v if k == "capacity" else [v] for k, v in given_amounts.items()}
    with pytest.raises(ValueError, match=name):
        fair_shares(**arguments)


gpus = st.one_of(st.integers(0, 64).map(float), st.floats(0, 1e4, allow_subnormal=False))
teams = st.lists(st.tuples(gpus, gpus, gpus), min_size=1, max_size=12)


def _close(capacity: float) -> float:
    return 1e-9 * max(1.0, capacity)


def _shares(rows: list[tuple[float, float, float]], capacity: float) -> tuple[Array, Array, Array]:
    demand, entitlement, weight = np.array(rows).T
    shares = fair_shares(demand=demand, entitlement=entitlement, weight=weight, capacity=capacity)
    return shares, demand, entitlement


@given(teams, gpus)
def test_no_team_gets_more_than_it_requests(
    rows: list[tuple[float, float, float]], capacity: float
) -> None:
    shares, demand, _ = _shares(rows, capacity)
    assert (shares >= 0).all()
    assert (shares <= demand).all()


@given(teams, gpus)
def test_capacity_is_used_up_or_all_demand_met(
    rows: list[tuple[float, float, float]], capacity: float
) -> None:
    shares, demand, _ = _shares(rows, capacity)
    wanted = min(capacity, float(np.minimum(demand, capacity).sum()))
    assert shares.sum() == pytest.approx(wanted, abs=_close(capacity))


@given(teams, gpus)
def test_none_is_below_its_entitlement_while_another_is_above_its_own(
    rows: list[tuple[float, float, float]], capacity: float
) -> None:
    shares, demand, entitlement = _shares(rows, capacity)
    first = np.minimum(np.minimum(demand, capacity), entitlement)
    slack = _close(capacity)
    if (shares < first - slack).any():
        assert (shares <= first + slack).all()


@given(teams, gpus)
def test_water_stands_level_above_the_entitlements(
    rows: list[tuple[float, float, float]], capacity: float
) -> None:
    shares, demand, entitlement = _shares(rows, capacity)
    weight = np.array(rows)[:, 2]
    asked = np.minimum(demand, capacity)
    first = np.minimum(asked, entitlement)
    assume(first.sum() < capacity)
    above = shares - first
    thirsty = (weight > 0) & (shares < asked - _close(capacity))
    for i in np.flatnonzero(thirsty):
        # Nobody else's water stands higher than that of a team that still asks.
        assert (above * weight[i] <= above[i] * weight + 1e-6 * max(1.0, capacity)).all()


@given(teams, gpus, st.integers(0, 11), st.floats(1, 1e6))
def test_asking_beyond_the_capacity_raises_no_share(
    rows: list[tuple[float, float, float]], capacity: float, which: int, more: float
) -> None:
    who = which % len(rows)
    demand, entitlement, weight = rows[who]
    at_most = [*rows[:who], (max(demand, capacity), entitlement, weight), *rows[who + 1 :]]
    beyond = [*rows[:who], (max(demand, capacity) + more, entitlement, weight), *rows[who + 1 :]]
    assert _shares(beyond, capacity)[0].tolist() == _shares(at_most, capacity)[0].tolist()


@given(teams, gpus, st.integers(0, 11), gpus)
def test_who_requests_less_never_gets_more(
    rows: list[tuple[float, float, float]], capacity: float, which: int, less: float
) -> None:
    who = which % len(rows)
    demand, entitlement, weight = rows[who]
    lower = [*rows[:who], (min(demand, less), entitlement, weight), *rows[who + 1 :]]
    fewer, more = _shares(lower, capacity)[0], _shares(rows, capacity)[0]
    assert fewer[who] <= more[who] + _close(capacity)


@given(st.data(), teams, gpus)
def test_the_order_of_teams_does_not_matter(
    data: st.DataObject, rows: list[tuple[float, float, float]], capacity: float
) -> None:
    order = data.draw(st.permutations(range(len(rows))))
    shuffled = _shares([rows[i] for i in order], capacity)[0]
    assert shuffled == pytest.approx(_shares(rows, capacity)[0][order], abs=_close(capacity))


def test_teams_alike_get_alike_to_the_last_digit() -> None:
    shares = fair_shares(demand=[0.7] * 9, entitlement=[0.1] * 9, capacity=1.0)
    assert len(set(shares.tolist())) == 1


def test_a_thousand_teams_use_the_capacity_up_to_the_ninth_decimal() -> None:
    random = np.random.default_rng(7)
    demand = random.exponential(60, (8, 1000))
    entitlement = random.exponential(40, 1000)
    capacity = np.full(8, 45_000.0)
    shares = fair_shares(demand=demand, entitlement=entitlement, capacity=capacity)
    assert shares.sum(axis=-1) == pytest.approx(capacity, abs=1e-9)
