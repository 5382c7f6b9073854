"""The fairness page: index, unmet fair share and idle entitlement by tier; dominant shares."""

from collections.abc import Mapping, Sequence
from typing import Any

from django.http import Http404, HttpResponseBase

from apps.accounts.domain.structs import replace
from apps.accounts.selectors import TEAMS
from apps.clusters import selectors as clusters
from apps.fairness.selectors import (
    DominantShare,
    FairnessFilters,
    FairnessOverview,
    TierGlance,
    fairness_overview,
    idle_entitlement,
)
from apps.quotas.selectors import TierCommitment, tier_commitments
from apps.web.components import formats
from apps.web.components.drawings import Drawing, RankedRow, RankPart, ranking
from apps.web.components.drawings.base import MOST
from apps.web.components.figure_row import FigureRow, KeyFigure, Tone, figure_row, no_data
from apps.web.components.formats import Format, gpus_text
from apps.web.components.page_query import figure_href, figure_hrefs, href
from apps.web.components.tables import Column, Table, TableRow, declared_columns, declared_values
from apps.web.components.tabs import Tab, tab_bar
from apps.web.fairness.caveats import HOURS, NOT_COMPUTED, UNKNOWN, caveats_of, hour_values
from apps.web.pages import page, respond
from apps.web.query_session import (
    PageRequest,
    QuerySession,
    freshness_of,
    quality_of,
    query_session,
)

UNMET_PART = RankPart("unmet_gpu_hours", "Unmet fair share", "of-unmet", shape="hatch")
IDLE_PARTS = (
    RankPart("unallocated_gpu_hours", "Not allocated", "of-unallocated"),
    RankPart("idle_gpu_hours", "Allocated, idle", "of-idle"),
)
MOST_COMPARED = 200_000
"""Hours × teams whose unused entitlement is read for a page; more would take seconds."""
TOO_MANY = "Choose a shorter time: these are too many hours and teams to compare."
_SHOWS = 0.5  # GPU-hours; less is no team's loss


# ---------------------------------------------------------------- figures


def overview_figures(
    found: FairnessOverview, commitments: Mapping[str, TierCommitment], reading: QuerySession
) -> FigureRow:
    """Return the unfairest tier, the sums over all, and how many tiers are overcommitted."""
    known = [row for row in found.tiers if row.hours.known]
    unfair = sum(row.denied_gpu_hours > _SHOWS for row in known)
    unmet = sum(row.denied_gpu_hours for row in known)
    idle = sum(row.borrowable_gpu_hours for row in known)

    def amount(label: str, gpu_hours: float, figure: str, note: str, tone: Tone) -> KeyFigure:
        if not known:
            return no_data(label, UNKNOWN)
        return KeyFigure(
            label,
            gpus_text(gpu_hours),
            "GPU-h",
            exact=f"{gpu_hours:,.2f} GPU-hours",
            href=figure_href(figure, reading.query),
            note=note,
            tone=tone,
        )

    return figure_row(
        amount(
            "Unmet fair share",
            unmet,
            "unmet_fair_share",
            f"on {unfair} of {len(known)} tiers",
            Tone.WARNING if unmet > _SHOWS else Tone.NONE,
        ),
        _lowest_index(known, reading),
        amount(
            "Idle entitlement under demand", idle, "idle_entitlement_under_demand", "", Tone.NONE
        ),
        _overcommitted(found, commitments),
    )


def _lowest_index(known: Sequence[TierGlance], reading: QuerySession) -> KeyFigure:
    label = "Lowest fairness index"
    indices = [(row.jain_index, row.tier) for row in known if row.jain_index is not None]
    if not indices:
        return no_data(label, UNKNOWN)
    index, tier = min(indices)
    return KeyFigure(
        label,
        formats.percent(index),
        exact=f"{index * 100:.2f} % (100 % is even)",
        href=figure_href("jain_index", reading.query, tier=tier),
        # A name of several words would break the line of a figure; the address has it all the same.
        note=tier if len(tier.split()) <= 1 else "",
    )


def _overcommitted(found: FairnessOverview, commitments: Mapping[str, TierCommitment]) -> KeyFigure:
    """Return how many of the tiers are entitled to more than they have, and the largest."""
    label = "Overcommitted tiers"
    shown = {row.tier for row in found.tiers if row.hours.known}
    ratios = [
        (own.ratio, tier)
        for tier, own in commitments.items()
        if tier in shown and own.ratio is not None
    ]
    if not ratios:
        return no_data(label, "No capacity in the last 24 hours.")
    over = [(ratio, tier) for ratio, tier in ratios if ratio > 1]
    most, tier = max(ratios)
    return KeyFigure(
        label,
        str(len(over)),
        f"of {len(ratios)}",
        exact=f"{tier}: {most * 100:.1f} % of capacity is entitled",
        basis="now",
        note=f"{tier} {formats.percent(most)}" if over and len(tier.split()) == 1 else "",
        tone=Tone.WARNING if over else Tone.NONE,
    )


# ---------------------------------------------------------------- pictures


def overview_drawings(
    found: FairnessOverview, commitments: Mapping[str, TierCommitment], reading: QuerySession
) -> list[Drawing]:
    """Return unmet fair share by tier, by team, and unused entitlement in the same hours."""
    return [
        _tiers(found, commitments, reading),
        _underserved(found, reading),
        _idle(found, reading),
    ]


