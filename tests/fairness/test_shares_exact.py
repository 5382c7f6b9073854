"""Fair shares against two other ways to reckon them: linear programs, and exact fractions."""

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import scipy  # loads its parts when they are asked for

from apps.fairness.domain.shares import Array, fair_shares

_CASES = 1000
_TEAMS = 6


def _random(seed: int, cases: int, teams: int, *, whole: bool) -> tuple[Array, ...]:
    """Draw demand, entitlement, weight (cases, teams) and capacity (cases,); 0 is frequent."""
    random = np.random.default_rng(seed)

    def draw(most: int) -> Array:
        values = random.integers(0, most, (cases, teams)).astype(float)
        return values if whole else values + random.random((cases, teams)).round(3) * (values > 0)

    demand, entitlement = draw(25), draw(15)
    weight = np.where(random.random((cases, 1)) < 0.5, entitlement, draw(5))
    capacity = random.integers(0, 12 * teams, cases).astype(float)
    return demand, entitlement, weight, capacity


def _largest_levels(weight: Array, most: Array, fixed: Array, room: Array) -> Array:
    """Return for each case the largest level t with x ≥ weight × t, x ≤ most, Σ x ≤ room.

    One linear program of independent blocks, a case each. Where `fixed` is not nan x is that.
    Levels are at most 1e3, for cases in which nothing binds.
    """
    cases, teams = weight.shape
    x = cases + np.arange(cases * teams).reshape(cases, teams)
    case = np.repeat(np.arange(cases), teams)
    team_rows = cases + np.arange(cases * teams)
    free = np.isnan(fixed)
    rows = np.concatenate([case, team_rows, team_rows])
    columns = np.concatenate([x.ravel(), case, x.ravel()])
    values = np.concatenate(
        [np.ones(cases * teams), np.where(free, weight, 0).ravel(), -np.ones(cases * teams)]
    )
    # linprog takes sparse matrices, which its type stubs do not know.
    matrix: Any = scipy.sparse.coo_array((values, (rows, columns))).tocsr()
    lowest = np.concatenate([np.zeros(cases), np.where(free, 0, fixed).ravel()])
    highest = np.concatenate([np.full(cases, 1e3), np.where(free, most, fixed).ravel()])
    answer = scipy.optimize.linprog(
        np.concatenate([-np.ones(cases), np.zeros(cases * teams)]),
        A_ub=matrix,
        b_ub=np.concatenate([room, np.zeros(cases * teams)]),
        bounds=list(zip(lowest, highest, strict=True)),
        method="highs",
    )
    assert answer.status == 0, answer.message
    assert answer.x is not None
    return np.asarray(answer.x[:cases])


def _filled_by_programs(asked: Array, weight: Array, room: Array) -> Array:
    """Return the lexicographic max-min filling: raise the lowest until it cannot, fix it, again."""
    fixed = np.where((asked > 0) & (weight > 0), np.nan, 0.0)
    while np.isnan(fixed).any():
        free = np.isnan(fixed)
        level = _largest_levels(weight, asked, fixed, room)[:, np.newaxis]
        brim = np.where(free, asked / np.where(free, weight, 1), np.inf)
        full = free & (brim <= level + 1e-9)
        # No team of the case is full: it is the room that binds, and all stand at the level.
        dry = free & ~full.any(axis=1, keepdims=True)
        fixed = np.where(full, asked, np.where(dry, weight * level, fixed))
    return fixed


def _shares_by_programs(demand: Array, entitlement: Array, weight: Array, capacity: Array) -> Array:
    asked = np.minimum(demand, capacity[:, np.newaxis])
    first = np.minimum(asked, entitlement)
    # One factor for all: the first teams' part is a level too, with their parts as weights.
    level = _largest_levels(first, first, np.where(first > 0, np.nan, 0.0), capacity)
    first = first * np.minimum(1.0, level)[:, np.newaxis]
    share = first + _filled_by_programs(asked - first, weight, capacity - first.sum(axis=1))
    equal = (weight == 0).astype(float)
    return share + _filled_by_programs(asked - share, equal, capacity - share.sum(axis=1))


@pytest.mark.parametrize("whole", [True, False], ids=["whole-gpus", "fractions"])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_shares_are_those_of_linear_programs(seed: int, whole: bool) -> None:
    demand, entitlement, weight, capacity = _random(seed, _CASES, _TEAMS, whole=whole)
    shares = fair_shares(demand=demand, entitlement=entitlement, weight=weight, capacity=capacity)
    expected = _shares_by_programs(demand, entitlement, weight, capacity)
    assert np.abs(shares - expected).max() < 1e-8


def _exact_fill(
    asked: Sequence[Fraction], weight: Sequence[Fraction], room: Fraction
) -> list[Fraction]:
    got = [Fraction(0)] * len(asked)
    while True:
        thirsty = [i for i in range(len(asked)) if weight[i] > 0 and got[i] < asked[i]]
        left = room - sum(got)
        if not thirsty or left <= 0:
            return got
        total = sum((weight[i] for i in thirsty), Fraction(0))
        rise = min(left / total, *((asked[i] - got[i]) / weight[i] for i in thirsty))
        for i in thirsty:
            got[i] += rise * weight[i]


def _exact_shares(
    demand: Array, entitlement: Array, weight: Array, capacity: float
) -> list[Fraction]:
    room = Fraction(capacity)
    asked = [min(Fraction(d), room) for d in demand]
    first = [min(a, Fraction(e)) for a, e in zip(asked, entitlement, strict=True)]
    if sum(first) > room:
        factor = room / sum(first)
        first = [share * factor for share in first]
    for weights in ([Fraction(w) for w in weight], [Fraction(int(w == 0)) for w in weight]):
        rest = [a - f for a, f in zip(asked, first, strict=True)]
        more = _exact_fill(rest, weights, room - sum(first))
        first = [f + m for f, m in zip(first, more, strict=True)]
    return first


@pytest.mark.parametrize("teams", [1, 2, 3, 5, 16, 40])
def test_shares_are_exact_to_the_ninth_decimal(teams: int) -> None:
    demand, entitlement, weight, capacity = _random(teams, 150, teams, whole=False)
    shares = fair_shares(demand=demand, entitlement=entitlement, weight=weight, capacity=capacity)
    for case in range(len(capacity)):
        exact = _exact_shares(demand[case], entitlement[case], weight[case], capacity[case])
        assert shares[case] == pytest.approx([float(share) for share in exact], abs=1e-9)
