"""Gangs: why one is pending, and which are partially admitted.

PodGroups are those of Volcano, of the scheduler plug-ins and of Kubernetes itself.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from msgspec import Struct

from apps.clusters.domain.observed.objects import (
    POD_GROUPS,
    Condition,
    ObservedKind,
    ObservedObject,
    PodGroupSnapshot,
    PodSnapshot,
    VolcanoQueueSnapshot,
)
from apps.pending.domain.cluster_index import ClusterIndex, bodies, plain
from apps.pending.domain.day_sums import amount
from apps.pending.domain.diagnosis import Action, BoundPod, Cause, Diagnosis, Suggestion, says
from apps.pending.domain.placement.fits import EPSILON, all_needed, bits, free
from apps.pending.domain.placement.unschedulable import PlacementDiagnoser

CLOSED = "queue-closed"
OVER_CAPABILITY = "queue-over-capability"
OVERUSED = "cluster-overused"
_INSUFFICIENT = "queue resource quota insufficient"
_OVERUSED = "resource in cluster is overused"
NOT_ENQUEUED = "not-enqueued"
TOO_FEW_PODS = "too few pods"
NOT_ENOUGH = "not all can start"
# `Unknown` is Volcano's phase of a gang that runs only in part.
_WAITING_PHASES = frozenset(
    {"", "Pending", "Inqueue", "PreScheduling", "Scheduling", "Unknown", "Unschedulable"}
)
_EVENTS = ("Unschedulable", "NotEnoughResources", "NotEnoughTasks", "Unenqueueable")
GANG_KINDS = frozenset(
    {
        *("MPIJob", "PyTorchJob", "TFJob", "XGBoostJob", "PaddleJob", "JAXJob", "TrainJob"),
        *("JobSet", "LeaderWorkerSet"),
    }
)
"""Kinds whose pods work on one task at the same time: none of them gets on without the others."""


class Gang(Struct, frozen=True):
    """A pending PodGroup, and its pending pods."""

    seen: ObservedObject
    body: PodGroupSnapshot
    pods: tuple[tuple[ObservedObject, PodSnapshot], ...] = ()


class Gangs:
    """The PodGroups of a cluster that wait, and why each does."""

    def __init__(self, index: ClusterIndex, placer: PlacementDiagnoser) -> None:
        self.index = index
        self._placer = placer
        found = bodies(index.state.of(ObservedKind.VOLCANO_QUEUE), VolcanoQueueSnapshot)
        self._queues = {seen.name: body for seen, body in found}
        members: dict[tuple[str, str], list[tuple[ObservedObject, PodSnapshot]]] = {}
        for seen, pod in index.pods:
            if pod.group and not pod.node and pod.phase != "Failed":
                members.setdefault((seen.namespace, pod.group), []).append((seen, pod))
        self._bound: dict[tuple[str, str], int] = {}
        for holder in index.state.holders:
            key = (holder.namespace, holder.group)
            self._bound[key] = self._bound.get(key, 0) + 1
        self.waiting = [
            Gang(seen, body, tuple(members.get((seen.namespace, seen.name), ())))
            for seen, body in bodies(index.state.of(*POD_GROUPS), PodGroupSnapshot)
            if is_pending(seen.kind, body)
        ]

    def total(self, gang: Gang) -> dict[str, float]:
        """Return the GPUs that a gang requests: its own number, but at least that of its pods."""
        # `minResources` covers `minMember` pods alone, and may be left out.
        declared = self.index.gpus(gang.body.requests)
        asked: dict[str, float] = {}
        for _, pod in gang.pods:
            for resource, units in self.index.gpus(pod.requests).items():
                asked[resource] = asked.get(resource, 0.0) + units
        return {
            r: max(declared.get(r, 0.0), asked.get(r, 0.0)) for r in sorted({*declared, *asked})
        }

    def since(self, gang: Gang) -> float:
        """Return since when a gang is pending: when it was created, or stopped being complete.

        Volcano writes anew every minute since when a gang is unschedulable: of one that never
        ran the time says nothing.
        """
        body = gang.body
        if gang.seen.kind is not ObservedKind.GANG_POD_GROUP and not _has_run(body):
            return body.created
        times = [one.since for one in body.conditions if _blocks(one) and one.since is not None]
        if gang.seen.kind is not ObservedKind.GANG_POD_GROUP and not times:
            times = [gang.seen.changed]
        return max([body.created, *times])

    def held(self, gang: Gang) -> list[BoundPod]:
        """Return the pods of a gang that hold something: by its name, else by its owner.

        An owner may have several gangs: of its pods no more are this one's than run of it.
        """
        seen, body = gang.seen, gang.body
        named = self.index.held_by((seen.namespace, "", seen.name))
        if named or not body.owner:
            return list(named)
        found = self.index.held_by((seen.namespace, body.owner_kind, body.owner))
        # That of Kubernetes itself does not say how many run.
        most = len(found) if seen.kind is ObservedKind.GANG_POD_GROUP else self._bound_pods(gang)
        return list(found[:most])

    def why(self, gang: Gang) -> Diagnosis:
        """Return why a gang is pending and what it lacks."""
        message = self._message(gang)
        # Volcano lets no pods be made before it enqueues the group: missing pods are no cause here.
        if gang.seen.kind is ObservedKind.VOLCANO_POD_GROUP and gang.body.phase in ("", "Pending"):
            return self._not_enqueued(gang, message)
        there = len(gang.pods) + self._bound_pods(gang)
        # Once enqueued, Volcano lets the pods be made: some may be on their way.
        if there < gang.body.min_member and gang.body.phase != "Inqueue":
            return self._too_few(gang, there, message)
        return self._not_all(gang, message)

    def _bound_pods(self, gang: Gang) -> int:
        known = self._bound.get((gang.seen.namespace, gang.seen.name), 0)
        return max(known, gang.body.running, gang.body.scheduled)

    def _message(self, gang: Gang) -> str:
        conditions = [one.message for one in gang.body.conditions if one.message and _blocks(one)]
        events = [plain(e.message) for e in self.index.events(gang.seen, *_EVENTS)]
        return next(iter([*conditions, *events]), "")

    def _not_enqueued(self, gang: Gang, message: str) -> Diagnosis:
        """Return why Volcano did not let a gang into its queue."""
        name = gang.body.queue or "default"
        queue = self._queues.get(name)
        requests = self.total(gang)
        over = self._over(gang, name, queue) if queue is not None else ()
        wait = Suggestion(Action.WAIT, {"what": "queue"}, says("wait_for_volcano", queue=name))
        if queue is not None and queue.state not in ("", "Open"):
            step = Suggestion(Action.RESUME_QUEUE, {"cluster_queue": name}, says("open_queue"))
            why = says("queue_closed", requests=requests, queue=name, state=queue.state.lower())
            detail, steps = CLOSED, (step, *over)
        elif _OVERUSED in message:
            why = says("cluster_overused", requests=requests)
            detail, steps = OVERUSED, (self._make_room(gang, gang.body.min_member),)
        elif over or _INSUFFICIENT in message:
            why = says("over_capability", requests=requests, queue=name)
            detail, steps = OVER_CAPABILITY, over or (wait,)
        else:
            why = says("not_enqueued", requests=requests, queue=name)
            detail, steps = NOT_ENQUEUED, (wait,)
        blockers = () if detail == OVERUSED else (f"volcano_queue:{name}",)
        return Diagnosis(
            Cause.QUEUE, detail, message, sentences=(why,), suggestions=steps, blockers=blockers
        )

    def _over(self, gang: Gang, name: str, queue: VolcanoQueueSnapshot) -> tuple[Suggestion, ...]:
        """Return the capabilities to raise: of the queue, and of those above it."""
        steps, known = self._over_one(gang, name, queue), {name}
        # A circle of parents would never end.
        while queue.parent in self._queues and queue.parent not in known:
            name, queue = queue.parent, self._queues[queue.parent]
            known.add(name)
            steps += self._over_one(gang, name, queue)
        return all_needed(steps)

    def _over_one(self, gang: Gang, name: str, queue: VolcanoQueueSnapshot) -> list[Suggestion]:
        steps = []
        for resource, units in self.total(gang).items():
            limit = queue.capability.get(resource)
            to = queue.allocated.get(resource, 0.0) + units
            if limit is not None and to > limit + EPSILON:
                change = {
                    "cluster_queue": name,
                    "flavor": "",
                    "resource": resource,
                    "from": limit,
                    "to": to,
                }
                raised = says("raise_capability")
                steps.append(Suggestion(Action.RAISE_QUEUE_QUOTA, change, raised))
        return steps

    def _too_few(self, gang: Gang, there: int, message: str) -> Diagnosis:
        missing = gang.body.min_member - there
        step = Suggestion(Action.COMPLETE_GANG, {"group": gang.seen.name, "missing": missing})
        few = says("too_few_pods", needed=gang.body.min_member, there=there)
        return Diagnosis(Cause.GANG, TOO_FEW_PODS, message, sentences=(few,), suggestions=(step,))

    def _not_all(self, gang: Gang, message: str) -> Diagnosis:
        """Return how many of a gang could start now, and what the others lack."""
        # A gang without `minMember` still lacks at least one pod, or it would not be pending.
        wanted = max(gang.body.min_member - self._bound_pods(gang), 1)
        could, blocked = self._startable(gang)
        missing = max(1, wanted - could)
        steps: tuple[Suggestion, ...] = (self._make_room(gang, missing),)
        starts = says(
            "gang_starts",
            needed=gang.body.min_member or wanted,
            requests=self.total(gang),
            could=min(could, wanted),
        )
        if blocked is not None and blocked.cause is not Cause.CAPACITY:
            # No room helps pods that may go nowhere: what keeps them away comes first.
            steps = (*blocked.suggestions, *steps)
        return Diagnosis(
            Cause.GANG,
            NOT_ENOUGH,
            message,
            sentences=(starts, *(blocked.sentences if blocked is not None else ())),
            suggestions=steps,
            blockers=blocked.blockers if blocked is not None else (),
        )

    def _make_room(self, gang: Gang, missing: int) -> Suggestion:
        requests = self._one(gang)
        change: dict[str, object] = {"group": gang.seen.name, "missing": missing}
        if not requests:
            return Suggestion(Action.COMPLETE_GANG, change, says("gang_room_unsized"))
        resource, units = next(iter(requests.items()))
        change |= {"amount": units * missing, "resource": resource}
        return Suggestion(Action.COMPLETE_GANG, change, says("gang_room", each=units))

    def _one(self, gang: Gang) -> dict[str, float]:
        """Return the requests of one pod of a gang; an even share where no pod is there."""
        if gang.pods:
            return self.index.gpus(gang.pods[0][1].requests)
        size = max(1, gang.body.min_member)
        return {r: units / size for r, units in self.total(gang).items()}

    def _startable(self, gang: Gang) -> tuple[int, Diagnosis | None]:
        """Return how many pods like the first could start now, and why the next could not."""
        if not gang.pods:
            return 0, None
        seen, pod = gang.pods[0]
        room = room_by_node(self._placer, pod)
        mine = self.index.mine(seen.namespace, pod)
        return sum(room.values()), self._placer.by_state(pod.requests, pod.placement, mine)


def room_by_node(placer: PlacementDiagnoser, pod: PodSnapshot) -> dict[int, int]:
    """Return for how many pods like one the nodes have room now, by a node's position."""
    fitting = placer.fit_of(pod.requests, pod.placement)
    asked = [(r, units) for r, units in pod.requests.items() if units > 0]
    # What requests nothing still is a pod, of which a node takes only so many.
    asked = asked or [("pods", 1.0)]
    return {
        # By the scarcest resource of each node: GPUs without CPU start nothing.
        i: int(min(_times(free(fitting.nodes.seen[i], r), n) for r, n in asked))
        for i in bits(fitting.now)
    }


