"""Kubernetes objects, as decoded JSON, turned into pod records and node states.

Pure: what comes in is a mapping as the API server wrote it, of which only the fields named here
need to be there. Times come out as Unix seconds.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from math import inf
from typing import Any

from apps.clusters.domain.devices.pod_claims import NO_CLAIMS, PodClaims
from apps.clusters.domain.json_fields import mapping
from apps.clusters.domain.pods.ledger import OfferedDevice, Owner, PodRecord, PodSource
from apps.clusters.domain.resources import effective_request, gpu_amounts, is_gpu
from apps.clusters.domain.time_spans import union

# A span in which a container ran; the end of one that still runs is None.
Run = tuple[float, float | None]

NODE_LABELS = frozenset(
    {
        # What the cards are and how they are shared (GPU Feature Discovery, GKE).
        "nvidia.com/gpu.present",
        "nvidia.com/gpu.product",
        "nvidia.com/gpu.count",
        "nvidia.com/gpu.replicas",
        "nvidia.com/gpu.memory",
        "nvidia.com/gpu.sharing-strategy",
        "nvidia.com/mig.strategy",
        "nvidia.com/mig.config",
        "nvidia.com/mig.config.state",
        "nvidia.com/device-plugin.config",
        # Which software drives them.
        "nvidia.com/cuda.driver-version.full",
        "nvidia.com/cuda.runtime-version.full",
        "nvidia.com/cuda.driver.major",
        "nvidia.com/cuda.driver.minor",
        "nvidia.com/cuda.driver.rev",
        "nvidia.com/cuda.runtime.major",
        "nvidia.com/cuda.runtime.minor",
        "amd.com/gpu.product-name",
        "cloud.google.com/gke-accelerator",
        # How the node is paid for.
        "karpenter.sh/capacity-type",
        "eks.amazonaws.com/capacityType",
        "cloud.google.com/gke-spot",
        "cloud.google.com/gke-preemptible",
        "kubernetes.azure.com/scalesetpriority",
        # What it is and where it stands.
        "node.kubernetes.io/instance-type",
        "topology.kubernetes.io/region",
        "topology.kubernetes.io/zone",
    }
)
"""Labels kept of every GPU node, beside those that tier rules select on and MIG_PREFIX."""

MIG_PREFIX = "nvidia.com/mig-"
_TERMINAL = frozenset({"Succeeded", "Failed"})
_ENDING = frozenset(
    {("Ready", "False"), ("ContainersReady", "False"), ("DisruptionTarget", "True")}
)
"""Conditions that a pod takes on when it ends, or shortly before."""
_GPU_PRESENT = "nvidia.com/gpu.present"


def seconds(text: object) -> float | None:
    """Return an RFC 3339 time as Unix seconds; None for null, rubbish and Go's zero time."""
    if not isinstance(text, str):
        return None
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        return None
    if at.tzinfo is None or at.year < 1970:
        return None
    return at.timestamp()


# ---------------------------------------------------------------- nodes


@dataclass(frozen=True, slots=True)
class NodeState:
    """What of a node matters to the ledger; equal states make one interval.

    `devices` are what ResourceSlices offer on it, which the node itself does not tell.
    """

    name: str
    capacity: Mapping[str, float]
    allocatable: Mapping[str, float]
    labels: Mapping[str, str]
    ready: bool
    schedulable: bool
    devices: tuple[OfferedDevice, ...] = ()

    @property
    def has_gpus(self) -> bool:
        """Say whether the node offers or is labelled to have GPUs (also ones offered by DRA)."""
        present = self.labels.get(_GPU_PRESENT, "") == "true"
        return bool(self.capacity or self.allocatable or self.devices or present)


def node_state(
    node: Mapping[str, Any], *, named: Collection[str] = (), label_keys: Collection[str] = ()
) -> NodeState:
    """Return a node's state; `named` are resources that tiers name, `label_keys` their labels."""
    status = node.get("status") or {}
    labels = node["metadata"].get("labels") or {}
    return NodeState(
        name=str(node["metadata"]["name"]),
        capacity=gpu_amounts(status.get("capacity") or {}, named),
        allocatable=gpu_amounts(status.get("allocatable") or {}, named),
        labels={k: str(labels[k]) for k in sorted(labels) if _kept(k, label_keys)},
        ready=_condition(status, "Ready").get("status") == "True",
        schedulable=not (node.get("spec") or {}).get("unschedulable"),
    )


def _kept(key: str, label_keys: Collection[str]) -> bool:
    return key in NODE_LABELS or key.startswith(MIG_PREFIX) or key in label_keys


# ---------------------------------------------------------------- pods


