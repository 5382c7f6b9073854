"""The pending items of a cluster and their causes, the GPUs of each counted once.

Pods count what they ask for themselves. A Workload, a PodGroup or a controller counts only the
share of its GPUs for which there is no pod yet; a claim counts nothing, its pod does.
"""

from collections.abc import Iterable, Mapping
from functools import partial

from msgspec.structs import replace

from apps.clusters.domain.observed.objects import (
    ClaimSnapshot,
    ControllerSnapshot,
    ObservedKind,
    ObservedObject,
    PodSnapshot,
)
from apps.pending.domain.cluster_index import ClusterIndex, Owner, bodies
from apps.pending.domain.diagnosis import (
    BoundPod,
    Cause,
    ClusterState,
    Counts,
    Diagnosis,
    PendingItem,
    says,
)
from apps.pending.domain.placement.fits import EPSILON
from apps.pending.domain.placement.messages import BlockedControllers
from apps.pending.domain.placement.unschedulable import (
    NOT_ALLOCATABLE,
    PlacementDiagnoser,
    claims_of,
)
from apps.pending.domain.pods import PodDiagnoser, selector, turned_away
from apps.pending.domain.queues.cluster_queues import QueuedWorkload, since, total, was_evicted
from apps.pending.domain.queues.gangs import Gang, Gangs
from apps.pending.domain.queues.kueue import KueueQueues

_NOTHING = Counts.NOTHING


def diagnose_cluster(state: ClusterState) -> list[PendingItem]:
    """Return all pending items of a cluster, by namespace, kind and name. Never raises."""
    index = ClusterIndex(state)
    claims = claims_of(index)
    placer = PlacementDiagnoser(index, claims)
    kueue, gangs = KueueQueues(index, placer), Gangs(index, placer)
    queued = [(one, kueue.why(one)) for one in kueue.waiting]
    waiting_gangs = [(one, gangs.why(one)) for one in gangs.waiting]
    flavors = {one.seen.uid: kueue.node_labels(one) for one in kueue.waiting}
    pods = PodDiagnoser(index, placer, claims, queued, flavors, waiting_gangs)
    found = pods.items()
    by_owner, selectors = _pods_by_owner(index), _selectors(index)
    workloads = [
        w
        for one, why in queued
        if (w := _workload(index, one, why, by_owner, _wanted(one, kueue, selectors)))
    ]
    stood_for = {(w.namespace, w.owner_kind, w.owner) for w in workloads}
    groups = [_gang(gangs, one, why, stood_for) for one, why in waiting_gangs]
    counted = {
        (w.namespace, w.owner_kind, w.owner)
        for w in (*workloads, *groups)
        if w.counts is not _NOTHING
    }
    # This order decides who counts: Workload, then PodGroup, then controller. Each GPU counts once.
    refused = list(_refused(index, stood_for | counted, counted))
    away = turned_away(index, frozenset(w.uid for w in refused))
    everything = [*found, *workloads, *groups, *refused, *away, *_claims(index, found)]
    return sorted(everything, key=lambda w: (w.namespace, w.kind, w.name, w.uid))


def _pods_by_owner(index: ClusterIndex) -> dict[Owner, list[PodSnapshot]]:
    """Return all pods but failed ones by top controller, and by group as kind ""."""
    found: dict[Owner, list[PodSnapshot]] = {}
    for seen, pod in index.pods:
        # Failed pods stay behind and make nothing up for pods that are missing.
        if pod.phase == "Failed":
            continue
        found.setdefault((seen.namespace, pod.owner_kind, pod.owner), []).append(pod)
        if pod.group:
            found.setdefault((seen.namespace, "", pod.group), []).append(pod)
    return found