def is_pending(kind: ObservedKind, body: PodGroupSnapshot) -> bool:
    """Say whether a PodGroup has not started."""
    if kind is ObservedKind.GANG_POD_GROUP:
        done = [c for c in body.conditions if c.type in ("PodGroupScheduled", "Scheduled")]
        return not any(c.status == "True" for c in done)
    return body.phase in _WAITING_PHASES


def _has_run(body: PodGroupSnapshot) -> bool:
    """Say whether a gang was whole once; that some of it are scheduled does not tell."""
    scheduled = any(c.type == "Scheduled" and c.status == "True" for c in body.conditions)
    return scheduled or body.phase == "Unknown" or body.running > 0


def _blocks(one: Condition) -> bool:
    if one.type == "Unschedulable":
        return one.status == "True"
    return one.type in ("PodGroupScheduled", "Scheduled") and one.status == "False"


def _times(there: float, each: float) -> float:
    """Return how many times an amount is there, at most a million (where no limit is known)."""
    return min(max(0.0, there + EPSILON) / each, 1e6) // 1


class GangMember(NamedTuple):
    """A pod that holds GPUs of a job not all of whose pods do; `bound` in Unix seconds.

    `busy` and `measured` are nano-GPU-hours of its time since the first of the others became
    pending; both are 0 for one that never ran. A tuple, for there are thousands.
    """

    group: int
    name: str
    gpu_equivalents: float
    bound: float
    busy: int = 0
    measured: int = 0


