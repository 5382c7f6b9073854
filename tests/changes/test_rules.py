"""Approval by rule, and when two people decide."""

from dataclasses import replace
from decimal import Decimal

import pytest

from apps.changes.domain.rules import Facts, Rules, ruling

ON = Rules(raises_by_rule=True, decreases_by_rule=True)
SMALL = Facts(
    gpus=2.0,
    promised_gpus_after=8.0,
    fair_share_gpus=9.5,
    budget_burn_rate=0.8,
    cost_per_month=Decimal("4467.60"),
    currency="USD",
)


def test_by_default_every_request_needs_one_person() -> None:
    for decrease in (False, True):
        found = ruling(SMALL, Rules(), decrease=decrease)
        assert (found.by_rule, found.approvals_needed) == (False, 1)


def test_a_small_raise_within_share_and_budget_approves_itself() -> None:
    found = ruling(SMALL, ON, decrease=False)
    assert found.by_rule
    assert [check.sentence for check in found.checks] == [
        "Small raises are approved by rule here.",
        "No other team shares this limit.",
        "2 GPUs, at most 2.",
        "8 GPUs promised afterwards, within the fair share of 9.5.",
        "Burn rate 0.80, within budget.",
        "No other tool owns the limit.",
    ]


def test_a_team_without_a_budget_keeps_to_none() -> None:
    assert ruling(replace(SMALL, budget_burn_rate=None, no_budget=True), ON, decrease=False).by_rule


@pytest.mark.parametrize(
    ("facts", "check", "words"),
    [
        pytest.param(replace(SMALL, gpus=2.5), "small", "2.5 GPUs, more than 2", id="large"),
        pytest.param(replace(SMALL, gpus=None), "small", "not known", id="unknown size"),
        pytest.param(
            replace(SMALL, promised_gpus_after=10.0),
            "fair share",
            "above the fair share",
            id="share",
        ),
        pytest.param(
            replace(SMALL, fair_share_gpus=None), "fair share", "not known", id="unknown share"
        ),
        pytest.param(replace(SMALL, budget_burn_rate=1.01), "budget", "over budget", id="budget"),
        pytest.param(
            replace(SMALL, budget_burn_rate=None), "budget", "not known yet", id="unknown budget"
        ),
        pytest.param(replace(SMALL, foreign_owner=True), "owner", "Another tool", id="owner"),
        pytest.param(replace(SMALL, shared=True), "own", "Several teams share", id="shared"),
    ],
)
def test_what_speaks_against_the_rule_is_named(facts: Facts, check: str, words: str) -> None:
    found = ruling(facts, ON, decrease=False)
    assert not found.by_rule
    (failed,) = (c for c in found.checks if not c.holds)
    assert failed.name == check
    assert words in failed.sentence


@pytest.mark.parametrize(
    ("facts", "by_rule"),
    [
        pytest.param(Facts(gpus=-40.0), True, id="any size"),
        pytest.param(Facts(gpus=None), True, id="unknown size"),
        pytest.param(Facts(gpus=-1.0, used_above_new_limit=True), False, id="in use"),
        pytest.param(Facts(gpus=-1.0, foreign_owner=True), False, id="owned by a tool"),
        pytest.param(Facts(gpus=-1.0, shared=True), False, id="taken from others too"),
    ],
)
def test_a_decrease_approves_itself_where_nothing_is_in_use_above_it(
    facts: Facts, by_rule: bool
) -> None:
    rules = replace(ON, two_from_gpus=0.0, two_from_cost=Decimal(0))
    found = ruling(facts, rules, decrease=True)
    assert (found.by_rule, found.approvals_needed) == (by_rule, 1)


GPUS = replace(ON, two_from_gpus=2.0)
COST = replace(ON, two_from_cost=Decimal(4000), currency="USD")


@pytest.mark.parametrize(
    ("facts", "rules", "needed", "words"),
    [
        pytest.param(SMALL, GPUS, 2, "2 GPUs: from 2 on two decide", id="at the threshold"),
        pytest.param(replace(SMALL, gpus=1.9), GPUS, 1, "", id="below"),
        pytest.param(replace(SMALL, gpus=None), GPUS, 2, "size is not known", id="size unknown"),
        pytest.param(SMALL, COST, 2, "4,467.60 USD a month: from 4,000.00", id="dear"),
        pytest.param(replace(SMALL, cost_per_month=Decimal(3999)), COST, 1, "", id="cheap"),
        pytest.param(
            replace(SMALL, cost_per_month=None), COST, 2, "cost is not known", id="cost unknown"
        ),
        pytest.param(
            replace(SMALL, cost_per_month=Decimal(1), currency="EUR"),
            *(COST, 2, "cost is not known"),
            id="another currency",
        ),
    ],
)
def test_from_a_threshold_upwards_two_people_decide(
    facts: Facts, rules: Rules, needed: int, words: str
) -> None:
    found = ruling(facts, rules, decrease=False)
    assert found.approvals_needed == needed
    assert words in found.checks[-1].sentence
    if needed == 2:
        assert not found.by_rule
