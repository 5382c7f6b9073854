"""The map of racks: a strip for each node, in its zone and rack, with the GPUs that are free."""

from collections import Counter, defaultdict
from collections.abc import Sequence
from urllib.parse import quote

from apps.accounts.domain.structs import replace
from apps.clusters.domain.resources import counted
from apps.planning.selectors import NodeRoom
from apps.web.components.drawings import FleetGpu, FleetGroup, FleetNode, fleet
from apps.web.components.drawings.base import LegendKey
from apps.web.components.drawings.fleet import Fleet
from apps.web.components.figure_row import FigureRow, KeyFigure, figure_row, no_data
from apps.web.components.formats import Format, Value
from apps.web.components.page_query import href
from apps.web.components.tables import Column, Table, TableRow
from apps.web.query_session import QuerySession

_FREE, _HELD, _CLOSED = "Free", "Allocated", "Takes no pods"
_GPUS = {
    _FREE: FleetGpu("free", css="of-unallocated"),
    _HELD: FleetGpu("active", css="of-allocated"),
    _CLOSED: FleetGpu("unavailable", css="of-unhealthy"),
}
_NO_PLACE = "No zone or rack"
_ANY_NODE = "NODE"
_MOST_ROWS = 25
NO_NODES = "No node with whole GPUs is known now."


def rack_map(rooms: Sequence[NodeRoom], reading: QuerySession) -> Fleet:
    """Return the map; nodes have names and links for who sees them."""
    # The name of the only cluster would say nothing.
    several = len({room.cluster for room in rooms}) > 1
    groups: dict[str, list[NodeRoom]] = defaultdict(list)
    for room in rooms:
        place = _place(room)
        groups[f"{room.cluster}: {place}" if several else place].append(room)
    # One address for all: a thousand of them take longer to make than the map to draw.
    link = href("gpus", [*reading.query, ("node", _ANY_NODE)]) or ""
    counts: Counter[str] = Counter()
    for room in rooms:
        counts.update(_states(room))
    drawing = fleet(
        "racks",
        "GPUs by rack",
        [
            FleetGroup(label, [_node(room, link) for room in own], note=_note(own))
            for label, own in groups.items()
        ],
        legend=[
            LegendKey(label, gpu.css, text=f"{counts[label]:,}")
            for label, gpu in _GPUS.items()
            if counts[label]
        ],
        caption="Whole GPUs now.",
        empty=NO_NODES,
    )
    return replace(drawing, table=_table(rooms, reading))


def _place(room: NodeRoom) -> str:
    """Return zone, rack and NVLink domain: GPUs of one NVLink domain are a group of their own."""
    nvlink = (f"NVLink domain {room.nvlink}",) if room.nvlink else ()
    return " / ".join((*(room.place or (_NO_PLACE,)), *nvlink))


def map_figures(rooms: Sequence[NodeRoom]) -> FigureRow:
    """Return how many GPUs and hosts are free."""
    if not rooms:
        return figure_row(no_data("Free GPUs", NO_NODES))
    # What is free on a node that takes no pods is free for no pod.
    is_open = [room for room in rooms if room.is_open]
    gpus = sum(room.gpus for room in is_open)
    empty = sum(room.free >= room.gpus for room in is_open)
    return figure_row(
        KeyFigure(
            "Free GPUs",
            f"{sum(room.free for room in is_open):,}",
            f"of {gpus:,} whole GPUs",
            basis="now",
        ),
        KeyFigure("Empty hosts", f"{empty:,}", f"of {len(is_open):,} hosts", basis="now"),
        KeyFigure("Takes no pods", f"{len(rooms) - len(is_open):,}", "hosts", basis="now"),
    )


def _table(rooms: Sequence[NodeRoom], reading: QuerySession) -> Table:
    # Most clusters publish no NUMA nodes or NVLink domains: dashes would say nothing.
    with_numa = any(room.numa for room in rooms)
    told = [
        one
        for one in (Column("nvlink", "NVLink domain"), Column("machine", "Machine, GPU family"))
        if any(getattr(room, one.key) for room in rooms)
    ]

    def line(room: NodeRoom) -> TableRow:
        place = " / ".join(room.place)
        free = room.free if room.is_open else None
        values: dict[str, Value] = {"cluster": room.cluster, "place": place, "tier": room.tier}
        numa: dict[str, Value] = {"numa": _numa_words(room)} if with_numa else {}
        counts: dict[str, Value] = {"node": room.node, "gpus": room.gpus, "free_gpus": free}
        named: dict[str, Value] = {one.key: getattr(room, one.key) for one in told}
        return TableRow({**values, **counts, **named, **numa})

    return Table(
        id="racks",
        title="GPUs by rack",
        columns=(
            Column("cluster", "Cluster"),
            Column("place", "Zone and rack"),
            Column("tier", "Tier"),
            Column("node", "Node"),
            Column("gpus", "GPUs", Format.COUNT),
            Column("free_gpus", "Free", Format.COUNT, "GPUs", absent="takes no pods"),
            *told,
            *(
                (Column("numa", "NUMA nodes", hint="GPUs of each, free ones first."),)
                if with_numa
                else ()
            ),
        ),
        rows=[line(room) for room in rooms[:_MOST_ROWS]],
        zone=reading.choice.zone,
        empty=NO_NODES,
        ordered=True,
        every=lambda: [line(room) for room in rooms],
    )


def _states(room: NodeRoom) -> dict[str, int]:
    if not room.is_open:
        return {_CLOSED: room.gpus}
    # Both are read at different moments, and a map has no more cells than GPUs.
    free = min(room.free, room.gpus)
    return {_HELD: room.gpus - free, _FREE: free}


def _node(room: NodeRoom, link: str) -> FleetNode:
    states = _states(room)
    gpus = [_GPUS[state] for state, count in states.items() for _ in range(count)]
    words = ", ".join(f"{count:,} {state.lower()}" for state, count in states.items() if count)
    # Who does not see all gets rooms without names of nodes.
    own = link.replace(_ANY_NODE, quote(room.node, safe="")) if room.node else ""
    numa = f"; NUMA: {_numa_words(room)}" if room.numa else ""
    machine = f"; {room.machine}" if room.machine else ""
    return FleetNode(room.node or room.tier, gpus, own, f"{words} ({room.tier}){machine}{numa}")


def _numa_words(room: NodeRoom) -> str:
    return ", ".join(
        f"{name} {gpus} GPUs (no data of free ones)"
        if free is None
        else f"{name} {free} of {gpus} free"
        for name, gpus, free in room.numa
    )


def _note(own: Sequence[NodeRoom]) -> str:
    gpus = sum(room.gpus for room in own)
    free = sum(room.free for room in own if room.is_open)
    return f"{free:,} of {counted(gpus, 'GPU')} free"
