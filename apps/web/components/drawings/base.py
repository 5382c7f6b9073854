"""What all drawings share: their frame, their legend, one scale, and the table behind them."""

from collections.abc import Callable, Iterable, Sequence
from typing import ClassVar
from zoneinfo import ZoneInfo

from msgspec import Struct

from apps.accounts.domain.structs import replace
from apps.web.components.formats import Format, shown
from apps.web.components.plots import nice_step
from apps.web.components.tables import Column, Table, TableRow

OPEN_ROWS = 10
"""Rows of a drawing that are seen at once; the others unfold."""
MOST = 60
"""Rows of a list that are drawn at most, the first ones; the table has all."""
LEAST = 1e-6
"""Less than this is nothing: it comes from sums of fractions."""
TABLE_ROWS = 25
"""Rows of the table under a drawing."""
_UTC = ZoneInfo("UTC")


class LegendKey(Struct, frozen=True):
    """A line of a legend: `css` gives the hue, `shape` is fill, hatch, line, dash or tick."""

    label: str
    css: str
    shape: str = "fill"
    text: str = ""
    href: str = ""


class Drawing(Struct, frozen=True, kw_only=True):
    """A picture with a title; `components/_drawing.html` frames it, `template` draws it.

    `table` has its amounts, which a file carries. Where nothing is drawn, `empty` says why.
    """

    template: ClassVar[str] = ""

    id: str
    title: str
    caption: str = ""
    table: Table | None = None
    legend: Sequence[LegendKey] = ()
    empty: str = ""


def top_of(values: Iterable[float | None]) -> float:
    """Return the end of the one scale for these values: a round number, none of them above it."""
    highest = max((value for value in values if value is not None), default=0.0)
    if highest < LEAST:
        return 1.0
    step = nice_step(highest)
    # The hair keeps a value that is exactly a round number from asking for a step more.
    return step * -(-highest * (1 - 1e-9) // step)


def percent_of(value: float, top: float) -> float:
    """Return where a value lies on a scale from 0 to `top`, in percent, never outside of it."""
    return round(min(100.0, max(0.0, 100 * value / top)), 2) if top > 0 else 0.0


def percent_text(ratio: float | None) -> str:
    """Write a ratio in whole percent: `96 %`; less than half a percent is not zero."""
    if ratio is None:
        return shown(None, Format.RATIO, _UTC)
    # What is there is not written as 0 %.
    return "<1 %" if 0 < ratio < 0.005 else f"{100 * ratio:,.0f} %"


def more_text(rows: int, drawn: int, *, open_rows: int) -> str:
    """Say how many rows unfold: `12 more`, or of more than are drawn `50 more of 190; …`."""
    more = f"{max(0, drawn - open_rows):,} more"
    return more if drawn >= rows else f"{more} of {rows - open_rows:,}; the file has all"


def table_of(
    drawing_id: str,
    title: str,
    columns: Sequence[Column],
    rows: Sequence[TableRow],
    *,
    zone: ZoneInfo = _UTC,
    by_time: bool = False,
) -> Table:
    """Return the table behind a drawing; a long one shows its first rows, its file has all.

    `by_time`: the rows are in the order of time, of which the last are shown.
    """
    if len(rows) <= TABLE_ROWS:
        return Table(drawing_id, title, columns, rows, zone, "")
    some = rows[-TABLE_ROWS:] if by_time else rows[:TABLE_ROWS]
    table = Table(drawing_id, title, columns, some, zone, "")
    return part_of(table, len(rows), lambda: rows, which="last" if by_time else "first")


def part_of(
    table: Table, count: int, every: Callable[[], Iterable[TableRow]], *, which: str = "first"
) -> Table:
    """Return a table that says that it shows a part of `count` rows; its file has all of them."""
    note = f"The {which} {len(table.rows)} of {count} rows; the file has all."
    return replace(table, note=note, of_rows=count, every=every)
