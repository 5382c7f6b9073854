"""The page of the topology: slots for gangs, fragmentation, and the drain plan."""

from collections.abc import Mapping, Sequence
from typing import Any

from django.http import HttpResponseBase
from msgspec import Struct

from apps.clusters.domain.resources import counted
from apps.clusters.domain.topology import LEVELS, TopologyLevel
from apps.planning import selectors as planning
from apps.planning import services as planning_services
from apps.planning.domain.topology.slots import GANG_SIZES
from apps.planning.selectors import (
    DeviceRow,
    FragmentationRow,
    GangRow,
    SlotRow,
    TierFilters,
)
from apps.planning.services import TierDrainPlan
from apps.usage.domain.amounts import nano
from apps.usage.domain.usage_query import TimeStep
from apps.web.components.drawings.fleet import Fleet
from apps.web.components.figure_row import FigureRow, KeyFigure, figure_row, no_data
from apps.web.components.formats import Format, Value, shown
from apps.web.components.page_query import href, option_links, path_of, workload_href
from apps.web.components.plots import Plot
from apps.web.components.tables import (
    Column,
    Table,
    TableRow,
    declared_columns,
    declared_values,
)
from apps.web.components.tabs import Tab, tab_bar
from apps.web.components.window_picker import PLACE_KEYS, remaining_query
from apps.web.pages import page, respond
from apps.web.planning.rack_map import map_figures, rack_map
from apps.web.planning.topology_plots import (
    LEVEL_NAMES,
    NO_NODES,
    NODE_GPUS,
    device_plots,
    fragmentation_plots,
    slot_plots,
)
from apps.web.query_session import PageRequest, QuerySession, query_session

HOST = TopologyLevel.HOST.value
_TAKES = ("tier",)
_TABS = (
    Tab("slots", "Slots"),
    Tab("map", "Map"),
    Tab("fragmentation", "Fragmentation"),
    Tab("gangs", "Gangs"),
)
_DRAIN = Tab("drain", "Drain plan")
_POD_SIZES = (1, 2, 4, 8)
_MOST_ROWS = 25
_NOT_STORED = "No data in this window: nodes are known since the watch began."
_WITH_FRAGMENTATION = frozenset({"slots", "fragmentation"})


class _TabContent(Struct, frozen=True):
    """What the open tab shows."""

    tables: Sequence[Table] = ()
    plots: Sequence[Plot] = ()
    map: Fleet | None = None
    plans: Sequence[TierDrainPlan] = ()


@page
def topology(request: PageRequest) -> HttpResponseBase:
    reading = query_session(request, takes=_TAKES)
    own: dict[str, Any] = {
        "visibility": reading.visibility,
        "filters": TierFilters(tuple(reading.filters.cluster), tuple(reading.filters.tier)),
    }
    pod_gpus, level = _pod_gpus(request), _level(request)
    # The plan names pods of all teams, so only who runs the clusters gets it.
    with_drain = (_DRAIN,) if reading.visibility.operations else ()
    tabs = tab_bar(request, (*_TABS, *with_drain), name="Topology")
    # The map has a thousand nodes to draw: its own rows give its figures.
    rows = [] if tabs.chosen == "map" else planning.slot_rows(reading.now, pod_gpus=pod_gpus, **own)
    figures = None
    total = (
        planning.fragmentation_rows(reading.window, **own)
        if tabs.chosen in _WITH_FRAGMENTATION
        else None
    )
    shown = _TabContent()
    if tabs.chosen == "slots":
        shown = _slots_content(rows, level, reading, own)
    elif tabs.chosen == "map":
        rooms = planning.node_rooms(reading.now, **own)
        figures, shown = map_figures(rooms), _TabContent(map=rack_map(rooms, reading))
    elif tabs.chosen == "fragmentation":
        shown = _fragmentation_content(total or (), reading, own)
    elif tabs.chosen == "gangs":
        gangs = planning.gang_rows(reading.window, **own)
        shown = _TabContent([_spread_table(gangs, reading), _gangs_table(gangs, reading)])
    elif tabs.chosen == _DRAIN.key:
        plans = planning_services.drain_plans(NODE_GPUS, now=reading.now, **own)
        shown = _TabContent([_moves_table(plans, reading)], plans=plans)
    return respond(
        request,
        reading,
        "topology",
        tables=shown.tables,
        drawings=[shown.map] if shown.map else (),
        figures=figures or _figures(rows, total, reading),
        tabs=tabs,
        plots=shown.plots,
        plans=shown.plans,
        unchecked=planning_services.DRAIN_UNCHECKED,
        pod_links=_links(request, "pods", {str(n): str(n) for n in _POD_SIZES}, str(pod_gpus), "1"),
        level_links=_links(
            *(request, "level", {LEVEL_NAMES[one]: one for one in _known(rows)}),
            *(level.value, HOST),
        ),
    )


