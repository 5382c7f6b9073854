"""Kubernetes objects, as decoded JSON, turned into pod records and node states.

Pure: what comes in is a mapping as the API server wrote it, of which only the fields named here
need to be there. Times come out as Unix seconds.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from math import inf
from typing import Any

from msgspec import Struct

from apps.clusters.domain.accelerators import Offer, counted_once
from apps.clusters.domain.devices.resource_claims import NO_CLAIMS, PodClaims
from apps.clusters.domain.gpu_shares import (
    fractional_container,
    held_of_gpus,
    is_fractional,
    reserves_gpu,
)
from apps.clusters.domain.json_memo import by_text
from apps.clusters.domain.kube_json import (
    ContainerState,
    ContainerStatus,
    JsonObject,
    KubePod,
    condition,
    mapping,
    number,
    seconds,
    text,
)
from apps.clusters.domain.observed.objects import Condition
from apps.clusters.domain.pods.ledger import (
    CHECKPOINT_ANNOTATION,
    ContainerExit,
    OfferedDevice,
    Owner,
    PodRecord,
    PodSource,
)
from apps.clusters.domain.resources import effective_request, gpu_amounts, is_gpu
from apps.clusters.domain.tiers import MODEL_LABELS
from apps.clusters.domain.topology import MACHINE_LABELS, TOPOLOGY_LABELS
from apps.clusters.domain.window import union

_QUEUE_LABELS = (
    "kueue.x-k8s.io/queue-name",
    "volcano.sh/queue-name",
    "kai.scheduler/queue",
    "runai/queue",
)
_QUEUE_ANNOTATIONS = ("scheduling.volcano.sh/queue-name", "volcano.sh/queue-name")
_GROUP_ANNOTATIONS = ("scheduling.k8s.io/group-name", "scheduling.volcano.sh/group-name")
KEPT_FOR_LATENCY = "gpuportal.io/kept-for-latency"
"""The annotation by which a pod says that it stays for quick answers, however idle it is."""
_GROUP_LABELS = ("scheduling.x-k8s.io/pod-group", "kueue.x-k8s.io/pod-group-name")


def gang_name(metadata: JsonObject, spec: JsonObject) -> str:
    """Return the gang that a pod belongs to, in whichever of their ways it says so."""
    return (
        _first(mapping(metadata, "annotations"), _GROUP_ANNOTATIONS)
        or _first(mapping(metadata, "labels"), _GROUP_LABELS)
        or text(mapping(spec, "schedulingGroup").get("podGroupName"))
        or text(mapping(spec, "workloadRef").get("name"))
    )


def has_latency_mark(metadata: JsonObject) -> bool:
    """Say whether a pod is marked to stay for quick answers; only `true` marks it."""
    # Users often write `false` instead of removing the annotation.
    return text(mapping(metadata, "annotations").get(KEPT_FOR_LATENCY)).strip().lower() == "true"


def queue_name(metadata: JsonObject) -> str:
    """Return the queue that an object is to go through; empty where it names none."""
    return _first(mapping(metadata, "labels"), _QUEUE_LABELS) or _first(
        mapping(metadata, "annotations"), _QUEUE_ANNOTATIONS
    )


def _first(found: JsonObject, keys: tuple[str, ...]) -> str:
    # A loop: most objects have none of the keys, of which a snapshot asks thrice for each pod.
    for key in keys:
        if key in found and (own := text(found[key])):
            return own
    return ""


# A span in which a container ran; the end of one that still runs is None.
Run = tuple[float, float | None]

NODE_POOL_LABEL = "karpenter.sh/nodepool"
"""Names the NodePool of Karpenter that a node is of."""
STORED_LABELS = frozenset(
    {
        # What the GPUs are and how they are shared (GPU Feature Discovery, GKE).
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
        *MODEL_LABELS,
        # How the node is paid for.
        "karpenter.sh/capacity-type",
        NODE_POOL_LABEL,
        "eks.amazonaws.com/capacityType",
        "cloud.google.com/gke-spot",
        "cloud.google.com/gke-preemptible",
        "kubernetes.azure.com/scalesetpriority",
        # What it is and where it stands.
        "node.kubernetes.io/instance-type",
        *MACHINE_LABELS,
        *TOPOLOGY_LABELS,
    }
)
"""Labels kept of every GPU node, beside those that tier rules select on and MIG_PREFIX."""

MIG_PREFIX = "nvidia.com/mig-"
_ENDING = frozenset(
    {("Ready", "False"), ("ContainersReady", "False"), ("DisruptionTarget", "True")}
)
"""Conditions that a pod takes on when it ends, or shortly before."""
_STOPPED = frozenset({128 + 9, 128 + 15})
"""Exit codes of what SIGKILL and SIGTERM end."""
_GPU_PRESENT = "nvidia.com/gpu.present"


# ---------------------------------------------------------------- nodes


class NodeState(Struct, frozen=True):
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
    offer = counted_once(
        Offer(
            gpu_amounts(status.get("capacity") or {}, named),
            gpu_amounts(status.get("allocatable") or {}, named),
            {k: str(labels[k]) for k in sorted(labels) if _stored(k, label_keys)},
        ),
        annotations=node["metadata"].get("annotations"),
        named=named,
    )
    return NodeState(
        name=str(node["metadata"]["name"]),
        capacity=offer.capacity,
        allocatable=offer.allocatable,
        labels=offer.labels,
        ready=_is_ready(status),
        schedulable=not (node.get("spec") or {}).get("unschedulable"),
    )


def _is_ready(status: object) -> bool:
    ready = condition(status, "Ready")
    return ready is not None and ready.status == "True"


def _stored(key: str, label_keys: Collection[str]) -> bool:
    return key in STORED_LABELS or key.startswith(MIG_PREFIX) or key in label_keys


# ---------------------------------------------------------------- pods


def pod_record(
    item: Mapping[str, Any],
    *,
    owner: Owner,
    named: Collection[str] = (),
    deleted: float | None = None,
    claims: PodClaims = NO_CLAIMS,
    each: float = 0.0,
) -> PodRecord | None:
    """Return a pod's record; None when it requests no GPU, by resource or by claim.

    `deleted` is when the object was seen to go, None while it is there. `each` is the MiB of one
    GPU that HAMi registered of its node, 0 where it registered none. `finished` is the latest
    container finish once the pod is over. A pod that is over without any container status was
    rejected by the kubelet (facts, section 5.5) or evicted: it ends with its last condition,
    which for the former is its binding, so it held nothing. Where a container's finish is not
    known (ContainerStatusUnknown) the pod did not end before it was disrupted or unready.
    """
    pod = KubePod.of(item)
    requests = _requests(pod, named, claims, each)
    if not requests:
        return None
    names = gpu_containers(pod, named, claims)
    runs = tidy_runs(_runs(pod.statuses, names))
    finished = _finished(pod, gone=deleted is not None)
    return PodRecord(
        uid=str(pod.metadata["uid"]),
        namespace=str(pod.metadata["namespace"]),
        name=str(pod.metadata["name"]),
        owner=owner,
        requests=requests,
        created=pod.created,
        node=pod.node,
        bound=pod.bound,
        started=runs[0][0] if runs else None,
        finished=finished,
        deleted=deleted,
        runs=runs,
        end_reason=_end_reason(pod, ended=finished or deleted),
        priority_class=str(pod.spec.get("priorityClassName") or ""),
        node_selector=_node_selector(pod.spec.get("nodeSelector"), pod.spec.get("affinity")),
        source=PodSource.API,
        queue=queue_name(pod.metadata),
        gang=gang_name(pod.metadata, pod.spec),
        priority=number(pod.spec.get("priority")),
        claims=claims.uids,
        # How the pod itself ended is its `end_reason`.
        exits=tuple(one for one in _exits(pod, names) if one.at != finished),
        checkpoints=_checkpoints(pod),
        kept_for_latency=has_latency_mark(pod.metadata),
    )


def lacks_finish(
    item: Mapping[str, Any], named: Collection[str] = (), claims: PodClaims = NO_CLAIMS
) -> bool:
    """Say whether a pod is over, but the end of one of its GPU containers is unknown."""
    pod = KubePod.of(item)
    vague = {s.name for s in pod.statuses if _is_unfinished(s, over=pod.is_terminal)}
    return bool(vague) and not vague.isdisjoint(gpu_containers(pod, named, claims))


def deletion_time(item: Mapping[str, Any], *, after: float, at: float) -> float:
    """Return when an object went that was there at `after` and is reported gone at `at`, late.

    Its deletionTimestamp is when its grace ends: it went then or sooner. One that was still
    there after its grace, and one without, went at a time unknown, `at` at the latest.
    """
    ends = seconds(item["metadata"].get("deletionTimestamp"))
    return at if ends is None or ends <= after else min(ends, at)


def ready_since(node: Mapping[str, Any]) -> float | None:
    """Return since when a node is ready, or is not; None where it does not say."""
    ready = condition(node.get("status"), "Ready")
    return None if ready is None else ready.since


def may_hide_runs(item: Mapping[str, Any]) -> bool:
    """Say whether a container was restarted so often that its status has lost a run."""
    return any(status.restarts > 1 for status in KubePod.of(item).statuses)


def assumed_runs(
    item: Mapping[str, Any], named: Collection[str] = (), claims: PodClaims = NO_CLAIMS
) -> tuple[Run, ...]:
    """Return the run that restarts have hidden, for a pod seen for the first time.

    A status keeps the current and the last run only. Where a GPU container was restarted more
    often it is taken to have run from the kubelet's start of the pod until the first run known,
    unless it is in a crash loop, in which it hardly ran.
    """
    pod = KubePod.of(item)
    if not may_hide_runs(pod):
        return ()
    start = seconds(pod.status.get("startTime"))
    names = gpu_containers(pod, named, claims)
    statuses = [s for s in pod.statuses if not s.init and s.name in names]
    known = [run[0] for run in _runs(statuses, names)]
    hidden = any(s.restarts > 1 for s in statuses)
    looping = any(s.state.kind == "waiting" for s in statuses)
    # A crash loop hardly runs: to take it for one long run would invent GPU-hours.
    if start is None or not known or not hidden or looping or min(known) <= start:
        return ()
    return ((start, min(known)),)


def tidy_runs(runs: Iterable[Run]) -> tuple[Run, ...]:
    """Return disjoint runs in order that cover exactly what `runs` cover."""
    runs = tuple(runs)
    if len(runs) == 1 and runs[0][1] is None:  # nearly always
        return runs
    spans = union((start, inf if end is None else end) for start, end in runs)
    return tuple((start, None if end == inf else end) for start, end in spans)


def _requests(
    pod: KubePod, named: Collection[str], claims: PodClaims, each: float
) -> dict[str, float]:
    """Return a pod's requests: resources that no claim serves, and device classes."""
    requests = effective_request(
        _unserved(pod.spec.get("containers") or (), claims),
        _unserved(pod.spec.get("initContainers") or (), claims),
        named,
    )
    # Who only reserves a GPU for those that share it must not hold it too: it would count twice.
    if reserves_gpu(pod.metadata, requests):
        return {}
    return {**held_of_gpus(requests, pod.metadata, pod.spec, each=each), **claims.requests}


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


