"""Rows of pods learnt from kube-state-metrics series, for all that nobody watched."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from django.db import transaction
from django.db.models import QuerySet

from apps.clusters.domain.ledger import PodRecord, Source
from apps.clusters.domain.places import Place, Places
from apps.clusters.domain.pod_history import closed_runs, merged_inferred, reopened
from apps.clusters.domain.tiers import BUILTIN_TIERS, UNKNOWN_MODEL, TierRule, model_key
from apps.clusters.models import Cluster, Pod
from apps.clusters.services.ledger_rows import POD_FIELDS, pod_record_of
from apps.clusters.services.ledger_writer import pod_rows
from apps.clusters.services.names import Names, chunks
from apps.clusters.services.pod_book import LOST, TrackedPod
from apps.clusters.services.tier_history import Assigned, assign

_AT_ONCE = 2000


def store_inferred_pods(
    cluster: Cluster,
    records: Sequence[PodRecord],
    rules: Sequence[TierRule],
    node_labels: Mapping[str, Mapping[str, str]],
) -> dict[str, int]:
    """Insert or complete the rows of pods read from series; return uid → row id of all of them.

    What the API said is never overwritten: of its pods only those lost while nobody watched get
    the end that the series show. Rows learnt from series are joined so that hours may be stored
    in any order, twice, and by several workers at once, and give the same rows
    (`merged_inferred`). `rules` are those of the hour, `node_labels` the labels by node.
    """
    names = Names(cluster.pk)
    places = Places([Place(labels) for _, labels in sorted(node_labels.items())])
    found = {
        record.uid: TrackedPod(
            replace(merged_inferred(record, record), source=Source.METRICS),
            assign(record, node_labels.get(record.node), list(rules), (), places),
        )
        for record in records
    }
    ids: dict[str, int] = {}
    for uids in chunks(sorted(found), _AT_ONCE):
        part = {uid: found[uid] for uid in uids}
        new = set(uids) - set(_rows(cluster, uids).values_list("uid", flat=True))
        fresh = [part[uid] for uid in sorted(new)]
        Pod.objects.bulk_create(pod_rows(cluster.pk, fresh, names), ignore_conflicts=True)
        # Those inserted just now are joined too: another worker may have been first.
        ids.update(_join(cluster, part, names))
    return ids


def _rows(cluster: Cluster, uids: Sequence[str]) -> QuerySet[Pod]:
    return Pod.objects.filter(cluster=cluster, uid__in=uids).order_by("uid", "pk")


def _join(cluster: Cluster, found: Mapping[str, TrackedPod], names: Names) -> dict[str, int]:
    """Join the rows there are with what was found, under lock, and write those that change."""
    with transaction.atomic():
        rows = _rows(cluster, list(found)).select_related(
            "workload__namespace", "tier", "gpu_model"
        )
        locked = list(rows.select_for_update(of=("self",)))
        changed = []
        for row in locked:
            known = TrackedPod(pod_record_of(row), _assigned(row), row.lost)
            joined = _joined(known, found[row.uid])
            if joined != known:
                changed.append(joined)
        if changed:
            Pod.objects.bulk_create(
                pod_rows(cluster.pk, changed, names),
                update_conflicts=True,
                unique_fields=["cluster", "uid"],
                update_fields=POD_FIELDS,
            )
    return {row.uid: row.pk for row in locked}


def _joined(known: TrackedPod, found: TrackedPod) -> TrackedPod:
    if known.record.source is Source.API:
        return _with_end(known, found.record) if known.lost else known
    return TrackedPod(
        merged_inferred(_without_end(known), found.record),
        max(known.assigned, found.assigned, key=_certainty),
        lost=False,
    )


def _without_end(known: TrackedPod) -> PodRecord:
    """Return a pod without the end that was put to it when its cluster was let go."""
    if not known.lost:
        return known.record
    reason = known.record.end_reason
    return replace(reopened(known.record), end_reason="" if reason == LOST else reason)


def _with_end(known: TrackedPod, found: PodRecord) -> TrackedPod:
    """Give a lost pod the end that the series show; its runs reach to it where one was open.

    It was last seen alive, so an earlier end is no news.
    """
    record = known.record
    deleted = _latest(record.deleted, found.deleted)
    finished = _latest(record.finished, found.finished)
    joined = replace(
        record,
        deleted=deleted,
        finished=finished,
        runs=closed_runs(reopened(record).runs, deleted if finished is None else finished),
        end_reason=(found.end_reason if record.end_reason == LOST else "") or record.end_reason,
    )
    return replace(known, record=joined)


def _latest(one: float | None, other: float | None) -> float | None:
    return max((t for t in (one, other) if t is not None), default=None)


def _certainty(assigned: Assigned | None) -> tuple[bool, bool, str, str, float]:
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


def _assigned(row: Pod) -> Assigned | None:
    if row.tier is None:
        return None
    model = None if row.gpu_model is None else row.gpu_model.name
    return Assigned(row.tier.name, model, row.gpu_equivalents)
