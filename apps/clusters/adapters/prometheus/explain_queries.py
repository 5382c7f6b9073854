"""The queries behind a figure, as text that a person can put to the server.

Made from the same metrics, labels and shapes as those that are asked for facts, narrowed to what
the figure is of: an answer can be laid beside the portal's number.
"""

from collections.abc import Collection, Mapping

from apps.clusters.adapters.prometheus.dcgm.exporter_metrics import ACTIVITY, UTILIZATION
from apps.clusters.adapters.prometheus.dcgm.label_schemes import EXPORTED
from apps.clusters.adapters.prometheus.kube_state.metrics import (
    COMPLETED,
    CONTAINER_RUNNING,
    CREATED,
    LARGEST,
    MEAN,
    NODE_ALLOCATABLE,
    NODE_CAPACITY,
    NODE_CONDITION,
    NODE_CORDONED,
    REQUESTS,
    SCHEDULED,
    STARTED,
    TOTAL,
    Aggregated,
    gpu_matcher,
)
from apps.clusters.adapters.prometheus.promql import Matcher, by, equal, one_of, over
from apps.clusters.ports import ShownQuery

_POD = ("namespace", "pod", "uid")
_NODE = ("node",)


def activity_queries(
    matchers: Mapping[str, str], *, namespace: str, pods: Collection[str]
) -> list[ShownQuery]:
    """Return the queries of what devices did; empty `namespace` and `pods` narrow nothing.

    They have the labels of an exporter whose own ones were renamed, `exported_*`, the commonest.
    """
    chosen = (*equal(matchers), *_named("exported_namespace", "exported_pod", namespace, pods))
    labels = EXPORTED.holder_labels
    return [
        ShownQuery(
            "Sum of the activity samples of each device and pod",
            by("sum", labels, over("sum_over_time", ACTIVITY, chosen)),
        ),
        ShownQuery(
            "How many samples these are; times the scrape interval, the measured time",
            by("sum", labels, over("count_over_time", ACTIVITY, chosen)),
        ),
        ShownQuery(
            "Where that metric is missing: the same in per cent",
            by("sum", labels, over("sum_over_time", UTILIZATION, chosen)),
        ),
    ]


def holding_queries(
    matchers: Mapping[str, str], *, namespace: str, pods: Collection[str]
) -> list[ShownQuery]:
    """Return the queries of kube-state-metrics for what pods asked for, and from when to when."""
    every = (*equal(matchers), *_named("namespace", "pod", namespace, pods))
    asked = (*every, gpu_matcher(()))
    return [
        _shown("GPUs asked for", (*_POD, "resource"), LARGEST, REQUESTS, asked),
        _shown("When a pod was created", _POD, LARGEST, CREATED, every),
        _shown("When it was bound: it holds from then on", _POD, LARGEST, SCHEDULED, every),
        _shown("When it was started", _POD, LARGEST, STARTED, every),
        _shown("When it was completed", _POD, LARGEST, COMPLETED, every),
        _shown("Samples in which a container ran", _POD, TOTAL, CONTAINER_RUNNING, every),
    ]


def capacity_queries(matchers: Mapping[str, str]) -> list[ShownQuery]:
    """Return the queries of kube-state-metrics for the GPUs of nodes and their health."""
    every = equal(matchers)
    gpu = (*every, gpu_matcher(()))
    ready = (*every, Matcher("condition", "=", "Ready"), Matcher("status", "=", "true"))
    labels = (*_NODE, "resource")
    return [
        _shown("GPUs of each node", labels, LARGEST, NODE_CAPACITY, gpu),
        _shown("How many of them can be allocated", labels, MEAN, NODE_ALLOCATABLE, gpu),
        _shown("Share of the time in which the node was ready", _NODE, MEAN, NODE_CONDITION, ready),
        _shown("Share in which it took no pods", _NODE, MEAN, NODE_CORDONED, every),
    ]


def _shown(
    purpose: str,
    labels: tuple[str, ...],
    how: Aggregated,
    metric: str,
    matchers: tuple[Matcher, ...],
) -> ShownQuery:
    aggregation, function = how
    return ShownQuery(purpose, by(aggregation, labels, over(function, metric, matchers)))


def _named(
    namespace_label: str, pod_label: str, namespace: str, pods: Collection[str]
) -> tuple[Matcher, ...]:
    named = (Matcher(namespace_label, "=", namespace),) if namespace else ()
    return (*named, one_of(pod_label, sorted(pods))) if pods else named