def gpu_containers(pod: KubePod, named: Collection[str], claims: PodClaims) -> frozenset[str]:
    """Return the names of the containers that ask for GPU, by resource or by claim."""
    found = claims.containers | _naming_gpus(pod.containers, named)
    if is_fractional(pod.metadata, pod.spec):
        found |= {fractional_container(pod.metadata, pod.spec)}
    return found


@by_text
def _naming_gpus(containers: Iterable[JsonObject], named: Collection[str]) -> frozenset[str]:
    return frozenset(
        str(container.get("name"))
        for container in containers
        for amounts in mapping(container, "resources").values()
        if isinstance(amounts, dict)
        for resource in amounts
        if is_gpu(resource, named)
    )


def _runs(statuses: Iterable[ContainerStatus], names: Collection[str]) -> Iterator[Run]:
    for status in statuses:
        if status.name in names:
            yield from (one.run for one in (status.last, status.state) if one.run is not None)


def _exits(pod: KubePod, names: Collection[str]) -> tuple[ContainerExit, ...]:
    """Return how the containers that request GPU ended, none of them while another one ran."""
    mine = [status for status in pod.statuses if status.name in names]
    found = set()
    for status in mine:
        for state in (status.last, status.state):
            at = state.finished
            if state.kind != "terminated" or at is None or _was_stopped(pod, state):
                continue
            # Two containers of one pod: the work of the other one went on.
            others = (one.state.run for one in mine if one.name != status.name)
            if not any(run and run[0] < at and (run[1] is None or at < run[1]) for run in others):
                found.add(ContainerExit(at, _exit_reason(state)))
    return tuple(sorted(found))


