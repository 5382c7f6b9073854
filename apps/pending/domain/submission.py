"""Work that is not submitted yet: whether it would start, by the diagnosis of what is pending.

It is put into the state of the cluster as the objects that the API server would have of it, and
what the diagnosis says of these is the answer. Nothing is preempted for it.
"""

from collections.abc import Mapping

from msgspec import Struct, structs

from apps.accounts.domain.structs import replace
from apps.clusters.domain.observed.objects import (
    ControllerSnapshot,
    EventSnapshot,
    KaiQueueSnapshot,
    NodeSnapshot,
    ObservedKind,
    ObservedObject,
    PodGroupSnapshot,
    PodSet,
    PodSnapshot,
    QuotaSnapshot,
    WorkloadSnapshot,
)
from apps.clusters.domain.resources import GPU
from apps.pending.domain.cluster_index import ClusterIndex, bodies
from apps.pending.domain.diagnosis import (
    Action,
    Cause,
    ClusterState,
    Diagnosis,
    Suggestion,
    says,
)
from apps.pending.domain.placement.fits import EPSILON, free
from apps.pending.domain.placement.messages import BlockedControllers
from apps.pending.domain.placement.unschedulable import PlacementDiagnoser, claims_of, unmade
from apps.pending.domain.planned_pods import (
    DEVICES,
    PlannedPods,
    admitted_pods,
    allowed_pods,
    charge_quotas,
    chosen_flavors,
    reserve_flavors,
)
from apps.pending.domain.pods import PodDiagnoser
from apps.pending.domain.queues import kai
from apps.pending.domain.queues.gangs import (
    CLOSED,
    NOT_ENOUGH,
    OVER_CAPABILITY,
    Gang,
    Gangs,
    room_by_node,
)
from apps.pending.domain.queues.kueue import KueueQueues

_UID = "not-submitted"
_SETTLED_SECONDS = 3600.0
_VOLCANO = "volcano"
_BY_SHARES = kai.SCHEDULERS | {_VOLCANO}
"""Schedulers that order pending pods by shares of queues, not by priority and age."""


class PlannedWork(Struct, frozen=True):
    """An object that is to be submitted, with all its pods.

    `together`: how many pods, of whichever kinds, start at once or not at all. `one_by_one`: Kueue
    admits each of its pods by itself.
    """

    kind: str
    namespace: str
    name: str
    pods: tuple[PlannedPods, ...]
    queue: str = ""
    suspended: bool = False
    parallel: bool = True
    together: int = 0
    one_by_one: bool = False


class QueuePosition(Struct, frozen=True):
    """Where work would stand, from 1, among `of` with itself; `queue` empty: the scheduler's."""

    place: int
    of: int
    queue: str = ""


class PlannedStart(Struct, frozen=True):
    """Whether pods would start: `could` of `count` now; `why` the others not, None: all would.

    `flavor` is that of Kueue that their GPUs come from. `position` is None where nothing queues,
    and for Volcano and KAI, whose order is not known.
    """

    why: Diagnosis | None
    count: int
    could: int
    flavor: str = ""
    position: QueuePosition | None = None


class _Queued(Struct, frozen=True):
    """What a queue says of a work: why it would hold it, else its flavor, and its place.

    `work` is as the queue admits it. `cluster_queue` is that of Kueue; empty without one.
    """

    work: PlannedWork
    why: Diagnosis | None = None
    flavor: str = ""
    position: QueuePosition | None = None
    cluster_queue: str = ""


