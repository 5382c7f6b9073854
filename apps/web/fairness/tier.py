"""Fairness on one tier: bars against entitlement, who lent to whom, and the index over time."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from django.http import HttpResponseBase

from apps.clusters.domain.window import Window, day_start
from apps.fairness.selectors import (
    BorrowMatrix,
    HourCounts,
    TeamFairness,
    TierDayIndex,
    TierDetail,
    TierFairness,
    tier_detail,
)
from apps.usage.domain.amounts import nano
from apps.web.components.formats import Format, shown
from apps.web.components.page_query import during, figure_href, figure_hrefs, href
from apps.web.components.plots import Plot, PlotLine, Scale
from apps.web.components.tables import Column, Table, TableRow, declared_columns, declared_values
from apps.web.fairness.overview import (
    COLUMNS,
    HOURS,
    NOT_COMPUTED,
    caveats_of,
    hour_values,
    known_tiers,
)
from apps.web.pages import page, respond
from apps.web.query_session import (
    PageRequest,
    QuerySession,
    freshness_of,
    quality_of,
    query_session,
)

MOST_BARS = 30
MOST_IN_MATRIX = 12
_LOANS = 10
_UTC = ZoneInfo("UTC")
_POOL, _OVERDRAWN = "capacity without entitlement", "over-borrowed"
_NO_TEAMS = {_POOL: "from_pool", _OVERDRAWN: "overdrawn"}
_OTHERS_TOGETHER = "others, a little each"
_UNKNOWN = "No data: demand of no hour of this window is known or estimated."

# ---------------------------------------------------------------- bars


@dataclass(frozen=True, slots=True)
class TeamBar:
    """A team's part of the tier; widths and marks in percent of the longest bar, means in GPUs."""

    team: str
    href: str | None
    within: float
    borrowed: float
    denied: float
    entitlement: float
    fair_share: float
    held_gpus: float
    entitled_gpus: float
    borrowed_gpus: float
    denied_gpus: float
    fair_gpus: float


def bars_of(tier: TierFairness, reading: QuerySession) -> list[TeamBar]:
    """Return the teams' bars, those with most demand first; as many as can be taken in."""
    hours = tier.hours.known
    if not hours:
        return []
    whole = max((_whole(team) for team in tier.teams), default=0.0)
    if not whole:
        return []
    ordered = sorted(tier.teams, key=lambda team: (-_whole(team), team.team))
    return [_bar(team, whole, hours, reading) for team in ordered[:MOST_BARS]]


def _whole(team: TeamFairness) -> float:
    return max(
        team.allocated_gpu_hours + team.denied_gpu_hours,
        team.entitlement_gpu_hours,
        team.fair_share_gpu_hours,
    )


def _bar(team: TeamFairness, whole: float, hours: int, reading: QuerySession) -> TeamBar:
    def percent(amount: float) -> float:
        return round(100 * amount / whole, 2)

    return TeamBar(
        team=team.team,
        href=href("statement", reading.query, name=team.team),
        within=percent(team.allocated_gpu_hours - team.borrowed_gpu_hours),
        borrowed=percent(team.borrowed_gpu_hours),
        denied=percent(team.denied_gpu_hours),
        entitlement=percent(team.entitlement_gpu_hours),
        fair_share=percent(team.fair_share_gpu_hours),
        held_gpus=team.allocated_gpu_hours / hours,
        entitled_gpus=team.entitlement_gpu_hours / hours,
        borrowed_gpus=team.borrowed_gpu_hours / hours,
        denied_gpus=team.denied_gpu_hours / hours,
        fair_gpus=team.fair_share_gpu_hours / hours,
    )


# ---------------------------------------------------------------- teams


def team_table(tier: TierFairness, reading: QuerySession) -> Table:
    """Return the teams of the tier, the largest unmet fair share first."""
    teams = sorted(tier.teams, key=lambda t: (-t.denied_gpu_hours, -t.demand_gpu_hours, t.team))
    return Table(
        id="teams",
        title="Teams",
        columns=_columns(reading),
        rows=[_team(team, reading, tier.hours) for team in teams],
        zone=reading.choice.zone,
        empty="No team is entitled to any of this tier, and none held or asked for it.",
        note=_notes(tier) if teams else "",
    )


