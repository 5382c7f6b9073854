"""Fairness on one tier: shares over time, unmet fair share, unused entitlement, and its tabs."""

from typing import Any

from django.http import HttpRequest, HttpResponseBase
from msgspec import Struct

from apps.accounts.domain.structs import replace
from apps.accounts.selectors import TEAMS
from apps.clusters.domain.resources import counted
from apps.clusters.selectors import TIERS
from apps.fairness.selectors import (
    BorrowMatrix,
    HourCounts,
    IdleEntitlement,
    TierFairness,
    TierShares,
    estimated_before,
    idle_entitlement,
    tier_detail,
    tier_shares,
)
from apps.usage.domain.amounts import nano
from apps.web.components import formats
from apps.web.components.drawings import (
    Drawing,
    RankedRow,
    borrowing_matrix,
    ranking,
)
from apps.web.components.figure_row import FigureRow, KeyFigure, Tone, figure_row, no_data
from apps.web.components.formats import Format, clock_text, gpus_text
from apps.web.components.page_query import figure_href, href, with_query
from apps.web.components.tables import Column, Table, TableRow
from apps.web.components.tabs import TAB_KEY, Tab, TabBar, TabLink, tab_bar
from apps.web.fairness.caveats import NOT_COMPUTED, UNKNOWN, caveats_of
from apps.web.fairness.overview import (
    IDLE_PARTS,
    MOST_COMPARED,
    TOO_MANY,
    UNMET_PART,
    known_tiers,
    rank_links,
)
from apps.web.fairness.shares import entitlement_bars, team_panels
from apps.web.fairness.team_tables import day_table, queue_drawing, team_table
from apps.web.pages import page, respond
from apps.web.query_session import (
    PageRequest,
    QuerySession,
    freshness_of,
    quality_of,
    query_session,
)

_MOST = 12
_LOANS = 25
_POOL, _OVERDRAWN = "capacity without entitlement", "over-borrowed"
_NO_TEAMS = {_POOL: "from_pool", _OVERDRAWN: "overdrawn"}
_OTHERS_TOGETHER = "others, a little each"
_Pairs = dict[tuple[str, str], float]


def matrix_of(found: BorrowMatrix, hours: HourCounts, reading: QuerySession) -> Drawing:
    """Return the largest lenders and borrowers as a matrix; its table has every loan.

    No team is entitled to capacity without entitlement; what is over-borrowed was borrowed although
    its owners requested it. Both stand among the lenders.
    """
    pairs = _pairs(found)
    shown = _largest(pairs)
    links = {pair: _loan_href(found.tier, *pair, reading) for pair in shown}
    drawn = borrowing_matrix(
        "matrix",
        "Borrowing matrix",
        shown,
        links=links,
        empty="No team held more than its entitlement in this window." if hours.known else UNKNOWN,
    )
    caption = "GPU-hours. Over-borrowed GPUs were borrowed although their owners requested them."
    if len(shown) < len(pairs):
        caption += f" The {_MOST} largest each way; the table has every loan."
    return replace(drawn, caption=caption, table=_loan_table(found.tier, pairs, reading))


def _pairs(found: BorrowMatrix) -> _Pairs:
    """Return all borrowing by (lender, borrower)."""
    pairs = {(loan.lender, loan.borrower): loan.gpu_hours for loan in found.loans}
    for team in found.teams:
        pairs[_POOL, team.team] = team.from_pool_gpu_hours
        pairs[_OVERDRAWN, team.team] = team.overdrawn_gpu_hours
        pairs[_OTHERS_TOGETHER, team.team] = team.borrowed_of_others_gpu_hours
        pairs[team.team, _OTHERS_TOGETHER] = team.lent_to_others_gpu_hours
    return {pair: amount for pair, amount in pairs.items() if amount > 0}


