"""Where a team stands, in a few lines: entitlements, fairness of the window, budgets."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from apps.fairness.selectors import TierStanding, team_standing
from apps.quotas.selectors import BudgetRow, budget_rows
from apps.web.components.links import figure_href, figure_hrefs, href
from apps.web.query_session import QuerySession
from apps.web.quotas.budgets import Pace, pace_of


@dataclass(frozen=True, slots=True)
class TierLine:
    """A team on one tier: means in GPUs over the `hours` that are known or estimated.

    In the `estimated_hours` demand is estimated from series; the `missing_hours` are in nothing.
    """

    tier: str
    href: str | None
    entitled: float
    received: float
    borrowed: float
    lent: float
    denied_gpu_hours: float | None
    hours: int
    estimated_hours: int
    missing_hours: int
    explains: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class BudgetLine:
    period: str
    explain_href: str
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
    factor_href: str


def position_of(team: str, reading: QuerySession) -> Position:
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
        tiers=[_line(team, tier, reading) for tier in standing.tiers if tier.hours.known],
        budgets=[_budget(row, reading) for row in budgets],
        usage_factor=standing.usage_factor,
        usage_known=standing.usage_known,
        statement_href=href("statement", reading.query, name=team),
        budgets_href=href("quotas", [("team", team), *others]),
        factor_href=figure_href("usage_factor", reading.query, team=team),
    )


def _budget(row: BudgetRow, reading: QuerySession) -> BudgetLine:
    link = figure_href("budget_used", reading.query, team=row.team, period=row.period)
    pace = pace_of(row, reading.choice.zone)
    return BudgetLine(row.period, link, row.used, row.allowance, pace)


_EXPLAINS = {
    "entitled": "mean_entitled",
    "received": "mean_allocated",
    "borrowed": "mean_borrowed",
    "lent": "mean_lent",
    "denied": "unmet_fair_share",
}


def _line(team: str, own: TierStanding, reading: QuerySession) -> TierLine:
    hours = own.hours.known
    return TierLine(
        tier=own.tier,
        href=href("tier-fairness", reading.query, name=own.tier),
        entitled=own.entitlement_gpu_hours / hours,
        received=own.allocated_gpu_hours / hours,
        borrowed=own.borrowed_gpu_hours / hours,
        lent=own.lent_gpu_hours / hours,
        denied_gpu_hours=own.denied_gpu_hours,
        hours=hours,
        estimated_hours=own.hours.estimated,
        missing_hours=own.hours.missing,
        explains=figure_hrefs(_EXPLAINS, reading.query, tier=own.tier, team=team),
    )
