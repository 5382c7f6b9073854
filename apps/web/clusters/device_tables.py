"""Tables of GPUs, MIG devices and nodes, and of unattributed GPU activity."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from django.conf import settings
from msgspec import Struct

from apps.accounts.domain.structs import replace
from apps.clusters.domain.devices.state import DeviceState, Health, Xid, meaning
from apps.clusters.domain.resources import counted
from apps.usage.selectors import (
    DeviceRow,
    FleetDevice,
    FleetState,
    GroupingRefused,
    NodeKey,
    NodeRow,
    UnattributedRow,
    stray_devices,
    unattributed_by_node,
)
from apps.web.components.drawings.fleet import STATES
from apps.web.components.formats import Format, Value, duration, mebibytes, percent, shown
from apps.web.components.page_query import FEW_ROWS, href
from apps.web.components.table_cells import CellPart
from apps.web.components.tables import Column, Table, TableRow
from apps.web.query_session import QuerySession

STALE = timedelta(minutes=15)
"""Looks come every five minutes: after three that failed, a page says how old it is."""
UNDERUTILIZED_BELOW = 0.5
"""Mean activity under which an allocated GPU that is not idle counts as underutilized."""
_ON_PAGE = (
    *("gpu", "state", "node", "health", "tenants", "activity_ratio", "memory_ratio"),
    *("temperature_celsius", "power_watts", "xid"),
)
_COLUMNS = (
    Column("cluster", "Cluster"),
    Column("gpu", "GPU"),
    Column("state", "State", hint="by the last half hour"),
    Column("node", "Node"),
    Column("uuid", "UUID"),
    Column("gpu_instance", "MIG instance"),
    Column("profile", "MIG profile"),
    Column("gpu_model", "GPU model"),
    Column("tier", "Tier"),
    Column("health", "Health"),
    Column("health_since", "Since", Format.TIME),
    Column("reasons", "Reasons", wraps=True),
    Column("tenants", "Tenants", hint="pods that the device's labels name"),
    Column("other_tenants", "Other tenants", Format.COUNT),
    Column(
        "activity_ratio", "Active", Format.RATIO, "%", "mean of the last half hour, and right now"
    ),
    Column("activity_now_ratio", "Active now", Format.RATIO, "%"),
    Column("sm_active_ratio", "SM active", Format.RATIO, "%", "of the time of all its SMs"),
    Column("tensor_active_ratio", "Tensor active", Format.RATIO, "%"),
    Column("memory_copy_ratio", "Memory copy", Format.RATIO, "%", "memory controller active"),
    Column("memory_ratio", "Memory", Format.RATIO, "%", "used of what the device has"),
    Column("memory_used_mib", "Memory used", Format.NUMBER, "MiB"),
    Column("memory_total_mib", "Memory", Format.NUMBER, "MiB"),
    Column("temperature_celsius", "Temp.", Format.NUMBER, "°C", "of the GPU"),
    Column("memory_temperature_celsius", "Memory temperature", Format.NUMBER, "°C"),
    Column("power_watts", "Power", Format.NUMBER, "W", "of the whole GPU"),
    Column("sm_clock_mhz", "SM clock", Format.NUMBER, "MHz"),
    Column("xid", "Last XID", Format.COUNT, "", "last error code since the driver started"),
    Column("xid_meaning", "XID meaning", wraps=True),
    Column("remapped_rows", "Remapped", Format.COUNT, "rows", "memory rows replaced after errors"),
    Column("remapped_correctable_rows", "Remapped, correctable", Format.COUNT),
    Column("remapped_uncorrectable_rows", "Remapped, uncorrectable", Format.COUNT),
    Column("row_remap_failure", "Remap failure", Format.COUNT),
    Column("pci_bus_id", "PCI bus"),
    Column("driver_version", "Driver"),
    Column("first_seen", "First seen", Format.TIME),
    Column("last_seen", "Last seen", Format.TIME),
)
_UNREAD = "The exporter of this cluster shows none, or was not looked at yet."


class Staleness(Struct, frozen=True):
    """A cluster whose devices were not read recently; `age` is empty where they never were."""

    cluster: str
    looked_at: datetime | None
    age: str


def stale(looks: Mapping[str, datetime | None], now: datetime) -> list[Staleness]:
    """Return the clusters whose newest look is older than it should be, by name."""
    return [
        Staleness(
            cluster, looked, duration((now - looked).total_seconds()) if looked is not None else ""
        )
        for cluster, looked in sorted(looks.items())
        if looked is None or now - looked > STALE
    ]


def devices_table(devices: Sequence[FleetDevice], reading: QuerySession) -> Table:
    """Return a line per device."""
    return Table(
        id="devices",
        title="GPUs",
        columns=[replace(column, in_files=column.key not in _ON_PAGE) for column in _COLUMNS],
        rows=[device_line(device, reading) for device in devices],
        zone=reading.choice.zone,
        empty="",
        page_length=FEW_ROWS,
        on_phone=("gpu", "state", "health", "activity_ratio"),
    )


def no_devices(reading: QuerySession, *, narrowed: bool) -> str:
    """Return why no device is listed."""
    if narrowed:
        return "No GPU matches. Remove a filter."
    if reading.visibility.everything:
        return "No GPU is known yet. " + _UNREAD
    return "No GPU is allocated to a pod of your teams now."


def use_state(device: FleetDevice) -> str:
    """Return the state of a device, a key of STATES, by its last half hour."""
    row, mean = device.row, device.row.state.activity_mean
    if row.health is Health.BROKEN:
        return "unavailable"
    if row.health is Health.UNSEEN:
        return "no_metrics"
    # Activity counts only after holders: an idle GPU without a pod is free, not idle.
    if not device.holders:
        return "unattributed" if row.is_stray else "free"
    if mean is None:
        return "no_metrics"
    if mean < settings.IDLE_BELOW:
        return "idle"
    return "underutilized" if mean < UNDERUTILIZED_BELOW else "active"


def device_line(device: FleetDevice, reading: QuerySession) -> TableRow:
    """Return the line of a device."""
    row, use = device.row, STATES[use_state(device)]
    xid = xid_of(row.state)
    return TableRow(
        _values(device, use.label, f"{xid.name} ({xid.kind})" if xid else ""),
        {
            "gpu": href("gpu", reading.query, cluster=row.cluster, uuid=row.uuid),
            "node": node_href(row.node, reading),
        },
        {"health": BADGES[row.health]} if row.health in BADGES else {},
        short={
            "activity_ratio": _percent(row.state.activity_mean),
            "memory_ratio": _percent(memory_ratio(device)),
            "node": row.node or "no data",
            "xid": "none" if row.state.xid == 0 else "",
        },
        details=_details(device, xid, reading),
        parts={
            "state": [CellPart(use.label, swatch=use.css)],
            "tenants": tenant_parts(row, reading),
        },
    )


def xid_of(state: DeviceState) -> Xid | None:
    """Return what the last error code of a device means; None where there was none."""
    return meaning(state.xid) if state.xid else None


def tenant_parts(row: DeviceRow, reading: QuerySession) -> list[CellPart]:
    """Return the pods on a device, each with its page where the pod history knows it."""
    named = [
        CellPart(
            f"{tenant.namespace}/{tenant.pod}",
            href("pod", reading.query, cluster=row.cluster, uid=tenant.uid) if tenant.uid else None,
            tenant.team,
        )
        for tenant in row.tenants
    ]
    # Pods of other teams are counted without names: their number explains the activity.
    hidden = row.hidden_tenants
    others = [CellPart(f"{counted(hidden, 'pod')} of other teams")]
    return [*named, *(others if hidden else [])]


def _details(device: FleetDevice, xid: Xid | None, reading: QuerySession) -> dict[str, str]:
    """Return what stands below the values of a device."""
    row, state = device.row, device.row.state
    since = f"since {shown(row.health_since, Format.TIME, reading.choice.zone)}"
    total = f" of {mebibytes(state.memory_total_mib)}" if state.memory_total_mib else ""
    told = {
        "gpu": row.model or "model no data",
        "node": row.cluster,
        "health": "" if row.health is Health.OK else "; ".join((since, *row.reasons)),
        "activity_ratio": state.activity_now is not None and f"now {_percent(state.activity_now)}",
        "memory_ratio": state.memory_used_mib is not None
        and f"{mebibytes(state.memory_used_mib)}{total}",
        "power_watts": state.sm_clock_mhz is not None and f"{state.sm_clock_mhz:,.0f} MHz",
        "xid": xid is not None and str(xid.kind),
    }
    return {key: text for key, text in told.items() if text}


def _percent(share: float | None) -> str:
    """Write a share without its sign, which the head of the column has."""
    return "" if share is None else percent(share).removesuffix(" %").removesuffix("\u00a0%")


def _values(device: FleetDevice, use: str, xid_meaning: str) -> dict[str, Value]:
    row, state = device.row, device.row.state
    return {
        "cluster": row.cluster,
        "node": row.node,
        "gpu": title_of(row),
        "uuid": row.uuid,
        "gpu_instance": row.gpu_instance,
        "profile": row.profile,
        "gpu_model": row.model,
        "tier": ", ".join(device.tiers),
        "state": use,
        "health": row.health.value,
        "health_since": row.health_since,
        "reasons": "; ".join(row.reasons),
        "tenants": ", ".join(f"{t.namespace}/{t.pod}" for t in row.tenants),
        "other_tenants": row.hidden_tenants,
        "activity_ratio": state.activity_mean,
        "activity_now_ratio": state.activity_now,
        "sm_active_ratio": state.sm_active,
        "tensor_active_ratio": state.tensor_active,
        "memory_copy_ratio": state.memory_copy,
        "memory_ratio": memory_ratio(device),
        "memory_used_mib": state.memory_used_mib,
        "memory_total_mib": state.memory_total_mib,
        "temperature_celsius": state.temperature_celsius,
        "memory_temperature_celsius": state.memory_temperature_celsius,
        "power_watts": state.power_watts,
        "sm_clock_mhz": state.sm_clock_mhz,
        "xid": state.xid,
        "xid_meaning": xid_meaning,
        "remapped_rows": _sum(state.remapped_correctable, state.remapped_uncorrectable),
        "remapped_correctable_rows": state.remapped_correctable,
        "remapped_uncorrectable_rows": state.remapped_uncorrectable,
        "row_remap_failure": None if state.remap_failure is None else int(state.remap_failure),
        "pci_bus_id": state.pci_bus_id,
        "driver_version": state.driver_version,
        "first_seen": row.first_seen,
        "last_seen": row.last_seen,
    }


def title_of(row: DeviceRow) -> str:
    """Return how a device is called within its node: `GPU 3`, `GPU 3 · 1g.10gb 7`."""
    gpu = f"GPU {row.state.index}" if row.state.index else row.uuid
    return f"{gpu} · {row.profile} {row.gpu_instance}" if row.gpu_instance else gpu


def memory_ratio(device: FleetDevice) -> float | None:
    """Return the used share of a device's memory, 0..1; None where it is not exported."""
    used, total = device.row.state.memory_used_mib, device.row.state.memory_total_mib
    # Of a total of zero nothing can be a share.
    return used / total if used is not None and total else None


