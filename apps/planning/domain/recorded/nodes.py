"""Recorded node intervals as nodes of a replay, with what they offered over time."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

from apps.clusters.domain.devices.mig import mig_part
from apps.clusters.domain.pods.ledger import NodeInterval, OfferedDevice
from apps.clusters.domain.tiers import (
    UNMATCHED,
    TierRule,
    gpu_model,
    is_shared,
    mig_profile,
    tier_of,
    unit_weight,
)
from apps.clusters.domain.window import TimeSpan, union
from apps.planning.domain.cluster_replay.inputs import (
    ClosedSpan,
    MissingUnits,
    ReplayDevice,
    ReplayNode,
)

_TOLERANCE = 90.0
"""Seconds: a shorter gap between two intervals of a node comes from the watch, not the node."""
_FIRST_SEEN = 300.0

_TierDevices = Mapping[str, tuple[ReplayDevice, ...]]


def replay_nodes(
    intervals: Iterable[NodeInterval],
    rules: Sequence[TierRule],
    *,
    start: float,
    end: float,
    watched_from: float,
) -> tuple[ReplayNode, ...]:
    """Return the nodes that offered GPUs of a tier from `start` to `end`, by name.

    What a node was like when the watch began at `watched_from` it is taken to have been before.
    """
    found: dict[str, list[NodeInterval]] = defaultdict(list)
    for one in intervals:
        found[one.node].append(one)
    nodes = (
        _node(name, sorted(own, key=lambda one: one.start), rules, (start, end), watched_from)
        for name, own in sorted(found.items())
    )
    return tuple(node for node in nodes if node.devices)


def largest_nodes(nodes: Iterable[ReplayNode]) -> dict[str, float]:
    """Return the most units that one node has of each tier."""
    found: dict[str, float] = {}
    for node in nodes:
        for tier in {device.tier for device in node.devices}:
            own = _units(device for device in node.devices if device.tier == tier)
            found[tier] = max(own, found.get(tier, 0.0))
    return found


def tier_devices(
    allocatable: Mapping[str, float],
    labels: Mapping[str, str],
    offered: Sequence[OfferedDevice],
    rules: Sequence[TierRule],
) -> _TierDevices:
    """Return the devices that a node offers now, by tier; those of no tier are left out."""
    found: dict[str, list[ReplayDevice]] = defaultdict(list)
    for resource, amount in sorted(allocatable.items()):
        tier = tier_of(resource, labels, rules)
        if tier != UNMATCHED:
            found[tier] += _of_resource(resource, amount, labels, tier)
    for number, device in enumerate(one for one in offered if one.allocatable):
        # A device may be of several classes; the first of a tier stands for it.
        of = (tier_of(name, labels, rules) for name in device.classes)
        tier = next((one for one in of if one != UNMATCHED), "")
        if tier:
            part = mig_part(device.profile, device.model) if device.profile else 1.0
            found[tier].append(ReplayDevice(tier, 1.0, part, number, device.profile))
    return {tier: tuple(devices) for tier, devices in found.items()}


def _of_resource(
    resource: str, amount: float, labels: Mapping[str, str], tier: str
) -> Iterator[ReplayDevice]:
    weight, profile = unit_weight(resource, labels), mig_profile(resource, labels)
    part = mig_part(profile, gpu_model(labels)) if profile else 1.0
    # Replicas of one GPU lie on one device: together they are its GPU or MIG device.
    units = max(1, round(part / weight)) if is_shared(resource, labels) and weight else 1
    left, number = amount, 0
    while left > 0:
        yield ReplayDevice(tier, min(float(units), left), weight, number, profile)
        left -= units
        number += 1


def _node(
    name: str,
    intervals: Sequence[NodeInterval],
    rules: Sequence[TierRule],
    window: TimeSpan,
    watched_from: float,
) -> ReplayNode:
    start, end = window
    first = intervals[0].start
    # A node that the watch found at its start was there before.
    began = start if first <= max(start, watched_from) + _FIRST_SEEN else first
    offers: list[tuple[TimeSpan, _TierDevices]] = []
    closed: list[TimeSpan] = [(start, began)] if began > start else []
    at = began
    for one in intervals:
        if one.start > at + _TOLERANCE and one is not intervals[0]:
            closed.append((at, one.start))
        until = min(end, one.end)
        span = (at if one is intervals[0] else one.start, until)
        if not (one.ready and one.schedulable):
            closed.append(span)
        offers.append((span, tier_devices(one.allocatable, one.labels, one.devices, rules)))
        at = until
    # Gone until the end: no interval says so, there just is none.
    if at + _TOLERANCE < end:
        closed.append((at, end))
    # The engine has one layout for each node: the others lack some of it for a time.
    most = _most_devices(offers)
    return ReplayNode(
        name=name,
        devices=tuple(device for tier in sorted(most) for device in most[tier]),
        labels=intervals[-1].labels,
        closed=tuple(ClosedSpan(*span) for span in union(closed)),
        missing=tuple(_missing(most, offers)),
    )


def _units(devices: Iterable[ReplayDevice]) -> float:
    return sum(device.units for device in devices)


def _most_devices(offers: Sequence[tuple[TimeSpan, _TierDevices]]) -> _TierDevices:
    most: dict[str, tuple[ReplayDevice, ...]] = {}
    for _, own in offers:
        for tier, devices in own.items():
            if _units(devices) > _units(most.get(tier, ())):
                most[tier] = devices
    return most


def _missing(
    most: _TierDevices, offers: Sequence[tuple[TimeSpan, _TierDevices]]
) -> Iterator[MissingUnits]:
    """Yield when a node had less of a tier than at most; spans that touch are one."""
    for tier in sorted(most):
        last: MissingUnits | None = None
        for (start, end), own in offers:
            lacks = _units(most[tier]) - _units(own.get(tier, ()))
            if last is not None and last.units == lacks and start - last.end <= _TOLERANCE:
                last = last._replace(end=end)
                continue
            if last is not None and last.units > 0:
                yield last
            last = MissingUnits(start, end, tier, lacks)
        if last is not None and last.units > 0:
            yield last
