"""Pending pods: which of the possible reasons holds for each."""

import re
from collections.abc import Iterable, Mapping
from typing import Any

from msgspec.structs import replace

from apps.clusters.domain.observed.objects import (
    ContainerWait,
    ControllerSnapshot,
    EventSnapshot,
    ObservedKind,
    ObservedObject,
    Placement,
    PodSnapshot,
)
from apps.pending.domain.cluster_index import ClusterIndex, Owner, plain
from apps.pending.domain.diagnosis import (
    Action,
    Cause,
    Counts,
    Diagnosis,
    PendingItem,
    Suggestion,
    says,
)
from apps.pending.domain.placement.fits import all_needed, free_some
from apps.pending.domain.placement.messages import LONGEST, rejection
from apps.pending.domain.placement.unschedulable import (
    PlacementDiagnoser,
    PodClaims,
    preempting,
    unmade,
)
from apps.pending.domain.queues import kai
from apps.pending.domain.queues.cluster_queues import QueuedWorkload
from apps.pending.domain.queues.gangs import Gang
from apps.pending.domain.wording import GATE_REMOVERS

_IMAGE = frozenset(
    {
        *("ErrImagePull", "ImagePullBackOff", "ImageInspectError", "ErrImageNeverPull"),
        *("InvalidImageName", "RegistryUnavailable", "SignatureValidationFailed"),
    }
)
_CRASH = frozenset(
    {
        *("CrashLoopBackOff", "CreateContainerConfigError", "CreateContainerError"),
        *("RunContainerError", "PreCreateHookError", "PreStartHookError", "PostStartHookError"),
    }
)
_DRIVER = re.compile(r"driver(?: name)? \"?(?P<name>[\w.-]+)\"? not found", re.ASCII)
_VOLUME = re.compile(
    r"(?:\b\w++\.\w++ failed for volume \"|unmounted volumes=\[)(?P<name>[\w.-]+)[^:]*", re.ASCII
)
_STARTING_EVENTS = {
    "FailedMount": "volume not mounted",
    "FailedAttachVolume": "volume not attached",
    "FailedMapVolume": "volume not mounted",
    "FailedCreatePodSandBox": "no sandbox",
    "FailedPrepareDynamicResources": "devices not prepared",
    "NetworkNotReady": "no network",
}
_OUT_OF = re.compile(
    r"enough resource: (?P<resource>[^,]+), requested: (?P<requested>[0-9]{1,18}),"
    r" used: (?P<used>[0-9]{1,18}), capacity: (?P<capacity>[0-9]{1,18})",
    re.ASCII,
)
_RECENT_SECONDS = 900.0
"""A controller makes a new pod sooner than this: one that did not has stopped trying."""
GATED = "scheduling-gated"
NO_SCHEDULER = "no scheduler"
NOT_YET = "not looked at yet"
SCHEDULER_ERROR = "scheduler error"
_DEFAULT_SCHEDULER, _VOLCANO = "default-scheduler", "volcano"
_KUEUE = "kueue.x-k8s.io/"


def why_not_running(pod: PodSnapshot, events: list[EventSnapshot]) -> Diagnosis:
    """Return why a bound pod does not run; it holds its GPUs meanwhile.

    `events` are those about the pod, latest first.
    """
    wait = _worst_state(pod.waiting)
    # The container's own reason comes before events: those expire after an hour.
    if wait is not None and wait.reason in _IMAGE | _CRASH:
        return _container_diagnosis(pod, wait, events)
    if event := next((e for e in events if e.reason in _STARTING_EVENTS), None):
        detail = _STARTING_EVENTS[event.reason]
        return Diagnosis(
            Cause.STARTING,
            detail,
            plain(event.message),
            sentences=(says("bound_but", node=pod.node, problem=detail),),
            suggestions=(_starting_suggestion(pod, event, detail),),
        )
    state = wait.reason if wait is not None and wait.reason else "Bound"
    step = Suggestion(Action.WAIT, {"what": "start"}, says("wait_for_start", node=pod.node))
    return Diagnosis(
        Cause.STARTING,
        _state_detail(wait),
        wait.message if wait is not None else pod.message,
        sentences=(says("bound_and", node=pod.node, state=state),),
        suggestions=(step,),
    )