def node_href(node: str, reading: QuerySession) -> str | None:
    """Return the address of the list of a node's GPUs."""
    return href("gpus", (*reading.query, ("node", node), ("tab", "table"))) if node else None


def _sum(*counts: int | None) -> int | None:
    # One of the two counts may be missing: what is known counts.
    known = [count for count in counts if count is not None]
    return sum(known) if known else None


# ---------------------------------------------------------------- nodes

_NODE_COLUMNS = (
    Column("node", "Node"),
    Column("cluster", "Cluster"),
    Column("tier", "Tier", wraps=True),
    Column("worst_health", "Health", hint="of its worst GPU"),
    Column("gpus", "GPUs", Format.COUNT),
    Column("idle_gpus", "Idle", Format.NUMBER, "GPUs"),
    Column("rack", "Zone / rack"),
    Column("readiness", "Readiness"),
    Column("since", "So since", Format.TIME, in_files=True),
    Column(
        *("allocatable", "Allocatable"),
        hint="units that pods can be given, of those it has",
        wraps=True,
    ),
    Column("driver", "Driver"),
    Column("cuda", "CUDA", hint="the newest that the driver runs"),
    Column("sharing", "Sharing"),
    Column("mig", "MIG configuration"),
    Column("plugin_config", "Device plugin configuration"),
)
_WORST = (Health.BROKEN, Health.WATCH, Health.UNSEEN, Health.OK)
BADGES = {Health.BROKEN: "failed", Health.WATCH: "partial", Health.UNSEEN: "partial"}


