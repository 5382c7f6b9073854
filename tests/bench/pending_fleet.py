"""A large cluster in which much waits: its objects as an API server lists them, and the causes.

2,000 nodes of 8 GPUs that are full but for a few GPUs, and 5,000 pods that wait, most of them for
capacity and some for everything else that a scheduler says. Give each object to a `ClusterSource`
(`FakeCluster.put(path, item)`) or serve the lists.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from msgspec import Struct, field

GPU = "nvidia.com/gpu"
NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
PODS, NODES, EVENTS = "/api/v1/pods", "/api/v1/nodes", "/api/v1/events"
NAMESPACES, QUOTAS = "/api/v1/namespaces", "/api/v1/resourcequotas"
REPLICA_SETS = "/apis/apps/v1/replicasets"
_GPUS = 8
_SPACES = 40
_PRODUCTS = ("NVIDIA-A100-SXM4-80GB", "NVIDIA-H100-80GB-HBM3", "NVIDIA-L40S", "NVIDIA-A10")
_PRODUCT = "nvidia.com/gpu.product"
_TAINTED_EVERY, _CORDONED_EVERY = 40, 50
_Object = dict[str, Any]


class WaitingFleet(Struct, frozen=True):
    """Objects by the path of their collection, and the cause of each waiting pod by its uid."""

    objects: Mapping[str, list[_Object]]
    causes: Mapping[str, str]


class _Shape(Struct):
    """What a kind of waiting pod is like; `reason` is what its own nodes are refused with."""

    cause: str
    gpus: int = 8
    selector: Mapping[str, str] = field(default_factory=dict)
    more: _Object = field(default_factory=dict)
    reason: str = f"Insufficient {GPU}"
    gated: bool = False
    silent: bool = False


def waiting_fleet(*, nodes: int = 2_000, waiting: int = 5_000) -> WaitingFleet:
    """Return the cluster; the same arguments give the same objects."""
    machines = [_node(number) for number in range(nodes)]
    kinds = Counter(machine["metadata"]["labels"][_PRODUCT] for machine in machines)
    pods = [pod for number in range(nodes) for pod in _holders(number)]
    causes: dict[str, str] = {}
    events: list[_Object] = []
    for number in range(waiting):
        pod, cause = _waiting(number, nodes, kinds)
        pods.append(pod)
        causes[pod["metadata"]["uid"]] = cause
        conditions = pod["status"].get("conditions", [])
        if conditions and conditions[0]["reason"] == "Unschedulable":
            events.append(_event(pod, conditions[0]["message"]))
    spaces = [f"team-{number:02d}" for number in range(_SPACES)]
    return WaitingFleet(
        {
            NODES: machines,
            PODS: pods,
            EVENTS: events,
            NAMESPACES: [_meta(name, "", "namespace") for name in spaces],
            QUOTAS: [_quota(name) for name in spaces],
            REPLICA_SETS: [_replica_set(name, n) for name in spaces for n in range(20)],
        },
        causes,
    )


# ---------------------------------------------------------------- nodes and who holds them


def _node(number: int) -> _Object:
    amounts = {"cpu": "128", "memory": "1024Gi", "pods": "110", GPU: str(_GPUS)}
    spec: _Object = {}
    if number % _TAINTED_EVERY == 0:
        spec["taints"] = [{"key": "dedicated", "value": "serving", "effect": "NoSchedule"}]
    if number % _CORDONED_EVERY == 1:
        spec["unschedulable"] = True
        spec["taints"] = [{"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}]
    item = _meta(f"node-{number:04d}", "", "node")
    item["metadata"]["labels"] = {
        "kubernetes.io/hostname": item["metadata"]["name"],
        _PRODUCT: _PRODUCTS[number % len(_PRODUCTS)],
        "example.com/rack": f"r{number // 20}",
    }
    ready = {"type": "Ready", "status": "True", "lastTransitionTime": _at(7 * 24)}
    status = {"capacity": amounts, "allocatable": amounts, "conditions": [ready]}
    return {**item, "spec": spec, "status": status}


def _holders(number: int) -> Iterator[_Object]:
    """Yield the pods on a node: full, or one GPU left on each third."""
    sizes = (4, 3) if number % 3 == 0 else (8,) if number % 3 == 1 else (4, 4)
    for place, gpus in enumerate(sizes):
        name = f"held-{number:04d}-{place}"
        pod = _pod(name, number, gpus, {}, {"nodeName": f"node-{number:04d}"})
        started = _at(1 + number % 90)
        pod["status"] = {
            "phase": "Running",
            "startTime": started,
            "conditions": [
                {"type": "PodScheduled", "status": "True", "lastTransitionTime": started}
            ],
            "containerStatuses": [{"name": "main", "state": {"running": {"startedAt": started}}}],
        }
        yield pod


# ---------------------------------------------------------------- what waits


def _capacity(number: int) -> _Shape:
    return _Shape("capacity", gpus=(8, 4, 2, 8)[number % 4])


_SHAPES: tuple[Callable[[int], _Shape], ...] = (
    *(_capacity,) * 13,
    lambda _: _Shape("affinity", selector={"example.com/rack": "r9999"},
                     reason="node(s) didn't match Pod's node affinity/selector"),
    lambda n: _Shape("taint", gpus=1, reason="node(s) had untolerated taint(s)", selector={
        "kubernetes.io/hostname": f"node-{n * _TAINTED_EVERY % 2000:04d}"}),
    lambda n: _Shape("cordon", gpus=1, reason="node(s) were unschedulable", selector={
        "kubernetes.io/hostname": f"node-{n * _CORDONED_EVERY % 2000 + 1:04d}"}),
    lambda _: _Shape("queue", gated=True,
                     more={"schedulingGates": [{"name": "kueue.x-k8s.io/admission"}]}),
    lambda _: _Shape("scheduler", silent=True, more={"schedulerName": "yunikorn"}),
    lambda _: _Shape("volume", reason='persistentvolumeclaim "data" not found. not found', more={
        "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]}),
    lambda _: _Shape("other", reason="node(s) were vetoed by a plug-in nobody knows"),
)  # fmt: skip


def _waiting(number: int, nodes: int, kinds: Mapping[str, int]) -> tuple[_Object, str]:
    shape = _SHAPES[number % len(_SHAPES)](number)
    selector = dict(shape.selector)
    if shape.cause in {"capacity", "other"}:
        selector[_PRODUCT] = _PRODUCTS[number % len(_PRODUCTS)]
    pod = _pod(f"waits-{number:05d}", number, shape.gpus, selector, shape.more)
    pod["status"] = {"phase": "Pending", "qosClass": "Burstable"}
    if shape.silent:
        return pod, shape.cause
    text, reason = _message(shape, selector, nodes, kinds), "Unschedulable"
    if shape.gated:
        text = "Scheduling is blocked due to non-empty scheduling gates"
        reason = "SchedulingGated"
    pod["status"]["conditions"] = [
        {
            "type": "PodScheduled",
            "status": "False",
            "lastProbeTime": None,
            "lastTransitionTime": pod["metadata"]["creationTimestamp"],
            "reason": reason,
            "message": text,
        }
    ]
    return pod, shape.cause


def _message(
    shape: _Shape, selector: Mapping[str, str], nodes: int, kinds: Mapping[str, int]
) -> str:
    """Return what the scheduler says; nodes that are tainted or cordoned stand among the others."""
    if shape.cause == "volume":
        return f"0/{nodes} nodes are available: {shape.reason}"
    own = nodes if shape.cause == "affinity" else kinds.get(selector.get(_PRODUCT, ""), 1)
    others = "node(s) didn't match Pod's node affinity/selector"
    reasons = [f"{own} {shape.reason}", *([f"{nodes - own} {others}"] if own < nodes else [])]
    head = f"0/{nodes} nodes are available: "
    return (
        f"{head}{', '.join(sorted(reasons))}. no new claims to deallocate, preemption: {head}"
        f"{nodes} Preemption is not helpful for scheduling."
    )


def _pod(
    name: str, number: int, gpus: int, selector: Mapping[str, str], more: Mapping[str, Any]
) -> _Object:
    namespace = f"team-{number % _SPACES:02d}"
    item = _meta(name, namespace, "pod", hours=number % 60)
    owner = f"serve-{number % 20:02d}"
    item["metadata"]["ownerReferences"] = [
        {
            "apiVersion": "apps/v1",
            "kind": "ReplicaSet",
            "name": owner,
            "uid": f"replicaset/{namespace}/{owner}",
            "controller": True,
        }
    ]
    requests = {"cpu": "4", "memory": "32Gi", GPU: str(gpus)}
    container = {"name": "main", "resources": {"requests": requests, "limits": {GPU: str(gpus)}}}
    spec = {
        "containers": [container],
        "schedulerName": "default-scheduler",
        "priority": 0,
        **({"nodeSelector": dict(selector)} if selector else {}),
        **more,
    }
    return {**item, "spec": spec}


def _replica_set(namespace: str, number: int) -> _Object:
    item = _meta(f"serve-{number:02d}", namespace, "replicaset", hours=90)
    return {**item, "spec": {"replicas": 12}, "status": {"replicas": 12}}


def _quota(namespace: str) -> _Object:
    amounts = {f"requests.{GPU}": "2000"}
    used = {f"requests.{GPU}": "1500"}
    item = _meta("gpus", namespace, "quota", hours=90)
    return {**item, "spec": {"hard": amounts}, "status": {"hard": amounts, "used": used}}


def _event(pod: _Object, message: str) -> _Object:
    meta = pod["metadata"]
    item = _meta(f"{meta['name']}.1", meta["namespace"], "event")
    about = {
        "kind": "Pod",
        "namespace": meta["namespace"],
        "name": meta["name"],
        "uid": meta["uid"],
        "apiVersion": "v1",
    }
    return {
        **item,
        "involvedObject": about,
        "reason": "FailedScheduling",
        "message": message,
        "type": "Warning",
        "source": {},
        "firstTimestamp": None,
        "lastTimestamp": None,
        "eventTime": _at(0).replace("Z", ".000000Z"),
        "action": "Scheduling",
        "reportingComponent": "default-scheduler",
        "reportingInstance": "default-scheduler-0",
    }


def _meta(name: str, namespace: str, kind: str, *, hours: int = 1) -> _Object:
    metadata: _Object = {
        "name": name,
        "uid": f"{kind}/{namespace}/{name}",
        "resourceVersion": "1",
        "creationTimestamp": _at(hours),
    }
    if namespace:
        metadata["namespace"] = namespace
    return {"metadata": metadata}


def _at(hours: int) -> str:
    return f"{NOW - timedelta(hours=hours):%Y-%m-%dT%H:%M:%SZ}"