def _counted(
    index: ClusterIndex, requests: Mapping[str, float], pods: Iterable[PodSnapshot | BoundPod]
) -> tuple[Counts, float]:
    """Return what an item adds beyond its pods: as what, and which share of its requests."""
    there: dict[str, float] = {}
    for pod in pods:
        for resource, units in index.gpus(pod.requests).items():
            there[resource] = there.get(resource, 0.0) + units
    whole = sum(requests.values())
    # By resource: too many pods of one resource do not make up for missing ones of another.
    left = sum(max(0.0, units - there.get(r, 0.0)) for r, units in requests.items())
    share = left / whole if whole else 0.0
    return (Counts.SUPPRESSED, share) if share > EPSILON else (_NOTHING, 0.0)


def _item(seen: ObservedObject, owner_kind: str, owner: str) -> "partial[PendingItem]":
    """Return an observed object as pending: why, since when and for what is to be added."""
    return partial(
        PendingItem,
        kind=seen.kind.short,
        uid=seen.uid,
        namespace=seen.namespace,
        name=seen.name,
        owner_kind=owner_kind,
        owner=owner,
    )


def _workload(
    index: ClusterIndex,
    one: QueuedWorkload,
    why: Diagnosis,
    by_owner: Mapping[Owner, list[PodSnapshot]],
    node_selector: Mapping[str, str],
) -> PendingItem | None:
    """Return a Workload that is pending in a queue for GPUs, as what it counts beyond its pods.

    A Workload without GPUs of its own has a place in the queue all the same; it counts nothing.
    """
    requests = index.gpus(total(one.body))
    if not requests and not one.of_gpus:
        return None
    seen, body = one.seen, one.body
    # A group of plain pods has a Workload of its name; that of a controller names the controller.
    pods = by_owner.get((seen.namespace, "", seen.name)) or by_owner.get(
        (seen.namespace, body.owner_kind, body.owner), []
    )
    counts, share = _counted(index, requests, pods)
    owner_kind, owner = (body.owner_kind, body.owner) if body.owner else ("Workload", seen.name)
    return _item(seen, owner_kind, owner)(
        since=since(body),
        requests=requests,
        counts=counts,
        diagnosis=why,
        share=share,
        node_selector=node_selector,
        queue=body.queue,
        priority=body.priority,
        again=was_evicted(body),
    )


def _selectors(index: ClusterIndex) -> dict[Owner, Mapping[str, str]]:
    """Return the node selectors of top controllers and of groups.

    One of each: where its pods have several, any of them.
    """
    found: dict[Owner, Mapping[str, str]] = {}
    for seen, pod in index.pods:
        found[seen.namespace, pod.owner_kind, pod.owner] = selector(pod.placement)
        if pod.group:
            found[seen.namespace, "", pod.group] = selector(pod.placement)
    controllers = index.controllers.values()
    return found | {_owner(seen, body): selector(body.placement) for seen, body in controllers}


def _wanted(
    one: QueuedWorkload, kueue: KueueQueues, selectors: Mapping[Owner, Mapping[str, str]]
) -> Mapping[str, str]:
    """Return the labels of the nodes that a Workload is for: its pods' and its flavor's."""
    seen, body = one.seen, one.body
    keys = ((seen.namespace, body.owner_kind, body.owner), (seen.namespace, "", seen.name))
    own = next((selectors[key] for key in keys if key in selectors), {})
    return {**kueue.node_labels(one), **own}


def _gang(gangs: Gangs, one: Gang, why: Diagnosis, stood_for: set[Owner]) -> PendingItem:
    """Return a PodGroup, as what it counts beyond its pods."""
    seen, body = one.seen, one.body
    requests = gangs.total(one)
    there: list[PodSnapshot | BoundPod] = [pod for _, pod in one.pods]
    # Bound members are in the ledger, not among the pending pods.
    there += gangs.held(one)
    counts, share = _counted(gangs.index, requests, there)
    first = one.pods[0][1] if one.pods else None
    owner_kind, owner = body.owner_kind, body.owner
    if not owner:
        kind = "PodGroup"
        owner_kind, owner = (first.owner_kind, first.owner) if first else (kind, seen.name)
        # Plain pods own themselves: then the group stands for all of them.
        owner_kind, owner = (owner_kind, owner) if owner_kind != "Pod" else (kind, seen.name)
    # A Workload of Kueue for the same controller counts its GPUs already.
    if (seen.namespace, owner_kind, owner) in stood_for:
        counts, share = _NOTHING, 0.0
    return _item(seen, owner_kind, owner)(
        since=gangs.since(one),
        requests=requests,
        counts=counts,
        diagnosis=why,
        share=share,
        node_selector=selector(first.placement) if first else {},
        queue=body.queue,
        priority=first.priority if first else 0,
    )


