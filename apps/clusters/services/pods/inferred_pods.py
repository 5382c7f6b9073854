"""Rows of pods learnt from kube-state-metrics series, and the revisions of the hours they change.

What is derived from the pods of an hour compares the hour's number with the one it was derived
from: so it is due again when a neighbouring hour tells more of a pod that lived in it.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from django.db import transaction
from django.db.models import F, IntegerField, OuterRef, QuerySet, Subquery
from django.db.models.functions import Coalesce

from apps.accounts.domain.structs import replace
from apps.clusters.domain.pods.history import (
    changed_span,
    closed_runs,
    finished_inferred,
    hull,
    last_seen,
    latest,
    merged_inferred,
    reopened,
)
from apps.clusters.domain.pods.ledger import PodRecord, PodSource
from apps.clusters.domain.tiers import (
    BUILTIN_TIERS,
    UNKNOWN_MODEL,
    NodeOffer,
    NodeOffers,
    model_key,
)
from apps.clusters.domain.window import TimeSpan, from_seconds, hour_floor
from apps.clusters.models import Cluster, Pod, PodRevision
from apps.clusters.selectors import report
from apps.clusters.services.catalog import TierAssignment, TierHistory
from apps.clusters.services.pods.ledger_rows import NameRegistry, chunks
from apps.clusters.services.pods.pod_store import (
    LOST,
    TrackedPod,
    last_watched,
    tracked,
    upsert_pods,
)

_HOUR = timedelta(hours=1)

_AT_ONCE = 2000


def note_revision(cluster_id: int, span: TimeSpan | None) -> None:
    """Count a change of what is known of the pods in a span; with the change, in its transaction.

    Four queries; none without a span.
    """
    if span is None or span[1] <= span[0]:
        return
    at, end = hour_floor(from_seconds(span[0]), report().zone), from_seconds(span[1])
    first, hours = at, []
    while at < end:
        hours.append(PodRevision(cluster_id=cluster_id, hour=at))
        at += _HOUR
    PodRevision.objects.bulk_create(hours, batch_size=1000, ignore_conflicts=True)
    rows = PodRevision.objects.filter(cluster_id=cluster_id, hour__gte=first, hour__lt=end)
    # Locked in one order, so that writers of overlapping spans wait for each other.
    list(rows.select_for_update().order_by("hour").values_list("pk"))
    rows.update(number=F("number") + 1)


def revision_of_hour() -> Coalesce:
    """Return the number of the hour of an outer row with `cluster_id` and `hour`; 0 without."""
    own = PodRevision.objects.filter(cluster_id=OuterRef("cluster_id"), hour=OuterRef("hour"))
    return Coalesce(Subquery(own.values("number")[:1]), 0, output_field=IntegerField())


def store_inferred_pods(
    cluster: Cluster,
    records: Sequence[PodRecord],
    catalog: TierHistory,
    node_labels: Mapping[str, Mapping[str, str]],
    *,
    now: datetime,
) -> dict[str, int]:
    """Insert or complete the rows of pods read from series; return uid → row id of all of them.

    Rows from the API are never overwritten: only those lost during a gap of the watch get the end
    that the series show. Rows learnt from series are joined so that hours may be stored in any
    order, twice, and by several workers at once, and give the same rows (`merged_inferred`); the
    hour that saw a pod last tells its end. A pod counts by the rules of `catalog` when it was
    bound, else when it was created; `node_labels` are the labels by node. A row that the series
    change is marked as revised `now`, so that what was derived from it is derived again.
    """
    names = NameRegistry(cluster.pk)
    places = NodeOffers([NodeOffer(labels) for _, labels in sorted(node_labels.items())])
    found = {
        record.uid: TrackedPod(
            replace(merged_inferred(record, record), source=PodSource.METRICS),
            catalog.assign(record, node_labels.get(record.node), record.created, places=places),
        )
        for record in records
    }
    ids: dict[str, int] = {}
    for uids in chunks(sorted(found), _AT_ONCE):
        part = {uid: found[uid] for uid in uids}
        with transaction.atomic():
            new = set(uids) - set(_rows(cluster, uids).values_list("uid", flat=True))
            # Inserted in one order, so that two workers wait for each other and never cross.
            fresh = [part[uid] for uid in sorted(new)]
            upsert_pods(cluster.pk, fresh, names, only_new=True)
            # Those inserted just now are joined too: another worker may have been first.
            joined, changed = _join(cluster, part, names, now)
            made = hull(changed_span(None, pod.record) for pod in fresh)
            note_revision(cluster.pk, hull((made, changed)))
        ids.update(joined)
    return ids


def _rows(cluster: Cluster, uids: Sequence[str]) -> QuerySet[Pod]:
    return Pod.objects.filter(cluster=cluster, uid__in=uids).order_by("uid", "pk")


def _join(
    cluster: Cluster, found: Mapping[str, TrackedPod], names: NameRegistry, now: datetime
) -> tuple[dict[str, int], TimeSpan | None]:
    """Join the rows there are with what was found, under lock, and write those that change.

    Returns uid → row id, and the time of which something else is known now.
    """
    locked = _locked(_rows(cluster, list(found)))
    known = {row.uid: tracked(row) for row in locked}
    watched = last_watched(cluster.pk)
    joined = {uid: _joined(pod, found[uid], watched) for uid, pod in known.items()}
    changed = {uid: pod for uid, pod in joined.items() if pod != known[uid]}
    # That a pod was seen again later changes nothing that was derived from it.
    revised = {
        uid
        for uid, pod in changed.items()
        if _without_last_seen(pod) != _without_last_seen(known[uid])
    }
    upsert_pods(cluster.pk, [pod for uid, pod in changed.items() if uid not in revised], names)
    upsert_pods(cluster.pk, [joined[uid] for uid in sorted(revised)], names, revised_at=now)
    spans = (changed_span(known[uid].record, pod.record) for uid, pod in changed.items())
    return {row.uid: row.pk for row in locked}, hull(spans)


def end_unlisted(cluster_id: int, names: NameRegistry) -> int:
    """End the pods of series that the watch, which has listed all there are, has not shown.

    They went between what series showed last and the list; series that are read later may tell
    when. Return how many did. One query where there are none.
    """
    rows = Pod.objects.filter(
        cluster_id=cluster_id, source=PodSource.METRICS.value, ended_at__isnull=True
    )
    if not rows.exists():
        return 0
    with transaction.atomic():
        watched = last_watched(cluster_id)
        pods = [tracked(row) for row in _locked(rows.order_by("uid", "pk"))]
        ended = [_unlisted(pod, watched) for pod in pods]
        gone = [(was, pod) for was, pod in zip(pods, ended, strict=True) if pod.lost]
        upsert_pods(cluster_id, [pod for _, pod in gone], names)
        note_revision(cluster_id, hull(changed_span(was.record, pod.record) for was, pod in gone))
    return len(gone)


def _locked(rows: QuerySet[Pod]) -> list[Pod]:
    related = rows.select_related("workload__namespace", "tier", "gpu_model")
    return list(related.select_for_update(of=("self",)))


def _without_last_seen(pod: TrackedPod) -> TrackedPod:
    """Return what is told of a pod, whenever it was seen last."""
    return replace(pod, record=replace(pod.record, last_seen=None))


def _joined(known: TrackedPod, found: TrackedPod, watched: float | None) -> TrackedPod:
    if known.record.source is PodSource.API:
        return _with_end(known, found.record) if known.lost else known
    joined = TrackedPod(
        merged_inferred(_without_end(known), found.record),
        max(known.assigned, found.assigned, key=_certainty),
        lost=False,
    )
    return _unlisted(joined, watched)


def _unlisted(pod: TrackedPod, watched: float | None) -> TrackedPod:
    """Return a pod of series as lost where a watch was there after it was last seen.

    A watch takes over the pods that it sees: this one was gone by then.
    """
    record = pod.record
    if record.ended is not None or watched is None or watched <= last_seen(record).at:
        return pod
    times = (last_seen(record).at, record.created, record.bound, record.started)
    deleted = max(t for t in times if t is not None)
    ended = replace(
        record,
        deleted=deleted,
        runs=closed_runs(record.runs, deleted),
        end_reason=record.end_reason or LOST,
    )
    return replace(pod, record=ended, lost=True)


def _without_end(known: TrackedPod) -> PodRecord:
    """Return a pod without the end that was assumed for it during a gap of the watch."""
    if not known.lost:
        return known.record
    reason = known.record.end_reason
    return replace(reopened(known.record), end_reason="" if reason == LOST else reason)


def _with_end(known: TrackedPod, found: PodRecord) -> TrackedPod:
    """Give a lost pod the end that the series show; its runs reach to it where one was open.

    It was last seen alive, so an earlier end is no news; that they saw it later is. What the API
    saw begin to run had not finished before, whatever an answer that lacks series makes of it.
    """
    record = known.record
    began = [start for start, _ in record.runs]
    deleted = latest(record.deleted, found.deleted, last_seen(found).at, *began)
    estimated, finished = finished_inferred(record, found)
    if finished is not None:
        finished = latest(finished, *began)
    ended = deleted if finished is None else finished
    joined = replace(
        record,
        deleted=deleted,
        finished=finished,
        estimated=frozenset({"finished"} if estimated else ()),
        # Never dropped, even when of no length: a later answer may know of a later end.
        runs=tuple((a, ended if b is None else b) for a, b in reopened(record).runs),
        end_reason=(found.end_reason if record.end_reason == LOST else "") or record.end_reason,
    )
    return replace(known, record=joined)


def _certainty(assigned: TierAssignment | None) -> tuple[bool, bool, str, str, float]:
    """Order what several hours say a pod counts as: known over unknown, else any fixed order."""
    if assigned is None:
        return (False, False, "", "", 0.0)
    model = assigned.gpu_model
    return (
        model not in {None, UNKNOWN_MODEL},
        assigned.tier not in BUILTIN_TIERS,
        assigned.tier,
        "" if model is None else model_key(model),
        assigned.gpu_equivalents,
    )
