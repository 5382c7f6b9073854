"""Writing what `watch` learnt: few queries, short transactions, the same rows when repeated."""

from collections.abc import Mapping, Sequence

from django.db import transaction
from django.db.models import Q

from apps.clusters.domain.devices.resource_claims import CLAIM_KIND
from apps.clusters.domain.pods.ledger import PodSource
from apps.clusters.domain.tiers import model_key
from apps.clusters.domain.window import from_seconds
from apps.clusters.models import Cluster, Pod, WatchCoverage
from apps.clusters.services.names import NameRegistry, chunks, workload_name
from apps.clusters.services.pods.ledger_rows import POD_FIELDS, pod_record_of, pod_values
from apps.clusters.services.pods.pod_store import TrackedPod, agreed
from apps.clusters.services.tier_history import Assigned

# Pods of one transaction: on SQLite nobody else writes meanwhile.
PODS_AT_ONCE = 2000


def lock_cluster(cluster_id: int) -> None:
    """Have other writers of this cluster's rows wait until the transaction ends. One query."""
    list(Cluster.objects.filter(pk=cluster_id).order_by("pk").select_for_update(no_key=True))


def present_pods(cluster_id: int) -> list[TrackedPod]:
    """Return the pods that the API last showed as being there, no claims. One query."""
    rows = Pod.objects.filter(
        cluster_id=cluster_id, deleted_at__isnull=True, source=PodSource.API.value
    ).exclude(workload__kind=CLAIM_KIND)
    related = rows.select_related("workload__namespace", "tier", "gpu_model")
    return [_tracked(row) for row in related.order_by("pk").iterator()]


def known_pods(
    cluster_id: int, uids: Sequence[str], *, ended: bool = False
) -> dict[str, TrackedPod]:
    """Return the rows there are of these uids. One query for each 500.

    `ended` picks those that the API showed to have ended.
    """
    found = {}
    over = Q(finished_at__isnull=False) | Q(deleted_at__isnull=False)
    for part in chunks(uids):
        rows = Pod.objects.filter(cluster_id=cluster_id, uid__in=part)
        if ended:
            rows = rows.filter(over, source=PodSource.API.value)
        related = rows.select_related("workload__namespace", "tier", "gpu_model")
        found.update({row.uid: _tracked(row) for row in related.order_by("pk")})
    return found


def last_watched(cluster_id: int) -> float | None:
    """Return when anybody last watched this cluster; None if nobody ever did. One query."""
    newest = WatchCoverage.objects.filter(cluster_id=cluster_id).order_by("-end", "-pk").first()
    return None if newest is None else newest.end.timestamp()


def write_pods(cluster_id: int, pods: Sequence[TrackedPod], names: NameRegistry) -> None:
    """Insert or update the rows of these pods, by (cluster, uid).

    An end that another process has written meanwhile stays, and is put to `pods`.
    """
    for start in range(0, len(pods), PODS_AT_ONCE):
        part = pods[start : start + PODS_AT_ONCE]
        with transaction.atomic():
            _agree(cluster_id, part)
            Pod.objects.bulk_create(
                pod_rows(cluster_id, part, names),
                update_conflicts=True,
                unique_fields=["cluster", "uid"],
                update_fields=POD_FIELDS,
            )


def _agree(cluster_id: int, pods: Sequence[TrackedPod]) -> None:
    """Join pods with the ends in the database. One writer of a cluster's pods at a time."""
    lock_cluster(cluster_id)
    ended = known_pods(cluster_id, [pod.record.uid for pod in pods], ended=True)
    for pod in pods:
        known = ended.get(pod.record.uid)
        if known is not None:
            joined = agreed(known, pod)
            pod.record, pod.assigned, pod.lost = joined.record, joined.assigned, joined.lost


def pod_rows(cluster_id: int, pods: Sequence[TrackedPod], names: NameRegistry) -> list[Pod]:
    """Return unsaved rows of pods; makes the workloads, namespaces and models they need."""
    workloads = names.workloads({workload_name(pod.record) for pod in pods})
    models = names.models(
        {p.assigned.gpu_model for p in pods if p.assigned and p.assigned.gpu_model}
    )
    tiers = names.tiers({pod.assigned.tier for pod in pods if pod.assigned})
    return [
        Pod(
            cluster_id=cluster_id,
            uid=pod.record.uid,
            workload_id=workloads[workload_name(pod.record)],
            lost=pod.lost,
            **pod_values(pod.record),
            **_assigned_values(pod.assigned, tiers, models),
        )
        for pod in pods
    ]


def write_spans(cluster_id: int, spans: Sequence[tuple[float, float]]) -> None:
    """Insert or extend the spans in which everything was watched, by (cluster, start)."""
    rows = [
        WatchCoverage(cluster_id=cluster_id, start=from_seconds(start), end=from_seconds(end))
        for start, end in dict(spans).items()
    ]
    if rows:
        WatchCoverage.objects.bulk_create(
            rows, update_conflicts=True, unique_fields=["cluster", "start"], update_fields=["end"]
        )


def _assigned_values(
    assigned: Assigned | None, tiers: Mapping[str, int], models: Mapping[str, int]
) -> dict[str, object]:
    if assigned is None:
        return {}
    model = assigned.gpu_model
    return {
        "tier_id": tiers.get(assigned.tier),
        "gpu_model_id": None if model is None else models[model_key(model)],
        "gpu_equivalents": assigned.gpu_equivalents,
    }


def _tracked(row: Pod) -> TrackedPod:
    assigned = None
    if row.tier is not None:
        model = None if row.gpu_model is None else row.gpu_model.name
        assigned = Assigned(row.tier.name, model, row.gpu_equivalents)
    return TrackedPod(record=pod_record_of(row), assigned=assigned, lost=row.lost)