def _largest(pairs: _Pairs) -> _Pairs:
    """Return the pairs of the largest lenders and borrowers."""
    sides: list[set[str]] = []
    for side in (0, 1):
        sums: dict[str, float] = {}
        for pair, amount in pairs.items():
            sums[pair[side]] = sums.get(pair[side], 0.0) + amount
        sides.append(set(sorted(sums, key=lambda name: (-sums[name], name))[:_MOST]))
    lenders, borrowers = sides
    return {
        pair: amount
        for pair, amount in pairs.items()
        if pair[0] in lenders and pair[1] in borrowers
    }


def _loan_href(tier: str, lender: str, borrower: str, reading: QuerySession) -> str:
    """Return where a loan is explained."""
    query = reading.query
    if lender == _OTHERS_TOGETHER:
        return figure_href("small_loans_taken", query, tier=tier, team=borrower)
    if borrower == _OTHERS_TOGETHER:
        return figure_href("small_loans_given", query, tier=tier, team=lender)
    if lender in _NO_TEAMS:
        return figure_href(_NO_TEAMS[lender], query, tier=tier, team=borrower)
    return figure_href("loan", query, tier=tier, team=borrower, other=lender)


def _loan_table(tier: str, pairs: _Pairs, reading: QuerySession) -> Table:
    rows = [
        TableRow(
            {"lender": lender, "borrower": borrower, "gpu_hours": nano(amount)},
            explains={"gpu_hours": _loan_href(tier, lender, borrower, reading)},
        )
        for (lender, borrower), amount in sorted(pairs.items(), key=lambda one: (-one[1], one[0]))
    ]
    more = len(rows) > _LOANS
    return Table(
        id="loans",
        title="Loans",
        columns=(
            Column("lender", "From"),
            Column("borrower", "To"),
            Column("gpu_hours", "Borrowed", Format.GPU_HOURS, "GPU-h"),
        ),
        rows=rows[:_LOANS],
        zone=reading.choice.zone,
        empty="",
        note=f"The {_LOANS} largest of {len(rows)}; the file has all." if more else "",
        every=lambda: rows,
    )


_TABS = (
    Tab("shares", "Shares"),
    Tab("teams", "Teams"),
    Tab("matrix", "Borrowing matrix"),
    Tab("queue", "Queue time"),
    Tab("method", "Method"),
)
_TAB_OF_FILE = {"teams": "teams", "loans": "matrix", "queue": "queue", "days": "method"}
"""Files have had addresses without a tab for longer than there are tabs."""
_SIMULATOR = Tab("simulator", "Simulator")


def tabs_of(request: HttpRequest, name: str, reading: QuerySession) -> TabBar:
    """Return the tabs of a tier's fairness; the simulator is one of them, at its own address."""
    bar = tab_bar(request, _TABS, name=f"Fairness of {name}")
    address = href("what-if", reading.query, name=name) or ""
    return TabBar(bar.name, bar.chosen, [*bar.links, TabLink(_SIMULATOR, address, is_chosen=False)])


def simulator_tabs(name: str, reading: QuerySession) -> TabBar:
    """Return the same tabs on the page of the simulator."""
    path = href("tier-fairness", name=name) or ""
    links = [
        TabLink(
            tab,
            with_query(path, reading.query if not n else [*reading.query, (TAB_KEY, tab.key)]),
            is_chosen=False,
        )
        for n, tab in enumerate(_TABS)
    ]
    own = href("what-if", reading.query, name=name) or ""
    return TabBar(
        f"Fairness of {name}",
        _SIMULATOR.key,
        [*links, TabLink(_SIMULATOR, own, is_chosen=True)],
    )