class PartlyAdmitted(Struct, frozen=True):
    """A job that is not whole: who holds for nothing, and what that took so far.

    `held` is in nano-GPU-hours: what the holders held since the first of those that still wait
    began to. `utilization` is that of the holders, None where nothing was measured.
    """

    group: int
    holding: tuple[GangMember, ...]
    held: int
    utilization: float | None

    @property
    def gpu_equivalents(self) -> float:
        return sum(one.gpu_equivalents for one in self.holding)


def find_partial_gangs(
    holders: Iterable[GangMember], since: Mapping[int, float], *, now: float, idle_below: float
) -> list[PartlyAdmitted]:
    """Return the jobs that hold GPUs for nothing, the most held first.

    `since` has the jobs with pending pods: when the first of these became pending, in Unix seconds.
    An active holder (its utilization at least `idle_below`) makes use of its GPUs: a job of such
    holders alone is left out. A holder without metrics may be idle.
    """
    groups: dict[int, list[GangMember]] = defaultdict(list)
    for one in holders:
        if one.group in since and (not one.measured or one.busy < idle_below * one.measured):
            groups[one.group].append(one)
    found = [_partial(own, since[group], now) for group, own in groups.items()]
    return sorted(found, key=lambda one: (-one.held, one.group))


def _partial(holders: Sequence[GangMember], since: float, now: float) -> PartlyAdmitted:
    measured = sum(one.measured for one in holders)
    return PartlyAdmitted(
        group=holders[0].group,
        holding=tuple(holders),
        held=sum(
            amount(one.gpu_equivalents, max(0.0, now - max(since, one.bound))) for one in holders
        ),
        utilization=sum(one.busy for one in holders) / measured if measured else None,
    )
