"""The pod ledger as waiting needs it: lives of pods, and who holds GPUs."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType
from typing import Any

import msgspec
from django.db.models import Q, TextField
from django.db.models.functions import Cast

from apps.clusters.domain.devices.resource_claims import CLAIM_KIND
from apps.clusters.domain.pods.ledger import PodSource
from apps.clusters.models import Pod
from apps.clusters.models.sql import UnixSeconds
from apps.clusters.services import chunks
from apps.pending.domain.causes import Cause
from apps.pending.domain.episodes import PodLife, exact
from apps.pending.domain.placement.refusals import rejection
from apps.pending.domain.state import BoundPod

_GONE = frozenset({"", "Deleted", "Lost", "Completed"})
"""Reasons of an end that say that somebody took the pod away, not that a kubelet refused it."""
PREEMPTED = "PreemptionByScheduler"

_TIMES = {
    f"{name}_seconds": UnixSeconds(f"{name}_at")
    for name in ("created", "bound", "started", "ended")
}
_TEXTS = {
    "requests_text": Cast("requests", TextField()),
    "claims_text": Cast("claims", TextField()),
}
_COLUMNS = (
    *("pk", "uid", "name", "workload_id", "workload__kind", "workload__name"),
    *("workload__namespace__name", "node_name", "resource", "units", "priority_class"),
    *("end_reason", "source", "tier_id", "gpu_equivalents", "unschedulable"),
    *_TIMES,
    *_TEXTS,
)
_names = msgspec.json.Decoder(tuple[str, ...]).decode


@dataclass(frozen=True, slots=True)
class LedgerPod:
    """A pod's row: its names, what it counts as, and its times in Unix seconds."""

    id: int
    uid: str
    name: str
    workload_id: int
    owner_kind: str
    owner: str
    namespace: str
    node: str
    resource: str
    units: float
    priority_class: str
    end_reason: str
    source: str
    tier_id: int | None
    gpu_equivalents: float
    unschedulable: bool
    created: float
    bound: float | None
    started: float | None
    ended: float | None
    requests: Mapping[str, float]
    claims: tuple[str, ...]

    @property
    def is_claim(self) -> bool:
        """Say whether the row stands for an allocated ResourceClaim, which is no pod."""
        return self.owner_kind == CLAIM_KIND

    @property
    def inferred(self) -> bool:
        return self.source == PodSource.METRICS.value

    @property
    def is_refused(self) -> bool:
        """Say whether it was bound and ended without a run, and nobody took it away."""
        return (
            self.bound is not None
            and self.started is None
            and self.end_reason not in _GONE
            and self.end_reason != PREEMPTED
        )

    @property
    def rejection(self) -> Cause | None:
        """Return why a kubelet refused it, as its end says; None where that says nothing."""
        return rejection(self.end_reason, "") if self.is_refused else None

    def life(self, *, bound: float | None = None) -> PodLife:
        """Return its times; `bound` is what was seen of it where the ledger knows none yet."""
        known = bound if self.bound is None else self.bound
        return PodLife(
            self.created, known, self.started, self.ended, self.is_refused, self.unschedulable
        )


def ledger_pods(cluster_id: int, where: Q) -> list[LedgerPod]:
    """Return the rows of a cluster that meet a condition, by id. One query.

    Times are in whole microseconds.
    """
    rows = Pod.objects.filter(where, cluster_id=cluster_id).order_by("pk")
    found = rows.annotate(**_TIMES, **_TEXTS).values_list(*_COLUMNS)
    return [_pod(values) for values in found.iterator()]


def pods_of(cluster_id: int, uids: Iterable[str]) -> dict[str, LedgerPod]:
    """Return uid → row of those pods that the ledger has. One query for every 500."""
    found: dict[str, LedgerPod] = {}
    for part in chunks(sorted(set(uids))):
        found.update((pod.uid, pod) for pod in ledger_pods(cluster_id, Q(uid__in=list(part))))
    return found


def holders(pods: Sequence[LedgerPod]) -> list[BoundPod]:
    """Return who is bound and not over; a claim itself while no pod that is there uses it."""
    used = {claim for pod in pods if pod.ended is None for claim in pod.claims}
    return [
        BoundPod(
            uid=pod.uid,
            namespace=pod.namespace,
            name=pod.name,
            owner_kind=pod.owner_kind,
            owner=pod.owner,
            node=pod.node,
            requests=pod.requests,
            priority_class=pod.priority_class,
            running=pod.started is not None,
            bound=pod.bound,
        )
        for pod in pods
        if pod.bound is not None and pod.ended is None and not (pod.is_claim and pod.uid in used)
    ]


@lru_cache(maxsize=4096)
def amounts(text: str) -> Mapping[str, float]:
    """Return resource → units of a column's text."""
    return MappingProxyType(msgspec.json.decode(text, type=dict[str, float]))


def _pod(values: Sequence[Any]) -> LedgerPod:
    *plain, created, bound, started, ended, requests, claims = values
    times = (None if at is None else exact(at) for at in (created, bound, started, ended))
    fields = [*plain, *times, amounts(requests), _names(claims)]
    return LedgerPod(*fields)