def pod_record(
    pod: Mapping[str, Any],
    *,
    owner: Owner,
    named: Collection[str] = (),
    deleted: float | None = None,
    claims: PodClaims = NO_CLAIMS,
) -> PodRecord | None:
    """Return a pod's record; None when it asks for no GPU, by resource or by claim.

    `deleted` is when the object was seen to go, None while it is there. `finished` is the latest
    container finish once the pod is over. A pod that is over without any container status was
    turned away by the kubelet (facts, section 5.5) or evicted: it ends with its last condition,
    which for the former is its binding, so it held nothing. Where a container's finish is not
    known (ContainerStatusUnknown) the pod did not end before it was disrupted or unready.
    """
    metadata, spec, status = pod["metadata"], pod["spec"], pod.get("status") or {}
    requests = _requests(spec, named, claims)
    if not requests:
        return None
    created = seconds(metadata.get("creationTimestamp")) or 0.0
    node = str(spec.get("nodeName") or "")
    statuses = [
        *_statuses(status, "initContainerStatuses"),
        *_statuses(status, "containerStatuses"),
    ]
    runs = tidy_runs(_runs(statuses, gpu_containers(_containers(spec), named, claims)))
    finished = _finished(status, created, gone=deleted is not None)
    return PodRecord(
        uid=str(metadata["uid"]),
        namespace=str(metadata["namespace"]),
        name=str(metadata["name"]),
        owner=owner,
        requests=requests,
        created=created,
        node=node,
        bound=_bound(status, created, node),
        started=runs[0][0] if runs else None,
        finished=finished,
        deleted=deleted,
        runs=runs,
        end_reason=_end_reason(status, statuses, ended=finished or deleted),
        priority_class=str(spec.get("priorityClassName") or ""),
        node_selector=_node_selector(spec),
        source=PodSource.API,
        claims=claims.uids,
    )


def lacks_finish(
    pod: Mapping[str, Any], named: Collection[str] = (), claims: PodClaims = NO_CLAIMS
) -> bool:
    """Say whether a pod is over and nobody knows when a GPU container of it was."""
    spec, status = pod["spec"], pod.get("status") or {}
    names = gpu_containers(_containers(spec), named, claims)
    statuses = (
        *_statuses(status, "initContainerStatuses"),
        *_statuses(status, "containerStatuses"),
    )
    over = status.get("phase") in _TERMINAL
    return any(_is_unfinished(s, over=over) for s in statuses if s.get("name") in names)


def deletion_time(item: Mapping[str, Any], *, after: float, at: float) -> float:
    """Return when an object went that was there at `after` and is reported gone at `at`, late.

    Its deletionTimestamp is when its grace ends: it went then or sooner. One that was still
    there after its grace, and one without, went at a time unknown, `at` at the latest.
    """
    ends = seconds(item["metadata"].get("deletionTimestamp"))
    return at if ends is None or ends <= after else min(ends, at)


def ready_since(node: Mapping[str, Any]) -> float | None:
    """Return since when a node is ready, or is not; None where it does not say."""
    ready = _condition(node.get("status") or {}, "Ready")
    return seconds(ready.get("lastTransitionTime"))


def assumed_runs(
    pod: Mapping[str, Any], named: Collection[str] = (), claims: PodClaims = NO_CLAIMS
) -> tuple[Run, ...]:
    """Return the run that restarts have hidden, for a pod seen for the first time.

    A status keeps the current and the last run only. Where a GPU container was restarted more
    often it is taken to have run from the kubelet's start of the pod until the first run known,
    unless it is in a crash loop, in which it hardly ran.
    """
    spec, status = pod["spec"], pod.get("status") or {}
    start = seconds(status.get("startTime"))
    names = gpu_containers(spec.get("containers") or (), named, claims)
    statuses = [s for s in _statuses(status, "containerStatuses") if s.get("name") in names]
    known = [run[0] for run in _runs(statuses, names)]
    hidden = any((s.get("restartCount") or 0) > 1 for s in statuses)
    looping = any("waiting" in (s.get("state") or {}) for s in statuses)
    if start is None or not known or not hidden or looping or min(known) <= start:
        return ()
    return ((start, min(known)),)


def main_resource(requests: Mapping[str, float]) -> tuple[str, float]:
    """Return the resource that a request is filed under, the one with most units, and these."""
    return min(requests.items(), key=lambda item: (-item[1], item[0]))


def tidy_runs(runs: Iterable[Run]) -> tuple[Run, ...]:
    """Return disjoint runs in order that cover exactly what `runs` cover."""
    spans = union((start, inf if end is None else end) for start, end in runs)
    return tuple((start, None if end == inf else end) for start, end in spans)


def _statuses(status: Mapping[str, Any], key: str) -> Sequence[Mapping[str, Any]]:
    return status.get(key) or ()


