"""Queues and workloads of Kueue, by hand."""

from typing import Any

from apps.accounts.domain.structs import replace
from apps.clusters.domain.observed.objects import (
    ClusterQueueSnapshot,
    Condition,
    FlavorQuota,
    FlavorSnapshot,
    FlavorUse,
    LocalQueueSnapshot,
    ObservedKind,
    ObservedObject,
    PodSet,
    WorkloadSnapshot,
)
from apps.pending.domain.diagnosis import ClusterState, Suggestion
from tests.pending.cluster_states import AT, GPU, seen

WAITING = Condition("QuotaReserved", "False", "WaitingForQuota", "insufficient unused quota")


def queue(
    name: str,
    nominal: float,
    used: float = 0,
    *,
    borrowing: float | None = None,
    lending: float | None = None,
    more: tuple[FlavorQuota, ...] = (),
    **fields: Any,
) -> ObservedObject:
    quotas = (FlavorQuota("h100", GPU, nominal, borrowing, lending), *more)
    body = ClusterQueueSnapshot(quotas=quotas, reserved=(FlavorUse("h100", GPU, used),), **fields)
    return seen(ObservedKind.CLUSTER_QUEUE, name, body, namespace="")


def local(name: str = "main", to: str = "cq", **fields: Any) -> ObservedObject:
    return seen(ObservedKind.LOCAL_QUEUE, name, LocalQueueSnapshot(cluster_queue=to, **fields))


def workload(
    name: str, gpus: float = 8, *conditions: Condition, count: int = 1, **fields: Any
) -> ObservedObject:
    values: dict[str, Any] = {"created": AT - 900, "queue": "main", "owner_kind": "Job"}
    sets = (PodSet("main", count, {GPU: gpus, "cpu": 1.0}),)
    values |= {"owner": name, "pod_sets": sets, "conditions": conditions or (WAITING,)}
    return seen(ObservedKind.KUEUE_WORKLOAD, name, WorkloadSnapshot(**(values | fields)))


def raised(one: Suggestion, state: ClusterState) -> ClusterState:
    """Return the state after a nominal quota was raised."""
    change = one.change
    by_kind = dict(state.objects)
    changed = []
    for each in by_kind[ObservedKind.CLUSTER_QUEUE]:
        assert isinstance(each.body, ClusterQueueSnapshot)
        quotas = tuple(
            FlavorQuota(q.flavor, q.resource, change["to"], q.borrowing_limit, q.lending_limit)
            if (each.name, q.flavor, q.resource)
            == (change["cluster_queue"], change["flavor"], change["resource"])
            else q
            for q in each.body.quotas
        )
        body = replace(each.body, quotas=quotas)
        changed.append(seen(ObservedKind.CLUSTER_QUEUE, each.name, body, namespace=""))
    return ClusterState(
        state.at, by_kind | {ObservedKind.CLUSTER_QUEUE: changed}, is_gpu=state.is_gpu
    )


POOL = {"pool": "h100"}


def flavor(name: str = "h100", **fields: Any) -> ObservedObject:
    values: dict[str, Any] = {"node_labels": POOL}
    return seen(ObservedKind.RESOURCE_FLAVOR, name, FlavorSnapshot(**(values | fields)), "")
