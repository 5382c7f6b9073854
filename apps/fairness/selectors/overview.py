"""All tiers at a glance over a window, and shares across them, each sum read once."""

from collections.abc import Mapping

import numpy as np

from apps.accounts.permissions import Visibility
from apps.accounts.selectors import team_names
from apps.clusters.domain.tiers import UNASSIGNED
from apps.clusters.domain.window import Window
from apps.fairness.domain.dominant import dominant_shares
from apps.fairness.domain.indices import jain_allocation_ratio, jain_index
from apps.fairness.domain.team_table import TeamTable, table_of
from apps.fairness.selectors.measures.sums import TierSums, cover_of, tier_sums
from apps.fairness.selectors.measures.team_tables import packed_sums
from apps.fairness.selectors.names import tier_names
from apps.fairness.selectors.rows import (
    DominantShare,
    FairnessFilters,
    FairnessOverview,
    TierGlance,
)
from apps.fairness.selectors.tiers import EVERYTHING_FAIR
from apps.usage.domain.amounts import NANO, hours

_NOBODY = table_of(())
_Tables = Mapping[int, TeamTable]


def fairness_overview(
    window: Window, *, visibility: Visibility, filters: FairnessFilters = EVERYTHING_FAIR
) -> FairnessOverview:
    """Return each tier that any hour of the window was computed of, and dominant shares.

    What `fairness_rows` tells, but for teams one by one and their waits, in a small part of the
    time. A dominant share is the largest part, allocated ÷ capacity, of any one tier. Filters
    narrow tiers, and the sums over teams; indices and shares are of all of them. Everybody may
    see it: `visibility` narrows nothing. At most ten queries.
    """
    names, tiers = team_names(), tier_names()
    of_tiers, tables = _read(window, tiers)
    chosen = {pk for pk, name in names.items() if name in filters.team}
    if UNASSIGNED in filters.team:
        chosen |= {team for table in tables.values() for team in table.teams.tolist()} - {*names}
    glances = []
    for tier, name in tiers.items():
        if tier in of_tiers and (not filters.tier or name in filters.tier):
            table = tables.get(tier, _NOBODY)
            shown = table.only(chosen) if filters.team else table
            glances.append(_glance(name, of_tiers[tier], table, shown))
    return FairnessOverview(tuple(glances), tuple(_shares(of_tiers, tables, tiers, names)))


def _read(window: Window, tiers: Mapping[int, str]) -> tuple[dict[int, TierSums], _Tables]:
    tables, parts = packed_sums(window, cover_of(window), tiers)
    return tier_sums(parts, tiers), tables


def _glance(name: str, own: TierSums, table: TeamTable, shown: TeamTable) -> TierGlance:
    allocated, entitlement, fair_share, demand = (
        table.column(column) / NANO
        for column in ("allocated", "entitlement", "fair_share", "demand")
    )
    denied = shown.column("denied")
    index = jain_index(allocated=allocated, fair_share=fair_share, demand=demand)
    return TierGlance(
        tier=name,
        hours=own.hours(),
        **own.gpu_hours(),
        borrowed_gpu_hours=hours(int(shown.column("borrowed").sum())),
        denied_gpu_hours=hours(int(denied.sum())),
        jain_index=index,
        jain_allocation_ratio=jain_allocation_ratio(allocated=allocated, entitlement=entitlement),
        teams=shown.teams.size,
        denied_teams=int((denied > 0).sum()),
    )


def _shares(
    of_tiers: Mapping[int, TierSums],
    tables: _Tables,
    tiers: Mapping[int, str],
    names: Mapping[int, str],
) -> list[DominantShare]:
    places = list(of_tiers)
    teams = sorted({team for tier in places for team in tables.get(tier, _NOBODY).teams.tolist()})
    held = np.zeros((len(places), len(teams)))
    for row, tier in enumerate(places):
        table = tables.get(tier, _NOBODY)
        held[row, np.searchsorted(np.array(teams), table.teams)] = table.column("allocated")
    shares = dominant_shares(held, np.array([float(of_tiers[tier].capacity) for tier in places]))
    rows = [
        DominantShare(
            team_id=team,
            team=names.get(team, UNASSIGNED),
            share=found.share,
            tier=None if found.tier is None else tiers[places[found.tier]],
        )
        for team, found in zip(teams, shares, strict=True)
    ]
    return sorted(rows, key=lambda row: (-row.share, row.team, row.team_id))
