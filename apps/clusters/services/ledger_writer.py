"""Writing what `watch` learnt: few queries, short transactions, the same rows when repeated."""

from collections.abc import Mapping, Sequence

from django.db import transaction

from apps.clusters.domain.ledger import Source
from apps.clusters.domain.tiers import model_key
from apps.clusters.domain.window import from_seconds
from apps.clusters.models import NodeSpell, Pod, WatchSpan
from apps.clusters.services.ledger_rows import (
    POD_FIELDS,
    SPELL_FIELDS,
    node_state_of,
    pod_record_of,
    pod_values,
    spell_values,
)
from apps.clusters.services.names import Names, chunks, workload_name
from apps.clusters.services.node_book import Spell
from apps.clusters.services.pod_book import TrackedPod
from apps.clusters.services.tier_history import Assigned

# Pods of one transaction: on SQLite nobody else writes meanwhile.
PODS_AT_ONCE = 2000


def open_spells(cluster_id: int) -> list[Spell]:
    """Return the spells of nodes that last, as far as the database knows. One query."""
    rows = NodeSpell.objects.filter(node__cluster_id=cluster_id, end__isnull=True)
    return [
        Spell(start=row.start.timestamp(), state=node_state_of(row))
        for row in rows.select_related("node").order_by("start", "pk")
    ]


def present_pods(cluster_id: int) -> dict[str, TrackedPod]:
    """Return the pods that the API last showed as being there. One query."""
    rows = Pod.objects.filter(
        cluster_id=cluster_id, deleted_at__isnull=True, source=Source.API.value
    )
    related = rows.select_related("workload__namespace", "tier", "gpu_model")
    return {row.uid: _tracked(row) for row in related.order_by("pk").iterator()}


def known_pods(cluster_id: int, uids: Sequence[str]) -> dict[str, TrackedPod]:
    """Return the rows there are of these uids. One query for each 500."""
    found = {}
    for part in chunks(uids):
        rows = Pod.objects.filter(cluster_id=cluster_id, uid__in=part)
        related = rows.select_related("workload__namespace", "tier", "gpu_model")
        found.update({row.uid: _tracked(row) for row in related.order_by("pk")})
    return found


def last_watched(cluster_id: int) -> float | None:
    """Return when anybody last watched this cluster; None if nobody ever did. One query."""
    newest = WatchSpan.objects.filter(cluster_id=cluster_id).order_by("-end", "-pk").first()
    return None if newest is None else newest.end.timestamp()


def write_pods(cluster_id: int, pods: Sequence[TrackedPod], names: Names) -> None:
    """Insert or update the rows of these pods, by (cluster, uid)."""
    for start in range(0, len(pods), PODS_AT_ONCE):
        part = pods[start : start + PODS_AT_ONCE]
        with transaction.atomic():
            Pod.objects.bulk_create(
                pod_rows(cluster_id, part, names),
                update_conflicts=True,
                unique_fields=["cluster", "uid"],
                update_fields=POD_FIELDS,
            )


def pod_rows(cluster_id: int, pods: Sequence[TrackedPod], names: Names) -> list[Pod]:
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


def write_spells(spells: Mapping[tuple[str, float], Spell], names: Names) -> None:
    """Insert or update node spells, by (node, start), in one transaction."""
    if not spells:
        return
    with transaction.atomic():
        nodes = names.nodes({name for name, _ in spells})
        rows = [
            NodeSpell(
                node_id=nodes[name],
                start=from_seconds(start),
                **spell_values(spell.state, spell.end),
            )
            for (name, start), spell in spells.items()
        ]
        NodeSpell.objects.bulk_create(
            rows,
            update_conflicts=True,
            unique_fields=["node", "start"],
            update_fields=SPELL_FIELDS,
        )


def write_spans(cluster_id: int, spans: Sequence[tuple[float, float]]) -> None:
    """Insert or extend the spans in which everything was watched, by (cluster, start)."""
    rows = [
        WatchSpan(cluster_id=cluster_id, start=from_seconds(start), end=from_seconds(end))
        for start, end in dict(spans).items()
    ]
    if rows:
        WatchSpan.objects.bulk_create(
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
