"""Node intervals as kube-state-metrics series tell them, and how many objects the series showed.

Within a slot the series say how much of it a node was ready, not when: what was not ready, or
cordoned, is laid at the end of the slot (of the node's first slot: at its start).
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, TypeVar

from msgspec import Struct, field

from apps.accounts.domain.structs import replace
from apps.clusters.domain.accelerators import HamiGpu, Offer, counted_once
from apps.clusters.domain.pods.kube_state import (
    READ_AHEAD_SECONDS,
    TOLERATED_SAMPLES,
    PodSeries,
    Samples,
    SeriesCoverage,
)
from apps.clusters.domain.pods.ledger import NodeInterval, PodSource
from apps.clusters.domain.resources import counts_no_device, desanitise
from apps.clusters.domain.window import SLOT_SECONDS, TimeSpan, Window

_OF_SLOT = 0.05
"""A node that was there for a smaller part of a slot, before another got its name, is left out."""

_Series = TypeVar("_Series")
CAPACITY = "kube_node_status_capacity"
NODE_LABELS = "kube_node_labels"
# GPU feature discovery labels a node some minutes after it joined.
_LABELLED_AFTER_SECONDS = 900.0
_OF_PODS: Mapping[str, Callable[[PodSeries], bool]] = {
    "kube_pod_created": lambda pod: pod.created is not None,
    "kube_pod_owner": lambda pod: pod.owner is not None,
}
_OF_BOUND_PODS: Mapping[str, Callable[[PodSeries], bool]] = {
    "kube_pod_status_scheduled_time": lambda pod: pod.bound is not None,
}


class NodeGpus(Struct, frozen=True):
    """What a node offered and its labels: units by resource as kube-state-metrics writes it."""

    capacity: Mapping[str, float]
    allocatable: Mapping[str, float]
    labels: Mapping[str, str]


class NodeSeries(Struct):
    """What the series of one node say, by slot.

    `created` is when it was made: another time once its name is given to another node. `earlier` is
    by slot what the node before it offered, where that is known apart; all else is of the new one.
    `samples` counts its presence, `after` says whether it was seen shortly after the window.
    `capacity` and `allocatable` hold units by resource as kube-state-metrics writes it, their
    largest and their mean; `capacity_samples` counts how long it offered GPUs at all. `ready`
    and `cordoned` are fractions of the slot. `shared` are the GPUs of a node of HAMi.
    """

    name: str
    created: dict[int, float] = field(default_factory=dict)
    samples: dict[int, float] = field(default_factory=dict)
    after: bool = False
    capacity: dict[int, dict[str, float]] = field(default_factory=dict)
    capacity_samples: dict[int, float] = field(default_factory=dict)
    allocatable: dict[int, dict[str, float]] = field(default_factory=dict)
    ready: dict[int, float] = field(default_factory=dict)
    cordoned: dict[int, float] = field(default_factory=dict)
    labels: dict[int, Mapping[str, str]] = field(default_factory=dict)
    shared: tuple[HamiGpu, ...] = ()
    earlier: dict[int, NodeGpus] = field(default_factory=dict)

    def gpus(self, slot: int) -> NodeGpus:
        """Return what the node offered in a slot, the newer one of two of that name."""
        return NodeGpus(
            self.capacity[slot], self.allocatable.get(slot, {}), self.labels.get(slot, {})
        )

    def samples_before(self, slot: int, full: float) -> float:
        """Return how many samples of a slot are of another node of that name; 0 where none was.

        `full` is how many samples there are of what was there throughout.
        """
        created, there = self.created.get(slot), self.presence.get(slot, 0.0)
        if created is None or not slot <= created < slot + SLOT_SECONDS:
            return 0.0
        # More samples than since it was made: another node of that name was there before.
        before = there - (slot + SLOT_SECONDS - created) * full / SLOT_SECONDS
        return before if before > max(TOLERATED_SAMPLES, _OF_SLOT * full) else 0.0

    @property
    def presence(self) -> Samples:
        """How many samples show the node."""
        # kube_node_created may be switched off; the capacity of a node is there as long as it.
        return self.samples or self.capacity_samples


_BY_SLOT = (
    *("created", "samples", "capacity", "capacity_samples", "allocatable"),
    *("ready", "cordoned", "labels"),
)


def node_intervals(
    node: NodeSeries, coverage: SeriesCoverage, *, named: Collection[str] = ()
) -> list[NodeInterval]:
    """Return the intervals in which a node offered GPUs, in order, equal neighbours joined.

    `named` are resources that tiers name. A slot in which kube-state-metrics was away has none.
    """
    samples = node.presence
    intervals: list[NodeInterval] = []
    for slot in coverage.slots:
        if not coverage.covers(slot) or not any(node.capacity.get(slot, {}).values()):
            continue
        for interval in _slot_intervals(node, coverage, slot, samples, named):
            _append(intervals, interval)
    return intervals


def _gone(node: NodeSeries, coverage: SeriesCoverage, slot: int, samples: Samples) -> float | None:
    """Return when a node went that a slot shows and the next one does not; None if it stayed."""
    created, following = node.created.get(slot), slot + SLOT_SECONDS
    last = max(
        (at for at, count in samples.items() if count > 0 and coverage.covers(at)), default=0
    )
    if slot > last > 0:
        return float(slot)
    if slot == last or not last:
        return coverage.vanished({slot: samples.get(slot, 0.0)}, created, after=node.after)
    made = node.created.get(following)
    # Where the next hour begins with it, no window that ends there can tell one from the other.
    is_other = made is not None and made >= following + READ_AHEAD_SECONDS
    if (samples.get(following) and not is_other) or not coverage.covers(following):
        return None
    # Its name comes back later: what bears it then was made anew.
    return coverage.reached(slot, samples[slot], max(float(slot), created or 0.0))


def _append(intervals: list[NodeInterval], interval: NodeInterval) -> None:
    # Slots are an artefact of reading: a node that did not change has one interval.
    if intervals and intervals[-1].end == interval.start:
        joined = replace(intervals[-1], end=interval.end)
        if joined == replace(interval, start=joined.start):
            intervals[-1] = joined
            return
    intervals.append(interval)


def _slot_intervals(
    node: NodeSeries, coverage: SeriesCoverage, slot: int, samples: Samples, named: Collection[str]
) -> Iterator[NodeInterval]:
    created = node.created.get(slot)
    first = created is not None and slot <= created < slot + SLOT_SECONDS
    start = max(float(slot), created or 0.0)
    gone = _gone(node, coverage, slot, samples)
    end = min(float(slot + SLOT_SECONDS), gone if gone is not None else float("inf"))
    offered, there = node.capacity_samples.get(slot), samples.get(slot, 0.0)
    before = node.samples_before(slot, coverage.full[slot])
    if offered is not None and offered < there - TOLERATED_SAMPLES:
        # The device plugin registered late: GPUs that no pod could request were not there.
        start = max(start, end - (offered - before) * coverage.interval(slot))
    gpus = node.gpus(slot)
    if before:
        earlier = min(float(slot) + before * coverage.interval(slot), created or 0.0)
        # Where both are not known apart, the old one is taken for what the new one is.
        was = node.earlier.get(slot, gpus)
        if any(was.capacity.values()):
            yield _interval(node, was, (float(slot), earlier), named)
    if end <= start:
        return
    # A mean over samples cannot tell less than a part of one sample.
    slack = TOLERATED_SAMPLES / 3 / max(there, 1.0)
    ready = _fraction(node.ready.get(slot, 1.0), slack)
    # The samples of both nodes are in its mean; what was not ready is the new one.
    unready = min(1.0, (1.0 - ready) * there / max(there - before, 1.0))
    cordoned = _fraction(node.cordoned.get(slot, 0.0), slack)
    interval = _interval(node, gpus, (start, end), named)
    yield from _cut(interval, unready, cordoned, starts_unready=first)


def _interval(
    node: NodeSeries, gpus: NodeGpus, span: TimeSpan, named: Collection[str]
) -> NodeInterval:
    capacity = {r: units for r, units in _units(gpus.capacity, named).items() if units > 0}
    allocatable = _units(gpus.allocatable, named)
    offer = counted_once(
        Offer(
            capacity,
            {resource: units for resource, units in allocatable.items() if resource in capacity},
            dict(gpus.labels),
        ),
        named=named,
        shared=node.shared,
    )
    return NodeInterval(
        node=node.name,
        start=span[0],
        end=span[1],
        capacity=offer.capacity,
        allocatable=offer.allocatable,
        labels=offer.labels,
        source=PodSource.METRICS,
    )


def _fraction(value: float, slack: float) -> float:
    """Return a fraction 0..1, snapped to its ends where less than half a sample lacks."""
    if not value > slack:
        return 0.0
    return 1.0 if value > 1.0 - slack else value


def _cut(
    interval: NodeInterval, unready: float, cordoned: float, *, starts_unready: bool
) -> Iterator[NodeInterval]:
    """Yield `interval` cut where its node stops (or begins) being ready and schedulable."""
    length = interval.end - interval.start
    ready_from = interval.start + unready * length if starts_unready else interval.start
    ready_to = interval.end if starts_unready else interval.end - unready * length
    open_to = interval.end - cordoned * length
    # Only the share of the slot is known. A new node is unready first, an old one last.
    cuts = sorted({interval.start, interval.end, ready_from, ready_to, open_to})
    for a, b in pairwise(cuts):
        yield replace(
            interval,
            start=a,
            end=b,
            ready=ready_from <= a and b <= ready_to,
            schedulable=b <= open_to,
        )


def _units(amounts: Mapping[str, float], named: Collection[str]) -> dict[str, float]:
    """Return resource → units under the resources' real names."""
    return {
        desanitise(resource, named): value
        for resource, value in sorted(amounts.items())
        if not counts_no_device(resource)
    }


