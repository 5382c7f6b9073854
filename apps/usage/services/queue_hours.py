"""What Kueue's series show as pending, by the hour; the pending history is derived from it."""

from collections.abc import Sequence

from apps.clusters.domain.node_offers import NodeOffer, NodeOffers
from apps.clusters.domain.pods.ledger import NodeInterval
from apps.clusters.domain.tiers import TierRule, tier_before_binding
from apps.clusters.domain.window import Window, from_seconds
from apps.clusters.models import Cluster
from apps.clusters.ports import QueuePendingSlot
from apps.clusters.services import tier_rules_at
from apps.usage.models import QueueHour, QueuePending
from apps.usage.services.dimensions import tier_ids

_COMPARED = (
    "slot",
    "namespace",
    "queue",
    "resource",
    "units",
    "workloads",
    "tier_id",
    "unit_weight",
)


def write_queue_hour(
    cluster: Cluster,
    hour: Window,
    shown: Sequence[QueuePendingSlot],
    intervals: Sequence[NodeInterval],
) -> None:
    """Replace what the series show of an hour; must run in a transaction.

    The hour is due in the pending history where that changes anything. One query for a cluster
    without Kueue, else at most seven.
    """
    slots = set(hour.slots())
    rows = [row for row in shown if row.slot in slots]
    known = QueueHour.objects.filter(cluster=cluster, hour=hour.start)
    if not rows and not known.exists():
        return
    found = _rows(cluster, hour, rows, intervals, tier_rules_at(hour.start))
    there = QueuePending.objects.filter(cluster=cluster, hour=hour.start)
    if {_compared(row) for row in found} == set(there.order_by().values_list(*_COMPARED)):
        return
    # Locked before anything of it changes: who derives from it waits, or is waited for.
    QueueHour.objects.bulk_create(
        [QueueHour(cluster=cluster, hour=hour.start)],
        update_conflicts=True,
        unique_fields=["cluster", "hour"],
        update_fields=["due"],
    )
    there.delete()
    QueuePending.objects.bulk_create(found, batch_size=1000)


def _compared(row: QueuePending) -> tuple[object, ...]:
    return tuple(getattr(row, name) for name in _COMPARED)


def _rows(
    cluster: Cluster,
    hour: Window,
    shown: Sequence[QueuePendingSlot],
    intervals: Sequence[NodeInterval],
    rules: Sequence[TierRule],
) -> list[QueuePending]:
    start, end = hour.start_seconds, hour.end_seconds
    there = [one for one in intervals if one.start < end and one.end > start]
    places = NodeOffers([NodeOffer(one.labels) for one in _last_of_nodes(there)])
    tiers = tier_ids()
    rows = []
    for one in shown:
        tier = tier_before_binding(one.resource, {}, rules) if one.resource else ""
        rows.append(
            QueuePending(
                cluster=cluster,
                hour=hour.start,
                slot=from_seconds(one.slot),
                namespace=one.namespace[:253],
                queue=one.queue[:253],
                resource=one.resource[:253],
                units=one.units,
                workloads=one.workloads,
                tier_id=tiers.get(tier),
                unit_weight=places.weight(one.resource, {}, tier, rules) if tier else 0.0,
            )
        )
    return rows


def _last_of_nodes(intervals: Sequence[NodeInterval]) -> list[NodeInterval]:
    """Return the newest interval of each node, by its name."""
    newest = {one.node: one for one in sorted(intervals, key=lambda one: one.start)}
    return [newest[name] for name in sorted(newest)]
