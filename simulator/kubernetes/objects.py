"""Kubernetes objects as a real API server writes them, as of an instant of the scenario."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from simulator import identity
from simulator.fleet import FOREVER, GPU, Controller, Node, NodeState, Pod, Refusal, Suspension
from simulator.kubernetes.fields.specs import CONTAINER, IMAGE, node_resources
from simulator.scenarios.base import Namespace, NodeGroup, Provisioning, Quota

Object = dict[str, Any]

KARPENTER = "karpenter.sh/v1"
AUTOSCALING = "autoscaling.x-k8s.io/v1"
_API_VERSIONS = {
    **dict.fromkeys(("Job", "CronJob"), "batch/v1"),
    "PyTorchJob": "kubeflow.org/v1",
    "MPIJob": "kubeflow.org/v2beta1",
}


def rfc3339(seconds: int) -> str:
    """Return a time as the API writes it: UTC, whole seconds."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def version(seconds: int) -> str:
    """Return the resourceVersion of a change: the lab counts in milliseconds."""
    return str(seconds * 1000)


def api_version(kind: str) -> str:
    return _API_VERSIONS.get(kind, "apps/v1")


def owner_reference(owner: Controller) -> Object:
    return {
        "apiVersion": api_version(owner.kind),
        "kind": owner.kind,
        "name": owner.name,
        "uid": owner.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }


# ---------------------------------------------------------------- nodes, namespaces, quotas


