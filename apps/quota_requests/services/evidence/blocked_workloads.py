"""What waits for a quota key: the work that a raise would let through."""

from collections.abc import Sequence
from datetime import datetime

from apps.accounts.permissions import Visibility
from apps.clusters.domain.observed.objects import (
    CONTROLLERS,
    ClusterQueueSnapshot,
    ControllerSnapshot,
    LocalQueueSnapshot,
    ObservedKind,
    WorkloadSnapshot,
)
from apps.clusters.services import observed_objects
from apps.pending.domain.causes import Cause, Counts
from apps.pending.domain.diagnosis import BLOCKING_QUOTA
from apps.pending.domain.queues.kueue import INACTIVE, MISCONFIGURED, STOPPED
from apps.pending.domain.queues.queued import has_quota
from apps.pending.selectors import PendingFilters, PendingPage, PendingRow, pending_now
from apps.quota_requests.domain.targets import QueueCell, QuotaKeyTarget, Target
from apps.quota_requests.domain.unblocked_workloads import BlockedWork
from apps.quota_requests.models import ChangeRequest
from apps.quotas.selectors import QuotaRow

_EVERYTHING = Visibility(everything=True)
_MOST = 500
_STRICT = "StrictFIFO"
_NOT_FOR_QUOTA = frozenset({INACTIVE, MISCONFIGURED, STOPPED})
"""Why a Workload of Kueue waits where no quota would help it."""


def blocked_workloads(
    request: ChangeRequest, target: Target, rows: Sequence[QuotaRow], *, now: datetime
) -> list[BlockedWork]:
    """Return the work of a target's resource that waits for it, at most 500 things.

    A thing that another one stands for, as a pod for its Workload, is not counted twice, and what
    has its quota already waits for something else. Seven queries.
    """
    if isinstance(target, QuotaKeyTarget):
        return _refused(request, target, rows, now)
    if isinstance(target, QueueCell):
        return _lined_up(request, target, now)
    return _queued(request, target, now)


def is_strict(request: ChangeRequest, target: Target) -> bool:
    """Say whether nothing in a queue passes what waits in front of it. One query."""
    if not isinstance(target, QueueCell):
        return False
    seen = observed_objects(request.cluster_id, [ObservedKind.CLUSTER_QUEUE])
    bodies = (one.body for one in seen if one.name == target.name)
    return any(isinstance(b, ClusterQueueSnapshot) and b.strategy == _STRICT for b in bodies)


def _refused(
    request: ChangeRequest, target: QuotaKeyTarget, rows: Sequence[QuotaRow], now: datetime
) -> list[BlockedWork]:
    waiting = _waiting(request, Cause.QUOTA, now, namespace=target.namespace)
    makers = {
        one.uid: one.body
        for one in observed_objects(request.cluster_id, CONTROLLERS)
        if isinstance(one.body, ControllerSnapshot)
    }
    others = _other_headroom(target, rows)
    found = []
    for row in waiting:
        if row.resource != target.resource or not _is_meant(row, target.name):
            continue
        if row.counts == Counts.NOTHING:
            continue
        maker = makers.get(row.uid)
        units, pods = row.units, 1
        if maker is not None and maker.requests.get(target.resource):
            units = maker.requests[target.resource]
            pods = max(1, maker.wanted - maker.pods)
        found.append(BlockedWork(row.uid, row.name, units, pods, row.since, others))
    return found


def _lined_up(request: ChangeRequest, target: QueueCell, now: datetime) -> list[BlockedWork]:
    """Return the Workloads of Kueue that wait for quota: each is let through whole.

    Their pods wait behind their gates beside them, and are not told of again.
    """
    seen = observed_objects(
        request.cluster_id, [ObservedKind.LOCAL_QUEUE, ObservedKind.KUEUE_WORKLOAD]
    )
    local = {
        (one.namespace, one.name)
        for one in seen
        if isinstance(one.body, LocalQueueSnapshot) and one.body.cluster_queue == target.name
    }
    waiting = {one.uid: one.body for one in seen if isinstance(one.body, WorkloadSnapshot)}
    found = []
    for row in _waiting(request, Cause.QUEUE, now, kind="Workload"):
        body = waiting.get(row.uid)
        if body is None or has_quota(body) or row.detail in _NOT_FOR_QUOTA:
            continue
        units, pods = _asked(body, target.resource)
        here = body.cluster_queue == target.name or (row.namespace, row.queue) in local
        if not pods or not here:
            continue
        found.append(
            BlockedWork(
                *(row.uid, _name(row, request), units / pods, pods, row.since),
                whole=True,
                priority=body.priority,
            )
        )
    return found


def _asked(body: WorkloadSnapshot, resource: str) -> tuple[float, int]:
    """Return what all pods of a Workload ask for of a resource, and how many of them do."""
    asking = [one for one in body.pod_sets if one.requests.get(resource, 0.0) > 0]
    return sum(one.requests[resource] * one.count for one in asking), sum(o.count for o in asking)


def _queued(request: ChangeRequest, target: Target, now: datetime) -> list[BlockedWork]:
    """Return what waits in a queue of Volcano: a group for those of its pods that are not there."""
    return [
        BlockedWork(row.uid, _name(row, request), row.units * _part(row), 1, row.since)
        for row in _waiting(request, Cause.QUEUE, now)
        if row.resource == target.resource and row.queue == target.name
    ]


def _part(row: PendingRow) -> float:
    """Return which part of a thing is not counted with another one."""
    if row.counts == Counts.NOTHING or not row.gpu_equivalents:
        return 0.0
    return row.counted / row.gpu_equivalents


def _name(row: PendingRow, request: ChangeRequest) -> str:
    """Return what the asking team may read: of others' work in a shared queue only whose it is."""
    return row.name if row.team == request.team.name else f"work of {row.team}"


def _waiting(
    request: ChangeRequest, cause: Cause, now: datetime, *, namespace: str = "", kind: str = ""
) -> Sequence[PendingRow]:
    filters = PendingFilters(
        cluster=(request.cluster.name,),
        namespace=(namespace,) if namespace else (),
        cause=(cause.value,),
        kind=(kind,) if kind else (),
    )
    page = PendingPage(size=_MOST)
    return pending_now(now, filters=filters, visibility=_EVERYTHING, page=page).rows


def _is_meant(row: PendingRow, quota: str) -> bool:
    """Say whether a refusal names the quota, or none to tell."""
    named = [one for one in row.blockers if one.startswith(BLOCKING_QUOTA)]
    return not named or f"{BLOCKING_QUOTA}{quota}" in named


def _other_headroom(target: QuotaKeyTarget, rows: Sequence[QuotaRow]) -> float | None:
    """Return the least that other quotas of the namespace leave of the resource."""
    return min(
        (
            row.hard - (row.used or 0.0)
            for row in rows
            if row.namespace == target.namespace
            and row.source == target.source
            and (row.name, row.key) != (target.name, target.key)
            and row.resource == target.resource
            and row.effective
            and not row.scopes
        ),
        default=None,
    )
