"""What waits for a quota key: the work that a raise would let through."""

from collections.abc import Sequence
from datetime import datetime

from apps.accounts.permissions import Visibility
from apps.changes.domain.preview import Held
from apps.changes.domain.targets import QuotaKey, Source, Target
from apps.changes.models import ChangeRequest
from apps.clusters.domain.sightings import (
    CONTROLLERS,
    Kind,
    SeenController,
    SeenLocalQueue,
)
from apps.clusters.services.sighting_reader import sightings
from apps.pending.domain.causes import Cause
from apps.pending.selectors import PendingFilters, PendingRow, pending_now
from apps.quotas.selectors import QuotaRow

_EVERYTHING = Visibility(everything=True)
_MOST = 500


def held_back(
    request: ChangeRequest, target: Target, rows: Sequence[QuotaRow], *, now: datetime
) -> list[Held]:
    """Return the work of a target's resource that waits for it, at most 500 things.

    Seven queries.
    """
    if isinstance(target, QuotaKey):
        return _refused(request, target, rows, now)
    return _queued(request, target, now)


def _refused(
    request: ChangeRequest, target: QuotaKey, rows: Sequence[QuotaRow], now: datetime
) -> list[Held]:
    waiting = _waiting(request, Cause.QUOTA, now, namespace=target.namespace)
    makers = {
        one.uid: one.body
        for one in sightings(request.cluster_id, CONTROLLERS)
        if isinstance(one.body, SeenController)
    }
    others = _other_headroom(target, rows)
    found = []
    for row in waiting:
        if row.resource != target.resource or not _is_meant(row.detail, target.name):
            continue
        maker = makers.get(row.uid)
        units, pods = row.units, 1
        if maker is not None and maker.requests.get(target.resource):
            units = maker.requests[target.resource]
            pods = max(1, maker.wanted - maker.pods)
        found.append(Held(row.uid, row.name, units, pods, row.since, others))
    return found


def _queued(request: ChangeRequest, target: Target, now: datetime) -> list[Held]:
    """Return what waits in a queue; a workload of Kueue is let through whole."""
    local = {
        (one.namespace, one.name)
        for one in sightings(request.cluster_id, [Kind.LOCAL_QUEUE])
        if isinstance(one.body, SeenLocalQueue) and one.body.cluster_queue == target.name
    }
    of_kueue = target.source is Source.CLUSTER_QUEUE
    return [
        Held(row.uid, _name(row, request), row.units, 1, row.since)
        for row in _waiting(request, Cause.QUEUE, now)
        if row.resource == target.resource
        and ((row.namespace, row.queue) in local if of_kueue else row.queue == target.name)
    ]


def _name(row: PendingRow, request: ChangeRequest) -> str:
    """Return what the asking team may read: of others' work in a shared queue only whose it is."""
    return row.name if row.team == request.team.name else f"work of {row.team}"


def _waiting(
    request: ChangeRequest, cause: Cause, now: datetime, *, namespace: str = ""
) -> Sequence[PendingRow]:
    filters = PendingFilters(
        cluster=(request.cluster.name,),
        namespace=(namespace,) if namespace else (),
        cause=(cause.value,),
    )
    return pending_now(now, filters=filters, visibility=_EVERYTHING, page_size=_MOST).rows


def _is_meant(detail: str, quota: str) -> bool:
    """Say whether a refusal names the quota, or too many or none to tell."""
    names = detail.replace(" and ", ", ").split(", ")
    return not detail or detail.endswith(" more") or quota in names


def _other_headroom(target: QuotaKey, rows: Sequence[QuotaRow]) -> float | None:
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
