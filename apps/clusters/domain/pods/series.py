"""What kube-state-metrics showed, told of the series instead of the objects.

An outage of some series reads as if objects were not there. What is counted here lets an hour be
held against others (`apps.usage.domain.evidence`).
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from apps.clusters.domain.pods.kube_state import PodSeries
from apps.clusters.domain.pods.kube_state_nodes import NodeSeries

_Series = TypeVar("_Series")

CAPACITY = "kube_node_status_capacity"
NODE_LABELS = "kube_node_labels"
_LABELLED_AFTER_SECONDS = 900.0

# By metric, whether a GPU node has it. kube-state-metrics exports each of them for every node.
_OF_NODES: Mapping[str, Callable[[NodeSeries], bool]] = {
    "kube_node_created": lambda node: bool(node.samples),
    "kube_node_status_allocatable": lambda node: bool(node.allocatable),
    "kube_node_status_condition": lambda node: bool(node.ready),
    "kube_node_spec_unschedulable": lambda node: bool(node.cordoned),
    NODE_LABELS: lambda node: any(node.labels.values()),
}
_OF_PODS: Mapping[str, Callable[[PodSeries], bool]] = {
    "kube_pod_created": lambda pod: pod.created is not None,
    "kube_pod_owner": lambda pod: pod.owner is not None,
}
_OF_BOUND_PODS: Mapping[str, Callable[[PodSeries], bool]] = {
    "kube_pod_status_scheduled_time": lambda pod: pod.bound is not None,
}


@dataclass(frozen=True, slots=True)
class ShownSeries:
    """What the series of a window were like.

    `shares` gives by metric which part, 0..1, of the GPU nodes or pods have it; no value where
    there is none to have it. `nameless` are metrics that came without the labels that tell
    objects apart. `plain_nodes` are known and offer no GPU resource, `past_pods` are known and
    were over before the window, by (namespace, name).
    """

    shares: Mapping[str, float] = field(default_factory=dict)
    nameless: tuple[str, ...] = ()
    plain_nodes: frozenset[str] = frozenset()
    past_pods: frozenset[tuple[str, str]] = frozenset()


def node_shares(nodes: Collection[NodeSeries], end: float) -> dict[str, float]:
    """Return the shares of the metrics of nodes; of capacity only whether there is any.

    Nodes without GPUs come and go, so that the part of nodes with GPUs says nothing. A node made
    just before the window's `end` may have no labels yet and is left out.
    """
    gpu = [
        node
        for node in nodes
        if any(node.capacity.values())
        and max(node.created.values(), default=0.0) < end - _LABELLED_AFTER_SECONDS
    ]
    shares = _shares(_OF_NODES, gpu)
    offered = any(any(node.capacity.values()) for node in nodes)
    return {CAPACITY: float(offered), **shares} if nodes else {}


def pod_shares(pods: Collection[PodSeries]) -> dict[str, float]:
    """Return the shares of the metrics of pods."""
    bound = [pod for pod in pods if pod.node]
    return _shares(_OF_PODS, pods) | _shares(_OF_BOUND_PODS, bound)


def _shares(
    has: Mapping[str, Callable[[_Series], bool]], every: Collection[_Series]
) -> dict[str, float]:
    return {metric: _share(map(test, every), len(every)) for metric, test in has.items() if every}


def _share(found: Iterable[bool], count: int) -> float:
    return round(sum(found) / count, 3)
