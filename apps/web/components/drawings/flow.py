"""Where capacity goes: capacity → allocated → active, as ribbons as thick as their GPUs.

    capacity_flow("flow", "Capacity to active", {"idle": 12.0, "unallocated": 20.0, …})

Amounts are average GPUs by the keys of the ledger's classes (`tables.WHOLE_CLASSES`); a class
that is left out has none. What is allocated is the sum of its classes.
"""

from collections.abc import Mapping, Sequence
from typing import ClassVar

from msgspec import Struct

from apps.web.components.drawings.base import LEAST, Drawing, percent_text, table_of
from apps.web.components.formats import Format, gpus_text
from apps.web.components.tables import (
    ALLOCATED_CLASSES,
    PLANNED_OUTAGE,
    UNALLOCATED,
    UNHEALTHY,
    Column,
    LedgerClass,
    TableRow,
    hue_class,
)

HEIGHT = 228
NODE = 1.0  # percent of the width
_COLUMNS = (0.0, 30.0, 100.0 - NODE)  # percent: names of the last column stand before it
_SLOT = 32  # pixels that a node has at least: two lines of a name
_GAP = 6  # pixels between nodes
_MIDDLE = (UNALLOCATED, UNHEALTHY, PLANNED_OUTAGE)


class FlowNode(Struct, frozen=True):
    """A bar with its name: `x` in percent of the width, `y` and `height` in pixels."""

    label: str
    text: str
    css: str
    x: float
    y: float
    height: float
    href: str = ""

    @property
    def is_last(self) -> bool:
        """Whether nothing flows out of it: its name stands before it."""
        return self.x == _COLUMNS[-1]

    @property
    def name_x(self) -> float:
        """Where its name begins or, of the last column, ends."""
        return self.x if self.is_last else self.x + NODE

    @property
    def middle(self) -> float:
        """Where its name stands, in pixels."""
        return round(self.y + self.height / 2, 1)


class Ribbon(Struct, frozen=True):
    """A path in a box of 100 × HEIGHT, in the hue of where it leads."""

    path: str
    css: str


class Flow(Drawing, frozen=True, kw_only=True):
    """Nodes and ribbons; the nodes of a column and the ribbons between columns add up."""

    template: ClassVar[str] = "components/drawings/_flow.html"

    nodes: Sequence[FlowNode]
    ribbons: Sequence[Ribbon]
    text: str
    height: int = HEIGHT
    node: float = NODE


class _Amount(Struct, frozen=True):
    label: str
    amount: float
    css: str
    key: str


def capacity_flow(
    drawing_id: str,
    title: str,
    gpus: Mapping[str, float],
    *,
    links: Mapping[str, str] | None = None,
) -> Flow:
    """Return the flow of these GPUs; `links` by class, `capacity` and `allocated`."""
    states = [_part(cls, gpus) for cls in ALLOCATED_CLASSES if gpus.get(cls.key)]
    allocated = _Amount("Allocated", sum(p.amount for p in states), "of-allocated", "allocated")
    middle = [allocated, *(_part(cls, gpus) for cls in _MIDDLE if gpus.get(cls.key))]
    total = sum(part.amount for part in middle)
    capacity = _Amount("Capacity", total, "of-capacity", "capacity")
    rows = [capacity, *middle, *states]
    table = table_of(
        drawing_id,
        title,
        [
            Column("state", "State"),
            Column("gpus", "Average", Format.NUMBER, "GPUs"),
            Column("share", "Of capacity", Format.RATIO),
        ],
        [
            TableRow(
                {"state": p.label, "gpus": p.amount, "share": p.amount / total if total else 0}
            )
            for p in rows
        ],
    )
    words = ", ".join(f"{p.label} {gpus_text(p.amount)}" for p in rows)
    if total < LEAST:
        why = "No capacity in this window."
        return Flow(id=drawing_id, title=title, nodes=(), ribbons=(), text="", empty=why)
    # One scale for all columns, or a ribbon would change its thickness on the way.
    scale = min(_scale(parts) for parts in ([capacity], middle, states) if parts)
    columns = [
        _column(parts, x, scale, total, links or {})
        for parts, x in zip(([capacity], middle, states), _COLUMNS, strict=True)
    ]
    return Flow(
        id=drawing_id,
        title=title,
        nodes=[node for column in columns for node in column],
        ribbons=[*_ribbons(columns[0][0], columns[1]), *_ribbons(columns[1][0], columns[2])],
        text=f"{words} GPUs.",
        table=table,
    )


def _part(cls: LedgerClass, gpus: Mapping[str, float]) -> _Amount:
    return _Amount(cls.label, gpus[cls.key], hue_class(cls.key), cls.key)


def _scale(parts: Sequence[_Amount]) -> float:
    """Return the pixels of a GPU with which a column just fits; small nodes take their slot."""
    room = HEIGHT - _GAP * (len(parts) - 1)
    small: list[_Amount] = []
    for part in sorted(parts, key=lambda p: p.amount):
        rest = sum(p.amount for p in parts) - sum(p.amount for p in small)
        scale = (room - _SLOT * len(small)) / rest
        if part.amount * scale >= _SLOT:
            return scale
        small.append(part)
    # Every node takes its slot: the largest sets the scale.
    return _SLOT / max(p.amount for p in parts)


def _column(
    parts: Sequence[_Amount], x: float, scale: float, total: float, links: Mapping[str, str]
) -> list[FlowNode]:
    nodes, y = [], 0.0
    for part in parts:
        height = part.amount * scale
        text = f"{gpus_text(part.amount)} · {percent_text(part.amount / total)}"
        top = y + max(0.0, _SLOT - height) / 2
        href = links.get(part.key, "")
        nodes.append(FlowNode(part.label, text, part.css, x, round(top, 1), round(height, 1), href))
        y += max(_SLOT, height) + _GAP
    return nodes


def _ribbons(source: FlowNode, targets: Sequence[FlowNode]) -> list[Ribbon]:
    """Return the ribbons that leave a node from top to bottom."""
    ribbons, y = [], source.y
    left = source.x + NODE
    for target in targets:
        right, height = target.x, target.height
        bend = (left + right) / 2
        path = (
            f"M{left:g} {y:.1f}C{bend:g} {y:.1f} {bend:g} {target.y:.1f} {right:g} {target.y:.1f}"
            f"v{height:.1f}C{bend:g} {target.y + height:.1f} {bend:g} {y + height:.1f} "
            f"{left:g} {y + height:.1f}z"
        )
        ribbons.append(Ribbon(path, target.css))
        y += height
    return ribbons
