"""Clusters to look at: by hand, object by object, and from recorded answers of API servers."""

import json
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

from apps.clusters.domain.devices.resource_claims import ClaimUnits, pod_claims
from apps.clusters.domain.kube_json import request
from apps.clusters.domain.observed.extract import observed_object, template_classes
from apps.clusters.domain.observed.objects import (
    Body,
    ClaimRequest,
    ClaimSnapshot,
    Condition,
    NodeSnapshot,
    ObservedKind,
    ObservedObject,
    Placement,
    PodSnapshot,
    Toleration,
)
from apps.clusters.domain.observed.pods import ExtractionContext
from apps.clusters.domain.resources import is_gpu
from apps.pending.domain.diagnose import diagnose_cluster
from apps.pending.domain.diagnosis import BoundPod, ClusterState, PendingItem

RECORDINGS = Path(__file__).parent.parent / "recordings"
AT = 1_800_000_000.0
GPU = "nvidia.com/gpu"
GIB = 2.0**30
Keeps = Callable[[ObservedKind, dict[str, Any]], bool]
KUBE_LISTS = {
    ObservedKind.POD: "pods",
    ObservedKind.NODE: "nodes",
    ObservedKind.EVENT: "events",
    ObservedKind.REPLICA_SET: "replicasets",
    ObservedKind.JOB: "jobs",
    ObservedKind.STATEFUL_SET: "statefulsets",
    ObservedKind.RESOURCE_QUOTA: "resourcequotas",
    ObservedKind.RESOURCE_CLAIM: "resourceclaims",
}
DEFAULT_CLASSES = ("gpu.nvidia.com", "mig.nvidia.com")


def is_gpu_name(name: str) -> bool:
    """Say whether a resource or device class is one of GPUs."""
    return is_gpu(name) or name in DEFAULT_CLASSES


# ---------------------------------------------------------------- by hand


def world(
    *objects: ObservedObject, holders: Iterable[BoundPod] = (), at: float = AT
) -> ClusterState:
    """Return a state of these objects."""
    by_kind: dict[ObservedKind, list[ObservedObject]] = defaultdict(list)
    for one in objects:
        by_kind[one.kind].append(one)
    return ClusterState(at, by_kind, holders=tuple(holders), is_gpu=is_gpu_name)


def seen(
    kind: ObservedKind, name: str, body: Body, namespace: str = "team", uid: str = ""
) -> ObservedObject:
    """Return an object that was first seen an hour ago."""
    made = AT - 3600
    return ObservedObject(kind, uid or f"{namespace}-{name}", namespace, name, body, made, made)


def node(
    name: str,
    gpus: float = 8,
    used: float = 0,
    *,
    resource: str = GPU,
    labels: Mapping[str, str] | None = None,
    cpu: float = 96,
    cpu_used: float = 0,
    **fields: Any,
) -> ObservedObject:
    """Return a node with so many GPUs, and so many of them used."""
    allocatable = {"cpu": cpu, "memory": 1000 * GIB, "pods": 110.0, resource: float(gpus)}
    body = NodeSnapshot(
        labels={"kubernetes.io/hostname": name, **(labels or {})},
        allocatable=allocatable | fields.pop("more", {}),
        used={resource: float(used), "cpu": cpu_used} | fields.pop("more_used", {}),
        **fields,
    )
    return seen(ObservedKind.NODE, name, body, namespace="")


def unschedulable(message: str) -> Condition:
    """Return the condition of a pod that the scheduler could not place."""
    return Condition("PodScheduled", "False", "Unschedulable", message, AT - 600)


def pod(
    name: str,
    gpus: float = 1,
    message: str = "",
    *,
    resource: str = GPU,
    cpu: float = 4,
    select: Mapping[str, str] | None = None,
    tolerations: tuple[Toleration, ...] = (),
    namespace: str = "team",
    **fields: Any,
) -> ObservedObject:
    """Return a pod that waits for so many GPUs; `message` is the scheduler's."""
    requests = {"cpu": cpu, "memory": 16 * GIB} | ({resource: float(gpus)} if gpus else {})
    placement = fields.pop("placement", None) or Placement(
        node_selector=select or {}, tolerations=tolerations
    )
    values: dict[str, Any] = {
        "owner_kind": "Pod",
        "owner": name,
        "phase": "Pending",
        "scheduled": unschedulable(message) if message else None,
        "requests": requests,
        "placement": placement,
    }
    body = PodSnapshot(created=AT - 1800, **(values | fields))
    return seen(ObservedKind.POD, name, body, namespace)


def holder(name: str, on: str, gpus: float, *, running: bool = True, **fields: Any) -> BoundPod:
    """Return a pod that holds GPUs on a node."""
    return BoundPod(
        uid=f"uid-{name}",
        namespace="others",
        name=name,
        owner_kind="Pod",
        owner=name,
        node=on,
        requests={GPU: float(gpus)},
        running=running,
        **fields,
    )


def claim(name: str, device_class: str = "gpu.nvidia.com", **fields: Any) -> ObservedObject:
    """Return a ResourceClaim that is not allocated."""
    wish = ClaimRequest("gpu", device_class, selectors=fields.pop("selectors", ()))
    body = ClaimSnapshot(created=AT - 1800, requests=(wish,), **fields)
    return seen(ObservedKind.RESOURCE_CLAIM, name, body)


