"""Grids of cells with a colour for each ratio: heat map and borrowing matrix.

    heat_map(
        "ratios", "Allocation vs. entitlement", columns=[GridHead("whole-a100", tier_href)],
        rows=[GridRow("vision", [HeatCell(1.19, "39.3 of 33.0 GPUs", href=explain_href)])],
    )
    borrowing_matrix("loans", "Borrowing matrix", {("vision", "speech"): 96.0})

Ratios are fractions: 1.0 is all of it. A cell that is None stays blank (there is no such pair);
HeatCell(None, reason) is no data; HeatCell(0.0) is zero. The pairs of a matrix are (lender,
borrower), their amounts in GPU-hours.
"""

from collections.abc import Mapping, Sequence
from math import ceil
from typing import ClassVar

from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from msgspec import Struct

from apps.web.components.drawings.base import (
    OPEN_ROWS,
    Drawing,
    LegendKey,
    percent_text,
    table_of,
)
from apps.web.components.formats import Format, gpus_text
from apps.web.components.tables import Column, TableRow

LEVELS = 10
_OVER = 1.005  # what is shown as 101 %
_STEPS_OVER = (1.25, 1.5, 2.0)


class HeatCell(Struct, frozen=True):
    """A ratio (None: no data, `title` says why); `text` stands for the percentage where given."""

    ratio: float | None
    title: str = ""
    text: str = ""
    href: str = ""

    @property
    def shown(self) -> str:
        """What stands in the cell."""
        return "n/a" if self.ratio is None else self.text or percent_text(self.ratio)


class GridHead(Struct, frozen=True):
    """The name of a column and where it leads."""

    label: str
    href: str = ""


class GridRow(Struct, frozen=True):
    """A named row of cells, one for each column."""

    label: str
    cells: Sequence[HeatCell | None]
    href: str = ""


class GridCell(Struct, frozen=True):
    """A drawn cell: `css` has its hue and its level."""

    cell: HeatCell | None
    css: str

    @property
    def markup(self) -> SafeString:
        """The cell of the table."""
        cell = self.cell
        if cell is None:
            return format_html('<td class="{}"></td>', self.css)
        link = format_html('<a href="{}">{}</a>', cell.href, cell.shown) if cell.href else ""
        title = format_html(' title="{}"', cell.title) if cell.title else ""
        return format_html('<td class="{}"{}>{}</td>', self.css, title, link or cell.shown)


class DrawnRow(Struct, frozen=True):
    """A row with its drawn cells."""

    row: GridRow
    cells: Sequence[GridCell]

    @property
    def markup(self) -> SafeString:
        """The cells of the row: a template takes ten times as long for the hundreds of a map."""
        return format_html_join("", "{}", ((one.markup,) for one in self.cells))


class HeatMap(Drawing, frozen=True, kw_only=True):
    """Rows × columns; `corner` names rows and columns, `more` rows unfold."""

    template: ClassVar[str] = "components/drawings/_heat_map.html"

    corner: str
    columns: Sequence[GridHead]
    rows: Sequence[DrawnRow]
    more: Sequence[DrawnRow]


def heat_css(ratio: float | None, *, hue: str = "of-allocated", over: str = "of-borrowed") -> str:
    """Return the classes of a cell: ten levels of `hue` up to 1.0, four of `over` beyond.

    Zero has no colour, and no data is hatched.
    """
    if ratio is None:
        return "heat-no-data"
    if over and ratio >= _OVER:
        return f"{over} heat-{4 + 2 * sum(ratio > step for step in _STEPS_OVER)}"
    # Rounded before: 0.1 + 0.2 is above 0.3 as a float, and would be a level more.
    return f"{hue} heat-{min(LEVELS, max(0, ceil(round(ratio * LEVELS, 9))))}"


