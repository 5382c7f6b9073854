"""Writes the pending episodes of a scenario's pods, as refreshes of a watch would have left them.

Two weeks hold more than 80,000 refreshes. A held pod changes its cause at few moments, which its
admission tells; `tests.simulator.test_campus_pending` holds them against the diagnosis.
"""

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import NamedTuple

from apps.clusters.models import Pod as PodRow
from apps.pending.domain.diagnosis import Cause, Counts, Outcome
from apps.pending.domain.pods import GATED
from apps.pending.domain.queues.kueue import CHECKS, WAITING
from apps.pending.models import CauseInterval, Episode
from simulator.fleet import FOREVER, Admission, Pod
from simulator.scheduler.kueue import GATE


class PendingCause(NamedTuple):
    """A cause that a pod was pending for, from `start` to `end` in Unix seconds."""

    start: int
    end: int
    cause: Cause
    detail: str


def pending_causes(pod: Pod) -> Iterator[PendingCause]:
    """Yield why a pod of an admission was pending, in order, until it was bound or gave up."""
    if pod.admission is None:
        return
    left = min(pod.bound, pod.finished, pod.deleted)
    at = pod.created
    for until, cause, detail in _stages(pod.admission):
        end = min(until, left)
        if end > at:
            yield PendingCause(at, end, cause, detail)
            at = end


def _stages(admission: Admission) -> Iterator[tuple[int, Cause, str]]:
    if admission.gate == GATE:
        yield min(admission.reserved, admission.at), Cause.QUEUE, WAITING
        yield admission.at, Cause.QUEUE, CHECKS
    else:
        yield admission.at, Cause.QUEUE, GATED
    yield FOREVER, Cause.CAPACITY, ""


def write_pending(cluster_id: int, pods: Iterable[Pod], end: int) -> None:
    """Write the episodes of pods of a cluster that are in its ledger, as known at `end`."""
    causes = {pod.uid: (pod, own) for pod in pods if (own := list(pending_causes(pod)))}
    rows = PodRow.objects.filter(cluster_id=cluster_id, uid__in=causes).order_by("pk")
    episodes = []
    for row in rows.select_related("tier"):
        pod, own = causes[row.uid]
        until = own[-1].end
        episodes.append(
            Episode(
                cluster_id=cluster_id, kind="Pod", uid=row.uid, name=row.name,
                workload_id=row.workload_id, tier=row.tier, resource=row.resource,
                units=row.units, gpu_equivalents=row.gpu_equivalents,
                counted=row.gpu_equivalents, counts=Counts.PENDING.value,
                since=_time(pod.created), until=_time(until) if until <= end else None,
                outcome=_outcome(pod, until, end), cause=own[-1].cause.value,
            )
        )  # fmt: skip
    for episode in Episode.objects.bulk_create(episodes, batch_size=1000):
        CauseInterval.objects.bulk_create(
            CauseInterval(
                episode=episode, start=_time(one.start), cause=one.cause.value, detail=one.detail,
                end=_time(one.end) if one.end <= end else None, counts=Counts.PENDING.value,
                counted=episode.counted,
            )
            for one in causes[episode.uid][1]
            if one.start < end
        )  # fmt: skip


def _outcome(pod: Pod, until: int, end: int) -> str:
    if until > end:
        return ""
    return (Outcome.STARTED if pod.bound <= until else Outcome.GAVE_UP).value


def _time(at: float) -> datetime:
    return datetime.fromtimestamp(at, UTC)
