"""Objects as users of the fault scenarios write them."""

from collections.abc import Mapping, Sequence
from typing import Any

from simulator.fleet import GPU
from simulator.scheduler.gangs import API_VERSION as VOLCANO_VERSION
from simulator.scheduler.gangs import GROUP, SCHEDULER
from simulator.scheduler.store import Object

IMAGE = "registry.example/ml/train:1.0"
PRODUCT = "NVIDIA-A10"
RACK = "example.com/rack"
_GPU_TOLERATION = {"key": GPU, "operator": "Exists", "effect": "NoSchedule"}
MINUTE = 60


def template(
    rack: str = "", *, gpus: int = 1, minutes: int = 0, resource: str = GPU, cpu: int = 2,
    gib: int = 8, select: Mapping[str, str] | None = None, tolerate: Sequence[Object] = (),
    command: Sequence[str] = (), image: str = IMAGE, port: int = 0, claim: str = "",
    annotations: Mapping[str, str] | None = None, labels: Mapping[str, str] | None = None,
    **spec: Any,
) -> Object:  # fmt: skip
    """Return a pod template for a rack of A10 nodes, that runs for so long, 0: until it is let go.

    `spec` is added as it stands.
    """
    amounts: Object = {"cpu": str(cpu), "memory": f"{gib}Gi"}
    resources: Object = {"requests": amounts}
    if claim:
        resources["claims"] = [{"name": "gpu"}]
        spec["resourceClaims"] = [{"name": "gpu", "resourceClaimName": claim}]
    elif gpus:
        resources = {
            "limits": {resource: str(gpus)},
            "requests": {**amounts, resource: str(gpus)},
        }
    container: Object = {
        "name": "main",
        "image": image,
        "command": list(command) or ["sleep", str(minutes * MINUTE) if minutes else "infinity"],
        "resources": resources,
        "terminationMessagePath": "/dev/termination-log",
        "terminationMessagePolicy": "File",
        "imagePullPolicy": "IfNotPresent",
    }
    if port:
        container["ports"] = [{"containerPort": port, "hostPort": port, "protocol": "TCP"}]
    selector = dict(select or {})
    if rack:
        selector = {"nvidia.com/gpu.product": PRODUCT, RACK: rack, **selector}
    metadata: Object = {"labels": dict(labels or {})}
    if annotations:
        metadata["annotations"] = dict(annotations)
    return {
        "metadata": metadata,
        "spec": {
            "containers": [container],
            **({"nodeSelector": selector} if selector else {}),
            "tolerations": [dict(_GPU_TOLERATION), *tolerate],
            **spec,
        },
    }


def pod(namespace: str, name: str, of: Object) -> Object:
    """Return a pod without a controller."""
    metadata = {"name": name, "namespace": namespace, "labels": {"app": name}}
    metadata["labels"] |= of["metadata"]["labels"]
    if annotations := of["metadata"].get("annotations"):
        metadata["annotations"] = dict(annotations)
    return {
        "kind": "Pod",
        "apiVersion": "v1",
        "metadata": metadata,
        "spec": {"restartPolicy": "Never", **of["spec"]},
    }


def job(
    namespace: str, name: str, of: Object, *, pods: int = 1, at_once: int = 0,
    queue: str = "", priority: str = "",
) -> Object:  # fmt: skip
    labels = {"app": name}
    if queue:
        labels["kueue.x-k8s.io/queue-name"] = queue
    if priority:
        labels["kueue.x-k8s.io/priority-class"] = priority
    inner = _inner(of, name)
    inner["spec"]["restartPolicy"] = "Never"
    return {
        "kind": "Job",
        "apiVersion": "batch/v1",
        "metadata": {"name": name, "namespace": namespace, "labels": labels},
        "spec": {
            "parallelism": at_once or pods,
            "completions": pods,
            "backoffLimit": 6,
            "completionMode": "NonIndexed",
            "suspend": bool(queue),
            "template": inner,
        },
        "status": {},
    }


def deployment(namespace: str, name: str, of: Object, *, replicas: int) -> Object:
    return {
        "kind": "Deployment",
        "apiVersion": "apps/v1",
        "metadata": {"name": name, "namespace": namespace, "labels": {"app": name}},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": name}},
            "template": _inner(of, name),
            "strategy": {"type": "RollingUpdate"},
        },
        "status": {},
    }


def stateful_set(namespace: str, name: str, of: Object, *, replicas: int) -> Object:
    found = deployment(namespace, name, of, replicas=replicas)
    del found["spec"]["strategy"]
    return {**found, "kind": "StatefulSet"}


def _inner(of: Object, name: str) -> Object:
    metadata = {**of["metadata"], "labels": {"app": name, **of["metadata"]["labels"]}}
    return {"metadata": metadata, "spec": dict(of["spec"])}


def gang(namespace: str, name: str, *, members: int, queue: str) -> Object:
    """Return a PodGroup of Volcano; its pods name it (`in_gang`)."""
    return {
        "kind": "PodGroup",
        "apiVersion": VOLCANO_VERSION,
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "minMember": members,
            "minResources": {GPU: str(members)},
            "queue": queue,
        },
        "status": {"phase": "Pending"},
    }


def in_gang(name: str, of: Object) -> Object:
    metadata = {**of["metadata"], "annotations": {GROUP: name}}
    return {"metadata": metadata, "spec": {**of["spec"], "schedulerName": SCHEDULER}}


def volume(namespace: str, name: str) -> Object:
    """Return a PersistentVolumeClaim; its volume is there at once."""
    return {
        "kind": "PersistentVolumeClaim",
        "apiVersion": "v1",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "accessModes": ["ReadWriteMany"],
            "resources": {"requests": {"storage": "200Gi"}},
            "storageClassName": "shared",
        },
    }


def claim(namespace: str, name: str, device_class: str, *, memory: str = "") -> Object:
    """Return a ResourceClaim for one device, of so much memory at least."""
    exactly: Object = {
        "deviceClassName": device_class,
        "allocationMode": "ExactCount",
        "count": 1,
    }
    if memory:
        text = f"device.capacity['gpu.nvidia.com'].memory.compareTo(quantity('{memory}')) >= 0"
        exactly["selectors"] = [{"cel": {"expression": text}}]
    return {
        "kind": "ResourceClaim",
        "apiVersion": "resource.k8s.io/v1",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}},
        "status": {},
    }
