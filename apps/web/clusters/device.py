"""The page of one GPU: its verdict, current metrics, and the pods on its node."""

from collections import Counter
from collections.abc import Sequence
from datetime import timedelta

from django.http import Http404, HttpResponseBase
from msgspec import Struct

from apps.accounts.domain.structs import replace
from apps.clusters.domain.devices.state import Health, Xid, XidKind, meaning
from apps.clusters.domain.window import Window
from apps.clusters.selectors import node_dashboard
from apps.usage import selectors as usage
from apps.usage.domain.usage_query import Filters, PodRow, RowPage
from apps.usage.selectors import (
    DeviceFilters,
    DeviceRow,
    FleetDevice,
    fleet_state,
    last_readings,
)
from apps.web.clusters import device_tables
from apps.web.clusters.device_tables import memory_ratio, tenant_parts, use_state, xid_of
from apps.web.components import listings
from apps.web.components.commands import kubectl
from apps.web.components.drawings import Segment, TimelineRow, timeline
from apps.web.components.drawings.base import percent_text
from apps.web.components.drawings.fleet import STATES
from apps.web.components.drawings.timeline import Timeline
from apps.web.components.figure_row import FigureRow, KeyFigure, Tone, figure_row, no_data
from apps.web.components.formats import Format, shown
from apps.web.components.page_query import FEW_ROWS, href
from apps.web.components.tables import Table, TableRow
from apps.web.components.tabs import Tab, tab_bar
from apps.web.pages import page, respond
from apps.web.query_session import PageRequest, QuerySession, on_cluster, query_session
from apps.web.usage.pods import phases

_MOST_PODS = 100
_DAY = timedelta(hours=24)
_TABS = (Tab("timeline", "Timeline"), Tab("pods", "Pods"), Tab("node", "Node"))
_NOT_EXPORTED = "The exporter does not show it."
_ON_NODE = "All pods of the node: which of its GPUs a pod had is not kept."
_PROCESSES = "nvidia-smi --query-compute-apps=pid,process_name,gpu_uuid --format=csv"


class DeviceVerdict(Struct, frozen=True):
    """What is to be said first of a GPU: cause, action and owner; `command` may be empty."""

    text: str
    action: str = ""
    owner: str = ""
    command: str = ""
    tone: Tone = Tone.NONE


@page
def device(request: PageRequest, cluster: str, uuid: str) -> HttpResponseBase:
    reading = on_cluster(query_session(request), cluster)
    wanted = DeviceFilters(cluster=(cluster,), uuid=uuid)
    fleet = fleet_state(wanted, visibility=reading.visibility, now=reading.now)
    if not fleet.devices:
        raise Http404("There is no such device, or you may not see it.")
    # Several devices of one UUID are the MIG devices of one GPU.
    first = fleet.devices[0].row
    table = device_tables.devices_table(fleet.devices, reading)
    pods = _pods_of_node(first, reading)
    looks = last_readings(visibility=reading.visibility, clusters=(cluster,))
    tabs = tab_bar(request, _TABS, name="Co-located pods and node")
    return respond(
        request,
        reading,
        "gpu",
        tables=[
            replace(table, title="MIG devices" if first.gpu_instance else "Current metrics"),
            _pods_table(pods, reading),
            replace(device_tables.nodes_table(fleet, fleet.devices, reading), title="Node"),
        ],
        drawings=[_timeline(fleet.devices, pods.rows, reading)],
        verdict=device_verdict(fleet.devices, reading),
        figures=_figures(fleet.devices[0], table.rows[0]),
        tabs=tabs,
        device=first,
        tenants=tenant_parts(first, reading),
        xid=xid_of(first.state),
        node_dashboard=node_dashboard(cluster, first.node),
        tiers=list(dict.fromkeys(tier for one in fleet.devices for tier in one.tiers)),
        title=f"GPU {first.state.index}" if first.state.index else first.uuid,
        stale=device_tables.stale(looks, reading.now),
    )


# ---------------------------------------------------------------- verdict


