"""What a look finds: events, jobs, quotas and gangs of a small cluster."""

from typing import Any

from apps.accounts.domain.structs import replace
from apps.clusters.domain.observed.objects import (
    ControllerSnapshot,
    EventSnapshot,
    ObservedKind,
    ObservedObject,
    PodGroupSnapshot,
    PodSnapshot,
)
from tests.pending.cluster_states import AT, GPU, pod, seen

CLASS = "gpu.nvidia.com"
ZERO = "0/1 nodes are available: "


def event(
    reason: str, about: ObservedObject, message: str, *, component: str = "", last: float = AT
) -> ObservedObject:
    body = EventSnapshot(
        *(about.kind.short, about.name, about.uid, reason, message), component=component, last=last
    )
    return seen(ObservedKind.EVENT, f"{about.name}.{reason}.{last}", body)


def job(
    name: str, wanted: int = 2, pods: int = 0, gpus: float = 4, **fields: Any
) -> ObservedObject:
    requests = {GPU: gpus, "cpu": 1.0}
    body = ControllerSnapshot(
        created=AT - 900, wanted=wanted, pods=pods, requests=requests, **fields
    )
    return seen(ObservedKind.JOB, name, body)


REFUSED = (
    'Error creating: pods "x" is forbidden: exceeded quota: gpus, requested:'
    " requests.nvidia.com/gpu=4, used: requests.nvidia.com/gpu=6, limited:"
    " requests.nvidia.com/gpu=8"
)


def group(
    name: str, kind: ObservedKind = ObservedKind.VOLCANO_POD_GROUP, **fields: Any
) -> ObservedObject:
    values: dict[str, Any] = {"created": AT - 600, "min_member": 4, "requests": {GPU: 16.0}}
    return seen(kind, name, PodGroupSnapshot(**(values | fields)))


OUT_OF = (
    "Pod was rejected: Node didn't have enough resource: nvidia.com/gpu, requested: 4, used: 6,"
    " capacity: 8"
)


def turned_away(name: str, **fields: Any) -> ObservedObject:
    values: dict[str, Any] = {"phase": "Failed", "node": "a", "bound": AT - 60}
    values["reason"] = "OutOfnvidia.com/gpu"
    one = pod(name, 4, **(values | fields))
    assert isinstance(one.body, PodSnapshot)
    return replace(one, body=replace(one.body, message=OUT_OF))
