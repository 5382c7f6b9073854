"""Bars: allocation against entitlement row by row, and one bar split into its parts.

Amounts are GPUs, averages or those of now.

    bullet_bars(
        "teams", "Allocation vs. entitlement",
        [BulletRow("vision", 39.3, entitlement=33.0, demand=44.0, capacity=96.0, href=team_href)],
    )
    stacked_bar("spend", "Spend", [BarPart("Useful", 812.0, "$812", "of-active")])
    ledger_bar("split", "Allocated by state", amounts, ALLOCATED_CLASSES)

    {% include "components/_drawing.html" with drawing=bars %}   with title, legend and table
    {% include bar.template with drawing=bar %}                  the picture alone
"""

from collections.abc import Sequence
from typing import ClassVar

from msgspec import Struct

from apps.usage.domain.amounts import NANO, Amounts
from apps.web.components.drawings.base import (
    MOST,
    OPEN_ROWS,
    Drawing,
    LegendKey,
    more_text,
    percent_of,
    percent_text,
    table_of,
    top_of,
)
from apps.web.components.formats import Format, gpus_text, gpus_words
from apps.web.components.tables import Column, LedgerClass, TableRow, hue_class

_LEAST = 0.75  # percent; what is there is seen
_COLUMNS = {
    "allocated": Column("allocated_gpus", "Allocated", Format.NUMBER, "GPUs"),
    "entitlement": Column("entitlement_gpus", "Entitlement", Format.NUMBER, "GPUs"),
    "demand": Column("demand_gpus", "Demand", Format.NUMBER, "GPUs"),
    "capacity": Column("capacity_gpus", "Capacity", Format.NUMBER, "GPUs"),
}


class BulletRow(Struct, frozen=True):
    """GPUs of a team or tier; `demand` counts what is allocated too. None: no data."""

    label: str
    allocated: float | None
    entitlement: float | None = None
    demand: float | None = None
    capacity: float | None = None
    href: str = ""
    note: str = ""


class Bullet(Struct, frozen=True):
    """A drawn row: lengths and places are percent of the scale, None where there is no mark."""

    row: BulletRow
    value: str
    of: str
    text: str
    within: float = 0.0
    borrowed: float = 0.0
    demand: float = 0.0
    entitlement: float | None = None
    capacity: float | None = None

    @property
    def allocated(self) -> float:
        """Where the allocation ends."""
        return round(self.within + self.borrowed, 2)


class BulletBars(Drawing, frozen=True, kw_only=True):
    """One bar for each row on one scale from 0 to `top` GPUs; `more` rows unfold."""

    template: ClassVar[str] = "components/drawings/_bullet_bars.html"

    bullets: Sequence[Bullet]
    more: Sequence[Bullet]
    more_text: str
    top: float
    top_text: str


def bullet_bars(
    drawing_id: str,
    title: str,
    rows: Sequence[BulletRow],
    *,
    label: str = "Team",
    empty: str = "",
    open_rows: int = OPEN_ROWS,
) -> BulletBars:
    """Return the bars of `rows` on one scale; `label` heads the names in the table.

    What is allocated over an entitlement is drawn as borrowed, demand beyond it hatched. Of a
    long list the first rows are drawn; the table has all.
    """
    top = top_of(v for r in rows for v in (r.allocated, r.entitlement, r.demand, r.capacity))
    bullets = [_bullet(row, top) for row in rows[:MOST]]
    # A column that no row has a value of would only be dashes.
    used = {name for name in _COLUMNS if any(getattr(row, name) is not None for row in rows)} | {
        "allocated"
    }
    columns = [Column(label.lower(), label), *(c for name, c in _COLUMNS.items() if name in used)]
    return BulletBars(
        id=drawing_id,
        title=title,
        bullets=bullets[:open_rows],
        more=bullets[open_rows:],
        more_text=more_text(len(rows), len(bullets), open_rows=open_rows),
        top=top,
        top_text=gpus_text(top),
        table=table_of(
            drawing_id,
            title,
            columns,
            [
                TableRow(
                    {label.lower(): r.label, **{c.key: getattr(r, n) for n, c in _COLUMNS.items()}}
                )
                for r in rows
            ],
        ),
        legend=_legend(bullets, used),
        empty="" if rows else empty or "Nothing to compare.",
    )


