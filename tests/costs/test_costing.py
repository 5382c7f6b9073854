from collections.abc import Iterable, Mapping
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apps.costs.domain.costing import (
    FREE,
    HELD,
    PLATFORM,
    WASTE,
    WATERFALL_CAUSES,
    Cause,
    CostSums,
    Policy,
    cents,
    cost_of,
    fact_cost,
    shared,
    units,
    waterfall_steps,
)
from apps.usage.domain.amounts import NANO

PARTS = st.dictionaries(st.sampled_from((*HELD, *FREE)), st.integers(0, 64 * NANO))
PRICES = st.integers(0, units(Decimal(50)))
FACTS = st.lists(st.tuples(PARTS, st.none() | PRICES), max_size=20)
TEAMS = st.dictionaries(st.sampled_from(["audio", "nlp", "vision"]), st.integers(0, 10**12))
PRICE = units(Decimal("3.06"))


def sums_of(facts: Iterable[tuple[Mapping[Cause, int], int | None]], burst: int = 0) -> CostSums:
    """Return sums of facts as the selectors make them: what has no price is unpriced."""
    sums = CostSums(burst=burst)
    for parts, price in facts:
        cost = {} if price is None else fact_cost(parts, price)
        unpriced = parts if price is None else {}
        for mine, theirs in (
            (sums.gpu_hours, parts),
            (sums.cost, cost),
            (sums.unpriced, unpriced),
        ):
            for cause, amount in theirs.items():
                mine[cause] = mine.get(cause, 0) + amount
    return sums


@given(PARTS, PRICES)
def test_the_causes_of_a_fact_sum_to_its_cost_rounded_once(
    parts: Mapping[Cause, int], price: int
) -> None:
    cost = fact_cost(parts, price)
    assert sum(cost.values()) == cost_of(sum(parts.values()), price)
    for cause, amount in parts.items():
        assert abs(cost.get(cause, 0) * NANO - amount * price) < 2 * NANO


def test_eight_causes_are_what_is_held_and_what_is_free_and_energy_is_beside() -> None:
    assert {*HELD, *FREE, Cause.ENERGY} == set(Cause)
    assert len({*HELD, *FREE}) == 8
    no_waste = {Cause.BUSY, Cause.UNMEASURED, Cause.PLANNED_OUTAGE, Cause.ENERGY}
    assert set(Cause) - set(WASTE) == no_waste


@given(st.integers(0, 10**15), st.sampled_from(Policy), TEAMS, TEAMS)
def test_unallocated_cost_is_paid_in_full_under_every_policy(
    cost: int, policy: Policy, entitlements: dict[str, int], used: dict[str, int]
) -> None:
    paid = shared(cost, policy, entitlements=entitlements, used=used)
    assert sum(paid.values()) == cost
    turned = dict(reversed(entitlements.items())), dict(reversed(used.items()))
    assert shared(cost, policy, entitlements=turned[0], used=turned[1]) == paid


@pytest.mark.parametrize(
    ("policy", "paid"),
    [
        (Policy.PLATFORM, {PLATFORM: 100}),
        (Policy.ENTITLEMENT, {"nlp": 75, "vision": 25}),
        (Policy.USE, {"vision": 100}),
    ],
)
def test_who_pays_for_what_nobody_held(policy: Policy, paid: dict[str, int]) -> None:
    entitlements = {"vision": 4, "nlp": 12}
    used = {"vision": 9, "nlp": 0}
    assert shared(100, policy, entitlements=entitlements, used=used) == paid


@pytest.mark.parametrize("policy", Policy)
def test_where_there_is_nobody_the_platform_pays(policy: Policy) -> None:
    assert shared(100, policy, entitlements={}, used={"nlp": 0}) == {PLATFORM: 100}


@given(FACTS, FACTS)
def test_the_waterfall_falls_from_the_whole_cost_to_nothing(
    facts: list[tuple[Mapping[Cause, int], int | None]],
    last: list[tuple[Mapping[Cause, int], int | None]],
) -> None:
    sums, before = sums_of(facts), sums_of(last)
    steps = waterfall_steps(sums, before)
    away = Cause.PLANNED_OUTAGE
    has_outage = sums.gpu_hours.get(away) or before.gpu_hours.get(away)
    expected = [cause for cause in WATERFALL_CAUSES if has_outage or cause is not away]
    assert [step.cause for step in steps] == expected
    assert sum(step.cost for step in steps) == sums.total
    assert steps[0].above == sums.total
    assert steps[-1].above == steps[-1].cost
    assert sum(step.cost_before or 0 for step in steps) == before.total
    assert sum(step.unpriced for step in steps) == sum(sums.unpriced.values())


def test_a_step_shows_its_share_its_burst_and_how_it_changed() -> None:
    now = sums_of([({Cause.UNALLOCATED: NANO, Cause.BUSY: 3 * NANO}, PRICE)], burst=5)
    before = sums_of([({Cause.UNALLOCATED: 2 * NANO}, PRICE)])
    steps = {step.cause: step for step in waterfall_steps(now, before)}
    unallocated = steps[Cause.UNALLOCATED]
    assert (unallocated.share, unallocated.burst) == (0.25, 5)
    assert unallocated.cost_before == 2 * unallocated.cost
    assert steps[Cause.BUSY].burst is None
    assert steps[Cause.IDLE].cost == 0
    assert waterfall_steps(now)[0].cost_before is None


def test_a_waterfall_of_nothing_has_no_shares() -> None:
    assert {step.share for step in waterfall_steps(CostSums())} == {None}


def test_the_reference_cluster_costs_to_the_cent_what_it_must() -> None:
    """32 GPUs × 730 h × 3.06; the trainers' 16, 12 services and 4 notebooks, hour by hour."""
    activities = (*[(16, 0.95)], *[(12, 0.15)], *[(4, 0.05)])
    hour = []
    for gpus, activity in activities:
        busy = round(gpus * activity * NANO)
        rest = Cause.IDLE if activity < 0.1 else Cause.UNDERUSED
        hour.append(({Cause.BUSY: busy, rest: gpus * NANO - busy}, PRICE))
    month = sums_of(730 * hour)
    printed = cents(
        [month.total, month.wasted, month.cost[Cause.IDLE], month.cost[Cause.UNDERUSED]]
    )
    assert [str(one) for one in printed[:2]] == ["71481.60", "33060.24"]
    assert [str(one) for one in printed[2:]] == ["8488.44", "24571.80"]


def test_what_was_away_as_planned_is_in_no_growth_of_waste() -> None:
    away, empty = Cause.PLANNED_OUTAGE, Cause.UNALLOCATED
    now = CostSums({empty: 8, away: 2}, {empty: 80, away: 20})
    before = CostSums({empty: 8, away: 8}, {empty: 80, away: 80})
    planned, *steps = waterfall_steps(now, before)
    assert (planned.cause, planned.waste, planned.cost, planned.cost_before) == (
        away,
        False,
        20,
        80,
    )
    assert {step.cause: (step.cost, step.cost_before) for step in steps}[empty] == (80, 80)
    assert now.wasted == 80, "it is in the total, and in no waste"
    assert sum(step.cost for step in (planned, *steps)) == now.total == 100
    # An outage that was in the last period alone makes no fall of what was empty.
    steps = list(waterfall_steps(CostSums({empty: 8}, {empty: 80}), before))
    costs = {step.cause: (step.cost, step.cost_before) for step in steps}
    assert (costs[away], costs[empty]) == ((0, 80), (80, 80))
    assert away not in {step.cause for step in waterfall_steps(CostSums({empty: 8}, {empty: 80}))}