class SubmissionDiagnoser:
    """Tells of a cluster's state whether work would start; each work by itself."""

    def __init__(self, state: ClusterState) -> None:
        self.index = ClusterIndex(state)
        self.claims = claims_of(self.index)
        self.placer = PlacementDiagnoser(self.index, self.claims)

    def starts(self, work: PlannedWork) -> list[PlannedStart]:
        """Return for all pods of a work, in their order, whether they would start."""
        if work.one_by_one and self._is_of_kueue(work):
            return [self._starts_one_by_one(work, part) for part in work.pods]
        # A queue comes first, as in the cluster: it decides before any pod is created.
        queued = self._queued(work)
        index, found, taken = self.index, [], 0.0
        for part in queued.work.pods:
            start, filled = self._start(index, queued, part, taken)
            found.append(start)
            # Parts that start together share the nodes and quotas; others come one after another.
            if filled is not None and work.parallel and len(work.pods) > 1:
                index = charge_quotas(filled, work.namespace, part, start.count)
                taken += start.count * kai.counted_gpus(part.pod.requests)
        return self._together(work, found)

    def _start(
        self, index: ClusterIndex, queued: _Queued, part: PlannedPods, taken: float
    ) -> tuple[PlannedStart, ClusterIndex | None]:
        """Return whether pods of a work would start, and the cluster with them; None: not made."""
        work, flavor = queued.work, queued.flavor
        # Not None, which is one pod on each node. Without pods nothing is requested.
        if part.count == 0:
            return PlannedStart(None, 0, 0), None
        held = queued.why or self._suspended(index, work, part)
        why = held or self._blocked(index, work, part)
        if why is not None:
            could = 0
            if why.cause is Cause.QUOTA and why is not queued.why:
                why, could = self._within_quota(index, work, part, why)
            place = queued.position if why is queued.why else None
            return PlannedStart(why, part.least, could, flavor, place), None
        # KAI decides once pods are there, so a quota comes before it.
        held, could = self._by_kai(index, work, part, taken)
        if held is not None:
            return PlannedStart(held, part.least, could), None
        count, could, why, filled = self._placed(index, work, part)
        # Only pods that wait for others to end have a place in a line.
        place = _among_pending(self.index.state, part.pod) if _queues(why) else None
        return PlannedStart(why, count, could, flavor, place), filled

    def _together(self, work: PlannedWork, found: list[PlannedStart]) -> list[PlannedStart]:
        """Return the same; none start where fewer could than have to start together."""
        could = sum(one.could for one in found)
        lacking = next((one.why for one in found if one.why is not None), None)
        if could >= work.together or lacking is None:
            return found
        requests: dict[str, float] = {}
        for part in work.pods:
            for resource, units in self.index.gpus(part.pod.requests).items():
                requests[resource] = requests.get(resource, 0.0) + units * part.least
        starts = says("gang_starts", needed=work.together, requests=requests, could=could)
        why = structs.replace(
            lacking, cause=Cause.GANG, detail=NOT_ENOUGH, sentences=(starts, *lacking.sentences)
        )
        return [
            replace(one, why=why, could=0, position=_among_pending(self.index.state, part.pod))
            if one.could
            else one
            for one, part in zip(found, work.pods, strict=True)
        ]

    def _starts_one_by_one(self, work: PlannedWork, part: PlannedPods) -> PlannedStart:
        """Return the same of pods that Kueue admits one by one, as those of a Deployment."""
        index, left, could, flavor = self.index, part.least, 0, ""
        start = PlannedStart(None, 0, 0)
        while left > 0:
            queued = self._by_kueue(replace(work, pods=(replace(part, count=1),)), index)
            if queued.why is not None:
                start = PlannedStart(queued.why, 1, 0, queued.flavor, queued.position)
                break
            chosen = chosen_flavors(index.state, part, queued.cluster_queue, queued.flavor)
            count = min(left, admitted_pods(chosen, part))
            admitted = replace(queued.work.pods[0], count=count)
            queued = replace(queued, work=replace(queued.work, pods=(admitted,)))
            start, filled = self._start(index, queued, admitted, 0.0)
            left, could, flavor = left - count, could + start.could, flavor or queued.flavor
            if start.why is not None or filled is None:
                break
            index = charge_quotas(filled, work.namespace, part, count)
            index = reserve_flavors(index, queued.cluster_queue, chosen, part, count)
        return replace(start, count=part.least, could=could, flavor=flavor)

    # ------------------------------------------------------------ queues

    def _queued(self, work: PlannedWork) -> _Queued:
        """Return what its queue says of a work."""
        if self._is_of_kueue(work):
            return self._by_kueue(work, self.index)
        by_volcano = any(part.pod.scheduler == _VOLCANO for part in work.pods)
        if by_volcano and self.index.state.of(ObservedKind.VOLCANO_QUEUE):
            return _Queued(work, self._by_volcano(work))
        return _Queued(work)

    def _is_of_kueue(self, work: PlannedWork) -> bool:
        state = self.index.state
        by_volcano = any(part.pod.scheduler == _VOLCANO for part in work.pods)
        local = {(q.namespace, q.name) for q in state.of(ObservedKind.LOCAL_QUEUE)}
        known = bool(local or state.of(ObservedKind.CLUSTER_QUEUE)) and not of_kai(work)
        # Work for Volcano names a queue of Volcano, unless a LocalQueue is called so.
        return bool(
            work.queue and known and ((work.namespace, work.queue) in local or not by_volcano)
        )

    def _by_kueue(self, work: PlannedWork, index: ClusterIndex) -> _Queued:
        sets = tuple(PodSet(f"{at}", part.least, part.counted) for at, part in enumerate(work.pods))
        body = WorkloadSnapshot(
            created=index.state.at,
            queue=work.queue,
            priority=max(part.pod.priority for part in work.pods),
            owner_kind=ObservedKind.JOB.short,
            owner=work.name,
            pod_sets=sets,
        )
        # Which flavors suit it is read from the selector of its controller, so it is given one.
        stand_in = self._seen(ObservedKind.JOB, work, _controller(work, work.pods[0], 1))
        workload = self._seen(ObservedKind.KUEUE_WORKLOAD, work, body)
        index = index.assuming(_adding(index.state, workload))
        index.controllers = {**index.controllers, stand_in.uid: _of_controller(stand_in)}
        kueue = KueueQueues(index, self.placer)
        # It has no conditions yet, so it always is among the pending Workloads.
        one = next(one for one in kueue.waiting if one.seen.uid == _UID)
        why, flavor = kueue.before_submission(one)
        given = kueue.flavor(flavor)
        pods = tuple(
            replace(
                part,
                pod=replace(
                    part.pod,
                    placement=replace(
                        part.pod.placement,
                        node_selector={**part.pod.placement.node_selector, **given.node_labels},
                        tolerations=(*part.pod.placement.tolerations, *given.tolerations),
                    ),
                ),
            )
            for part in work.pods
        )
        known = one.cluster_queue in kueue.queues.by_name
        position = QueuePosition(one.place + 1, one.of, one.cluster_queue) if known else None
        return _Queued(replace(work, pods=pods), why, flavor, position, one.cluster_queue)

    def _by_volcano(self, work: PlannedWork) -> Diagnosis | None:
        # Its PodGroup has the requests of those pods alone that start together.
        requests: dict[str, float] = {}
        left = work.together or sum(part.least for part in work.pods)
        members = left
        for part in work.pods:
            count = min(left, part.least)
            left -= count
            for resource, units in part.pod.requests.items():
                requests[resource] = requests.get(resource, 0.0) + units * count
        body = PodGroupSnapshot(self.index.state.at, work.queue, members, requests, phase="Pending")
        seen = self._seen(ObservedKind.VOLCANO_POD_GROUP, work, body)
        gangs = Gangs(self.index, self.placer)
        why = gangs.why(Gang(seen, body, ((seen, work.pods[0].pod),)))
        # The others only say that Volcano has not admitted it yet, which is no obstacle.
        return why if why.detail in (CLOSED, OVER_CAPABILITY) else None

    def _by_kai(
        self, index: ClusterIndex, work: PlannedWork, part: PlannedPods, taken: float
    ) -> tuple[Diagnosis | None, int]:
        """Return why queues of KAI let not all pods start, and how many do; `taken` comes first.

        What others hold above their quota KAI may take back for it: that is not assumed.
        """
        gpus = kai.counted_gpus(part.pod.requests)
        queues = kai_queues(index.state)
        if not of_kai(work) or not work.queue or not queues or not gpus:
            return None, 0
        requests = index.gpus(part.pod.requests)
        if work.queue not in queues:
            return kai.no_queue(requests), 0
        why, allowed = None, part.least
        for name, body in kai.queue_and_parents(work.queue, queues):
            if body.limit is None:
                continue
            used = body.allocated.get(GPU, 0.0) + taken
            fits = max(0, int((body.limit - used + EPSILON) / gpus))
            if fits < allowed:
                asked = gpus * (part.gang if part.gang > 1 else part.least)
                why, allowed = kai.over_limit(name, body.limit, used, asked, requests), fits
        # A gang that fits starts; its further pods come later.
        if why is None or (part.gang > 1 and allowed >= part.gang):
            return None, 0
        if not allowed or part.gang > 1 or part.count is None:
            return why, 0
        return why, self._placed(index, work, replace(part, count=allowed))[1]

    # ------------------------------------------------------------ quotas

    def _suspended(
        self, index: ClusterIndex, work: PlannedWork, part: PlannedPods
    ) -> Diagnosis | None:
        if not work.suspended or work.queue:
            return None
        body = _controller(work, part, part.least)
        why = BlockedControllers(index).suspended(self._seen(ObservedKind.JOB, work, body), body)
        # What is not submitted yet cannot be resumed: its manifest is to be changed.
        change = {"kind": work.kind, "namespace": work.namespace, "name": work.name}
        step = Suggestion(Action.UNSUSPEND, change, says("submit_running"))
        return structs.replace(why, suggestions=(step,))

    def _blocked(
        self, index: ClusterIndex, work: PlannedWork, part: PlannedPods
    ) -> Diagnosis | None:
        """Return which quota would refuse pods, or the claims made for them."""
        body = _controller(work, part, part.least)
        seen = self._seen(ObservedKind.JOB, work, body)
        why = BlockedControllers(index).refused(seen, body)
        return why or self._claims_blocked(index, work, part)

    def _within_quota(
        self, index: ClusterIndex, work: PlannedWork, part: PlannedPods, why: Diagnosis
    ) -> tuple[Diagnosis, int]:
        """Return why pods are refused when those that the quotas let in are made, and their start.

        Pods are made one after the other until a quota is full; a gang needs all of them.
        """
        allowed = allowed_pods(index, work.namespace, part)
        # A gang starts whole or not at all, and of a DaemonSet the number is not known.
        if part.count is None or part.gang > 1 or not allowed:
            return why, 0
        body = replace(_controller(work, part, part.count), pods=allowed)
        seen = self._seen(ObservedKind.JOB, work, body)
        charged = charge_quotas(index, work.namespace, part, allowed)
        could = self._placed(index, work, replace(part, count=allowed))[1]
        return BlockedControllers(charged).refused(seen, body) or why, could

    def _claims_blocked(
        self, index: ClusterIndex, work: PlannedWork, part: PlannedPods
    ) -> Diagnosis | None:
        for device_class, units in (part.templated or {}).items():
            key, wanted = f"{device_class}{DEVICES}", units * part.least
            for seen in index.state.of(ObservedKind.RESOURCE_QUOTA):
                quota = seen.body
                if seen.namespace != work.namespace or not isinstance(quota, QuotaSnapshot):
                    continue
                limit, used = quota.hard.get(key), quota.used.get(key)
                if limit is None or used is None or used + wanted <= limit + EPSILON:
                    continue
                # As the API server words it, so that it is read as any other refusal.
                message = (
                    f"exceeded quota: {seen.name}, requested: {key}={wanted:g},"
                    f" used: {key}={used:g}, limited: {key}={limit:g}"
                )
                event = EventSnapshot(
                    "Pod", work.name, _UID, "FailedResourceClaimCreation", message
                )
                return unmade(work.namespace, part.pod, self.claims, [event])
        return None

    # ------------------------------------------------------------ nodes

    def _placed(
        self, index: ClusterIndex, work: PlannedWork, part: PlannedPods
    ) -> tuple[int, int, Diagnosis | None, ClusterIndex]:
        """Return how many pods there are, how many start, why not all, and the nodes with them."""
        # Claims of templates do not exist before the pod, so their lack is no cause.
        claims = tuple(use for use in part.pod.claims if use.claim)
        pod = replace(part.pod, claims=claims)
        seen = self._seen(ObservedKind.POD, work, pod)
        placer = self.placer if index is self.index else PlacementDiagnoser(index, self.claims)
        why = PodDiagnoser(index, placer, self.claims, (), {}, ()).before_submission(seen, pod)
        room = room_by_node(placer, pod) if why is None else {}
        if part.count is None:
            fitting = placer.fit_of(pod.requests, pod.placement)
            nodes = (fitting.selected & fitting.tolerated & fitting.offering).bit_count()
            if why is None and len(room) < nodes:
                # Why on the others: these take no further pod.
                taken = _filled(index, pod, room, sum(room.values()))
                placer = PlacementDiagnoser(taken, self.claims)
                why = placer.by_state(pod.requests, pod.placement)
            return nodes, min(nodes, len(room)), why, index
        if why is not None or not len(index.nodes):
            return part.count, 0 if why is not None else part.count, why, index
        filled = _filled(index, pod, room, part.count)
        could = sum(room.values())
        if could >= part.count:
            return part.count, part.count, None, filled
        # None of those that fit would start without the others of their gang.
        if could < part.gang:
            return part.count, 0, self._gang(index, placer, seen, part), index
        could -= (could - part.gang) % part.step
        placer = PlacementDiagnoser(filled, self.claims)
        return part.count, could, placer.by_state(pod.requests, pod.placement), filled

    def _gang(
        self,
        index: ClusterIndex,
        placer: PlacementDiagnoser,
        seen: ObservedObject,
        part: PlannedPods,
    ) -> Diagnosis:
        requests = {r: units * part.gang for r, units in part.pod.requests.items()}
        body = PodGroupSnapshot(
            index.state.at, min_member=part.gang, requests=requests, phase="Inqueue"
        )
        group = replace(seen, kind=ObservedKind.COSCHEDULING_POD_GROUP, body=body)
        return Gangs(index, placer).why(Gang(group, body, ((seen, part.pod),)))

    def _seen(
        self,
        kind: ObservedKind,
        work: PlannedWork,
        body: PodSnapshot | ControllerSnapshot | WorkloadSnapshot | PodGroupSnapshot,
    ) -> ObservedObject:
        # Long enough ago for what is missing of it to prove something.
        at = self.index.state.at - _SETTLED_SECONDS
        return ObservedObject(kind, _UID, work.namespace, work.name, body, at, at)


