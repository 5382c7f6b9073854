"""Who borrowed from whom on a tier: the matrix of the largest, and all loans behind it."""

from dataclasses import replace

from apps.fairness.selectors import BorrowMatrix, HourCounts
from apps.usage.domain.amounts import nano
from apps.web.components.drawings import Drawing, borrowing_matrix
from apps.web.components.formats import Format
from apps.web.components.page_query import figure_href
from apps.web.components.tables import Column, Table, TableRow
from apps.web.fairness.caveats import UNKNOWN
from apps.web.query_session import QuerySession

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