def _legend(bullets: Sequence[Bullet], used: set[str]) -> list[LegendKey]:
    keys = [
        (True, LegendKey("Allocated", "of-allocated")),
        (any(b.borrowed for b in bullets), LegendKey("Borrowed", "of-borrowed")),
        (any(b.demand for b in bullets), LegendKey("Pending demand", "of-demand", "hatch")),
        ("entitlement" in used, LegendKey("Entitlement", "of-limit", "tick")),
        ("capacity" in used, LegendKey("Capacity", "of-unallocated")),
    ]
    return [key for shown, key in keys if shown]


def _bullet(row: BulletRow, top: float) -> Bullet:
    if row.allocated is None:
        return Bullet(row, "", "", "no data")
    end = percent_of(row.allocated, top)
    limit = None if row.entitlement is None else percent_of(row.entitlement, top)
    within = end if limit is None else min(end, limit)
    wanted = max(end, percent_of(row.demand, top)) if row.demand is not None else end
    words = [f"{gpus_words(row.allocated)} allocated"]
    for name in ("entitlement", "demand", "capacity"):
        amount = getattr(row, name)
        words += [f"{name} {gpus_text(amount)}"] if amount is not None else []
    return Bullet(
        row,
        value=gpus_text(row.allocated),
        of="" if row.entitlement is None else gpus_text(row.entitlement),
        text=", ".join(words),
        within=within,
        borrowed=round(end - within, 2),
        demand=round(wanted - end, 2),
        entitlement=limit,
        capacity=None if row.capacity is None else percent_of(row.capacity, top),
    )


class BarPart(Struct, frozen=True):
    """A part of a whole: `amount` in any unit that all parts share, `text` as it is shown."""

    label: str
    amount: float
    text: str
    css: str
    href: str = ""
    shape: str = "fill"


class Slice(Struct, frozen=True):
    """A drawn part: where it begins and how long it is, in percent."""

    part: BarPart
    x: float
    width: float
    share: str


class StackedBar(Drawing, frozen=True, kw_only=True):
    """One bar of parts and their legend; `text` says it in words."""

    template: ClassVar[str] = "components/drawings/_stacked_bar.html"

    slices: Sequence[Slice]
    text: str


def stacked_bar(
    drawing_id: str,
    title: str,
    parts: Sequence[BarPart],
    *,
    whole: float | None = None,
    unit: str = "",
    empty: str = "",
) -> StackedBar:
    """Return the bar of `parts`; of a larger `whole` the rest stays free.

    Parts of nothing are left out; the smallest is still seen, at the cost of the others.
    """
    some = [part for part in parts if part.amount > 0]
    total = max(sum(part.amount for part in some), whole or 0.0)
    # Of the larger of both: parts may come to more than the whole that was given.
    widths = _widths([100 * part.amount / total for part in some])
    slices, x = [], 0.0
    for part, width in zip(some, widths, strict=True):
        slices.append(Slice(part, round(x, 2), width, percent_text(part.amount / total)))
        x += width
    return StackedBar(
        id=drawing_id,
        title=title,
        slices=slices,
        text=", ".join(f"{s.part.label} {s.part.text} ({s.share})" for s in slices),
        legend=[
            LegendKey(s.part.label, s.part.css, s.part.shape, s.part.text, s.part.href)
            for s in slices
        ],
        table=table_of(
            drawing_id,
            title,
            [
                Column("part", "Part"),
                Column("amount", "Amount", Format.NUMBER, unit),
                Column("share", "Share", Format.RATIO),
            ],
            [
                TableRow({"part": p.label, "amount": p.amount, "share": p.amount / total})
                for p in some
            ],
        ),
        empty="" if some else empty or "Nothing to split.",
    )


def ledger_bar(
    drawing_id: str, title: str, amounts: Amounts, classes: Sequence[LedgerClass]
) -> StackedBar:
    """Return the bar of a ledger line's classes, in GPU-hours."""
    parts = []
    for cls in classes:
        hours = (getattr(amounts, cls.key) or 0) / NANO
        shape = {"/": "hatch", "x": "cross"}.get(cls.pattern, "fill")
        css = hue_class(cls.key)
        parts.append(BarPart(cls.label, hours, f"{gpus_text(hours)} GPU-h", css, shape=shape))
    return stacked_bar(drawing_id, title, parts, unit="GPU-h")


def _widths(widths: Sequence[float]) -> list[float]:
    """Return the widths with the small ones raised to what can be seen, the largest giving way."""
    raised = [max(width, _LEAST) for width in widths]
    if raised:
        largest = raised.index(max(raised))
        # The bar stays as long as it is: what small parts gain the largest gives.
        raised[largest] = max(_LEAST, raised[largest] - (sum(raised) - sum(widths)))
    return [round(width, 2) for width in raised]
