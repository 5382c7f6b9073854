"""The fleet's objects as an API server writes them, managed fields and all."""

from typing import Any

from tests.bench.fleet import LAST, FleetNode, FleetPod, moment

GPU = "nvidia.com/gpu"
_Object = dict[str, Any]


def time_text(at: int) -> str:
    """Return a time as Kubernetes writes it."""
    return f"{moment(at):%Y-%m-%dT%H:%M:%SZ}"


def pod_object(pod: FleetPod, node: FleetNode, version: int) -> _Object:
    """Return a pod as it is at the end of the data; about 6 kB as JSON."""
    return {
        "metadata": _metadata(pod, version),
        "spec": _spec(pod, node),
        "status": _status(pod, node),
    }


def node_object(node: FleetNode, version: int) -> _Object:
    """Return a node."""
    amounts = {"cpu": "128", "memory": "2113454080Ki", GPU: "8", "pods": "250"}
    return {
        "metadata": {
            "name": node.name,
            "uid": f"00000000-0000-4000-8000-{node.number:012d}",
            "resourceVersion": str(version),
            "creationTimestamp": time_text(LAST - 40 * 86400),
            "labels": {"kubernetes.io/hostname": node.name, **node.labels},
        },
        "spec": {},
        "status": {
            "capacity": amounts,
            "allocatable": amounts,
            "conditions": [_condition("Ready", LAST - 86400)],
        },
    }


def controller_object(pod: FleetPod, controller: tuple[str, str]) -> _Object:
    """Return a controller of a pod, (kind, name), with its own owner if it has one."""
    kind, name = controller
    owned = kind != pod.kind
    return {
        "metadata": {
            "name": name,
            "namespace": pod.namespace,
            "uid": f"{pod.namespace}/{kind}/{name}",
            "resourceVersion": "1",
            "ownerReferences": [_reference(pod, pod.kind, pod.owner)] if owned else [],
        }
    }


def _reference(pod: FleetPod, kind: str, name: str) -> _Object:
    group = {"Job": "batch/v1", "CronJob": "batch/v1"}.get(kind, "apps/v1")
    return {
        "apiVersion": group,
        "kind": kind,
        "name": name,
        "uid": f"{pod.namespace}/{kind}/{name}",
        "controller": True,
        "blockOwnerDeletion": True,
    }


def _metadata(pod: FleetPod, version: int) -> _Object:
    return {
        "name": pod.name,
        "generateName": f"{pod.controller[1]}-",
        "namespace": pod.namespace,
        "uid": pod.uid,
        "resourceVersion": str(version),
        "generation": 1,
        "creationTimestamp": time_text(pod.created),
        "labels": {
            "app.kubernetes.io/name": pod.owner,
            "app.kubernetes.io/managed-by": "helm",
            "batch.kubernetes.io/controller-uid": pod.uid,
            "team": pod.namespace,
        },
        "annotations": {
            "kubectl.kubernetes.io/default-container": "main",
            "prometheus.io/scrape": "true",
            "cni.projectcalico.org/podIP": "10.244.187.95/32",
            "sidecar.example/status": '{"version":"1.4.2","initContainers":[],"volumes":[]}',
        },
        "ownerReferences": [_reference(pod, *pod.controller)],
        "managedFields": [
            _managed("kube-controller-manager", pod.created, _SPEC_FIELDS, ""),
            _managed("kube-scheduler", pod.bound, _SCHEDULER_FIELDS, "status"),
            _managed("kubelet", pod.started, _STATUS_FIELDS, "status"),
        ],
    }


def _managed(manager: str, at: int, fields: _Object, subresource: str) -> _Object:
    entry = {
        "manager": manager,
        "operation": "Update",
        "apiVersion": "v1",
        "time": time_text(at),
        "fieldsType": "FieldsV1",
        "fieldsV1": fields,
    }
    return entry | {"subresource": subresource} if subresource else entry


def _fields(*names: str) -> _Object:
    return {f"f:{name}": {} for name in names}


def _conditions_fields(*kinds: str) -> _Object:
    inner = {".": {}, **_fields("lastProbeTime", "lastTransitionTime", "status", "type")}
    return {f'k:{{"type":"{kind}"}}': inner for kind in kinds}


_SPEC_FIELDS: _Object = {
    "f:metadata": {
        "f:annotations": {".": {}, **_fields("kubectl.kubernetes.io/default-container")},
        "f:generateName": {},
        "f:labels": {".": {}, **_fields("app.kubernetes.io/name", "team")},
        "f:ownerReferences": {".": {}, 'k:{"uid":"owner"}': {}},
    },
    "f:spec": {
        "f:containers": {
            'k:{"name":"main"}': {
                ".": {},
                **_fields("args", "command", "image", "imagePullPolicy", "name"),
                "f:env": {
                    ".": {},
                    'k:{"name":"NCCL_DEBUG"}': {".": {}, **_fields("name", "value")},
                    'k:{"name":"WORLD_SIZE"}': {".": {}, **_fields("name", "value")},
                    'k:{"name":"NODE_NAME"}': {".": {}, **_fields("name", "valueFrom")},
                },
                "f:resources": {
                    ".": {},
                    "f:limits": {".": {}, **_fields(GPU)},
                    "f:requests": {".": {}, **_fields("cpu", "memory", GPU)},
                },
                "f:volumeMounts": {".": {}, 'k:{"mountPath":"/data"}': {".": {}}},
                **_fields("terminationMessagePath", "terminationMessagePolicy"),
            }
        },
        **_fields("dnsPolicy", "enableServiceLinks", "nodeSelector", "restartPolicy"),
        **_fields("schedulerName", "securityContext", "terminationGracePeriodSeconds"),
        "f:volumes": {".": {}, 'k:{"name":"data"}': {".": {}, **_fields("name")}},
    },
}
_SCHEDULER_FIELDS: _Object = {"f:status": {"f:conditions": _conditions_fields("PodScheduled")}}
_STATUS_FIELDS: _Object = {
    "f:status": {
        "f:conditions": _conditions_fields(
            "ContainersReady", "Initialized", "PodReadyToStartContainers", "Ready"
        ),
        **_fields("containerStatuses", "hostIP", "hostIPs", "phase", "podIP", "startTime"),
        "f:podIPs": {".": {}, 'k:{"ip":"10.244.187.95"}': {".": {}, **_fields("ip")}},
    }
}


