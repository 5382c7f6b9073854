"""Why a Kueue Workload waits: its queue, its place in it, and the quota it is short of."""

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace

from apps.clusters.domain.observed.objects import (
    ClusterQueueSnapshot,
    Condition,
    FlavorSnapshot,
    LocalQueueSnapshot,
    ObservedKind,
    ObservedObject,
    WorkloadSnapshot,
)
from apps.pending.domain.causes import Cause
from apps.pending.domain.cluster_index import ClusterIndex, bodies
from apps.pending.domain.diagnosis import Action, Diagnosis, Sentence, Suggestion, says
from apps.pending.domain.placement.fixes import all_needed
from apps.pending.domain.placement.flavor_nodes import FlavorNodes
from apps.pending.domain.placement.unschedulable import Placer
from apps.pending.domain.queues.admitting import Admitting
from apps.pending.domain.queues.headroom import QueueLimits, queues_of
from apps.pending.domain.queues.queued import Queued, condition, lined_up, total, waits, was_evicted

WAITING = "waiting-for-quota"
EXCEEDS = "exceeds-max-quota"
STOPPED = "queue-stopped"
MISCONFIGURED = "queue-misconfigured"
BEHIND = "queued-behind-head"
REQUEUED = "preempted-requeued"
CHECKS = "admission-checks"
INACTIVE = "deactivated"
EVALUATION = "pending-evaluation"
_STOPS = ("Hold", "HoldAndDrain")
_STRICT = "StrictFIFO"
_MOST_BLOCKERS = 20
_NO_FLAVOR = re.compile(r"missing ResourceFlavor\(s\): ([^.]+)")
_BEYOND = "> maximum capacity"
_DETAILS = {
    "WaitingForQuota": WAITING,
    "ExceedsMaxQuota": EXCEEDS,
    "Misconfigured": MISCONFIGURED,
    "NoMatchingFlavor": "no-matching-flavor",
    "TopologyPlacementFailed": "topology-placement-failed",
    "WaitingForPreemptedWorkloads": "waiting-for-preempted",
    "PendingEvaluation": EVALUATION,
    "WaitingForPodsReady": "waiting-for-pods-ready",
}
_NOT_IN_LINE = {
    STOPPED: "queue_stopped",
    MISCONFIGURED: "queue_broken",
    INACTIVE: "deactivated",
    CHECKS: "being_checked",
}
"""The sentences about Workloads that no quota would let in."""
_FRESH = frozenset({WAITING, EVALUATION, BEHIND, "waiting-for-preempted"})


