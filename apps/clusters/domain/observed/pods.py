"""Pods, the controllers that make them, and events, as observed objects."""

from collections.abc import Callable, Collection, Iterable, Mapping

from msgspec import Struct, field

from apps.clusters.domain.devices.resource_claims import NO_CLAIMS, PodClaims
from apps.clusters.domain.gpu_shares import held_of_gpus, may_have_hami_parts, reserves_gpu
from apps.clusters.domain.kube_json import (
    JsonObject,
    KubePod,
    claim_uses,
    conditions,
    created,
    items,
    mapping,
    number,
    placement,
    request,
    seconds,
    text,
)
from apps.clusters.domain.observed.objects import (
    ClaimUse,
    ContainerWait,
    ControllerSnapshot,
    EventSnapshot,
    ObservedKind,
    PodSnapshot,
)
from apps.clusters.domain.pods.kube_objects import gang_name, gpu_containers, queue_name
from apps.clusters.domain.pods.ledger import Owner, controller_of, nearest_owner
from apps.clusters.domain.resources import is_gpu

_EVICTED = "Evicted"
_STARTED = frozenset({"running", "terminated"})

_SCHEDULING = (
    *("FailedScheduling", "SchedulerError", "Preempted", "Preempting", "FailedBinding"),
    *("NotTriggerScaleUp", "TriggeredScaleUp", "Nominated", "FailedDraining"),
)
_CREATION = ("FailedCreate", "FailedResourceClaimCreation", "FailedToCreatePod")
_STARTING = (
    *("FailedMount", "FailedAttachVolume", "FailedMapVolume", "FailedCreatePodSandBox"),
    *("FailedCreatePodContainer", "FailedPrepareDynamicResources", "BackOff", "Failed"),
    *("ErrImageNeverPull", "InspectFailed", "FailedSync", "NetworkNotReady"),
    *("ProvisioningFailed", "WaitForFirstConsumer", "WaitForPodScheduled"),
)
_KUBELET = (
    *("UnexpectedAdmissionError", "TopologyAffinityError", "NodeAffinity", "Evicted"),
    *("EmptyPodSharedPoolError", "PodOSNotSupported", "NodeShutdown", "Taint", "HostPortConflict"),
    *("TaintManagerEviction", "DeletingPod", "SMTAlignmentError", "FailedAdmission", "Shutdown"),
)
_OUT_OF = "OutOf"
_QUEUES = (
    # Kueue's, which names its events after the reasons of its conditions.
    *("QuotaReserved", "WaitingForQuota", "ExceedsMaxQuota", "NoMatchingFlavor", "Misconfigured"),
    *("TopologyPlacementFailed", "WaitingForPreemptedWorkloads", "WaitingForPodsReady"),
    *("PendingEvaluation", "Pending", "Inadmissible", "PreemptedWorkload", "ErrWorkloadCompose"),
    *("AdmissionCheckRejected", "AdmissionCheckRetry", "Stopped", "Suspended"),
    # Volcano's and the scheduler plug-ins'.
    *("Unschedulable", "NotEnoughResources", "NotEnoughTasks", "Unenqueueable", "PodGroupPending"),
    *("Evict", "InvalidQueue", "QueueClosed", "FailedEnqueue"),
    # KAI's, of a gang whose pods are not all there.
    "NotReady",
)
_REASONS = frozenset((*_SCHEDULING, *_CREATION, *_STARTING, *_KUBELET, *_QUEUES))
_EVICTED_DUE = "EvictedDueTo"


class ExtractionContext(Struct, frozen=True):
    """What is known of an object that it does not tell itself.

    `named` are the GPU resources that tiers name, `owner` its top controller (None: as far as
    itself tells), `claims` the pod's requests by claims, `is_gpu_class` whether a device class is
    one of GPUs, `template_classes` the requests of each ResourceClaimTemplate, by (namespace,
    name): device class → count. `gpu_memory` is the MiB of one GPU that HAMi shares where the pod
    is, or may come to; 0 where there is none.
    """

    named: Collection[str] = ()
    owner: Owner | None = None
    claims: PodClaims = NO_CLAIMS
    is_gpu_class: Callable[[str], bool] = field(default=lambda name: "gpu" in name)
    template_classes: Mapping[tuple[str, str], Mapping[str, float]] = field(default_factory=dict)
    gpu_memory: float = 0.0


# ---------------------------------------------------------------- pods


def is_settled(pod: JsonObject) -> bool:
    """Say whether a pod runs, or has run and is over, which needs no explanation; quick."""
    status = pod.get("status") or {}
    phase = status.get("phase")
    if phase == "Succeeded":
        return True
    if phase == "Running":
        every = status.get("containerStatuses") or ()
        return not any((one.get("state") or {}).get("waiting") for one in every)
    return False


