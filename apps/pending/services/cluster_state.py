"""The state of a cluster at one moment, read from the observed objects and the pod ledger."""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from types import MappingProxyType
from typing import Any

import msgspec
from django.db.models import Q, TextField
from django.db.models.functions import Cast
from msgspec import Struct

from apps.accounts.domain.structs import replace
from apps.clusters.domain.devices.resource_claims import CLAIM_KIND
from apps.clusters.domain.observed.objects import (
    CONTROLLERS,
    OF_PLACES,
    POD_GROUPS,
    ObservedKind,
    ObservedObject,
    PodSnapshot,
)
from apps.clusters.domain.pods.ledger import PodSource
from apps.clusters.domain.resources import is_gpu, names_gpus
from apps.clusters.models import Pod
from apps.clusters.services import TierHistory, chunks, observed_objects
from apps.pending.domain.diagnosis import BoundPod, Cause, ClusterState
from apps.pending.domain.episodes import PodLife, exact
from apps.pending.domain.placement.messages import rejection
from gpuportal.database_functions import UnixSeconds

_GONE = frozenset({"", "Deleted", "Lost", "Completed"})
"""Reasons of an end that say that somebody took the pod away, not that a kubelet refused it."""
PREEMPTED = "PreemptionByScheduler"

_LEDGER_TIMES = {
    f"{name}_seconds": UnixSeconds(f"{name}_at")
    for name in ("created", "bound", "started", "ended")
}
# Read as text: many pods have equal requests, and `amounts` decodes each text once.
_TEXTS = {
    "requests_text": Cast("requests", TextField()),
    "claims_text": Cast("claims", TextField()),
}
_LEDGER_COLUMNS = (
    *("pk", "uid", "name", "workload_id", "workload__kind", "workload__name"),
    *("workload__namespace__name", "node_name", "resource", "units", "priority_class"),
    *("end_reason", "source", "tier_id", "gpu_equivalents", "unschedulable"),
    *_LEDGER_TIMES,
    *_TEXTS,
)
_HOLDER_COLUMNS = (
    *("uid", "workload__namespace__name", "name", "workload__kind", "workload__name"),
    *("node_name", "priority_class", "bound", "started", "requests_text", "claims_text"),
)
_NO_NAMES = "[]"
_names = msgspec.json.Decoder(tuple[str, ...]).decode
_EXPLAINING = [kind for kind in ObservedKind if kind not in OF_PLACES]
_WAITING_KINDS = frozenset(
    {
        ObservedKind.POD,
        *CONTROLLERS,
        *POD_GROUPS,
        ObservedKind.KUEUE_WORKLOAD,
        ObservedKind.RESOURCE_CLAIM,
    }
)


class LedgerPod(Struct, frozen=True):
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
        """Say whether it was bound and ended without a run, and was not deleted."""
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
    found = rows.annotate(**_LEDGER_TIMES, **_TEXTS).values_list(*_LEDGER_COLUMNS)
    return [_ledger_pod(values) for values in found.iterator()]


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
            *(pod.uid, pod.namespace, pod.name, pod.owner_kind, pod.owner, pod.node),
            *(pod.requests, pod.priority_class),
            # Not read of the rows: `Gangs` finds members without a group by their owner.
            group="",
            running=pod.started is not None,
            bound=pod.bound,
        )
        for pod in pods
        # A claim and the pods that use it hold the same devices: they are counted once.
        if pod.bound is not None and pod.ended is None and not (pod.is_claim and pod.uid in used)
    ]


@lru_cache(maxsize=4096)
def amounts(text: str) -> Mapping[str, float]:
    """Return resource → units of a column's text."""
    # Read-only, since pods with equal requests share the one that is cached.
    return MappingProxyType(msgspec.json.decode(text, type=dict[str, float]))


def _ledger_pod(values: Sequence[Any]) -> LedgerPod:
    *plain, created, bound, started, ended, requests, claims = values
    times = (None if at is None else exact(at) for at in (created, bound, started, ended))
    fields = [*plain, *times, amounts(requests), _names(claims)]
    return LedgerPod(*fields)


def read_state(
    cluster_id: int,
    pods: Sequence[LedgerPod],
    *,
    now: datetime,
    gone_since: datetime,
    catalog: TierHistory,
) -> ClusterState:
    """Return the state at `now`; `pods` are the ledger's rows of those there. One query."""
    there: dict[ObservedKind, list[ObservedObject]] = defaultdict(list)
    gone = []
    for one in observed_objects(cluster_id, _EXPLAINING, gone_since=gone_since):
        if one.gone is None:
            there[one.kind].append(one)
        # Only what can pend: of the rest that went, nothing is explained any more.
        elif one.kind in _WAITING_KINDS:
            gone.append(one)
    return ClusterState(
        at=now.timestamp(),
        objects=there,
        holders=holders(pods),
        gone=gone,
        is_gpu=_gpu_finder(catalog),
    )


def current_state(cluster_id: int, *, now: datetime, catalog: TierHistory) -> ClusterState:
    """Return what was seen of a cluster last. Two queries."""
    # Gone objects only explain pending work that has ended.
    state = read_state(cluster_id, (), now=now, gone_since=now, catalog=catalog)
    return replace(state, holders=_bound_pods(cluster_id))


def _bound_pods(cluster_id: int) -> list[BoundPod]:
    """Return who is bound and not over, as `holders` does of whole rows. One query."""
    # Of 20,000 pods whole rows take twice as long, and a reader needs the answer now.
    rows = Pod.objects.filter(cluster_id=cluster_id, ended_at__isnull=True, bound_at__isnull=False)
    times = {name: UnixSeconds(f"{name}_at") for name in ("bound", "started")}
    timed = rows.order_by("pk").annotate(**times, **_TEXTS)
    found = list(timed.values_list(*_HOLDER_COLUMNS))
    used = {claim for row in found if row[-1] != _NO_NAMES for claim in _names(row[-1])}
    return [
        BoundPod(
            *(uid, namespace, name, kind, owner, node, amounts(requests), priority, ""),
            *(started is not None, exact(bound)),
        )
        for uid, namespace, name, kind, owner, node, priority, bound, started, requests, _ in found
        if kind != CLAIM_KIND or uid not in used
    ]


def came_and_went(state: ClusterState, known: Collection[str]) -> list[ObservedObject]:
    """Return pods that went, last seen unbound, which are not among the `known` uids."""
    return [
        one
        for one in state.gone
        if isinstance(one.body, PodSnapshot) and one.body.bound is None and one.uid not in known
    ]


def _gpu_finder(catalog: TierHistory) -> Callable[[str], bool]:
    resources, classes = catalog.resources, catalog.device_classes
    known: dict[str, bool] = {}

    def is_one_of_gpus(name: str) -> bool:
        found = known.get(name)
        if found is None:
            found = is_gpu(name, resources) or names_gpus(name, classes)
            known[name] = found
        return found

    return is_one_of_gpus