def only(state: ClusterState, name: str = "") -> PendingItem:
    """Return the one thing that waits, of this name where given."""
    found = [one for one in diagnose_cluster(state) if not name or one.name == name]
    assert len(found) == 1, [f"{one.kind} {one.name}" for one in found]
    return found[0]


# ---------------------------------------------------------------- recorded


def recorded(
    folder: str,
    lists: Mapping[ObservedKind, str],
    *,
    named: Collection[str] = (),
    keeps: Keeps = lambda _kind, _item: True,
) -> ClusterState:
    """Return the state of a recorded cluster; `lists` names the file of each kind.

    `named` are resources that tiers name beside those of GPUs; `keeps` tells which objects were
    there.

    What the watch would add is added the same way: what pods hold of nodes, and free devices.
    """
    raw = {
        kind: [item for item in items_of(folder, name) if keeps(kind, item)]
        for kind, name in lists.items()
    }
    claims = raw.get(ObservedKind.RESOURCE_CLAIM, [])
    beside = _beside(folder, claims, named)
    by_kind: dict[ObservedKind, list[ObservedObject]] = {}
    for kind, items in raw.items():
        found = [_sighting(kind, item, beside(item)) for item in items]
        by_kind[kind] = [one for one in found if one is not None]
    pods = raw.get(ObservedKind.POD, [])
    by_kind[ObservedKind.NODE] = [
        _as_used(one, pods, folder) for one in by_kind.get(ObservedKind.NODE, [])
    ]
    newest = max((s.first for found in by_kind.values() for s in found), default=AT)
    holders = [one for item in pods if (one := _holder(item)) is not None]
    return ClusterState(newest + 900, by_kind, holders=holders, is_gpu=is_gpu_name)


def expected(folder: str) -> dict[str, Any]:
    """Return what is known of a recorded cluster by design."""
    found: dict[str, Any] = json.loads((RECORDINGS / folder / "expected.json").read_text())
    return found


def items_of(folder: str, name: str) -> list[dict[str, Any]]:
    path = RECORDINGS / folder / "lists" / f"{name}.json"
    return list(json.loads(path.read_text())["items"]) if path.exists() else []


def _beside(folder: str, claims: list[dict[str, Any]], named: Collection[str]) -> Any:
    templates = {
        (one["metadata"]["namespace"], one["metadata"]["name"]): template_classes(one)
        for one in items_of(folder, "resourceclaimtemplates")
    }
    asks = {(one["metadata"]["namespace"], one["metadata"]["name"]): _ask(one) for one in claims}

    def of(item: dict[str, Any]) -> ExtractionContext:
        namespace = item["metadata"].get("namespace", "")
        found = pod_claims(item, lambda name: asks.get((namespace, name)))
        return ExtractionContext(named, None, found, is_gpu_name, templates)

    return of


def _ask(item: dict[str, Any]) -> ClaimUnits:
    requests: dict[str, float] = defaultdict(float)
    for one in item["spec"]["devices"]["requests"]:
        wish = one.get("exactly") or one["firstAvailable"][0]
        requests[wish["deviceClassName"]] += wish.get("count", 1)
    return ClaimUnits(item["metadata"]["uid"], dict(requests))


def _sighting(
    kind: ObservedKind, item: dict[str, Any], beside: ExtractionContext
) -> ObservedObject | None:
    body = observed_object(kind, item, beside)
    if body is None:
        return None
    metadata = item["metadata"]
    at = AT - 3600
    return ObservedObject(
        kind, metadata["uid"], metadata.get("namespace", ""), metadata["name"], body, at, at
    )


def _as_used(one: ObservedObject, pods: list[dict[str, Any]], folder: str) -> ObservedObject:
    body = one.body
    assert isinstance(body, NodeSnapshot)
    used: dict[str, float] = defaultdict(float)
    for item in pods:
        over = item["status"]["phase"] in ("Succeeded", "Failed")
        if item["spec"].get("nodeName") != one.name or over:
            continue
        used["pods"] += 1
        for resource, units in request(item["spec"]).items():
            used[resource] += units
    devices = _devices(folder, one.name)
    taken = sum(_on(item, one.name) for item in items_of(folder, "resourceclaims"))
    free = {name: units - taken for name, units in devices.items()}
    return ObservedObject(
        *(one.kind, one.uid, one.namespace, one.name),
        body=NodeSnapshot(
            *(body.labels, body.taints, body.allocatable, dict(used), devices, free),
            *(body.ready, body.unschedulable),
        ),
        first=one.first,
        changed=one.changed,
    )


def _devices(folder: str, name: str) -> dict[str, int]:
    slices = [s for s in items_of(folder, "resourceslices") if s["spec"].get("nodeName") == name]
    count = sum(len(s["spec"]["devices"]) for s in slices)
    return {"gpu.nvidia.com": count} if count else {}


def _on(item: dict[str, Any], name: str) -> int:
    results = (item.get("status") or {}).get("allocation", {}).get("devices", {})
    return sum(one["pool"] == name for one in results.get("results", ()))


def _holder(item: dict[str, Any]) -> BoundPod | None:
    requests = {r: u for r, u in request(item["spec"]).items() if is_gpu_name(r)}
    on = item["spec"].get("nodeName", "")
    if not on or not requests or item["status"]["phase"] in ("Succeeded", "Failed"):
        return None
    metadata = item["metadata"]
    return BoundPod(
        metadata["uid"],
        metadata["namespace"],
        metadata["name"],
        "Pod",
        metadata["name"],
        on,
        requests,
    )
