"""The exact change, where it can be written down: a part of a pod's specification, or a command.

Names come from the cluster: they are quoted wherever a shell or YAML would read them.
"""

import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from math import ceil

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


def loading(resource: str) -> str:
    """Return an init container that loads without a GPU, as YAML."""
    return "\n".join(
        [
            "initContainers:  # runs before; a PersistentVolume keeps what it loads",
            "  - name: load",
            "    image: IMAGE",
            "    command: [LOAD]",
            "    volumeMounts: [{name: data, mountPath: /data}]",
            f"# {resource or 'GPUs'}: a pod holds them from binding on; load in a Job of its own",
        ]
    )


def deadline(owner_kind: str, run_hours: float | None) -> str:
    """Return what ends a finished pod, as YAML; empty for kinds that have no such field."""
    if owner_kind not in ("Job", "CronJob"):
        return ""
    seconds = 3600 * max(1, ceil(2 * (run_hours or 12)))
    return "\n".join(
        [
            "spec:  # of the Job",
            f"  activeDeadlineSeconds: {seconds}  # twice the usual run",
            "  ttlSecondsAfterFinished: 600",
        ]
    )


def idle_timeout(tier: str, minutes: int) -> str:
    """Return the policy as YAML: values of an idle culler such as Kubeflow's."""
    return "\n".join(
        [
            "idleTimeout:  # of the controller that stops idle work",
            f"  tier: {json.dumps(tier)}",
            f"  minutes: {minutes}",
            "  activityBelow: 0.1",
            "  exclude: {matchLabels: {keep-idle: 'true'}}",
        ]
    )


def scaled_object(subject: Subject, needed: Sequence[int]) -> str:
    """Return a KEDA ScaledObject with one cron trigger for each span of equal replicas."""
    kind, _, name = subject.workload.partition("/")
    least = min(needed)
    lines = [
        "apiVersion: keda.sh/v1alpha1",
        "kind: ScaledObject",
        f"metadata: {{name: {json.dumps(name)}, namespace: {json.dumps(subject.namespace)}}}",
        "spec:",
        f"  scaleTargetRef: {{kind: {json.dumps(kind)}, name: {json.dumps(name)}}}",
        f"  minReplicaCount: {least}",
        f"  maxReplicaCount: {max(needed)}",
        "  triggers:",
    ]
    for start, end, count in _spans(needed):
        if count > least:
            metadata = f"start: '0 {start} * * *', end: '0 {end} * * *', desiredReplicas: '{count}'"
            lines.append(f"    - {{type: cron, metadata: {{timezone: TIMEZONE, {metadata}}}}}")
    if len(lines[-1].split()) == 1:
        lines[-1] = "  triggers: []"
    return "\n".join(lines)


def _spans(needed: Sequence[int]) -> Iterator[tuple[int, int, int]]:
    starts = [hour for hour in range(len(needed)) if needed[hour] != needed[hour - 1]]
    for place, start in enumerate(starts):
        yield start, starts[(place + 1) % len(starts)], needed[start]


def off_hours(tier: str, always: int, most: int) -> str:
    """Return how many GPUs of a tier may go, as YAML for a node pool's schedule."""
    return "\n".join(
        [
            "nodePool:  # of the autoscaler that owns these nodes",
            f"  tier: {json.dumps(tier)}",
            f"  alwaysEmptyGPUs: {always}",
            f"  emptyAtNightGPUs: {most}",
        ]
    )


def lending(key: str, hard: float, lent: int) -> str:
    """Return a Kueue quota that lends, as YAML."""
    resource = key.removeprefix("requests.")
    return "\n".join(
        [
            "resources:  # of a flavor of the ClusterQueue, in a cohort",
            f"  - name: {json.dumps(resource)}",
            f"    nominalQuota: {hard:g}",
            f"    lendingLimit: {lent}",
        ]
    )
