"""Where one team stands on each tier, without reading what all others had."""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime

from apps.accounts.permissions import Visibility
from apps.accounts.selectors import team_names
from apps.clusters.domain.window import Window
from apps.fairness.selectors.measures.sums import TeamSums, TierSums, parts_of, team_sums, tier_sums
from apps.fairness.selectors.names import tier_names
from apps.fairness.selectors.rows import HourCounts
from apps.fairness.selectors.usage_factor import usage_factor_of_teams
from apps.usage.domain.amounts import hours


@dataclass(frozen=True, slots=True)
class TierStanding:
    """One team on one tier over the known hours of a window; None denied where there is none."""

    tier: str
    hours: HourCounts
    entitlement_gpu_hours: float
    allocated_gpu_hours: float
    borrowed_gpu_hours: float
    lent_gpu_hours: float
    denied_gpu_hours: float | None


@dataclass(frozen=True, slots=True)
class TeamStanding:
    """A team on the tiers that it had to do with, in the catalog's order.

    `usage_factor` is of all tiers together; None where nobody is entitled to anything, or nothing
    is known. `usage_known` is the share, 0..1, of the hours behind it that are known.
    """

    tiers: tuple[TierStanding, ...]
    usage_factor: float | None
    usage_known: float | None


def team_standing(
    window: Window,
    team: str,
    *,
    tiers: Collection[str] = (),
    now: datetime,
    visibility: Visibility,
) -> TeamStanding:
    """Return where a team stands, on these tiers or on all; nowhere, where there is no such team.

    What `fairness_rows` tells of it, but for its waits, in a small part of the time. Sums of GPUs
    of teams, which everybody may see: `visibility` narrows nothing. At most 14 queries.
    """
    pk = next((pk for pk, name in team_names().items() if name == team), None)
    if pk is None:
        return TeamStanding((), None, None)
    names, parts = tier_names(tiers), parts_of(window)
    of_tiers, of_team = tier_sums(parts, names), team_sums(parts, names, team=pk)
    factors = usage_factor_of_teams(min(window.end, now), now=now)
    return TeamStanding(
        tiers=tuple(
            _standing(name, of_tiers.get(tier, TierSums()), of_team[tier][pk])
            for tier, name in names.items()
            if pk in of_team[tier]
        ),
        usage_factor=factors.of_teams.get(pk),
        usage_known=factors.known,
    )


def _standing(name: str, own: TierSums, sums: TeamSums) -> TierStanding:
    return TierStanding(
        tier=name,
        hours=own.hours(),
        entitlement_gpu_hours=hours(sums.entitlement),
        allocated_gpu_hours=hours(sums.allocated),
        borrowed_gpu_hours=hours(sums.borrowed),
        lent_gpu_hours=hours(sums.lent),
        denied_gpu_hours=hours(sums.denied) if own.known else None,
    )