class KueueQueues:
    """The queues of a cluster and who waits in them."""

    def __init__(self, index: ClusterIndex, placer: Placer) -> None:
        self._is_gpu = index.is_gpu
        self.queues: QueueLimits = queues_of(index.state)
        self._admitting = Admitting(self.queues, FlavorNodes(index, placer), index.is_gpu)
        found = bodies(index.state.of(ObservedKind.LOCAL_QUEUE), LocalQueueSnapshot)
        self._local = {(s.namespace, s.name): body for s, body in found}
        flavors = bodies(index.state.of(ObservedKind.RESOURCE_FLAVOR), FlavorSnapshot)
        self._flavors = {seen.name: body for seen, body in flavors}
        workloads = bodies(index.state.of(ObservedKind.KUEUE_WORKLOAD), WorkloadSnapshot)
        self.waiting = self._in_order([(s, w) for s, w in workloads if waits(w)])

    def why(self, one: Queued) -> Diagnosis:
        """Return why a Workload waits, its place in the queue and what would admit it."""
        state = condition(one.body, "QuotaReserved")
        message = state.message if state is not None and state.status == "False" else ""
        detail = self._detail(one, state, message)
        sharing = self.queues.sharing(one.cluster_queue)[:_MOST_BLOCKERS]
        return Diagnosis(
            Cause.QUEUE,
            detail,
            message,
            sentences=(self._sentence(one, detail),),
            suggestions=tuple(self._suggestions(one, detail, message)),
            blockers=tuple(f"cluster_queue:{name}" for name in sharing),
        )

    def node_labels(self, one: Queued) -> Mapping[str, str]:
        """Return the node labels of the flavor that a Workload gets its GPUs of; {}: not known.

        That is the one it was given, else the only one that its queue has for them.
        """
        asked = self._gpus(one.body)
        given = {f for part in one.body.pod_sets for r, f in part.flavors.items() if r in asked}
        rooms = [room for r in asked for room in self.queues.rooms(one.cluster_queue, r)]
        flavors = given or {room.flavor for room in rooms}
        if len(flavors) != 1:
            return {}
        return self._flavors.get(flavors.pop(), FlavorSnapshot()).node_labels

    def _in_order(self, found: list[tuple[ObservedObject, WorkloadSnapshot]]) -> list[Queued]:
        by_queue: dict[str, list[tuple[ObservedObject, WorkloadSnapshot]]] = defaultdict(list)
        for seen, body in found:
            by_queue[self._cluster_queue(seen.namespace, body)].append((seen, body))
        return [
            replace(one, of_gpus=self._of_gpus(queue))
            for queue in by_queue
            for one in lined_up(queue, by_queue[queue])
        ]

    def _of_gpus(self, queue: str) -> bool:
        body = self.queues.by_name.get(queue)
        return body is not None and any(self._is_gpu(one.resource) for one in body.quotas)

    def _cluster_queue(self, namespace: str, body: WorkloadSnapshot) -> str:
        local = self._local.get((namespace, body.queue))
        return body.cluster_queue or (local.cluster_queue if local is not None else "")

    def _detail(self, one: Queued, state: Condition | None, message: str) -> str:
        if not one.body.active:
            return INACTIVE
        if state is not None and state.status == "True":
            return CHECKS
        if broken := self._broken(one, state, message):
            return broken
        detail = self._plain_detail(one, state, message)
        if detail in _FRESH and was_evicted(one.body):
            return REQUEUED
        return detail

    def _plain_detail(self, one: Queued, state: Condition | None, message: str) -> str:
        if state is None:
            strict = self._body(one).strategy == _STRICT
            return BEHIND if strict and one.place else EVALUATION
        if state.reason in _DETAILS:
            return _DETAILS[state.reason]
        if "insufficient unused quota" in message:
            return WAITING
        if _BEYOND in message or "request > maximum" in message:
            return EXCEEDS
        return WAITING

    def _broken(self, one: Queued, state: Condition | None, message: str) -> str:
        """Return what is the matter with the queue itself; empty when it works."""
        local = self._local.get((one.seen.namespace, one.body.queue))
        queue = self.queues.by_name.get(one.cluster_queue)
        if local is not None and local.stop_policy in _STOPS:
            return STOPPED
        if queue is not None and queue.stop_policy in _STOPS:
            return STOPPED
        if queue is not None and (active := _active(queue)) is not None:
            return STOPPED if active.reason == "Stopped" else MISCONFIGURED
        known = state.reason if state is not None else ""
        if known == "Misconfigured" or "doesn't exist" in message or message.endswith("not found"):
            return MISCONFIGURED
        if self._local and local is None:
            return MISCONFIGURED
        return STOPPED if known == "Suspended" or "is inactive" in message else ""

    def _body(self, one: Queued) -> ClusterQueueSnapshot:
        return self.queues.by_name.get(one.cluster_queue, ClusterQueueSnapshot())

    def _sentence(self, one: Queued, detail: str) -> Sentence:
        requests, queue = self._gpus(one.body), one.cluster_queue or one.body.queue
        if (name := _NOT_IN_LINE.get(detail)) is not None:
            broken = detail == MISCONFIGURED
            return says(name, requests=requests, queue=one.body.queue if broken else queue)
        rooms = [
            {
                "flavor": room.flavor,
                "resource": resource,
                "free": max(0.0, room.free),
                "most": room.most,
            }
            for resource in requests
            for room in self.queues.rooms(one.cluster_queue, resource)
        ]
        return says(
            "in_line",
            requests=requests,
            place=one.place + 1,
            of=one.of,
            queue=queue,
            rooms=rooms[:4],
            again=was_evicted(one.body),
        )

    def _gpus(self, body: WorkloadSnapshot) -> dict[str, float]:
        return {r: a for r, a in sorted(total(body).items()) if self._is_gpu(r)}

    def _suggestions(self, one: Queued, detail: str, message: str) -> Sequence[Suggestion]:
        match detail:
            case "deactivated":
                change = {"namespace": one.seen.namespace, "name": one.seen.name}
                return [Suggestion(Action.ACTIVATE, change)]
            case "queue-stopped":
                return self._resume(one)
            case "queue-misconfigured":
                return self._fixes(one, message)
            case "admission-checks":
                checks = says("wait_for_checks")
                return [Suggestion(Action.WAIT, {"what": "admission checks"}, checks)]
        in_line = detail == BEHIND or self._body(one).strategy == _STRICT
        return self._admitting.suggestions(one, in_line=in_line)

    def _resume(self, one: Queued) -> Sequence[Suggestion]:
        local = self._local.get((one.seen.namespace, one.body.queue))
        steps = []
        of_queue = {"cluster_queue": one.cluster_queue}
        if self._body(one).stop_policy in _STOPS or local is None:
            steps.append(Suggestion(Action.RESUME_QUEUE, of_queue))
        if local is not None and local.stop_policy in _STOPS:
            of_local = {"local_queue": f"{one.seen.namespace}/{one.body.queue}"}
            steps.append(Suggestion(Action.RESUME_QUEUE, of_local))
        if not steps:
            steps.append(Suggestion(Action.RESUME_QUEUE, of_queue, says("resume_its_queue")))
        return all_needed(steps)

    def _fixes(self, one: Queued, message: str) -> Sequence[Suggestion]:
        namespace, name = one.seen.namespace, one.body.queue
        local = self._local.get((namespace, name))
        if local is None:
            return [Suggestion(Action.CREATE_QUEUE, {"namespace": namespace, "name": name})]
        queue = self.queues.by_name.get(local.cluster_queue)
        if queue is None and "selector" not in message:
            change = {"namespace": namespace, "name": name, "cluster_queue": local.cluster_queue}
            return [Suggestion(Action.CREATE_QUEUE, change, says("create_cluster_queue"))]
        active = _active(queue) if queue is not None else None
        if active is not None and (found := _NO_FLAVOR.search(active.message)):
            flavors = [flavor.strip() for flavor in found[1].split(",")]
            changes = ({"cluster_queue": local.cluster_queue, "flavor": one} for one in flavors)
            return all_needed([Suggestion(Action.CREATE_FLAVOR, change) for change in changes])
        change = {"cluster_queue": local.cluster_queue, "namespace": namespace}
        return [Suggestion(Action.ALLOW_NAMESPACE, change)]


def _active(queue: ClusterQueueSnapshot) -> Condition | None:
    """Return the condition that says a queue does not work; None while it does."""
    found = (c for c in queue.conditions if c.type == "Active" and c.status == "False")
    return next(found, None)
