"""Pending Workloads of Kueue: why each is pending, and what would let it in."""

import re
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence

from msgspec import Struct, structs

from apps.accounts.domain.structs import replace
from apps.clusters.domain.observed.objects import (
    ClusterQueueSnapshot,
    Condition,
    FlavorSnapshot,
    LocalQueueSnapshot,
    ObservedKind,
    ObservedObject,
    WorkloadSnapshot,
)
from apps.pending.domain.cluster_index import ClusterIndex, bodies
from apps.pending.domain.diagnosis import (
    Action,
    Cause,
    Diagnosis,
    Relation,
    Sentence,
    Suggestion,
    says,
)
from apps.pending.domain.placement.fits import EPSILON, all_needed
from apps.pending.domain.placement.flavor_nodes import FlavorNodes, PodShape, Workload
from apps.pending.domain.placement.unschedulable import PlacementDiagnoser
from apps.pending.domain.queues.cluster_queues import (
    NEAR,
    QueuedWorkload,
    QueueHeadroom,
    QueueLimits,
    condition,
    in_queue_order,
    is_pending,
    queues_of,
    takes_namespace,
    total,
    was_evicted,
)

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


class MissingQuota(Struct, frozen=True):
    """A quota that is too small, by how much, and how many Workloads that much more admits."""

    room: QueueHeadroom
    short: float
    of: int = 1