def pod_snapshot(item: JsonObject, context: ExtractionContext) -> PodSnapshot | None:
    """Return a pod that requests GPUs and is pending, or was turned away; None for any other.

    Pending means: not bound; bound while no GPU container has started; or a GPU container is to be
    started again. Turned away means: failed without any container (facts, section 5.5), or evicted.
    A pod whose claim does not exist yet is pending, whatever the claim will request.
    """
    pod = KubePod.of(item)
    spec, status = pod.spec, pod.status
    namespace = text(pod.metadata.get("namespace"))
    asked = _gpu_request(pod.metadata, spec, namespace, pod.claim_uses, context)
    if asked is None or reserves_gpu(pod.metadata, asked) or not _waits(pod, context):
        return None
    reference = controller_of(pod)
    owner = context.owner or nearest_owner(pod)
    return PodSnapshot(
        created=pod.created,
        requests=asked,
        placement=placement(spec, pod=text(pod.metadata.get("name"))),
        owner_kind=owner.kind,
        owner=owner.name,
        controller_kind=reference.kind if reference else "",
        controller=reference.uid if reference else "",
        gates=tuple(text(gate.get("name")) for gate in items(spec.get("schedulingGates"))),
        scheduler=text(spec.get("schedulerName")) or "default-scheduler",
        priority=number(spec.get("priority")),
        nominated_node=text(status.get("nominatedNodeName")),
        claims=pod.claim_uses,
        group=gang_name(pod.metadata, spec),
        queue=queue_name(pod.metadata),
        node=pod.node,
        bound=pod.bound,
        phase=pod.phase,
        reason=text(status.get("reason")),
        message=text(status.get("message")),
        deleting=seconds(pod.metadata.get("deletionTimestamp")),
        scheduled=pod.condition("PodScheduled"),
        waiting=tuple(_is_container_pending(pod)),
        disrupted=pod.disrupted,
    )


def _gpu_request(
    metadata: JsonObject,
    spec: JsonObject,
    namespace: str,
    uses: Iterable[ClaimUse],
    context: ExtractionContext,
) -> dict[str, float] | None:
    """Return the whole request of a pod, its claims' classes included; None without GPU."""
    plain = held_of_gpus(request(spec), metadata, spec, each=context.gpu_memory)
    claimed, unknown = dict(context.claims.requests), bool(context.claims.unknown)
    for use in uses:
        if use.claim:
            continue
        classes = context.template_classes.get((namespace, use.template))
        unknown = unknown or classes is None
        for name, units in (classes or {}).items():
            if context.is_gpu_class(name):
                claimed[name] = claimed.get(name, 0.0) + units
    # An extended resource that a claim serves stands under its device class already.
    served = {resource for _, resource in context.claims.served}
    found = {r: n for r, n in plain.items() if r not in served} | claimed
    gpus = bool(claimed) or any(is_gpu(r, context.named) for r in found)
    # Who knows what a claim is for that is not there; of a pod that is bound it is known.
    return found if gpus or (unknown and not text(spec.get("nodeName"))) else None


def _waits(pod: KubePod, context: ExtractionContext) -> bool:
    if pod.phase == "Succeeded":
        return False
    if pod.phase == "Failed":
        reason = text(pod.status.get("reason"))
        # Turned away by the kubelet: a pod that failed by itself has the status of a container.
        return reason == _EVICTED or bool(reason and not pod.statuses)
    if not pod.node:
        return True
    names = gpu_containers(pod, context.named, context.claims)
    ours = [one for one in pod.statuses if one.name in names]
    started = any(state.kind in _STARTED for one in ours for state in (one.state, one.last))
    # Started once and not running now: it crashed, or its image went, and is tried again.
    return not started or any(one.state.kind == "waiting" for one in ours)


def _is_container_pending(pod: KubePod) -> list[ContainerWait]:
    return [
        ContainerWait(one.name, one.state.reason, one.state.message, one.init)
        for one in pod.statuses
        if one.state.kind == "waiting"
    ]


# ---------------------------------------------------------------- owners


def top_owner(item: JsonObject, context: ExtractionContext) -> tuple[str, str]:
    """Return kind and name of what made an object; empty where nothing did.

    Where none of several owners controls it, the first stands for all.
    """
    if context.owner is not None:
        return context.owner.kind, context.owner.name
    reference = controller_of(item)
    if reference is not None:
        return reference.kind, reference.name
    # Kueue's Workload of a pod group has every pod as an owner, and none controls it.
    for one in items(mapping(item, "metadata").get("ownerReferences")):
        return text(one.get("kind")), text(one.get("name"))
    return "", ""


# ---------------------------------------------------------------- controllers


