"""What Kueue's controller shows of the scenario's queues, with the labels of a recorded one.

Its ServiceMonitor is that of its Helm chart: no label of the metrics is one of the target's.
"""

from collections.abc import Callable, Iterator, Mapping

from simulator import identity
from simulator.epochs import EMPTY, ActivitySteps, QueueSteps
from simulator.prometheus.exporters.dcgm import CLUSTER
from simulator.prometheus.exporters.device_values import Metric
from simulator.prometheus.series import SCRAPE_MS, Segment, Series
from simulator.scenarios.base import Queue, Scenario

_ROLE = {"replica_role": "standalone"}
_Labels = Callable[[Queue], Mapping[str, str]]


def _of_flavor(queue: Queue) -> Mapping[str, str]:
    return {
        "cluster_queue": queue.name,
        "cohort": "campus",
        "flavor": queue.flavor,
        **_ROLE,
        "resource": queue.resource,
    }


def _of_resource(queue: Queue) -> Mapping[str, str]:
    return {"cluster_queue": queue.name, **_ROLE, "resource": queue.resource}


def _of_status(status: str) -> _Labels:
    return lambda queue: {"cluster_queue": queue.name, **_ROLE, "status": status}


def _of_local_queue(queue: Queue) -> Mapping[str, str]:
    # The target's own namespace comes first: Prometheus renames this one.
    return {
        "exported_namespace": queue.namespace,
        "name": queue.local,
        **_ROLE,
        "status": "active",
    }


NOMINAL = "kueue_cluster_queue_nominal_quota"
WORKLOADS = "kueue_pending_workloads"
_SHOWN: Mapping[str, tuple[_Labels, Callable[[QueueSteps], ActivitySteps]]] = {
    "kueue_cluster_queue_resource_pending": (_of_resource, lambda steps: steps.pending_units),
    "kueue_cluster_queue_resource_reservation": (_of_flavor, lambda steps: steps.reserved_units),
    "kueue_cluster_queue_resource_usage": (_of_flavor, lambda steps: steps.used_units),
    "kueue_local_queue_pending_workloads": (_of_local_queue, lambda steps: steps.pending),
    WORKLOADS: (_of_status("active"), lambda steps: steps.pending),
}
METRICS: Mapping[str, Metric] = {
    name: Metric("gauge", "As Kueue describes it.") for name in sorted({*_SHOWN, NOMINAL})
}


def exported(scenario: Scenario) -> Mapping[str, Metric]:
    """Return the metrics of Kueue, where there are queues; by its defaults only numbers."""
    if not scenario.queues:
        return {}
    return METRICS if scenario.queue_resources else {WORKLOADS: METRICS[WORKLOADS]}


def queue_series(scenario: Scenario, metric: str, low_ms: int, high_ms: int) -> Iterator[Series]:
    """Yield a metric's series with all their segments that touch low..high."""
    if metric not in exported(scenario):
        return
    phase_ms = identity.below(SCRAPE_MS, scenario.seed, "scrape", "kueue")
    low, high = low_ms // 1000, high_ms // 1000
    target = _target(scenario, metric)
    epochs = list(scenario.epochs(low, high))
    for queue in scenario.queues:
        labels = _of_flavor(queue) if metric == NOMINAL else _SHOWN[metric][0](queue)
        series = Series({**target, **labels}, phase_ms, [])
        for epoch in epochs:
            start, end = max(low, epoch.start, queue.created), min(high + 1, epoch.end)
            for begin, stop, value in _intervals(queue, epoch.queues, metric, start, end):
                series.segments.append(Segment(begin * 1000, stop * 1000, float(value)))
        if series.segments:
            yield series


def _intervals(
    queue: Queue, queues: Mapping[str, QueueSteps], metric: str, start: int, end: int
) -> Iterator[tuple[int, int, int]]:
    if metric != NOMINAL:
        yield from _SHOWN[metric][1](queues.get(queue.name, EMPTY)).intervals(start, end)
    elif end > start:
        yield start, end, queue.nominal


def _target(scenario: Scenario, metric: str) -> dict[str, str]:
    pod = f"kueue-controller-manager-{identity.suffix(10, scenario.seed, 'kueue')}"
    return {
        "__name__": metric,
        "cluster": CLUSTER,
        "container": "manager",
        "endpoint": "https",
        "instance": "10.42.0.9:8443",
        "job": "kueue-controller-manager-metrics-service",
        "namespace": "kueue-system",
        "pod": f"{pod}-{identity.suffix(5, scenario.seed, pod)}",
        "service": "kueue-controller-manager-metrics-service",
    }
