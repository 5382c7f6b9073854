"""The fleet as OpenMetrics text: what dcgm-exporter and kube-state-metrics would have shown."""

from collections.abc import Iterable, Iterator, Sequence

from apps.clusters.domain.resources import sanitise
from tests.bench.fleet import (
    CLUSTER,
    FIRST,
    GPUS_PER_NODE,
    INTERVAL_SECONDS,
    LAST,
    MODELS,
    Fleet,
    FleetNode,
    FleetPod,
    Segment,
    sample_index,
)

# kube-state-metrics is scraped a little after each half minute, for all objects at once.
_STATE_PHASE = 11_337
_STATE_BEGIN = FIRST * 1000 + _STATE_PHASE
_STATE_STAMPS = [
    f"{at / 1000:.3f}" for at in range(_STATE_BEGIN, LAST * 1000, INTERVAL_SECONDS * 1000)
]
_MILLIJOULES_PER_SAMPLE = 9_000_000

# (metric, further labels, value, first sample, last sample excluded)
_Series = tuple[str, str, str, int, int]


def chunk(fleet: Fleet, start: int, end: int) -> Iterator[str]:
    """Yield the lines of all samples in start..end (Unix seconds), in pieces of a node or pod."""
    first, last = _state_index(start), _state_index(end)
    for node in fleet.nodes:
        yield "".join(_devices(fleet, node, start, end))
        pieces = [_states(_node_series(node), first, last)]
        pieces += [_states(_pod_series(node, pod), first, last) for pod in node.pods]
        yield "".join(piece for some in pieces for piece in some)
    yield "".join(_states(_controllers(fleet.pods()), first, last))
    yield "# EOF\n"


# ---------------------------------------------------------------- dcgm-exporter


def _devices(fleet: Fleet, node: FleetNode, start: int, end: int) -> Iterator[str]:
    stamps = [f"{at / 1000:.3f}" for at in node.stamps()]
    low, high = sample_index(start, node.phase), sample_index(end, node.phase)
    texts = fleet.activity
    memory = MODELS[node.model][1]
    for segment in node.segments:
        first, last = max(low, segment.first), min(high, segment.last)
        if first >= last:
            continue
        labels = _device_labels(node, segment)
        at = stamps[first:last]
        part = texts.of(segment)[first - segment.first : last - segment.first]
        yield _lines("DCGM_FI_PROF_GR_ENGINE_ACTIVE", labels, part, at)
        used = 12 if segment.pod is None else memory * (segment.level + 1) // 11
        yield _constant("DCGM_FI_DEV_FB_USED", labels, str(used), at)
        energy = [str((n + node.number) * _MILLIJOULES_PER_SAMPLE) for n in range(first, last)]
        yield _lines("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", labels, energy, at)


def _device_labels(node: FleetNode, segment: Segment) -> str:
    """Return the labels that a ServiceMonitor without honorLabels leaves of the exporter's."""
    exporter = f"nvidia-dcgm-exporter-{node.number:05d}"
    address = f"10.{node.number >> 16 & 255}.{node.number >> 8 & 255}.{node.number & 255}"
    labels = (
        f'cluster="{CLUSTER}",job="nvidia-dcgm-exporter",instance="{address}:9400",'
        f'namespace="gpu-operator",pod="{exporter}",container="nvidia-dcgm-exporter",'
        f'gpu="{segment.gpu}",UUID="{node.uuid(segment.gpu)}",device="nvidia{segment.gpu}",'
        f'modelName="{node.model_name}",Hostname="{node.name}"'
    )
    if segment.instance is not None:
        labels += f',GPU_I_ID="{segment.instance}",GPU_I_PROFILE="{node.kind.profile}"'
    if segment.pod is None:
        return labels
    pod = node.pods[segment.pod]
    if segment.replica is not None:
        labels += f',vgpu="{segment.replica}"'
    return (
        f'{labels},exported_namespace="{pod.namespace}",exported_pod="{pod.name}",'
        'exported_container="main"'
    )


# ---------------------------------------------------------------- kube-state-metrics


def _states(series: Iterable[_Series], first: int, last: int) -> Iterator[str]:
    """Yield the lines of samples first..last (excluded) of kube-state-metrics series."""
    for metric, labels, value, begin, end in series:
        at = _STATE_STAMPS[max(first, begin) : min(last, end)]
        if at:
            yield _constant(metric, f'cluster="{CLUSTER}",{labels}', value, at)


