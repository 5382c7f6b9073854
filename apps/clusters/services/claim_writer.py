"""Allocations of ResourceClaims in the database, and the rows by which claims hold themselves."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from django.db import transaction

from apps.clusters.domain.ledger import ClaimRecord
from apps.clusters.domain.resource_claims import holder, is_resolved
from apps.clusters.domain.tiers import BUILTIN_TIERS
from apps.clusters.domain.window import from_seconds
from apps.clusters.models import Cluster, Pod
from apps.clusters.models.claims import ClaimSpell
from apps.clusters.models.ledger import WatchNote
from apps.clusters.services.ledger_rows import POD_FIELDS, claim_of, claim_values
from apps.clusters.services.ledger_writer import known_pods, pod_rows
from apps.clusters.services.names import Names, chunks
from apps.clusters.services.pod_book import TrackedPod
from apps.clusters.services.tier_history import Assigned

_AT_ONCE = 1000
_FIELDS = ["namespace", "name", "node_name", "released_at", "devices"]

Assign = Callable[[TrackedPod, ClaimRecord], Assigned | None]


def open_claims(cluster_id: int) -> list[ClaimRecord]:
    """Return the allocations that last, as far as the database knows. One query."""
    rows = ClaimSpell.objects.filter(cluster_id=cluster_id, released_at__isnull=True)
    return [claim_of(row) for row in rows.order_by("allocated_at", "pk")]


def write_claims(
    cluster_id: int, records: Iterable[ClaimRecord], names: Names, assign: Assign
) -> None:
    """Insert or update allocations, by (cluster, uid, allocated), and the row of each claim.

    Of two ends of one allocation the later holds, and each ends where the next one of its claim
    begins, so that the order of writers does not matter.
    """
    by_uid: dict[str, list[ClaimRecord]] = defaultdict(list)
    for record in records:
        by_uid[record.uid].append(record)
    for uids in chunks(sorted(by_uid), _AT_ONCE):
        with transaction.atomic():
            _write(cluster_id, {uid: by_uid[uid] for uid in uids}, names, assign)


def _write(
    cluster_id: int, ours: Mapping[str, Sequence[ClaimRecord]], names: Names, assign: Assign
) -> None:
    list(Cluster.objects.filter(pk=cluster_id).order_by("pk").select_for_update(no_key=True))
    there: dict[str, list[ClaimRecord]] = defaultdict(list)
    rows = ClaimSpell.objects.filter(cluster_id=cluster_id, uid__in=list(ours))
    for row in rows.order_by("uid", "allocated_at"):
        there[row.uid].append(claim_of(row))
    joined = {uid: _joined(there[uid], records) for uid, records in ours.items()}
    ClaimSpell.objects.bulk_create(
        [
            ClaimSpell(cluster_id=cluster_id, **claim_values(record))
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


def _joined(there: Iterable[ClaimRecord], ours: Iterable[ClaimRecord]) -> list[ClaimRecord]:
    """Return all allocations of one claim, in order, none reaching into the next."""
    spells = {_micros(record.allocated): record for record in there}
    for record in ours:
        known = spells.get(_micros(record.allocated))
        ends = [r.released for r in (known, record) if r is not None and r.released is not None]
        spells[_micros(record.allocated)] = replace(record, released=max(ends, default=None))
    ordered = [spells[at] for at in sorted(spells)]
    for place, following in enumerate(ordered[1:]):
        released = ordered[place].released
        if released is None or released > following.allocated:
            ordered[place] = replace(ordered[place], released=following.allocated)
    return ordered


def _micros(at: float) -> int:
    return round(at * 1e6)


def _holder(spells: Sequence[ClaimRecord], known: TrackedPod | None, assign: Assign) -> TrackedPod:
    """Return the row of a claim: from its first allocation until its last one was released."""
    tracked = TrackedPod(holder(spells[-1], since=spells[0].allocated))
    found = None if known is None else known.assigned
    now = assign(tracked, spells[-1])
    if found is None or found.tier in BUILTIN_TIERS:
        found = now or found
    elif now is not None and is_resolved(spells[-1].devices):
        # Its devices may have been known later than the claim.
        found = replace(found, gpu_equivalents=now.gpu_equivalents)
    tracked.assigned = found
    return tracked


def notes(cluster_id: int) -> dict[str, str]:
    """Return the notes of a cluster: subject → text. One query."""
    rows = WatchNote.objects.filter(cluster_id=cluster_id).order_by("subject")
    return dict(rows.values_list("subject", "text"))


def write_notes(cluster_id: int, notes: Mapping[str, str], at: float) -> None:
    """Make these the notes of a cluster; one that stands keeps the time since when it does."""
    there = WatchNote.objects.filter(cluster_id=cluster_id)
    with transaction.atomic():
        there.exclude(subject__in=list(notes)).delete()
        WatchNote.objects.bulk_create(
            [
                WatchNote(cluster_id=cluster_id, subject=s, text=text, since=from_seconds(at))
                for s, text in sorted(notes.items())
            ],
            update_conflicts=True,
            unique_fields=["cluster", "subject"],
            update_fields=["text"],
        )