def of_kai(work: PlannedWork) -> bool:
    """Say whether KAI Scheduler, or Run:ai's, is to place the pods."""
    return any(part.pod.scheduler in kai.SCHEDULERS for part in work.pods)


def kai_queues(state: ClusterState) -> dict[str, KaiQueueSnapshot]:
    """Return the queues of KAI by their names."""
    found = bodies(state.of(ObservedKind.KAI_QUEUE), KaiQueueSnapshot)
    return {seen.name: body for seen, body in found}


def _queues(why: Diagnosis | None) -> bool:
    """Say whether the scheduler keeps pods in its own queue until others end."""
    return why is not None and why.cause in (Cause.CAPACITY, Cause.GANG)


def _among_pending(state: ClusterState, pod: PodSnapshot) -> QueuePosition | None:
    """Return where a pod would stand among those that ask for GPUs of the same kind.

    By priority, then age, as the scheduler's queue is: a new pod comes after its equals. None for
    Volcano and KAI, whose order follows from plug-ins and shares of queues that no object tells.
    """
    if pod.scheduler in _BY_SHARES:
        return None
    gpus = {r for r in pod.requests if state.is_gpu(r)}
    others = [
        other.priority
        for _, other in bodies(state.of(ObservedKind.POD), PodSnapshot)
        if _is_unscheduled(other) and other.scheduler not in _BY_SHARES and gpus & {*other.requests}
    ]
    return QueuePosition(1 + sum(one >= pod.priority for one in others), 1 + len(others))


