"""The exact change, where it can be written down: a part of a pod's specification, or a command.

Names come from the cluster: they are quoted wherever a shell or YAML would read them.
"""

import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from math import ceil

from apps.clusters.domain.resources import gpus
from apps.costs.domain.recommendations.recommendation import Subject

_SCALED = {"Deployment": "deployment", "StatefulSet": "statefulset", "ReplicaSet": "replicaset"}
_NOTEBOOK = "Notebook"


def limits(resource: str, units: int, node_selector: Mapping[str, str] | None = None) -> str:
    """Return the new requests of a pod, as YAML; with the labels of the nodes that have it.

    Empty where it is not known what the resource is called.
    """
    if not resource:
        return ""
    lines = [
        "resources:  # of the container that requests GPUs",
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
        # Kubeflow stops a Notebook that has this annotation, whatever its value is.
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
    # A run of unknown length is taken to last twelve hours.
    seconds = 3600 * max(1, ceil(2 * (run_hours or 12)))
    return "\n".join(
        [
            "spec:  # of the Job",
            f"  activeDeadlineSeconds: {seconds}  # twice the usual run",
            "  ttlSecondsAfterFinished: 600",
        ]
    )


def idle_timeout(workloads: Sequence[str], minutes: int) -> str:
    """Return what stops idle work, as YAML; `workloads` as Kind/name, those hit most first.

    Notebooks are stopped by the culler of Kubeflow's controller or of JupyterHub, services scaled
    to zero by KEDA. Nothing stops a Job that idles: of Jobs alone the result is empty.
    """
    kinds: dict[str, str] = {}
    for workload in workloads:
        kind, _, name = workload.partition("/")
        # The first of a kind is the one that is hit most: it stands as the example.
        kinds.setdefault(kind, name)
    culled = kinds.keys() & {_NOTEBOOK, "StatefulSet"}
    scaled = [kind for kind in ("Deployment", "ReplicaSet") if kind in kinds]
    parts = [_culler(minutes)] if culled else []
    parts += [_scaled_to_zero(kind, kinds[kind], minutes) for kind in scaled]
    return "\n---\n".join(parts)


def _culler(minutes: int) -> str:
    return "\n".join(
        [
            "apiVersion: v1",
            "kind: ConfigMap",
            "metadata: {name: notebook-controller-culler-config, namespace: kubeflow}",
            "data:",
            "  ENABLE_CULLING: 'true'",
            f"  CULL_IDLE_TIME: '{minutes}'",
            "  IDLENESS_CHECK_PERIOD: '5'",
            f"# JupyterHub (Helm values): cull: {{enabled: true, timeout: {minutes * 60}}}",
        ]
    )


def _scaled_to_zero(kind: str, name: str, minutes: int) -> str:
    return "\n".join(
        [
            "apiVersion: keda.sh/v1alpha1",
            "kind: ScaledObject",
            f"metadata: {{name: {json.dumps(name)}, namespace: NAMESPACE}}",
            "spec:",
            f"  scaleTargetRef: {{kind: {json.dumps(kind)}, name: {json.dumps(name)}}}",
            "  minReplicaCount: 0",
            f"  cooldownPeriod: {minutes * 60}  # idle seconds until zero",
            "  triggers:",
            "    - type: prometheus",
            "      metadata: {serverAddress: URL, query: REQUESTS_PER_SECOND, threshold: '1'}",
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
        # Outside its triggers KEDA scales to minReplicaCount, so the least needs no trigger.
        if count > least:
            metadata = f"start: '0 {start} * * *', end: '0 {end} * * *', desiredReplicas: '{count}'"
            lines.append(f"    - {{type: cron, metadata: {{timezone: TIMEZONE, {metadata}}}}}")
    # No trigger was added: YAML reads a key without a value as null, where a list is due.
    if len(lines[-1].split()) == 1:
        lines[-1] = "  triggers: []"
    return "\n".join(lines)


def _spans(needed: Sequence[int]) -> Iterator[tuple[int, int, int]]:
    # Index -1 is the last hour of the day, so that a span may go on over midnight.
    starts = [hour for hour in range(len(needed)) if needed[hour] != needed[hour - 1]]
    for place, start in enumerate(starts):
        yield start, starts[(place + 1) % len(starts)], needed[start]


def off_hours(tier: str, always: int, most: int) -> str:
    """Return what removes empty nodes, as YAML: a NodePool of Karpenter for a tier's nodes."""
    return "\n".join(
        [
            "apiVersion: karpenter.sh/v1",
            "kind: NodePool",
            f"metadata: {{name: NODEPOOL}}  # of the nodes of {json.dumps(tier)}",
            "spec:",
            "  disruption:  # merge into what is there",
            "    consolidationPolicy: WhenEmpty",
            "    consolidateAfter: 30m",
            f"# usually empty on weekdays: {gpus(always)} at all hours, up to {most} at night",
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