class AdmissionAdvisor:
    """Finds the smallest change that starts a Workload whose queue works."""

    def __init__(
        self, queues: QueueLimits, nodes: FlavorNodes, is_gpu: Callable[[str], bool]
    ) -> None:
        self.queues = queues
        self._nodes = nodes
        self._is_gpu = is_gpu
        self._lines: dict[tuple[str, str, str, bool], tuple[float, int]] = {}

    def suggestions(self, one: QueuedWorkload, *, in_line: bool) -> list[Suggestion]:
        """Suggest what admits it and gives its pods a place: to ask for less, quota, nodes."""
        wanted = total(one.body)
        chosen = self._rooms(one, wanted)
        flavors = {r: room.flavor for r, room in chosen.items() if self._is_gpu(r)}
        flavor = next(iter(flavors.values()), "")
        if not flavor or not self._nodes.known(flavor):
            return self._raise(one, wanted, chosen, in_line=in_line)
        if self._nodes.unlike((one.seen, one.body), flavor):
            return [self._nodes.missing_flavor((one.seen, one.body), one.cluster_queue)]
        first = self._nodes.agree((one.seen, one.body), flavor)
        shapes = self._nodes.shapes((one.seen, one.body), flavor, agreeing=True)
        last = []
        if not self._nodes.could_hold(shapes):
            if smaller := self._smaller(shapes, chosen):
                shape, resource, to = smaller
                first.append(_ask_less(resource, shapes[0].requests[resource], to))
                wanted = {**wanted, resource: to * shape.count}
                shapes = [shape]
            else:
                last = self._more_nodes(shapes)
        quota = self._needed(one, wanted, chosen, in_line=in_line)
        if not first and not last and not quota:
            return self._raise(one, wanted, chosen, in_line=in_line)
        if not last and one.place < NEAR:
            # Those being checked are in no line any more, but their pods are still to come.
            before = [self._nodes.admitted(w, flavor) for w in one.checked]
            before += [self._nodes.shapes(w, flavor) for w in one.ahead]
            last = self._nodes.make_room((one.seen, one.body), shapes, before)
        raised = [_raise_nominal(one.cluster_queue, need) for need in quota]
        # To free quota is no other way where the Workload itself must change.
        instead = self._instead(one, quota) if not first else []
        return [*all_needed([*first, *raised, *last]), *instead]

    def flavor_of(self, one: QueuedWorkload) -> tuple[str, str]:
        """Return Kueue's reason why no flavor has room for a Workload, or "" and that of its GPUs.

        Resources of one group come from the same flavor; the first in order that has room is
        taken.
        """
        flavor, wanted = "", {r: units for r, units in total(one.body).items() if units > 0}
        groups: dict[tuple[str, ...], list[str]] = defaultdict(list)
        for resource in wanted:
            offers = self.queues.rooms(one.cluster_queue, resource)
            groups[tuple(room.flavor for room in offers)].append(resource)
        for names, resources in groups.items():
            of_gpus = any(map(self._is_gpu, resources))
            workload = (one.seen, one.body)
            suited = [
                name
                for name in names
                if not of_gpus or not self._nodes.contradicted(workload, name)
            ]
            if names and not suited:
                return "NoMatchingFlavor", ""
            rooms = {
                (room.flavor, r): room
                for r in resources
                for room in self.queues.rooms(one.cluster_queue, r)
            }
            fits = [
                n for n in suited if all(rooms[n, r].free + EPSILON >= wanted[r] for r in resources)
            ]
            if not fits:
                ever = any(
                    all(rooms[n, r].most + EPSILON >= wanted[r] for r in resources) for n in suited
                )
                return ("WaitingForQuota" if ever else "ExceedsMaxQuota"), ""
            flavor = fits[0] if of_gpus else flavor
        return "", flavor

    def _smaller(
        self, shapes: Sequence[PodShape], chosen: Mapping[str, QueueHeadroom]
    ) -> tuple[PodShape, str, float] | None:
        """Return the pods with as many GPUs as queue and nodes can give; None when not even one."""
        if len(shapes) != 1:
            return None
        gpus = [r for r in shapes[0].requests if self._is_gpu(r) and r in chosen]
        if len(gpus) != 1:
            return None
        (resource,), shape = gpus, shapes[0]
        most = self._nodes.most_each(shape, resource, chosen[resource].most / shape.count)
        if most < 1:
            return None
        return replace(shape, requests={**shape.requests, resource: most}), resource, most

    def _more_nodes(self, shapes: Sequence[PodShape]) -> list[Suggestion]:
        steps = []
        for shape in shapes:
            if (lacking := self._nodes.lacking(shape)) > 0:
                resource = next(r for r in sorted(shape.requests) if self._is_gpu(r))
                each = shape.requests[resource]
                change = {"resource": resource, "amount": each, "count": lacking}
                steps.append(Suggestion(Action.ADD_NODE, change, says("add_of_flavor")))
        return steps

    def _rooms(self, one: QueuedWorkload, wanted: Mapping[str, float]) -> dict[str, QueueHeadroom]:
        """Return for each resource the flavor with most left, one whose nodes could hold it."""
        # GPUs choose first: CPU and memory are plenty and would choose a flavor without GPUs.
        chosen: dict[str, QueueHeadroom] = {}
        for resource in sorted(wanted, key=lambda r: not self._is_gpu(r)):
            rooms = self.queues.rooms(one.cluster_queue, resource)
            # Resources that one group covers come from the same flavor.
            same = [room for room in rooms if room.flavor in {c.flavor for c in chosen.values()}]
            if best := max(
                same or rooms, key=lambda r: (*self._suits(one, r), r.free), default=None
            ):
                chosen[resource] = best
        return chosen

    def _suits(self, one: QueuedWorkload, room: QueueHeadroom) -> tuple[bool, bool]:
        """Say whether a flavor's nodes could hold a Workload, and whether it requests no others."""
        if not self._is_gpu(room.resource):
            return True, True
        agrees = not self._nodes.contradicted((one.seen, one.body), room.flavor)
        return self._holds((one.seen, one.body), room), agrees

    def _holds(self, one: Workload, room: QueueHeadroom) -> bool:
        """Say whether the nodes of a flavor could hold a Workload; not known counts as yes."""
        if not self._nodes.known(room.flavor):
            return True
        return self._nodes.could_hold(self._nodes.shapes(one, room.flavor))

    def _needed(
        self,
        one: QueuedWorkload,
        wanted: Mapping[str, float],
        chosen: Mapping[str, QueueHeadroom],
        *,
        in_line: bool,
    ) -> list[MissingQuota]:
        """Return the quotas that are too small and by how much, with those in front let in.

        One change for the whole queue is preferred: it admits all that pend there and have a place.
        """
        needed = []
        own = total(one.body)
        for resource, room in chosen.items():
            units = wanted[resource]
            if in_line:
                # A strict queue passes over no Workload: all in front go first.
                short = one.with_ahead[resource] - own[resource] + units - room.free
            else:
                ahead = [total(body).get(resource, 0.0) for _, body in one.ahead]
                short = _short_of(units, room.free, ahead)
            if short > EPSILON:
                as_asked = units == own.get(resource)
                asked, of = self._of_line(one, room, in_line=in_line) if as_asked else (0.0, 1)
                every = asked - room.free
                more = every >= short - EPSILON
                needed.append(MissingQuota(room, every, of) if more else MissingQuota(room, short))
        return needed

    def _of_line(
        self, one: QueuedWorkload, room: QueueHeadroom, *, in_line: bool
    ) -> tuple[float, int]:
        """Return what the Workloads of a queue ask for that a flavor has nodes for; how many.

        Nothing where its nodes could not hold all of them. In a strict queue none is left out.
        """
        key = (one.cluster_queue, room.flavor, room.resource, in_line)
        if key not in self._lines:
            line = [w for w in one.line if in_line or self._holds(w, room)]
            asked = [total(body).get(room.resource, 0.0) for _, body in line]
            most = self._nodes.offered(room.flavor, room.resource)
            units = sum(asked)
            enough = most is None or units <= most + EPSILON
            self._lines[key] = (units, sum(1 for u in asked if u > 0)) if enough else (0.0, 1)
        return self._lines[key]

    def _raise(
        self,
        one: QueuedWorkload,
        wanted: Mapping[str, float],
        chosen: Mapping[str, QueueHeadroom],
        *,
        in_line: bool,
    ) -> list[Suggestion]:
        """Suggest the quotas to raise, of each resource in the flavor that lacks least."""
        needed = self._needed(one, wanted, chosen, in_line=in_line)
        raised = all_needed([_raise_nominal(one.cluster_queue, need) for need in needed])
        steps = [*raised, *self._instead(one, needed)]
        return steps or [Suggestion(Action.WAIT, {"what": "admission"}, says("wait_for_kueue"))]

    def _instead(self, one: QueuedWorkload, needed: list[MissingQuota]) -> list[Suggestion]:
        alone = len(needed) == 1 and needed[0].short <= needed[0].room.most + EPSILON
        return self._free(one, needed[0].room, needed[0].short) if alone else []

    def _free(self, one: QueuedWorkload, room: QueueHeadroom, short: float) -> list[Suggestion]:
        """Suggest what others are to give back: the queue itself where its own limit is in the way.

        What is given back in the queue is so in its cohort too.
        """
        needed = short + room.free
        if needed > room.most + EPSILON:
            return []
        queue, cohort = one.cluster_queue, self.queues.cohort_of(one.cluster_queue)
        here = max(0.0, needed - room.below_ceiling) if cohort else short
        parts = [(here, {"queue": queue}), (short - here, {"cohort": cohort})]
        steps = [_give_back(queue, room, *part) for part in parts if part[0] > EPSILON]
        first = [structs.replace(step, relation=Relation.OR) for step in steps[:1]]
        return [*first, *all_needed(steps)[1:]]


