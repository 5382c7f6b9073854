"""Who borrows, who lends, and that nothing is lost between them."""

import numpy as np
import pytest

from apps.fairness.domain.measures import integrate, measure
from apps.fairness.domain.shares import borrowed_from, lend
from tests.fairness.tiers import random_slots

CASES = [
    # held, demand, entitlement, capacity → lent, from the pool, overdrawn
    pytest.param([6, 2], [6, 2], [4, 4], 8, [0, 2], 0, 0, id="one-lends-to-another"),
    pytest.param([6, 2], [6, 2], [4, 4], 16, [0, 0], 2, 0, id="the-pool-comes-first"),
    pytest.param([8, 1, 1], [8, 1, 1], [4, 4, 2], 11, [0, 2.25, 0.75], 1, 0, id="in-proportion"),
    pytest.param([6, 2], [6, 4], [4, 4], 8, [0, 0], 0, 2, id="taken-from-who-asks-is-overdrawn"),
    pytest.param([6, 2], [6, 3], [4, 4], 8, [0, 1], 0, 1, id="lent-as-far-as-it-was-free"),
    pytest.param([4, 2], [4, 2], [4, 4], 8, [0, 0], 0, 0, id="nobody-borrows"),
    pytest.param([3, 3], [3, 3], [0, 0], 6, [0, 0], 6, 0, id="nobody-is-entitled"),
    pytest.param([6, 6], [6, 6], [4, 4], 8, [0, 0], 0, 4, id="more-held-than-there-is"),
]


@pytest.mark.parametrize(
    ("held", "demand", "entitlement", "capacity", "lent", "from_pool", "overdrawn"), CASES
)
def test_what_is_borrowed_has_its_sources(
    held: list[float],
    demand: list[float],
    entitlement: list[float],
    capacity: float,
    lent: list[float],
    from_pool: float,
    overdrawn: float,
) -> None:
    lending = lend(held=held, demand=demand, entitlement=entitlement, capacity=capacity)
    assert lending.lent == pytest.approx(lent)
    assert float(lending.from_pool) == pytest.approx(from_pool)
    assert float(lending.overdrawn) == pytest.approx(overdrawn)


@pytest.mark.parametrize("seed", range(20))
def test_lent_is_borrowed_less_pool_and_over_borrowed(seed: int) -> None:
    slots = random_slots(seed, count=40, teams=7, capacity=50.0)
    lending = measure(slots).lending
    closed = lending.borrowed.sum(axis=1) - lending.from_pool - lending.overdrawn
    assert lending.lent.sum(axis=1) == pytest.approx(closed, abs=1e-9)
    assert (lending.lent <= lending.lendable + 1e-12).all()
    assert not ((lending.lent > 0) & (lending.borrowed > 0)).any()


@pytest.mark.parametrize("seed", range(20))
def test_the_matrix_sums_to_what_was_borrowed_and_lent(seed: int) -> None:
    measured = measure(random_slots(seed, count=40, teams=7, capacity=50.0))
    sums, source = integrate(measured), measured.borrowed_from
    by_borrower = source.lender.sum(axis=0) + source.pool + source.overdrawn
    assert by_borrower == pytest.approx(sums.borrowed, abs=1e-9)
    assert source.lender.sum(axis=1) == pytest.approx(sums.lent, abs=1e-9)
    assert source.pool.sum() == pytest.approx(sums.from_pool)
    assert source.overdrawn.sum() == pytest.approx(sums.overdrawn)


def test_borrowers_of_one_slot_share_its_lenders() -> None:
    held = np.array([[6.0, 5.0, 1.0], [4.0, 4.0, 4.0]])
    lending = lend(held=held, demand=held, entitlement=[4, 4, 4], capacity=[12, 12])
    source = borrowed_from(lending, [0.5, 0.5])
    assert source.lender[2] == pytest.approx([1.0, 0.5, 0.0])
    assert source.lender[:2].sum() == source.pool.sum() == source.overdrawn.sum() == 0
