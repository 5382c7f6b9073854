"""What kube-state-metrics shows of the scenario: pods, their owners, nodes and quotas.

Label sets follow a recorded kube-state-metrics; its ServiceMonitor honours labels, so the target's
`namespace`, `pod` and `container` appear only where a metric has none of its own.
"""

from collections.abc import Callable, Iterator, Mapping

from apps.clusters.domain.resources import sanitise
from simulator import identity
from simulator.fleet import FOREVER, Controller, Node, NodeState, Pod
from simulator.kubernetes.fields.specs import CONTAINER, node_resources, pod_ip, pod_requests
from simulator.people import person_marks
from simulator.prometheus.exporters.dcgm import CLUSTER
from simulator.prometheus.exporters.device_values import Metric
from simulator.prometheus.series import SCRAPE_MS, Segment, Series
from simulator.scenarios.base import Scenario

_PHASES = ("Pending", "Succeeded", "Failed", "Unknown", "Running")
_GAUGE = "gauge"
_Row = tuple[Mapping[str, str], int, int, float]
"""Labels, from, to (seconds) and value."""


def _pod_labels(pod: Pod) -> dict[str, str]:
    return {"namespace": pod.namespace, "pod": pod.name, "uid": pod.uid}


def _placed(pod: Pod) -> Iterator[tuple[str, int, int]]:
    """Yield (node, from, to): the node is empty until the pod is bound."""
    bound = min(pod.bound, pod.deleted)
    if bound > pod.created:
        yield "", pod.created, bound
    if pod.deleted > pod.bound:
        yield pod.node, pod.bound, pod.deleted


def _requests(pod: Pod) -> Iterator[_Row]:
    for resource, (value, unit, _) in pod_requests(pod).items():
        for node, start, end in _placed(pod):
            labels = {
                **_pod_labels(pod),
                "container": CONTAINER,
                "node": node,
                "resource": sanitise(resource),
                "unit": unit,
            }
            yield labels, start, end, value


def _limits(pod: Pod) -> Iterator[_Row]:
    return (row for row in _requests(pod) if row[0]["resource"] == sanitise(pod.resource))


def _info(pod: Pod) -> Iterator[_Row]:
    for node, start, end in _placed(pod):
        yield (
            {
                **_pod_labels(pod),
                "host_ip": pod.host_ip if node else "",
                "pod_ip": pod_ip(pod) if node else "",
                "node": node,
                "created_by_kind": pod.owner.kind,
                "created_by_name": pod.owner.name,
                "priority_class": "",
                "host_network": "false",
            },
            start,
            end,
            1.0,
        )


def _owner(pod: Pod) -> Iterator[_Row]:
    labels = {
        **_pod_labels(pod),
        "owner_kind": pod.owner.kind,
        "owner_name": pod.owner.name,
        "owner_is_controller": "true" if pod.owner.kind else "",
    }
    yield labels, pod.created, pod.deleted, 1.0


def _time_from(moment: Callable[[Pod], int]) -> Callable[[Pod], Iterator[_Row]]:
    """Return rows whose value is a time of the pod, shown from that time on."""

    def rows(pod: Pod) -> Iterator[_Row]:
        at = moment(pod)
        if at < pod.deleted:
            yield _pod_labels(pod), at, pod.deleted, float(at)

    return rows


def _container_time(pod: Pod) -> Iterator[_Row]:
    if pod.started < pod.deleted:
        labels = {**_pod_labels(pod), "container": CONTAINER}
        yield labels, pod.started, pod.deleted, float(pod.started)


def _running(pod: Pod) -> Iterator[_Row]:
    labels = {**_pod_labels(pod), "container": CONTAINER}
    intervals = (
        (pod.bound, pod.started, 0.0),
        (pod.started, pod.released, 1.0),
        (pod.finished, pod.deleted, 0.0),
    )
    for start, end, value in intervals:
        if min(end, pod.deleted) > start:
            yield labels, start, min(end, pod.deleted), value


def _phase(pod: Pod) -> Iterator[_Row]:
    started = min(pod.bound if pod.crashing else pod.started, pod.released)
    intervals = (
        ("Pending", pod.created, started),
        ("Running", started, pod.released),
        ("Failed" if pod.has_failed else "Succeeded", pod.finished, pod.deleted),
    )
    for now, start, end in intervals:
        if end > start:
            for phase in _PHASES:
                yield {**_pod_labels(pod), "phase": phase}, start, end, float(phase == now)


def _claims(pod: Pod) -> Iterator[_Row]:
    if pod.claim is not None:
        labels = {
            **_pod_labels(pod),
            "claim_name": "gpu",
            "resourceclaim_name": "" if pod.claim.template else pod.claim.name,
            "resourceclaim_template_name": pod.claim.template,
        }
        yield labels, pod.created, pod.deleted, 1.0


