"""Deleting what is past its retention, and closing what clusters outside the catalog left open."""

import logging
from collections.abc import Collection, Mapping
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.db import DatabaseError, transaction
from django.db.models import Exists, OuterRef, Q, QuerySet

from apps.clusters.domain.observed.objects import WITH_HISTORY
from apps.clusters.domain.pods.ledger import PodSource
from apps.clusters.domain.window import from_seconds
from apps.clusters.models import (
    ClaimInterval,
    Cluster,
    Device,
    FormerPerson,
    NodeInterval,
    ObservedObject,
    ObservedPerson,
    Pod,
    PodPerson,
    PodRevision,
    WatchCoverage,
)
from apps.clusters.services.pods.ledger_rows import chunks
from apps.clusters.services.pods.pod_store import (
    LOST,
    PodStore,
    TrackedPod,
    last_watched,
    present_pods,
)

OBJECT_RETENTION = timedelta(hours=48)
"""How long objects that only explain pending work are kept after they went."""

_AT_A_TIME = 5000

logger = logging.getLogger(__name__)
_OF_AN_END = ["lost", "end_reason", "runs", "deleted_at", "ended_at"]
STILL_SECONDS = 300.0
"""A watch lets go of a cluster within half a minute, and writes what it had then."""


def forget_ledger(*, before: datetime) -> int:
    """Delete what ended before a time, and devices not seen since; return how many rows."""
    deleted = _delete_in_batches(Pod.objects.filter(ended_at__lt=before))
    deleted += PodRevision.objects.filter(hour__lt=before).delete()[0]
    for model in (NodeInterval, WatchCoverage):
        deleted += model._default_manager.filter(end__lt=before).delete()[0]
    deleted += ClaimInterval.objects.filter(released_at__lt=before).delete()[0]
    deleted += Device.objects.filter(last_seen__lt=before).delete()[0]
    return deleted


def forget_objects(*, now: datetime, history_before: datetime) -> int:
    """Delete what was seen to go two days ago; return how many rows.

    Of quotas and queues every setting is kept until `history_before`: they are history too.
    """
    kinds = [kind.value for kind in WITH_HISTORY]
    recent = Q(gone_at__lt=now - OBJECT_RETENTION) & ~Q(kind__in=kinds)
    return _delete_in_batches(ObservedObject.objects.filter(recent | Q(gone_at__lt=history_before)))


def forget_people(*, now: datetime) -> int:
    """Delete who was behind pods that ended too long ago, or behind any where that is not kept.

    The same of objects that went. Returns how many rows. Two queries for each 5,000 of both.
    """
    rows, work = PodPerson.objects.all(), ObservedPerson.objects.all()
    if settings.PEOPLE is None:
        FormerPerson.objects.all().delete()
    else:
        before = now - timedelta(days=settings.PEOPLE.days)
        recent = Pod.objects.filter(
            Q(ended_at__isnull=True) | Q(ended_at__gte=before), pk=OuterRef("pod_id")
        )
        rows = rows.filter(~Exists(recent))
        there = ObservedObject.objects.filter(
            Q(gone_at__isnull=True) | Q(gone_at__gte=before), pk=OuterRef("object_id")
        )
        work = work.filter(~Exists(there))
    return _delete_in_batches(rows) + _delete_in_batches(work)


def end_names(names: Collection[str], *, before: datetime) -> int:
    """Give names to other persons: work from `before` names no person any more.

    Work counts from when its pod was made, or from when it was first seen. Returns of how many pods
    and objects that was known.
    """
    people = sorted({name.strip().lower() for name in names})
    with transaction.atomic():
        for person in people:
            FormerPerson.objects.update_or_create(pk=person, defaults={"before": before})
    pods = PodPerson.objects.filter(person__in=people, pod__created_at__lt=before)
    work = ObservedPerson.objects.filter(person__in=people, object__first_at__lt=before)
    return _delete_in_batches(pods) + _delete_in_batches(work)


def _delete_in_batches(rows: QuerySet[Any]) -> int:
    """Delete rows some thousands at a time, each in a short transaction that blocks no writer."""
    deleted = 0
    while True:
        with transaction.atomic():
            # PostgreSQL knows no limit of a DELETE: some ids are chosen first.
            chosen = list(rows.order_by("pk").values_list("pk", flat=True)[:_AT_A_TIME])
            count, _ = rows.model._default_manager.filter(pk__in=chosen).delete()
        if not count:
            return deleted
        deleted += count


