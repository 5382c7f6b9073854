"""The nodes of a cluster as `watch` learns them: their intervals, and what their pods request.

Two processes may watch one cluster for a while, as when a new version takes over from an old
one or somebody takes one look beside it. Each sees a change at a moment of its own, so the same
state begins twice. What is written is therefore joined with what is there, so that the intervals of
a node never overlap, and so that the order of writers does not matter.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from itertools import pairwise
from typing import Any, NamedTuple

from django.db import transaction
from django.db.models import OuterRef, Q, Subquery
from msgspec import Struct

from apps.clusters.domain.observed.store import ObservedStore
from apps.clusters.domain.pods.kube_objects import NodeState
from apps.clusters.domain.resources import whole_request
from apps.clusters.domain.window import from_seconds
from apps.clusters.models import Node, NodeInterval
from apps.clusters.services.pods.ledger_rows import (
    INTERVAL_FIELDS,
    NameRegistry,
    interval_values,
    node_state_of,
    upsert,
)

# The database keeps microseconds, and an interval may not be empty.
_INSTANT = 1e-6

# Nodes of one query; each takes two parameters.
_AT_ONCE = 200
PODS = "pods"
_OVER = frozenset({"Succeeded", "Failed"})
_Request = tuple[tuple[str, float], ...]


class NodeStateInterval(Struct):
    """A node's state since `start`; `end` is None while it lasts."""

    start: float
    state: NodeState
    end: float | None = None


class NodeStore(ObservedStore[NodeStateInterval]):
    """One open interval for each GPU node there is; a change of state closes it and opens another.

    Their rows are by (node, start).
    """

    def __init__(self, intervals: Iterable[NodeStateInterval] = ()) -> None:
        super().__init__(_node, intervals, row=lambda interval: (_node(interval), interval.start))

    def apply(
        self,
        state: NodeState,
        at: float,
        *,
        since: float | None = None,
        ready_at: float | None = None,
    ) -> None:
        """Apply a node as it is at `at`. An interval that it ends is closed at `since`, else `at`.

        `ready_at` is when it became ready, or ceased to be, by its own word.
        """
        interval = self.get(state.name)
        if interval is not None and interval.state == state:
            return
        if (
            interval is not None
            and ready_at is not None
            and interval.state.ready != state.ready
            and interval.start < ready_at < at
        ):
            at = ready_at
        if not state.has_gpus:
            self.delete(state.name, at if since is None else since)
            return
        if interval is not None and at <= interval.start:
            # Twice in one instant: the later state is the state of that instant.
            interval.state = state
            self.mark(interval)
            return
        if interval is not None:
            self._close(interval, at if since is None else since)
        self.keep(NodeStateInterval(start=at, state=state))

    def delete(self, name: str, at: float) -> None:
        """Close the interval of a node that is no more, or has no GPUs any more."""
        interval = self.drop(name)
        if interval is not None:
            self._close(interval, at)

    def relist(self, states: Iterable[NodeState], at: float, last_seen: float | None) -> None:
        """Apply a whole list after a gap since `last_seen`.

        A node that is as it was goes on in its interval. One that changed or went did so some time
        in the gap: its interval ends when it was last seen, and the gap stays open.
        """
        since = at if last_seen is None else min(at, last_seen)
        there = {state.name: state for state in states}
        for name in sorted(self.items.keys() - there.keys()):
            self.delete(name, since)
        for state in there.values():
            self.apply(state, at, since=since)

    def _close(self, interval: NodeStateInterval, at: float) -> None:
        # The database has a constraint: an interval ends after it starts.
        interval.end = max(at, interval.start + _INSTANT)
        self.mark(interval)


def _node(interval: NodeStateInterval) -> str:
    return interval.state.name


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
    columns = ("node_id", "start", *INTERVAL_FIELDS)
    upsert(
        NodeInterval,
        [{column: getattr(row, column) for column in columns} for row in rows],
        unique=("node_id", "start"),
        update=INTERVAL_FIELDS,
    )


def _rows_there(
    ours: Mapping[int, Sequence[NodeStateInterval]],
) -> dict[int, dict[datetime, NodeInterval]]:
    """Lock the nodes; return by node and start the rows open, or begun with ours or later."""
    locked = Node.objects.filter(pk__in=list(ours)).order_by("pk").select_for_update(no_key=True)
    list(locked.values_list("pk", flat=True))
    first = from_seconds(min(one.start for intervals in ours.values() for one in intervals))
    wanted = Q(end__isnull=True) | Q(start__gte=first)
    there: dict[int, dict[datetime, NodeInterval]] = defaultdict(dict)
    rows = NodeInterval.objects.filter(wanted, node_id__in=list(ours))
    for row in rows.order_by("node", "start"):
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
        # Another process left it open; somebody has seen the node change since.
        if row.end is None and seen_until is not None and row.start < seen_until:
            row.end = seen_until
    for row, following in pairwise(ordered):
        if row.end is None or row.end > following.start:
            row.end = following.start
    return [row for row in ordered if row.start in changed or row.end != before[row.start]]


class BoundRequest(NamedTuple):
    """What a pod was promised of the node to which it is bound."""

    uid: str
    node: str
    request: _Request


class NodeUse(ObservedStore[BoundRequest]):
    """The request of every bound pod that is not over, by node; `dirty` are nodes that changed."""

    def __init__(self) -> None:
        super().__init__(lambda pod: pod.uid, indexes={"node": lambda pod: (pod.node,)})
        self.dirty: set[str] = set()
        # Many pods ask for the same: it is kept once.
        self._shared: dict[_Request, _Request] = {}

    def apply(self, pod: Mapping[str, Any]) -> None:
        """Apply a pod as it is."""
        uid, spec = str(pod["metadata"]["uid"]), pod.get("spec") or {}
        node = str(spec.get("nodeName") or "")
        if not node or (pod.get("status") or {}).get("phase") in _OVER:
            self.delete(uid)
            return
        # The requests of a bound pod are fixed, but for a resize in place.
        found = tuple(whole_request(spec).items())
        bound = BoundRequest(uid, node, self._shared.setdefault(found, found))
        known = self.get(uid)
        if known != bound:
            self._touch(known, bound)
            self.put(bound)

    def delete(self, uid: str) -> None:
        """Drop a pod that is gone or over."""
        self._touch(self.drop(uid))

    def relist(self, uids: Collection[str]) -> None:
        """Drop all pods but these."""
        self._touch(*self.retain(set(uids)))

    def _touch(self, *pods: BoundRequest | None) -> None:
        self.dirty.update(pod.node for pod in pods if pod is not None)

    def used(self, node: str) -> dict[str, float]:
        """Return resource → amount promised to the pods of a node, `pods` being their number."""
        pods = self.by_index("node", node)
        total: dict[str, float] = {}
        for pod in pods:
            for resource, units in pod.request:
                total[resource] = total.get(resource, 0.0) + units
        # Sums in any order must come out alike, or nodes would seem to change.
        return {r: round(n, 6) for r, n in sorted(total.items())} | {PODS: float(len(pods))}
