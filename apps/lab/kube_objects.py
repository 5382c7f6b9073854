"""Kubernetes objects as a real API server writes them, as of an instant of the scenario."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from apps.lab import identity
from apps.lab.fleet import FOREVER, GPU, Controller, Node, Pod
from apps.lab.kube_specs import CONTAINER, IMAGE, node_resources, pod_ip, pod_requests
from apps.lab.scenarios.base import Namespace, Quota

Object = dict[str, Any]

_API_VERSIONS = {"Job": "batch/v1", "CronJob": "batch/v1"}
_TERMINATION = {"terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File"}
_TOLERATIONS = [
    {
        "key": f"node.kubernetes.io/{key}",
        "operator": "Exists",
        "effect": "NoExecute",
        "tolerationSeconds": 300,
    }
    for key in ("not-ready", "unreachable")
]


def rfc3339(seconds: int) -> str:
    """Return a time as the API writes it: UTC, whole seconds."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def version(seconds: int) -> str:
    """Return the resourceVersion of a change: the lab counts in milliseconds."""
    return str(seconds * 1000)


def api_version(kind: str) -> str:
    return _API_VERSIONS.get(kind, "apps/v1")


# ---------------------------------------------------------------- pods


def pod_object(pod: Pod, at: int) -> Object:
    """Return a pod as of `at`, which must lie between its creation and its deletion."""
    return {
        "kind": "Pod",
        "apiVersion": "v1",
        "metadata": _pod_metadata(pod, at),
        "spec": _pod_spec(pod, at),
        "status": _pod_status(pod, at),
    }


def _pod_metadata(pod: Pod, at: int) -> Object:
    owner = pod.owner
    metadata: Object = {
        "name": pod.name,
        "generateName": f"{owner.name}-",
        "namespace": pod.namespace,
        "uid": pod.uid,
        "resourceVersion": version(pod.changed(at)),
        "generation": 1,
        "creationTimestamp": rfc3339(pod.created),
        "labels": {"app": owner.name, **_owner_labels(owner)},
        "ownerReferences": [owner_reference(owner)],
    }
    if owner.kind == "StatefulSet":
        metadata["labels"]["statefulset.kubernetes.io/pod-name"] = pod.name
    if owner.kind == "Job":
        metadata["finalizers"] = ["batch.kubernetes.io/job-tracking"]
    elif pod.finished <= at:
        # Scaled down: the kubelet has made it terminal, a finalizer still holds the object.
        metadata["deletionTimestamp"] = rfc3339(pod.finished)
        metadata["deletionGracePeriodSeconds"] = 30
        metadata["finalizers"] = ["lab.example/clean-up"]
    return metadata


def _owner_labels(owner: Controller) -> dict[str, str]:
    if owner.kind == "ReplicaSet":
        return {"pod-template-hash": owner.name.rsplit("-", 1)[-1]}
    if owner.kind == "Job":
        return {
            "batch.kubernetes.io/controller-uid": owner.uid,
            "batch.kubernetes.io/job-name": owner.name,
            "controller-uid": owner.uid,
            "job-name": owner.name,
        }
    return {}


def owner_reference(owner: Controller) -> Object:
    return {
        "apiVersion": api_version(owner.kind),
        "kind": owner.kind,
        "name": owner.name,
        "uid": owner.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }


def _pod_spec(pod: Pod, at: int) -> Object:
    spec = _template_spec(pod.units, "Never" if pod.owner.kind == "Job" else "Always")
    spec |= {
        "serviceAccountName": "default",
        "serviceAccount": "default",
        "tolerations": _TOLERATIONS,
        "priority": 0,
        "enableServiceLinks": True,
        "preemptionPolicy": "PreemptLowerPriority",
    }
    if pod.node_selector:
        spec["nodeSelector"] = dict(pod.node_selector)
    if pod.bound <= at:
        spec["nodeName"] = pod.node
    return spec


def _template_spec(units: int, restart_policy: str) -> Object:
    quantities = {name: quantity for name, (_, _, quantity) in pod_requests(units).items()}
    container = {
        "name": CONTAINER,
        "image": IMAGE,
        "resources": {"limits": {GPU: quantities[GPU]}, "requests": quantities},
        **_TERMINATION,
        "imagePullPolicy": "IfNotPresent",
    }
    return {
        "containers": [container],
        "restartPolicy": restart_policy,
        "terminationGracePeriodSeconds": 30,
        "dnsPolicy": "ClusterFirst",
        "securityContext": {},
        "schedulerName": "default-scheduler",
    }