# By metric, whether a GPU node has it. kube-state-metrics exports each of them for every node.
_OF_NODES: Mapping[str, Callable[[NodeSeries], bool]] = {
    "kube_node_created": lambda node: bool(node.samples),
    "kube_node_status_allocatable": lambda node: bool(node.allocatable),
    "kube_node_status_condition": lambda node: bool(node.ready),
    "kube_node_spec_unschedulable": lambda node: bool(node.cordoned),
    NODE_LABELS: lambda node: any(node.labels.values()),
}


class ShownSeries(Struct, frozen=True):
    """What the series of a window were like.

    `shares` gives by the start of each hour and metric which part, 0..1, of the GPU nodes or pods
    of that hour have it; no value where there is none to have it. `nameless` are metrics that came
    without the labels that tell objects apart. `plain_nodes` are known and offer no GPU resource,
    `past_pods` are known and were over before the window, by (namespace, name).
    """

    shares: Mapping[int, Mapping[str, float]] = field(default_factory=dict)
    nameless: tuple[str, ...] = ()
    plain_nodes: frozenset[str] = frozenset()
    past_pods: frozenset[tuple[str, str]] = frozenset()


def hour_shares(
    nodes: Collection[NodeSeries], pods: Collection[PodSeries], window: Window
) -> dict[int, dict[str, float]]:
    """Return the shares of each hour, by its start.

    They count what that hour's samples show, so that they are the same in every window.
    """
    return {
        int(hour.start_seconds): {
            **_node_shares(nodes, hour.slots(), hour.end_seconds),
            **_pod_shares(pods, hour.slots()),
        }
        for hour in window.hours()
    }