def _columns(reading: QuerySession) -> list[Column]:
    """Return the columns; what was pending when a past window ended is not pending now."""
    label = "Pending at end" if reading.window.end < reading.now else "Pending now"
    return [
        replace(column, label=label) if column.key == "waiting_now" else column
        for column in declared_columns(TeamFairness)
    ]


def _notes(tier: TierFairness) -> str:
    """Return what is not known of the rows."""
    waits = (
        "Incomplete data: the pending work of a cluster of this tier is not known. The counts "
        "are lower bounds."
    )
    notes = (waits if tier.dark else "", _usage_note(tier.usage_known))
    return " ".join(note for note in notes if note)


def _usage_note(known: float | None) -> str:
    """Return what to say where not all is known that usage factors are made of."""
    if known is None or known >= 1:
        return ""
    share = shown(known, Format.RATIO, _UTC)
    return (
        f"Usage factors are made of {share} of the hours of ten weeks; what was held in the others "
        "is not known."
    )


def _team(team: TeamFairness, reading: QuerySession, hours: HourCounts) -> TableRow:
    values = declared_values(team)
    # Sums over no hours; what is pending is told by something else.
    unknown = (
        []
        if hours.known
        else ["entitlement_gpus", *(k for k in values if k.endswith("_gpu_hours"))]
    )
    return TableRow(
        values | dict.fromkeys(unknown),
        {"team": href("statement", reading.query, name=team.team)},
        explains=figure_hrefs(EXPLAINS, reading.query, tier=team.tier, team=team.team),
    )


EXPLAINS = {
    "demand_gpu_hours": "demand",
    "fair_share_gpu_hours": "fair_share",
    "denied_gpu_hours": "unmet_fair_share",
    "borrowed_gpu_hours": "borrowed",
    "lent_gpu_hours": "lent",
    "allocated_gpu_hours": "allocated",
    "entitlement_gpu_hours": "entitled",
    "entitlement_gpus": "mean_entitled",
    "idle_gpu_hours": "idle_held",
    "from_pool_gpu_hours": "from_pool",
    "overdrawn_gpu_hours": "overdrawn",
    "usage_factor": "usage_factor",
    "wait_p50_seconds": "team_queue_time_p50",
    "wait_p95_seconds": "team_queue_time_p95",
}
"""Which figure explains a column."""


# ---------------------------------------------------------------- borrowing


@dataclass(frozen=True, slots=True)
class MatrixCell:
    """What one borrower had of one lender; `share` (0..1) of the largest cell shades it."""

    gpu_hours: int
    share: str
    explain_href: str


@dataclass(frozen=True, slots=True)
class MatrixRow:
    lender: str
    cells: Sequence[MatrixCell]


@dataclass(frozen=True, slots=True)
class BorrowingMatrix:
    """Lenders down, borrowers across; capacity without entitlement and over-borrowing come last.

    `table` is the same as a file; `hidden` teams are in the list of loans alone.
    """

    table: Table
    borrowers: Sequence[str]
    rows: Sequence[MatrixRow]
    hidden: int


def matrix_of(found: BorrowMatrix, reading: QuerySession) -> BorrowingMatrix | None:
    """Return the largest borrowers and lenders as a matrix; None without any borrowing."""
    borrowing = [team for team in found.teams if team.borrowed_gpu_hours > 0]
    if not borrowing:
        return None
    taken = sorted(borrowing, key=lambda team: (-team.borrowed_gpu_hours, team.team))
    shown = taken[:MOST_IN_MATRIX]
    lending = [team for team in found.teams if team.lent_gpu_hours > 0]
    given = sorted(lending, key=lambda team: (-team.lent_gpu_hours, team.team))[:MOST_IN_MATRIX]
    loans = {(loan.lender, loan.borrower): loan.gpu_hours for loan in found.loans}
    amounts = [
        (one.team, [loans.get((one.team, other.team), 0.0) for other in shown]) for one in given
    ]
    names = [team.team for team in shown]
    amounts.append((_POOL, [team.from_pool_gpu_hours for team in shown]))
    amounts.append((_OVERDRAWN, [team.overdrawn_gpu_hours for team in shown]))
    most = max(max(row) for _, row in amounts) or 1.0
    rows = [
        MatrixRow(
            lender,
            [
                MatrixCell(
                    nano(amount),
                    f"{amount / most:.3f}",
                    _loan_href(found.tier, lender, borrower, reading),
                )
                for borrower, amount in zip(names, row, strict=True)
            ],
        )
        for lender, row in amounts
        if any(row)
    ]
    return BorrowingMatrix(
        table=_matrix_table(rows, names, reading),
        borrowers=names,
        rows=rows,
        hidden=max(0, max(len(taken), len(lending)) - MOST_IN_MATRIX),
    )