def _node_series(node: FleetNode) -> Iterator[_Series]:
    of_node = f'node="{node.name}"'
    ever = (0, len(_STATE_STAMPS))
    labels = "".join(f',label_{sanitise(k)}="{v}"' for k, v in sorted(node.labels.items()))
    yield "kube_node_created", of_node, f"{FIRST - 40 * 86400}", *ever
    yield "kube_node_labels", f"{of_node}{labels}", "1", *ever
    yield "kube_node_spec_unschedulable", of_node, "0", *ever
    ready = f'{of_node},condition="Ready",status="true"'
    yield "kube_node_status_condition", ready, "1", *ever
    for metric in ("kube_node_status_capacity", "kube_node_status_allocatable"):
        units = f"{node.kind.per_gpu * GPUS_PER_NODE}"
        yield metric, f"{of_node},{_resource(node)}", units, *ever


def _resource(node: FleetNode) -> str:
    return f'resource="{sanitise(node.kind.resource)}",unit="integer"'


def _pod_series(node: FleetNode, pod: FleetPod) -> Iterator[_Series]:
    made, bound, started = map(_state_index, (pod.created, pod.bound, pod.started))
    ended, gone = _state_index(pod.ended), _state_index(pod.gone)
    key = f'namespace="{pod.namespace}",pod="{pod.name}",uid="{pod.uid}"'
    kind, owner = pod.controller
    for name, first, last in (("", made, bound), (node.name, bound, gone)):
        request = f'{key},container="main",node="{name}",{_resource(node)}'
        yield "kube_pod_container_resource_requests", request, str(pod.units), first, last
        info = (
            f'{key},host_ip="",node="{name}",created_by_kind="{kind}",'
            f'created_by_name="{owner}",priority_class=""'
        )
        yield "kube_pod_info", info, "1", first, last
    owned = f'{key},owner_kind="{kind}",owner_name="{owner}",owner_is_controller="true"'
    yield "kube_pod_owner", owned, "1", made, gone
    yield "kube_pod_created", key, str(pod.created), made, gone
    yield "kube_pod_status_scheduled_time", key, str(pod.bound), bound, gone
    yield "kube_pod_start_time", key, str(pod.bound + 1), bound, gone
    container = f'{key},container="main"'
    yield "kube_pod_container_state_started", container, str(pod.started), started, ended
    running = "kube_pod_container_status_running"
    for value, first, last in (("0", bound, started), ("1", started, ended), ("0", ended, gone)):
        yield running, container, value, first, last
    for phase in ("Succeeded", "Failed"):
        of_phase = f'{key},phase="{phase}"'
        yield "kube_pod_status_phase", of_phase, "0", made, ended
        yield "kube_pod_status_phase", of_phase, "01"[phase == "Succeeded"], ended, gone
    if pod.ended is not None:
        yield "kube_pod_completion_time", key, str(pod.ended), ended, gone


def _controllers(pods: Iterable[FleetPod]) -> Iterator[_Series]:
    """Yield what kube-state-metrics says of the owners between pods and their top owner."""
    ever = (0, len(_STATE_STAMPS))
    for namespace, kind, name, top, top_name in sorted(
        {(p.namespace, *p.controller, p.kind, p.owner) for p in pods}
    ):
        owner = f'owner_kind="{top}",owner_name="{top_name}",owner_is_controller="true"'
        if kind == "ReplicaSet":
            labels = f'namespace="{namespace}",replicaset="{name}",{owner}'
            yield "kube_replicaset_owner", labels, "1", *ever
        elif kind == "Job":
            if top == "Job":
                owner = 'owner_kind="",owner_name="",owner_is_controller=""'
            yield "kube_job_owner", f'namespace="{namespace}",job_name="{name}",{owner}', "1", *ever


# ---------------------------------------------------------------- lines and sample numbers


def _lines(metric: str, labels: str, values: Sequence[str], stamps: Sequence[str]) -> str:
    head = f"{metric}{{{labels}}} "
    return "".join([f"{head}{v} {at}\n" for v, at in zip(values, stamps, strict=True)])


def _constant(metric: str, labels: str, value: str, stamps: Sequence[str]) -> str:
    head = f"{metric}{{{labels}}} {value} "
    return head + ("\n" + head).join(stamps) + "\n"


def _state_index(at: int | None) -> int:
    """Return the number of the first scrape of kube-state-metrics at or after `at`."""
    if at is None or at >= LAST:
        return len(_STATE_STAMPS)
    return sample_index(at, _STATE_PHASE)
