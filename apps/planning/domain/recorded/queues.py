"""Observed queues, cohorts, flavors and ResourceQuotas as quotas of a replay."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import inf

from msgspec import Struct, field

from apps.accounts.domain.structs import replace
from apps.clusters.domain.observed.objects import (
    ClusterQueueSnapshot,
    CohortSnapshot,
    FlavorSnapshot,
    LocalQueueSnapshot,
    ObservedKind,
    ObservedObject,
    QuotaSnapshot,
)
from apps.clusters.domain.observed.objects import FlavorQuota as ObservedQuota
from apps.planning.domain.cluster_replay.inputs import (
    FlavorQuota,
    FlavorTier,
    Labels,
    Reclaim,
    ReplayAssumption,
    ReplayCohort,
    ReplayNode,
    ReplayQueue,
)
from apps.planning.domain.recorded.works import LedgerPod

_REQUESTS = "requests."
_DEVICES = ".deviceclass.resource.k8s.io/devices"
_RECLAIM: Mapping[str, Reclaim] = {
    "LowerPriority": Reclaim.LOWER_PRIORITY,
    "Any": Reclaim.ANY,
}
_AT_FIRST_FLAVOR = frozenset({"Preempt", "MayStopSearch"})
"""Names of what preempts in a flavor before the next is tried, old and new."""


class RecordedQueues(Struct, frozen=True):
    """What limits work, as it was set for most of a window.

    `links` lead from (namespace, LocalQueue) to the ClusterQueue. `assumptions` tell which settings
    of queues no replay follows.
    """

    queues: tuple[ReplayQueue, ...] = ()
    cohorts: tuple[ReplayCohort, ...] = ()
    flavors: Mapping[str, Labels] = field(default_factory=dict)
    links: Mapping[tuple[str, str], str] = field(default_factory=dict)
    namespace_quotas: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    assumptions: tuple[ReplayAssumption, ...] = ()


def recorded_queues(
    seen: Iterable[ObservedObject], is_gpu: Callable[[str], bool], *, start: float, end: float
) -> RecordedQueues:
    """Return the limits on GPUs that held for most of the time from `start` to `end`.

    ResourceQuotas with scopes are left out: they limit only some pods. Of one that was changed the
    highest limit holds: what was created was let in. Of several of a namespace the lowest holds.
    """
    objects = [one for one in seen if one.first < end and (one.gone is None or one.gone > start)]
    there = _prevailing(objects, start, end)
    return RecordedQueues(
        queues=tuple(
            _queue(one.name, one.body, is_gpu)
            for one in there
            if isinstance(one.body, ClusterQueueSnapshot)
        ),
        cohorts=tuple(
            ReplayCohort(one.name, one.body.parent, _quotas(one.body.quotas, is_gpu))
            for one in there
            if isinstance(one.body, CohortSnapshot)
        ),
        flavors={
            one.name: tuple(sorted(one.body.node_labels.items()))
            for one in there
            if isinstance(one.body, FlavorSnapshot)
        },
        links={
            (one.namespace, one.name): one.body.cluster_queue
            for one in there
            if isinstance(one.body, LocalQueueSnapshot)
        },
        namespace_quotas=_namespace_quotas(objects, is_gpu),
        assumptions=_not_followed(there),
    )


def _not_followed(there: Sequence[ObservedObject]) -> tuple[ReplayAssumption, ...]:
    """Return what is assumed instead of settings of queues that replays do not know."""
    queues = [one.body for one in there if isinstance(one.body, ClusterQueueSnapshot)]
    cohorts = [one.body for one in there if isinstance(one.body, CohortSnapshot)]
    own = {queue.preemption.get("withinClusterQueue") for queue in queues}
    borrowing = {queue.preemption.get("borrowWithinCohort", "Never") for queue in queues}
    weights = {one.weight for one in queues} | {one.weight for one in cohorts}
    holds = {
        ReplayAssumption.BORROWERS_WAIT: bool(borrowing - {"Never"}),
        ReplayAssumption.EQUALS_STAY: "LowerOrNewerEqualPriority" in own,
        ReplayAssumption.FLAVORS_FIRST: any(
            queue.fungibility.get("whenCanPreempt") in _AT_FIRST_FLAVOR for queue in queues
        ),
        ReplayAssumption.NO_FAIR_SHARING: bool(weights - {None}),
    }
    return tuple(assumption for assumption, is_held in holds.items() if is_held)


def _namespace_quotas(
    seen: Iterable[ObservedObject], is_gpu: Callable[[str], bool]
) -> dict[str, dict[str, float]]:
    highest: dict[tuple[str, str, str], float] = {}
    for one in seen:
        if isinstance(one.body, QuotaSnapshot) and not one.body.scopes:
            for key, hard in one.body.hard.items():
                name = _limited(key)
                if name and is_gpu(name):
                    of = (one.namespace, name, one.uid)
                    highest[of] = max(hard, highest.get(of, 0.0))
    limits: dict[str, dict[str, float]] = defaultdict(dict)
    for (namespace, name, _), hard in sorted(highest.items()):
        # Each quota of a namespace has to let a pod in.
        limits[namespace][name] = min(hard, limits[namespace].get(name, inf))
    return dict(limits)


def _prevailing(seen: Iterable[ObservedObject], start: float, end: float) -> list[ObservedObject]:
    """Return of each object the setting that held longest; of equals the newest. By name."""
    best: dict[tuple[ObservedKind, str], tuple[float, float, ObservedObject]] = {}
    for one in seen:
        gone = end if one.gone is None else one.gone
        held = (min(end, gone) - max(start, one.first), one.first, one)
        # By uid: an object that was deleted and made anew is another one.
        key = (one.kind, one.uid)
        if key not in best or held[:2] > best[key][:2]:
            best[key] = held
    found = (one for _, _, one in best.values())
    return sorted(found, key=lambda one: (one.kind, one.namespace, one.name, one.uid))


def with_queues(
    pods: Sequence[LedgerPod], queues: RecordedQueues, nodes: Sequence[ReplayNode]
) -> list[LedgerPod]:
    """Return the pods; those that only series showed with the ClusterQueue that they must have had.

    It is the one that leads their namespace to their tier. Where two do, or where pods that a watch
    saw there came through none, they have none.
    """
    ways: dict[str, set[str]] = defaultdict(set)
    for (namespace, _), name in queues.links.items():
        ways[namespace].add(name)
    offered = _offered(queues, nodes)
    # Kueue lets pass what does not name a queue: its namespace alone tells nothing.
    plain = {(one.owner[0], one.tier) for one in pods if not one.from_series and not one.queue}

    def found(namespace: str, tier: str, resource: str) -> str:
        own = [name for name in ways.get(namespace, ()) if (resource, tier) in offered[name]]
        return own[0] if len(own) == 1 and (namespace, tier) not in plain else ""

    return [
        replace(one, queue=found(one.owner[0], one.tier, one.resource))
        if one.from_series and not one.queue
        else one
        for one in pods
    ]


def _offered(
    queues: RecordedQueues, nodes: Sequence[ReplayNode]
) -> Mapping[str, set[tuple[str, str]]]:
    """Return of each ClusterQueue the resources that it counts, each with tiers of its flavors."""
    tiers = {
        flavor: {
            device.tier
            for node in nodes
            if all(node.labels.get(key) == value for key, value in labels)
            for device in node.devices
        }
        for flavor, labels in queues.flavors.items()
    }
    found: dict[str, set[tuple[str, str]]] = defaultdict(set)
    for queue in queues.queues:
        for flavor, resource in queue.quotas:
            found[queue.name] |= {(resource, tier) for tier in tiers.get(flavor, ())}
    return found


def _limited(key: str) -> str:
    """Return the resource or device class that a key of a ResourceQuota limits; else empty."""
    if key.endswith(_DEVICES):
        return key.removesuffix(_DEVICES)
    return key.removeprefix(_REQUESTS) if key.startswith(_REQUESTS) else ""


def _queue(name: str, body: ClusterQueueSnapshot, is_gpu: Callable[[str], bool]) -> ReplayQueue:
    preemption = body.preemption
    return ReplayQueue(
        name=name,
        quotas=_quotas(body.quotas, is_gpu),
        cohort=body.cohort,
        weight=1.0 if body.weight is None else body.weight,
        strict=body.strategy == "StrictFIFO",
        reclaim=_RECLAIM.get(preemption.get("reclaimWithinCohort", ""), Reclaim.NEVER),
        preempts_own=preemption.get("withinClusterQueue", "Never") != "Never",
        # Unset, Kueue borrows in a flavor before it tries the next.
        next_before_borrowing=body.fungibility.get("whenCanBorrow") == "TryNextFlavor",
    )


def _quotas(
    quotas: Sequence[ObservedQuota], is_gpu: Callable[[str], bool]
) -> Mapping[FlavorTier, FlavorQuota]:
    return {
        (one.flavor, one.resource): FlavorQuota(one.nominal, one.borrowing_limit, one.lending_limit)
        for one in quotas
        if is_gpu(one.resource)
    }
