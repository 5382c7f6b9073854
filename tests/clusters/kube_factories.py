"""Small Kubernetes objects for tests, as an API server writes them; times in Unix seconds."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from apps.clusters.domain.pods.kube_objects import pod_record
from apps.clusters.domain.pods.ledger import PodRecord, nearest_owner
from apps.clusters.domain.window import from_seconds
from apps.clusters.models import NodeInterval, Pod

GPU = "nvidia.com/gpu"
PRODUCT = "nvidia.com/gpu.product"
A100 = "NVIDIA-A100-SXM4-80GB"

# 2026-03-02 00:00 UTC, a Monday; times in tests are offsets from it.
T0 = 1_772_409_600.0

State = Mapping[str, Any]


def rfc3339(seconds: float) -> str:
    """Return a time as the API server writes it."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def running(start: float) -> State:
    """Return the state of a container that has run since T0 + start."""
    return {"running": {"startedAt": rfc3339(T0 + start)}}


def terminated(start: float, end: float, reason: str = "Completed", code: int = 0) -> State:
    """Return the state of a container that ran T0 + start .. T0 + end."""
    return {
        "terminated": {
            "startedAt": rfc3339(T0 + start),
            "finishedAt": rfc3339(T0 + end),
            "reason": reason,
            "exitCode": code,
        }
    }


WAITING: State = {"waiting": {"reason": "CrashLoopBackOff"}}


def container(name: str = "main", *, units: int = 1, **fields: Any) -> dict[str, Any]:
    """Return a container that asks for `units` GPUs; 0 asks for none."""
    amounts = {GPU: str(units)} if units else {"cpu": "1"}
    return {"name": name, "resources": {"limits": amounts, "requests": amounts}, **fields}


def status(
    name: str = "main", state: State = WAITING, last: State | None = None, restarts: int = 0
) -> dict[str, Any]:
    """Return a container status."""
    return {"name": name, "state": state, "lastState": last or {}, "restartCount": restarts}


def pod(
    uid: str = "uid-1",
    *,
    name: str = "",
    namespace: str = "vision",
    created: float = 0,
    bound: float | None = None,
    node: str = "",
    phase: str = "Pending",
    reason: str = "",
    containers: Sequence[Mapping[str, Any]] | None = None,
    init: Sequence[Mapping[str, Any]] = (),
    statuses: Sequence[Mapping[str, Any]] = (),
    init_statuses: Sequence[Mapping[str, Any]] = (),
    conditions: Sequence[Mapping[str, Any]] = (),
    owner: Mapping[str, Any] | None = None,
    labels: Mapping[str, str] | None = None,
    spec: Mapping[str, Any] | None = None,
    started: float | None = None,
    grace_ends: float | None = None,
) -> dict[str, Any]:
    """Return a pod; `created`, `bound` and `started` (the kubelet's) are offsets from T0.

    `grace_ends`, another one, makes it a pod whose deletion was asked for.
    """
    scheduled = {"type": "PodScheduled", "status": "False"}
    if bound is not None:
        node = node or "node-a"
        scheduled = {**scheduled, "status": "True", "lastTransitionTime": rfc3339(T0 + bound)}
    metadata: dict[str, Any] = {
        "uid": uid,
        "name": name or f"pod-{uid}",
        "namespace": namespace,
        "creationTimestamp": rfc3339(T0 + created),
        "labels": dict(labels or {}),
    }
    if owner is not None:
        metadata["ownerReferences"] = [owner]
    if grace_ends is not None:
        metadata["deletionTimestamp"] = rfc3339(T0 + grace_ends)
    return {
        "metadata": metadata,
        "spec": {
            "containers": [container()] if containers is None else list(containers),
            "initContainers": list(init),
            **({"nodeName": node} if node else {}),
            **(spec or {}),
        },
        "status": {
            "phase": phase,
            "conditions": [scheduled, *conditions],
            "containerStatuses": list(statuses),
            "initContainerStatuses": list(init_statuses),
            **({"reason": reason} if reason else {}),
            **({} if started is None else {"startTime": rfc3339(T0 + started)}),
        },
    }


