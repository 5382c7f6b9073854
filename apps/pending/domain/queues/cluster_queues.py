"""Queues of Kueue: the order of their Workloads, and how much each can still give.

Headroom is computed as Kueue does: each member of a cohort keeps what it does not lend (nominal
quota less its lending limit) for itself and puts the rest in one pool; a queue may go over its
nominal quota by its borrowing limit. Cohorts below one root are taken as one pool.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence

from msgspec import Struct, field

from apps.accounts.domain.structs import replace
from apps.clusters.domain.observed.objects import (
    NAMESPACE_NAME,
    ClusterQueueSnapshot,
    CohortSnapshot,
    Condition,
    Expression,
    FlavorQuota,
    ObservedKind,
    ObservedObject,
    WorkloadSnapshot,
)
from apps.pending.domain.cluster_index import bodies
from apps.pending.domain.diagnosis import ClusterState

NEAR = 10
"""Places from the head of a queue for which the next admissions are worked out exactly."""
# A stopped queue evicts as well, but the quota did not go to others.
_STOPPED_BY = ("ClusterQueueStopped", "LocalQueueStopped")
_INFINITE = float("inf")
FlavorResource = tuple[str, str]


class QueuedWorkload(Struct, frozen=True):
    """A Workload in a queue; `cluster_queue` is empty where its LocalQueue leads nowhere.

    `place` is how many of the `of` Workloads come first, `with_ahead` what it and they request.
    `ahead` are those Workloads, known for the first NEAR of a queue only. `line` is the whole
    queue. `checked` have their quota already, which counts as used, but no pods yet. `of_gpus`:
    the queue gives GPUs.
    """

    seen: ObservedObject
    body: WorkloadSnapshot
    cluster_queue: str
    place: int = 0
    of: int = 1
    with_ahead: Mapping[str, float] = field(default_factory=dict)
    of_gpus: bool = False
    ahead: Sequence[tuple[ObservedObject, WorkloadSnapshot]] = ()
    checked: Sequence[tuple[ObservedObject, WorkloadSnapshot]] = ()
    line: Sequence[tuple[ObservedObject, WorkloadSnapshot]] = ()


def is_pending(body: WorkloadSnapshot) -> bool:
    """Say whether a Workload is neither over nor admitted."""
    done = [condition(body, name) for name in ("Finished", "Admitted")]
    return not any(one is not None and one.status == "True" for one in done)


def has_quota(body: WorkloadSnapshot) -> bool:
    """Say whether quota is set aside for a Workload: the queue counts it as used."""
    reserved = condition(body, "QuotaReserved")
    return reserved is not None and reserved.status == "True"


def was_evicted(body: WorkloadSnapshot) -> bool:
    """Say whether a pending Workload was admitted once and lost its quota to others."""
    evicted = condition(body, "Evicted")
    preempted = condition(body, "Preempted")
    if preempted is not None and preempted.status == "True":
        return True
    return evicted is not None and evicted.status == "True" and evicted.reason not in _STOPPED_BY


def since(body: WorkloadSnapshot) -> float:
    """Return since when a Workload is pending: when it was created, or last lost its quota."""
    evicted = condition(body, "Evicted")
    if evicted is None or evicted.status != "True" or evicted.since is None:
        return body.created
    return max(body.created, evicted.since)


def total(body: WorkloadSnapshot) -> dict[str, float]:
    """Return what all pods of a Workload ask for together."""
    found: dict[str, float] = {}
    for one in body.pod_sets:
        for resource, units in one.requests.items():
            found[resource] = found.get(resource, 0.0) + units * one.count
    return found


def in_queue_order(
    queue: str, waiting: list[tuple[ObservedObject, WorkloadSnapshot]]
) -> list[QueuedWorkload]:
    """Return the Workloads of one queue by priority, then age.

    Deactivated ones stand in no line, nor do those that have their quota already.
    """
    # Kueue's own order; the uid only keeps equal ones stable between two refreshes.
    ordered = sorted(waiting, key=lambda w: (-w[1].priority, w[1].created, w[0].uid))
    line = [w for w in ordered if queue and w[1].active and not has_quota(w[1])]
    checked = tuple(w for w in ordered if queue and w[1].active and has_quota(w[1]))
    length = len(line) if queue else 1
    found, place, sums = [], 0, dict[str, float]()
    for seen, body in ordered:
        if not queue or not body.active or has_quota(body):
            found.append(QueuedWorkload(seen, body, queue, 0, length, total(body)))
            continue
        for resource, units in total(body).items():
            sums[resource] = sums.get(resource, 0.0) + units
        ahead = tuple(line[:place]) if place < NEAR else ()
        one = QueuedWorkload(
            seen, body, queue, place, length, dict(sums), ahead=ahead, checked=checked
        )
        found.append(replace(one, line=line))
        place += 1
    return found


def condition(body: WorkloadSnapshot, name: str) -> Condition | None:
    return next((one for one in body.conditions if one.type == name), None)


class QueueHeadroom(Struct, frozen=True):
    """What a queue may still take of one resource in one flavor, and the most it ever may.

    `nominal` is its own quota, `used` what it has taken. `below_ceiling` is what its own limit
    leaves it: more, only if it uses less itself. `pooled` is what is left of its own share and of
    what its cohort lends, and `free` the smaller of the two.
    """

    flavor: str
    resource: str
    nominal: float
    used: float
    below_ceiling: float
    pooled: float
    most: float

    @property
    def free(self) -> float:
        return min(self.below_ceiling, self.pooled)


class QueueLimits(Struct, frozen=True):
    """The ClusterQueues of a cluster, and what each cohort pools by flavor and resource.

    `lent` are the queues and cohorts that put something into a pool, with how much.
    """

    by_name: Mapping[str, ClusterQueueSnapshot]
    roots: Mapping[str, str]
    pool: Mapping[tuple[str, FlavorResource], float] = field(default_factory=dict)
    pool_used: Mapping[tuple[str, FlavorResource], float] = field(default_factory=dict)
    lent: Mapping[tuple[str, FlavorResource], Sequence[tuple[str, float]]] = field(
        default_factory=dict
    )

    def rooms(self, queue: str, resource: str) -> list[QueueHeadroom]:
        """Return what a queue has of a resource in each of its flavors, in its order."""
        body = self.by_name.get(queue)
        quotas = body.quotas if body is not None else ()
        return [self._room(queue, one) for one in quotas if one.resource == resource]

    def cohort_of(self, queue: str) -> str:
        """Return the name of the cohort that a queue is in; empty for one that stands alone."""
        body = self.by_name.get(queue)
        return body.cohort if body is not None else ""

    def lenders(self, queue: str, flavor: str, resource: str) -> Sequence[tuple[str, float]]:
        """Return who puts how much into the pool of a queue's cohort; none where it has none."""
        cohort = self.cohort_of(queue)
        return self.lent.get((self.roots.get(cohort, cohort), (flavor, resource)), ())

    def sharing(self, queue: str) -> list[str]:
        """Return the queues that use the quota a queue needs: itself, then those of its cohort."""
        root = self.roots.get(self.cohort_of(queue))
        others = [
            name
            for name, body in sorted(self.by_name.items())
            if name != queue and body.cohort and self.roots.get(body.cohort) == root
        ]
        return [name for name in (queue, *others) if name in self.by_name]

    def _room(self, queue: str, quota: FlavorQuota) -> QueueHeadroom:
        key = (quota.flavor, quota.resource)
        used = _used(self.by_name[queue]).get(key, 0.0)
        root = self.roots.get(self.cohort_of(queue), self.cohort_of(queue))
        if not root:
            left = quota.nominal - used
            return QueueHeadroom(*key, quota.nominal, used, left, left, quota.nominal)
        own, lent = _split(quota)
        # Unset is no limit within the cohort; 0 is that nothing may be borrowed.
        limit = _INFINITE if quota.borrowing_limit is None else quota.borrowing_limit
        pool = self.pool.get((root, key), lent)
        pooled = max(0.0, own - used) + pool - self.pool_used.get((root, key), 0.0)
        ceiling = quota.nominal + limit
        most = min(own + pool, ceiling)
        return QueueHeadroom(*key, quota.nominal, used, ceiling - used, pooled, most)


