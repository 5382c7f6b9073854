"""Where a team stands, in a few lines: entitlements, fairness of the window, budgets."""

from collections.abc import Sequence
from dataclasses import dataclass

from apps.fairness.selectors import TierStanding, team_standing
from apps.quotas.selectors import budget_rows
from apps.web.links import href
from apps.web.quota.budgets import Pace, pace_of
from apps.web.reading import Reading


@dataclass(frozen=True, slots=True)
class TierLine:
    """A team on one tier: means in GPUs over the known hours.

    In the `estimated_hours` demand is estimated from series; the `missing_hours` are in nothing.
    """

    tier: str
    href: str | None
    entitled: float
    received: float
    borrowed: float
    lent: float
    denied_gpu_hours: float | None
    estimated_hours: int
    missing_hours: int


@dataclass(frozen=True, slots=True)
class BudgetLine:
    period: str
    used: float
    allowance: float
    pace: Pace


@dataclass(frozen=True, slots=True)
class Position:
    """`usage_factor` is of all tiers together, None where nobody is entitled or nothing is known.

    `usage_known` is the share, 0..1, of the hours behind it that are known.
    """

    tiers: Sequence[TierLine]
    budgets: Sequence[BudgetLine]
    usage_factor: float | None
    usage_known: float | None
    statement_href: str | None
    budgets_href: str | None


def position_of(team: str, reading: Reading) -> Position:
    """Return where a team stands. 33 queries, at most."""
    standing = team_standing(
        reading.window,
        team,
        tiers=reading.filters.tier,
        now=reading.now,
        visibility=reading.visibility,
    )
    budgets = budget_rows(reading.now, visibility=reading.visibility, team=team)
    others = [pair for pair in reading.query if pair[0] != "team"]
    return Position(
        tiers=[_line(tier, reading) for tier in standing.tiers if tier.hours.known],
        budgets=[
            BudgetLine(row.period, row.used, row.allowance, pace_of(row, reading.choice.zone))
            for row in budgets
        ],
        usage_factor=standing.usage_factor,
        usage_known=standing.usage_known,
        statement_href=href("statement", reading.query, name=team),
        budgets_href=href("quotas", [("team", team), *others]),
    )


def _line(own: TierStanding, reading: Reading) -> TierLine:
    hours = own.hours.known
    return TierLine(
        tier=own.tier,
        href=href("tier-fairness", reading.query, name=own.tier),
        entitled=own.entitlement_gpu_hours / hours,
        received=own.allocated_gpu_hours / hours,
        borrowed=own.borrowed_gpu_hours / hours,
        lent=own.lent_gpu_hours / hours,
        denied_gpu_hours=own.denied_gpu_hours,
        estimated_hours=own.hours.estimated,
        missing_hours=own.hours.missing,
    )