def _pod_status(pod: Pod, at: int) -> Object:
    if pod.bound > at:
        return {
            "phase": "Pending",
            "conditions": [
                {
                    "type": "PodScheduled",
                    "observedGeneration": 1,
                    "status": "False",
                    "lastProbeTime": None,
                    "lastTransitionTime": rfc3339(pod.created),
                    "reason": "Unschedulable",
                    "message": pod.waiting_message,
                }
            ],
            "qosClass": "Burstable",
        }
    status: Object = {
        "phase": _phase(pod, at),
        "conditions": _conditions(pod, at),
        "hostIP": pod.host_ip,
        "hostIPs": [{"ip": pod.host_ip}],
        "startTime": rfc3339(pod.bound),
        "containerStatuses": [_container_status(pod, at)],
        "qosClass": "Burstable",
    }
    if pod.started <= at:
        status["podIP"] = pod_ip(pod)
        status["podIPs"] = [{"ip": pod_ip(pod)}]
    return status


def _phase(pod: Pod, at: int) -> str:
    if pod.finished <= at:
        return "Succeeded"
    return "Running" if pod.started <= at else "Pending"


def _conditions(pod: Pod, at: int) -> list[Object]:
    running = pod.started <= at < pod.finished
    if pod.finished <= at:
        since, reason = pod.finished, "PodCompleted"
    elif running:
        since, reason = pod.started, ""
    else:
        since, reason = pod.bound, "ContainersNotReady"
    return [
        _condition("PodScheduled", holds=True, since=pod.bound),
        _condition("PodReadyToStartContainers", holds=running, since=since),
        _condition("Initialized", holds=True, since=pod.bound),
        _condition("Ready", holds=running, since=since, reason=reason),
        _condition("ContainersReady", holds=running, since=since, reason=reason),
    ]


def _condition(kind: str, *, holds: bool, since: int, reason: str = "") -> Object:
    condition: Object = {
        "type": kind,
        "status": "True" if holds else "False",
        "lastProbeTime": None,
        "lastTransitionTime": rfc3339(since),
    }
    return {**condition, "reason": reason} if reason else condition


def _container_status(pod: Pod, at: int) -> Object:
    running = pod.started <= at < pod.finished
    container_id = f"containerd://{identity.uid('container', pod.uid).replace('-', '') * 2}"
    status: Object = {
        "name": CONTAINER,
        "state": _container_state(pod, at, container_id),
        "lastState": {},
        "ready": running,
        "restartCount": 0,
        "image": IMAGE,
        "imageID": "",
        "started": running,
    }
    if pod.started <= at:
        status["containerID"] = container_id
    return status


def _container_state(pod: Pod, at: int, container_id: str) -> Object:
    if pod.started > at:
        return {"waiting": {"reason": "ContainerCreating"}}
    if pod.finished > at:
        return {"running": {"startedAt": rfc3339(pod.started)}}
    return {
        "terminated": {
            "exitCode": 0,
            "reason": "Completed",
            "startedAt": rfc3339(pod.started),
            "finishedAt": rfc3339(pod.finished),
            "containerID": container_id,
        }
    }


# ---------------------------------------------------------------- nodes, namespaces, quotas


def node_object(node: Node) -> Object:
    amounts = {name: quantity for name, (_, _, quantity) in node_resources(node).items()}
    return {
        "kind": "Node",
        "apiVersion": "v1",
        "metadata": {
            "name": node.name,
            "uid": identity.uid("node", node.name, node.devices[0].uuid),
            "resourceVersion": version(node.created),
            "creationTimestamp": rfc3339(node.created),
            "labels": dict(sorted(node.labels.items())),
            "annotations": {"volumes.kubernetes.io/controller-managed-attach-detach": "true"},
        },
        "spec": {"podCIDR": f"10.244.{node.position % 250}.0/24"},
        "status": {
            "capacity": amounts,
            "allocatable": dict(amounts),
            "conditions": _node_conditions(node),
            "addresses": [
                {"type": "InternalIP", "address": node.ip},
                {"type": "Hostname", "address": node.name},
            ],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": 10250}},
            "nodeInfo": {
                "kernelVersion": "6.8.0-79-generic",
                "osImage": "Ubuntu 24.04.3 LTS",
                "containerRuntimeVersion": "containerd://2.1.4",
                "kubeletVersion": "v1.36.2",
                "operatingSystem": "linux",
                "architecture": "amd64",
            },
        },
    }


def _node_conditions(node: Node) -> list[Object]:
    texts = {
        "MemoryPressure": ("False", "KubeletHasSufficientMemory", "has sufficient memory available"),
        "DiskPressure": ("False", "KubeletHasNoDiskPressure", "has no disk pressure"),
        "PIDPressure": ("False", "KubeletHasSufficientPID", "has sufficient PID available"),
        "Ready": ("True", "KubeletReady", "is posting ready status"),
    }
    return [
        {
            "type": kind,
            "status": status,
            "lastHeartbeatTime": rfc3339(node.created),
            "lastTransitionTime": rfc3339(node.created),
            "reason": reason,
            "message": f"kubelet {text}",
        }
        for kind, (status, reason, text) in texts.items()
    ]