def queues_of(state: ClusterState) -> QueueLimits:
    """Return the queues of a cluster with what their cohorts pool."""
    by_name = {
        s.name: q for s, q in bodies(state.of(ObservedKind.CLUSTER_QUEUE), ClusterQueueSnapshot)
    }
    cohorts = {s.name: c for s, c in bodies(state.of(ObservedKind.COHORT), CohortSnapshot)}
    names = {*cohorts, *(q.cohort for q in by_name.values() if q.cohort)}
    roots = {name: _root(name, cohorts) for name in names}
    pool: dict[tuple[str, FlavorResource], float] = defaultdict(float)
    pool_used: dict[tuple[str, FlavorResource], float] = defaultdict(float)
    lenders: dict[tuple[str, FlavorResource], list[tuple[str, float]]] = defaultdict(list)
    for name, cohort in cohorts.items():
        for quota in cohort.quotas:
            key = (roots[name], (quota.flavor, quota.resource))
            pool[key] += quota.nominal
            lenders[key].append((name, quota.nominal))
    for name, queue in by_name.items():
        if not queue.cohort:
            continue
        used = _used(queue)
        for quota in queue.quotas:
            own, lent = _split(quota)
            key = (roots[queue.cohort], (quota.flavor, quota.resource))
            pool[key] += lent
            lenders[key].append((name, lent))
            pool_used[key] += max(0.0, used.get(key[1], 0.0) - own)
    return QueueLimits(by_name, roots, dict(pool), dict(pool_used), dict(lenders))


def takes_namespace(queue: ClusterQueueSnapshot, namespace: str) -> bool | None:
    """Say whether a queue takes Workloads of a namespace, by the namespace's name.

    None where its selector names other labels: those of namespaces are not recorded.
    """
    # A condition on another label may hold; one on the name that fails settles it.
    named = [one for one in queue.namespaces if one.key == NAMESPACE_NAME]
    if not all(_selects(one, namespace) for one in named):
        return False
    return True if len(named) == len(queue.namespaces) else None


def _selects(wanted: Expression, value: str) -> bool:
    match wanted.operator:
        case "In":
            return value in wanted.values
        case "NotIn":
            return value not in wanted.values
        case _:
            return wanted.operator == "Exists"


def _split(quota: FlavorQuota) -> tuple[float, float]:
    """Return what a queue keeps of its nominal quota, and what it puts into the pool."""
    # Unset lends everything, 0 lends nothing.
    lent = quota.nominal if quota.lending_limit is None else min(quota.nominal, quota.lending_limit)
    return quota.nominal - lent, lent


def _used(queue: ClusterQueueSnapshot) -> dict[FlavorResource, float]:
    # Reserved includes Workloads with pending admission checks: their quota is taken, though
    # nothing runs.
    return {(one.flavor, one.resource): one.total for one in queue.reserved or queue.used}


def _root(name: str, cohorts: Mapping[str, CohortSnapshot]) -> str:
    """Return the topmost cohort above one; a circle ends where it began."""
    above: Sequence[str] = [name]
    while (body := cohorts.get(above[-1])) is not None and body.parent:
        if body.parent in above:
            break
        above = [*above, body.parent]
    return above[-1]