def _tiers(
    found: FairnessOverview, commitments: Mapping[str, TierCommitment], reading: QuerySession
) -> Drawing:
    # Tiers without a known hour come last: that nothing is known is no unmet share of 0.
    rows = sorted(found.tiers, key=lambda row: (not row.hours.known, -row.denied_gpu_hours))
    drawn = ranking(
        "unfair",
        "Unmet fair share by tier",
        [_tier_row(row, commitments.get(row.tier), reading) for row in rows],
        parts=[UNMET_PART],
        label="Tier",
        empty=NOT_COMPUTED,
    )
    meaning = (
        "Jain's index is 100 % where all is even. Entitlements are in percent of the capacity."
    )
    return replace(drawn, caption=meaning)


def _tier_row(
    row: TierGlance, commitment: TierCommitment | None, reading: QuerySession
) -> RankedRow:
    ratio = commitment.ratio if commitment else None
    notes = [
        "GPU-h" if row.hours.known else "",
        f"index {formats.percent(row.jain_index)}" if row.jain_index is not None else "",
        f"{formats.percent(ratio)} entitled" if ratio is not None else "",
    ]
    known = row.hours.known
    return RankedRow(
        row.tier,
        (row.denied_gpu_hours if known else None,),
        href=href("tier-fairness", reading.query, name=row.tier) or "",
        note=" · ".join(note for note in notes if note),
        explain_href=figure_href("unmet_fair_share", reading.query, tier=row.tier) if known else "",
    )


def rank_links(
    figure: str, tier: str, team: str, reading: QuerySession, *, place: int, to_team: bool = False
) -> dict[str, str]:
    """Return the links of a team's row, to its statement or else to the tier.

    A row so far down that it is not drawn has none.
    """
    # A thousand teams on twenty tiers have more rows than are drawn, and a file has no links.
    if place >= MOST:
        return {}
    leads, name = ("statement", team) if to_team else ("tier-fairness", tier)
    return {
        "href": href(leads, reading.query, name=name) or "",
        "explain_href": figure_href(figure, reading.query, tier=tier, team=team),
    }


def _underserved(found: FairnessOverview, reading: QuerySession) -> Drawing:
    return ranking(
        "underserved",
        "Underserved teams",
        [
            RankedRow(
                f"{one.team} · {one.tier}",
                (one.unmet_gpu_hours,),
                note="GPU-h",
                **rank_links("unmet_fair_share", one.tier, one.team, reading, place=place),
            )
            for place, one in enumerate(found.underserved)
        ],
        parts=[UNMET_PART],
        empty="No team had unmet fair share."
        if any(row.hours.known for row in found.tiers)
        else UNKNOWN,
    )


def _idle(found: FairnessOverview, reading: QuerySession) -> Drawing:
    """Return the largest unused entitlements in the hours with unmet fair share of other teams."""
    # Where no team lacked a fair share, unused entitlement was withheld from no team.
    tiers = _comparable([row for row in found.tiers if row.denied_gpu_hours > 0])
    by_tier = idle_entitlement(reading.window, tiers, visibility=reading.visibility)
    named = reading.filters.team
    pairs = [
        (tier, team)
        for tier, idle in by_tier.items()
        for team in idle.teams
        if not named or team.team in named
    ]
    pairs.sort(key=lambda one: (-one[1].total, one[0], one[1].team))
    left_out = sum(row.denied_gpu_hours > 0 for row in found.tiers) - len(tiers)
    whole = all(idle.is_whole for idle in by_tier.values())
    total = gpus_text(sum(team.total for _, team in pairs))
    notes = [
        f"{total} GPU-h in the hours with unmet fair share of another team of the tier.",
        *([f"Without {left_out} tiers: choose a shorter time."] if left_out else []),
        *([] if whole else ["Older hours are no longer kept."]),
    ]
    drawn = ranking(
        "idle",
        "Unused entitlement by team",
        [
            RankedRow(
                f"{team.team} · {tier}",
                (team.unallocated, team.idle),
                note="GPU-h",
                **rank_links("idle_entitlement_meanwhile", tier, team.team, reading, place=place),
            )
            for place, (tier, team) in enumerate(pairs)
        ],
        parts=IDLE_PARTS,
        empty=TOO_MANY
        # Nothing was compared: it would be untrue that no team held any.
        if left_out and not tiers
        else "No team held unused entitlement in the hours with unmet fair share.",
    )
    return replace(drawn, caption=" ".join(notes))


def _comparable(tiers: Sequence[TierGlance]) -> list[str]:
    """Return the names of the tiers with the largest unmet fair share, as many as can be read."""
    found, rows = [], 0
    for row in sorted(tiers, key=lambda one: -one.denied_gpu_hours):
        rows += row.teams * row.hours.known
        # It stops here: smaller tiers after a large one would be an arbitrary choice.
        if rows > MOST_COMPARED:
            break
        found.append(row.tier)
    return found


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
    tabs = tab_bar(request, _TABS, name="Fairness")
    chosen = _TAB_OF_FILE.get(request.GET.get("table", ""), tabs.chosen)
    found = fairness_overview(
        reading.window,
        visibility=reading.visibility,
        filters=FairnessFilters(tier=own.tier, team=own.team),
        with_shares=chosen == "dominant",
    )
    commitments = tier_commitments(reading.now)
    return respond(
        request,
        reading,
        "fairness",
        figures=overview_figures(found, commitments, reading),
        tabs=tabs,
        caveats=caveats_of({row.tier: row.hours for row in found.tiers}),
        quality=quality_of(reading, freshness_of(reading), None),
        **_tab(chosen, found, commitments, reading),
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
    # A tier that left the catalog is known to its own page alone.
    return [row.name for row in rows if row.active or row.name == name]