def _exit_reason(state: ContainerState) -> str:
    return state.reason or ("Error" if state.exit_code else "Completed")


def _was_stopped(pod: KubePod, state: ContainerState) -> bool:
    """Say whether a container ended by the signals that a deletion of its pod sends."""
    stopped = state.exit_code in _STOPPED and state.reason != "OOMKilled"
    return stopped and bool(text(pod.metadata.get("deletionTimestamp")))


def _checkpoints(pod: KubePod) -> tuple[float, ...]:
    saved = seconds(mapping(pod.metadata, "annotations").get(CHECKPOINT_ANNOTATION))
    return () if saved is None else (saved,)


def _finished(pod: KubePod, *, gone: bool) -> float | None:
    if not (pod.is_terminal or gone):  # nearly always
        return None
    states = [status.state for status in pod.statuses if not status.init]
    ended = bool(states) and all(state.kind == "terminated" for state in states)
    if not pod.is_terminal and not ended:
        return None
    known = [s.state.finished for s in pod.statuses if s.state.finished is not None]
    if any(_is_unfinished(s, over=pod.is_terminal) for s in pod.statuses if not s.init):
        known += _times(c for c in pod.conditions if (c.type, c.status) in _ENDING)
        if not known and gone:
            return None
    return max(known or _times(pod.conditions), default=pod.created)


