"""Reading the pod ledger back as what the domain speaks of."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django.db.models import Q

from apps.clusters.domain.ledger import NodeSpell, PodRecord, Source
from apps.clusters.domain.spans import Span, clip, seconds, union
from apps.clusters.domain.window import Window
from apps.clusters.models import Cluster, Pod, WatchSpan
from apps.clusters.models import NodeSpell as NodeSpellRow
from apps.clusters.services.ledger_rows import RECORD_COLUMNS, record_of, spell_of


@dataclass(frozen=True, slots=True)
class RecordedPod:
    """A pod's row: its record, the ids of what it belongs to, and what it counts as.

    `tier` and `gpu_model` are None while they are not known; `gpu_equivalents` is of all its
    units together. `lost`: it went while nobody watched, its end is when it was last seen.
    """

    id: int
    workload_id: int
    namespace_id: int
    record: PodRecord
    tier: str | None
    gpu_model: str | None
    gpu_equivalents: float
    lost: bool


def recorded_pods(cluster: Cluster, window: Window) -> list[PodRecord]:
    """Return the pods that lived in the window as the API showed them, by uid. One query."""
    return [row.record for row in recorded_pod_rows(cluster, window)]


def recorded_pod_rows(
    cluster: Cluster, window: Window, *, source: Source | None = Source.API
) -> list[RecordedPod]:
    """Return the rows of the pods that lived in the window, by uid. One query.

    `source` picks where they were learnt; None takes both. A pod learnt from series has the end
    that the last collected hour showed, so only the API's rows say that a pod is still there.
    """
    rows = Pod.objects.filter(cluster=cluster, created_at__lt=window.end).filter(
        Q(ended_at__isnull=True) | Q(ended_at__gt=window.start)
    )
    if source is not None:
        rows = rows.filter(source=source.value)
    found = rows.order_by("uid", "pk").values_list(*_COLUMNS, *RECORD_COLUMNS)
    return [_recorded(values) for values in found.iterator()]


def recorded_spells(cluster: Cluster, window: Window) -> list[NodeSpell]:
    """Return the API's node spells, cut to the window, by node and start. One query.

    A spell that lasts is taken to last to the end of the window: `watched_spans` says how much
    of it anybody can vouch for.
    """
    rows = NodeSpellRow.objects.filter(node__cluster=cluster, start__lt=window.end).filter(
        Q(end__isnull=True) | Q(end__gt=window.start)
    )
    return [
        spell_of(row, window.start_seconds, window.end_seconds)
        for row in rows.select_related("node").order_by("node__name", "start", "pk")
    ]


def watched_spans(cluster: Cluster, window: Window) -> tuple[Span, ...]:
    """Return the disjoint spans of the window in which every change was seen. One query."""
    rows = WatchSpan.objects.filter(
        cluster=cluster, start__lt=window.end, end__gt=window.start
    ).order_by("start", "pk")
    spans = ((row.start.timestamp(), row.end.timestamp()) for row in rows)
    return clip(union(spans), window.start_seconds, window.end_seconds)


def watched_share(cluster: Cluster, window: Window) -> float:
    """Return which fraction of the window, 0..1, was watched. One query."""
    return seconds(watched_spans(cluster, window)) / window.seconds


_COLUMNS = (
    *("pk", "workload_id", "workload__namespace_id", "tier__name", "gpu_model__name"),
    *("gpu_equivalents", "lost"),
)


def _recorded(values: Sequence[Any]) -> RecordedPod:
    pk, workload, namespace, tier, model, equivalents, lost = values[: len(_COLUMNS)]
    return RecordedPod(
        id=pk,
        workload_id=workload,
        namespace_id=namespace,
        record=record_of(values[len(_COLUMNS) :]),
        tier=tier,
        gpu_model=model,
        gpu_equivalents=equivalents,
        lost=lost,
    )
