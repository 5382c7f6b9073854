"""A ranked list: one bar for each row, of one part or several, on one scale.

    ranking(
        "short", "Unmet fair share",
        [RankedRow("vision", (110.0,), href=team_href, explain_href=figure_href)],
        parts=[RankPart("unmet_gpu_hours", "Unmet fair share", "of-unmet", shape="hatch")],
    )

Rows stand in the order given: the caller ranks them. Amounts are in the unit of the parts.
"""

from collections.abc import Sequence
from typing import ClassVar

from msgspec import Struct

from apps.usage.domain.amounts import nano
from apps.web.components.drawings.base import (
    MOST,
    OPEN_ROWS,
    TABLE_ROWS,
    Drawing,
    LegendKey,
    more_text,
    part_of,
    percent_of,
    table_of,
    top_of,
)
from apps.web.components.formats import Format, Value, gpus_text
from apps.web.components.tables import Column, Table, TableRow


class RankPart(Struct, frozen=True):
    """A part of each bar: `key` heads it in files, `css` has its hue, `shape` is fill or hatch."""

    key: str
    label: str
    css: str
    shape: str = "fill"
    kind: Format = Format.GPU_HOURS
    unit: str = "GPU-h"


class RankedRow(Struct, frozen=True):
    """A row with an amount for each part; `text` stands for their sum, `note` beside it.

    None is no data: of one part there is none, or of all.

    `explain_href` leads from the value to its explanation.
    """

    label: str
    amounts: Sequence[float | None]
    href: str = ""
    text: str = ""
    note: str = ""
    explain_href: str = ""


class RankSlice(Struct, frozen=True):
    """A drawn part: place and length in percent."""

    part: RankPart
    x: float
    width: float


class Ranked(Struct, frozen=True):
    """A drawn row; `said` has its amounts in words."""

    row: RankedRow
    slices: Sequence[RankSlice]
    value: str
    said: str


class Ranking(Drawing, frozen=True, kw_only=True):
    """The bars on one scale; `more` rows unfold."""

    template: ClassVar[str] = "components/drawings/_ranking.html"

    ranked: Sequence[Ranked]
    more: Sequence[Ranked]
    more_text: str


def ranking(
    drawing_id: str,
    title: str,
    rows: Sequence[RankedRow],
    *,
    parts: Sequence[RankPart],
    label: str = "Team",
    empty: str = "",
) -> Ranking:
    """Return the bars of `rows` on the scale of the longest; `label` heads the names in the table.

    Several parts have a legend. Raises ValueError for a row without an amount for each part.
    """
    top = top_of(_total(row) for row in rows)
    drawn = [_ranked(row, parts, top) for row in rows[:MOST]]
    return Ranking(
        id=drawing_id,
        title=title,
        ranked=drawn[:OPEN_ROWS],
        more=drawn[OPEN_ROWS:],
        more_text=more_text(len(rows), len(drawn), open_rows=OPEN_ROWS),
        legend=[LegendKey(part.label, part.css, part.shape) for part in parts]
        if len(parts) > 1
        else (),
        table=_table(drawing_id, title, rows, parts, label),
        empty="" if rows else empty or "Nothing to rank.",
    )


def _ranked(row: RankedRow, parts: Sequence[RankPart], top: float) -> Ranked:
    slices, x = [], 0.0
    for part, amount in zip(parts, row.amounts, strict=True):
        width = percent_of(amount or 0.0, top)
        slices.append(RankSlice(part, round(x, 2), width))
        x += width
    total = _total(row)
    value = "no data" if total is None else row.text or gpus_text(total)
    said = ", ".join(
        f"{part.label.lower()} {gpus_text(amount)} {part.unit}".strip()
        for part, amount in zip(parts, row.amounts, strict=True)
        # A part without a unit would be a bare number to who hears it.
        if part.unit and amount is not None
    )
    return Ranked(row, slices, value, f"{row.label}: {said or value}")


def _total(row: RankedRow) -> float | None:
    known = [amount for amount in row.amounts if amount is not None]
    return sum(known) if known else None


def _table(
    drawing_id: str, title: str, rows: Sequence[RankedRow], parts: Sequence[RankPart], label: str
) -> Table:
    """Return the table of the rows; those that only a file has are made for it alone."""
    columns = [
        Column(label.lower(), label),
        *(Column(part.key, part.label, part.kind, part.unit) for part in parts),
    ]
    some = [_table_row(row, parts, label) for row in rows[:TABLE_ROWS]]
    table = table_of(drawing_id, title, columns, some)
    if len(rows) <= TABLE_ROWS:
        return table
    return part_of(table, len(rows), lambda: (_table_row(row, parts, label) for row in rows))


def _table_row(row: RankedRow, parts: Sequence[RankPart], label: str) -> TableRow:
    values: dict[str, Value] = {label.lower(): row.label}
    for part, amount in zip(parts, row.amounts, strict=True):
        is_gpu_hours = part.kind is Format.GPU_HOURS and amount is not None
        # Tables hold GPU-hours as whole nano-GPU-hours.
        values[part.key] = nano(amount or 0.0) if is_gpu_hours else amount
    return TableRow(values)