def _loan_href(tier: str, lender: str, borrower: str, reading: QuerySession) -> str:
    """Return where a loan is explained; lender and borrower as the list of loans has them."""
    query = reading.query
    if lender == _OTHERS_TOGETHER:
        return figure_href("small_loans_taken", query, tier=tier, team=borrower)
    if borrower == _OTHERS_TOGETHER:
        return figure_href("small_loans_given", query, tier=tier, team=lender)
    if lender in _NO_TEAMS:
        return figure_href(_NO_TEAMS[lender], query, tier=tier, team=borrower)
    return figure_href("loan", query, tier=tier, team=borrower, other=lender)


def _matrix_table(
    rows: Sequence[MatrixRow], borrowers: Sequence[str], reading: QuerySession
) -> Table:
    keys = [f"to_{name}_gpu_hours" for name in borrowers]
    return Table(
        id="matrix",
        title="Borrowing matrix",
        columns=[
            Column("lender", "From"),
            *(Column(key, key, Format.GPU_HOURS, "GPU-h") for key in keys),
        ],
        rows=[
            TableRow(
                {
                    "lender": row.lender,
                    **{key: c.gpu_hours for key, c in zip(keys, row.cells, strict=True)},
                }
            )
            for row in rows
        ],
        zone=reading.choice.zone,
        empty="",
        ordered=True,
    )


def loan_table(found: BorrowMatrix, hours: HourCounts, reading: QuerySession) -> Table:
    """Return all borrowing by lender: loans, the pool, over-borrowing, and the rest."""
    nobody = "No team held more than its entitlement in this window."
    rows = [(loan.lender, loan.borrower, loan.gpu_hours) for loan in found.loans]
    for team in found.teams:
        rows += [
            (_POOL, team.team, team.from_pool_gpu_hours),
            (_OVERDRAWN, team.team, team.overdrawn_gpu_hours),
            (_OTHERS_TOGETHER, team.team, team.borrowed_of_others_gpu_hours),
            (team.team, _OTHERS_TOGETHER, team.lent_to_others_gpu_hours),
        ]
    return Table(
        id="loans",
        title="Loans",
        columns=(
            Column("lender", "From"),
            Column("borrower", "To"),
            Column("gpu_hours", "Borrowed", Format.GPU_HOURS, "GPU-h"),
        ),
        rows=[
            TableRow(
                {"lender": lender, "borrower": borrower, "gpu_hours": nano(amount)},
                explains={"gpu_hours": _loan_href(found.tier, lender, borrower, reading)},
            )
            for lender, borrower, amount in sorted(rows, key=lambda row: (-row[2], row[0], row[1]))
            if amount > 0
        ],
        zone=reading.choice.zone,
        empty=nobody if hours.known else _UNKNOWN,
        page_length=_LOANS,
    )


# ---------------------------------------------------------------- over time


def index_plot(tier: str, days: Sequence[TierDayIndex], reading: QuerySession) -> Plot:
    """Return the indices of a tier day by day, with gaps where nothing is known."""
    choice = reading.choice
    window = Window(day_start(choice.first, choice.zone), choice.last_day_end)
    scale = Scale(window, 1.0, (0.0, 0.25, 0.5, 0.75, 1.0))
    spans = [(day, *_span(day, reading)) for day in days]
    lines = [
        PlotLine(
            "allocated ÷ fair share",
            "plot-used",
            scale.steps((start, end, day.jain_index) for day, start, end in spans),
        ),
        PlotLine(
            "allocated ÷ entitlement",
            "plot-even",
            scale.steps((start, end, day.jain_allocation_ratio) for day, start, end in spans),
        ),
    ]
    title = "Fairness index"
    nobody = "Nothing to draw: no team requested this tier in the hours with data."
    drawn = [line for line in lines if line.path]
    return Plot(
        id="index",
        title=title,
        caption=f"{title}: Jain's index, 100 % is even. {choice.label}.",
        table=_day_table(tier, days, reading),
        lines=drawn,
        gaps=_unknown(days, reading, scale) if drawn else (),
        across=scale.across(choice.zone),
        upwards=scale.upwards(Format.RATIO),
        empty=nobody if any(day.hours.known for day in days) else _UNKNOWN,
    )