def _starting_suggestion(pod: PodSnapshot, event: EventSnapshot, detail: str) -> Suggestion:
    """Suggest what the event names: a driver or a volume, else its node."""
    text = plain(event.message)[:LONGEST]
    driver, volume = _DRIVER.search(text), _VOLUME.search(text)
    if driver is None and volume is None:
        look: dict[str, Any] = {"nodes": [pod.node], "reason": event.reason}
        return Suggestion(Action.CHECK_NODE, look, says("look_at_problem", problem=detail))
    change = {"node": pod.node, "what": detail}
    if volume is not None:
        change["volume"] = volume["name"]
    # Errors of gRPC end in their own text; what stands before it repeats the call.
    why = text.rpartition("desc = ")[2] or text
    if driver is not None:
        change["driver"] = driver["name"]
    else:
        why = why.removeprefix(volume[0] if volume else "").lstrip(" :")
    name = "mend_volume" if driver is None else "mend_driver"
    return Suggestion(Action.FIX_VOLUME, change, says(name, why=why.rstrip(".")))


def _container_diagnosis(
    pod: PodSnapshot, wait: ContainerWait, events: list[EventSnapshot]
) -> Diagnosis:
    image = wait.reason in _IMAGE
    message = wait.message or next((plain(e.message) for e in events if e.reason == "Failed"), "")
    action = Action.FIX_IMAGE if image else Action.CHECK_CONTAINER
    change = {"container": wait.container, "reason": wait.reason}
    down = says("no_image" if image else "container_down", node=pod.node, init=wait.init, **change)
    step = Suggestion(action, change, says(action.value, init=wait.init))
    return Diagnosis(Cause.STARTING, wait.reason, message, sentences=(down,), suggestions=(step,))


def _worst_state(waits: tuple[ContainerWait, ...]) -> ContainerWait | None:
    """Return the wait that tells most: what is broken first, then an init container."""
    return min(
        waits,
        key=lambda w: (w.reason not in _IMAGE, w.reason not in _CRASH, not w.init),
        default=None,
    )


def _state_detail(wait: ContainerWait | None) -> str:
    if wait is None or not wait.reason:
        return "bound"
    if wait.init or wait.reason == "PodInitializing":
        return "initializing"
    return wait.reason


def turned_away(index: ClusterIndex, refused: frozenset[str]) -> list[PendingItem]:
    """Return the items that are pending because a kubelet turned their pods away.

    `refused` are the uids of controllers whose missing pods are accounted for already.
    """
    groups: dict[str, list[tuple[ObservedObject, PodSnapshot]]] = {}
    for seen, pod in index.pods:
        if pod.phase == "Failed" and rejection(pod.reason, pod.message) is not None:
            # A controller makes a new pod after each refusal: forty Failed pods are one workload.
            groups.setdefault(pod.controller or seen.uid, []).append((seen, pod))
    found = []
    for uid, pods in groups.items():
        if uid in refused:
            continue
        controller = index.controllers.get(uid)
        if controller is None:
            found.append(_rejected_alone(index, pods))
        elif one := _rejected_controller(index, *controller, pods):
            found.append(one)
    return found


