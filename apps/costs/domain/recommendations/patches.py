"""The exact change, where it can be written down: a part of a pod's specification, or a command.

Names come from the cluster: they are quoted wherever a shell or YAML would read them.
"""

import json
import shlex
from collections.abc import Mapping

from apps.costs.domain.recommendations.recommendation import Subject

_SCALED = {"Deployment": "deployment", "StatefulSet": "statefulset", "ReplicaSet": "replicaset"}
_NOTEBOOK = "Notebook"


def limits(resource: str, units: int, node_selector: Mapping[str, str] | None = None) -> str:
    """Return what a pod asks for then, as YAML; with the labels of the nodes that have it.

    Empty where it is not known what the resource is called.
    """
    if not resource:
        return ""
    lines = [
        "resources:  # of the container that asks for GPUs",
        "  limits:",
        f"    {json.dumps(resource)}: {units}",
    ]
    return "\n".join([*lines, *_selector(node_selector or {})])


def selector(node_selector: Mapping[str, str]) -> str:
    """Return the labels of the nodes to run on, as YAML; empty without any."""
    return "\n".join(_selector(node_selector))


def _selector(labels: Mapping[str, str]) -> list[str]:
    if not labels:
        return []
    lines = [f"  {json.dumps(key)}: {json.dumps(labels[key])}" for key in sorted(labels)]
    return ["nodeSelector:  # of the pod", *lines]


def stop(subject: Subject) -> str:
    """Return the command that stops a workload and lets it be started again; empty for others."""
    kind, _, name = subject.workload.partition("/")
    if kind in _SCALED:
        words = ["scale", f"{_SCALED[kind]}/{name}", "--replicas=0"]
    elif kind == _NOTEBOOK:
        words = ["annotate", f"notebook/{name}", "kubeflow-resource-stopped=true"]
    else:
        return ""
    return shlex.join(["kubectl", "--namespace", subject.namespace, *words])


def quota(subject: Subject, key: str, hard: float) -> str:
    """Return the command that lowers a key of a ResourceQuota; empty for other quotas."""
    kind, _, name = subject.workload.partition("/")
    if kind != "ResourceQuota":
        return ""
    body = json.dumps({"spec": {"hard": {key: f"{hard:g}"}}})
    words = ["patch", "resourcequota", name, "--type", "merge", "--patch", body]
    return shlex.join(["kubectl", "--namespace", subject.namespace, *words])
