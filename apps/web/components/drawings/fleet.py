"""The fleet: a strip for each node, a cell for each GPU, its MIG devices and replicas inside it.

    fleet(
        "fleet", "GPUs",
        [FleetGroup("whole-a100", [FleetNode("a100-12", [FleetGpu("active", "GPU 0: 92 %")])])],
    )
    FleetGpu("mig", parts=[FleetPart("active", 3), FleetPart("free", 4)])   MIG: shares of a GPU
    FleetGpu("shared", parts=[FleetPart("idle")] * 4, shared=True)          replicas

Colours are those of STATES, or any `css` of a cell (a level of `heat_map.heat_css` for utilization
or memory). Nodes with what is broken come first. From DENSE nodes on, cells are small and names
show on hover alone; each node still leads to its page. A group with an `open_href` is folded: one
bar of its states and the nodes with what is broken.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar

from django.utils.html import escape
from django.utils.safestring import SafeString, mark_safe
from msgspec import Struct

from apps.web.components.drawings.bars import BarPart, StackedBar, stacked_bar
from apps.web.components.drawings.base import TABLE_ROWS, Drawing, LegendKey, part_of, table_of
from apps.web.components.formats import Format
from apps.web.components.tables import Column, TableRow

STATES = {
    "unavailable": LegendKey("Unavailable", "of-unhealthy"),
    "unattributed": LegendKey("Unattributed activity", "of-unmet"),
    "no_metrics": LegendKey("No metrics", "of-unmeasured"),
    "idle": LegendKey("Idle", "of-idle"),
    "not_running": LegendKey("Allocated, not running", "of-not-running"),
    "underutilized": LegendKey("Underutilized", "of-underused"),
    "active": LegendKey("Active", "of-active"),
    "free": LegendKey("Unallocated", "of-unallocated"),
}
"""How the states of a GPU are drawn, the worst first."""
DENSE = 120
_CELL, _SMALL_CELL = 16, 8  # pixels
_PER_LINE, _DENSE_PER_LINE = 8, 4
_SOUND = 2
_MOST_BROKEN = 24  # strips of a folded group


class FleetPart(Struct, frozen=True):
    """A MIG device or a replica: its state, and its share of the GPU in any unit."""

    state: str
    share: float = 1.0
    text: str = ""
    css: str = ""


class FleetGpu(Struct, frozen=True):
    """A GPU: its state, or those of its parts; `shared` parts are replicas and lie as layers.

    Parts fill the GPU, unless they come to less than the `whole`.
    """

    state: str
    text: str = ""
    css: str = ""
    parts: Sequence[FleetPart] = ()
    shared: bool = False
    whole: float = 0.0


class FleetNode(Struct, frozen=True):
    """A node and its GPUs; `text` tells them in place of their counted states."""

    label: str
    gpus: Sequence[FleetGpu]
    href: str = ""
    text: str = ""


class FleetGroup(Struct, frozen=True):
    """Nodes of one tier, rack or cluster; with an `open_href` they are folded.

    `note` stands beside the number of nodes.
    """

    label: str
    nodes: Sequence[FleetNode]
    href: str = ""
    open_href: str = ""
    note: str = ""


class FleetCell(Struct, frozen=True):
    """A rectangle in pixels."""

    x: float
    y: float
    width: float
    height: float
    css: str
    title: str


class NodeStrip(Struct, frozen=True):
    """A drawn node: its cells in a box of width × height pixels, and its states in words."""

    node: FleetNode
    cells: Sequence[FleetCell]
    width: int
    height: int
    text: str
    rank: int

    @property
    def is_broken(self) -> bool:
        return self.rank == 0


def _paths(cells: Sequence[FleetCell]) -> str:
    """Return one path for all cells of one colour: far less to send for a thousand nodes."""
    paths: dict[str, str] = {}
    for cell in cells:
        box = f"M{cell.x:g} {cell.y:g}h{cell.width:g}v{cell.height:g}h-{cell.width:g}z"
        paths[cell.css] = paths.get(cell.css, "") + box
    return "".join(f'<path class="filled {escape(css)}" d="{d}"/>' for css, d in paths.items())


class GroupStrips(Struct, frozen=True):
    """A drawn group: nodes with what is broken first.

    Of a folded group `bar` has the states, and `strips` some of what is broken; `more` are not
    drawn.
    """

    group: FleetGroup
    strips: Sequence[NodeStrip]
    text: str
    bar: StackedBar | None = None
    more: int = 0

    @property
    def dense_markup(self) -> SafeString:
        """The strips without names: a template takes four times as long for a thousand nodes."""
        drawn: dict[int, str] = {}
        items = []
        for strip in self.strips:
            # Strips whose GPUs are the same share their cells, which this group keeps alive.
            paths = drawn.get(id(strip.cells))
            if paths is None:
                paths = drawn[id(strip.cells)] = _paths(strip.cells)
            items.append(_dense_item(strip, paths))
        return mark_safe("".join(items))  # noqa: S308 - every value in it went through escape


def _dense_item(strip: NodeStrip, paths: str) -> str:
    css = ' class="fleet-broken"' if strip.is_broken else ""
    size = f'<svg width="{strip.width}" height="{strip.height}"'
    text = escape(strip.text)
    if not strip.node.href:
        return f'<li{css}>{size} role="img" aria-label="{text}">{paths}</svg></li>\n    '
    link = f'<a href="{escape(strip.node.href)}" title="{text}">'
    return f'<li{css}>{link}{size} aria-hidden="true">{paths}</svg></a></li>\n    '


class Fleet(Drawing, frozen=True, kw_only=True):
    """Groups of node strips; `is_dense` ones have no names."""

    template: ClassVar[str] = "components/drawings/_fleet.html"

    groups: Sequence[GroupStrips]
    is_dense: bool


def fleet(
    drawing_id: str,
    title: str,
    groups: Sequence[FleetGroup],
    *,
    legend: Sequence[LegendKey] = (),
    caption: str = "",
    empty: str = "",
) -> Fleet:
    """Return the map; `legend` stands in place of the counted states for other colours."""
    nodes = [node for group in groups for node in group.nodes]
    # Folded groups draw no nodes of their own.
    dense = sum(len(group.nodes) for group in groups if not group.open_href) >= DENSE
    counts = _counts(nodes)
    listed = [(group.label, node) for group in groups for node in group.nodes]
    table = table_of(
        drawing_id,
        title,
        [
            Column("group", "Group"),
            Column("node", "Node"),
            *(Column(state, key.label, Format.COUNT) for state, key in STATES.items()),
        ],
        _table_rows(listed[:TABLE_ROWS]),
    )
    return Fleet(
        id=drawing_id,
        title=title,
        groups=[_group(n, group, dense=dense) for n, group in enumerate(groups)],
        is_dense=dense,
        caption=caption,
        legend=legend or [_counted(state, n) for state, n in counts.items() if n],
        # The rows of all nodes are made for a file alone.
        table=table
        if len(listed) <= TABLE_ROWS
        else part_of(table, len(listed), lambda: _table_rows(listed)),
        empty="" if nodes else empty or "No GPUs are known.",
    )


def _table_rows(listed: Sequence[tuple[str, FleetNode]]) -> list[TableRow]:
    return [
        TableRow({"group": label, "node": node.label, **_counts([node])}) for label, node in listed
    ]


def _counted(state: str, count: int) -> LegendKey:
    key = STATES[state]
    return LegendKey(key.label, key.css, key.shape, f"{count:,}")


def _counts(nodes: Sequence[FleetNode]) -> dict[str, int]:
    """Return how many GPUs, or parts of GPUs, are in each state."""
    counts = dict.fromkeys(STATES, 0)
    for node in nodes:
        for gpu in node.gpus:
            if not gpu.parts:
                counts[gpu.state] += 1
                continue
            for part in gpu.parts:
                counts[part.state] += 1
    return counts


def _group(number: int, group: FleetGroup, *, dense: bool) -> GroupStrips:
    counts = _counts(group.nodes)
    text = _words(counts)
    if not group.open_href:
        strips = _strips(group.nodes, dense=dense)
        return GroupStrips(group, sorted(strips, key=lambda s: s.rank), text)
    broken = [node for node in group.nodes if _rank(_counts([node])) < _SOUND]
    broken.sort(key=lambda node: _rank(_counts([node])))
    parts = [
        BarPart(STATES[state].label, n, f"{n:,}", STATES[state].css) for state, n in counts.items()
    ]
    bar = stacked_bar(f"fleet-bar-{number}", group.label, parts)
    drawn = broken[:_MOST_BROKEN]
    return GroupStrips(
        group,
        _strips(drawn, dense=dense),
        text,
        bar,
        more=len(group.nodes) - len(drawn),
    )


def _rank(counts: Mapping[str, int]) -> int:
    """Return how early a node is drawn: what is unavailable, then what is unattributed."""
    return 0 if counts["unavailable"] else 1 if counts["unattributed"] else _SOUND


def _words(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{n:,} {STATES[state].label.lower()}" for state, n in counts.items() if n)


def _strips(nodes: Sequence[FleetNode], *, dense: bool) -> list[NodeStrip]:
    """Return the strips of nodes; those with the very same GPUs share their cells and counts."""
    drawn: dict[tuple[int, ...], tuple[list[FleetCell], dict[str, int]]] = {}
    strips = []
    for node in nodes:
        same = tuple(map(id, node.gpus))
        known = drawn.get(same)
        if known is None:
            known = drawn[same] = _node_cells(node.gpus, dense=dense), _counts([node])
        strips.append(_strip(node, *known, dense=dense))
    return strips


def _strip(
    node: FleetNode, cells: Sequence[FleetCell], counts: Mapping[str, int], *, dense: bool
) -> NodeStrip:
    line, pitch = _line_and_pitch(dense=dense)
    return NodeStrip(
        node,
        cells,
        width=max(1, min(len(node.gpus), line)) * pitch,
        height=max(1, -(-len(node.gpus) // line)) * pitch,
        text=f"{node.label}: {node.text or _words(counts) or 'no GPUs'}",
        rank=_rank(counts),
    )


def _line_and_pitch(*, dense: bool) -> tuple[int, int]:
    """Return how many GPUs are in a line of a strip, and the pixels from one to the next."""
    return (_DENSE_PER_LINE, _SMALL_CELL + 1) if dense else (_PER_LINE, _CELL + 2)


def _node_cells(gpus: Sequence[FleetGpu], *, dense: bool) -> list[FleetCell]:
    """Return the cells of a node, line by line."""
    size = _SMALL_CELL if dense else _CELL
    line, pitch = _line_and_pitch(dense=dense)
    return [
        cell
        for n, gpu in enumerate(gpus)
        for cell in _cells(gpu, n % line * pitch, n // line * pitch, size)
    ]


def _cells(gpu: FleetGpu, x: float, y: float, size: float) -> Iterator[FleetCell]:
    if not gpu.parts:
        yield FleetCell(x, y, size, size, gpu.css or STATES[gpu.state].css, gpu.text)
        return
    # Without a `whole` the parts fill the GPU; of one, what they lack stays free.
    whole = max(gpu.whole, sum(part.share for part in gpu.parts))
    at = 0.0
    for part in gpu.parts:
        length = round(size * part.share / whole, 2)
        css = part.css or STATES[part.state].css
        if gpu.shared:
            yield FleetCell(x, round(y + at, 2), size, length, css, part.text or gpu.text)
        else:
            yield FleetCell(round(x + at, 2), y, length, size, css, part.text or gpu.text)
        at += length
