"""The doctor's own questions to a metrics server: few, each one instant query."""

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from apps.clusters.ports import SourceRejected, SourceUnavailable
from apps.operations.domain.observations import MetricsAnswers, NodeHeadroom
from apps.operations.ports import TakesQuestions

Series = Sequence[tuple[Mapping[str, str], float]]
Found = TypeVar("Found")

# Seconds since 1970 by the server's clock.
TIME = "vector(time())"
# Devices that several scrape targets show: a count.
TWICE = "count(count by (UUID) (count by (UUID,instance) (DCGM_FI_DEV_FB_USED{$matchers})) > 1)"
# How often kube-state-metrics shows the node that it shows most often: a count.
KUBE_STATE_COPIES = "max(count by (node) (kube_node_info{$matchers}))"
# How many clusters the usual external label tells apart; all nodes without it count as one.
CLUSTERS = "count(count by (cluster) (kube_node_info{$matchers}))"
# Nodes with a taint that is not one of those Kubernetes sets by itself: by node.
TAINTED = 'count by (node) (kube_node_spec_taint{$matchers key!~"node[.]kubernetes[.]io/.*"})'
# What pods may request of a node: CPUs, bytes; by node.
ALLOCATABLE = 'max by (node) (kube_node_status_allocatable{$matchers resource="%s"})'
# What pods that are not over request of a node: CPUs, bytes; by node.
REQUESTED = (
    # `max` first: each copy of kube-state-metrics shows the same series once more.
    "sum by (node) (max by (namespace,pod,uid,container,node) "
    '(kube_pod_container_resource_requests{$matchers resource="%s",node!=""}) '
    "* on (namespace,pod,uid) group_left () max by (namespace,pod,uid) "
    '(kube_pod_status_phase{$matchers phase=~"Pending|Running"} == 1))'
)
_CPU, _MEMORY = "cpu", "memory"


def answers(
    source: TakesQuestions, clock: Callable[[], float]
) -> tuple[MetricsAnswers, tuple[str, ...]]:
    """Return what the server answers, and in words what it did not answer.

    `clock` gives our Unix seconds. A server that cannot evaluate one question (not all that speak
    the API do) still answers the others.
    """
    unasked: list[str] = []

    def answered(what: str, read: Callable[[], Found]) -> Found | None:
        try:
            return read()
        except (SourceRejected, SourceUnavailable):
            unasked.append(what)
            return None

    found = MetricsAnswers(
        skew_seconds=answered("the server's clock", lambda: _skew(source, clock)),
        scraped_twice=answered("exporters scraped twice", lambda: _count(source, TWICE)) or 0,
        kube_state_copies=answered(
            "copies of kube-state-metrics", lambda: _count(source, KUBE_STATE_COPIES)
        )
        or 1,
        clusters=answered("clusters of the series", lambda: _count(source, CLUSTERS)) or 1,
        tainted=answered("taints of nodes", lambda: frozenset(_by_node(source, TAINTED))),
        room=answered("CPU and memory left on nodes", lambda: _room(source)),
    )
    return found, tuple(unasked)


def _skew(source: TakesQuestions, clock: Callable[[], float]) -> float | None:
    before = clock()
    series = source.ask(TIME)
    after = clock()
    # The answer was made at some moment in between: only what lies outside is a difference.
    server = series[0][1] if series else before
    return min(server - before, 0.0) if server < before else max(server - after, 0.0)


def _count(source: TakesQuestions, question: str) -> int:
    return int(sum(value for _, value in source.ask(question)))


def _by_node(source: TakesQuestions, question: str) -> dict[str, float]:
    series: Series = source.ask(question)
    return {labels["node"]: value for labels, value in series if labels.get("node")}


def _room(source: TakesQuestions) -> dict[str, NodeHeadroom]:
    left = []
    for resource in (_CPU, _MEMORY):
        there = _by_node(source, ALLOCATABLE % resource)
        taken = _by_node(source, REQUESTED % resource)
        left.append({node: amount - taken.get(node, 0.0) for node, amount in there.items()})
    cpus, memory = left
    return {node: NodeHeadroom(cpus[node], memory[node]) for node in cpus.keys() & memory.keys()}