def _rejected_controller(
    index: ClusterIndex,
    seen: ObservedObject,
    body: ControllerSnapshot,
    pods: list[tuple[ObservedObject, PodSnapshot]],
) -> PendingItem | None:
    """Return a controller as pending; None when the pods that it made since then run.

    Only its last series of tries counts: older pods that are left over explain nothing.
    """
    waiting = index.waiting_of.get(seen.uid, 0)
    missing = max(0, body.wanted - body.pods)
    idle = missing + waiting
    if not idle:
        return None
    pods = _recent_tries(pods, index.state.at)
    if not pods:
        return None
    last, pod = _last_try(pods)
    each = index.gpus(body.requests)
    return PendingItem(
        kind=seen.kind.short,
        uid=seen.uid,
        namespace=seen.namespace,
        name=seen.name,
        owner_kind=body.owner_kind or seen.kind.short,
        owner=body.owner or seen.name,
        since=min(_tried_at(one) for _, one in pods),
        requests={r: units * idle for r, units in each.items()},
        # Pods that are there count themselves; only those not made yet are added.
        counts=Counts.SUPPRESSED if missing else Counts.NOTHING,
        diagnosis=_rejection_diagnosis(last, pod, len(pods)),
        # Requests are those of all pods that do not run, the missing ones and the others.
        share=missing / idle,
        node=pod.node,
        node_selector=body.placement.node_selector,
        queue=body.queue,
    )


def _rejected_alone(
    index: ClusterIndex, pods: list[tuple[ObservedObject, PodSnapshot]]
) -> PendingItem:
    """Return a pod that no controller creates again: it counts in no sum."""
    seen, pod = _last_try(pods)
    owned = bool(pod.controller)
    return PendingItem(
        kind=pod.controller_kind if owned else "Pod",
        uid=pod.controller or seen.uid,
        namespace=seen.namespace,
        name=pod.owner if owned else seen.name,
        owner_kind=pod.owner_kind or "Pod",
        owner=pod.owner or seen.name,
        since=min(_tried_at(one) for _, one in pods),
        requests=index.gpus(pod.requests),
        counts=Counts.NOTHING,
        diagnosis=_rejection_diagnosis(seen, pod, len(pods)),
        share=0.0,
        node=pod.node,
        node_selector=pod.placement.node_selector,
        queue=pod.queue,
        priority=pod.priority,
    )


def _tried_at(pod: PodSnapshot) -> float:
    return pod.bound or pod.created


def _recent_tries(
    pods: list[tuple[ObservedObject, PodSnapshot]], now: float
) -> list[tuple[ObservedObject, PodSnapshot]]:
    """Return the latest tries, each soon after the one before; none when the last is long ago."""
    # From the latest back: the first long pause ends the series.
    found, after = [], now
    for one in sorted(pods, key=lambda one: -_tried_at(one[1])):
        if after - _tried_at(one[1]) > _RECENT_SECONDS:
            break
        found.append(one)
        after = _tried_at(one[1])
    return found


def _last_try(pods: list[tuple[ObservedObject, PodSnapshot]]) -> tuple[ObservedObject, PodSnapshot]:
    return max(pods, key=lambda one: (_tried_at(one[1]), one[0].uid))


def _rejection_diagnosis(seen: ObservedObject, pod: PodSnapshot, times: int) -> Diagnosis:
    cause = rejection(pod.reason, pod.message) or Cause.ADMISSION
    turned_away = says("turned_away", times=times, pod=seen.name, node=pod.node, reason=pod.reason)
    return Diagnosis(
        cause,
        pod.reason,
        pod.message,
        sentences=(turned_away,),
        suggestions=(_rejection_suggestion(pod, cause),),
    )


def _rejection_suggestion(pod: PodSnapshot, cause: Cause) -> Suggestion:
    if shortage := _OUT_OF.search(pod.message[:LONGEST]):
        short = float(shortage["requested"]) + float(shortage["used"]) - float(shortage["capacity"])
        # Kubelet says what it had used when it refused; with room for the pod it was something
        # else.
        if short > 0:
            return free_some(shortage["resource"], short, [pod.node])
    look = says("look_at_numa" if cause is Cause.TOPOLOGY else "look_at_devices")
    change = {"nodes": [pod.node], "reason": pod.reason}
    return Suggestion(Action.CHECK_NODE, change, look)