def nodes_table(fleet: FleetState, devices: Sequence[FleetDevice], reading: QuerySession) -> Table:
    """Return a line per node of these devices: its readiness and the GPU software on it."""
    by_node: dict[NodeKey, list[FleetDevice]] = {}
    for device in devices:
        by_node.setdefault(device.node, []).append(device)
    lines = [
        _node_line(fleet.nodes[key], own, fleet.rack(key), reading) for key, own in by_node.items()
    ]
    return Table(
        id="nodes",
        title="Nodes",
        columns=_NODE_COLUMNS,
        rows=sorted(lines, key=lambda line: _WORST.index(Health(str(line.values["worst_health"])))),
        zone=reading.choice.zone,
        empty="No node of these GPUs is known.",
        page_length=FEW_ROWS,
        note=(
            "As far as the labels of the nodes and the devices tell. A dash: no label says so, or "
            "the cluster is known from its metrics alone."
        ),
    )


def _node_line(
    node: NodeRow, devices: Sequence[FleetDevice], rack: str, reading: QuerySession
) -> TableRow:
    worst = min((device.row.health for device in devices), key=_WORST.index)
    drivers = {device.row.state.driver_version for device in devices} - {""}
    ready, ready_badge = _readiness(node)
    mig, mig_badge = _mig(node.labels)
    values: dict[str, Value] = {
        "node": node.node,
        "cluster": node.cluster,
        "tier": ", ".join(sorted({tier for device in devices for tier in device.tiers})),
        # MIG devices of one GPU have a line each, and the node has the GPU once.
        "gpus": len({device.gpu for device in devices}),
        "idle_gpus": sum(device.share for device in devices if use_state(device) == "idle"),
        "rack": rack,
        "readiness": ready,
        "since": node.since,
        "allocatable": ", ".join(
            f"{node.allocatable.get(name, 0):g} of {units:g} {name.partition('/')[2]}"
            for name, units in sorted(node.capacity.items())
            if units
        ),
        "driver": _versions(node.labels, "cuda.driver-version.full", "cuda.driver", "rev")
        # Without feature discovery no label tells, but the exporter does.
        or ", ".join(sorted(drivers)),
        "cuda": _versions(node.labels, "cuda.runtime-version.full", "cuda.runtime"),
        "sharing": _sharing(node.labels),
        "mig": mig,
        "plugin_config": node.labels.get("nvidia.com/device-plugin.config", ""),
        "worst_health": worst.value,
    }
    link = node_href(node.node, reading)
    badges = {"readiness": ready_badge, "mig": mig_badge, "worst_health": BADGES.get(worst, "")}
    return TableRow(values, {"node": link}, {key: badge for key, badge in badges.items() if badge})


