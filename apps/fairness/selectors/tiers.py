"""Fairness of tiers over a window: their teams and their indices."""

from collections.abc import Mapping
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
from apps.fairness.selectors.usage_factor import usage_factor_of_teams
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
    tiers, parts = tier_names(filters.tier), parts_of(window)
    sums = team_sums(parts, tiers)
    return tier_rows(window, tiers, parts, sums, team_names(), now=now, filters=filters)


def tier_rows(
    window: Window,
    tiers: Mapping[int, str],
    parts: Parts,
    of_teams: Mapping[int, _Teams],
    names: Mapping[int, str],
    *,
    now: datetime,
    filters: FairnessFilters = EVERYTHING_FAIR,
) -> list[TierFairness]:
    """Return the rows of tiers (id → name) whose teams' sums were read already."""
    of_tiers = tier_sums(parts, tiers)
    waits = team_waits(window, tiers, now=now)
    dark = dark_tiers(window, tiers, now=now)
    factors = usage_factor_of_teams(min(window.end, now), now=now)
    found = []
    for tier, name in tiers.items():
        asked = {team for of_tier, team in waits if of_tier == tier}
        if tier not in of_tiers and not asked:
            continue
        own, sums = of_tiers.get(tier, TierSums()), of_teams[tier]
        rows = [
            _team_row(
                name,
                team,
                names.get(team, UNASSIGNED),
                sums.get(team, TeamSums()),
                own.known,
                waits.get((tier, team), _NO_WAITS),
                factors.of_teams.get(team),
                dark=tier in dark,
            )
            for team in {*sums, *asked}
        ]
        shown = (row for row in rows if not filters.team or row.team in filters.team)
        ordered = tuple(sorted(shown, key=_by_name))
        found.append(
            _tier_row(name, own, sums, ordered, usage_known=factors.known, dark=tier in dark)
        )
    return found


def _by_name(row: TeamFairness) -> tuple[str, int]:
    return row.team, row.team_id


def _team_row(
    tier: str,
    team_id: int,
    team: str,
    sums: TeamSums,
    known: int,
    waits: TeamWaits,
    factor: float | None,
    *,
    dark: bool,
) -> TeamFairness:
    p50, p95 = waits.percentiles()
    entitlement = hours(sums.entitlement)
    return TeamFairness(
        tier=tier,
        team_id=team_id,
        team=team,
        entitlement_gpus=entitlement / known if known else 0.0,
        entitlement_gpu_hours=entitlement,
        demand_gpu_hours=hours(sums.demand),
        fair_share_gpu_hours=hours(sums.fair_share),
        allocated_gpu_hours=hours(sums.allocated),
        borrowed_gpu_hours=hours(sums.borrowed),
        lent_gpu_hours=hours(sums.lent),
        denied_gpu_hours=hours(sums.denied),
        from_pool_gpu_hours=hours(sums.from_pool),
        overdrawn_gpu_hours=hours(sums.overdrawn),
        idle_gpu_hours=hours(sums.idle),
        wait_p50_seconds=p50,
        wait_p95_seconds=p95,
        waits_ended=waits.ended.total(),
        waiting_now=None if dark and not waits.waiting_now else waits.waiting_now,
        gave_up=waits.gave_up,
        usage_factor=factor,
    )


def _tier_row(
    name: str,
    own: TierSums,
    sums: _Teams,
    teams: tuple[TeamFairness, ...],
    *,
    usage_known: float | None,
    dark: bool,
) -> TierFairness:
    index, ratio = jain_of(sums)
    return TierFairness(
        tier=name,
        hours=own.hours(),
        capacity_gpu_hours=hours(own.capacity),
        from_pool_gpu_hours=hours(own.from_pool),
        overdrawn_gpu_hours=hours(own.overdrawn),
        borrowable_gpu_hours=hours(own.borrowable),
        jain_index=index,
        jain_allocation_ratio=ratio,
        teams=teams,
        usage_known=usage_known,
        dark=dark,
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
