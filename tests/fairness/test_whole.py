"""Whole nano-GPU-hours close to the last digit, whatever was measured."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from apps.fairness.domain.measures import (
    TierSlots,
    apportion,
    integrate,
    largest_loans,
    measure,
    nano_sums,
)
from tests.fairness.tiers import random_slots, slots

_GPUS = st.floats(0, 40, allow_nan=False).map(lambda gpus: round(gpus, 3) / 7)


@st.composite
def tiers(draw: st.DrawFn) -> TierSlots:
    """Draw up to three slots of up to six teams; amounts are sevenths, as MIG devices are."""
    count, teams = draw(st.integers(1, 3)), draw(st.integers(1, 6))

    def table() -> list[list[float]]:
        row = st.lists(_GPUS, min_size=teams, max_size=teams)
        return draw(st.lists(row, min_size=count, max_size=count))

    entitlement = np.array(table())
    return TierSlots(
        hours=np.array(
            draw(st.lists(st.sampled_from([0.5, 0.25, 1 / 3]), min_size=count, max_size=count))
        ),
        capacity=np.array(draw(st.lists(_GPUS, min_size=count, max_size=count))),
        entitlement=entitlement,
        weight=entitlement,
        held=np.array(table()),
        pending=np.array(table()),
    )


@given(tiers())
def test_lent_borrowed_pool_and_overdraft_close_to_the_last_digit(drawn: TierSlots) -> None:
    sums = nano_sums(measure(drawn))
    assert sums.lent.sum() == sums.borrowed.sum() - sums.from_pool.sum() - sums.overdrawn.sum()
    assert (sums.borrowed >= sums.from_pool + sums.overdrawn).all()
    for amounts in (sums.lent, sums.from_pool, sums.overdrawn):
        assert (amounts >= 0).all()


@given(tiers())
def test_whole_amounts_are_within_two_of_the_measured_ones(drawn: TierSlots) -> None:
    measured = measure(drawn)
    exact, whole = integrate(measured), nano_sums(measured)
    teams = drawn.held.shape[1]
    for name in ("entitlement", "demand", "fair_share", "borrowed", "denied"):
        assert np.abs(getattr(whole, name) - getattr(exact, name) * 1e9).max() <= 0.51
    assert np.abs(whole.lent - exact.lent * 1e9).max() <= 2 * teams
    assert abs(whole.from_pool.sum() - exact.from_pool * 1e9) <= 2 * teams
    assert abs(whole.borrowable - exact.borrowable * 1e9) <= 0.51


@given(tiers())
def test_loans_sum_to_what_was_lent_and_borrowed(drawn: TierSlots) -> None:
    measured = measure(drawn)
    sums, teams = nano_sums(measured), drawn.held.shape[1]
    lent, taken = np.zeros(teams, dtype=np.int64), np.zeros(teams, dtype=np.int64)
    for loan in largest_loans(measured, at_most=100):
        lent[loan.lender] += loan.amount
        taken[loan.borrower] += loan.amount
    assert np.abs(lent - sums.lent).max() <= 2 * teams
    assert np.abs(taken - (sums.borrowed - sums.from_pool - sums.overdrawn)).max() <= 2 * teams


def test_only_the_largest_loans_are_told() -> None:
    measured = measure(random_slots(7, count=4, teams=12, capacity=60.0))
    every = largest_loans(measured, at_most=1000)
    assert len(every) > 10
    assert largest_loans(measured, at_most=5) == every[:5]
    assert [loan.amount for loan in every] == sorted((x.amount for x in every), reverse=True)


def test_nobody_borrows_where_nobody_holds_more_than_its_own() -> None:
    measured = measure(slots(held=[[1, 2]], pending=[[0, 0]], entitlement=[2, 2], capacity=4))
    assert largest_loans(measured, at_most=10) == []


@pytest.mark.parametrize(
    ("parts", "total", "expected"),
    [
        pytest.param([1.0, 1.0, 1.0], 10, [4, 3, 3], id="the first of equal remainders"),
        pytest.param([0.2, 0.5, 0.3], 1, [0, 1, 0], id="the largest remainder"),
        pytest.param([0.0, 2.0], 7, [0, 7], id="nothing to whom has no part"),
        pytest.param([0.0, 0.0], 0, [0, 0], id="nothing of nothing"),
        pytest.param([0.0, 0.0], 3, [3, 0], id="no parts"),
    ],
)
def test_a_total_is_parted_by_largest_remainder(
    parts: list[float], total: int, expected: list[int]
) -> None:
    found = apportion(np.array(parts)[:, np.newaxis], np.array([total]))
    assert found[:, 0].tolist() == expected


def test_the_largest_loans_of_a_large_tier_are_those_of_all() -> None:
    random = np.random.default_rng(8)
    teams = 300
    measured = measure(
        TierSlots(
            hours=np.array([0.5, 0.5]),
            capacity=np.full(2, 1500.0),
            entitlement=np.full((2, teams), 5.0),
            weight=np.ones((2, teams)),
            held=random.uniform(0.0, 10.0, (2, teams)),
            pending=np.zeros((2, teams)),
        )
    )
    every = [loan.amount for loan in largest_loans(measured, at_most=teams**2)]
    assert len(every) > 10_000
    for most in (1, 10, 500, len(every)):
        assert [loan.amount for loan in largest_loans(measured, at_most=most)] == every[:most]