class PodDiagnoser:
    """Finds the cause of each pending pod, with the Workloads and gangs that block some of them."""

    def __init__(
        self,
        index: ClusterIndex,
        placer: PlacementDiagnoser,
        claims: PodClaims,
        queued: Iterable[tuple[QueuedWorkload, Diagnosis]],
        flavors: Mapping[str, Mapping[str, str]],
        gangs: Iterable[tuple[Gang, Diagnosis]],
    ) -> None:
        self._index = index
        self._placer = placer
        self._claims = claims
        self._queued: dict[Owner, Diagnosis] = {}
        self._flavors: dict[Owner, Mapping[str, str]] = {}
        for one, why in queued:
            namespace, body = one.seen.namespace, one.body
            # Pods name their Workload either by their group or by their controller.
            for key in ((namespace, "", one.seen.name), (namespace, body.owner_kind, body.owner)):
                self._queued[key] = why
                self._flavors[key] = flavors[one.seen.uid]
        self._gangs = {seen.uid: why for gang, why in gangs for seen, _ in gang.pods}

    def items(self) -> list[PendingItem]:
        """Return the pods that wait; those that are over or being deleted do not."""
        return [
            self._item(seen, pod)
            for seen, pod in self._index.pods
            if pod.phase not in ("Failed", "Succeeded") and pod.deleting is None
        ]

    def before_submission(self, seen: ObservedObject, pod: PodSnapshot) -> Diagnosis | None:
        """Return why a pod that is not made yet would be pending; None where a node takes it."""
        if pod.gates:
            return self._gated(seen, pod, "")
        missing = unmade(seen.namespace, pod, self._claims, [])
        if missing is not None:
            return missing
        # The default scheduler is taken to exist, even where it was not seen at work yet. So are
        # those whose queues are there: of running pods the scheduler is not recorded.
        known = {_DEFAULT_SCHEDULER, *self._index.schedulers}
        if self._index.state.of(ObservedKind.VOLCANO_QUEUE):
            known.add(_VOLCANO)
        if self._index.state.of(ObservedKind.KAI_QUEUE):
            known |= kai.SCHEDULERS
        if pod.scheduler not in known:
            return self._unseen(pod)
        return self._placer.by_state(pod.requests, pod.placement)

    def _item(self, seen: ObservedObject, pod: PodSnapshot) -> PendingItem:
        why = self._why(seen, pod)
        context = self._index.context(seen)
        requests = self._index.gpus(pod.requests)
        bound = bool(pod.node)
        counts = Counts.STARTING if bound else Counts.PENDING
        return PendingItem(
            kind=seen.kind.short,
            uid=seen.uid,
            namespace=seen.namespace,
            name=seen.name,
            owner_kind=pod.owner_kind or "Pod",
            owner=pod.owner or seen.name,
            since=pod.created,
            requests=requests,
            counts=counts if requests else Counts.NOTHING,
            diagnosis=replace(why, context=context) if context else why,
            share=1.0 if requests else 0.0,
            bound=pod.bound if bound else None,
            node=pod.node,
            node_selector={**self._flavor_labels(seen, pod), **selector(pod.placement)},
            queue=pod.queue,
            priority=pod.priority,
            again=not bound and self._index.preempted_at(pod) is not None,
        )

    def _why(self, seen: ObservedObject, pod: PodSnapshot) -> Diagnosis:
        if pod.node:
            return why_not_running(pod, self._index.events(seen))
        message = self._message(seen, pod)
        # A gated pod never reaches the scheduler: whatever else is said of it cannot be the cause.
        if pod.gates:
            return self._gated(seen, pod, message)
        # The scheduler has chosen a node already: the refusal that it still shows is from before.
        if pod.nominated_node:
            return replace(preempting(pod), message=message)
        # Alone the pod may well fit: the gang says what it really lacks.
        if seen.uid in self._gangs:
            why = self._gangs[seen.uid]
            return replace(why, message=message or why.message)
        if message:
            if pod.scheduled is not None and pod.scheduled.reason == "SchedulerError":
                failed = says("scheduler_failed")
                return Diagnosis(Cause.SCHEDULER, SCHEDULER_ERROR, message, sentences=(failed,))
            return self._placed_by_kai(seen, pod, message) or self._placer.why(seen, pod, message)
        events = self._index.events(seen)
        return (
            unmade(seen.namespace, pod, self._claims, events)
            or self._gang_of_kai(seen, pod)
            or self._unseen(pod)
        )

    def _placed_by_kai(
        self, seen: ObservedObject, pod: PodSnapshot, message: str
    ) -> Diagnosis | None:
        """Return what KAI's text says; None for that of another scheduler."""
        why = kai.queue_diagnosis(message, self._index.gpus(pod.requests))
        if why is not None:
            return replace(why, message=message)
        verdict = kai.node_verdict(message)
        if verdict is None:
            return None
        found = self._placer.why(seen, pod, message, verdict.nodes)
        if verdict.needed <= 1:
            return found
        # Of a gang the nodes tell what the other pods lack, not why this one is pending.
        starts = says("kai_gang", needed=verdict.needed, could=verdict.could)
        return replace(
            found, cause=Cause.GANG, detail=kai.GANG, sentences=(starts, *found.sentences)
        )

    def _gang_of_kai(self, seen: ObservedObject, pod: PodSnapshot) -> Diagnosis | None:
        events = self._index.about_groups(seen.namespace)
        return kai.incomplete_gang(pod, [e for e in events if kai.made_for(e, pod)])

    def _message(self, seen: ObservedObject, pod: PodSnapshot) -> str:
        """Return the scheduler's text: that of the condition, which neither is cut nor expires."""
        scheduled = pod.scheduled
        if scheduled is not None and scheduled.status == "False" and scheduled.message:
            return scheduled.message
        return self._index.failed_scheduling(seen)

    def _workload_of(self, seen: ObservedObject, pod: PodSnapshot) -> Owner | None:
        """Return by what the Workload is found that holds a pod back; None where none does."""
        # Gates of others do not open when Kueue admits the Workload.
        if not any(gate.startswith(_KUEUE) for gate in pod.gates):
            return None
        keys = [(seen.namespace, "", pod.group)] if pod.group else []
        keys.append((seen.namespace, pod.owner_kind, pod.owner))
        return next((key for key in keys if key in self._queued), None)

    def _flavor_labels(self, seen: ObservedObject, pod: PodSnapshot) -> Mapping[str, str]:
        key = self._workload_of(seen, pod)
        return {} if key is None else self._flavors[key]

    def _gated(self, seen: ObservedObject, pod: PodSnapshot, message: str) -> Diagnosis:
        if (key := self._workload_of(seen, pod)) is not None:
            why = self._queued[key]
            return replace(why, message=why.message or message)
        group = pod.group if GATE_REMOVERS.keys() & set(pod.gates) else ""
        return Diagnosis(
            Cause.QUEUE,
            GATED,
            message,
            sentences=(says("gated", gates=list(pod.gates), group=group),),
            suggestions=all_needed([Suggestion(Action.UNGATE, {"gate": g}) for g in pod.gates]),
        )

    def _unseen(self, pod: PodSnapshot) -> Diagnosis:
        name = pod.scheduler
        # A scheduler that placed or refused any pod exists; one never seen at work may be a typing
        # error.
        if name != _DEFAULT_SCHEDULER and name not in self._index.schedulers:
            step = Suggestion(Action.SET_SCHEDULER, {"from": name, "to": _DEFAULT_SCHEDULER})
            found = says("no_scheduler", scheduler=name)
            return Diagnosis(Cause.SCHEDULER, NO_SCHEDULER, sentences=(found,), suggestions=(step,))
        change = {"what": "scheduler", "on": name}
        step = Suggestion(Action.WAIT, change, says("wait_for_scheduler"))
        found = says("scheduler_silent", scheduler=name)
        return Diagnosis(Cause.SCHEDULER, NOT_YET, sentences=(found,), suggestions=(step,))


def selector(placement: Placement) -> dict[str, str]:
    """Return the labels that a node must have, including those that only affinity demands."""
    found = dict(placement.node_selector)
    # Terms are alternatives: with several of them no single label is a must.
    if len(placement.affinity) == 1:
        for expression in placement.affinity[0]:
            if expression.operator == "In" and len(expression.values) == 1 and not expression.field:
                found.setdefault(expression.key, expression.values[0])
    return found
