"""Which requests need whom: approval by rule (off by default) and thresholds for two people."""

from dataclasses import dataclass
from decimal import Decimal
from typing import Final

from apps.changes.domain.quantities import counted


@dataclass(frozen=True, slots=True)
class Rules:
    """What the site has decided. GPU-equivalents and money are of the change, not of the quota.

    A raise approves itself only where `raises_by_rule` is on and it is at most
    `most_gpus_by_rule`, within the fair share and within the budget; a decrease where
    `decreases_by_rule` is on. Two people decide from `two_from_gpus` or `two_from_cost` upwards
    (per month, in `currency`); None sets no such threshold. Decreases never need two.
    """

    raises_by_rule: bool = False
    decreases_by_rule: bool = False
    most_gpus_by_rule: float = 2.0
    two_from_gpus: float | None = None
    two_from_cost: Decimal | None = None
    currency: str = ""


@dataclass(frozen=True, slots=True)
class Lately:
    """What one person, or a rule, let the asking team have in the days before; it still stands.

    Together these raises are one large one that was asked for in parts. `by_rule_gpus` is what
    rules let through, `gpus` and `cost` (in the currency of the report, a month) with what one
    person approved; None is not known.
    """

    by_rule_gpus: float | None = 0.0
    gpus: float | None = 0.0
    cost: Decimal | None = Decimal(0)


LATELY_DAYS: Final = 30


@dataclass(frozen=True, slots=True)
class Facts:
    """What is known of a request when it is submitted; None is not known.

    `gpus` is the change in GPU-equivalents of the tier that weighs most, negative for a decrease.
    `promised_gpus_after` is what all quotas of the team promise it in the tiers that the key
    reaches, with the change; it is held against `fair_share_gpus` (mean of the last 30 days).
    `shared`: several teams hold under the limit, so that one of them cannot ask for all.
    `cost_per_month` is in `currency`.
    `budget_burn_rate` 1.0 lands exactly on budget; a team without a budget has `no_budget`.
    `used_above_new_limit`: more is in use now than the new limit. `foreign_owner`: another tool
    owns the field. `lately` are the raises that this one comes on top of.
    """

    gpus: float | None
    promised_gpus_after: float | None = None
    fair_share_gpus: float | None = None
    budget_burn_rate: float | None = None
    no_budget: bool = False
    cost_per_month: Decimal | None = None
    currency: str = ""
    shared: bool = False
    used_above_new_limit: bool = False
    foreign_owner: bool = False
    lately: Lately = Lately()


@dataclass(frozen=True, slots=True)
class Check:
    """One condition, whether it holds, and the sentence with its figures."""

    name: str
    holds: bool
    sentence: str


@dataclass(frozen=True, slots=True)
class Ruling:
    """Whether the request approves itself, how many people it needs else, and why."""

    by_rule: bool
    approvals_needed: int
    checks: tuple[Check, ...]


def ruling(facts: Facts, rules: Rules, *, decrease: bool) -> Ruling:
    """Decide by rule. What is not known never speaks for a request."""
    checks = _of_decrease(facts, rules) if decrease else _of_raise(facts, rules)
    two = None if decrease else _two_people(facts, rules)
    by_rule = all(check.holds for check in checks) and two is None
    needed = 2 if two is not None else 1
    return Ruling(by_rule, needed, (*checks, *([two] if two else [])))


def _of_decrease(facts: Facts, rules: Rules) -> tuple[Check, ...]:
    on = "are" if rules.decreases_by_rule else "are not"
    above = facts.used_above_new_limit
    used = "More is in use than the new limit" if above else "What is in use stays within the limit"
    return (
        Check("rule", rules.decreases_by_rule, f"Decreases {on} approved by rule here."),
        _own(facts),
        Check("in use", not above, f"{used}."),
        _owner(facts),
    )


def _of_raise(facts: Facts, rules: Rules) -> tuple[Check, ...]:
    on = "are" if rules.raises_by_rule else "are not"
    return (
        Check("rule", rules.raises_by_rule, f"Small raises {on} approved by rule here."),
        _own(facts),
        _small(facts, rules),
        _within_share(facts),
        _within_budget(facts),
        _owner(facts),
    )


