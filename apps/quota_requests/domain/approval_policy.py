"""Which requests need whom: approval by rule (off by default) and thresholds for two people."""

from decimal import Decimal
from typing import Annotated, Final

from msgspec import Struct

from apps.accounts.domain.formats import money
from apps.clusters.domain.resources import quantity
from apps.quota_requests.domain.quantities import LEFT_OUT, counted
from apps.quota_requests.domain.snapshots import HOURS_PER_MONTH

RECENT_DAYS: Final = 30
GPU_HOURS: Final = "gpu_hours"


class ApprovalRules(Struct, frozen=True):
    """The rules of the site. GPU-equivalents and money are of the change, not of the quota.

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


class RecentIncreases(Struct, frozen=True):
    """The team's raises of the days before that a rule or one person approved and that still stand.

    Together they may be one large raise, requested in parts. `by_rule_gpus` are those approved by
    rule; `gpus` and `cost` (a month, in the currency of the report) also have those that one person
    approved. None is not known.
    """

    by_rule_gpus: float | None = 0.0
    gpus: float | None = 0.0
    cost: Decimal | None = Decimal(0)


class BudgetFacts(Struct, frozen=True):
    """A budget of the team in its running period; `unit` is gpu_hours or a currency.

    `burn_rate` 1.0 lands exactly on the budget, None before the first known hour. `hours` is the
    length of the period, `hours_left` the rest of it. `hours_unknown` are past hours that were not
    collected; `from_start` is False where data starts later than the period.
    """

    unit: str
    period: str
    allowance: Decimal
    used: Decimal
    burn_rate: float | None
    hours: float
    hours_left: float
    hours_unknown: float = 0.0
    from_start: bool = True

    @property
    def expected(self) -> Decimal | None:
        """The use at the end of the period at the pace of its known hours; None is not known.

        Hours that were not collected count at that pace, never as zero.
        """
        if self.burn_rate is None or self.hours <= 0:
            return None
        # Floats become Decimals by their text: the binary value would add digits that were never
        # measured.
        pace = self.burn_rate * (self.hours_left + self.hours_unknown) / self.hours
        return self.used + self.allowance * Decimal(str(pace))


class PolicyFacts(Struct, frozen=True):
    """What is known of a request when it is submitted; None is not known.

    `gpus` is the change in GPU-equivalents of the tier that weighs most, negative for a decrease.
    `entitled_gpus_after` is what all quotas of `team` promise it in the `tiers` that the key
    reaches, with the change; it is held against `fair_share_gpus` (mean of the last 30 days) of
    all these tiers together.
    `shared`: several teams hold under the limit, so that one of them cannot ask for all.
    `cost_per_month` is in `currency`. A team without `budgets` has `no_budget`.
    `used_above_new_limit`: more is in use now than the new limit. `foreign_owner`: another tool
    owns the field, which only the object tells. `dry_run` is what the cluster said of the
    change. `recent` are the raises that this one comes on top of.
    """

    gpus: float | None
    entitled_gpus_after: float | None = None
    fair_share_gpus: float | None = None
    budgets: tuple[BudgetFacts, ...] = ()
    no_budget: bool = False
    cost_per_month: Decimal | None = None
    currency: str = ""
    shared: bool = False
    used_above_new_limit: bool = False
    foreign_owner: bool | None = None
    dry_run: bool | None = None
    team: str = "the team"
    tiers: tuple[str, ...] = ()
    recent: RecentIncreases = RecentIncreases()


class PolicyCheck(Struct, frozen=True):
    """One condition, whether it holds (None: not known), and the sentence with its figures."""

    name: str
    holds: bool | None = None
    sentence: str = ""


class PolicyDecision(Struct, frozen=True):
    """Whether a rule approves the request, how many people it needs otherwise, and why.

    `decides` names the first of `checks`: the reason for two people, or the condition that keeps a
    rule from approving. `gpus` and `cost_per_month` are of the change. Decisions of earlier
    versions of the portal may have nothing but a sentence, the `verdict`.
    """

    by_rule: bool = False
    approvals_needed: int = 1
    decides: str = ""
    gpus: float | None = None
    cost_per_month: Decimal | None = None
    checks: tuple[PolicyCheck, ...] = ()
    verdict: Annotated[str, LEFT_OUT] = ""


def decide(facts: PolicyFacts, rules: ApprovalRules, *, decrease: bool) -> PolicyDecision:
    """Decide by rule. What is not known never speaks for a request."""
    checks = _of_decrease(facts, rules) if decrease else _of_raise(facts, rules)
    two = None if decrease else _two_people(facts, rules)
    # `is True`: a check whose facts are unknown is None and must not approve.
    by_rule = all(check.holds is True for check in checks) and two is None
    # Where all hold, the first one is named: the rule that approves.
    against = next((check for check in checks if check.holds is not True), checks[0])
    first = two or against
    return PolicyDecision(
        by_rule=by_rule,
        approvals_needed=1 if two is None else 2,
        decides=first.name,
        gpus=facts.gpus,
        cost_per_month=facts.cost_per_month,
        checks=(first, *(check for check in checks if check is not first)),
    )


def _of_decrease(facts: PolicyFacts, rules: ApprovalRules) -> tuple[PolicyCheck, ...]:
    above = facts.used_above_new_limit
    used = "More is in use than the new limit" if above else "What is in use stays within the limit"
    return (
        _by_rule("decreases", holds=rules.decreases_by_rule),
        _own(facts),
        PolicyCheck("in use", not above, f"{used}."),
        _owner(facts),
        _dry_run(facts),
    )


def _of_raise(facts: PolicyFacts, rules: ApprovalRules) -> tuple[PolicyCheck, ...]:
    return (
        _by_rule("small raises", holds=rules.raises_by_rule),
        _own(facts),
        _small(facts, rules),
        _within_share(facts),
        _within_budget(facts),
        _owner(facts),
        _dry_run(facts),
    )


def _by_rule(what: str, *, holds: bool) -> PolicyCheck:
    return PolicyCheck("rule", holds, f"{'A' if holds else 'No'} rule approves {what}.")


def _own(facts: PolicyFacts) -> PolicyCheck:
    """A lead speaks for one team: what others hold under the same limit is not theirs to change."""
    text = "Several teams share this limit." if facts.shared else "No other team shares this limit."
    return PolicyCheck("own", not facts.shared, text)


def _dry_run(facts: PolicyFacts) -> PolicyCheck:
    text = {
        True: "Dry run passed.",
        False: "The cluster refuses the change.",
        None: "The outcome of a dry run is not known.",
    }[facts.dry_run]
    return PolicyCheck("dry run", facts.dry_run, text)


def _small(facts: PolicyFacts, rules: ApprovalRules) -> PolicyCheck:
    if facts.gpus is None:
        text = "The raise in GPUs is not known."
        return PolicyCheck("small", holds=None, sentence=text)
    # With recent raises: else a large raise passes in small parts.
    total = _with(facts.gpus, facts.recent.by_rule_gpus)
    if total is None:
        text = "Recent raises approved by rule are not known."
        return PolicyCheck("small", holds=None, sentence=text)
    holds = total <= rules.most_gpus_by_rule
    most = f"the limit of {quantity(rules.most_gpus_by_rule)} for small raises"
    text = f"A raise of {_size(facts.gpus, total)}: {'within' if holds else 'above'} {most}."
    return PolicyCheck("small", holds, text)


def _with(own: float | None, before: float | None) -> float | None:
    return None if own is None or before is None else own + before


def _size(gpus: float, total: float) -> str:
    """Say how large a raise is, and how large with those before it where that is more."""
    if total <= gpus:
        return counted(quantity(gpus), "GPU")
    days = f"with the team's raises of the {RECENT_DAYS} days before"
    return f"{counted(quantity(gpus), 'GPU')}, {quantity(total)} {days}"


def _within_share(facts: PolicyFacts) -> PolicyCheck:
    after, share = facts.entitled_gpus_after, facts.fair_share_gpus
    if after is None or share is None:
        text = f"The fair share of {facts.team} {_in(facts.tiers)} is not known."
        if share is not None:
            text = f"What all quotas of {facts.team} commit {_in(facts.tiers)} is not known."
        return PolicyCheck("fair share", holds=None, sentence=text)
    holds = after <= share
    text = (
        f"With it, all quotas of {facts.team} commit {counted(quantity(after), 'GPU')} "
        f"{_in(facts.tiers)}: {'within' if holds else 'above'} its fair share of "
        f"{counted(quantity(share), 'GPU')} ({RECENT_DAYS}-day average)."
    )
    return PolicyCheck("fair share", holds, text)


def _in(tiers: tuple[str, ...]) -> str:
    if len(tiers) == 1:
        return f"in {tiers[0]}"
    return f"in the {len(tiers)} tiers of this key" if tiers else "in the tiers of this key"


def _within_budget(facts: PolicyFacts) -> PolicyCheck:
    """Hold what the raise costs at most until the period ends against what is left till then."""
    if facts.no_budget:
        return PolicyCheck("budget", holds=True, sentence="The team has no budget.")
    found = [(one, one.expected, _ceiling(one, facts)) for one in facts.budgets]
    known = [(one, e, c) for one, e, c in found if e is not None and c is not None]
    over = [(one, e, c) for one, e, c in known if e + c > one.allowance]
    if over:
        return PolicyCheck("budget", holds=False, sentence=_budget_text(*over[0], holds=False))
    # Only after `over`: use before the data starts could but add to what is over already.
    late = next((one for one in facts.budgets if not one.from_start), None)
    if late is not None:
        text = f"The budget is not known: data starts after its {late.period} began."
        return PolicyCheck("budget", holds=None, sentence=text)
    # A budget without a pace yet, or in another currency, could be the one that it exceeds.
    if not known or len(known) < len(found):
        text = "The budget at its end, with this raise, is not known yet."
        return PolicyCheck("budget", holds=None, sentence=text)
    # By the part that is used: GPU-hours and money cannot be compared as amounts.
    tightest = max(known, key=lambda b: (b[1] + b[2]) / b[0].allowance if b[0].allowance else 1)
    return PolicyCheck("budget", holds=True, sentence=_budget_text(*tightest, holds=True))


def _ceiling(budget: BudgetFacts, facts: PolicyFacts) -> Decimal | None:
    """Return what the raise takes of a budget if all of it is held until the period ends."""
    hours = Decimal(str(budget.hours_left))
    if budget.unit == GPU_HOURS:
        return None if facts.gpus is None else Decimal(str(facts.gpus)) * hours
    if facts.cost_per_month is None or facts.currency != budget.unit:
        return None
    # A month of 730 hours, as the price of a month was made of the price of an hour.
    return facts.cost_per_month / HOURS_PER_MONTH * hours


def _budget_text(budget: BudgetFacts, expected: Decimal, ceiling: Decimal, *, holds: bool) -> str:
    used, whole, more = (
        f"{amount:,.0f} GPU-hours" if budget.unit == GPU_HOURS else money(amount, budget.unit)
        for amount in (expected, budget.allowance, ceiling)
    )
    return (
        f"At this pace the team uses {used} of {whole} by the end of the {budget.period}, with "
        f"this raise at most {more} more: "
        f"{'within' if holds else 'over'} budget.{_unknown_text(budget)}"
    )


def _unknown_text(budget: BudgetFacts) -> str:
    if budget.hours_unknown < 1:
        return ""
    return f" {counted(f'{budget.hours_unknown:,.0f}', 'hour')} without data count at that pace."


def _owner(facts: PolicyFacts) -> PolicyCheck:
    text = {
        True: "Another tool owns the limit.",
        False: "No other tool owns the limit.",
        None: "Whether another tool owns the limit is not known.",
    }[facts.foreign_owner]
    owned = facts.foreign_owner
    return PolicyCheck("owner", None if owned is None else not owned, text)


def _two_people(facts: PolicyFacts, rules: ApprovalRules) -> PolicyCheck | None:
    """Return why two people have to decide, if so; an unknown size counts as large."""
    if rules.two_from_gpus is not None:
        total = _with(facts.gpus, facts.recent.gpus)
        if facts.gpus is None or total is None:
            return PolicyCheck(
                "two people", holds=True, sentence="Its size is not known: two people decide."
            )
        if total >= rules.two_from_gpus:
            size = _size(facts.gpus, total)
            text = f"A raise of {size}: from {quantity(rules.two_from_gpus)} on two people decide."
            return PolicyCheck("two people", holds=True, sentence=text)
    if rules.two_from_cost is not None:
        return _two_for_cost(facts, rules, rules.two_from_cost)
    return None


def _two_for_cost(facts: PolicyFacts, rules: ApprovalRules, least: Decimal) -> PolicyCheck | None:
    own, before = facts.cost_per_month, facts.recent.cost
    # Amounts of two currencies are never compared: such a cost counts as unknown, so as large.
    if own is None or before is None or facts.currency != rules.currency:
        return PolicyCheck(
            "two people", holds=True, sentence="Its cost is not known: two people decide."
        )
    total = own + before
    if total < least:
        return None
    size = f"{money(own, rules.currency)} a month"
    if before:
        days = f"with the team's raises of the {RECENT_DAYS} days before"
        size += f", {money(total, rules.currency)} {days}"
    text = f"A raise of up to {size}: from {money(least, rules.currency)} on two people decide."
    return PolicyCheck("two people", holds=True, sentence=text)
