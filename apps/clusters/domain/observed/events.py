"""Events that tell why something waits (facts, section 5), as observed objects."""

from apps.clusters.domain.json_fields import mapping, seconds, text
from apps.clusters.domain.observed.fields import Fields, number
from apps.clusters.domain.observed.objects import EventSnapshot

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
)
_REASONS = frozenset((*_SCHEDULING, *_CREATION, *_STARTING, *_KUBELET, *_QUEUES))
_EVICTED_DUE = "EvictedDueTo"


def tells_of_waiting(event: Fields) -> bool:
    """Say whether an event's reason is one that explains waiting; quick."""
    reason = event.get("reason")
    return isinstance(reason, str) and (
        reason in _REASONS or reason.startswith((_OUT_OF, _EVICTED_DUE))
    )


def event_snapshot(event: Fields) -> EventSnapshot | None:
    """Return an event that tells why something waits; None for any other.

    Both forms are read, that of v1 and that of events.k8s.io. Its text is kept as it came, also
    the prefix of those that stand for several.
    """
    about = mapping(event, "involvedObject") or mapping(event, "regarding")
    if not tells_of_waiting(event) or not text(about.get("uid")):
        return None
    series = mapping(event, "series")
    made = mapping(event, "metadata").get("creationTimestamp")
    first_at = event.get("firstTimestamp") or event.get("deprecatedFirstTimestamp")
    last_at = event.get("lastTimestamp") or event.get("deprecatedLastTimestamp")
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


def _component(event: Fields) -> str:
    source = mapping(event, "source") or mapping(event, "deprecatedSource")
    return (
        text(event.get("reportingComponent"))
        or text(event.get("reportingController"))
        or text(source.get("component"))
    )


def _first_known(times: tuple[object, ...]) -> float | None:
    """Return the first of these that is a time."""
    return next((at for at in map(seconds, times) if at is not None), None)
