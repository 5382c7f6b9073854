"""Allocations of ResourceClaims in the database, and the rows by which claims hold themselves."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from django.db import transaction

from apps.clusters.domain.devices.resource_claims import holder, is_resolved
from apps.clusters.domain.pods.ledger import ClaimAllocationRecord
from apps.clusters.domain.tiers import BUILTIN_TIERS
from apps.clusters.domain.window import from_seconds
from apps.clusters.models import Pod
from apps.clusters.models.claims import ClaimInterval
from apps.clusters.models.ledger import WatchIssue
from apps.clusters.services.names import NameRegistry, chunks
from apps.clusters.services.pods.ledger_rows import POD_FIELDS, claim_of, claim_values
from apps.clusters.services.pods.ledger_writer import known_pods, lock_cluster, pod_rows
from apps.clusters.services.pods.pod_store import TrackedPod
from apps.clusters.services.tier_history import Assigned

_AT_ONCE = 1000
_FIELDS = ["namespace", "name", "node_name", "released_at", "devices"]

Assign = Callable[[TrackedPod, ClaimAllocationRecord], Assigned | None]


def open_claims(cluster_id: int) -> list[ClaimAllocationRecord]:
    """Return the allocations that last, as far as the database knows. One query."""
    rows = ClaimInterval.objects.filter(cluster_id=cluster_id, released_at__isnull=True)
    return [claim_of(row) for row in rows.order_by("allocated_at", "pk")]


def write_claims(
    cluster_id: int, records: Iterable[ClaimAllocationRecord], names: NameRegistry, assign: Assign
) -> None:
    """Insert or update allocations, by (cluster, uid, allocated), and the row of each claim.

    Of two ends of one allocation the later holds, and each ends where the next one of its claim
    begins, so that the order of writers does not matter.
    """
    by_uid: dict[str, list[ClaimAllocationRecord]] = defaultdict(list)
    for record in records:
        by_uid[record.uid].append(record)
    for uids in chunks(sorted(by_uid), _AT_ONCE):
        with transaction.atomic():
            _write(cluster_id, {uid: by_uid[uid] for uid in uids}, names, assign)


def _write(
    cluster_id: int,
    ours: Mapping[str, Sequence[ClaimAllocationRecord]],
    names: NameRegistry,
    assign: Assign,
) -> None:
    lock_cluster(cluster_id)
    there: dict[str, list[ClaimAllocationRecord]] = defaultdict(list)
    rows = ClaimInterval.objects.filter(cluster_id=cluster_id, uid__in=list(ours))
    for row in rows.order_by("uid", "allocated_at"):
        there[row.uid].append(claim_of(row))
    joined = {uid: _joined(there[uid], records) for uid, records in ours.items()}
    ClaimInterval.objects.bulk_create(
        [
            ClaimInterval(cluster_id=cluster_id, **claim_values(record))
            for uid, records in joined.items()
            for record in records
            if record not in there[uid]
        ],
        update_conflicts=True,
        unique_fields=["cluster", "uid", "allocated_at"],
        update_fields=_FIELDS,
    )
    known = known_pods(cluster_id, list(ours))
    holders = [_holder(joined[uid], known.get(uid), assign) for uid in sorted(ours)]
    Pod.objects.bulk_create(
        pod_rows(cluster_id, holders, names),
        update_conflicts=True,
        unique_fields=["cluster", "uid"],
        update_fields=POD_FIELDS,
    )


def _joined(
    there: Iterable[ClaimAllocationRecord], ours: Iterable[ClaimAllocationRecord]
) -> list[ClaimAllocationRecord]:
    """Return all allocations of one claim, in order, none reaching into the next."""
    intervals = {_micros(record.allocated): record for record in there}
    for record in ours:
        known = intervals.get(_micros(record.allocated))
        ends = [r.released for r in (known, record) if r is not None and r.released is not None]
        intervals[_micros(record.allocated)] = replace(record, released=max(ends, default=None))
    ordered = [intervals[at] for at in sorted(intervals)]
    for place, following in enumerate(ordered[1:]):
        released = ordered[place].released
        if released is None or released > following.allocated:
            ordered[place] = replace(ordered[place], released=following.allocated)
    return ordered


def _micros(at: float) -> int:
    return round(at * 1e6)


def _holder(
    intervals: Sequence[ClaimAllocationRecord], known: TrackedPod | None, assign: Assign
) -> TrackedPod:
    """Return the row of a claim: from its first allocation until its last one was released."""
    tracked = TrackedPod(holder(intervals[-1], since=intervals[0].allocated))
    found = None if known is None else known.assigned
    now = assign(tracked, intervals[-1])
    if found is None or found.tier in BUILTIN_TIERS:
        found = now or found
    elif now is not None and is_resolved(intervals[-1].devices):
        # Its devices may have been known later than the claim.
        found = replace(found, gpu_equivalents=now.gpu_equivalents)
    tracked.assigned = found
    return tracked


def notes(cluster_id: int) -> dict[str, str]:
    """Return the notes of a cluster: subject → text. One query."""
    rows = WatchIssue.objects.filter(cluster_id=cluster_id).order_by("subject")
    return dict(rows.values_list("subject", "text"))


def write_notes(cluster_id: int, notes: Mapping[str, str], at: float) -> None:
    """Make these the notes of a cluster; one that stands keeps the time since when it does."""
    there = WatchIssue.objects.filter(cluster_id=cluster_id)
    with transaction.atomic():
        there.exclude(subject__in=list(notes)).delete()
        WatchIssue.objects.bulk_create(
            [
                WatchIssue(cluster_id=cluster_id, subject=s, text=text, since=from_seconds(at))
                for s, text in sorted(notes.items())
            ],
            update_conflicts=True,
            unique_fields=["cluster", "subject"],
            update_fields=["text"],
        )