def _slots_content(
    rows: Sequence[SlotRow], level: TopologyLevel, reading: QuerySession, own: Mapping[str, Any]
) -> _TabContent:
    series = planning.slot_series(reading.window, level, now=reading.now, **own)
    plots = [*slot_plots(series, reading), *device_plots(series, reading)]
    devices = planning.device_rows(reading.now, **own)
    tables = [
        _slots_table(rows, reading),
        *([_devices_table(devices, reading)] if devices else ()),
        *(one.table for one in plots),
    ]
    return _TabContent(tables, plots)


def _fragmentation_content(
    total: Sequence[FragmentationRow], reading: QuerySession, own: Mapping[str, Any]
) -> _TabContent:
    hours = planning.fragmentation_rows(reading.window, interval=TimeStep.HOUR, **own)
    days = planning.fragmentation_rows(reading.window, interval=TimeStep.DAY, **own)
    plots = fragmentation_plots(hours, reading)
    tables = [
        _fragmentation_table(total, reading),
        _days_table(days, reading),
        *(one.table for one in plots),
    ]
    return _TabContent(tables, plots)


def _pod_gpus(request: PageRequest) -> int:
    given = request.GET.get("pods", "")
    return int(given) if given in {str(n) for n in _POD_SIZES} else 1


def _level(request: PageRequest) -> TopologyLevel:
    given = request.GET.get("level", "")
    return next((level for level in LEVELS if level.value == given), TopologyLevel.HOST)


def _known(rows: Sequence[SlotRow]) -> list[str]:
    there = {row.level for row in rows}
    return [level.value for level in reversed(LEVELS) if level in there]


def _of_many(lines: int) -> str:
    return f"The first {_MOST_ROWS} of {lines:,}; the file has all." if lines > _MOST_ROWS else ""


def _links(
    request: PageRequest, key: str, options: Mapping[str, str], chosen: str, usual: str
) -> list[tuple[str, str, bool]]:
    """Return (label, address, chosen) of each option; the usual one is not in the address."""
    query = remaining_query(request, drop=(*PLACE_KEYS, key))
    values = {label: "" if value == usual else value for label, value in options.items()}
    picked = () if chosen == usual else (chosen,)
    return option_links(path_of(request), query, key, values, picked)


# ---------------------------------------------------------------- figures


def _figures(
    rows: Sequence[SlotRow], total: Sequence[FragmentationRow] | None, reading: QuerySession
) -> FigureRow:
    of_host = [row for row in rows if row.level == HOST]
    # Slots of one GPU are the GPUs that are free; those that are possible are all of them.
    ones = [row for row in of_host if row.gang_gpus == 1]
    eights = [row for row in of_host if row.gang_gpus == NODE_GPUS]
    if not ones:
        return figure_row(no_data("Free GPUs", NO_NODES))
    largest = max((row.gang_gpus for row in of_host if row.slots), default=0)
    return figure_row(
        KeyFigure(
            "Free GPUs",
            f"{sum(row.free_gpus for row in ones):,}",
            f"of {sum(row.possible_slots for row in ones):,} whole GPUs",
            basis="now",
        ),
        KeyFigure(
            "Slots of 8",
            f"{sum(row.slots for row in eights):,}",
            f"of {sum(row.possible_slots for row in eights):,} hosts",
            basis="now",
        ),
        KeyFigure("Largest slot", f"{largest:,}", "GPUs on one host", basis="now"),
        *(() if total is None else (_fragmentation_figure(total, reading),)),
    )