def controller_snapshot(
    kind: ObservedKind, item: JsonObject, context: ExtractionContext
) -> ControllerSnapshot | None:
    """Return a controller whose pods ask for GPU; None for any other.

    One that wants no pods and has none, as an old revision of a Deployment, and a Job that is
    over are left out.
    """
    metadata, spec = mapping(item, "metadata"), mapping(item, "spec")
    status = mapping(item, "status")
    template = mapping(spec, "template", "spec")
    uses = claim_uses({"spec": template})
    of_pods = mapping(spec, "template", "metadata")
    asked = _gpu_request(of_pods, template, text(metadata.get("namespace")), uses, context)
    if asked is None:
        return None
    wanted, pods = (
        _job_counts(spec, status) if kind is ObservedKind.JOB else _set_counts(spec, status)
    )
    if not wanted and not pods:
        return None
    owner_kind, owner = top_owner(item, context)
    return ControllerSnapshot(
        created=created(item),
        wanted=wanted,
        pods=pods,
        suspended=spec.get("suspend") is True,
        requests=asked,
        placement=placement(template),
        owner_kind=owner_kind,
        owner=owner,
        queue=queue_name(metadata),
        conditions=conditions(status),
        together=kind is ObservedKind.JOB and _runs_together(spec),
        charged=request(template) if may_have_hami_parts(of_pods, template) else None,
    )


def _runs_together(spec: JsonObject) -> bool:
    """Say whether a Job is one that Kubernetes itself takes for a gang (KEP-4671, KEP-5547).

    Indexed, with as many completions as parallelism: each index has its pod at the same time.
    """
    pods = number(spec.get("parallelism"), 1)
    indexed = spec.get("completionMode") == "Indexed"
    return indexed and pods > 1 and spec.get("completions") == pods


def _set_counts(spec: JsonObject, status: JsonObject) -> tuple[int, int]:
    return max(0, number(spec.get("replicas"), 1)), max(0, number(status.get("replicas")))


def _job_counts(spec: JsonObject, status: JsonObject) -> tuple[int, int]:
    """Return how many pods a Job wants now and how many it has; of one that is over none.

    Without a number of completions it makes no more pods once one has succeeded.
    """
    over = {c.type for c in conditions(status) if c.status == "True"} & {"Complete", "Failed"}
    if over:
        return 0, 0
    parallel, active = max(0, number(spec.get("parallelism"), 1)), number(status.get("active"))
    done = number(status.get("succeeded"))
    if not isinstance(spec.get("completions"), int):
        # A work queue: the first success ends it once the running pods are done.
        return (active if done else parallel), max(0, active)
    return max(0, min(parallel, number(spec.get("completions")) - done)), max(0, active)


def explains_pending(event: JsonObject) -> bool:
    """Say whether an event's reason is one that explains pending work; quick."""
    reason = event.get("reason")
    return isinstance(reason, str) and (
        reason in _REASONS or reason.startswith((_OUT_OF, _EVICTED_DUE))
    )


def event_snapshot(event: JsonObject) -> EventSnapshot | None:
    """Return an event that explains pending work; None for any other.

    Both forms are read, that of v1 and that of events.k8s.io. Its text is kept as it came, also
    the prefix of those that stand for several.
    """
    about = mapping(event, "involvedObject") or mapping(event, "regarding")
    if not explains_pending(event) or not text(about.get("uid")):
        return None
    series = mapping(event, "series")
    made = mapping(event, "metadata").get("creationTimestamp")
    first_at = event.get("firstTimestamp") or event.get("deprecatedFirstTimestamp")
    last_at = event.get("lastTimestamp") or event.get("deprecatedLastTimestamp")
    # The new form leaves the old times null, the old form has no eventTime.
    firsts = (first_at, event.get("eventTime"), made)
    lasts = (series.get("lastObservedTime"), last_at, event.get("eventTime"), made)
    count = number(series.get("count")) or number(event.get("count"))
    return EventSnapshot(
        about_kind=text(about.get("kind")),
        about_name=text(about.get("name")),
        about_uid=text(about.get("uid")),
        reason=text(event.get("reason")),
        message=text(event.get("message")) or text(event.get("note")),
        component=_component(event),
        count=max(1, count or number(event.get("deprecatedCount"))),
        first=_first_known(firsts),
        last=_first_known(lasts),
    )


def _component(event: JsonObject) -> str:
    source = mapping(event, "source") or mapping(event, "deprecatedSource")
    return (
        text(event.get("reportingComponent"))
        or text(event.get("reportingController"))
        or text(source.get("component"))
    )


def _first_known(times: tuple[object, ...]) -> float | None:
    """Return the first of these that is a time."""
    return next((at for at in map(seconds, times) if at is not None), None)
