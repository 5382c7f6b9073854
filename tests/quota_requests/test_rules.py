"""Approval by rule, and when two people decide."""

from decimal import Decimal

import pytest

from apps.accounts.domain.structs import replace
from apps.quota_requests.domain.approval_policy import (
    ApprovalRules,
    BudgetFacts,
    PolicyFacts,
    decide,
)

ON = ApprovalRules(raises_by_rule=True, decreases_by_rule=True)
ROOMY = BudgetFacts(
    "USD", "month", Decimal(9000), Decimal(2000), 0.8, hours=720.0, hours_left=520.0
)
"""At its pace 2,000 + 9,000 × 0.8 × 520 ÷ 720 = 7,200 by its end; 1,800 are left then."""
SMALL = PolicyFacts(
    gpus=2.0,
    entitled_gpus_after=8.0,
    fair_share_gpus=9.5,
    budgets=(ROOMY,),
    cost_per_month=Decimal(1460),
    currency="USD",
    foreign_owner=False,
    dry_run=True,
    team="vision",
    tiers=("whole-a100",),
)
"""2 USD an hour, for the 520 hours that are left: 1,040."""


def test_by_default_every_request_needs_one_person() -> None:
    for decrease in (False, True):
        found = decide(SMALL, ApprovalRules(), decrease=decrease)
        assert (found.by_rule, found.approvals_needed) == (False, 1)


def test_a_small_raise_within_share_and_budget_approves_itself() -> None:
    found = decide(SMALL, ON, decrease=False)
    assert found.by_rule
    assert [(check.holds, check.sentence) for check in found.checks] == [
        (True, "A rule approves small raises."),
        (True, "No other team shares this limit."),
        (True, "A raise of 2 GPUs: within the limit of 2 for small raises."),
        (
            True,
            "With it, all quotas of vision commit 8 GPUs in whole-a100: within its fair share of "
            "9.5 GPUs (30-day average).",
        ),
        (
            True,
            "At this pace the team uses $7,200 of $9,000 by the end of the month, with this raise "
            "at most $1,040 more: within budget.",
        ),
        (True, "No other tool owns the limit."),
        (True, "Dry run passed."),
    ]
    assert found.decides == "rule"


def test_what_decides_comes_first() -> None:
    off = decide(replace(SMALL, shared=True), ApprovalRules(), decrease=False)
    assert [check.name for check in off.checks[:3]] == ["rule", "own", "small"]
    large = decide(replace(SMALL, gpus=3.0), ON, decrease=False)
    assert (large.decides, large.checks[1].name) == ("small", "rule")
    two = decide(SMALL, replace(ON, two_from_gpus=1.0), decrease=False)
    assert (two.decides, two.approvals_needed) == ("two people", 2)


def test_of_several_tiers_the_share_of_all_is_compared() -> None:
    facts = replace(SMALL, tiers=("a", "b"), entitled_gpus_after=60.0, fair_share_gpus=41.5)
    (check,) = (c for c in decide(facts, ON, decrease=False).checks if c.name == "fair share")
    assert check.holds is False
    assert check.sentence == (
        "With it, all quotas of vision commit 60 GPUs in the 2 tiers of this key: above its fair "
        "share of 41.5 GPUs (30-day average)."
    )


@pytest.mark.parametrize(
    ("budget", "holds"),
    [
        pytest.param(replace(ROOMY, burn_rate=0.9, used=Decimal(2250)), False, id="only with it"),
        pytest.param(replace(ROOMY, burn_rate=1.01), False, id="over already"),
        pytest.param(replace(ROOMY, hours_left=0.0), True, id="at the end of its period"),
        pytest.param(replace(ROOMY, unit="gpu_hours"), True, id="2 GPUs for 520 hours"),
        pytest.param(
            replace(ROOMY, unit="gpu_hours", allowance=Decimal(1000), used=Decimal(0)),
            *(False,),
            id="more GPU-hours than there are",
        ),
        pytest.param(replace(ROOMY, unit="EUR"), None, id="in another currency"),
        pytest.param(replace(ROOMY, burn_rate=None), None, id="before its first hour"),
    ],
)
def test_the_raise_itself_is_held_against_what_is_left(
    budget: BudgetFacts, holds: bool | None
) -> None:
    found = decide(replace(SMALL, budgets=(budget,)), ON, decrease=False)
    (check,) = (c for c in found.checks if c.name == "budget")
    assert check.holds is holds
    assert found.by_rule is (holds is True)


def test_of_several_budgets_the_one_that_is_used_most_is_told() -> None:
    """GPU-hours and money are compared by their used parts: here 96 % and 92 %."""
    hours = BudgetFacts(
        "gpu_hours", "month", Decimal(250000), Decimal(60000), 1.0, hours=720.0, hours_left=518.0
    )
    found = decide(replace(SMALL, budgets=(ROOMY, hours)), ON, decrease=False)
    (check,) = (c for c in found.checks if c.name == "budget")
    assert check.holds
    assert "of 250,000 GPU-hours by the end of the month" in check.sentence


