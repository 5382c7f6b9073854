"""Requests and holders of units: of ResourceClaims, of Kueue's queues and of Volcano's."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from msgspec import Struct, field

from apps.clusters.domain.observed.objects import (
    ClaimRequest,
    ClaimSnapshot,
    ClusterQueueSnapshot,
    KaiQueueSnapshot,
    ObservedObject,
    PodGroupSnapshot,
    WorkloadSnapshot,
)
from apps.clusters.domain.pods.ledger import ClaimAllocationRecord
from apps.clusters.domain.resources import GPU, GPU_FRACTION
from apps.quotas.domain.keys import Counting
from apps.quotas.domain.saturation import RequestLife

_ALL_DEVICES = 32.0
"""What a claim for all devices is charged: the most results that a claim may have."""
_RESERVED = "QuotaReserved"
_JOB = "Job"
_LONGEST_STEM = 57
"""How much of a controller's name is left in the names of its pods, before the dash."""
_SAME = 1e-9

UnitSpan = tuple[float, float, float | None]
"""Units, since when, until when; None: it lasts."""
Owner = tuple[str, str, str]
"""Namespace, kind and name of a top controller."""
QueueCell = tuple[str, str, str]
"""Queue, flavor (empty of Volcano and KAI) and resource."""


def charged(requests: Iterable[ClaimRequest]) -> dict[str, float]:
    """Return device class → devices that a claim is charged when it is made, allocated or not.

    Of alternatives each class is charged the most that one of them asks of it. What is given for
    administration takes no device from anybody and is left out.
    """
    plain: dict[str, float] = defaultdict(float)
    choices: dict[tuple[str, str], float] = {}
    for one in requests:
        if one.admin:
            continue
        # Quota is charged when the claim is made, before anybody knows how many `All` will be.
        count = _ALL_DEVICES if one.count is None else float(one.count)
        if one.of:
            choice = (one.of, one.device_class)
            choices[choice] = max(choices.get(choice, 0.0), count)
        else:
            plain[one.device_class] += count
    for (_, device_class), count in choices.items():
        plain[device_class] += count
    return dict(plain)


def claim_lives(
    seen: Iterable[ObservedObject], allocated: Iterable[ClaimAllocationRecord]
) -> list[tuple[str, RequestLife]]:
    """Return (namespace, life) of every claim: charged from its creation on, bound as allocated.

    Of a claim that is not among the observed objects any more only its allocations are known.
    """
    intervals: dict[str, list[ClaimAllocationRecord]] = defaultdict(list)
    for record in allocated:
        intervals[record.uid].append(record)
    found = []
    for one in seen:
        if isinstance(one.body, ClaimSnapshot):
            bound = tuple((r.allocated, r.released) for r in intervals.pop(one.uid, ()))
            life = RequestLife(
                charged(one.body.requests), one.body.created, one.gone, bound, "", Counting.CLAIMS
            )
            found.append((one.namespace, life))
    for records in intervals.values():
        # The object went before it was seen: what it asked for is at least what it was given.
        first, last = records[0], records[-1]
        amounts: dict[str, float] = defaultdict(float)
        for device in last.devices:
            amounts[device.device_class] += 1.0
        bound = tuple((r.allocated, r.released) for r in records)
        life = RequestLife(amounts, first.allocated, last.released, bound, "", Counting.CLAIMS)
        found.append((first.namespace, life))
    return found


