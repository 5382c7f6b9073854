"""Nodes before the first watch, as collected hours tell them: capacity by tier, to the hour.

Hours keep no resources and no labels. A node that the watch found later is taken to have had the
same ones before. Those of other nodes are guessed from tier, GPU model and the pods that ran there.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from msgspec import Struct

from apps.accounts.domain.structs import replace
from apps.clusters.domain.pods.ledger import NodeInterval, PodSource
from apps.clusters.domain.tiers import (
    AMD_PRODUCT_LABEL,
    PRODUCT_LABEL,
    UNKNOWN_MODEL,
    TierRule,
    tier_of,
    unit_weight,
)
from apps.clusters.domain.window import HOUR_SECONDS, TimeSpan
from apps.planning.domain.recorded.works import LedgerPod

_REPLICAS_LABEL = "nvidia.com/gpu.replicas"
_AMD = "amd.com/"


class NodeTierHour(NamedTuple):
    """A node's share of a tier in the hour from `start` (Unix seconds), in GPU-equivalents.

    `unavailable` of its `capacity` was not ready, cordoned or broken, `stranded` is no unit.
    """

    node: str
    start: float
    tier: str
    gpu_model: str
    capacity: float
    unavailable: float
    stranded: float


class TierUnits(NamedTuple):
    """Units of a resource, and the GPU-equivalents of one."""

    resource: str
    units: float
    weight: float


class SeriesNodes(Struct, frozen=True):
    """Intervals of nodes up to `end`; `unseen` were gone when the watch began.

    `start` is that of the first hour that tells of nodes, None where none does.
    """

    intervals: tuple[NodeInterval, ...] = ()
    start: float | None = None
    end: float = 0.0
    unseen: frozenset[str] = frozenset()


def series_nodes(
    hours: Sequence[NodeTierHour],
    found: Iterable[NodeInterval],
    pods: Iterable[LedgerPod],
    rules: Sequence[TierRule],
    span: TimeSpan,
) -> SeriesNodes:
    """Return the nodes of `span`, which ends at the first watch or before it.

    `found` are nodes as the watch found them first. Hours that were not collected are taken to be
    as the hour before. Units are whole: a node that came within an hour has fewer in it.
    """
    seen = {one.node: one for one in sorted(found, key=lambda one: one.start, reverse=True)}
    nodes: dict[str, dict[float, list[NodeTierHour]]] = defaultdict(lambda: defaultdict(list))
    for hour in hours:
        nodes[hour.node][hour.start].append(hour)
    told = sorted({hour.start for hour in hours})
    following = dict(pairwise([*told, span[1]]))
    requested = _requested_units(pods)
    intervals: list[NodeInterval] = []
    for name, by_hour in sorted(nodes.items()):
        shape = _NodeShape(name, seen.get(name), rules, requested)
        net = _net([one for own in by_hour.values() for one in own])
        for start, own in sorted(by_hour.items()):
            at, later = max(start, span[0]), following[start]
            # An hour that nothing tells goes on as the one before, where the node is there after.
            stays = later in by_hour or (later == span[1] and name in seen)
            end = min(span[1], later if stays else start + HOUR_SECONDS)
            state = shape.interval(own, net, (at, end))
            # Nothing known of its units: it cannot be replayed in that hour.
            if end > at and state.capacity:
                _append(intervals, state)
    there = {one.node for one in intervals}
    return SeriesNodes(
        intervals=tuple(intervals),
        start=told[0] if intervals else None,
        end=span[1],
        unseen=frozenset(there - seen.keys()),
    )


def _append(intervals: list[NodeInterval], state: NodeInterval) -> None:
    # Hours are an artefact of collection: a node that did not change has one interval.
    last = intervals[-1] if intervals else None
    if last is not None and last.node == state.node and last.end == state.start:
        joined = replace(state, start=last.start)
        if joined == replace(last, end=state.end):
            intervals[-1] = joined
            return
    intervals.append(state)


def _net(hours: Iterable[NodeTierHour]) -> dict[tuple[str, float], float]:
    """Return by tier and capacity the GPU-equivalents that units make up.

    What MIG leaves over counts as stranded while it is free and available: the most that any hour
    shows is what there always was. Hours in which all was away tell nothing of it.
    """
    found: dict[tuple[str, float], float] = {}
    for one in hours:
        if one.unavailable >= one.capacity:
            continue
        key = (one.tier, one.capacity)
        found[key] = min(one.capacity - one.stranded, found.get(key, one.capacity))
    return found


def _requested_units(
    pods: Iterable[LedgerPod],
) -> Mapping[tuple[str, str], Counter[tuple[str, float]]]:
    """Count the resources and weights of pods by node and tier, and by tier under no node."""
    found: dict[tuple[str, str], Counter[tuple[str, float]]] = defaultdict(Counter)
    for pod in pods:
        if pod.units > 0 and pod.gpus > 0 and pod.node:
            unit = (pod.resource, round(pod.gpus / pod.units, 6))
            found[pod.node, pod.tier][unit] += 1
            found["", pod.tier][unit] += 1
    return found


class _NodeShape:
    """What the units of a node's tiers are, and which labels it bore."""

    def __init__(
        self,
        name: str,
        seen: NodeInterval | None,
        rules: Sequence[TierRule],
        requested: Mapping[tuple[str, str], Counter[tuple[str, float]]],
    ) -> None:
        self._name = name
        self._rules = rules
        self._requested_units = requested
        self._labels = dict(seen.labels) if seen is not None else {}
        self._is_seen = seen is not None
        self._units: dict[str, list[TierUnits]] = defaultdict(list)
        for resource, units in (seen.capacity if seen is not None else {}).items():
            tier = tier_of(resource, self._labels, rules)
            self._units[tier].append(
                TierUnits(resource, units, unit_weight(resource, self._labels))
            )

    def interval(
        self, hours: Sequence[NodeTierHour], net: Mapping[tuple[str, float], float], span: TimeSpan
    ) -> NodeInterval:
        """Return the node in a span as the rows of an hour tell; without capacity: not there."""
        capacity: dict[str, float] = {}
        allocatable: dict[str, float] = {}
        for one in hours:
            share = max(0.0, 1.0 - one.unavailable / one.capacity) if one.capacity > 0 else 0.0
            for unit in self._of(one, net.get((one.tier, one.capacity))):
                capacity[unit.resource] = unit.units
                allocatable[unit.resource] = float(round(unit.units * share))
        ready = any(allocatable.values())
        return NodeInterval(
            node=self._name,
            start=span[0],
            end=span[1],
            capacity=capacity,
            allocatable=allocatable if ready else capacity,
            labels=self._labels,
            ready=ready,
            source=PodSource.METRICS,
        )

    def _of(self, hour: NodeTierHour, net: float | None) -> Iterator[TierUnits]:
        """Yield the units that the node had of a tier in an hour; none: not known."""
        if hour.tier not in self._units:
            self._units[hour.tier] = self._guessed(hour)
        every = self._units[hour.tier]
        total = sum(unit.units * unit.weight for unit in every)
        if not total:
            return
        if net is None:
            # It was away throughout: what the watch found is nearer than slices that are no unit.
            net = total if self._is_seen and total <= hour.capacity else hour.capacity
        for unit in every:
            units = round(unit.units * net / total)
            if units:
                yield unit._replace(units=float(units))

    def _guessed(self, hour: NodeTierHour) -> list[TierUnits]:
        rule = next((one for one in self._rules if one.tier == hour.tier), None)
        if rule is None:
            return []
        counts = self._requested_units.get((self._name, hour.tier)) or self._requested_units.get(
            ("", hour.tier)
        )
        unit = max(counts, key=lambda one: (counts[one], one)) if counts else None
        resource = unit[0] if unit is not None else next(iter(rule.resources), "")
        labels = dict(self._labels)
        if not self._is_seen:
            labels = _labels_of(rule, resource, hour.gpu_model) | labels
        weight = unit_weight(resource, labels)
        if unit is not None and unit[1] < weight:
            # Replicas of a GPU: the label says how many, and the pods what one of them counted.
            labels[_REPLICAS_LABEL] = str(round(weight / unit[1]))
        # The guess must lead back to the tier, or work of it would find no node.
        if tier_of(resource, labels, self._rules) != hour.tier:
            return []
        self._labels = labels
        return [TierUnits(resource, 1.0, unit_weight(resource, labels))]


def _labels_of(rule: TierRule, resource: str, gpu_model: str) -> dict[str, str]:
    """Return the labels of a node of a tier that follow from the tier and the GPU model."""
    labels = dict(rule.node_selector)
    if gpu_model and gpu_model != UNKNOWN_MODEL:
        labels.setdefault(
            AMD_PRODUCT_LABEL if resource.startswith(_AMD) else PRODUCT_LABEL, gpu_model
        )
    return labels
