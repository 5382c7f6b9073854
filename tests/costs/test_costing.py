from collections.abc import Mapping
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apps.costs.domain.charging import payments
from apps.costs.domain.costing import (
    FREE,
    HELD,
    WASTE,
    Basis,
    Cause,
    CostSums,
    cost_of,
    fact_cost,
    free_parts,
    held_parts,
    summed,
)
from apps.costs.domain.money import cents, money, units
from apps.costs.domain.unallocated import PLATFORM, Policy, shared
from apps.costs.domain.waterfall import FALL, waterfall
from apps.usage.domain.amounts import NANO, Amounts

PARTS = st.dictionaries(st.sampled_from((*HELD, *FREE)), st.integers(0, 64 * NANO))
PRICES = st.integers(0, units(Decimal(50)))
FACTS = st.lists(st.tuples(PARTS, st.none() | PRICES), max_size=20)
TEAMS = st.dictionaries(st.sampled_from(["audio", "nlp", "vision"]), st.integers(0, 10**12))
PRICE = units(Decimal("3.06"))


@given(PARTS, PRICES)
def test_the_causes_of_a_fact_sum_to_its_cost_rounded_once(
    parts: Mapping[Cause, int], price: int
) -> None:
    cost = fact_cost(parts, price)
    assert sum(cost.values()) == cost_of(sum(parts.values()), price)
    for cause, amount in parts.items():
        assert abs(cost.get(cause, 0) * NANO - amount * price) < 2 * NANO


@given(FACTS, st.integers(0, 20))
def test_sums_are_the_same_in_every_grouping_and_split_of_the_window(
    facts: list[tuple[Mapping[Cause, int], int | None]], cut: int
) -> None:
    sums = [CostSums.of_fact(parts, price) for parts, price in facts]
    whole = summed(sums)
    halves = summed([summed(sums[cut:]), summed(sums[:cut])])
    assert halves == whole
    assert whole.total == sum(cost_of(sum(p.values()), price) for p, price in facts if price)
    assert whole.total == sum(whole.cost.values())


@given(PARTS, PRICES)
def test_on_each_basis_what_is_charged_and_what_is_left_are_the_cost(
    parts: Mapping[Cause, int], price: int
) -> None:
    sums = CostSums.of_fact(parts, price)
    for basis in Basis:
        assert sums.on(basis) + sums.left_on(basis) == sums.total
    assert sums.on(Basis.USED) <= sums.on(Basis.ALLOCATED)


def test_what_is_charged_on_the_two_bases() -> None:
    parts = dict.fromkeys(Cause, NANO)
    sums = CostSums.of_fact(parts, units(Decimal(1)))
    assert money(sums.on(Basis.ALLOCATED)) == 5
    # Busy, and what nobody measured: a missing exporter makes no GPU free.
    assert money(sums.on(Basis.USED)) == 2
    assert money(sums.wasted) == 5


def test_hours_without_a_price_are_unpriced_and_cost_nothing_that_is_known() -> None:
    priced = CostSums.of_fact({Cause.BUSY: NANO}, PRICE)
    both = summed([priced, CostSums.of_fact({Cause.BUSY: 2 * NANO}, None)])
    assert both.gpu_hours == {Cause.BUSY: 3 * NANO}
    assert both.unpriced_gpu_hours == 2 * NANO
    assert both.total == priced.total


def test_a_price_of_zero_is_a_price() -> None:
    free = CostSums.of_fact({Cause.BUSY: NANO}, 0)
    assert (free.total, free.unpriced_gpu_hours) == (0, 0)


def test_seven_causes_are_what_is_held_and_what_is_free_and_energy_is_beside() -> None:
    assert {*HELD, *FREE, Cause.ENERGY} == set(Cause)
    assert len({*HELD, *FREE}) == 7
    assert set(Cause) - set(WASTE) == {Cause.BUSY, Cause.UNMEASURED, Cause.ENERGY}
    row = Amounts(15, 1, 2, 3, 4, 5, capacity=21, unallocated=4, unhealthy=2)
    assert sum(held_parts(row).values()) == 15
    assert sum(free_parts(row).values()) == 6
    assert free_parts(Amounts()) == {}


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


HELD_PARTS = st.dictionaries(st.sampled_from(HELD), st.integers(0, 64 * NANO))
POOLS = st.lists(
    st.tuples(
        st.dictionaries(st.sampled_from(["audio", "nlp", "vision"]), HELD_PARTS),
        st.dictionaries(st.sampled_from(FREE), st.integers(0, 64 * NANO)),
        st.none() | PRICES,
    ),
    max_size=8,
)