class PodLives(Struct):
    """Pods of one cluster, found by their top controller, their names, their Job and queue."""

    by_owner: dict[Owner, list[RequestLife]] = field(default_factory=lambda: defaultdict(list))
    by_queue: dict[str, list[RequestLife]] = field(default_factory=lambda: defaultdict(list))
    _by_name: dict[tuple[str, str], list[RequestLife]] = field(
        default_factory=lambda: defaultdict(list)
    )
    _by_job: dict[tuple[str, str], list[RequestLife]] = field(
        default_factory=lambda: defaultdict(list)
    )

    def add(self, owner: Owner, name: str, life: RequestLife, queue: str = "") -> None:
        """Add a pod, by its top controller, its own name, and the queue that it names."""
        namespace = owner[0]
        if queue:
            self.by_queue[queue].append(life)
        self.by_owner[owner].append(life)
        self._by_name[namespace, name].append(life)
        # The ledger keeps a pod's top controller only; the Job below it shows in the name alone.
        made_of = name.rpartition("-")[0]
        if owner[1] != "Pod" and made_of:
            self._by_job[namespace, made_of].append(life)

    def of_workload(self, one: ObservedObject, body: WorkloadSnapshot) -> list[RequestLife]:
        """Return the pods of a Kueue Workload.

        A Workload of plain pods names the pods themselves, whatever made them, and is made after
        them. One of a Job names the Job, whose pods may be kept under a CronJob or JobSet above.
        """
        named = body.pods or ((body.owner,) if body.owner_kind == "Pod" else ())
        if named:
            lives = [
                life for name in named for life in self._by_name.get((one.namespace, name), ())
            ]
            return [life for life in lives if _meets(life, body.created, one.gone)]
        own = self.by_owner.get((one.namespace, body.owner_kind, body.owner), ())
        if not own and body.owner_kind == _JOB:
            own = self._of_job(one.namespace, body.owner)
        return [life for life in own if life.created >= body.created - 1]

    def _of_job(self, namespace: str, job: str) -> list[RequestLife]:
        """Return the pods named after a Job: `<job>-<suffix>`, or `<job>-<index>-<suffix>`."""
        found = list(self._by_job.get((namespace, job[:_LONGEST_STEM]), ()))
        for (place, made_of), lives in self._by_job.items():
            stem, _, index = made_of.rpartition("-")
            if place == namespace and stem == job and index.isdecimal():
                found += lives
        return found


def _meets(life: RequestLife, start: float, end: float | None) -> bool:
    return (life.ended is None or life.ended > start) and (end is None or life.created < end)


class QueueUse(Struct):
    """What was taken of each cell of queues, and held by pods: unit spans."""

    taken: dict[QueueCell, list[UnitSpan]] = field(default_factory=lambda: defaultdict(list))
    held: dict[QueueCell, list[UnitSpan]] = field(default_factory=lambda: defaultdict(list))


def kueue_use(
    workloads: Iterable[ObservedObject],
    queues: Mapping[str, ClusterQueueSnapshot],
    local: Mapping[tuple[str, str], str],
    pods: PodLives,
) -> QueueUse:
    """Return what Kueue's Workloads took of their queues, and what their pods held.

    A Workload takes its quota from its reservation until it is gone. Use before its present
    reservation, or before it lost one, is known only from its pods, and only where the queue has
    one flavor of the resource. `local` maps (namespace, LocalQueue) to the ClusterQueue.
    """
    use = QueueUse()
    for one in workloads:
        body = one.body
        if not isinstance(body, WorkloadSnapshot):
            continue
        # Admission names the ClusterQueue for good, while a LocalQueue may lead elsewhere by now.
        queue = body.cluster_queue or local.get((one.namespace, body.queue), "")
        if queue not in queues:
            continue
        since = _reserved_since(body)
        lives = pods.of_workload(one, body)
        for resource, parts in _parts(body, queues[queue]).items():
            if since is not None:
                for part in parts:
                    use.taken[queue, part.flavor, resource].append((part.units, since, one.gone))
            _hold(use, queue, resource, parts, lives, since)
    return use


def reservations(
    workloads: Iterable[ObservedObject],
    queues: Mapping[str, ClusterQueueSnapshot],
    cell: QueueCell,
) -> Iterator[tuple[ObservedObject, WorkloadSnapshot, float, float]]:
    """Yield the Workloads that reserve quota in a cell of a queue, how much, and since when."""
    queue, flavor, resource = cell
    for one in workloads:
        body = one.body
        if not isinstance(body, WorkloadSnapshot) or body.cluster_queue != queue:
            continue
        since = _reserved_since(body)
        if since is None or queue not in queues:
            continue
        parts = _parts(body, queues[queue]).get(resource, ())
        units = sum(part.units for part in parts if part.flavor == flavor)
        if units:
            yield one, body, units, since


class _FlavorRequest(NamedTuple):
    """What a Workload's pod sets ask of a resource in one flavor, each pod `per_pod` of it."""

    flavor: str
    per_pod: float
    units: float


