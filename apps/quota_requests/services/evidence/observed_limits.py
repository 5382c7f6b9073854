"""What the cluster shows of quotas, and has shown, as `watch` saw it."""

from collections import defaultdict
from collections.abc import Collection
from datetime import UTC, datetime, timedelta
from typing import Final

from django.db.models import Max

from apps.clusters.domain.observed.objects import (
    ClusterQueueSnapshot,
    ObservedKind,
    ObservedObject,
    QuotaSnapshot,
    VolcanoQueueSnapshot,
)
from apps.clusters.models import WatchCoverage, WatchIssue
from apps.clusters.services import SILENT_SECONDS, observed_objects
from apps.quota_requests.domain.execution.drift import ObservedLimit
from apps.quota_requests.domain.quantities import Quantity
from apps.quota_requests.domain.targets import Target, VolcanoCell, VolcanoField
from apps.quota_requests.services.evidence.known_quotas import amount_of
from apps.quotas.domain.keys import QuotaSource

KINDS: Final = {
    QuotaSource.RESOURCE_QUOTA: ObservedKind.RESOURCE_QUOTA,
    QuotaSource.CLUSTER_QUEUE: ObservedKind.CLUSTER_QUEUE,
    QuotaSource.VOLCANO_QUEUE: ObservedKind.VOLCANO_QUEUE,
}
COLLECTIONS: Final = {
    QuotaSource.RESOURCE_QUOTA: frozenset({"resourcequotas"}),
    QuotaSource.CLUSTER_QUEUE: frozenset({"clusterqueues", "kueue.x-k8s.io"}),
    QuotaSource.VOLCANO_QUEUE: frozenset({"queues", "scheduling.volcano.sh"}),
}
"""The collections and API groups of whose silence the watch leaves a note."""
NOTED: Final = "waiting:"
ON_ITS_WAY: Final = timedelta(seconds=10)
"""What is seen at a moment may show what was there that much earlier."""
SETTLING: Final = timedelta(seconds=SILENT_SECONDS + 30)
"""So long after a collection fell silent the watch notes it; to that what it takes to write."""


def amount_in(one: ObservedObject, target: Target) -> Quantity | None:
    """Return what an observed object shows of a target; None where the key is not in it."""
    body = one.body
    units: float | None = None
    if isinstance(body, QuotaSnapshot):
        units = body.hard.get(target.key)
    elif isinstance(body, ClusterQueueSnapshot):
        found = (q.nominal for q in body.quotas if f"{q.flavor}/{q.resource}" == target.key)
        units = next(found, None)
    elif isinstance(body, VolcanoQueueSnapshot) and isinstance(target, VolcanoCell):
        deserved = target.part is VolcanoField.DESERVED
        units = (body.deserved if deserved else body.capability).get(target.resource)
    return None if units is None else amount_of(units)


def was_seen(cluster_id: int, target: Target, amount: Quantity, *, since: datetime) -> bool:
    """Say whether the target came to show the amount after that time. One query.

    What was seen in the very moment does not count: it may be what was there before.
    """
    seen = observed_objects(cluster_id, [KINDS[target.source]], gone_since=since)
    return any(
        amount_in(one, target) == amount
        for one in seen
        if _is_of(one, target) and one.first > since.timestamp()
    )


def had_amount(cluster_id: int, target: Target, *, since: datetime) -> bool:
    """Say whether the target showed any amount at that time or later. One query."""
    seen = observed_objects(cluster_id, [KINDS[target.source]], gone_since=since)
    return any(_is_of(one, target) and amount_in(one, target) is not None for one in seen)


def shown_now(cluster_id: int, targets: Collection[Target]) -> dict[Target, ObservedLimit]:
    """Return what the targets show, and up to when that is known. Three queries.

    The spans of the watch are those of pods and nodes; a collection of quotas that may not be
    read, or of which nothing is heard, has a note beside. Then an object is only known as it was
    when it was last seen to change, and of one that is not there nothing is known. Empty where
    nobody watches the cluster.
    """
    until = WatchCoverage.objects.filter(cluster=cluster_id).aggregate(until=Max("end"))["until"]
    kinds = {KINDS[target.source] for target in targets}
    if until is None or not kinds:
        return {}
    unheard = _unheard(cluster_id)
    found = {}
    by_place = defaultdict(list)
    for one in observed_objects(cluster_id, kinds):
        by_place[one.kind, one.namespace, one.name].append(one)
    for target in targets:
        own = by_place[KINDS[target.source], target.namespace, target.name]
        newest = max(own, key=lambda one: one.first, default=None)
        known = [] if COLLECTIONS[target.source] & unheard else [until - SETTLING]
        if newest is not None:
            # Its last change was seen, whatever became of the collection since.
            known.append(datetime.fromtimestamp(newest.changed, UTC) - ON_ITS_WAY)
        if known:
            amount = None if newest is None else amount_in(newest, target)
            found[target] = ObservedLimit(amount, exists=newest is not None, at=max(known))
    return found


def _unheard(cluster_id: int) -> frozenset[str]:
    """Return the collections and API groups that the watch cannot follow now. One query."""
    rows = WatchIssue.objects.filter(cluster=cluster_id, subject__startswith=NOTED)
    subjects = rows.order_by("subject").values_list("subject", flat=True)
    return frozenset(subject.removeprefix(NOTED) for subject in subjects)


def _is_of(one: ObservedObject, target: Target) -> bool:
    return (
        one.kind is KINDS[target.source]
        and one.namespace == target.namespace
        and one.name == target.name
    )
