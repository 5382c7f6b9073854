"""How much a Kueue ClusterQueue can still give: its own quota, and what its cohort lends.

The reckoning is Kueue's: each member of a cohort keeps what it does not lend (nominal quota less
its lending limit) for itself and puts the rest in one pool; a queue may go over its nominal quota
by its borrowing limit. Cohorts below one root are taken as one pool.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from apps.clusters.domain.observed.objects import (
    ClusterQueueSnapshot,
    CohortSnapshot,
    FlavorQuota,
    ObservedKind,
)
from apps.pending.domain.cluster_index import bodies
from apps.pending.domain.state import ClusterState

_INFINITE = float("inf")
Key = tuple[str, str]


@dataclass(frozen=True, slots=True)
class QueueHeadroom:
    """What a queue may still take of one resource in one flavor, and the most it ever may.

    `nominal` is its own quota. `below_ceiling` is what its own limit leaves it: more, only if it
    uses less itself. `pooled` is what is left of its own share and of what its cohort lends, and
    `free` the smaller of the two.
    """

    flavor: str
    resource: str
    nominal: float
    below_ceiling: float
    pooled: float
    most: float

    @property
    def free(self) -> float:
        return min(self.below_ceiling, self.pooled)


@dataclass(frozen=True, slots=True)
class QueueLimits:
    """The ClusterQueues of a cluster, and what each cohort pools by flavor and resource.

    `lent` are the queues and cohorts that put something into a pool, with how much.
    """

    by_name: Mapping[str, ClusterQueueSnapshot]
    roots: Mapping[str, str]
    pool: Mapping[tuple[str, Key], float] = field(default_factory=dict)
    pool_used: Mapping[tuple[str, Key], float] = field(default_factory=dict)
    lent: Mapping[tuple[str, Key], Sequence[tuple[str, float]]] = field(default_factory=dict)

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
        """Return the queues that use what a queue waits for: itself, then those of its cohort."""
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
            return QueueHeadroom(*key, quota.nominal, left, left, quota.nominal)
        own, lent = _split(quota)
        limit = _INFINITE if quota.borrowing_limit is None else quota.borrowing_limit
        pool = self.pool.get((root, key), lent)
        pooled = max(0.0, own - used) + pool - self.pool_used.get((root, key), 0.0)
        ceiling = quota.nominal + limit
        return QueueHeadroom(*key, quota.nominal, ceiling - used, pooled, min(own + pool, ceiling))


def queues_of(state: ClusterState) -> QueueLimits:
    """Return the queues of a cluster with what their cohorts pool."""
    by_name = {
        s.name: q for s, q in bodies(state.of(ObservedKind.CLUSTER_QUEUE), ClusterQueueSnapshot)
    }
    cohorts = {s.name: c for s, c in bodies(state.of(ObservedKind.COHORT), CohortSnapshot)}
    names = {*cohorts, *(q.cohort for q in by_name.values() if q.cohort)}
    roots = {name: _root(name, cohorts) for name in names}
    pool: dict[tuple[str, Key], float] = defaultdict(float)
    pool_used: dict[tuple[str, Key], float] = defaultdict(float)
    lenders: dict[tuple[str, Key], list[tuple[str, float]]] = defaultdict(list)
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


def _split(quota: FlavorQuota) -> tuple[float, float]:
    """Return what a queue keeps of its nominal quota, and what it puts into the pool."""
    lent = quota.nominal if quota.lending_limit is None else min(quota.nominal, quota.lending_limit)
    return quota.nominal - lent, lent


def _used(queue: ClusterQueueSnapshot) -> dict[Key, float]:
    return {(one.flavor, one.resource): one.total for one in queue.reserved or queue.used}


def _root(name: str, cohorts: Mapping[str, CohortSnapshot]) -> str:
    """Return the topmost cohort above one; a circle ends where it began."""
    above: Sequence[str] = [name]
    while (body := cohorts.get(above[-1])) is not None and body.parent:
        if body.parent in above:
            break
        above = [*above, body.parent]
    return above[-1]