def _node_shares(nodes: Iterable[NodeSeries], slots: Sequence[int], end: float) -> dict[str, float]:
    """Return the shares of the metrics of nodes; of capacity only whether there is any.

    Nodes without GPUs come and go, so that the part of nodes with GPUs says nothing. A node made
    just before the hour's `end` may have no labels yet and is left out.
    """
    there = [part for node in nodes if (part := _within(node, slots)) is not None]
    gpu = [
        node
        for node in there
        if any(node.capacity.values())
        and max(node.created.values(), default=0.0) < end - _LABELLED_AFTER_SECONDS
    ]
    shares = _shares(_OF_NODES, gpu)
    offered = any(any(node.capacity.values()) for node in there)
    return {CAPACITY: float(offered), **shares} if there else {}


def _within(node: NodeSeries, slots: Sequence[int]) -> NodeSeries | None:
    """Return what the series say of a node in some slots; None where they say nothing."""
    parts: dict[str, Any] = {
        name: {slot: values[slot] for slot in slots if slot in values}
        for name in _BY_SLOT
        for values in (getattr(node, name),)
    }
    return NodeSeries(node.name, **parts) if any(parts.values()) else None


def _pod_shares(pods: Iterable[PodSeries], slots: Sequence[int]) -> dict[str, float]:
    """Return the shares of the metrics of pods."""
    there = [pod for pod in pods if any(slot in pod.samples for slot in slots)]
    bound = [pod for pod in there if pod.node]
    return _shares(_OF_PODS, there) | _shares(_OF_BOUND_PODS, bound)


def _shares(
    has: Mapping[str, Callable[[_Series], bool]], every: Collection[_Series]
) -> dict[str, float]:
    return {metric: _share(map(test, every), len(every)) for metric, test in has.items() if every}


def _share(found: Iterable[bool], count: int) -> float:
    # Rounded, because shares are kept with the hour and compared with those of others.
    return round(sum(found) / count, 3)