def _hold(
    use: QueueUse,
    queue: str,
    resource: str,
    parts: Sequence[_FlavorRequest],
    lives: Iterable[RequestLife],
    since: float | None,
) -> None:
    for life in lives:
        units = life.amounts.get(resource, 0.0)
        for flavor, share in _flavors_of(units, parts).items() if units > 0 else ():
            cell = (queue, flavor, resource)
            for start, end in life.bound:
                use.held[cell].append((units * share, start, end))
                # An eviction resets the reservation's time: pods that ran before it held quota as
                # well.
                before = end if since is None else min(since, since if end is None else end)
                if before is None or before > start:
                    use.taken[cell].append((units * share, start, before))


def _flavors_of(units: float, parts: Sequence[_FlavorRequest]) -> dict[str, float]:
    """Return the flavors of a pod with such a request, as shares that sum to 1.

    The ledger does not say to which pod set a pod belongs: those whose pods ask for as much may
    be meant, each as likely as its pods are many.
    """
    likely = [part for part in parts if abs(part.per_pod - units) < _SAME] or parts
    whole = sum(part.units for part in likely)
    shares: dict[str, float] = defaultdict(float)
    for part in likely:
        shares[part.flavor] += part.units / whole
    return dict(shares)


def volcano_use(groups: Iterable[ObservedObject], pods: PodLives) -> QueueUse:
    """Return what the pods of Volcano's PodGroups held of their queues: all that they take."""
    use = QueueUse()
    seen: set[Owner] = set()
    for one in groups:
        body = one.body
        if not isinstance(body, PodGroupSnapshot) or not body.queue:
            continue
        owner = (one.namespace, body.owner_kind, body.owner)
        # Several PodGroups of one owner would count all of its pods each.
        if owner in seen:
            continue
        seen.add(owner)
        for life in pods.by_owner.get(owner, ()):
            for resource, units in life.amounts.items():
                spans = [(units, start, end) for start, end in life.bound]
                use.taken[body.queue, "", resource] += spans
                use.held[body.queue, "", resource] += spans
    return use


def kai_use(queues: Iterable[ObservedObject], pods: PodLives) -> QueueUse:
    """Return what pods that name a queue of KAI hold of it, and of the queues above it."""
    parents = {
        one.name: one.body.parent for one in queues if isinstance(one.body, KaiQueueSnapshot)
    }
    use = QueueUse()
    for name in parents:
        above, left = name, set(parents)
        # Nothing keeps two queues from naming each other as parent.
        while above in left:
            left.discard(above)
            for life in pods.by_queue.get(name, ()):
                # A fraction is of a GPU like any other; what memory is of one, no queue tells.
                if units := life.amounts.get(GPU, 0.0) + life.amounts.get(GPU_FRACTION, 0.0):
                    spans = [(units, start, end) for start, end in life.bound]
                    use.taken[above, "", GPU] += spans
                    use.held[above, "", GPU] += spans
            above = parents[above]
    return use


def _reserved_since(body: WorkloadSnapshot) -> float | None:
    for one in body.conditions:
        if one.type == _RESERVED and one.status == "True":
            return body.created if one.since is None else one.since
    return None


def _parts(body: WorkloadSnapshot, queue: ClusterQueueSnapshot) -> dict[str, list[_FlavorRequest]]:
    """Return resource → what pod sets ask of it, by flavor and amount per pod.

    A pod set's flavor is that of its admission, else the queue's only one. Pod sets whose flavor is
    not known are left out.
    """
    offered: dict[str, set[str]] = defaultdict(set)
    for quota in queue.quotas:
        offered[quota.resource].add(quota.flavor)
    units: dict[str, dict[tuple[str, float], float]] = defaultdict(lambda: defaultdict(float))
    for pods in body.pod_sets:
        for resource, per_pod in pods.requests.items():
            only = min(offered[resource]) if len(offered[resource]) == 1 else None
            flavor = pods.flavors.get(resource, only)
            if flavor is not None and per_pod * pods.count > 0:
                units[resource][flavor, per_pod] += per_pod * pods.count
    return {
        resource: [
            _FlavorRequest(flavor, per_pod, total) for (flavor, per_pod), total in parts.items()
        ]
        for resource, parts in units.items()
    }