def _refused(
    index: ClusterIndex, stood_for: set[Owner], counted: set[Owner]
) -> Iterable[PendingItem]:
    """Yield the controllers whose pods were refused, and suspended ones without a Workload.

    Items of `stood_for` are pending under another item. Refused pods are counted here unless
    `counted` has an item that counts them.
    """
    blocked = BlockedControllers(index)
    for seen, body in index.controllers.values():
        missing = body.wanted - body.pods
        owner = _owner(seen, body)
        if body.suspended:
            # Its Workload is pending as well, and says why its queue does not admit it.
            if owner in stood_for or body.wanted <= 0:
                continue
            why = _queued_job(body) if body.queue else blocked.suspended(seen, body)
        else:
            refused = blocked.refused(seen, body)
            if refused is None:
                continue
            why = refused
        each = index.gpus(body.requests)
        counts = owner not in counted and bool(each) and missing > 0
        yield _item(seen, owner[1], owner[2])(
            since=blocked.since(seen, body),
            requests={r: units * max(missing, 0) for r, units in each.items()},
            counts=Counts.SUPPRESSED if counts else _NOTHING,
            diagnosis=why,
            share=1.0 if counts else 0.0,
            node_selector=selector(body.placement),
            queue=body.queue,
        )


def _queued_job(body: ControllerSnapshot) -> Diagnosis:
    unseen = says("workload_unseen", queue=body.queue)
    return Diagnosis(Cause.QUEUE, "suspended", sentences=(unseen,))


def _claims(index: ClusterIndex, pods: list[PendingItem]) -> Iterable[PendingItem]:
    """Yield claims that keep a pod pending; they count nothing, their pods do.

    A claim is allocated for a pod: a claim that no pod names is not pending.
    """
    by_claim: dict[tuple[str, str], PendingItem] = {}
    waiting = {w.uid: w for w in pods}
    for seen, pod in index.pods:
        if seen.uid in waiting:
            for use in pod.claims:
                by_claim.setdefault((seen.namespace, use.claim), waiting[seen.uid])
    for seen, body in bodies(index.state.of(ObservedKind.RESOURCE_CLAIM), ClaimSnapshot):
        if body.allocated is None and body.deleting is None:
            of_pod = by_claim.get((seen.namespace, seen.name))
            if of_pod is not None:
                yield _claim(index, seen, body, of_pod)


def _claim(
    index: ClusterIndex, seen: ObservedObject, body: ClaimSnapshot, pod: PendingItem
) -> PendingItem:
    requests: dict[str, float] = {}
    for one in body.requests:
        if not one.admin and index.is_gpu(one.device_class):
            # `All` devices is known only when the claim is allocated; one is the least that it can
            # be.
            units = float(one.count if one.count is not None else 1)
            requests[one.device_class] = requests.get(one.device_class, 0.0) + units
    why = of_pod = pod.diagnosis
    if of_pod.cause is not Cause.CLAIM:
        sentences = (says("its_pod_waits", requests=requests), *of_pod.sentences)
        why = replace(of_pod, cause=Cause.CLAIM, detail=NOT_ALLOCATABLE, sentences=sentences)
    return _item(seen, pod.owner_kind, pod.owner)(
        since=body.created,
        requests=requests,
        counts=_NOTHING,
        diagnosis=why,
        share=0.0,
    )


def _owner(seen: ObservedObject, body: ControllerSnapshot) -> Owner:
    """Return the top controller of a controller: itself where nothing made it."""
    if body.owner:
        return seen.namespace, body.owner_kind, body.owner
    return seen.namespace, seen.kind.short, seen.name