def namespace_object(namespace: Namespace) -> Object:
    return {
        "kind": "Namespace",
        "apiVersion": "v1",
        "metadata": {
            "name": namespace.name,
            "uid": namespace.uid,
            "resourceVersion": version(namespace.created),
            "creationTimestamp": rfc3339(namespace.created),
            "labels": {"kubernetes.io/metadata.name": namespace.name, **namespace.labels},
        },
        "spec": {"finalizers": ["kubernetes"]},
        "status": {"phase": "Active"},
    }


def quota_object(quota: Quota, *, hard: int, used: int, changed: int) -> Object:
    """Return a ResourceQuota; `used` counts every pod that has not ended, waiting ones too."""
    key = f"requests.{GPU}"
    return {
        "kind": "ResourceQuota",
        "apiVersion": "v1",
        "metadata": {
            "name": quota.name,
            "namespace": quota.namespace,
            "uid": quota.uid,
            "resourceVersion": version(changed),
            "creationTimestamp": rfc3339(quota.created),
        },
        "spec": {"hard": {key: str(hard)}},
        "status": {"hard": {key: str(hard)}, "used": {key: str(used)}},
    }


# ---------------------------------------------------------------- controllers


def controller_object(
    controller: Controller, *, replicas: int, succeeded: int, changed: int
) -> Object:
    """Return a controller with `replicas` pods that have not ended and `succeeded` that have."""
    metadata: Object = {
        "name": controller.name,
        "namespace": controller.namespace,
        "uid": controller.uid,
        "resourceVersion": version(changed),
        "generation": 1,
        "creationTimestamp": rfc3339(controller.created),
        "labels": {"app": controller.name},
    }
    if controller.parent is not None:
        metadata["ownerReferences"] = [owner_reference(controller.parent)]
    return {
        "kind": controller.kind,
        "apiVersion": api_version(controller.kind),
        "metadata": metadata,
        "spec": _controller_spec(controller, replicas),
        "status": _controller_status(controller, replicas, succeeded),
    }


def _controller_spec(controller: Controller, replicas: int) -> Object:
    if controller.kind == "CronJob":
        return {"schedule": "0 * * * *", "suspend": False, "concurrencyPolicy": "Allow"}
    if controller.kind == "Job":
        return {"parallelism": max(replicas, 1), "backoffLimit": 6, "suspend": False}
    return {"replicas": replicas, "selector": {"matchLabels": {"app": controller.name}}}


def _controller_status(controller: Controller, replicas: int, succeeded: int) -> Object:
    if controller.kind == "CronJob":
        return {}
    if controller.kind == "Job":
        return {
            "startTime": rfc3339(controller.created),
            "active": replicas,
            "ready": replicas,
            "succeeded": succeeded,
        }
    return {"replicas": replicas, "observedGeneration": 1}


# ---------------------------------------------------------------- events


def scheduling_event(pod: Pod, at: int) -> Object:
    """Return the scheduler's event on a pod: refused at its creation, or bound at `at`."""
    bound = at == pod.bound
    name = f"{pod.name}.{identity.uid('event', pod.uid, at).replace('-', '')[:16]}"
    return {
        "kind": "Event",
        "apiVersion": "v1",
        "metadata": {
            "name": name,
            "namespace": pod.namespace,
            "uid": identity.uid("event", pod.uid, at, "uid"),
            "resourceVersion": version(at),
            "creationTimestamp": rfc3339(at),
        },
        "involvedObject": {
            "kind": "Pod",
            "namespace": pod.namespace,
            "name": pod.name,
            "uid": pod.uid,
            "apiVersion": "v1",
            "resourceVersion": version(pod.created),
        },
        "reason": "Scheduled" if bound else "FailedScheduling",
        "message": _event_message(pod, bound=bound),
        "source": {},
        "firstTimestamp": None,
        "lastTimestamp": None,
        "type": "Normal" if bound else "Warning",
        "eventTime": rfc3339(at).replace("Z", ".000000Z"),
        "action": "Binding" if bound else "Scheduling",
        "reportingComponent": "default-scheduler",
        "reportingInstance": "default-scheduler-lab",
    }


def _event_message(pod: Pod, *, bound: bool) -> str:
    if bound:
        return f"Successfully assigned {pod.namespace}/{pod.name} to {pod.node}"
    return pod.waiting_message


def event_times(pod: Pod) -> list[int]:
    """Return when the scheduler said something about a pod."""
    refused = [] if pod.bound == pod.created else [pod.created]
    return [*refused, *([pod.bound] if pod.bound < FOREVER else [])]


def strip_kind(item: Mapping[str, Any]) -> Object:
    """Return an object as lists carry it: kind and apiVersion stand on the list alone."""
    return {key: value for key, value in item.items() if key not in {"kind", "apiVersion"}}
