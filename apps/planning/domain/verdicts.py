"""Whether work starts at once, later or never, and the limits that it counts in."""

from collections.abc import Iterator, Mapping
from enum import StrEnum

from msgspec import Struct

from apps.clusters.domain.observed.objects import (
    ObservedKind,
    QuotaSnapshot,
)
from apps.pending.domain.cluster_index import bodies
from apps.pending.domain.diagnosis import Cause, ClusterState, Diagnosis
from apps.pending.domain.placement.fits import EPSILON
from apps.pending.domain.placement.flavor_nodes import FlavorNodes, PodShape
from apps.pending.domain.placement.messages import counts_all
from apps.pending.domain.placement.node_search import NOT_READY
from apps.pending.domain.planned_pods import PlannedPods, charge_of
from apps.pending.domain.pods import NO_SCHEDULER
from apps.pending.domain.queues import kai
from apps.pending.domain.queues.cluster_queues import queues_of
from apps.pending.domain.queues.kueue import EXCEEDS, MISCONFIGURED
from apps.pending.domain.submission import (
    PlannedWork,
    kai_queues,
    of_kai,
)
from apps.quotas.domain.keys import QuotaSource
from apps.quotas.domain.limits import CAPABILITY, LIMIT, QueueLimit, own_limits


class Verdict(StrEnum):
    """Whether work starts at once, when others end, or not before something is changed."""

    STARTS = "starts"
    WAITS = "waits"
    NEVER = "never"


class QuotaTouched(Struct, frozen=True):
    """A key of a quota or queue that work counts in: what it needs, and what is left of the limit.

    `left` of a queue that may borrow can exceed what its own quota leaves; `most` is what it may
    ever have.
    """

    source: str
    namespace: str
    name: str
    key: str
    limit: float
    used: float
    left: float
    most: float
    needs: float

    @property
    def fits(self) -> bool:
        return self.needs <= self.left + EPSILON


def quotas_touched(state: ClusterState, work: PlannedWork) -> list[QuotaTouched]:
    """Return every key of quotas and queues that a work counts in, the tightest first."""
    found = [*_resource_quotas(state, work), *_queues(state, work)]
    return sorted(found, key=lambda one: (one.fits, one.left - one.needs, one.name, one.key))


def _resource_quotas(state: ClusterState, work: PlannedWork) -> Iterator[QuotaTouched]:
    for seen, quota in bodies(state.of(ObservedKind.RESOURCE_QUOTA), QuotaSnapshot):
        if seen.namespace != work.namespace or not counts_all(quota.scopes):
            continue
        for key, limit in sorted(quota.hard.items()):
            used = quota.used.get(key)
            needs = sum(_counted(key, part) for part in work.pods)
            # A key without `used` is not counted by the cluster.
            if used is not None and needs > 0:
                left = max(0.0, limit - used)
                yield QuotaTouched(
                    *("ResourceQuota", seen.namespace, seen.name, key),
                    *(limit, used, left, limit, needs),
                )


def _counted(key: str, part: PlannedPods) -> float:
    return charge_of(key, part) * part.least


def _queues(state: ClusterState, work: PlannedWork) -> Iterator[QuotaTouched]:
    if not work.queue:
        return
    needs: dict[str, float] = {}
    for part in work.pods:
        for resource, units in part.pod.requests.items():
            needs[resource] = needs.get(resource, 0.0) + units * part.least
    local = (
        one.body
        for one in state.of(ObservedKind.LOCAL_QUEUE)
        if (one.namespace, one.name) == (work.namespace, work.queue)
    )
    # Without a LocalQueue of that name, the name may be one of Volcano or KAI.
    name = next((getattr(body, "cluster_queue", "") for body in local), "")
    if of_kai(work):
        yield from _of_kai(state, work)
    elif name:
        yield from _of_kueue(state, name, needs)
    else:
        yield from _of_volcano(state, work.queue, needs)