def _ask_less(resource: str, wanted: float, to: float) -> Suggestion:
    change = {"resource": resource, "from": wanted, "to": to}
    return Suggestion(Action.REQUEST, change, says("request_each"))


def _short_of(wanted: float, room: float, ahead: Sequence[float]) -> float:
    """Return how much more room lets something in after those in front that it lets in too."""
    short = max(0.0, wanted - room)
    if short <= EPSILON:
        return 0.0
    for _ in range(len(ahead) + 1):
        left = room + short
        for units in ahead:
            left -= units if units <= left + EPSILON else 0.0
        if wanted <= left + EPSILON:
            return short
        short += wanted - left
    return wanted + sum(ahead) - room


def _give_back(
    queue: str, room: QueueHeadroom, units: float, where: Mapping[str, str]
) -> Suggestion:
    change = {
        "resource": room.resource,
        "amount": units,
        "nodes": [],
        "cluster_queue": queue,
        "flavor": room.flavor,
    }
    return Suggestion(Action.FREE, change, says("free_quota", **where))


def _raise_nominal(queue: str, need: MissingQuota) -> Suggestion:
    room, to = need.room, need.room.nominal + need.short
    change = {
        "cluster_queue": queue,
        "flavor": room.flavor,
        "resource": room.resource,
        "from": room.nominal,
        "to": to,
    }
    every = says("raise_for_all", more=need.short, of=need.of) if need.of > 1 else None
    return Suggestion(Action.RAISE_QUEUE_QUOTA, change, every)