def device_verdict(devices: Sequence[FleetDevice], reading: QuerySession) -> DeviceVerdict:
    """Return the verdict on a GPU, by the worst of its MIG devices where it has several."""
    counts = Counter(use_state(device) for device in devices)
    # The states are listed with the worst first.
    worst = min(devices, key=lambda device: list(STATES).index(use_state(device)))
    verdict = _verdict(worst, reading)
    if len(devices) == 1:
        return verdict
    found = ", ".join(f"{counts[s]} {k.label.lower()}" for s, k in STATES.items() if counts[s])
    name = device_tables.title_of(worst.row)
    return replace(verdict, text=f"{len(devices)} MIG devices: {found}. {name}: {verdict.text}")


def _verdict(device: FleetDevice, reading: QuerySession) -> DeviceVerdict:
    row, state = device.row, use_state(device)
    describe = kubectl("describe", "node", row.node) if row.node else ""
    reasons = "; ".join(row.reasons)
    since = shown(row.health_since, Format.TIME, reading.choice.zone)
    if state == "unavailable":
        xid = meaning(row.state.xid) if row.state.xid else None
        return DeviceVerdict(
            f"Unavailable since {since}: {reasons}.",
            _repair(xid),
            "Platform admin",
            describe,
            Tone.DANGER,
        )
    # Before use: what an exporter last said of a GPU is no news of it.
    if row.health is Health.UNSEEN:
        pods = ("get", "pods", "--all-namespaces", "--field-selector", f"spec.nodeName={row.node}")
        return DeviceVerdict(
            f"No metrics since {since}: {reasons}.",
            "Check the exporter on its node.",
            "Platform admin",
            kubectl(*pods) if row.node else "",
            Tone.WARNING,
        )
    if state == "unattributed":
        return DeviceVerdict(
            f"{_active(device)} without a pod.",
            "Find the process on the node.",
            "Platform admin",
            _PROCESSES,
            Tone.WARNING,
        )
    watched = f" To watch: {reasons}." if row.health is Health.WATCH else ""
    tone = Tone.WARNING if watched else Tone.NONE
    if state == "free":
        return DeviceVerdict(f"Unallocated.{watched}", tone=tone)
    label = "" if state == "active" else f"{STATES[state].label}: "
    text = f"{label}{_active(device)}, {_holders(device)}.{watched}"
    if state != "idle":
        return DeviceVerdict(text, tone=tone)
    own = row.tenants[0] if row.tenants else None
    command = kubectl("describe", "pod", own.pod, namespace=own.namespace) if own else ""
    return DeviceVerdict(
        text, "Stop the pod if it is done.", "Workload owner", command, Tone.WARNING
    )


def _repair(xid: Xid | None) -> str:
    # An error of an application does not break a GPU: something else must have.
    if xid is None or xid.kind is XidKind.APPLICATION:
        return "Drain the node and check the GPU."
    return xid.advice


def _active(device: FleetDevice) -> str:
    mean = device.row.state.activity_mean
    return "no activity metric" if mean is None else f"{percent_text(mean)} active over 30 minutes"


def _holders(device: FleetDevice) -> str:
    row = device.row
    names = [f"{tenant.namespace}/{tenant.pod}" for tenant in row.tenants[:2]]
    more = device.holders - len(names)
    others = f"{more} {'more' if names else ''} pod{'' if more == 1 else 's'}".replace("  ", " ")
    return "allocated to " + " and ".join([*names, *([others] if more else [])])


# ---------------------------------------------------------------- metrics