def test_a_team_without_a_budget_keeps_to_none() -> None:
    assert decide(replace(SMALL, budgets=(), no_budget=True), ON, decrease=False).by_rule


def test_a_budget_that_began_before_the_data_approves_nothing() -> None:
    late = replace(ROOMY, from_start=False)
    found = decide(replace(SMALL, budgets=(late,)), ON, decrease=False)
    check = next(one for one in found.checks if one.name == "budget")
    assert (found.by_rule, check.holds) == (False, None)
    assert check.sentence.startswith("The budget is not known: data starts after its month")


def test_hours_without_data_count_at_the_pace_of_the_others() -> None:
    gaps = replace(ROOMY, hours_unknown=72.0)
    assert ROOMY.expected is not None
    assert gaps.expected == pytest.approx(ROOMY.expected + 720)
    found = decide(replace(SMALL, budgets=(gaps,)), ON, decrease=False)
    check = next(one for one in found.checks if one.name == "budget")
    assert check.sentence.endswith("72 hours without data count at that pace.")


@pytest.mark.parametrize(
    ("facts", "check", "words"),
    [
        pytest.param(replace(SMALL, gpus=2.5), "small", "above the limit of 2", id="large"),
        pytest.param(replace(SMALL, gpus=None), "small", "not known", id="unknown size"),
        pytest.param(
            replace(SMALL, entitled_gpus_after=10.0),
            "fair share",
            "above its fair share",
            id="share",
        ),
        pytest.param(
            replace(SMALL, fair_share_gpus=None), "fair share", "not known", id="unknown share"
        ),
        pytest.param(
            replace(SMALL, budgets=(replace(ROOMY, burn_rate=1.01),)),
            *("budget", "over budget"),
            id="budget",
        ),
        pytest.param(
            replace(SMALL, budgets=(replace(ROOMY, burn_rate=None),)),
            *("budget", "not known yet"),
            id="unknown budget",
        ),
        pytest.param(replace(SMALL, foreign_owner=True), "owner", "Another tool", id="owner"),
        pytest.param(
            replace(SMALL, foreign_owner=None), "owner", "Whether another", id="owner not known"
        ),
        pytest.param(replace(SMALL, shared=True), "own", "Several teams share", id="shared"),
        pytest.param(replace(SMALL, dry_run=False), "dry run", "refuses", id="refused"),
        pytest.param(replace(SMALL, dry_run=None), "dry run", "not known", id="not asked"),
    ],
)
def test_what_speaks_against_the_rule_is_named(facts: PolicyFacts, check: str, words: str) -> None:
    found = decide(facts, ON, decrease=False)
    assert not found.by_rule
    (failed,) = (c for c in found.checks if c.holds is not True)
    assert (failed.name, found.decides) == (check, check)
    assert (failed.holds is None) == ("not known" in failed.sentence)
    assert words in failed.sentence


LESS = PolicyFacts(gpus=-40.0, foreign_owner=False)


@pytest.mark.parametrize(
    ("facts", "by_rule"),
    [
        pytest.param(LESS, True, id="any size"),
        pytest.param(replace(LESS, gpus=None), True, id="unknown size"),
        pytest.param(replace(LESS, used_above_new_limit=True), False, id="in use"),
        pytest.param(replace(LESS, foreign_owner=True), False, id="owned by a tool"),
        pytest.param(replace(LESS, foreign_owner=None), False, id="owner not known"),
        pytest.param(replace(LESS, shared=True), False, id="taken from others too"),
    ],
)
def test_a_decrease_approves_itself_where_nothing_is_in_use_above_it(
    facts: PolicyFacts, by_rule: bool
) -> None:
    rules = replace(ON, two_from_gpus=0.0, two_from_cost=Decimal(0))
    found = decide(replace(facts, dry_run=True), rules, decrease=True)
    assert (found.by_rule, found.approvals_needed) == (by_rule, 1)


GPUS = replace(ON, two_from_gpus=2.0)
COST = replace(ON, two_from_cost=Decimal(1000), currency="USD")


@pytest.mark.parametrize(
    ("facts", "rules", "needed", "words"),
    [
        pytest.param(SMALL, GPUS, 2, "2 GPUs: from 2 on two people decide", id="at the threshold"),
        pytest.param(replace(SMALL, gpus=1.9), GPUS, 1, "", id="below"),
        pytest.param(replace(SMALL, gpus=None), GPUS, 2, "size is not known", id="size unknown"),
        pytest.param(SMALL, COST, 2, "$1,460 a month: from $1,000", id="dear"),
        pytest.param(replace(SMALL, cost_per_month=Decimal(999)), COST, 1, "", id="cheap"),
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
    facts: PolicyFacts, rules: ApprovalRules, needed: int, words: str
) -> None:
    found = decide(facts, rules, decrease=False)
    assert found.approvals_needed == needed
    assert words in found.checks[0].sentence
    if needed == 2:
        assert not found.by_rule