def _unschedulable(pod: Pod) -> Iterator[_Row]:
    end = min(pod.bound, pod.deleted)
    if end > pod.created and pod.unschedulable:
        yield _pod_labels(pod), pod.created, end, 1.0


def _person(kind: str, place: int) -> Callable[[Pod], Iterator[_Row]]:
    """Return rows of the labels or annotations that an allowlist names: those of persons."""

    def rows(pod: Pod) -> Iterator[_Row]:
        marks = person_marks(pod)[place]
        if marks:
            shown = {f"{kind}_{sanitise(key)}": value for key, value in sorted(marks.items())}
            yield {**_pod_labels(pod), **shown}, pod.created, pod.deleted, 1.0

    return rows


PODS: Mapping[str, Callable[[Pod], Iterator[_Row]]] = {
    "kube_pod_annotations": _person("annotation", 1),
    "kube_pod_labels": _person("label", 0),
    "kube_pod_container_resource_requests": _requests,
    "kube_pod_container_resource_limits": _limits,
    "kube_pod_container_state_started": _container_time,
    "kube_pod_container_status_running": _running,
    "kube_pod_created": _time_from(lambda pod: pod.created),
    "kube_pod_status_scheduled_time": _time_from(lambda pod: pod.bound),
    "kube_pod_start_time": _time_from(lambda pod: pod.bound),
    "kube_pod_completion_time": _time_from(lambda pod: FOREVER if pod.has_failed else pod.finished),
    "kube_pod_info": _info,
    "kube_pod_owner": _owner,
    "kube_pod_resourceclaim_info": _claims,
    "kube_pod_status_phase": _phase,
    "kube_pod_status_unschedulable": _unschedulable,
}


def _parent(label: str, kind: str) -> Callable[[Controller], Iterator[_Row]]:
    def rows(controller: Controller) -> Iterator[_Row]:
        if controller.kind != kind:
            return
        parent = controller.parent
        labels = {
            "namespace": controller.namespace,
            label: controller.name,
            "owner_kind": parent.kind if parent else "",
            "owner_name": parent.name if parent else "",
            "owner_is_controller": "true" if parent else "",
        }
        yield labels, controller.created, controller.deleted, 1.0

    return rows


CONTROLLERS: Mapping[str, Callable[[Controller], Iterator[_Row]]] = {
    "kube_replicaset_owner": _parent("replicaset", "ReplicaSet"),
    "kube_job_owner": _parent("job_name", "Job"),
}


def _node_states(node: Node, low: int, high: int) -> Iterator[tuple[NodeState, int, int]]:
    """Yield (state, from, to): what the node is like in low..high."""
    starts = [max(node.created, node.state(low).since)]
    starts += [at for at in node.turns(low, high) if at > starts[0]]
    for place, start in enumerate(starts):
        end = starts[place + 1] if place + 1 < len(starts) else _after(node, high)
        yield node.state(start), start, end


def _after(node: Node, at: int) -> int:
    """Return until when a node is as it is at a time."""
    if not node.repeats:
        return min((state.since for state in node.states if state.since > at), default=FOREVER)
    after = max(at, node.created - 1) + 1
    return node.turns(after, after + node.repeats)[0]


def _node_capacity(node: Node, low: int, high: int) -> Iterator[_Row]:
    yield from _amounts(node, (), node.created, FOREVER)


def _node_allocatable(node: Node, low: int, high: int) -> Iterator[_Row]:
    for state, start, end in _node_states(node, low, high):
        yield from _amounts(node, state.unhealthy, start, end)


def _amounts(node: Node, unhealthy: tuple[int, ...], start: int, end: int) -> Iterator[_Row]:
    for resource, (value, unit, _) in node_resources(node, unhealthy).items():
        labels = {"node": node.name, "resource": sanitise(resource), "unit": unit}
        yield labels, start, end, value


def _node_labels(node: Node, low: int, high: int) -> Iterator[_Row]:
    for _, start, end in _node_states(node, low, high):
        found = sorted(node.labels_at(start).items())
        labels = {f"label_{sanitise(key)}": value for key, value in found}
        yield {"node": node.name, **labels}, start, end, 1.0


def _node_created(node: Node, low: int, high: int) -> Iterator[_Row]:
    yield {"node": node.name}, node.created, FOREVER, float(node.created)


def _node_cordoned(node: Node, low: int, high: int) -> Iterator[_Row]:
    for state, start, end in _node_states(node, low, high):
        yield {"node": node.name}, start, end, float(state.cordoned)


def _node_ready(node: Node, low: int, high: int) -> Iterator[_Row]:
    for state, start, end in _node_states(node, low, high):
        now = "true" if state.ready else "false"
        for status in ("true", "false", "unknown"):
            labels = {"node": node.name, "condition": "Ready", "status": status}
            yield labels, start, end, float(status == now)