def _is_unscheduled(pod: PodSnapshot) -> bool:
    is_over = pod.phase in ("Failed", "Succeeded")
    return pod.bound is None and pod.deleting is None and not pod.gates and not is_over


def _controller(work: PlannedWork, part: PlannedPods, count: int) -> ControllerSnapshot:
    return ControllerSnapshot(
        created=0.0,
        wanted=count,
        suspended=work.suspended and not work.queue,
        requests=part.pod.requests,
        charged=part.charged,
        placement=part.pod.placement,
        queue=work.queue,
    )


def _of_controller(seen: ObservedObject) -> tuple[ObservedObject, ControllerSnapshot]:
    if not isinstance(seen.body, ControllerSnapshot):
        raise TypeError(f"{seen.kind} is no controller")
    return seen, seen.body


def _adding(state: ClusterState, seen: ObservedObject) -> ClusterState:
    objects = {**state.objects, seen.kind: [*state.objects.get(seen.kind, ()), seen]}
    return replace(state, objects=objects)


def _filled(
    index: ClusterIndex, pod: PodSnapshot, room: Mapping[int, int], count: int
) -> ClusterIndex:
    """Return the cluster with `count` pods on its nodes; nodes with the least room fill first."""
    gpus = index.gpus(pod.requests)
    nodes, left, taken = index.nodes, count, dict[str, int]()
    for at in sorted(room, key=lambda i: (sum(free(nodes.seen[i], r) for r in gpus), i)):
        pods = min(left, room[at])
        if pods <= 0:
            continue
        taken[nodes.names[at]], left = pods, left - pods
    seen = [
        _with_pods(one, pod, taken.get(one.name, 0)) for one in index.state.of(ObservedKind.NODE)
    ]
    return index.assuming(
        replace(index.state, objects={**index.state.objects, ObservedKind.NODE: seen})
    )


def _with_pods(seen: ObservedObject, pod: PodSnapshot, pods: int) -> ObservedObject:
    node = seen.body
    if not pods or not isinstance(node, NodeSnapshot):
        return seen
    used, devices = dict(node.used), dict(node.free_devices)
    for resource, units in {**pod.requests, "pods": 1.0}.items():
        # Devices of DRA are counted down; `used` is held against allocatable amounts alone.
        if resource in devices and resource not in node.allocatable:
            devices[resource] -= int(units) * pods
        else:
            used[resource] = used.get(resource, 0.0) + units * pods
    return replace(seen, body=replace(node, used=used, free_devices=devices))
