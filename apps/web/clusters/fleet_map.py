"""The map of the fleet: which state each GPU is in, and how nodes are grouped and coloured."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import StrEnum

from django.conf import settings
from msgspec import Struct

from apps.clusters.domain.devices.state import Health
from apps.usage.selectors import FleetDevice, FleetState, NodeKey
from apps.web.clusters import device_tables
from apps.web.clusters.device_tables import UNDERUTILIZED_BELOW, use_state
from apps.web.components.drawings import (
    FleetGpu,
    FleetGroup,
    FleetNode,
    FleetPart,
    fleet,
    heat_css,
)
from apps.web.components.drawings.base import LegendKey, percent_text
from apps.web.components.drawings.fleet import DENSE, STATES, Fleet
from apps.web.components.formats import Format, shown
from apps.web.components.page_query import href
from apps.web.query_session import QuerySession

_LARGE_GROUP, _GROUP_OF_MANY = 64, 16  # nodes
_MANY_NODES = 400
_NO_TIER, _NO_RACK, _NO_NODE = "No tier", "No zone or rack", "no node name"


class MapGrouping(StrEnum):
    """What the nodes of a group have in common; `node`: the cluster alone."""

    TIER = "tier"
    NODE = "node"
    RACK = "rack"


class MapColour(StrEnum):
    """What the colour of a GPU says."""

    STATE = "state"
    UTILIZATION = "utilization"
    MEMORY = "memory"
    HEALTH = "health"


class MapChoice(Struct, frozen=True):
    """How the map is drawn; `opened` are the labels of folded groups that are to be unfolded."""

    grouping: MapGrouping = MapGrouping.TIER
    colour: MapColour = MapColour.STATE
    opened: tuple[str, ...] = ()


class MapLinks(Struct, frozen=True):
    """The addresses of a map: `open_group` unfolds a group, `list_state` lists GPUs in a state."""

    open_group: Callable[[str], str]
    list_state: Callable[[str], str]


def fleet_map(
    state: FleetState,
    devices: Sequence[FleetDevice],
    choice: MapChoice,
    reading: QuerySession,
    links: MapLinks,
) -> Fleet:
    """Return the map of these devices of the fleet, what is broken first."""
    by_node: dict[NodeKey, list[FleetDevice]] = defaultdict(list)
    for device in devices:
        by_node[device.node].append(device)
    grouped: dict[str, list[NodeKey]] = defaultdict(list)
    for node, own in by_node.items():
        grouped[_group_label(node, own, state, choice.grouping)].append(node)
    is_dense = len(by_node) >= DENSE
    ranks = {label: _rank(d for n in own for d in by_node[n]) for label, own in grouped.items()}
    groups = [
        FleetGroup(
            label,
            [_node(node, by_node[node], choice.colour, reading, dense=is_dense) for node in own],
            href=_group_href(label, choice.grouping, reading),
            open_href=links.open_group(label)
            # A fleet of thousands of cells is no picture: large groups open when asked for.
            if label not in choice.opened and _is_folded(len(own), len(by_node))
            else "",
        )
        for label, own in sorted(grouped.items(), key=lambda item: (ranks[item[0]], item[0]))
    ]
    return fleet(
        "fleet",
        "Fleet map by device",
        groups,
        legend=_legend(devices, choice.colour, links),
        caption=_caption(choice.colour, devices, reading),
    )


def has_racks(state: FleetState) -> bool:
    """Say whether any node's labels name a zone or rack."""
    return any(state.rack(node) for node in state.nodes)


def _is_folded(nodes: int, of_fleet: int) -> bool:
    return nodes > (_GROUP_OF_MANY if of_fleet > _MANY_NODES else _LARGE_GROUP)


def _rank(devices: Iterable[FleetDevice]) -> int:
    """Return 0 for a group with something unavailable, 1 with unattributed activity, else 2."""
    states = {use_state(device) for device in devices}
    return 0 if "unavailable" in states else 1 if "unattributed" in states else 2


def _group_label(
    node: NodeKey, devices: Sequence[FleetDevice], state: FleetState, grouping: MapGrouping
) -> str:
    if grouping is MapGrouping.NODE:
        return node[0]
    if grouping is MapGrouping.RACK:
        return state.rack(node) or _NO_RACK
    # A node that offers several tiers stands once, under all of them.
    tiers = sorted({tier for device in devices for tier in device.tiers})
    return ", ".join(tiers) or _NO_TIER


def _group_href(label: str, grouping: MapGrouping, reading: QuerySession) -> str:
    # A group of several tiers has no page to lead to.
    if grouping is not MapGrouping.TIER or label == _NO_TIER or ", " in label:
        return ""
    return href("tier", reading.query, name=label) or ""