def node_object(node: Node, at: int) -> Object:
    """Return a node as of `at`."""
    state = node.state(at)
    return {
        "kind": "Node",
        "apiVersion": "v1",
        "metadata": {
            "name": node.name,
            "uid": identity.uid("node", node.name, node.devices[0].uuid),
            "resourceVersion": version(max(node.created, state.since)),
            "creationTimestamp": rfc3339(node.created),
            "labels": dict(sorted(node.labels_at(at).items())),
            "annotations": {"volumes.kubernetes.io/controller-managed-attach-detach": "true"},
        },
        "spec": _node_spec(node, state),
        "status": {
            "capacity": _quantities(node, ()),
            "allocatable": _quantities(node, state.unhealthy),
            "conditions": _node_conditions(node, state),
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


def node_pool_object(name: str, limit: int, nodes: Sequence[Node], created: int) -> Object:
    """Return a NodePool of Karpenter that has made `nodes` and may have `limit` GPUs."""
    return {
        "kind": "NodePool",
        "apiVersion": KARPENTER,
        "metadata": {
            "name": name,
            "uid": identity.uid("nodepool", name, str(created)),
            "resourceVersion": version(created),
            "creationTimestamp": rfc3339(created),
        },
        "spec": {
            "limits": {GPU: str(limit)},
            "disruption": {"consolidationPolicy": "WhenEmpty", "consolidateAfter": "10m"},
            "template": {
                "metadata": {"labels": {"karpenter.sh/capacity-type": "spot"}},
                "spec": {"requirements": []},
            },
        },
        "status": {
            "resources": {"nodes": str(len(nodes)), GPU: str(sum(len(n.devices) for n in nodes))}
        },
    }


def autoscaler_status(groups: Mapping[NodeGroup, int], created: int, at: int) -> Object:
    """Return the ConfigMap of cluster-autoscaler as of `at`; `groups` have so many nodes."""
    time = datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%S.000000000 +0000 UTC")
    lines = [f"time: {time}", "autoscalerStatus: Running", "nodeGroups:"]
    for group, nodes in groups.items():
        lines += [
            f"- name: {group.name}",
            "  health:",
            "    status: Healthy",
            "    nodeCounts:",
            "      registered:",
            f"        total: {nodes}",
            f"        ready: {nodes}",
            "        notStarted: 0",
            f"    cloudProviderTarget: {nodes}",
            f"    minSize: {group.least}",
            f"    maxSize: {group.most}",
        ]
    name, namespace = "cluster-autoscaler-status", "kube-system"
    return {
        "kind": "ConfigMap",
        "apiVersion": "v1",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "uid": identity.uid("configmap", name, str(created)),
            "resourceVersion": version(at),
            "creationTimestamp": rfc3339(created),
            "annotations": {"cluster-autoscaler.kubernetes.io/last-updated": time},
        },
        "data": {"status": "\n".join((*lines, ""))},
    }


def provisioning_object(one: Provisioning) -> Object:
    """Return a ProvisioningRequest that cluster-autoscaler has accepted."""

    def condition(kind: str, status: str, reason: str, message: str) -> Object:
        return {
            "type": kind,
            "status": status,
            "reason": reason,
            "message": message,
            "lastTransitionTime": rfc3339(one.created),
        }

    return {
        "kind": "ProvisioningRequest",
        "apiVersion": AUTOSCALING,
        "metadata": {
            "name": one.name,
            "namespace": one.namespace,
            "uid": identity.uid("provisioning", one.namespace, one.name),
            "resourceVersion": version(one.created),
            "creationTimestamp": rfc3339(one.created),
        },
        "spec": {
            "provisioningClassName": "best-effort-atomic-scale-up.autoscaling.x-k8s.io",
            "podSets": [{"podTemplateRef": {"name": one.name}, "count": one.pods}],
        },
        "status": {
            "conditions": [
                condition("Accepted", "True", "ProvisioningRequestAccepted", "Accepted."),
                condition(one.condition, one.status, one.reason, one.message),
            ]
        },
    }


def _quantities(node: Node, unhealthy: tuple[int, ...]) -> Object:
    return {name: quantity for name, (_, _, quantity) in node_resources(node, unhealthy).items()}


def _node_spec(node: Node, state: NodeState) -> Object:
    spec: Object = {"podCIDR": f"10.244.{node.position % 250}.0/24"}
    taints = [{"key": key, "value": value, "effect": effect} for key, value, effect in node.taints]
    if state.cordoned:
        spec["unschedulable"] = True
        taints.append({"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"})
    if not state.ready:
        taints.append({"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"})
    return {**spec, "taints": taints} if taints else spec


def _node_conditions(node: Node, state: NodeState) -> list[Object]:
    texts = {
        "MemoryPressure": (
            "False",
            "KubeletHasSufficientMemory",
            "has sufficient memory available",
        ),
        "DiskPressure": ("False", "KubeletHasNoDiskPressure", "has no disk pressure"),
        "PIDPressure": ("False", "KubeletHasSufficientPID", "has sufficient PID available"),
        "Ready": ("True", "KubeletReady", "is posting ready status"),
    }
    if not state.ready:
        texts["Ready"] = ("False", "KubeletNotReady", "is not ready: container runtime is down")
    return [
        {
            "type": kind,
            "status": status,
            "lastHeartbeatTime": rfc3339(node.created),
            "lastTransitionTime": rfc3339(
                max(node.created, state.since) if kind == "Ready" else node.created
            ),
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


def quota_object(
    quota: Quota, *, hard: Mapping[str, int], used: Mapping[str, int], changed: int
) -> Object:
    """Return a ResourceQuota; `used` counts every pod that has not ended, pending ones too."""
    limits = {key: str(count) for key, count in hard.items()}
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
        "spec": {"hard": limits},
        "status": {
            "hard": dict(limits),
            "used": {key: str(count) for key, count in used.items()},
        },
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
    if controller.suspension is not None:
        metadata["labels"]["kueue.x-k8s.io/queue-name"] = controller.suspension.local
    return {
        "kind": controller.kind,
        "apiVersion": api_version(controller.kind),
        "metadata": metadata,
        "spec": _controller_spec(controller, replicas),
        "status": _controller_status(controller, replicas, succeeded),
    }


def _controller_spec(controller: Controller, replicas: int) -> Object:
    if controller.refusal is not None:
        return _refused_spec(controller, controller.refusal)
    if controller.suspension is not None:
        return _suspended_spec(controller, controller.suspension)
    if controller.kind == "CronJob":
        return {"schedule": "0 * * * *", "suspend": False, "concurrencyPolicy": "Allow"}
    if controller.kind == "Job":
        return {"parallelism": max(replicas, 1), "backoffLimit": 6, "suspend": False}
    return {"replicas": replicas, "selector": {"matchLabels": {"app": controller.name}}}


def _controller_status(controller: Controller, replicas: int, succeeded: int) -> Object:
    if controller.kind == "CronJob":
        return {}
    if controller.suspension is not None:
        suspended = {
            "type": "Suspended",
            "status": "True",
            "lastTransitionTime": rfc3339(controller.created),
            "reason": "JobSuspended",
            "message": "Job suspended",
        }
        return {"active": 0, "ready": 0, "conditions": [suspended]}
    if controller.kind == "Job":
        return {
            "startTime": rfc3339(controller.created),
            "active": replicas,
            "ready": replicas,
            "succeeded": succeeded,
        }
    status: Object = {"replicas": replicas, "observedGeneration": 1}
    if controller.refusal is None:
        return status
    failed = {
        "type": "ReplicaFailure",
        "status": "True",
        "lastTransitionTime": rfc3339(controller.created),
        "reason": "FailedCreate",
        "message": controller.refusal.message,
    }
    return {**status, "conditions": [failed]}


def _refused_spec(controller: Controller, refusal: Refusal) -> Object:
    return {
        "replicas": refusal.wanted,
        "selector": {"matchLabels": {"app": controller.name}},
        "template": wanted_template(controller.name, refusal),
    }


def _suspended_spec(controller: Controller, suspension: Suspension) -> Object:
    template = wanted_template(controller.name, suspension)
    template["spec"]["restartPolicy"] = "Never"
    return {
        "parallelism": suspension.parallelism,
        "completions": suspension.parallelism,
        "backoffLimit": 6,
        "suspend": True,
        "template": template,
    }


def wanted_template(app: str, wanted: Refusal | Suspension) -> Object:
    """Return the template of pods that a controller wants and has not."""
    labels = {"app": app}
    amounts = {"cpu": str(4 * wanted.units), "memory": f"{32 * wanted.units}Gi"}
    gpus = {wanted.resource: str(wanted.units)}
    container = {
        "name": CONTAINER,
        "image": IMAGE,
        "resources": {"limits": gpus, "requests": {**amounts, **gpus}},
    }
    spec: Object = {
        "containers": [container],
        "nodeSelector": dict(wanted.node_selector),
        "tolerations": [{"key": GPU, "operator": "Exists", "effect": "NoSchedule"}],
    }
    return {"metadata": {"labels": labels}, "spec": spec}


# ---------------------------------------------------------------- events


def scheduling_event(pod: Pod, at: int) -> Object:
    """Return the scheduler's event on a pod: refused or bound at `at`."""
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
        "message": _event_message(pod, at, bound=bound),
        "source": {},
        "firstTimestamp": None,
        "lastTimestamp": None,
        "type": "Normal" if bound else "Warning",
        "eventTime": rfc3339(at).replace("Z", ".000000Z"),
        "action": "Binding" if bound else "Scheduling",
        "reportingComponent": "default-scheduler",
        "reportingInstance": "default-scheduler-lab",
    }


def _event_message(pod: Pod, at: int, *, bound: bool) -> str:
    if bound:
        return f"Successfully assigned {pod.namespace}/{pod.name} to {pod.node}"
    return next(text for looked, text in reversed(pod.tried) if looked <= at)


def event_times(pod: Pod) -> list[int]:
    """Return when the scheduler said something about a pod."""
    refused = [at for at, _ in pod.tried]
    return [*refused, *([pod.bound] if pod.bound < FOREVER else [])]


def strip_kind(item: Mapping[str, Any]) -> Object:
    """Return an object as lists carry it: kind and apiVersion stand on the list alone."""
    return {key: value for key, value in item.items() if key not in {"kind", "apiVersion"}}