def _readiness(node: NodeRow) -> tuple[str, str]:
    if node.ready is None:
        return "", ""
    if not node.ready:
        return "not ready", "failed"
    return ("ready", "") if node.schedulable else ("ready, takes no new pods", "partial")


def _versions(labels: Mapping[str, str], full: str, parts: str, last: str = "") -> str:
    """Return a version from its label, else from those of its parts, which older software sets."""
    if version := labels.get(f"nvidia.com/{full}"):
        return version
    names = ("major", "minor", *((last,) if last else ()))
    found = [labels.get(f"nvidia.com/{parts}.{name}", "") for name in names]
    # A minor version alone says nothing.
    return ".".join(part for part in found if part) if found[0] else ""


def _sharing(labels: Mapping[str, str]) -> str:
    strategy = labels.get("nvidia.com/gpu.sharing-strategy", "")
    replicas = labels.get("nvidia.com/gpu.replicas", "")
    if strategy in {"", "none"}:
        return strategy
    return f"{strategy}, {replicas} per GPU" if replicas else strategy


def _mig(labels: Mapping[str, str]) -> tuple[str, str]:
    """Return what is said of the node's MIG layout, and the badge of its state."""
    config = labels.get("nvidia.com/mig.config", "")
    state = labels.get("nvidia.com/mig.config.state", "")
    strategy = labels.get("nvidia.com/mig.strategy", "")
    text = ", ".join(part for part in (config, strategy, state) if part)
    badge = {"failed": "failed", "pending": "partial", "rebooting": "partial"}.get(state, "")
    return text, badge