def owner(kind: str, name: str, uid: str = "", api_version: str = "apps/v1") -> dict[str, Any]:
    """Return an owner reference of a controller."""
    return {
        "apiVersion": api_version,
        "kind": kind,
        "name": name,
        "uid": uid or f"uid-{kind}-{name}",
        "controller": True,
    }


def controller(
    kind: str, name: str, *, namespace: str = "vision", above: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Return a controlling object such as a ReplicaSet."""
    metadata: dict[str, Any] = {"uid": f"uid-{kind}-{name}", "name": name, "namespace": namespace}
    if above is not None:
        metadata["ownerReferences"] = [above]
    return {"kind": kind, "metadata": metadata}


def node(
    name: str = "node-a",
    *,
    gpus: int | None = 8,
    allocatable: int | None = None,
    ready: bool = True,
    cordoned: bool = False,
    labels: Mapping[str, str] | None = None,
    ready_since: float | None = None,
) -> dict[str, Any]:
    """Return a node of A100s; `gpus` None makes it one without."""
    condition = {"type": "Ready", "status": "True" if ready else "Unknown"}
    if ready_since is not None:
        condition["lastTransitionTime"] = rfc3339(T0 + ready_since)
    usable = gpus if allocatable is None else allocatable
    marks = {PRODUCT: A100} if labels is None and gpus is not None else dict(labels or {})
    return {
        "metadata": {"uid": f"uid-{name}", "name": name, "labels": marks},
        "spec": {"unschedulable": True} if cordoned else {},
        "status": {
            "capacity": {"cpu": "64"} if gpus is None else {"cpu": "64", GPU: str(gpus)},
            "allocatable": {} if usable is None else {GPU: str(usable)},
            "conditions": [condition],
        },
    }


def namespace(name: str) -> dict[str, Any]:
    """Return a namespace."""
    return {"metadata": {"uid": f"uid-ns-{name}", "name": name}}


def record(item: Mapping[str, Any], *, deleted: float | None = None) -> PodRecord:
    """Return the record of a pod that asks for GPU; `deleted` is an offset from T0."""
    found = pod_record(
        item, owner=nearest_owner(item), deleted=None if deleted is None else T0 + deleted
    )
    assert found is not None
    return found


def at(seconds: float) -> datetime:
    """Return the time so many seconds after T0."""
    return from_seconds(T0 + seconds)


def run_pod(uid: str = "uid-1", **fields: Any) -> dict[str, Any]:
    """Return a pod that was created at 0, bound at 5 and has run since 9."""
    return pod(
        uid, **{"bound": 5, "phase": "Running", "statuses": [status(state=running(9))], **fields}
    )


def done_pod(uid: str = "uid-1", end: float = 90, **fields: Any) -> dict[str, Any]:
    """Return the same pod, completed at `end`."""
    ended = [status(state=terminated(9, end))]
    return pod(uid, **{"bound": 5, "phase": "Succeeded", "statuses": ended, **fields})


def offset(time: datetime | None) -> float | None:
    """Return a time as seconds after T0."""
    return None if time is None else round(time.timestamp() - T0, 3)


def times(row: Pod) -> list[float | None]:
    """Return created, bound, started, finished, deleted and ended as offsets from T0."""
    fields = ("created_at", "bound_at", "started_at", "finished_at", "deleted_at", "ended_at")
    return [offset(getattr(row, field)) for field in fields]


def intervals() -> list[tuple[str, float | None, float | None, float, bool, bool]]:
    """Return name, start, end, allocatable, ready and schedulable of the nodes' intervals."""
    return [
        (s.node.name, offset(s.start), offset(s.end), s.allocatable[GPU], s.ready, s.schedulable)
        for s in NodeInterval.objects.select_related("node").order_by("node__name", "start")
    ]