def _of_kueue(state: ClusterState, name: str, needs: Mapping[str, float]) -> Iterator[QuotaTouched]:
    queues = queues_of(state)
    for resource, units in sorted(needs.items()):
        for room in queues.rooms(name, resource):
            yield QuotaTouched(
                *("ClusterQueue", "", name, f"{room.flavor}/{resource}"),
                *(room.nominal, room.used, max(0.0, room.free), room.most, units),
            )


def _of_volcano(
    state: ClusterState, name: str, needs: Mapping[str, float]
) -> Iterator[QuotaTouched]:
    for seen in state.of(ObservedKind.VOLCANO_QUEUE):
        for limit in own_limits(seen) if seen.name == name else ():
            units = needs.get(limit.resource, 0.0)
            if limit.part == CAPABILITY and units:
                yield _of_queue(QuotaSource.VOLCANO_QUEUE, limit, units)


def _of_kai(state: ClusterState, work: PlannedWork) -> Iterator[QuotaTouched]:
    """Yield the limits of a queue of KAI and of those above it; a quota is no limit."""
    gpus = sum(kai.counted_gpus(part.pod.requests) * part.least for part in work.pods)
    seen = {one.name: one for one in state.of(ObservedKind.KAI_QUEUE)}
    for name, _ in kai.queue_and_parents(work.queue, kai_queues(state)):
        for limit in own_limits(seen[name]):
            if limit.part == LIMIT and gpus:
                yield _of_queue(QuotaSource.KAI_QUEUE, limit, gpus)


def _of_queue(source: QuotaSource, limit: QueueLimit, needs: float) -> QuotaTouched:
    used = limit.used or 0.0
    left = max(0.0, limit.hard - used)
    return QuotaTouched(
        *(source.value, "", limit.name, limit.key), *(limit.hard, used, left, limit.hard, needs)
    )


def verdict_of(
    why: Diagnosis | None,
    part: PlannedPods,
    work: PlannedWork,
    nodes: FlavorNodes | None,
    quotas: list[QuotaTouched],
) -> Verdict:
    """Return the verdict on pods: never, where no end of other work lets them start.

    `nodes` is None where none is known.
    """
    if why is None:
        return Verdict.STARTS
    ever = nodes is None or _could_ever(part, nodes)
    match why.cause:
        # Nothing that ends changes these: the work or the cluster must be changed.
        case Cause.AFFINITY | Cause.VOLUME | Cause.CLAIM | Cause.ADMISSION:
            ever = False
        case Cause.TAINT:
            # A sick node recovers; a taint of a healthy one stays.
            ever = why.detail == NOT_READY
        case Cause.SCHEDULER:
            ever = why.detail != NO_SCHEDULER
        case Cause.QUEUE:
            ever = ever and why.detail not in (EXCEEDS, MISCONFIGURED, kai.NO_QUEUE)
            if why.detail == kai.OVER_LIMIT:
                most = min(q.most for q in quotas if q.source == QuotaSource.KAI_QUEUE)
                ever = ever and kai.counted_gpus(part.pod.requests) * part.gang <= most + EPSILON
        case Cause.QUOTA:
            ever = ever and not _beyond_limit(part, work, quotas)
        case Cause.CORDON:
            ever = True
    # A cordon is lifted and a queue resumed without a change of the work itself.
    return Verdict.WAITS if ever else Verdict.NEVER


def _beyond_limit(part: PlannedPods, work: PlannedWork, quotas: list[QuotaTouched]) -> bool:
    """Say whether one pod, or a gang as a whole, needs more than a quota ever gives."""
    for one in quotas:
        if one.source == "ResourceQuota":
            whole = sum(_counted(one.key, each) for each in work.pods)
            single = charge_of(one.key, part)
            if (whole if part.gang > 1 else single) > one.most + EPSILON:
                return True
    return False


def _could_ever(part: PlannedPods, nodes: FlavorNodes) -> bool:
    """Say whether empty nodes would hold a pod, or all of a gang at once."""
    return nodes.could_hold([PodShape(part.gang, part.pod.requests, part.pod.placement)])