# ---------------------------------------------------------------- unattributed


def unattributed_table(
    rows: Sequence[UnattributedRow],
    stray: Mapping[tuple[str, str], Sequence[DeviceRow]],
    reading: QuerySession,
) -> Table:
    """Return the nodes whose devices were active without a pod, the largest first."""
    return Table(
        id="unattributed",
        title="Unattributed GPU activity",
        columns=[
            Column("node", "Node"),
            Column("cluster", "Cluster"),
            Column("unattributed_gpu_hours", "Unattributed", Format.GPU_HOURS, "GPU-h"),
            Column("share_of_capacity_ratio", "Of its capacity", Format.RATIO, "%"),
            Column("reason", "Reason"),
            Column("devices_now", "Unattributed GPUs", wraps=True),
        ],
        rows=[_unattributed_line(row, stray, reading) for row in rows],
        zone=reading.choice.zone,
        empty="Every activity in this window is explained by a pod.",
        note=(
            "GPU activity without a pod: work outside Kubernetes, or an exporter that does not "
            "name pods. Holders of ResourceClaims are known from the watch only."
        ),
    )


def _unattributed_line(
    row: UnattributedRow,
    stray: Mapping[tuple[str, str], Sequence[DeviceRow]],
    reading: QuerySession,
) -> TableRow:
    devices = stray.get((row.cluster, row.node), ())
    return TableRow(
        {
            "node": row.node,
            "cluster": row.cluster,
            "unattributed_gpu_hours": row.unattributed,
            # Activity may exceed the capacity that is known: the ratio takes what lies within it.
            "share_of_capacity_ratio": row.within / row.capacity if row.capacity else None,
            "reason": _reason(row),
            "devices_now": ", ".join(
                f"{title_of(device)} ({_activity(device)})" for device in devices
            ),
        },
        {"node": node_href(row.node, reading)},
    )


def _reason(row: UnattributedRow) -> str:
    if not row.before_watch:
        return ""
    return "before the watch" if row.before_watch >= row.unattributed else "partly before the watch"


def _activity(device: DeviceRow) -> str:
    mean = device.state.activity_mean
    return "no metrics" if mean is None else percent(mean)


MOST_NODES = 20


def unattributed_nodes(reading: QuerySession) -> Table | None:
    """Return the nodes with such activity in the reading's window; None where there is none.

    None, too, for who does not see everything, and where the window is longer than hourly facts
    are read for. Two queries.
    """
    try:
        rows = unattributed_by_node(
            reading.window,
            filters=reading.filters,
            visibility=reading.visibility,
            limit=MOST_NODES,
        )
    # The selector refuses both cases; a page without this table is right for either.
    except GroupingRefused:
        return None
    if not rows:
        return None
    stray = stray_devices(
        ((row.cluster, row.node) for row in rows),
        visibility=reading.visibility,
    )
    return unattributed_table(rows, stray, reading)
