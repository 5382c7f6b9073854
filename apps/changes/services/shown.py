"""What the cluster shows of quotas, and has shown, as `watch` saw it."""

from collections.abc import Collection
from datetime import datetime, timedelta
from typing import Final

from django.db.models import Max

from apps.changes.domain.drift import Shown
from apps.changes.domain.quantities import Quantity
from apps.changes.domain.targets import Source, Target, VolcanoCell, VolcanoField
from apps.changes.services.known_quotas import amount_of
from apps.clusters.domain.sightings import (
    Kind,
    SeenClusterQueue,
    SeenQuota,
    SeenVolcanoQueue,
    Sighting,
)
from apps.clusters.models import WatchSpan
from apps.clusters.services.sighting_reader import sightings

KINDS: Final = {
    Source.RESOURCE_QUOTA: Kind.RESOURCE_QUOTA,
    Source.CLUSTER_QUEUE: Kind.CLUSTER_QUEUE,
    Source.VOLCANO_QUEUE: Kind.VOLCANO_QUEUE,
}
SETTLING: Final = timedelta(seconds=30)
"""What watch saw is written a little later than it says that it saw everything."""


def amount_in(one: Sighting, target: Target) -> Quantity | None:
    """Return what a sighting shows of a target; None where the key is not in it."""
    body = one.body
    units: float | None = None
    if isinstance(body, SeenQuota):
        units = body.hard.get(target.key)
    elif isinstance(body, SeenClusterQueue):
        found = (q.nominal for q in body.quotas if f"{q.flavor}/{q.resource}" == target.key)
        units = next(found, None)
    elif isinstance(body, SeenVolcanoQueue) and isinstance(target, VolcanoCell):
        deserved = target.part is VolcanoField.DESERVED
        units = (body.deserved if deserved else body.capability).get(target.resource)
    return None if units is None else amount_of(units)


def was_seen(cluster_id: int, target: Target, amount: Quantity, *, since: datetime) -> bool:
    """Say whether the target came to show the amount after that time. One query.

    What was seen in the very moment does not count: it may be what was there before.
    """
    seen = sightings(cluster_id, [KINDS[target.source]], gone_since=since)
    return any(
        amount_in(one, target) == amount
        for one in seen
        if _is_of(one, target) and one.first > since.timestamp()
    )


def shown_now(cluster_id: int, targets: Collection[Target]) -> dict[Target, Shown]:
    """Return what the targets show, seen when watch was last up to date. Two queries.

    Empty where nobody watches the cluster.
    """
    until = WatchSpan.objects.filter(cluster=cluster_id).aggregate(until=Max("end"))["until"]
    kinds = {KINDS[target.source] for target in targets}
    if until is None or not kinds:
        return {}
    seen = sightings(cluster_id, kinds)
    found = {}
    for target in targets:
        own = [one for one in seen if _is_of(one, target)]
        newest = max(own, key=lambda one: one.first, default=None)
        amount = None if newest is None else amount_in(newest, target)
        found[target] = Shown(amount, exists=newest is not None, at=until - SETTLING)
    return found


def _is_of(one: Sighting, target: Target) -> bool:
    return (
        one.kind is KINDS[target.source]
        and one.namespace == target.namespace
        and one.name == target.name
    )