def _node_taints(node: Node, low: int, high: int) -> Iterator[_Row]:
    for key, value, effect in node.taints:
        labels = {"node": node.name, "key": key, "value": value, "effect": effect}
        yield labels, node.created, FOREVER, 1.0


def _node_info(node: Node, low: int, high: int) -> Iterator[_Row]:
    labels = {
        "node": node.name,
        "kernel_version": "6.8.0-79-generic",
        "os_image": "Ubuntu 24.04.3 LTS",
        "container_runtime_version": "containerd://2.1.4",
        "kubelet_version": "v1.36.2",
        "internal_ip": node.ip,
    }
    yield labels, node.created, FOREVER, 1.0


NODES: Mapping[str, Callable[[Node, int, int], Iterator[_Row]]] = {
    "kube_node_created": _node_created,
    "kube_node_info": _node_info,
    "kube_node_labels": _node_labels,
    "kube_node_spec_taint": _node_taints,
    "kube_node_spec_unschedulable": _node_cordoned,
    "kube_node_status_allocatable": _node_allocatable,
    "kube_node_status_capacity": _node_capacity,
    "kube_node_status_condition": _node_ready,
}
QUOTA = "kube_resourcequota"
NAMESPACE = "kube_namespace_created"
METRICS: Mapping[str, Metric] = {
    name: Metric(_GAUGE, "As kube-state-metrics describes it.")
    for name in sorted({*PODS, *CONTROLLERS, *NODES, QUOTA, NAMESPACE})
}


def exported(scenario: Scenario) -> Mapping[str, Metric]:
    """Return the metrics that there may be something to show of."""
    without = set()
    if not any(node.taints for node in scenario.nodes):
        without.add("kube_node_spec_taint")
    if not scenario.claims_served:
        without.add("kube_pod_resourceclaim_info")
    return {name: metric for name, metric in METRICS.items() if name not in without}


def kube_series(scenario: Scenario, metric: str, low_ms: int, high_ms: int) -> Iterator[Series]:
    """Yield a metric's series with all their segments that touch low..high."""
    target = _target(scenario, metric)
    phase_ms = identity.below(SCRAPE_MS, scenario.seed, "scrape", "kube-state-metrics")
    low, high = low_ms // 1000, high_ms // 1000
    found: dict[tuple[str, ...], Series] = {}
    for labels, start, end, value in _rows(scenario, metric, low, high):
        if end <= low or start > high:
            continue
        series = found.setdefault(
            tuple(labels.values()), Series({**target, **labels}, phase_ms, [])
        )
        series.segments.append(Segment(start * 1000, end * 1000, value))
    yield from found.values()


def _rows(scenario: Scenario, metric: str, low: int, high: int) -> Iterator[_Row]:
    if metric in PODS:
        for epoch in scenario.epochs(low, high):
            for pod in epoch.pods_between(low, high):
                yield from PODS[metric](pod)
    elif metric in CONTROLLERS:
        for controller in scenario.controllers_between(low, high):
            yield from CONTROLLERS[metric](controller)
    elif metric in NODES:
        for node in scenario.nodes:
            yield from NODES[metric](node, low, high)
    elif metric == QUOTA:
        yield from _quota_rows(scenario, low, high)
    else:
        for namespace in scenario.namespaces:
            yield (
                {"namespace": namespace.name},
                namespace.created,
                FOREVER,
                float(namespace.created),
            )


def _quota_rows(scenario: Scenario, low: int, high: int) -> Iterator[_Row]:
    for quota in scenario.quotas:
        for key in quota.keys:
            labels = {
                "namespace": quota.namespace,
                "resourcequota": quota.name,
                "resource": key,
            }
            for epoch in scenario.epochs(low, high):
                start, end = max(low, epoch.start, quota.created), min(high + 1, epoch.end)
                for kind, steps in quota.counts(epoch, key):
                    for begin, stop, value in steps.intervals(start, end):
                        yield {**labels, "type": kind}, begin, stop, float(value)


def _target(scenario: Scenario, metric: str) -> dict[str, str]:
    """Return the labels of the scrape target, which those of the metric replace."""
    pod = f"kube-state-metrics-{identity.suffix(10, scenario.seed, 'kube-state-metrics')}"
    return {
        "__name__": metric,
        "cluster": CLUSTER,
        "container": "kube-state-metrics",
        "endpoint": "http",
        "instance": "10.42.0.7:8080",
        "job": "kube-state-metrics",
        "namespace": "monitoring",
        "pod": f"{pod}-{identity.suffix(5, scenario.seed, pod)}",
        "service": "kube-state-metrics",
    }
