"""Rows of the pod ledger and of node spells, to and from what the domain speaks of."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from apps.clusters.domain.kube_objects import NodeState, main_resource
from apps.clusters.domain.ledger import NodeSpell, Owner, PodRecord, Source
from apps.clusters.domain.window import from_seconds
from apps.clusters.models import NodeSpell as NodeSpellRow
from apps.clusters.models import Pod

POD_FIELDS = [
    "workload",
    "name",
    "node_name",
    "resource",
    "units",
    "requests",
    "node_selector",
    "priority_class",
    "created_at",
    "bound_at",
    "started_at",
    "finished_at",
    "deleted_at",
    "ended_at",
    "runs",
    "end_reason",
    "source",
    "lost",
    "tier",
    "gpu_model",
    "gpu_equivalents",
]
SPELL_FIELDS = ["end", "ready", "schedulable", "capacity", "allocatable", "labels"]


def pod_values(record: PodRecord) -> dict[str, Any]:
    """Return the columns of a pod's row that its record tells."""
    resource, units = main_resource(record.requests)
    return {
        "name": record.name,
        "node_name": record.node,
        "resource": resource,
        "units": units,
        "requests": dict(record.requests),
        "node_selector": dict(record.node_selector),
        "priority_class": record.priority_class,
        "created_at": from_seconds(record.created),
        "bound_at": _time(record.bound),
        "started_at": _time(record.started),
        "finished_at": _time(record.finished),
        "deleted_at": _time(record.deleted),
        "ended_at": _time(record.ended),
        "runs": [list(run) for run in record.runs],
        # PostgreSQL takes no NUL in text, and a kubelet's word may be anything.
        "end_reason": record.end_reason.replace("\0", "")[:120],
        "source": record.source.value,
    }


RECORD_COLUMNS = (
    *("uid", "workload__namespace__name", "name", "workload__kind", "workload__name"),
    *("requests", "created_at", "node_name", "bound_at", "started_at", "finished_at"),
    *("deleted_at", "runs", "end_reason", "priority_class", "node_selector", "source"),
)
"""What `record_of` takes, as columns of a query on Pod."""


def record_of(values: Sequence[Any]) -> PodRecord:
    """Return the record that the values of RECORD_COLUMNS tell.

    Reading plain values costs a third of what rows with their relations cost.
    """
    uid, namespace, name, kind, owner, requests, created, node, *rest = values
    bound, started, finished, deleted, runs, reason, priority, selector, source = rest
    return PodRecord(
        uid=uid,
        namespace=namespace,
        name=name,
        owner=Owner(kind, owner),
        requests=requests,
        created=created.timestamp(),
        node=node,
        bound=_seconds(bound),
        started=_seconds(started),
        finished=_seconds(finished),
        deleted=_seconds(deleted),
        runs=tuple((start, end) for start, end in runs),
        end_reason=reason,
        priority_class=priority,
        node_selector=selector,
        source=Source(source),
    )


def pod_record_of(row: Pod) -> PodRecord:
    """Return the record of a row read with its workload and that one's namespace."""
    workload = row.workload
    return record_of(
        (
            *(row.uid, workload.namespace.name, row.name, workload.kind, workload.name),
            *(row.requests, row.created_at, row.node_name, row.bound_at, row.started_at),
            *(row.finished_at, row.deleted_at, row.runs, row.end_reason, row.priority_class),
            *(row.node_selector, row.source),
        )
    )


def spell_values(state: NodeState, end: float | None) -> dict[str, Any]:
    """Return the columns of a spell's row beside its node and start."""
    return {
        "end": _time(end),
        "ready": state.ready,
        "schedulable": state.schedulable,
        "capacity": dict(state.capacity),
        "allocatable": dict(state.allocatable),
        "labels": dict(state.labels),
    }


def node_state_of(row: NodeSpellRow) -> NodeState:
    """Return the state that a spell's row (read with its node) describes."""
    return NodeState(
        name=row.node.name,
        capacity=row.capacity,
        allocatable=row.allocatable,
        labels=row.labels,
        ready=row.ready,
        schedulable=row.schedulable,
    )


def spell_of(row: NodeSpellRow, start: float, end: float) -> NodeSpell:
    """Return a spell's row, read with its node, as the part of it within start..end."""
    until = end if row.end is None else min(end, row.end.timestamp())
    return NodeSpell(
        node=row.node.name,
        start=max(start, row.start.timestamp()),
        end=until,
        capacity=row.capacity,
        allocatable=row.allocatable,
        labels=row.labels,
        ready=row.ready,
        schedulable=row.schedulable,
        source=Source.API,
    )


def _time(seconds: float | None) -> datetime | None:
    return None if seconds is None else from_seconds(seconds)


def _seconds(time: datetime | None) -> float | None:
    return None if time is None else time.timestamp()