@page
def tier_fairness(request: PageRequest, name: str) -> HttpResponseBase:
    reading = query_session(request, reads=(TEAMS, TIERS))
    known_tiers(name, reading)
    tabs = tabs_of(request, name, reading)
    chosen = _TAB_OF_FILE.get(request.GET.get("table", ""), tabs.chosen)
    shown = _shares(name, reading) if chosen == "shares" else _tab(chosen, name, reading)
    return respond(
        request,
        reading,
        "tier_fairness",
        name=name,
        tabs=tabs,
        tier_href=href("tier", reading.query, name=name),
        what_if_href=href("what-if", reading.query, name=name),
        quality=quality_of(reading, freshness_of(reading), None),
        not_computed=NOT_COMPUTED,
        **shown,
    )


def _tab(chosen: str, name: str, reading: QuerySession) -> dict[str, Any]:
    """Return what a tab behind the first one shows; nothing where the tier is not computed."""
    found = tier_detail(reading.window, name, now=reading.now, visibility=reading.visibility)
    if found is None:
        return {}
    own = found.fairness
    shown: dict[str, Any] = {"tier": own, **_head(TierSums.of(own), reading)}
    if chosen == "teams":
        return {**shown, "tables": [team_table(own, reading)]}
    if chosen == "matrix":
        return {**shown, "drawings": [matrix_of(found.matrix, own.hours, reading)]}
    if chosen == "queue":
        return {**shown, "drawings": [queue_drawing(own, reading)]}
    return {**shown, "tables": [day_table(own.tier, found.days, reading)]}


# ---------------------------------------------------------------- figures


class TierSums(Struct, frozen=True):
    """The sums of a tier that stand above its tabs; amounts in GPU-hours."""

    tier: str
    hours: HourCounts
    jain_index: float | None
    unmet: float
    short: int
    borrowable: float
    borrowed: float
    overdrawn: float

    @classmethod
    def of(cls, found: TierFairness) -> "TierSums":
        return cls(
            found.tier,
            found.hours,
            found.jain_index,
            sum(team.denied_gpu_hours for team in found.teams),
            sum(team.denied_gpu_hours > 0 for team in found.teams),
            found.borrowable_gpu_hours,
            sum(team.borrowed_gpu_hours for team in found.teams),
            found.overdrawn_gpu_hours,
        )

    @classmethod
    def of_shares(cls, tier: str, found: TierShares) -> "TierSums":
        return cls(
            tier,
            found.hours,
            found.jain_index,
            sum(team.unmet for team in found.teams),
            sum(team.unmet > 0 for team in found.teams),
            found.borrowable,
            sum(team.borrowed for team in found.teams),
            found.overdrawn,
        )


def _head(sums: TierSums, reading: QuerySession) -> dict[str, Any]:
    return {
        "figures": _figures(sums, reading),
        "caveats": caveats_of({sums.tier: sums.hours}),
    }


def _figures(sums: TierSums, reading: QuerySession) -> FigureRow:
    def amount(label: str, gpu_hours: float, figure: str, **more: Any) -> KeyFigure:
        if not sums.hours.known:
            return no_data(label, UNKNOWN)
        return KeyFigure(
            label,
            gpus_text(gpu_hours),
            "GPU-h",
            exact=f"{gpu_hours:,.2f} GPU-hours over {sums.hours.known} hours",
            href=figure_href(figure, reading.query, tier=sums.tier),
            **more,
        )

    teams = counted(sums.short, "underserved team")
    return figure_row(
        _index(sums, reading),
        amount(
            "Unmet fair share",
            sums.unmet,
            "unmet_fair_share",
            note=teams if sums.short else "",
            tone=Tone.WARNING if sums.unmet > 0.5 else Tone.NONE,
        ),
        amount("Idle entitlement under demand", sums.borrowable, "idle_entitlement_under_demand"),
        amount(
            "Borrowed",
            sums.borrowed,
            "borrowed",
            note=f"{gpus_text(sums.overdrawn)} over-borrowed" if sums.overdrawn > 0.05 else "",
        ),
    )