def _containers(spec: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    return (*(spec.get("containers") or ()), *(spec.get("initContainers") or ()))


def _requests(
    spec: Mapping[str, Any], named: Collection[str], claims: PodClaims
) -> dict[str, float]:
    """Return what a pod asks for: of resources what no claim serves, and of device classes."""
    requests = effective_request(
        _unserved(spec.get("containers") or (), claims),
        _unserved(spec.get("initContainers") or (), claims),
        named,
    )
    return {**requests, **claims.requests}


def _unserved(
    containers: Sequence[Mapping[str, Any]], claims: PodClaims
) -> Sequence[Mapping[str, Any]]:
    if not claims.served:
        return containers
    return [_without(container, claims.served) for container in containers]


def _without(
    container: Mapping[str, Any], served: Collection[tuple[str, str]]
) -> Mapping[str, Any]:
    resources = container.get("resources") or {}
    left = {
        kind: {r: n for r, n in amounts.items() if (container.get("name"), r) not in served}
        for kind, amounts in resources.items()
        if isinstance(amounts, Mapping)
    }
    return {**container, "resources": left}


def gpu_containers(
    containers: Iterable[Mapping[str, Any]], named: Collection[str], claims: PodClaims
) -> frozenset[str]:
    """Return the names of the containers that ask for GPU, by resource or by claim."""
    return claims.containers | frozenset(
        str(container.get("name"))
        for container in containers
        if any(
            is_gpu(resource, named)
            for amounts in mapping(container, "resources").values()
            if isinstance(amounts, Mapping)
            for resource in amounts
        )
    )


def _runs(statuses: Iterable[Mapping[str, Any]], names: Collection[str]) -> Iterator[Run]:
    for status in statuses:
        if status.get("name") not in names:
            continue
        for state in (status.get("lastState") or {}, status.get("state") or {}):
            for kind in ("running", "terminated"):
                run = _run(state.get(kind) or {}, over=kind == "terminated")
                if run is not None:
                    yield run


def _run(state: Mapping[str, Any], *, over: bool) -> Run | None:
    start, end = seconds(state.get("startedAt")), seconds(state.get("finishedAt"))
    if start is None or (over and end is None):
        return None
    return (start, end if over else None)


def _condition(status: Mapping[str, Any], kind: str) -> Mapping[str, Any]:
    conditions: Sequence[Mapping[str, Any]] = status.get("conditions") or ()
    return next((c for c in conditions if c.get("type") == kind), {})


def _bound(status: Mapping[str, Any], created: float, node: str) -> float | None:
    """When it was bound; a pod made with its node already written was bound when created."""
    scheduled = _condition(status, "PodScheduled")
    if scheduled.get("status") == "True":
        return seconds(scheduled.get("lastTransitionTime")) or created
    return created if node else None


def _finished(status: Mapping[str, Any], created: float, *, gone: bool) -> float | None:
    terminal = status.get("phase") in _TERMINAL
    containers = _statuses(status, "containerStatuses")
    ended = [_terminated(s) for s in containers]
    if not terminal and not (gone and containers and all(ended)):
        return None
    ended += [_terminated(s) for s in _statuses(status, "initContainerStatuses")]
    known = _times(state.get("finishedAt") for state in ended)
    if any(_is_unfinished(s, over=terminal) for s in containers):
        known += _times(c.get("lastTransitionTime") for c in _ending_conditions(status))
        if not known and gone:
            return None
    if known:
        return max(known)
    conditions = status.get("conditions") or ()
    return max(_times(c.get("lastTransitionTime") for c in conditions), default=created)


def _is_unfinished(status: Mapping[str, Any], *, over: bool) -> bool:
    """Say whether a container has ended, or must have as its pod is over, at a time unknown."""
    state = status.get("state") or {}
    ended = state.get("terminated")
    if ended is not None:
        return seconds(ended.get("finishedAt")) is None
    # Pods of lost nodes are failed by the control plane: nobody corrects what runs there.
    return over and state.get("running") is not None


def _ending_conditions(status: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    conditions: Sequence[Mapping[str, Any]] = status.get("conditions") or ()
    return [c for c in conditions if (c.get("type"), c.get("status")) in _ENDING]


def _times(texts: Iterable[object]) -> list[float]:
    return [at for at in map(seconds, texts) if at is not None]


def _terminated(status: Mapping[str, Any]) -> Mapping[str, Any]:
    state: Mapping[str, Any] = (status.get("state") or {}).get("terminated") or {}
    return state


def _end_reason(
    status: Mapping[str, Any], statuses: Iterable[Mapping[str, Any]], *, ended: float | None
) -> str:
    """Why it ended: the kubelet's word, else who disrupted it, else its worst container's."""
    if ended is None:
        return ""
    if status.get("phase") == "Succeeded":
        return "Completed"
    if status.get("reason"):
        return str(status["reason"])
    disrupted = _condition(status, "DisruptionTarget")
    if disrupted.get("status") == "True" and disrupted.get("reason"):
        return str(disrupted["reason"])
    failed = [t for t in map(_terminated, statuses) if t.get("exitCode")]
    if failed:
        last = max(failed, key=lambda t: seconds(t.get("finishedAt")) or 0.0)
        return str(last.get("reason") or "Error")
    return "Failed" if status.get("phase") == "Failed" else "Deleted"


def _node_selector(spec: Mapping[str, Any]) -> dict[str, str]:
    """Return the labels a node must have, by its selector or a required affinity of one value."""
    wanted = {str(k): str(v) for k, v in (spec.get("nodeSelector") or {}).items()}
    affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or {}
    terms: Sequence[Mapping[str, Any]] = required.get("nodeSelectorTerms") or ()
    if len(terms) == 1:
        for wish in terms[0].get("matchExpressions") or ():
            values: Sequence[str] = wish.get("values") or ()
            if wish.get("operator") == "In" and len(values) == 1:
                wanted.setdefault(str(wish.get("key")), str(values[0]))
    return wanted