def _span(day: TierDayIndex, reading: QuerySession) -> tuple[datetime, datetime]:
    zone = reading.choice.zone
    return day_start(day.day, zone), day_start(day.day + timedelta(days=1), zone)


def _unknown(
    days: Sequence[TierDayIndex], reading: QuerySession, scale: Scale
) -> list[tuple[float, float]]:
    """Return where no hour is known, from the first day of the window to its last."""
    known = {day.day for day in days if day.hours.known}
    zone, count = reading.choice.zone, (reading.choice.last - reading.choice.first).days + 1
    every = [reading.choice.first + timedelta(days=number) for number in range(count)]
    return [
        scale.gap(day_start(day, zone), day_start(day + timedelta(days=1), zone))
        for day in every
        if day not in known
    ]


def _day_table(tier: str, days: Sequence[TierDayIndex], reading: QuerySession) -> Table:
    return Table(
        id="days",
        title="Fairness index",
        columns=(
            Column("day", "Day", Format.DAY),
            COLUMNS["jain_index"],
            COLUMNS["jain_allocation_ratio"],
            Column("allocated_gpu_hours", "Allocated", Format.GPU_HOURS, "GPU-h"),
            COLUMNS["denied_gpu_hours"],
            COLUMNS["borrowable_gpu_hours"],
            COLUMNS["capacity_gpu_hours"],
            *HOURS,
        ),
        rows=[_day(day, tier, reading) for day in days],
        zone=reading.choice.zone,
        empty=NOT_COMPUTED,
        ordered=True,
    )


def _day(day: TierDayIndex, tier: str, reading: QuerySession) -> TableRow:
    start, end = _span(day, reading)
    window = reading.window
    query = during(max(start, window.start), min(end, window.end), reading.query)
    return TableRow(
        {
            "day": day_start(day.day, reading.choice.zone),
            "jain_index": day.jain_index,
            "jain_allocation_ratio": day.jain_allocation_ratio,
            "allocated_gpu_hours": nano(day.allocated_gpu_hours) if day.hours.known else None,
            "denied_gpu_hours": nano(day.denied_gpu_hours) if day.hours.known else None,
            "borrowable_gpu_hours": nano(day.borrowable_gpu_hours) if day.hours.known else None,
            "capacity_gpu_hours": nano(day.capacity_gpu_hours) if day.hours.known else None,
            **hour_values(day.hours),
        },
        explains=figure_hrefs(_DAY_EXPLAINS, query, tier=tier),
    )


_DAY_EXPLAINS = {
    "jain_index": "jain_index",
    "jain_allocation_ratio": "jain_allocation_ratio",
    "allocated_gpu_hours": "allocated",
    "denied_gpu_hours": "unmet_fair_share",
    "borrowable_gpu_hours": "idle_entitlement_under_demand",
    "capacity_gpu_hours": "fairness_capacity",
}


@page
def tier_fairness(request: PageRequest, name: str) -> HttpResponseBase:
    reading = query_session(request)
    known_tiers(name, reading)
    found = tier_detail(reading.window, name, now=reading.now, visibility=reading.visibility)
    return respond(
        request,
        reading,
        "tier_fairness",
        name=name,
        tier_href=href("tier", reading.query, name=name),
        what_if_href=href("what-if", reading.query, name=name),
        quality=quality_of(reading, freshness_of(reading), None),
        not_computed=NOT_COMPUTED,
        **(_detail(found, reading) if found else {}),
    )


def _detail(found: TierDetail, reading: QuerySession) -> dict[str, Any]:
    own = found.fairness
    bars = bars_of(own, reading)
    plot = index_plot(own.tier, found.days, reading)
    matrix = matrix_of(found.matrix, reading)
    return {
        "tables": [
            team_table(own, reading),
            loan_table(found.matrix, own.hours, reading),
            plot.table,
            *([matrix.table] if matrix else []),
        ],
        "tier": own,
        "denied": sum(team.denied_gpu_hours for team in own.teams) if own.hours.known else None,
        "caveats": caveats_of({own.tier: own.hours}),
        "bars": bars,
        "more_bars": max(0, len(own.teams) - len(bars)),
        "matrix": matrix,
        "plot": plot,
    }
