"""Slots for gangs at the levels of a topology, and how fragmented the free GPUs are."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple
from zoneinfo import ZoneInfo

import numpy as np
from django.db.models import Count, Q

from apps.accounts.domain.rows import row_from
from apps.accounts.domain.structs import replace
from apps.accounts.permissions import Visibility
from apps.clusters.domain.observed.objects import ObservedKind
from apps.clusters.domain.observed.places import NodeResourceTopologySnapshot, NumaZone
from apps.clusters.domain.resources import is_gpu
from apps.clusters.domain.topology import LEVELS, TopologyLevel, machine_of, place_of, value_at
from apps.clusters.domain.window import Window, day_window, days_in
from apps.clusters.models import Pod
from apps.clusters.selectors import active_clusters, report
from apps.clusters.services import observed_in
from apps.planning.domain.topology.fragmentation import fragmentation_index, unusable_gpus
from apps.planning.domain.topology.slots import GANG_SIZES, possible_slots, slots
from apps.planning.models import TierSlotHour
from apps.planning.selectors.tier_nodes import (
    INSTANT,
    TierFilters,
    TierNodes,
    device_nodes,
    tier_nodes,
)
from apps.planning.selectors.topology_rows import (
    DeviceRow,
    FragmentationRow,
    NodeRoom,
    NumaRoom,
    SlotHourRow,
    SlotRow,
    SlotSeries,
)
from apps.usage.domain.usage_query import Periods, TimeStep

_HOUR = timedelta(hours=1)
ALL_TIERS = TierFilters()
TierKey = tuple[str, str]
"""A cluster's name and a tier's."""


def slot_rows(
    now: datetime,
    *,
    visibility: Visibility,
    filters: TierFilters = ALL_TIERS,
    pod_gpus: int = 1,
) -> list[SlotRow]:
    """Return the slots of each tier of whole GPUs, by level (widest first) and size of gang.

    Everybody may see them. Seven queries at most.
    """
    found = tier_nodes(Window(now, now + INSTANT), visibility=visibility, filters=filters)
    return [row for one in found for row in _slots_now(one, now, pod_gpus)]


def _slots_now(one: TierNodes, now: datetime, pod_gpus: int) -> list[SlotRow]:
    times = [now.timestamp()]
    free, capacity = one.free(times), one.capacity(times)
    there = capacity[:, 0] > 0
    offered = {node: int(gpus) for node, gpus in enumerate(capacity[:, 0])}
    rows = []
    for level in one.known_levels() if there.any() else ():
        domains = one.domain_numbers(level)
        inside = np.asarray(domains) >= 0
        rows += [
            SlotRow(
                cluster=one.cluster,
                tier=one.tier,
                level=level,
                domains=len({domains[node] for node in np.flatnonzero(inside & there)}),
                gang_gpus=size,
                pod_gpus=min(size, pod_gpus),
                slots=int(slots(free, domains, size, pod_gpus)[0]),
                possible_slots=possible_slots(offered, domains, size, pod_gpus),
                free_gpus=int(free[inside, 0].sum()),
            )
            for size in GANG_SIZES
        ]
    return rows


def node_rooms(
    now: datetime, *, visibility: Visibility, filters: TierFilters = ALL_TIERS
) -> list[NodeRoom]:
    """Return the nodes of tiers of whole GPUs with what is free on each, by place and name.

    Who does not see everything gets them without their names. Nine queries at most.
    """
    rooms = []
    numa = _numa(filters)
    for one in tier_nodes(Window(now, now + INSTANT), visibility=visibility, filters=filters):
        times = [now.timestamp()]
        free, capacity = one.free(times)[:, 0].tolist(), one.capacity(times)[:, 0].tolist()
        rooms += [
            NodeRoom(
                cluster=one.cluster,
                tier=one.tier,
                node=node if visibility.everything else "",
                # Nodes of a tier may have labels of other levels: each counts by its own.
                place=place_of(node, labels, one.levels),
                nvlink=value_at(labels, TopologyLevel.NVLINK, one.levels),
                machine=machine_of(labels),
                gpus=int(gpus),
                free=free[n],
                is_open=capacity[n] > 0,
                numa=numa.get((one.cluster, node), ()),
            )
            for n, (node, labels, gpus) in enumerate(
                zip(one.nodes, one.labels, one.gpus, strict=True)
            )
            if gpus >= 1
        ]
    return sorted(
        rooms, key=lambda room: (room.cluster, room.place, room.nvlink, room.tier, room.node)
    )


def _numa(filters: TierFilters) -> dict[tuple[str, str], tuple[NumaRoom, ...]]:
    """Return (cluster, node) → its NUMA nodes with GPUs, as NodeResourceTopology tells them."""
    names = {
        one.pk: one.name
        for one in active_clusters()
        if not filters.cluster or one.name in filters.cluster
    }
    found = {}
    for pk, objects in observed_in(list(names), [ObservedKind.NODE_RESOURCE_TOPOLOGY]).items():
        for one in objects:
            if isinstance(one.body, NodeResourceTopologySnapshot):
                found[names[pk], one.name] = tuple(
                    (zone.name, gpus, _free_gpus(zone))
                    for zone in one.body.zones
                    if (gpus := _gpus(zone.allocatable))
                )
    return found


def _gpus(amounts: Mapping[str, float]) -> int:
    return round(sum(units for resource, units in amounts.items() if is_gpu(resource)))


def _free_gpus(zone: NumaZone) -> int | None:
    """Return the free GPUs of a NUMA node; None where those of any resource are not published."""
    if any(is_gpu(one) and one not in zone.available for one in zone.allocatable):
        return None
    return _gpus(zone.available)


def slot_hour_rows(
    window: Window,
    *,
    visibility: Visibility,
    filters: TierFilters = ALL_TIERS,
) -> list[SlotHourRow]:
    """Return what was free at the start of each stored hour: a row for each level, and of parts.

    Everybody may see it: it has sums alone. One query.
    """
    del visibility
    return [
        row_from(
            SlotHourRow,
            one,
            level=level,
            **{f"slots_{size}": of_level.get(str(size)) for size in GANG_SIZES},
        )
        for one in _stored(window, filters)
        for level, of_level in _levels_of(one.slots)
    ]


def _levels_of(
    slots_of: Mapping[str, Mapping[str, int]],
) -> list[tuple[TopologyLevel | None, Mapping[str, int]]]:
    """Return the slots of each level, widest first; parts of GPUs have none."""
    known = [level for level in LEVELS if level.value in slots_of]
    return [(level, slots_of[level.value]) for level in known] or [(None, {})]


def slot_series(
    window: Window,
    level: TopologyLevel,
    *,
    now: datetime,
    visibility: Visibility,
    filters: TierFilters = ALL_TIERS,
) -> list[SlotSeries]:
    """Return by tier and device the slots and what was free at the start of each hour.

    An hour that is not stored has None. Of parts of GPUs there are no slots. Two queries.
    """
    del visibility
    at = _hours(window, now, report().zone)
    places = {hour: n for n, hour in enumerate(at)}
    found: dict[tuple[str, str, str], SlotSeries] = {}
    for one in _stored(window, filters):
        if (n := places.get(one.hour)) is None:
            continue
        key = (one.cluster, one.tier, one.device)
        if key not in found:
            found[key] = SlotSeries(*key, level, at, {}, [None] * len(at))
        found[key].free[n] = one.free
        for size, count in one.slots.get(level.value, {}).items():
            found[key].slots.setdefault(int(size), [None] * len(at))[n] = count
    return [series for _, series in sorted(found.items())]


def device_rows(
    now: datetime, *, visibility: Visibility, filters: TierFilters = ALL_TIERS
) -> list[DeviceRow]:
    """Return the free MIG devices and GPU replicas of each tier. Six queries at most.

    Everybody may see them.
    """
    del visibility
    rows = []
    for one in device_nodes(Window(now, now + INSTANT), filters=filters):
        times = [now.timestamp()]
        free, capacity = one.free(times), one.capacity(times)
        if capacity.any():
            nodes, with_free = (int((gpus > 0).sum()) for gpus in (capacity, free))
            counts = (int(capacity.sum()), int(free.sum()))
            rows.append(
                DeviceRow(one.cluster, one.tier, one.device, nodes, *counts, nodes_free=with_free)
            )
    return rows


def fragmentation_rows(
    window: Window,
    *,
    visibility: Visibility,
    interval: TimeStep = TimeStep.TOTAL,
    filters: TierFilters = ALL_TIERS,
) -> list[FragmentationRow]:
    """Return how fragmented each tier of whole GPUs was, by period, cluster and tier.

    What is free is taken at the start of each stored hour, for the hour. Everybody may see it: it
    has sums alone. Three queries at most.
    """
    asked = requested_sizes(window, filters)
    periods = Periods(interval, report().zone)
    by_tier: dict[TierKey, list[_Stored]] = defaultdict(list)
    for one in _stored(window, filters):
        if not one.device:
            by_tier[one.cluster, one.tier].append(one)
    rows = [
        row
        for key, own in by_tier.items()
        for row in _fragmentation(own, asked.get(key, {}), periods)
    ]
    rows.sort(key=lambda pair: (pair[0], pair[1].cluster, pair[1].tier))
    return [replace(row, period=periods.label(start)) for start, row in rows]


class _Stored(NamedTuple):
    """A stored row of a tier, as its columns are."""

    hour: datetime
    cluster: str
    tier: str
    device: str
    offered: int
    free: int
    largest_node: int
    slots: Mapping[str, Mapping[str, int]]
    free_nodes: Mapping[str, int]


def _stored(window: Window, filters: TierFilters) -> list[_Stored]:
    """Return what is stored of the hours that begin in a window, by hour. One query."""
    rows = TierSlotHour.objects.filter(
        of_hour__hour__gte=window.start, of_hour__hour__lt=window.end, of_hour__cluster__active=True
    )
    if filters.cluster:
        rows = rows.filter(of_hour__cluster__name__in=filters.cluster)
    if filters.tier:
        rows = rows.filter(tier__name__in=filters.tier)
    found = rows.order_by("of_hour__hour", "of_hour__cluster__name", "tier__name", "device")
    return [
        _Stored(*row)
        for row in found.values_list(
            "of_hour__hour", "of_hour__cluster__name", "tier__name", *_Stored._fields[3:]
        )
    ]


def requested_sizes(window: Window, filters: TierFilters) -> dict[TierKey, dict[int, int]]:
    """Return by tier the number of pods that requested GPUs within a window, by their GPUs.

    Those that were created in it, and those that were pending when it began. One query.
    """
    pending = Q(created_at__lt=window.start) & (
        Q(bound_at__gt=window.start) | Q(bound_at__isnull=True, ended_at__isnull=True)
    )
    rows = Pod.objects.filter(
        pending | Q(created_at__gte=window.start),
        created_at__lt=window.end,
        units__gte=1,
        tier__isnull=False,
    )
    if filters.tier:
        rows = rows.filter(tier__name__in=filters.tier)
    columns = ("cluster__name", "tier__name", "units")
    found: dict[TierKey, dict[int, int]] = defaultdict(dict)
    for cluster, tier, units, pods in rows.order_by().values_list(*columns).annotate(Count("pk")):
        # Parts of GPUs have no place in a measure of whole ones.
        if units == int(units):
            found[cluster, tier][int(units)] = pods
    return found


def _fragmentation(
    hours: Sequence[_Stored], asked: Mapping[int, int], periods: Periods
) -> list[tuple[datetime, FragmentationRow]]:
    """Return (start, row) of each period of a tier."""
    largest = max(one.largest_node for one in hours)
    # A request that no node can serve at all is no reason to call its GPUs fragmented. Each GPU
    # that was asked for weighs the same.
    weights = {size: float(size * n) for size, n in asked.items() if size <= largest}
    nodes = ({int(free): n for free, n in one.free_nodes.items()} for one in hours)
    lost = unusable_gpus(nodes, weights)
    by_period: dict[datetime, list[int]] = defaultdict(list)
    for number, one in enumerate(hours):
        by_period[periods.start_of(one.hour)].append(number)
    rows = []
    for start, numbers in by_period.items():
        free_hours = float(sum(hours[number].free for number in numbers))
        unusable = None if lost is None else sum(lost[number] for number in numbers)
        row = FragmentationRow(
            period=None,
            cluster=hours[0].cluster,
            tier=hours[0].tier,
            hours=len(numbers),
            pods=sum(asked.values()),
            capacity_gpu_hours=float(sum(hours[number].offered for number in numbers)),
            free_gpu_hours=free_hours,
            unusable_gpu_hours=unusable,
            fragmentation_index=fragmentation_index(unusable, free_hours),
        )
        rows.append((start, row))
    return rows


def _hours(window: Window, now: datetime, zone: ZoneInfo) -> list[datetime]:
    """Return the starts of the fact hours of a window that have begun; see `hour_floor`."""
    end = min(window.end, now)
    found = []
    for day in days_in(window, zone):
        own = day_window(day, zone)
        at = own.start
        while at < min(end, own.end):
            # An hour that began before the window is none of its hours.
            if at >= window.start:
                found.append(at)
            at += _HOUR
    return found
