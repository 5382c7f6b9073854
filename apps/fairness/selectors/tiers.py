"""Fairness of tiers over a window: their teams and their indices."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from apps.accounts.permissions import Visibility
from apps.accounts.selectors import team_names
from apps.clusters.domain.tiers import UNASSIGNED
from apps.clusters.domain.window import Window
from apps.fairness.domain.indices import jain_allocation_ratio, jain_index
from apps.fairness.selectors.measures.sums import (
    Parts,
    TeamSums,
    TierSums,
    parts_of,
    team_sums,
    tier_sums,
)
from apps.fairness.selectors.names import tier_names
from apps.fairness.selectors.queue_times import TeamWaits, dark_tiers, team_waits
from apps.fairness.selectors.rows import (
    FairnessFilters,
    TeamFairness,
    TierFairness,
)
from apps.fairness.selectors.usage_factor import UsageFactors, usage_factor_of_teams
from apps.usage.domain.amounts import hours

EVERYTHING_FAIR = FairnessFilters()
_NO_WAITS = TeamWaits()
_Teams = Mapping[int, TeamSums]


def fairness_rows(
    window: Window,
    *,
    now: datetime,
    visibility: Visibility,
    filters: FairnessFilters = EVERYTHING_FAIR,
) -> list[TierFairness]:
    """Return each tier of which anything is known in the window, with its teams, by name.

    Tiers are in the catalog's order. Sums of GPUs at the level of a team, which everybody may
    see: `visibility` narrows nothing. Hours that were not computed yet are in no sum. At most 24
    queries.
    """
    return tier_rows(window_sums(window, filters.tier), now=now, filters=filters)


@dataclass(frozen=True, slots=True)
class WindowSums:
    """The sums of teams in some tiers over a window; names of tiers and teams by id."""

    window: Window
    parts: Parts
    tiers: Mapping[int, str]
    teams: Mapping[int, str]
    of_teams: Mapping[int, _Teams]


def window_sums(window: Window, tiers: tuple[str, ...]) -> WindowSums:
    """Return the sums of these tiers, or of all. Six queries."""
    parts, names = parts_of(window), tier_names(tiers)
    return WindowSums(window, parts, names, team_names(), team_sums(parts, names))


def tier_rows(
    read: WindowSums, *, now: datetime, filters: FairnessFilters = EVERYTHING_FAIR
) -> list[TierFairness]:
    """Return the rows of tiers whose teams' sums were read already."""
    window, tiers = read.window, read.tiers
    of_tiers = tier_sums(read.parts, tiers)
    waits = team_waits(window, tiers, now=now)
    dark = dark_tiers(window, tiers, now=now)
    factors = usage_factor_of_teams(min(window.end, now), now=now)
    found = []
    for tier, name in tiers.items():
        asked = {team: wait for (of_tier, team), wait in waits.items() if of_tier == tier}
        if tier not in of_tiers and not asked:
            continue
        own = of_tiers.get(tier, TierSums())
        one = _TierParts(name, own, read.of_teams[tier], asked, factors, tier in dark)
        rows = [
            _team_row(one, team, read.teams.get(team, UNASSIGNED)) for team in {*one.sums, *asked}
        ]
        shown = (row for row in rows if not filters.team or row.team in filters.team)
        found.append(_tier_row(one, tuple(sorted(shown, key=_by_name))))
    return found


def _by_name(row: TeamFairness) -> tuple[str, int]:
    return row.team, row.team_id


@dataclass(frozen=True, slots=True)
class _TierParts:
    """What was read of one tier; `sums` and `waits` by team."""

    name: str
    own: TierSums
    sums: _Teams
    waits: Mapping[int, TeamWaits]
    factors: UsageFactors
    dark: bool


def _team_row(tier: _TierParts, team_id: int, team: str) -> TeamFairness:
    sums, waits = tier.sums.get(team_id, TeamSums()), tier.waits.get(team_id, _NO_WAITS)
    known = tier.own.known
    p50, p95 = waits.percentiles()
    return TeamFairness(
        tier=tier.name,
        team_id=team_id,
        team=team,
        entitlement_gpus=hours(sums.entitlement) / known if known else 0.0,
        **sums.gpu_hours(),
        idle_gpu_hours=hours(sums.idle),
        wait_p50_seconds=p50,
        wait_p95_seconds=p95,
        waits_ended=waits.ended.total(),
        waiting_now=None if tier.dark and not waits.waiting_now else waits.waiting_now,
        gave_up=waits.gave_up,
        usage_factor=tier.factors.of_teams.get(team_id),
    )


def _tier_row(tier: _TierParts, teams: tuple[TeamFairness, ...]) -> TierFairness:
    own, (index, ratio) = tier.own, jain_of(tier.sums)
    return TierFairness(
        tier=tier.name,
        hours=own.hours(),
        **own.gpu_hours(),
        jain_index=index,
        jain_allocation_ratio=ratio,
        teams=teams,
        usage_known=tier.factors.known,
        dark=tier.dark,
    )


def jain_of(sums: _Teams) -> tuple[float | None, float | None]:
    """Return Jain's index over allocated ÷ fair share, and over allocated ÷ entitlement."""
    ordered = [sums[team] for team in sorted(sums)]
    allocated = [hours(team.allocated) for team in ordered]
    index = jain_index(
        allocated=allocated,
        fair_share=[hours(team.fair_share) for team in ordered],
        demand=[hours(team.demand) for team in ordered],
    )
    entitlement = [hours(team.entitlement) for team in ordered]
    return index, jain_allocation_ratio(allocated=allocated, entitlement=entitlement)
