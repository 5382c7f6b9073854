"""Where a team stands, in a few lines: entitlements, fairness of the window, budgets."""

from collections.abc import Sequence
from dataclasses import dataclass

from apps.fairness.selectors import FairnessFilters, TierFairness, fairness_rows
from apps.quotas.selectors import budget_rows
from apps.web.links import href
from apps.web.quota.budgets import Pace, pace_of
from apps.web.reading import Reading


@dataclass(frozen=True, slots=True)
class TierLine:
    """A team on one tier: means in GPUs over the known hours.

    `denied_gpu_hours` is None where nobody watched what waited.
    """

    tier: str
    href: str | None
    entitled: float
    received: float
    borrowed: float
    lent: float
    denied_gpu_hours: float | None


@dataclass(frozen=True, slots=True)
class BudgetLine:
    period: str
    used: float
    allowance: float
    pace: Pace


@dataclass(frozen=True, slots=True)
class Position:
    """`usage_factor` is of all tiers together; None where nobody is entitled."""

    tiers: Sequence[TierLine]
    budgets: Sequence[BudgetLine]
    usage_factor: float | None
    statement_href: str | None
    budgets_href: str | None


def position_of(team: str, reading: Reading) -> Position:
    """Return where a team stands. 38 queries, at most."""
    filters = FairnessFilters(tier=reading.filters.tier, team=(team,))
    tiers = fairness_rows(
        reading.window, now=reading.now, visibility=reading.visibility, filters=filters
    )
    budgets = budget_rows(reading.now, visibility=reading.visibility)
    factors = [row.usage_factor for tier in tiers for row in tier.teams if row.team == team]
    others = [pair for pair in reading.query if pair[0] != "team"]
    return Position(
        tiers=[line for tier in tiers if (line := _line(tier, team, reading)) is not None],
        budgets=[
            BudgetLine(row.period, row.used, row.allowance, pace_of(row, reading.choice.zone))
            for row in budgets
            if row.team == team
        ],
        usage_factor=next((factor for factor in factors if factor is not None), None),
        statement_href=href("statement", reading.query, name=team),
        budgets_href=href("quotas", [("team", team), *others]),
    )


def _line(tier: TierFairness, team: str, reading: Reading) -> TierLine | None:
    own = next((row for row in tier.teams if row.team == team), None)
    hours = tier.hours.known
    if own is None or not hours:
        return None
    return TierLine(
        tier=tier.tier,
        href=href("tier-fairness", reading.query, name=tier.tier),
        entitled=own.entitlement_gpus,
        received=own.allocated_gpu_hours / hours,
        borrowed=own.borrowed_gpu_hours / hours,
        lent=own.lent_gpu_hours / hours,
        denied_gpu_hours=own.denied_gpu_hours if tier.hours.watched else None,
    )
