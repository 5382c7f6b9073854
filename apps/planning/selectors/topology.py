"""Slots for gangs at the levels of a topology, and how fragmented the free GPUs are."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import numpy as np
from django.db.models import Count, Q

from apps.accounts.permissions import Visibility
from apps.clusters.domain.topology import TopologyLevel
from apps.clusters.domain.window import Window
from apps.clusters.models import Pod
from apps.clusters.selectors import report
from apps.planning.domain.topology.fragmentation import fragmentation_index, unusable_gpus
from apps.planning.domain.topology.slots import GANG_SIZES, possible_slots, slots
from apps.planning.selectors.tier_nodes import INSTANT, TierFilters, TierNodes, tier_nodes
from apps.planning.selectors.topology_rows import FragmentationRow, NodeRoom, SlotRow, SlotSeries
from apps.usage.domain.usage_query import Periods, TimeStep

_HOUR = timedelta(hours=1)
ALL_TIERS = TierFilters()
_PLACES = (TopologyLevel.ZONE, TopologyLevel.BLOCK, TopologyLevel.RACK)
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

    Who does not see everything gets them without their names. Seven queries at most.
    """
    rooms = []
    for one in tier_nodes(Window(now, now + INSTANT), visibility=visibility, filters=filters):
        times = [now.timestamp()]
        free, capacity = one.free(times)[:, 0].tolist(), one.capacity(times)[:, 0].tolist()
        levels = [level for level in one.known_levels() if level in _PLACES]
        # The narrowest level whose label is there: its domain names the wider ones too.
        places = one.domains(levels[-1]) if levels else [None] * len(one.nodes)
        rooms += [
            NodeRoom(
                cluster=one.cluster,
                tier=one.tier,
                node=node if visibility.everything else "",
                place=place or (),
                gpus=int(gpus),
                free=free[n],
                is_open=capacity[n] > 0,
            )
            for n, (node, place, gpus) in enumerate(zip(one.nodes, places, one.gpus, strict=True))
            if gpus >= 1
        ]
    return sorted(rooms, key=lambda room: (room.cluster, room.place, room.tier, room.node))


def slot_series(
    window: Window,
    level: TopologyLevel,
    *,
    now: datetime,
    visibility: Visibility,
    filters: TierFilters = ALL_TIERS,
) -> list[SlotSeries]:
    """Return the slots of each tier at the start of each hour of a window. Six queries at most."""
    at = _hours(window, now)
    found = tier_nodes(window, visibility=visibility, filters=filters)
    return [_series(one, level, at) for one in found]


def _series(one: TierNodes, level: TopologyLevel, at: Sequence[datetime]) -> SlotSeries:
    times = [hour.timestamp() for hour in at]
    free, capacity, domains = one.free(times), one.capacity(times), one.domain_numbers(level)
    # Hours without a node that takes pods are not known: they have no slots, not none.
    is_known = [bool(capacity[:, n].any()) for n in range(len(at))]
    counts = {
        size: slots(free, domains, size).tolist()
        for size in GANG_SIZES
        if slots(capacity, domains, size).any()
    }
    return SlotSeries(
        cluster=one.cluster,
        tier=one.tier,
        level=level,
        at=at,
        slots={
            size: [n if known else None for n, known in zip(own, is_known, strict=True)]
            for size, own in counts.items()
        },
    )


def fragmentation_rows(
    window: Window,
    *,
    now: datetime,
    visibility: Visibility,
    interval: TimeStep = TimeStep.TOTAL,
    filters: TierFilters = ALL_TIERS,
) -> list[FragmentationRow]:
    """Return how fragmented each tier of whole GPUs was, by period, cluster and tier.

    What is free is taken at the start of each hour, for the hour. Everybody may see it: it has
    sums alone. Seven queries at most.
    """
    at = _hours(window, now)
    asked = requested_sizes(window, filters)
    periods = Periods(interval, report().zone)
    by_period: dict[datetime, list[int]] = defaultdict(list)
    for number, hour in enumerate(at):
        by_period[periods.start_of(hour)].append(number)
    found = tier_nodes(window, visibility=visibility, filters=filters)
    rows = [
        row
        for one in found
        for row in _fragmentation(one, at, asked.get((one.cluster, one.tier), {}), by_period)
    ]
    rows.sort(key=lambda pair: (pair[0], pair[1].cluster, pair[1].tier))
    return [replace(row, period=periods.label(start)) for start, row in rows]


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
    one: TierNodes,
    at: Sequence[datetime],
    asked: Mapping[int, int],
    by_period: Mapping[datetime, Sequence[int]],
) -> list[tuple[datetime, FragmentationRow]]:
    times = [hour.timestamp() for hour in at]
    free, capacity = one.free(times), one.capacity(times)
    largest = int(capacity.max(initial=0))
    # A request that no node can serve at all is no reason to call its GPUs fragmented. Each GPU
    # that was asked for weighs the same.
    weights = {size: float(size * n) for size, n in asked.items() if size <= largest}
    lost = unusable_gpus(free, weights)
    rows = []
    for start, numbers in by_period.items():
        there = [number for number in numbers if capacity[:, number].any()]
        if not there:
            continue
        free_hours = float(free[:, there].sum())
        unusable = None if lost is None else sum(lost[number] for number in there)
        row = FragmentationRow(
            period=None,
            cluster=one.cluster,
            tier=one.tier,
            hours=len(there),
            pods=sum(asked.values()),
            capacity_gpu_hours=float(capacity[:, there].sum()),
            free_gpu_hours=free_hours,
            unusable_gpu_hours=unusable,
            fragmentation_index=fragmentation_index(unusable, free_hours),
        )
        rows.append((start, row))
    return rows


def _hours(window: Window, now: datetime) -> list[datetime]:
    """Return the starts of the hours of a window that have begun."""
    first = window.start.astimezone(UTC).replace(minute=0, second=0, microsecond=0)
    # An hour that began before the window is none of its hours.
    if first < window.start:
        first += _HOUR
    end = min(window.end, now)
    # Rounded up: the hour that has just begun has a start too.
    return [first + n * _HOUR for n in range(max(0, -((first - end) // _HOUR)))]
