"""The fairness page: index, unmet fair share and idle entitlement by tier; dominant shares."""

from collections.abc import Mapping, Sequence
from typing import Any

from django.http import Http404, HttpResponseBase

from apps.accounts.selectors import TEAMS
from apps.clusters import selectors as clusters
from apps.fairness.selectors import (
    DominantShare,
    FairnessFilters,
    FairnessOverview,
    TierGlance,
    fairness_overview,
)
from apps.quotas.selectors import TierCommitment, tier_commitments
from apps.web.components.formats import Format
from apps.web.components.page_query import figure_hrefs, href
from apps.web.components.tables import Column, Table, TableRow, declared_columns, declared_values
from apps.web.components.tabs import Tab, tab_bar
from apps.web.fairness.caveats import HOURS, NOT_COMPUTED, caveats_of, hour_values
from apps.web.fairness.overview_pictures import overview_drawings, overview_figures
from apps.web.pages import page, respond
from apps.web.query_session import (
    PageRequest,
    QuerySession,
    freshness_of,
    quality_of,
    query_session,
)

COLUMNS = {column.key: column for column in declared_columns(TierGlance)}


def tier_table(rows: Sequence[TierGlance], reading: QuerySession) -> Table:
    """Return a line per tier, in the catalog's order."""
    return Table(
        id="tiers",
        title="Tiers",
        columns=(*COLUMNS.values(), *HOURS),
        rows=[_tier(row, reading) for row in rows],
        zone=reading.choice.zone,
        empty=NOT_COMPUTED,
    )


_EXPLAINS = {
    "jain_index": "jain_index",
    "jain_allocation_ratio": "jain_allocation_ratio",
    "denied_gpu_hours": "unmet_fair_share",
    "borrowed_gpu_hours": "borrowed",
    "borrowable_gpu_hours": "idle_entitlement_under_demand",
    "overdrawn_gpu_hours": "overdrawn",
    "from_pool_gpu_hours": "from_pool",
    "capacity_gpu_hours": "fairness_capacity",
}


def _tier(row: TierGlance, reading: QuerySession) -> TableRow:
    # Of no known hour a sum says nothing.
    known = declared_values(row) if row.hours.known else {"tier": row.tier}
    return TableRow(
        {**known, **hour_values(row.hours)},
        {"tier": href("tier-fairness", reading.query, name=row.tier)},
        explains=figure_hrefs(_EXPLAINS, reading.query, tier=row.tier),
    )


_SHARE = {"dominant_share_ratio": "dominant_share"}


def dominant_table(rows: Sequence[DominantShare], reading: QuerySession) -> Table:
    """Return each team's largest part of any one tier."""
    teams = reading.filters.team
    own = [row for row in rows if not teams or row.team in teams]
    return Table(
        id="dominant",
        title="Dominant shares",
        columns=(
            Column("team", "Team"),
            Column("dominant_share_ratio", "Dominant share", Format.RATIO, "%"),
            Column("tier", "Of tier"),
        ),
        rows=[
            TableRow(
                {"team": row.team, "dominant_share_ratio": row.share, "tier": row.tier},
                {
                    "team": href("team", reading.query, name=row.team),
                    "tier": href("tier-fairness", reading.query, name=row.tier)
                    if row.tier
                    else None,
                },
                explains=figure_hrefs(_SHARE, reading.query, team=row.team),
            )
            for row in own
        ],
        zone=reading.choice.zone,
        empty=NOT_COMPUTED,
        note="Each team's largest part of the capacity of any one tier, over the window."
        if own
        else "",
    )


_TABS = (
    Tab("tiers", "Tiers"),
    Tab("figures", "All figures"),
    Tab("dominant", "Dominant shares"),
)
_TAB_OF_FILE = {"tiers": "figures", "dominant": "dominant"}
"""Files have had addresses without a tab for longer than there are tabs."""


@page
def fairness_list(request: PageRequest) -> HttpResponseBase:
    reading = query_session(request, takes=("tier", "team"), reads=(TEAMS,))
    own = reading.filters
    found = fairness_overview(
        reading.window,
        visibility=reading.visibility,
        filters=FairnessFilters(tier=own.tier, team=own.team),
    )
    commitments = tier_commitments(reading.now)
    tabs = tab_bar(request, _TABS, name="Fairness")
    return respond(
        request,
        reading,
        "fairness",
        figures=overview_figures(found, commitments, reading),
        tabs=tabs,
        caveats=caveats_of({row.tier: row.hours for row in found.tiers}),
        quality=quality_of(reading, freshness_of(reading), None),
        **_tab(
            _TAB_OF_FILE.get(request.GET.get("table", ""), tabs.chosen), found, commitments, reading
        ),
    )


def _tab(
    chosen: str,
    found: FairnessOverview,
    commitments: Mapping[str, TierCommitment],
    reading: QuerySession,
) -> dict[str, Any]:
    """Return what the open tab shows, and nothing of the others."""
    if chosen == "figures":
        return {"tables": [tier_table(found.tiers, reading)]}
    if chosen == "dominant":
        return {"tables": [dominant_table(found.shares, reading)]}
    return {"drawings": overview_drawings(found, commitments, reading)}


def known_tiers(name: str, reading: QuerySession) -> list[str]:
    """Return the names of all tiers; there must be one of this name."""
    rows = clusters.tier_rows(visibility=reading.visibility, former=True)
    if name not in {row.name for row in rows}:
        raise Http404(f"There is no tier “{name}”.")
    return [row.name for row in rows if row.active or row.name == name]
