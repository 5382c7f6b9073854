"""Writing episodes and their intervals, some at a time, under the lease of who refreshes."""

import logging
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta

from django.db import DataError, IntegrityError, transaction
from django.db.models import Q

from apps.accounts.services import leases
from apps.accounts.services.leases import LeaseLost
from apps.clusters.domain.window import HOUR_SECONDS, TimeSpan, from_seconds, union
from apps.clusters.selectors import report
from apps.clusters.services import NameRegistry
from apps.pending.domain.diagnosis import DIAGNOSED, Cause, Counts
from apps.pending.domain.episodes import CauseSpan
from apps.pending.models import CauseInterval, Episode, RefreshState
from apps.pending.services.days import first_summed
from apps.pending.services.episode_plans import EpisodePlan
from apps.usage.models import QueueHour
from gpuportal.database_functions import UnixSeconds

_HOUR = timedelta(seconds=HOUR_SECONDS)
logger = logging.getLogger(__name__)
_AT_ONCE = 1000
# Longer than a refresh takes; after a crash the cluster is blocked until it ends.
LEASE = timedelta(seconds=60)
_KEYS = ["cluster", "kind", "uid", "since"]
_FIELDS = [
    *("name", "workload", "tier", "resource", "units", "gpu_equivalents", "counted", "counts"),
    *("queue", "priority", "bound_at", "until", "outcome", "again", *DIAGNOSED),
]
_INTERVAL_FIELDS = ["end", "cause", "detail", "message", "counts", "counted"]


def mark_due(cluster_id: int, changed: Iterable[TimeSpan]) -> None:
    """Have the hours derived again in which the pending history changes. One query, or two.

    With the change, in its transaction.
    """
    spans = union(changed)
    if not spans:
        return
    hours = QueueHour.objects.filter(
        cluster=cluster_id, due=False, hour__gt=from_seconds(spans[0][0]) - _HOUR
    )
    found = [
        pk
        for pk, start in hours.annotate(start=UnixSeconds("hour")).values_list("pk", "start")
        if any(since < start + HOUR_SECONDS and until > start for since, until in spans)
    ]
    if found:
        QueueHour.objects.filter(pk__in=found).update(due=True)


def claim(cluster_id: int, now: datetime) -> RefreshState | None:
    """Take the lease of a cluster until `LEASE` from now; None while another process has it."""
    RefreshState.objects.get_or_create(cluster_id=cluster_id)
    rows = RefreshState.objects.filter(cluster_id=cluster_id)
    return leases.take(rows, now, lease_until=now + LEASE)


def release(held: RefreshState, **values: object) -> None:
    """Give the lease back and note how it went; nothing where another process took it over."""
    mine = RefreshState.objects.filter(pk=held.pk, lease_until=held.lease_until)
    mine.update(lease_until=None, **values)


def store(held: RefreshState, plans: Sequence[EpisodePlan]) -> None:
    """Write episodes and intervals, each thousand in one transaction. Raises LeaseLost.

    The same plans twice leave the same rows, so a process that is killed in between does no harm.
    One that no database takes is logged and left out.
    """
    names = NameRegistry(held.cluster_id)
    # Before the transactions below: new names must outlive one that is rolled back.
    owned = {plan.owned for plan in plans if plan.owned is not None}
    ids = names.workloads(owned) if owned else {}
    for start in range(0, len(plans), _AT_ONCE):
        part = plans[start : start + _AT_ONCE]
        for plan in part:
            if plan.owned is not None:
                plan.fields["workload_id"] = ids[plan.owned]
        try:
            _store(held, part)
        except (DataError, IntegrityError):
            for plan in part:
                _store_alone(held, plan)


def _store_alone(held: RefreshState, plan: EpisodePlan) -> None:
    try:
        _store(held, [plan])
    except (DataError, IntegrityError):
        kind, uid = plan.fields["kind"], plan.fields["uid"]
        logger.exception("the episode of %s %s is not written", kind, uid)


@transaction.atomic
def _store(held: RefreshState, plans: Sequence[EpisodePlan]) -> None:
    changed = [plan.changed for plan in plans if plan.changed is not None]
    lock_lease(held, min((start for start, _ in changed), default=None))
    mark_due(held.cluster_id, changed)
    _write(held.cluster_id, plans)


def lock_lease(held: RefreshState, touched: float | None) -> None:
    """Lock the lease, and have the days summed anew from when amounts change (Unix seconds).

    Within the transaction of what changes them. Raises LeaseLost.
    """
    row = RefreshState.objects.select_for_update().get(pk=held.pk)
    if row.lease_until != held.lease_until:
        raise LeaseLost
    if row.rolled_to is None or touched is None or from_seconds(touched) >= row.rolled_to:
        return
    changed = from_seconds(touched)
    if held.lease_until is not None:
        # Of days that are past the retention nothing is left but their sums.
        changed = max(changed, first_summed(held.lease_until - LEASE, report().zone))
    row.rolled_to = min(row.rolled_to, changed)
    row.save(update_fields=["rolled_to"])


def _write(cluster_id: int, plans: Sequence[EpisodePlan]) -> None:
    # Rows that are there are found by their key, so that new and known ones go together.
    rows = Episode.objects.bulk_create(
        [Episode(cluster_id=cluster_id, **plan.fields) for plan in plans],
        update_conflicts=True,
        unique_fields=_KEYS,
        update_fields=_FIELDS,
    )
    intervals, gone = [], Q()
    for row, plan in zip(rows, plans, strict=True):
        intervals += [_row(row.pk, interval) for interval in plan.changes.write]
        if plan.changes.delete:
            starts = [from_seconds(start) for start in plan.changes.delete]
            gone |= Q(episode_id=row.pk, start__in=starts)
    if gone:
        CauseInterval.objects.filter(gone).delete()
    CauseInterval.objects.bulk_create(
        intervals,
        update_conflicts=True,
        unique_fields=["episode", "start"],
        update_fields=_INTERVAL_FIELDS,
    )


def _row(episode: int, interval: CauseSpan) -> CauseInterval:
    return CauseInterval(
        episode_id=episode,
        start=from_seconds(interval.start),
        end=None if interval.end is None else from_seconds(interval.end),
        cause=interval.cause.value,
        detail=interval.detail,
        message=interval.message,
        counts=interval.counts.value,
        counted=interval.counted,
    )


def interval_of(row: CauseInterval) -> CauseSpan:
    """Return a row as the domain speaks of it."""
    return CauseSpan(
        start=row.start.timestamp(),
        cause=Cause(row.cause),
        counts=Counts(row.counts),
        counted=row.counted,
        detail=row.detail,
        message=row.message,
        end=None if row.end is None else row.end.timestamp(),
    )
