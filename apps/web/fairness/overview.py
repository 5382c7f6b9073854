"""The fairness page: index, unmet fair share and idle entitlement by tier; dominant shares."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from django.http import Http404, HttpResponseBase

from apps.clusters import selectors as clusters
from apps.fairness.selectors import (
    DominantShare,
    FairnessFilters,
    HourCounts,
    TierGlance,
    fairness_overview,
)
from apps.web.components.formats import Format
from apps.web.components.page_query import figure_hrefs, href
from apps.web.components.tables import Column, Table, TableRow, declared_columns, declared_values
from apps.web.pages import page, respond
from apps.web.query_session import (
    PageRequest,
    QuerySession,
    freshness_of,
    quality_of,
    query_session,
)

HOURS = (
    Column("hours_known", "Known", Format.COUNT, "h", "the watch recorded the demand"),
    Column("hours_estimated", "Estimated", Format.COUNT, "h", "demand is estimated from series"),
    Column("hours_unknown", "Unknown", Format.COUNT, "h", "no facts or no demand: in no sum"),
)
COLUMNS = {column.key: column for column in declared_columns(TierGlance)}
NOT_COMPUTED = (
    "No hour of this window was computed yet. Fairness is computed for each hour once its facts "
    "are in: Data quality shows which hours are."
)


@dataclass(frozen=True, slots=True)
class Caveats:
    """What is not known of some hours; `known` hours are in the sums.

    `lacking` are the tiers with missing hours, empty where all tiers have some.
    """

    known: int
    lacking: tuple[str, ...]
    missing: int
    partial: int
    estimated: int

    @property
    def any(self) -> bool:
        return bool(self.missing or self.partial or self.estimated)


def caveats_of(hours_of: Mapping[str, HourCounts]) -> Caveats:
    """Return what to say of the hours of several tiers: of each kind the most."""
    hours = hours_of.values()
    lacking = tuple(name for name, one in hours_of.items() if one.missing)
    return Caveats(
        known=max((one.known for one in hours), default=0),
        lacking=() if len(lacking) == len(hours) else lacking,
        missing=max((one.missing for one in hours), default=0),
        partial=max((one.partial for one in hours), default=0),
        estimated=max((one.estimated for one in hours), default=0),
    )


def hour_values(hours: HourCounts) -> dict[str, int]:
    return {
        "hours_known": hours.watched,
        "hours_estimated": hours.estimated,
        "hours_unknown": hours.missing,
    }


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


@page
def fairness_list(request: PageRequest) -> HttpResponseBase:
    reading = query_session(request, takes=("tier", "team"))
    own = reading.filters
    found = fairness_overview(
        reading.window,
        visibility=reading.visibility,
        filters=FairnessFilters(tier=own.tier, team=own.team),
    )
    return respond(
        request,
        reading,
        "fairness",
        tables=[
            tier_table(found.tiers, reading),
            dominant_table(found.shares, reading),
        ],
        caveats=caveats_of({row.tier: row.hours for row in found.tiers}),
        quality=quality_of(reading, freshness_of(reading), None),
    )


def known_tiers(name: str, reading: QuerySession) -> list[str]:
    """Return the names of all tiers; there must be one of this name."""
    rows = clusters.tier_rows(visibility=reading.visibility, former=True)
    if name not in {row.name for row in rows}:
        raise Http404(f"There is no tier “{name}”.")
    return [row.name for row in rows if row.active or row.name == name]