def _own(facts: Facts) -> Check:
    """A lead speaks for one team: what others hold under the same limit is not theirs to change."""
    text = "Several teams share this limit." if facts.shared else "No other team shares this limit."
    return Check("own", not facts.shared, text)


def _small(facts: Facts, rules: Rules) -> Check:
    if facts.gpus is None:
        return Check(
            "small", holds=False, sentence="How many GPUs the raise is worth is not known."
        )
    total = _with(facts.gpus, facts.lately.by_rule_gpus)
    if total is None:
        text = "How much rules let the team have lately is not known."
        return Check("small", holds=False, sentence=text)
    holds = total <= rules.most_gpus_by_rule
    sign = "at most" if holds else "more than"
    size = _size(facts.gpus, total)
    return Check("small", holds, f"{size}, {sign} {_figure(rules.most_gpus_by_rule)}.")


def _with(own: float | None, before: float | None) -> float | None:
    return None if own is None or before is None else own + before


def _size(gpus: float, total: float) -> str:
    """Say how large a raise is, and how large with those before it where that is more."""
    if total <= gpus:
        return counted(_figure(gpus), "GPU")
    days = f"with the team's raises of the {LATELY_DAYS} days before"
    return f"{counted(_figure(gpus), 'GPU')}, {_figure(total)} {days}"


def _within_share(facts: Facts) -> Check:
    after, share = facts.promised_gpus_after, facts.fair_share_gpus
    if after is None or share is None:
        return Check("fair share", holds=False, sentence="The team's fair share is not known.")
    holds = after <= share
    sign = "within" if holds else "above"
    gpus = counted(_figure(after), "GPU")
    text = f"{gpus} promised afterwards, {sign} the fair share of {_figure(share)}."
    return Check("fair share", holds, text)


def _within_budget(facts: Facts) -> Check:
    if facts.no_budget:
        return Check("budget", holds=True, sentence="The team has no budget to keep to.")
    rate = facts.budget_burn_rate
    if rate is None:
        return Check("budget", holds=False, sentence="The budget's burn rate is not known yet.")
    sign = "within" if rate <= 1.0 else "over"
    return Check("budget", rate <= 1.0, f"Burn rate {rate:.2f}, {sign} budget.")


def _owner(facts: Facts) -> Check:
    text = (
        "Another tool owns the limit." if facts.foreign_owner else "No other tool owns the limit."
    )
    return Check("owner", not facts.foreign_owner, text)


def _two_people(facts: Facts, rules: Rules) -> Check | None:
    """Return why two people have to decide, if so; an unknown size counts as large."""
    if rules.two_from_gpus is not None:
        total = _with(facts.gpus, facts.lately.gpus)
        if facts.gpus is None or total is None:
            return Check("two people", holds=True, sentence="Its size is not known: two decide.")
        if total >= rules.two_from_gpus:
            size = _size(facts.gpus, total)
            text = f"{size}: from {_figure(rules.two_from_gpus)} on two decide."
            return Check("two people", holds=True, sentence=text)
    if rules.two_from_cost is not None:
        return _two_for_cost(facts, rules, rules.two_from_cost)
    return None


def _two_for_cost(facts: Facts, rules: Rules, least: Decimal) -> Check | None:
    own, before = facts.cost_per_month, facts.lately.cost
    if own is None or before is None or facts.currency != rules.currency:
        return Check("two people", holds=True, sentence="Its cost is not known: two decide.")
    total = own + before
    if total < least:
        return None
    size = f"{own:,.2f} {rules.currency} a month"
    if before:
        size += f", {total:,.2f} with the team's raises of the {LATELY_DAYS} days before"
    return Check("two people", holds=True, sentence=f"{size}: from {least:,.2f} on two decide.")


def _figure(gpus: float) -> str:
    return f"{gpus:.2f}".rstrip("0").rstrip(".")