def heat_map(
    drawing_id: str,
    title: str,
    *,
    columns: Sequence[GridHead],
    rows: Sequence[GridRow],
    names: tuple[str, str] = ("Team", "Tier"),
    empty: str = "",
) -> HeatMap:
    """Return the grid of ratios, each row with one cell for each column.

    `names` say what rows and columns are; they head the table, which has a line for each cell.
    """
    down, across = names
    drawn = [DrawnRow(row, [_drawn(cell) for cell in row.cells]) for row in rows]
    return HeatMap(
        id=drawing_id,
        title=title,
        corner=down,
        columns=columns,
        rows=drawn[:OPEN_ROWS],
        more=drawn[OPEN_ROWS:],
        legend=_legend([cell for row in rows for cell in row.cells if cell is not None]),
        table=table_of(
            drawing_id,
            title,
            [
                Column(down.lower(), down),
                Column(across.lower(), across),
                Column("ratio", "Ratio", Format.RATIO),
            ],
            [
                TableRow({down.lower(): row.label, across.lower(): head.label, "ratio": cell.ratio})
                for row in rows
                for head, cell in zip(columns, row.cells, strict=True)
                if cell is not None
            ],
        ),
        empty="" if rows and columns else empty or "Nothing to compare.",
    )


def _drawn(cell: HeatCell | None) -> GridCell:
    return GridCell(cell, "heat-blank" if cell is None else heat_css(cell.ratio))


def _legend(cells: Sequence[HeatCell]) -> list[LegendKey]:
    keys = [LegendKey("0–100 %", "key-scale", "scale")]
    if any(cell.ratio is not None and cell.ratio >= _OVER for cell in cells):
        keys.append(LegendKey("Borrowed", "of-borrowed heat-8"))
    if any(cell.ratio is None for cell in cells):
        keys.append(LegendKey("No data", "heat-no-data"))
    return keys


def borrowing_matrix(
    drawing_id: str,
    title: str,
    amounts: Mapping[tuple[str, str], float],
    *,
    links: Mapping[tuple[str, str], str] | None = None,
    empty: str = "",
) -> HeatMap:
    """Return lenders × borrowers; the largest amount has the full colour, pairs of none are blank.

    Lenders stand in the order of what they lent, borrowers in that of what they took.
    """
    given = {pair: amount for pair, amount in amounts.items() if amount > 0}
    most = max(given.values(), default=0.0)
    cells = {
        pair: HeatCell(
            amount / most,
            f"{pair[1]} from {pair[0]}: {gpus_text(amount)} GPU-h",
            gpus_text(amount),
            (links or {}).get(pair, ""),
        )
        for pair, amount in given.items()
    }
    taken = by_total(given, 1)
    rows = [
        GridRow(lender, [cells.get((lender, borrower)) for borrower in taken])
        for lender in by_total(given, 0)
    ]
    drawn = [
        DrawnRow(
            row,
            [
                GridCell(c, "heat-blank" if c is None else heat_css(c.ratio, hue="of-borrowed"))
                for c in row.cells
            ],
        )
        for row in rows
    ]
    pairs = sorted(given.items(), key=lambda one: -one[1])
    return HeatMap(
        id=drawing_id,
        title=title,
        corner="Lender ↓ Borrower →",
        columns=[GridHead(name) for name in taken],
        rows=drawn[:OPEN_ROWS],
        more=drawn[OPEN_ROWS:],
        table=table_of(
            drawing_id,
            title,
            [
                Column("lender", "Lender"),
                Column("borrower", "Borrower"),
                Column("amount", "Borrowed", Format.NUMBER, "GPU-h"),
            ],
            [TableRow({"lender": a, "borrower": b, "amount": n}) for (a, b), n in pairs],
        ),
        empty="" if given else empty or "No team borrowed in this window.",
    )


def by_total(amounts: Mapping[tuple[str, str], float], side: int) -> list[str]:
    """Return the names on one side of the pairs, by the sum of their amounts, largest first."""
    sums: dict[str, float] = {}
    for pair, amount in amounts.items():
        sums[pair[side]] = sums.get(pair[side], 0.0) + amount
    return sorted(sums, key=lambda name: (-sums[name], name))