def _index(sums: TierSums, reading: QuerySession) -> KeyFigure:
    """Return the index and since when its demand is known."""
    label = "Fairness index (Jain)"
    if sums.jain_index is None:
        return no_data(label, "No team requested this tier in the known hours.")
    return KeyFigure(
        label,
        formats.percent(sums.jain_index),
        exact=f"{sums.jain_index * 100:.2f} % (100 % is even)",
        href=figure_href("jain_index", reading.query, tier=sums.tier),
        note=_estimate(sums, reading),
    )


def _estimate(sums: TierSums, reading: QuerySession) -> str:
    hours = sums.hours
    if not hours.estimated:
        return ""
    if hours.estimated == hours.known:
        return "estimated"
    # The watch may have begun within the window: then a moment says more than a count.
    since = estimated_before(reading.window, sums.tier, hours, visibility=reading.visibility)
    if since is None:
        return f"{hours.estimated} of {hours.known} h estimated"
    return f"estimated before {clock_text(since, reading.choice.zone)}"


# ---------------------------------------------------------------- shares


def _shares(name: str, reading: QuerySession) -> dict[str, Any]:
    """Return the first tab: shares over time, the two ranked lists, and the bars."""
    found = tier_shares(reading.window, name, visibility=reading.visibility)
    # Neither known nor missing: fairness was not computed yet, which the page says itself.
    if not (found.hours.known or found.hours.missing):
        return {}
    compared = len(found.teams) * found.hours.known <= MOST_COMPARED
    idle = idle_entitlement(
        reading.window, [name] if compared else [], visibility=reading.visibility
    )
    panels = team_panels(
        name,
        found,
        reading,
        freshness_of(reading),
        link=lambda team: href("statement", reading.query, name=team),
    )
    return {
        "tier": found,
        **_head(TierSums.of_shares(name, found), reading),
        "drawings": [
            panels,
            _short(name, found, reading),
            _idle(name, found, idle.get(name), reading),
            entitlement_bars(found, link=lambda team: href("statement", reading.query, name=team)),
        ],
    }


def _short(name: str, found: TierShares, reading: QuerySession) -> Drawing:
    """Return the teams with unmet fair share, the largest first."""
    short = sorted(
        (team for team in found.teams if team.unmet > 0), key=lambda one: (-one.unmet, one.team)
    )
    return ranking(
        "short",
        "Unmet fair share",
        [
            RankedRow(
                team.team,
                (team.unmet,),
                note="GPU-h",
                **rank_links(
                    "unmet_fair_share", name, team.team, reading, place=place, to_team=True
                ),
            )
            for place, team in enumerate(short)
        ],
        parts=[UNMET_PART],
        empty="No team had unmet fair share." if found.hours.known else UNKNOWN,
    )


def _idle(
    name: str, found: TierShares, idle: IdleEntitlement | None, reading: QuerySession
) -> Drawing:
    """Return the teams with unused entitlement, the largest first; None: not compared."""
    title = "Unused entitlement by team"
    if idle is None:
        return ranking("idle", title, [], parts=IDLE_PARTS, empty=TOO_MANY)
    hours = counted(idle.hours, "hour")
    total = gpus_text(sum(team.total for team in idle.teams))
    kept = "" if idle.is_whole else " Older hours are no longer kept."
    empty = "No team held unused entitlement in the hours with unmet fair share."
    if not idle.hours:
        empty = "No hour had unmet fair share."
    drawn = ranking(
        "idle",
        title,
        [
            RankedRow(
                team.team,
                (team.unallocated, team.idle),
                note="GPU-h",
                **rank_links(
                    "idle_entitlement_meanwhile",
                    name,
                    team.team,
                    reading,
                    place=place,
                    to_team=True,
                ),
            )
            for place, team in enumerate(idle.teams)
        ],
        parts=IDLE_PARTS,
        empty=(f"{empty}{kept}") if found.hours.known else UNKNOWN,
    )
    caption = f"{total} GPU-h in the {hours} with unmet fair share of another team.{kept}"
    return replace(drawn, caption=caption)
