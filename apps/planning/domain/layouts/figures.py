"""Recorded demand replayed on a layout: GPU-hours unmet, allocated, unallocated and stranded."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from msgspec import Struct

from apps.planning.domain.cluster_replay.backtest import (
    ALL_TIERS,
    RecordedSpan,
    replayed_times,
    tier_times,
)
from apps.planning.domain.cluster_replay.engine import replay_cluster
from apps.planning.domain.cluster_replay.inputs import (
    ClusterReplay,
    Packing,
    RecordedWork,
    ReplayAssumption,
    ReplayCluster,
    ReplayNode,
    ReplayPolicy,
)
from apps.planning.domain.layouts.options import gpu_count
from apps.planning.domain.layouts.program import TierDemand

_HOUR = 3600.0


class TierFigures(Struct, frozen=True):
    """A tier in a replay, in GPU-hours; `p95_seconds` of queue times is None where none started."""

    capacity_gpu_hours: float = 0.0
    allocated_gpu_hours: float = 0.0
    unmet_gpu_hours: float = 0.0
    p95_seconds: float | None = None

    @property
    def unallocated_gpu_hours(self) -> float:
        return max(0.0, self.capacity_gpu_hours - self.allocated_gpu_hours)


class LayoutFigures(Struct, frozen=True):
    """All tiers in a replay; `stranded_gpu_hours` are parts of GPUs that are in no MIG device.

    `p95_seconds` of the queue times of all is None where none started.
    """

    tiers: Mapping[str, TierFigures]
    stranded_gpu_hours: float
    p95_seconds: float | None = None

    @property
    def unmet_gpu_hours(self) -> float:
        return sum(one.unmet_gpu_hours for one in self.tiers.values())

    @property
    def unallocated_gpu_hours(self) -> float:
        return sum(one.unallocated_gpu_hours for one in self.tiers.values())


class DemandWindow(RecordedSpan, frozen=True):
    """What was asked of a cluster in a span, and how it went."""

    @property
    def hours(self) -> int:
        return round((self.end - self.start) / _HOUR)


def layout_figures(
    demand: DemandWindow, cluster: ReplayCluster, packing: Packing
) -> tuple[LayoutFigures, tuple[ReplayAssumption, ...]]:
    """Replay the demand on a cluster's nodes; return the figures, and what is assumed."""
    start, end = demand.start, demand.end
    # Not on the nodes that work ran on: after a change no scheduler has that hindsight.
    policy = ReplayPolicy(packing=packing)
    found = replay_cluster(demand.works, cluster, policy, start=start, end=end)
    played = replayed_times(found.played, demand.happened, end=end)
    times = tier_times(played, start=start, end=end)
    allocated = _allocated(found, cluster.nodes, start, end)
    capacity, stranded = _capacity(cluster.nodes, start, end)
    tiers = {}
    for tier in sorted({*capacity, *allocated, *(work.tier for work in demand.works)}):
        own = times.get(tier)
        tiers[tier] = TierFigures(
            capacity.get(tier, 0.0),
            allocated.get(tier, 0.0),
            own.unmet_gpu_hours if own else 0.0,
            own.percentiles()[1] if own else None,
        )
    whole = times.get(ALL_TIERS)
    p95 = whole.percentiles()[1] if whole else None
    return LayoutFigures(tiers, stranded, p95), found.assumptions


def tier_demand(demand: DemandWindow) -> list[TierDemand]:
    """Return what each tier would have held in each hour had nothing ever been pending.

    In units. A unit weighs as much as recorded work of the tier did on average.
    """
    rows: dict[str, list[tuple[float, float, float]]] = defaultdict(list)
    gpus: dict[str, float] = defaultdict(float)
    units: dict[str, float] = defaultdict(float)
    for work, was in zip(demand.works, demand.happened, strict=True):
        begins, ends = _wanted(work, demand)
        rows[work.tier].append((begins, ends, work.total_units))
        gpus[work.tier] += was.gpus
        units[work.tier] += work.total_units
    return [
        TierDemand(tier, gpus[tier] / units[tier], tuple(_by_hour(own, demand.hours)))
        for tier, own in sorted(rows.items())
    ]


def _wanted(work: RecordedWork, demand: DemandWindow) -> tuple[float, float]:
    """Return when a work would have run, in hours from the window's start."""
    # Delays that no layout could shorten are no demand for capacity.
    begins = demand.start if work.running else work.asked_at + work.delay_seconds
    ends = demand.end if work.runs_seconds is None else begins + work.runs_seconds
    ends = ends if work.ends_at is None else work.ends_at
    return (begins - demand.start) / _HOUR, (ends - demand.start) / _HOUR


def _by_hour(rows: Iterable[tuple[float, float, float]], hours: int) -> list[float]:
    begins, ends, units = (np.array(column) for column in zip(*rows, strict=True))
    return [
        # The part of each hour that each work fills, times its units.
        float(units @ (np.clip(ends - hour, 0, 1) - np.clip(begins - hour, 0, 1)).clip(0))
        for hour in range(hours)
    ]


def _allocated(
    found: ClusterReplay, nodes: Sequence[ReplayNode], start: float, end: float
) -> dict[str, float]:
    sums: dict[str, float] = defaultdict(float)
    for one in found.played:
        for span in one.runs:
            until = end if span.end is None else min(end, span.end)
            hours = max(0.0, until - max(start, span.start)) / _HOUR
            for part in span.parts:
                weight = nodes[part.node].devices[part.device].weight
                sums[one.work.tier] += part.units * weight * hours
    return sums


def _capacity(
    nodes: Sequence[ReplayNode], start: float, end: float
) -> tuple[dict[str, float], float]:
    """Return the GPU-hours that nodes offered of each tier, and what their layouts strand."""
    found: dict[str, float] = defaultdict(float)
    stranded = 0.0
    for node in nodes:
        closed = sum(_overlap(span.start, span.end, start, end) for span in node.closed)
        hours = (end - start) / _HOUR - closed
        # Units of a tier weigh alike on a node: the key of nodes that are alike has the product.
        weights = {device.tier: device.weight for device in node.devices}
        for device in node.devices:
            found[device.tier] += device.units * device.weight * hours
        for gone in node.missing:
            lost = _overlap(gone.start, gone.end, start, end)
            # No more than what its closed hours leave.
            found[gone.tier] -= gone.units * weights[gone.tier] * min(lost, hours)
        if any(device.profile for device in node.devices) and not node.missing:
            offered = sum(device.units * device.weight for device in node.devices)
            stranded += max(0.0, gpu_count(node) - offered) * hours
    return found, stranded


def _overlap(first: float, last: float, start: float, end: float) -> float:
    """Return the hours of a span that lie in the window."""
    return max(0.0, min(last, end) - max(first, start)) / _HOUR
