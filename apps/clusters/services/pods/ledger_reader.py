"""Reading the pod ledger back as what the domain speaks of."""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from types import MappingProxyType
from typing import Any, NamedTuple

import msgspec
from django.db.models import Q, TextField
from django.db.models.functions import Cast

from apps.clusters.domain.pods.ledger import (
    ClaimAllocationRecord,
    NodeInterval,
    Owner,
    PodRecord,
    PodSource,
)
from apps.clusters.domain.time_spans import Span, clip, union
from apps.clusters.domain.window import Window
from apps.clusters.models import Cluster, Pod, WatchCoverage
from apps.clusters.models import NodeInterval as NodeIntervalRow
from apps.clusters.models.claims import ClaimInterval
from apps.clusters.models.sql import UnixSeconds
from apps.clusters.services.pods.ledger_rows import claim_of, interval_of


class RecordedPod(NamedTuple):
    """A pod's row: its record, the ids of what it belongs to, and what it counts as.

    An allocated ResourceClaim has one too, its owner of the kind CLAIM_KIND (resource_claims): the
    pods that name the claim hold its devices, and it does while there are none.
    `tier` and `gpu_model` are None while they are not known; `gpu_equivalents` is of all its
    `units` together. `lost`: it went while nobody watched, its end is when it was last seen.
    """

    id: int
    workload_id: int
    namespace_id: int
    record: PodRecord
    tier: str | None
    gpu_model: str | None
    gpu_equivalents: float
    units: float
    lost: bool


def recorded_pod_rows(
    cluster: Cluster, window: Window, *, source: PodSource | None = PodSource.API
) -> list[RecordedPod]:
    """Return the rows of the pods that lived in the window, by uid. One query.

    `source` picks where they were learnt; None takes both. A pod learnt from series ends, at the
    latest, when they showed it last: only the API's rows say that a pod is still there.
    """
    rows = Pod.objects.filter(cluster=cluster, created_at__lt=window.end).filter(
        Q(ended_at__isnull=True) | Q(ended_at__gt=window.start)
    )
    if source is not None:
        rows = rows.filter(source=source.value)
    found = rows.order_by("uid", "pk").annotate(**_TEXTS, **_TIMES).values_list(*_COLUMNS)
    return [_recorded(values) for values in found.iterator()]


def recorded_intervals(cluster: Cluster, window: Window) -> list[NodeInterval]:
    """Return the API's node intervals, cut to the window, by node and start. One query.

    An interval that lasts is taken to last to the end of the window: `watched_spans` says how much
    of it anybody can vouch for.
    """
    rows = NodeIntervalRow.objects.filter(node__cluster=cluster, start__lt=window.end).filter(
        Q(end__isnull=True) | Q(end__gt=window.start)
    )
    return [
        interval_of(row, window.start_seconds, window.end_seconds)
        for row in rows.select_related("node").order_by("node__name", "start", "pk")
    ]


def recorded_claims(cluster: Cluster, window: Window) -> list[ClaimAllocationRecord]:
    """Return the allocations of GPUs to ResourceClaims that lasted in the window. One query.

    By uid and time, whole: `released` may be after the window, None where it lasts.
    """
    rows = ClaimInterval.objects.filter(cluster=cluster, allocated_at__lt=window.end).filter(
        Q(released_at__isnull=True) | Q(released_at__gt=window.start)
    )
    return [claim_of(row) for row in rows.order_by("uid", "allocated_at", "pk")]


def watched_spans(cluster: Cluster, window: Window) -> tuple[Span, ...]:
    """Return the disjoint spans of the window in which every change was seen. One query."""
    rows = WatchCoverage.objects.filter(
        cluster=cluster, start__lt=window.end, end__gt=window.start
    ).order_by("start", "pk")
    spans = ((row.start.timestamp(), row.end.timestamp()) for row in rows)
    return clip(union(spans), window.start_seconds, window.end_seconds)


# Texts, for most pods of a controller say the same, and what is known already is not decoded.
_TEXTS = {
    f"{name}_text": Cast(name, TextField())
    for name in ("requests", "node_selector", "runs", "claims")
}
_TIMES = {
    f"{name}_seconds": UnixSeconds(f"{name}_at")
    for name in ("created", "bound", "started", "finished", "deleted")
} | {"observed_seconds": UnixSeconds("observed_until")}
_COLUMNS = (
    *("pk", "workload_id", "workload__namespace_id", "tier__name", "gpu_model__name"),
    *("gpu_equivalents", "units", "lost", "uid", "workload__namespace__name", "name"),
    *("workload__kind", "workload__name", "node_name", "end_reason", "priority_class", "source"),
    *_TIMES,
    *_TEXTS,
)
_NONE = "[]"
_names = msgspec.json.Decoder(tuple[str, ...]).decode
_runs = msgspec.json.Decoder(tuple[tuple[float, float | None], ...]).decode


@lru_cache(maxsize=1024)
def _mapping(text: str) -> Mapping[str, Any]:
    return MappingProxyType(msgspec.json.decode(text, type=dict[str, Any]))


def _recorded(values: Sequence[Any]) -> RecordedPod:
    """Return what the values of _COLUMNS tell; a third of the work of rows with relations."""
    pk, workload, namespace_id, tier, model, equivalents, units, lost, *rest = values
    uid, namespace, name, kind, owner, node, reason, priority, source, *rest = rest
    created, bound, started, finished, deleted, observed, requests, selector, runs, claims = rest
    record = PodRecord(
        uid=uid,
        namespace=namespace,
        name=name,
        owner=Owner(kind, owner),
        requests=_mapping(requests),
        created=created,
        node=node,
        bound=bound,
        started=started,
        finished=finished,
        deleted=observed if deleted is None and finished is None else deleted,
        runs=_runs(runs),
        end_reason=reason,
        priority_class=priority,
        node_selector=_mapping(selector),
        source=PodSource(source),
        claims=() if claims == _NONE else _names(claims),
    )
    return RecordedPod(pk, workload, namespace_id, record, tier, model, equivalents, units, lost)
