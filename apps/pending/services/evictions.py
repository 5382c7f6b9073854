"""Pods that lost their GPUs to others: what they had held of them, and to whom."""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db.models import Exists, OuterRef, Q

from apps.clusters.domain.observed.objects import (
    Condition,
    EventSnapshot,
    ObservedKind,
    ObservedObject,
    WorkloadSnapshot,
)
from apps.clusters.domain.window import from_seconds
from apps.clusters.models import Pod
from apps.clusters.services import chunks, observed_objects
from apps.pending.domain.day_sums import MOST, amount
from apps.pending.models import Eviction
from apps.pending.services.cluster_state import PREEMPTED, LedgerPod, ledger_pods

_LATE = timedelta(hours=1)
_EVICTED_WITHIN_SECONDS = 900.0
"""So long after its Workload was evicted a pod may take to go."""
# The scheduler names the preemptor by its uid alone.
_BY_POD = re.compile(r"^Preempted by (?:pod|podgroup) (\S+)")
_VOLCANO_REASON = "Evict"
_RECLAIM = re.compile(r"reclaim", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class _Loss:
    pod: LedgerPod
    reclaimed: bool
    by: str


def note_evictions(cluster_id: int, *, now: datetime, since: datetime | None) -> int:
    """Keep the pods that were preempted or reclaimed since a time; return how many are new.

    None for `since` goes through the whole ledger. What is kept already stays as it is.
    """
    known = Eviction.objects.filter(cluster_id=cluster_id, pod_uid=OuterRef("uid"))
    where = Q(ended_at__isnull=False, bound_at__isnull=False) & Q(~Exists(known))
    if since is not None:
        where &= Q(ended_at__gte=since - _LATE)
    seen = observed_objects(
        cluster_id,
        (ObservedKind.EVENT, ObservedKind.KUEUE_WORKLOAD),
        gone_since=(since or now) - _LATE,
    )
    losses = [*_preempted(cluster_id, where, seen), *_requeued(cluster_id, where, seen)]
    rows = {loss.pod.uid: _row(cluster_id, loss) for loss in losses}
    # What was noted once stays: the event may be gone when the pod is seen again.
    Eviction.objects.bulk_create(rows.values(), ignore_conflicts=True, batch_size=1000)
    return len(rows)


def recently_evicted(cluster_id: int, now: datetime) -> dict[int, float]:
    """Return when pods of a workload last lost their GPUs, by its id; of the last hour."""
    rows = Eviction.objects.filter(cluster_id=cluster_id, at__gte=now - _LATE).order_by("at", "pk")
    return {pk: at.timestamp() for pk, at in rows.values_list("workload_id", "at")}


def _preempted(cluster_id: int, where: Q, seen: Sequence[ObservedObject]) -> Iterator[_Loss]:
    """Yield pods that the scheduler preempted, or that Volcano evicted for others."""
    events = {
        one.body.about_uid: one.body
        for one in seen
        if isinstance(one.body, EventSnapshot) and one.body.reason in {"Preempted", _VOLCANO_REASON}
    }
    evicted = sorted(uid for uid, event in events.items() if event.reason == _VOLCANO_REASON)
    pods = ledger_pods(cluster_id, where & Q(end_reason=PREEMPTED))
    for part in chunks(evicted):
        pods += ledger_pods(cluster_id, where & Q(uid__in=part))
    names = _names(cluster_id, events.values())
    for pod in pods:
        event = events.get(pod.uid)
        text = "" if event is None else event.message
        match = _BY_POD.match(text)
        by = "" if match is None else names.get(match[1], match[1])
        yield _Loss(pod, event is not None and bool(_RECLAIM.search(text)), by)


def _names(cluster_id: int, events: Iterable[EventSnapshot]) -> dict[str, str]:
    """Return the names of those pods that events name by uid."""
    uids = {match[1] for event in events if (match := _BY_POD.match(event.message))}
    columns = ("uid", "workload__namespace__name", "name")
    found = {}
    for part in chunks(sorted(uids)):
        rows = Pod.objects.filter(cluster_id=cluster_id, uid__in=part).order_by("pk")
        for uid, space, name in rows.values_list(*columns):
            found[uid] = f"{space}/{name}"[:253]
    return found


def _requeued(cluster_id: int, where: Q, seen: Sequence[ObservedObject]) -> Iterator[_Loss]:
    """Yield the pods of Kueue Workloads that were evicted for others."""
    evicted: dict[tuple[str, str, str], Condition] = {}
    for one in seen:
        if isinstance(one.body, WorkloadSnapshot) and (lost := _lost(one.body.conditions)):
            evicted[one.namespace, one.body.owner_kind, one.body.owner] = lost
    owners = sorted({owner for _, _, owner in evicted})
    pods = [
        pod
        for part in chunks(owners)
        for pod in ledger_pods(cluster_id, where & Q(workload__name__in=part))
    ]
    for pod in pods:
        lost = evicted.get((pod.namespace, pod.owner_kind, pod.owner))
        if lost is None or lost.since is None or pod.ended is None:
            continue
        # Conditions have whole seconds: a pod may seem to end before the eviction that ended it.
        if -1.0 <= pod.ended - lost.since <= _EVICTED_WITHIN_SECONDS:
            yield _Loss(pod, lost.reason.startswith("InCohort"), "")


def _lost(conditions: Iterable[Condition]) -> Condition | None:
    return next((c for c in conditions if c.type == "Preempted" and c.status == "True"), None)


def _row(cluster_id: int, loss: _Loss) -> Eviction:
    pod = loss.pod
    ended, bound = pod.ended or 0.0, pod.bound or 0.0
    return Eviction(
        cluster_id=cluster_id,
        pod_uid=pod.uid,
        workload_id=pod.workload_id,
        tier_id=pod.tier_id,
        at=from_seconds(ended),
        reclaimed=loss.reclaimed,
        by=loss.by,
        gpu_equivalents=pod.gpu_equivalents,
        held=min(MOST, amount(pod.gpu_equivalents, max(0.0, ended - bound))),
    )
