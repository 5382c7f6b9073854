"""Pods that are to be submitted, and what quotas and queues count of them."""

from collections.abc import Mapping, Sequence

from msgspec import Struct

from apps.accounts.domain.structs import replace
from apps.clusters.domain.observed.objects import (
    ClusterQueueSnapshot,
    FlavorUse,
    ObservedKind,
    ObservedObject,
    PodSnapshot,
    QuotaSnapshot,
)
from apps.pending.domain.cluster_index import ClusterIndex
from apps.pending.domain.diagnosis import ClusterState
from apps.pending.domain.placement.fits import EPSILON
from apps.pending.domain.placement.messages import counts_all, each_pod
from apps.pending.domain.queues.cluster_queues import QueueHeadroom, queues_of

DEVICES = ".deviceclass.resource.k8s.io/devices"
"""The end of a quota's key that counts devices of a class."""


class PlannedPods(Struct, frozen=True):
    """Pods alike that are to be submitted; `count` None: one on each node that it may go to.

    `gang`: how many of them start together, and `step` how many at once after these. `templated`
    are the devices by class that each gets from ResourceClaimTemplates. `charged` is what quotas
    count of each, where that is not what it holds: of a part of a GPU that HAMi shares they count
    a GPU.
    """

    pod: PodSnapshot
    count: int | None = 1
    gang: int = 1
    step: int = 1
    templated: Mapping[str, float] | None = None
    charged: Mapping[str, float] | None = None

    @property
    def counted(self) -> Mapping[str, float]:
        """What quotas count of a pod, without the claims made for it."""
        return self.pod.requests if self.charged is None else self.charged

    @property
    def least(self) -> int:
        """How many there are at least: of one on each node, one."""
        return 1 if self.count is None else self.count


def charge_of(key: str, part: PlannedPods) -> float:
    """Return how much one of these pods adds to a key of a quota, with the claims made for it."""
    if key.endswith(DEVICES):
        return (part.templated or {}).get(key.removesuffix(DEVICES), 0.0)
    return each_pod(key, part.counted)


def allowed_pods(index: ClusterIndex, namespace: str, part: PlannedPods) -> int:
    """Return how many of the pods the quotas of their namespace have room for."""
    count = part.least
    for seen in index.state.of(ObservedKind.RESOURCE_QUOTA):
        quota = seen.body
        if seen.namespace != namespace or not isinstance(quota, QuotaSnapshot):
            continue
        # A quota with other scopes may not count these pods at all.
        if not counts_all(quota.scopes):
            continue
        for key, limit in quota.hard.items():
            each = charge_of(key, part)
            # A key without `used` is not counted by the cluster, so it limits nothing.
            if each > 0 and key in quota.used:
                count = min(count, int((limit - quota.used[key] + EPSILON) / each))
    return max(0, count)


def charge_quotas(
    index: ClusterIndex, namespace: str, part: PlannedPods, count: int
) -> ClusterIndex:
    """Return the cluster with pods counted by the quotas of their namespace."""

    def charged(seen: ObservedObject) -> ObservedObject:
        quota = seen.body
        if seen.namespace != namespace or not isinstance(quota, QuotaSnapshot):
            return seen
        used = {key: units + charge_of(key, part) * count for key, units in quota.used.items()}
        return replace(seen, body=replace(quota, used=used))

    kind = ObservedKind.RESOURCE_QUOTA
    quotas: Sequence[ObservedObject] = [charged(one) for one in index.state.of(kind)]
    return index.assuming(replace(index.state, objects={**index.state.objects, kind: quotas}))


def chosen_flavors(
    state: ClusterState, part: PlannedPods, queue: str, flavor: str
) -> Mapping[str, QueueHeadroom]:
    """Return by resource the flavor of Kueue that a pod gets it from."""
    queues, found = queues_of(state), dict[str, QueueHeadroom]()
    for resource, units in part.counted.items():
        rooms = queues.rooms(queue, resource) if units > 0 else []
        # The resources of one group come from one flavor; others from that with most left.
        own = [room for room in rooms if room.flavor == flavor]
        if rooms:
            found[resource] = own[0] if own else max(rooms, key=lambda room: room.free)
    return found


def admitted_pods(chosen: Mapping[str, QueueHeadroom], part: PlannedPods) -> int:
    """Return how many pods the quotas of these flavors have room for: the first has."""
    fits = [int((room.free + EPSILON) / part.counted[r]) for r, room in chosen.items()]
    return max(1, min(fits, default=part.least))


def reserve_flavors(
    index: ClusterIndex,
    name: str,
    chosen: Mapping[str, QueueHeadroom],
    part: PlannedPods,
    count: int,
) -> ClusterIndex:
    """Return the cluster with these pods counted by their ClusterQueue."""

    def reserved(seen: ObservedObject) -> ObservedObject:
        queue = seen.body
        if seen.name != name or not isinstance(queue, ClusterQueueSnapshot):
            return seen
        used = {(one.flavor, one.resource): one.total for one in queue.reserved or queue.used}
        for resource, room in chosen.items():
            key = (room.flavor, resource)
            used[key] = used.get(key, 0.0) + part.counted[resource] * count
        uses = tuple(FlavorUse(*key, units) for key, units in used.items())
        return replace(seen, body=replace(queue, reserved=uses))

    kind = ObservedKind.CLUSTER_QUEUE
    queues: Sequence[ObservedObject] = [reserved(one) for one in index.state.of(kind)]
    return index.assuming(replace(index.state, objects={**index.state.objects, kind: queues}))