def _node(
    node: NodeKey,
    devices: Sequence[FleetDevice],
    colour: MapColour,
    reading: QuerySession,
    *,
    dense: bool,
) -> FleetNode:
    by_gpu: dict[NodeKey, list[FleetDevice]] = defaultdict(list)
    for device in devices:
        by_gpu[device.gpu].append(device)
    link = device_tables.node_href(node[1], reading)
    gpus = [_gpu(own, colour, dense=dense) for own in by_gpu.values()]
    return FleetNode(node[1] or _NO_NODE, gpus, link or "")


def _gpu(devices: Sequence[FleetDevice], colour: MapColour, *, dense: bool) -> FleetGpu:
    parts = [device for device in devices if device.row.gpu_instance]
    # The parts tell the states; the GPU that is cut into them has none of its own.
    if parts:
        return FleetGpu(
            "mig",
            parts=[
                FleetPart(use_state(one), one.share, _text(one, dense=dense), _css(one, colour))
                for one in parts
            ],
            whole=1.0,
        )
    device = devices[0]
    state, text = use_state(device), _text(device, dense=dense)
    # The labels may say fewer replicas than pods hold, while a new layout is rolled out.
    units = max(device.replicas, device.holders)
    if units > 1 and colour is MapColour.STATE and device.holders and state != "unavailable":
        held = [FleetPart(state)] * device.holders
        free = [FleetPart("free")] * (units - device.holders)
        return FleetGpu(state, text, parts=[*held, *free], shared=True)
    return FleetGpu(state, text, _css(device, colour))


def _text(device: FleetDevice, *, dense: bool) -> str:
    """Return what a cell says on hover; small cells are drawn together and say nothing."""
    if dense:
        return ""
    row = device.row
    mean = row.state.activity_mean
    active = "" if mean is None else f", {percent_text(mean)} active"
    name = f"GPU {row.state.index}" if row.state.index else row.uuid
    part = f" {row.profile}" if row.gpu_instance else ""
    reason = f": {row.reasons[0]}" if row.reasons else ""
    return f"{name}{part}: {STATES[use_state(device)].label.lower()}{active}{reason}"


_HEALTH_KEYS = {
    Health.BROKEN: LegendKey("Broken", "of-unhealthy"),
    Health.WATCH: LegendKey("Watch", "of-watch"),
    Health.OK: LegendKey("OK", "of-sound"),
    Health.UNSEEN: LegendKey("Unseen", "of-unmeasured"),
}
_HUES = {MapColour.UTILIZATION: "of-active", MapColour.MEMORY: "of-allocated"}


def _css(device: FleetDevice, colour: MapColour) -> str:
    """Return the colour of a cell; empty where its state decides."""
    if colour is MapColour.STATE:
        return ""
    if colour is MapColour.HEALTH:
        return _HEALTH_KEYS[device.row.health].css
    own = device.row.state
    ratio = (
        own.activity_mean if colour is MapColour.UTILIZATION else device_tables.memory_ratio(device)
    )
    # No value must not look like the palest one, which is zero.
    return "of-unmeasured" if ratio is None else heat_css(ratio, hue=_HUES[colour], over="")


def _legend(devices: Sequence[FleetDevice], colour: MapColour, links: MapLinks) -> list[LegendKey]:
    if colour is MapColour.STATE:
        counts = _counted(use_state(device) for device in devices)
        return [
            LegendKey(key.label, key.css, key.shape, f"{counts[state]:,}", links.list_state(state))
            for state, key in STATES.items()
            if counts.get(state)
        ]
    if colour is MapColour.HEALTH:
        found = _counted(device.row.health.value for device in devices)
        return [
            LegendKey(key.label, key.css, key.shape, f"{found[health.value]:,}")
            for health, key in _HEALTH_KEYS.items()
            if found.get(health.value)
        ]
    hue = _HUES[colour]
    return [
        LegendKey("0 %", f"{hue} heat-0"),
        LegendKey("50 %", f"{hue} heat-5"),
        LegendKey("100 %", f"{hue} heat-10"),
        LegendKey("No metrics", "of-unmeasured"),
    ]


def _counted(names: Iterable[str]) -> Mapping[str, int]:
    counts: dict[str, int] = defaultdict(int)
    for name in names:
        counts[name] += 1
    return counts


def _caption(colour: MapColour, devices: Sequence[FleetDevice], reading: QuerySession) -> str:
    looked_at = max((device.row.looked_at for device in devices), default=None)
    if looked_at is None:
        return ""
    at = f"As of {shown(looked_at, Format.TIME, reading.choice.zone)}."
    if colour is not MapColour.STATE:
        return at
    return (
        f"{at} Idle: under {percent_text(settings.IDLE_BELOW)} active in the last half hour; "
        f"underutilized: under {percent_text(UNDERUTILIZED_BELOW)}."
    )
