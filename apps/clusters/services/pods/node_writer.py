"""Node intervals in the database: one open interval of a node at most, whoever writes.

Two processes may watch one cluster for a while, as when a new version takes over from an old
one or somebody takes one look beside it. Each sees a change at a moment of its own, so the same
state begins twice. What is written is therefore joined with what is there, so that the intervals of
a node never overlap, and so that the order of writers does not matter.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from itertools import pairwise

from django.db import transaction
from django.db.models import OuterRef, Q, Subquery

from apps.clusters.domain.window import from_seconds
from apps.clusters.models import Node, NodeInterval
from apps.clusters.services.names import NameRegistry
from apps.clusters.services.pods.ledger_rows import INTERVAL_FIELDS, interval_values, node_state_of
from apps.clusters.services.pods.node_store import NodeStateInterval

# Nodes of one query; each takes two parameters.
_AT_ONCE = 200


def open_intervals(cluster_id: int) -> list[NodeStateInterval]:
    """Return the intervals of nodes that last, as far as the database knows. One query.

    One that lasts although the node has a later interval is what two processes once left behind:
    it is ended where the next one starts.
    """
    later = NodeInterval.objects.filter(node=OuterRef("node"), start__gt=OuterRef("start"))
    rows = list(
        NodeInterval.objects.filter(node__cluster_id=cluster_id, end__isnull=True)
        .annotate(next_start=Subquery(later.order_by("start").values("start")[:1]))
        .select_related("node")
        .order_by("start", "pk")
    )
    for row in rows:
        if row.next_start is not None:
            NodeInterval.objects.filter(pk=row.pk, end__isnull=True).update(end=row.next_start)
    return [
        NodeStateInterval(start=row.start.timestamp(), state=node_state_of(row))
        for row in rows
        if row.next_start is None
    ]


def write_intervals(
    intervals: Mapping[tuple[str, float], NodeStateInterval], names: NameRegistry
) -> None:
    """Insert or update node intervals, by (node, start), in one transaction.

    Of two ends of one interval the later holds. An open interval that began before somebody saw the
    node change or go ends there, and every interval ends where the next one of its node starts.
    """
    if not intervals:
        return
    by_node: dict[str, list[NodeStateInterval]] = defaultdict(list)
    for (name, _), interval in intervals.items():
        by_node[name].append(interval)
    with transaction.atomic():
        ids = names.nodes(by_node.keys())
        ours = {ids[name]: by_node[name] for name in by_node}
        ordered = sorted(ours)
        for start in range(0, len(ordered), _AT_ONCE):
            _write({pk: ours[pk] for pk in ordered[start : start + _AT_ONCE]})


def _write(ours: Mapping[int, Sequence[NodeStateInterval]]) -> None:
    there = _rows_there(ours)
    rows = [
        row for pk, intervals in ours.items() for row in _joined(pk, there.get(pk, {}), intervals)
    ]
    for row in rows:
        row.pk = None
    NodeInterval.objects.bulk_create(
        rows,
        update_conflicts=True,
        unique_fields=["node", "start"],
        update_fields=INTERVAL_FIELDS,
    )


def _rows_there(
    ours: Mapping[int, Sequence[NodeStateInterval]],
) -> dict[int, dict[datetime, NodeInterval]]:
    """Lock the nodes; return by node and start the rows that open or began with ours or later."""
    locked = Node.objects.filter(pk__in=list(ours)).order_by("pk").select_for_update(no_key=True)
    list(locked.values_list("pk", flat=True))
    wanted = Q(node_id__in=list(ours), end__isnull=True)
    for pk, intervals in ours.items():
        wanted |= Q(
            node_id=pk, start__gte=from_seconds(min(interval.start for interval in intervals))
        )
    there: dict[int, dict[datetime, NodeInterval]] = defaultdict(dict)
    for row in NodeInterval.objects.filter(wanted).order_by("node", "start"):
        there[row.node_id][row.start] = row
    return there


def _joined(
    node_id: int, there: Mapping[datetime, NodeInterval], ours: Iterable[NodeStateInterval]
) -> list[NodeInterval]:
    """Return the rows of one node that are new or change."""
    before = {start: row.end for start, row in there.items()}
    rows = dict(there)
    changed: set[datetime] = set()
    for interval in ours:
        start = from_seconds(interval.start)
        row = NodeInterval(
            node_id=node_id, start=start, **interval_values(interval.state, interval.end)
        )
        known = before.get(start)
        if known is not None and (row.end is None or known > row.end):
            row.end = known
        rows[start] = row
        changed.add(start)
    seen_until = max((row.end for start in changed if (row := rows[start]).end), default=None)
    ordered = [rows[start] for start in sorted(rows)]
    for row in ordered:
        if row.end is None and seen_until is not None and row.start < seen_until:
            row.end = seen_until
    for row, following in pairwise(ordered):
        if row.end is None or row.end > following.start:
            row.end = following.start
    return [row for row in ordered if row.start in changed or row.end != before[row.start]]