def _fragmentation_figure(total: Sequence[FragmentationRow], reading: QuerySession) -> KeyFigure:
    # Tiers that nothing was requested of have no fragmentation, and must not dilute it.
    free = sum(row.free_gpu_hours for row in total if row.unusable_gpu_hours is not None)
    lost = sum(row.unusable_gpu_hours or 0.0 for row in total)
    if not total:
        return no_data("Fragmentation", _NOT_STORED)
    if not free:
        return no_data("Fragmentation", "Nothing was free, or nothing was requested")
    return KeyFigure(
        "Fragmentation",
        shown(lost / free, Format.RATIO, reading.choice.zone),
        f"of {free:,.0f} free GPU-h",
        basis="average",
    )


# ---------------------------------------------------------------- slots


def _slots_table(rows: Sequence[SlotRow], reading: QuerySession) -> Table:
    """Return a line for each tier and level, narrowest first, with a column for each gang."""
    lines: dict[tuple[str, str, str], list[SlotRow]] = {}
    for row in rows:
        lines.setdefault((row.cluster, row.tier, row.level), []).append(row)
    # Levels are declared from the widest on, and the table begins with the narrowest.
    order = {level.value: -number for number, level in enumerate(LEVELS)}
    ranked = sorted(lines.items(), key=lambda item: (*item[0][:2], order[item[0][2]]))
    several = len({row.cluster for row in rows}) > 1
    return Table(
        id="slots",
        title="Slots now",
        columns=(
            *((Column("cluster", "Cluster"),) if several else ()),
            Column("tier", "Tier"),
            Column("level", "Level", hint="A gang stays within one domain of it."),
            Column("domains", "Domains", Format.COUNT, "", "Domains that have GPUs."),
            Column("free_gpus", "Free", Format.COUNT, "GPUs"),
            *(
                Column(
                    *(f"slots_{size}", f"Gang of {size}", Format.COUNT, ""),
                    f"Gangs of {counted(size, 'GPU')} that fit now.",
                    absent="too large",
                )
                for size in GANG_SIZES
            ),
        ),
        rows=[_slots_line(own, reading) for _, own in ranked],
        zone=reading.choice.zone,
        empty=NO_NODES,
        ordered=True,
        on_phone=("tier", "level", "free_gpus", "slots_8"),
    )


def _slots_line(own: Sequence[SlotRow], reading: QuerySession) -> TableRow:
    first = own[0]
    # Where not even empty hosts would do, zero slots would promise that some may come.
    slots = {f"slots_{row.gang_gpus}": row.slots if row.possible_slots else None for row in own}
    values: dict[str, Value] = {
        "cluster": first.cluster,
        "tier": first.tier,
        "level": LEVEL_NAMES[first.level],
        "domains": first.domains,
        "free_gpus": first.free_gpus,
        **slots,
    }
    return TableRow(values, {"tier": href("tier", reading.query, name=first.tier)})


def _devices_table(rows: Sequence[DeviceRow], reading: QuerySession) -> Table:
    return Table(
        id="devices",
        title="Parts of GPUs",
        # The name of the only cluster would say nothing.
        columns=[
            one
            for one in declared_columns(DeviceRow)
            if one.key != "cluster" or len({row.cluster for row in rows}) > 1
        ],
        rows=[
            TableRow(declared_values(row), {"tier": href("tier", reading.query, name=row.tier)})
            for row in rows
        ],
        zone=reading.choice.zone,
        # Shown where there are some alone.
        empty="",
        on_phone=("tier", "device", "offered", "free"),
    )


# ---------------------------------------------------------------- fragmentation


def _fragmentation_table(rows: Sequence[FragmentationRow], reading: QuerySession) -> Table:
    return Table(
        id="fragmentation",
        title="Fragmentation by tier",
        columns=[one for one in declared_columns(FragmentationRow) if one.key != "period"],
        rows=[_fragmentation_line(row, reading) for row in rows],
        zone=reading.choice.zone,
        empty=_NOT_STORED,
        on_phone=("tier", "free_gpu_hours", "unusable_gpu_hours", "fragmentation_index"),
    )


def _fragmentation_line(row: FragmentationRow, reading: QuerySession) -> TableRow:
    return TableRow(declared_values(row), {"tier": href("tier", reading.query, name=row.tier)})