@given(POOLS, st.sampled_from(Policy), st.sampled_from(Basis), TEAMS, st.integers(0, 8))
def test_payments_are_the_cost_of_capacity_in_every_policy_basis_grouping_and_split(
    pools: list[tuple[dict[str, dict[Cause, int]], dict[Cause, int], int | None]],
    policy: Policy,
    basis: Basis,
    entitlements: dict[str, int],
    cut: int,
) -> None:
    whole = CostSums()
    hours = []
    for held, free, price in pools:
        sums = {team: CostSums.of_fact(parts, price) for team, parts in held.items()}
        rest = CostSums.of_fact(free, price)
        hours.append([*payments(sums, rest, basis=basis, policy=policy, entitlements=entitlements)])
        whole.add(summed([*sums.values(), rest]))
    for split in (hours, hours[cut:] + hours[:cut]):
        paid = [one for hour in split for one in hour]
        for cause in Cause:
            of_cause = [one for one in paid if one.cause is cause]
            assert sum(one.cost for one in of_cause) == whole.cost.get(cause, 0)
            assert sum(one.gpu_hours for one in of_cause) == whole.gpu_hours.get(cause, 0)
            assert sum(one.unpriced for one in of_cause) == whole.unpriced.get(cause, 0)
        by_payer = {one.payer: 0 for one in paid}
        for one in paid:
            by_payer[one.payer] += one.cost
        assert sum(by_payer.values()) == whole.total


@pytest.mark.parametrize("policy", Policy)
@pytest.mark.parametrize("basis", Basis)
def test_energy_is_paid_by_who_held_the_card_and_else_by_the_platform(
    basis: Basis, policy: Policy
) -> None:
    held = {"nlp": CostSums({Cause.IDLE: NANO}, {Cause.IDLE: 5}, energy=7)}
    free = CostSums({Cause.UNALLOCATED: NANO}, {Cause.UNALLOCATED: 3}, energy=11)
    found = payments(held, free, basis=basis, policy=policy, entitlements={"audio": 1})
    energy = {one.payer: one.cost for one in found if one.cause is Cause.ENERGY}
    assert energy == {"nlp": 7, PLATFORM: 11}


def test_who_pays_what_of_an_hour() -> None:
    vision = CostSums.of_fact({Cause.BUSY: NANO, Cause.IDLE: NANO}, PRICE)
    free = CostSums.of_fact({Cause.UNALLOCATED: NANO, Cause.UNHEALTHY: NANO}, PRICE)
    paid = {
        (one.cause, one.holder): one.payer
        for one in payments(
            {"vision": vision},
            free,
            basis=Basis.USED,
            policy=Policy.ENTITLEMENT,
            entitlements={"nlp": 3},
        )
    }
    assert paid == {
        (Cause.BUSY, "vision"): "vision",
        (Cause.IDLE, "vision"): PLATFORM,
        (Cause.UNALLOCATED, ""): "nlp",
        (Cause.UNHEALTHY, ""): PLATFORM,
    }


@given(FACTS, FACTS)
def test_the_waterfall_falls_from_the_whole_cost_to_nothing(
    facts: list[tuple[Mapping[Cause, int], int | None]],
    last: list[tuple[Mapping[Cause, int], int | None]],
) -> None:
    sums = summed(CostSums.of_fact(*fact) for fact in facts)
    before = summed(CostSums.of_fact(*fact) for fact in last)
    steps = waterfall(sums, before)
    assert [step.cause for step in steps] == list(FALL)
    assert sum(step.cost for step in steps) == sums.total
    assert steps[0].above == sums.total
    assert steps[-1].above == steps[-1].cost
    assert sum(step.change or 0 for step in steps) == sums.total - before.total


def test_a_step_shows_its_share_its_burst_and_how_it_changed() -> None:
    now = CostSums.of_fact({Cause.UNALLOCATED: NANO, Cause.BUSY: 3 * NANO}, PRICE, burst=5)
    before = CostSums.of_fact({Cause.UNALLOCATED: 2 * NANO}, PRICE)
    steps = {step.cause: step for step in waterfall(now, before)}
    unallocated = steps[Cause.UNALLOCATED]
    assert (unallocated.share, unallocated.burst, unallocated.change_ratio) == (0.25, 5, -0.5)
    assert (steps[Cause.BUSY].burst, steps[Cause.BUSY].change_ratio) == (None, None)
    assert steps[Cause.IDLE].cost == 0
    assert waterfall(now)[0].change is None


def test_a_waterfall_of_nothing_has_no_shares() -> None:
    assert {step.share for step in waterfall(CostSums())} == {None}


def test_the_reference_cluster_costs_to_the_cent_what_it_must() -> None:
    """32 GPUs × 730 h × 3.06; the trainers' 16, 12 services and 4 notebooks, hour by hour."""
    activities = (*[(16, 0.95)], *[(12, 0.15)], *[(4, 0.05)])
    hour = []
    for gpus, activity in activities:
        busy = round(gpus * activity * NANO)
        rest = Cause.IDLE if activity < 0.1 else Cause.UNDERUSED
        hour.append(CostSums.of_fact({Cause.BUSY: busy, rest: gpus * NANO - busy}, PRICE))
    month = summed(one for _ in range(730) for one in hour)
    printed = cents(
        [month.total, month.wasted, month.cost[Cause.IDLE], month.cost[Cause.UNDERUSED]]
    )
    assert [str(one) for one in printed[:2]] == ["71481.60", "33060.24"]
    assert [str(one) for one in printed[2:]] == ["8488.44", "24571.80"]