def _is_unfinished(status: ContainerStatus, *, over: bool) -> bool:
    """Say whether a container has ended, or must have as its pod is over, at a time unknown."""
    if status.state.kind == "terminated":
        return status.state.finished is None
    # Pods of lost nodes are failed by the control plane: no kubelet corrects what runs there.
    return over and status.state.kind == "running"


def _times(conditions: Iterable[Condition]) -> list[float]:
    return [one.since for one in conditions if one.since is not None]


def _end_reason(pod: KubePod, *, ended: float | None) -> str:
    """Why it ended: the kubelet's word, else who disrupted it, else its worst container's."""
    if ended is None:
        return ""
    if pod.phase == "Succeeded":
        return "Completed"
    reason = str(pod.status.get("reason") or "") or pod.disrupted
    if reason:
        return reason
    # A scaled down service ends by a signal: nothing failed.
    failed = [
        status.state
        for status in pod.statuses
        if status.state.exit_code and not _was_stopped(pod, status.state)
    ]
    if failed:
        last = max(failed, key=lambda state: state.finished or 0.0)
        return last.reason or "Error"
    return "Failed" if pod.phase == "Failed" else "Deleted"


@by_text
def _node_selector(
    selector: Mapping[str, Any] | None, affinity: Mapping[str, Any] | None
) -> Mapping[str, str]:
    """Return the labels a node must have, by its selector or a required affinity of one value."""
    wanted = {str(k): str(v) for k, v in (selector or {}).items()}
    of_node = (affinity or {}).get("nodeAffinity") or {}
    required = of_node.get("requiredDuringSchedulingIgnoredDuringExecution") or {}
    terms: Sequence[Mapping[str, Any]] = required.get("nodeSelectorTerms") or ()
    if len(terms) == 1:
        for wish in terms[0].get("matchExpressions") or ():
            values: Sequence[str] = wish.get("values") or ()
            if wish.get("operator") == "In" and len(values) == 1:
                wanted.setdefault(str(wish.get("key")), str(values[0]))
    return wanted
