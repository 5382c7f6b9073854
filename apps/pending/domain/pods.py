"""Pods that wait: which of the possible reasons holds for each."""

from collections.abc import Iterable, Mapping

from msgspec.structs import replace

from apps.clusters.domain.observed.objects import ObservedObject, Placement, PodSnapshot
from apps.pending.domain.causes import Cause, Counts
from apps.pending.domain.claims import Claims, unmade
from apps.pending.domain.cluster_index import ClusterIndex, Owner
from apps.pending.domain.diagnosis import Action, Diagnosis, Suggestion, says
from apps.pending.domain.placement.fixes import all_needed
from apps.pending.domain.placement.starting import why_not_running
from apps.pending.domain.placement.unschedulable import Placer, preempting
from apps.pending.domain.queues.gangs import Gang
from apps.pending.domain.queues.queued import Queued
from apps.pending.domain.state import PendingItem
from apps.pending.domain.wording import GATE_REMOVERS

GATED = "scheduling-gated"
NO_SCHEDULER = "no scheduler"
NOT_YET = "not looked at yet"
SCHEDULER_ERROR = "scheduler error"
_DEFAULT_SCHEDULER = "default-scheduler"
_KUEUE = "kueue.x-k8s.io/"


class Pods:
    """Finds why each pod waits, with the Workloads and gangs that hold some of them back."""

    def __init__(
        self,
        index: ClusterIndex,
        placer: Placer,
        claims: Claims,
        queued: Iterable[tuple[Queued, Diagnosis]],
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
            for key in ((namespace, "", one.seen.name), (namespace, body.owner_kind, body.owner)):
                self._queued[key] = why
                self._flavors[key] = flavors[one.seen.uid]
        self._gangs = {seen.uid: why for gang, why in gangs for seen, _ in gang.pods}

    def waiting(self) -> list[PendingItem]:
        """Return the pods that wait; those that are over or being deleted do not."""
        return [
            self._waiting(seen, pod)
            for seen, pod in self._index.pods
            if pod.phase not in ("Failed", "Succeeded") and pod.deleting is None
        ]

    def _waiting(self, seen: ObservedObject, pod: PodSnapshot) -> PendingItem:
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
        if pod.gates:
            return self._gated(seen, pod, message)
        if pod.nominated_node:
            return replace(preempting(pod), message=message)
        if seen.uid in self._gangs:
            why = self._gangs[seen.uid]
            return replace(why, message=message or why.message)
        if message:
            if pod.scheduled is not None and pod.scheduled.reason == "SchedulerError":
                failed = says("scheduler_failed")
                return Diagnosis(Cause.SCHEDULER, SCHEDULER_ERROR, message, sentences=(failed,))
            return self._placer.why(seen, pod, message)
        events = self._index.events(seen)
        return unmade(seen.namespace, pod, self._claims, events) or self._unseen(pod)

    def _message(self, seen: ObservedObject, pod: PodSnapshot) -> str:
        """Return the scheduler's text: that of the condition, which neither is cut nor expires."""
        scheduled = pod.scheduled
        if scheduled is not None and scheduled.status == "False" and scheduled.message:
            return scheduled.message
        return self._index.failed_scheduling(seen)

    def _workload_of(self, seen: ObservedObject, pod: PodSnapshot) -> Owner | None:
        """Return by what the Workload is found that holds a pod back; None where none does."""
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
        if name != _DEFAULT_SCHEDULER and name not in self._index.schedulers:
            step = Suggestion(Action.SET_SCHEDULER, {"from": name, "to": _DEFAULT_SCHEDULER})
            found = says("no_scheduler", scheduler=name)
            return Diagnosis(Cause.SCHEDULER, NO_SCHEDULER, sentences=(found,), suggestions=(step,))
        change = {"what": "scheduler", "on": name}
        step = Suggestion(Action.WAIT, change, says("wait_for_scheduler"))
        found = says("scheduler_silent", scheduler=name)
        return Diagnosis(Cause.SCHEDULER, NOT_YET, sentences=(found,), suggestions=(step,))


def selector(placement: Placement) -> dict[str, str]:
    """Return the labels that a node must have, also those that affinity asks for alone."""
    found = dict(placement.node_selector)
    if len(placement.affinity) == 1:
        for expression in placement.affinity[0]:
            if expression.operator == "In" and len(expression.values) == 1 and not expression.field:
                found.setdefault(expression.key, expression.values[0])
    return found