def lock_retired(cluster_id: int) -> bool:
    """Keep a cluster as it is to the end of the transaction; return whether it was let go."""
    rows = Cluster.objects.filter(pk=cluster_id, active=False).order_by("pk")
    return bool(rows.select_for_update(no_key=True))


def retired_clusters() -> list[int]:
    """Return the clusters that no catalog names any more. One query."""
    return list(Cluster.objects.filter(active=False).order_by("pk").values_list("pk", flat=True))


def end_ledger(cluster_ids: list[int], *, now: datetime) -> int:
    """End the pods and nodes that last in clusters that were let go; return how many did.

    They end when the cluster was last watched, like objects that go during a gap of the watch: if
    it returns to the catalog, pods that are still there live on. Rows that no watch wrote (of pods
    learnt from series) are left to `end_inferred`.
    """
    pods = Pod.objects.filter(
        cluster=OuterRef("pk"), deleted_at__isnull=True, source=PodSource.API.value
    )
    nodes = NodeInterval.objects.filter(node__cluster=OuterRef("pk"), end__isnull=True)
    there = Cluster.objects.filter(pk__in=cluster_ids, watchcoverage__isnull=False).distinct()
    lasting = there.filter(Exists(pods) | Exists(nodes)).order_by("pk").values_list("pk", flat=True)
    return sum(_tried(pk, now) for pk in list(lasting))


def end_inferred(until: Mapping[int, datetime]) -> int:
    """End the pods learnt from series in clusters that were let go; return how many did.

    `until` is when the last facts of each cluster end: later times were not observed. The pods are
    marked lost: series that show one after the cluster returned remove that end again.
    """
    open_ones = Pod.objects.filter(
        cluster__in=until, source=PodSource.METRICS.value, ended_at__isnull=True
    )
    found = open_ones.order_by().values_list("cluster_id", flat=True).distinct()
    return sum(_end_of_series(pk, until[pk]) for pk in sorted(found))


@transaction.atomic
def _end_of_series(cluster_id: int, until: datetime) -> int:
    if not lock_retired(cluster_id):
        return 0
    rows = Pod.objects.filter(
        cluster_id=cluster_id, source=PodSource.METRICS.value, ended_at__isnull=True
    )
    pods = list(rows.select_for_update(of=("self",)).order_by("pk"))
    for row in pods:
        # A pod cannot end before its own times, which may lie after the last facts.
        known = [at for at in (until, row.created_at, row.bound_at, row.started_at) if at]
        row.lost, row.end_reason, row.deleted_at = True, row.end_reason or LOST, max(known)
        row.ended_at = row.deleted_at
        ended = row.deleted_at.timestamp()
        row.runs = [[start, ended if end is None else end] for start, end in row.runs]
    Pod.objects.bulk_update(pods, _OF_AN_END, batch_size=500)
    return len(pods)


def _tried(cluster_id: int, now: datetime) -> int:
    """End what lasts in a cluster; one that cannot be done does not hold up the others."""
    try:
        return _end(cluster_id, now)
    except DatabaseError:
        logger.exception("what lasts in cluster %d, which was let go, is not ended", cluster_id)
        return 0


@transaction.atomic
def _end(cluster_id: int, now: datetime) -> int:
    # One writer of a cluster's pods at a time, and none where the catalog has it again.
    if not lock_retired(cluster_id):
        return 0
    watched = last_watched(cluster_id)
    # Its watch may still be writing what it had.
    if watched is None or now.timestamp() - watched < STILL_SECONDS:
        return 0
    store = PodStore(present_pods(cluster_id))
    store.relist((), now.timestamp(), watched)
    gone = store.changed
    for uids in chunks(sorted(gone)):
        rows = list(Pod.objects.filter(cluster_id=cluster_id, uid__in=list(uids)))
        for row in rows:
            _put_end(row, gone[row.uid])
        Pod.objects.bulk_update(rows, _OF_AN_END)
    at = min(now, from_seconds(watched))
    intervals = NodeInterval.objects.filter(
        node__cluster=cluster_id, end__isnull=True, start__lt=at
    )
    return len(gone) + intervals.update(end=at)


def _put_end(row: Pod, tracked: TrackedPod) -> None:
    record = tracked.record
    row.lost, row.end_reason = tracked.lost, record.end_reason
    row.runs = [list(run) for run in record.runs]
    row.deleted_at = None if record.deleted is None else from_seconds(record.deleted)
    row.ended_at = None if record.ended is None else from_seconds(record.ended)