def _figures(device: FleetDevice, line: TableRow) -> FigureRow:
    """Return the current metrics of a GPU; of MIG devices those that their GPU has."""
    state = device.row.state
    # Activity and memory are of one MIG device; temperature, power and errors of the GPU.
    own = [] if device.row.gpu_instance else [_activity(device), _memory(device)]
    temperature, power = state.temperature_celsius, state.power_watts
    memory = state.memory_temperature_celsius
    rows, xid = line.values["remapped_rows"], xid_of(state)
    uncorrectable = state.remapped_uncorrectable
    return figure_row(
        *own,
        no_data("Temperature", _NOT_EXPORTED)
        if temperature is None
        else KeyFigure(
            "Temperature",
            f"{temperature:.0f}",
            "°C",
            note="" if memory is None else f"memory {memory:.0f} °C",
        ),
        no_data("Power", _NOT_EXPORTED)
        if power is None
        else KeyFigure(
            "Power",
            f"{power:,.0f}",
            "W",
            note="" if state.sm_clock_mhz is None else f"SM clock {state.sm_clock_mhz:,.0f} MHz",
        ),
        no_data("Last XID", _NOT_EXPORTED)
        if state.xid is None
        else KeyFigure(
            "Last XID",
            # The exporter says 0 where there was no error: that is known, and no missing data.
            f"{state.xid}" if state.xid else "none",
            note=str(xid.kind) if xid else "",
            tone=Tone.DANGER if xid and xid.fatal else Tone.NONE,
        ),
        no_data("Remapped rows", _NOT_EXPORTED)
        if rows is None
        else KeyFigure(
            "Remapped rows",
            f"{rows}",
            note=f"{uncorrectable} uncorrectable" if uncorrectable else "",
            tone=Tone.WARNING if uncorrectable else Tone.NONE,
        ),
        name="Current metrics",
    )


def _activity(device: FleetDevice) -> KeyFigure:
    state = device.row.state
    if state.activity_mean is None:
        return no_data("Active", _NOT_EXPORTED)
    parts = (("SM", state.sm_active), ("tensor", state.tensor_active))
    now = "" if state.activity_now is None else f"now {percent_text(state.activity_now)}"
    deeper = [f"{name} {percent_text(value)}" for name, value in parts if value is not None]
    return KeyFigure(
        "Active", percent_text(state.activity_mean), now, basis="30 min", note=", ".join(deeper)
    )


def _memory(device: FleetDevice) -> KeyFigure:
    state, ratio = device.row.state, memory_ratio(device)
    if ratio is None:
        return no_data("Memory", _NOT_EXPORTED)
    used, total = (
        f"{(mib or 0) / 1024:.1f}" for mib in (state.memory_used_mib, state.memory_total_mib)
    )
    copy = state.memory_copy
    return KeyFigure(
        "Memory",
        percent_text(ratio),
        f"{used} of {total} GiB",
        note="" if copy is None else f"memory copy {percent_text(copy)}",
    )


# ---------------------------------------------------------------- pods of its node


def _timeline(
    devices: Sequence[FleetDevice], pods: Sequence[PodRow], reading: QuerySession
) -> Timeline:
    """Return the lives of the node's pods over a day, those on this GPU now first."""
    here = {(t.namespace, t.pod) for device in devices for t in device.row.tenants}
    lives = [
        TimelineRow(
            pod.pod,
            [Segment(p.start, p.end or reading.now, p.name) for p in phases(pod)],
            href("pod", reading.query, cluster=pod.cluster, uid=pod.uid) or "",
        )
        for pod in sorted(pods, key=lambda pod: (pod.namespace, pod.pod) not in here)
    ]
    drawn = timeline(
        "pod-timeline",
        "Co-located pods, last 24h",
        lives,
        window=Window(reading.now - _DAY, reading.now),
        zone=reading.choice.zone,
        empty="No pod that you may see was on its node in the last 24 hours.",
    )
    return replace(drawn, caption=f"Pods on this GPU now stand first. {_ON_NODE}")


def _pods_table(pods: RowPage[PodRow], reading: QuerySession) -> Table:
    # The page reads no more pods: an active node has thousands in a day.
    table = listings.pods(pods.rows, reading, next_query=None, every=lambda: pods.rows)
    cut = "" if pods.next_cursor is None else f" These are the {_MOST_PODS} newest."
    return replace(
        table,
        every=None,
        page_length=FEW_ROWS,
        title="Pods, last 24h",
        empty="No pod that you may see was on its node in the last 24 hours.",
        note=f"{_ON_NODE}{cut} {table.note}".strip(),
    )


def _pods_of_node(row: DeviceRow, reading: QuerySession) -> RowPage[PodRow]:
    """Return the pods that were on the device's node in the last day."""
    if not row.node:
        return RowPage((), None)
    return usage.pod_page(
        Window(reading.now - _DAY, reading.now),
        filters=Filters(cluster=(row.cluster,), node=(row.node,)),
        visibility=reading.visibility,
        cursor=None,
        page_size=_MOST_PODS,
    )