class KueueQueues:
    """The queues of a cluster and the Workloads pending in them."""

    def __init__(self, index: ClusterIndex, placer: PlacementDiagnoser) -> None:
        self._is_gpu = index.is_gpu
        self.queues: QueueLimits = queues_of(index.state)
        self._admitting = AdmissionAdvisor(self.queues, FlavorNodes(index, placer), index.is_gpu)
        found = bodies(index.state.of(ObservedKind.LOCAL_QUEUE), LocalQueueSnapshot)
        self._local = {(s.namespace, s.name): body for s, body in found}
        flavors = bodies(index.state.of(ObservedKind.RESOURCE_FLAVOR), FlavorSnapshot)
        self._flavors = {seen.name: body for seen, body in flavors}
        workloads = bodies(index.state.of(ObservedKind.KUEUE_WORKLOAD), WorkloadSnapshot)
        self.waiting = self._in_order([(s, w) for s, w in workloads if is_pending(w)])

    def why(self, one: QueuedWorkload) -> Diagnosis:
        """Return why a Workload is pending, its position in the queue and what would admit it."""
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

    def before_submission(self, one: QueuedWorkload) -> tuple[Diagnosis | None, str]:
        """Return why a Workload that is not made yet would wait in its queue, else its flavor.

        Nothing is preempted for it. Empty where no GPU has a flavor.
        """
        if self._broken(one, None, ""):
            return self.why(one), ""
        if one.cluster_queue not in self.queues.by_name:
            # Without any queue seen, the reader may lack the right to list them.
            return (self._with_reason(one, "Misconfigured") if self.queues.by_name else None), ""
        if self._body(one).strategy == _STRICT and one.place:
            return self.why(one), ""
        reason, flavor = self._admitting.flavor_of(one)
        return (self._with_reason(one, reason) if reason else None), flavor

    def flavor(self, name: str) -> FlavorSnapshot:
        """Return a flavor; one without labels where it was not seen."""
        return self._flavors.get(name, FlavorSnapshot())

    def _with_reason(self, one: QueuedWorkload, reason: str) -> Diagnosis:
        state = Condition("QuotaReserved", "False", reason)
        return self.why(replace(one, body=replace(one.body, conditions=(state,))))

    def node_labels(self, one: QueuedWorkload) -> Mapping[str, str]:
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

    def _in_order(
        self, found: list[tuple[ObservedObject, WorkloadSnapshot]]
    ) -> list[QueuedWorkload]:
        by_queue: dict[str, list[tuple[ObservedObject, WorkloadSnapshot]]] = defaultdict(list)
        for seen, body in found:
            by_queue[self._cluster_queue(seen.namespace, body)].append((seen, body))
        return [
            replace(one, of_gpus=self._of_gpus(queue))
            for queue in by_queue
            for one in in_queue_order(queue, by_queue[queue])
        ]

    def _of_gpus(self, queue: str) -> bool:
        body = self.queues.by_name.get(queue)
        return body is not None and any(self._is_gpu(one.resource) for one in body.quotas)

    def _cluster_queue(self, namespace: str, body: WorkloadSnapshot) -> str:
        local = self._local.get((namespace, body.queue))
        return body.cluster_queue or (local.cluster_queue if local is not None else "")

    def _detail(self, one: QueuedWorkload, state: Condition | None, message: str) -> str:
        if not one.body.active:
            return INACTIVE
        # Quota is set aside, the Workload is not admitted yet: its admission checks are pending.
        if state is not None and state.status == "True":
            return CHECKS
        # Before the Workload's own reason: in a stopped queue that text is left over from before.
        if broken := self._broken(one, state, message):
            return broken
        detail = self._plain_detail(one, state, message)
        if detail in _FRESH and was_evicted(one.body):
            return REQUEUED
        return detail

    def _plain_detail(self, one: QueuedWorkload, state: Condition | None, message: str) -> str:
        # Kueue has not looked at it. In a strict queue it never looks past a head that does not
        # fit.
        if state is None:
            strict = self._body(one).strategy == _STRICT
            return BEHIND if strict and one.place else EVALUATION
        # Versions before 0.19 only say Pending or Inadmissible: then the message must tell.
        if state.reason in _DETAILS:
            return _DETAILS[state.reason]
        # `unused` makes the difference: with it to wait helps, without it the quota is too small
        # for ever.
        if "insufficient unused quota" in message:
            return WAITING
        if _BEYOND in message or "request > maximum" in message:
            return EXCEEDS
        return WAITING

    def _broken(self, one: QueuedWorkload, state: Condition | None, message: str) -> str:
        """Return what is the matter with the queue itself; empty when it works."""
        local = self._local.get((one.seen.namespace, one.body.queue))
        queue = self.queues.by_name.get(one.cluster_queue)
        if local is not None and local.stop_policy in _STOPS:
            return STOPPED
        if queue is not None and queue.stop_policy in _STOPS:
            return STOPPED
        if queue is not None and (active := _active(queue)) is not None:
            return STOPPED if active.reason == "Stopped" else MISCONFIGURED
        if queue is not None and takes_namespace(queue, one.seen.namespace) is False:
            return MISCONFIGURED
        known = state.reason if state is not None else ""
        if known == "Misconfigured" or "doesn't exist" in message or message.endswith("not found"):
            return MISCONFIGURED
        # Without any LocalQueue seen, the reader may lack the right to list them.
        if self._local and local is None:
            return MISCONFIGURED
        return STOPPED if known == "Suspended" or "is inactive" in message else ""

    def _body(self, one: QueuedWorkload) -> ClusterQueueSnapshot:
        return self.queues.by_name.get(one.cluster_queue, ClusterQueueSnapshot())

    def _sentence(self, one: QueuedWorkload, detail: str) -> Sentence:
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
                "nominal": room.nominal,
                "used": room.used,
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

    def _suggestions(self, one: QueuedWorkload, detail: str, message: str) -> Sequence[Suggestion]:
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

    def _resume(self, one: QueuedWorkload) -> Sequence[Suggestion]:
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

    def _fixes(self, one: QueuedWorkload, message: str) -> Sequence[Suggestion]:
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