def _spec(pod: FleetPod, node: FleetNode) -> _Object:
    token = {"name": "kube-api-access-kr4bq", "readOnly": True}
    return {
        "volumes": [
            {"name": "data", "persistentVolumeClaim": {"claimName": f"{pod.namespace}-data"}},
            {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "64Gi"}},
            {
                "name": "kube-api-access-kr4bq",
                "projected": {
                    "sources": [
                        {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
                        {
                            "configMap": {
                                "name": "kube-root-ca.crt",
                                "items": [{"key": "ca.crt", "path": "ca.crt"}],
                            }
                        },
                    ],
                    "defaultMode": 420,
                },
            },
        ],
        "containers": [
            {
                "name": "main",
                "image": f"registry.example/{pod.namespace}/{pod.owner}:2026.3.1",
                "command": ["torchrun"],
                "args": ["--nproc-per-node", str(pod.units), "train.py", "--config", "base.yaml"],
                "env": [
                    {"name": "NCCL_DEBUG", "value": "WARN"},
                    {"name": "WORLD_SIZE", "value": str(pod.units)},
                    {
                        "name": "NODE_NAME",
                        "valueFrom": {
                            "fieldRef": {"apiVersion": "v1", "fieldPath": "spec.nodeName"}
                        },
                    },
                ],
                "resources": {
                    "limits": {GPU: str(pod.units)},
                    "requests": {"cpu": "8", "memory": "64Gi", GPU: str(pod.units)},
                },
                "volumeMounts": [
                    {"name": "data", "mountPath": "/data"},
                    {"name": "shm", "mountPath": "/dev/shm"},  # noqa: S108 - of the pod
                    {**token, "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount"},
                ],
                "terminationMessagePath": "/dev/termination-log",
                "terminationMessagePolicy": "File",
                "imagePullPolicy": "IfNotPresent",
            }
        ],
        "restartPolicy": "Never" if pod.controller[0] == "Job" else "Always",
        "terminationGracePeriodSeconds": 30,
        "dnsPolicy": "ClusterFirst",
        "nodeSelector": {"nvidia.com/gpu.product": node.labels["nvidia.com/gpu.product"]},
        "serviceAccountName": "default",
        "serviceAccount": "default",
        "nodeName": node.name,
        "securityContext": {},
        "schedulerName": "default-scheduler",
        "tolerations": [
            {
                "key": f"node.kubernetes.io/{key}",
                "operator": "Exists",
                "effect": "NoExecute",
                "tolerationSeconds": 300,
            }
            for key in ("not-ready", "unreachable")
        ],
        "priority": 0,
        "enableServiceLinks": True,
        "preemptionPolicy": "PreemptLowerPriority",
    }


def _condition(kind: str, at: int) -> _Object:
    return {
        "type": kind,
        "status": "True",
        "lastProbeTime": None,
        "lastTransitionTime": time_text(at),
        "observedGeneration": 1,
    }


def _status(pod: FleetPod, node: FleetNode) -> _Object:
    running = {"running": {"startedAt": time_text(pod.started)}}
    state: _Object = running
    if pod.ended is not None:
        state = {
            "terminated": {
                "exitCode": 0,
                "reason": "Completed",
                "startedAt": time_text(pod.started),
                "finishedAt": time_text(pod.ended),
                "containerID": f"containerd://{pod.uid.replace('-', '') * 2}",
            }
        }
    image = f"registry.example/{pod.namespace}/{pod.owner}"
    return {
        "phase": "Running" if pod.ended is None else "Succeeded",
        "conditions": [
            _condition("PodReadyToStartContainers", pod.started),
            _condition("Initialized", pod.bound),
            _condition("Ready", pod.started),
            _condition("ContainersReady", pod.started),
            _condition("PodScheduled", pod.bound),
        ],
        "hostIP": f"198.51.100.{node.number & 255}",
        "hostIPs": [{"ip": f"198.51.100.{node.number & 255}"}],
        "podIP": "10.244.187.95",
        "podIPs": [{"ip": "10.244.187.95"}],
        "startTime": time_text(pod.bound),
        "containerStatuses": [
            {
                "name": "main",
                "state": state,
                "lastState": {},
                "ready": pod.ended is None,
                "restartCount": 0,
                "image": f"{image}:2026.3.1",
                "imageID": f"{image}@sha256:{pod.uid.replace('-', '') * 2}",
                "containerID": f"containerd://{pod.uid.replace('-', '') * 2}",
                "started": pod.ended is None,
                "volumeMounts": [
                    {"name": "data", "mountPath": "/data"},
                    {
                        "name": "kube-api-access-kr4bq",
                        "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount",
                        "readOnly": True,
                        "recursiveReadOnly": "Disabled",
                    },
                ],
            }
        ],
        "qosClass": "Burstable",
    }
