"""Rows of the pod ledger and of node intervals, to and from what the domain speaks of."""

from datetime import datetime
from typing import Any

from apps.clusters.domain.pods.kube_objects import NodeState, main_resource
from apps.clusters.domain.pods.ledger import (
    ClaimAllocationRecord,
    ClaimedDevice,
    LastSeen,
    NodeInterval,
    OfferedDevice,
    Owner,
    PodRecord,
    PodSource,
)
from apps.clusters.domain.window import from_seconds
from apps.clusters.models import NodeInterval as NodeIntervalRow
from apps.clusters.models import Pod
from apps.clusters.models.claims import ClaimInterval

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
    "observed_until",
    "runs",
    "claims",
    "end_reason",
    "source",
    "unschedulable",
    "lost",
    "tier",
    "gpu_model",
    "gpu_equivalents",
]
INTERVAL_FIELDS = ["end", "ready", "schedulable", "capacity", "allocatable", "labels", "devices"]


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
        "observed_until": None if record.last_seen is None else from_seconds(record.last_seen.at),
        "runs": [list(run) for run in record.runs],
        "claims": list(record.claims),
        # PostgreSQL takes no NUL in text, and a kubelet's word may be anything.
        "end_reason": record.end_reason.replace("\0", "")[:120],
        "source": record.source.value,
        "unschedulable": record.unschedulable,
    }


def pod_record_of(row: Pod) -> PodRecord:
    """Return the record of a row read with its workload and that one's namespace."""
    workload = row.workload
    return PodRecord(
        uid=row.uid,
        namespace=workload.namespace.name,
        name=row.name,
        owner=Owner(workload.kind, workload.name),
        requests=row.requests,
        created=row.created_at.timestamp(),
        node=row.node_name,
        bound=_seconds(row.bound_at),
        started=_seconds(row.started_at),
        finished=_seconds(row.finished_at),
        deleted=_seconds(row.deleted_at),
        runs=tuple((start, end) for start, end in row.runs),
        end_reason=row.end_reason,
        priority_class=row.priority_class,
        node_selector=row.node_selector,
        source=PodSource(row.source),
        claims=tuple(row.claims),
        last_seen=_last_seen(row),
        unschedulable=row.unschedulable,
    )


def _last_seen(row: Pod) -> LastSeen | None:
    if row.observed_until is None:
        return None
    gone = row.deleted_at is not None and not row.lost
    return LastSeen(row.observed_until.timestamp(), gone)


def interval_values(state: NodeState, end: float | None) -> dict[str, Any]:
    """Return the columns of an interval's row beside its node and start."""
    return {
        "end": _time(end),
        "ready": state.ready,
        "schedulable": state.schedulable,
        "capacity": dict(state.capacity),
        "allocatable": dict(state.allocatable),
        "labels": dict(state.labels),
        "devices": [device._asdict() for device in state.devices],
    }


def node_state_of(row: NodeIntervalRow) -> NodeState:
    """Return the state that an interval's row (read with its node) describes."""
    return NodeState(
        name=row.node.name,
        capacity=row.capacity,
        allocatable=row.allocatable,
        labels=row.labels,
        ready=row.ready,
        schedulable=row.schedulable,
        devices=_offered(row.devices),
    )


def interval_of(row: NodeIntervalRow, start: float, end: float) -> NodeInterval:
    """Return an interval's row, read with its node, as the part of it within start..end."""
    until = end if row.end is None else min(end, row.end.timestamp())
    return NodeInterval(
        node=row.node.name,
        start=max(start, row.start.timestamp()),
        end=until,
        capacity=row.capacity,
        allocatable=row.allocatable,
        labels=row.labels,
        ready=row.ready,
        schedulable=row.schedulable,
        source=PodSource.API,
        devices=_offered(row.devices),
    )


def claim_values(record: ClaimAllocationRecord) -> dict[str, Any]:
    """Return the columns of a claim's interval beside its cluster."""
    return {
        "uid": record.uid,
        "namespace": record.namespace,
        "name": record.name,
        "node_name": record.node,
        "allocated_at": from_seconds(record.allocated),
        "released_at": _time(record.released),
        "devices": [device._asdict() for device in record.devices],
    }


def claim_of(row: ClaimInterval) -> ClaimAllocationRecord:
    """Return the record of a claim's interval."""
    return ClaimAllocationRecord(
        uid=row.uid,
        namespace=row.namespace,
        name=row.name,
        node=row.node_name,
        allocated=row.allocated_at.timestamp(),
        released=_seconds(row.released_at),
        devices=tuple(ClaimedDevice(**device) for device in row.devices),
    )


def _offered(devices: list[dict[str, Any]]) -> tuple[OfferedDevice, ...]:
    return tuple(OfferedDevice(**{**d, "classes": tuple(d["classes"])}) for d in devices)


def _time(seconds: float | None) -> datetime | None:
    return None if seconds is None else from_seconds(seconds)


def _seconds(time: datetime | None) -> float | None:
    return None if time is None else time.timestamp()