def _days_table(rows: Sequence[FragmentationRow], reading: QuerySession) -> Table:
    # The newest day comes first, since only some of them are shown.
    lines = [_fragmentation_line(row, reading) for row in reversed(rows)]
    return Table(
        id="days",
        title="Fragmentation by day",
        columns=declared_columns(FragmentationRow),
        rows=lines[:_MOST_ROWS],
        zone=reading.choice.zone,
        empty=_NOT_STORED,
        ordered=True,
        note=_of_many(len(lines)),
        on_phone=("period", "tier", "unusable_gpu_hours", "fragmentation_index"),
        every=lambda: lines,
    )


# ---------------------------------------------------------------- gangs


_NO_GANGS = (
    "No gang ran in this window. Gangs are pods on whole GPUs that name one group (Volcano, "
    "coscheduling, Kueue, Kubernetes), or whose controller lets them work together (PyTorchJob, "
    "MPIJob, JobSet, a Job with parallelism)."
)
_SPREAD = (
    ("More domains than needed", True),
    ("As few as needed", False),
)


def _spread_table(rows: Sequence[GangRow], reading: QuerySession) -> Table:
    """Return the gangs that were spread more than needed beside the others, each as one line."""
    lines = []
    for label, is_spread in _SPREAD:
        own = [row for row in rows if row.is_spread is is_spread]
        measured = sum(row.measured_gpu_hours for row in own)
        # Weighted by hours: a short gang must not count as much as a long one.
        active = sum((row.utilization_ratio or 0.0) * row.measured_gpu_hours for row in own)
        values: dict[str, Value] = {
            "spread": label,
            "gangs": len(own),
            "measured_gpu_hours": nano(measured),
            "utilization_ratio": active / measured if measured else None,
        }
        lines.append(TableRow(values))
    return Table(
        id="spread",
        title="Spread and activity",
        columns=(
            Column("spread", "Spread"),
            Column("gangs", "Gangs", Format.COUNT),
            Column("measured_gpu_hours", "Measured", Format.GPU_HOURS, "GPU-h"),
            Column("utilization_ratio", "GPU utilization", Format.RATIO, "%"),
        ),
        rows=lines if rows else [],
        zone=reading.choice.zone,
        empty=_NO_GANGS,
        ordered=True,
    )


def _gangs_table(rows: Sequence[GangRow], reading: QuerySession) -> Table:
    def line(row: GangRow) -> TableRow:
        values = {**declared_values(row), "level": LEVEL_NAMES[row.level]}
        link = workload_href(row.cluster, row.namespace, row.workload, reading.query)
        return TableRow(values, {"workload": link})

    lines = [line(row) for row in rows]
    return Table(
        id="gangs",
        title="Gangs",
        columns=declared_columns(GangRow),
        rows=lines[:_MOST_ROWS],
        zone=reading.choice.zone,
        empty=_NO_GANGS,
        note=_of_many(len(lines)),
        on_phone=("workload", "gpus", "domains", "utilization_ratio"),
        every=lambda: lines,
    )


# ---------------------------------------------------------------- drain plan


def _moves_table(plans: Sequence[TierDrainPlan], reading: QuerySession) -> Table:
    """Return a line for each pod to move, in the order of the slots that this opens."""
    rows = []
    for plan in plans:
        for number, slot in enumerate(plan.plan.opened, start=1):
            for move in slot.moves:
                pod = move.pod
                link = href("pod", reading.query, cluster=plan.cluster, uid=pod.uid)
                values: dict[str, Value] = {
                    "tier": plan.tier,
                    "slot": number,
                    "host": slot.host,
                    "pod": f"{pod.namespace}/{pod.name}",
                    "workload": pod.owner,
                    "gpus": pod.gpus,
                    "held_seconds": pod.held,
                    "target": move.target,
                }
                rows.append(TableRow(values, {"pod": link}))
    return Table(
        id="moves",
        title="Pods to move",
        columns=(
            Column("tier", "Tier"),
            Column("slot", "Slot", Format.COUNT, "", "Slots of 8 open after its moves."),
            Column("host", "Cordon host"),
            Column("pod", "Delete pod"),
            Column("workload", "Workload"),
            Column("gpus", "Size", Format.COUNT, "GPUs"),
            Column("held_seconds", "Running for", Format.SECONDS),
            Column("target", "Room on", hint="A host that has room for it now."),
        ),
        rows=rows,
        zone=reading.choice.zone,
        empty="No move of small pods opens a slot of 8 GPUs now.",
        ordered=True,
        on_phone=("host", "pod", "gpus", "target"),
    )
