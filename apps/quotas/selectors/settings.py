"""What quotas and queues were set to, and when."""

from collections import defaultdict
from collections.abc import Iterable, Mapping

from apps.clusters.domain.observed.objects import (
    LocalQueueSnapshot,
    ObservedKind,
    ObservedObject,
    PodGroupSnapshot,
)
from apps.clusters.domain.window import Window
from apps.clusters.services import TierHistory, observed_objects
from apps.quotas.domain.history import QUOTA_KINDS
from apps.quotas.domain.keys import QuotaSource

LocalQueues = Mapping[tuple[str, str], str]
"""(namespace, LocalQueue) → ClusterQueue."""

BESIDE_QUEUES = (ObservedKind.LOCAL_QUEUE, ObservedKind.COHORT)


def named_by_tiers(history: TierHistory) -> frozenset[str]:
    """Return the resources and device classes that any tier names or named."""
    return history.resources | history.device_classes


def settings_in(cluster_id: int, window: Window) -> list[ObservedObject]:
    """Return every setting of quotas and queues that held within a window. One query."""
    seen = observed_objects(cluster_id, (*QUOTA_KINDS, *BESIDE_QUEUES), gone_since=window.start)
    return [one for one in seen if one.first < window.end_seconds]


def local_queues(seen: Iterable[ObservedObject]) -> dict[tuple[str, str], str]:
    """Return (namespace, LocalQueue) → ClusterQueue; of several settings the newest."""
    ordered = sorted(seen, key=lambda one: one.first)
    return {
        (one.namespace, one.name): one.body.cluster_queue
        for one in ordered
        if isinstance(one.body, LocalQueueSnapshot)
    }


def queue_namespaces(cluster_id: int, source: str, name: str) -> tuple[str, ...]:
    """Return the namespaces that use a queue now, in order. One query."""
    seen = observed_objects(cluster_id, (ObservedKind.LOCAL_QUEUE, ObservedKind.VOLCANO_POD_GROUP))
    return tuple(sorted(queue_users(local_queues(seen), seen).get((source, name), ())))


def queue_users(
    local: Mapping[tuple[str, str], str], asking: Iterable[ObservedObject]
) -> dict[tuple[str, str], set[str]]:
    """Return the namespaces that use a queue, by its source and name."""
    users: dict[tuple[str, str], set[str]] = defaultdict(set)
    for (namespace, _), queue in local.items():
        users[QuotaSource.CLUSTER_QUEUE.value, queue].add(namespace)
    for one in asking:
        if isinstance(one.body, PodGroupSnapshot):
            users[QuotaSource.VOLCANO_QUEUE.value, one.body.queue].add(one.namespace)
    return users
