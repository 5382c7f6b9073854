"""Workloads of Kueue that wait: in which order, since when, and for how much."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from apps.clusters.domain.observed.objects import Condition, ObservedObject, WorkloadSnapshot

NEAR = 10
"""How far from the head of a queue it is worth to tell exactly what would happen."""
_STOPPED_BY = ("ClusterQueueStopped", "LocalQueueStopped")


@dataclass(frozen=True, slots=True)
class Queued:
    """A Workload in a queue: `cluster_queue` is empty where the queue leads nowhere.

    `place` counts those in front of it, of `of` in all; `with_ahead` is what it and they ask for,
    `of_gpus` says whether the queue gives GPUs. `ahead` are those in front of it, of the first
    few of a queue alone: further back, what it takes is too far off to be told exactly. `checked`
    have left the line with their quota, which the queue counts as used, and have no pods yet.
    `line` are all that stand in it.
    """

    seen: ObservedObject
    body: WorkloadSnapshot
    cluster_queue: str
    place: int = 0
    of: int = 1
    with_ahead: Mapping[str, float] = field(default_factory=dict)
    of_gpus: bool = False
    ahead: Sequence[tuple[ObservedObject, WorkloadSnapshot]] = ()
    checked: Sequence[tuple[ObservedObject, WorkloadSnapshot]] = ()
    line: Sequence[tuple[ObservedObject, WorkloadSnapshot]] = ()


def waits(body: WorkloadSnapshot) -> bool:
    """Say whether a Workload is neither over nor admitted."""
    done = [condition(body, name) for name in ("Finished", "Admitted")]
    return not any(one is not None and one.status == "True" for one in done)


def has_quota(body: WorkloadSnapshot) -> bool:
    """Say whether quota is set aside for a Workload: the queue counts it as used."""
    reserved = condition(body, "QuotaReserved")
    return reserved is not None and reserved.status == "True"


def was_evicted(body: WorkloadSnapshot) -> bool:
    """Say whether a Workload that waits was admitted once and lost its quota to others."""
    evicted = condition(body, "Evicted")
    preempted = condition(body, "Preempted")
    if preempted is not None and preempted.status == "True":
        return True
    return evicted is not None and evicted.status == "True" and evicted.reason not in _STOPPED_BY


def since(body: WorkloadSnapshot) -> float:
    """Return since when a Workload waits: when it was made, or when it lost its quota again."""
    evicted = condition(body, "Evicted")
    if evicted is None or evicted.status != "True" or evicted.since is None:
        return body.created
    return max(body.created, evicted.since)


def total(body: WorkloadSnapshot) -> dict[str, float]:
    """Return what all pods of a Workload ask for together."""
    found: dict[str, float] = {}
    for one in body.pod_sets:
        for resource, units in one.requests.items():
            found[resource] = found.get(resource, 0.0) + units * one.count
    return found


def lined_up(queue: str, waiting: list[tuple[ObservedObject, WorkloadSnapshot]]) -> list[Queued]:
    """Return the Workloads of one queue by priority, then age.

    Deactivated ones stand in no line, nor do those that have their quota already.
    """
    ordered = sorted(waiting, key=lambda w: (-w[1].priority, w[1].created, w[0].uid))
    line = [w for w in ordered if queue and w[1].active and not has_quota(w[1])]
    checked = tuple(w for w in ordered if queue and w[1].active and has_quota(w[1]))
    length = len(line) if queue else 1
    found, place, sums = [], 0, dict[str, float]()
    for seen, body in ordered:
        if not queue or not body.active or has_quota(body):
            found.append(Queued(seen, body, queue, 0, length, total(body)))
            continue
        for resource, units in total(body).items():
            sums[resource] = sums.get(resource, 0.0) + units
        ahead = tuple(line[:place]) if place < NEAR else ()
        one = Queued(seen, body, queue, place, length, dict(sums), ahead=ahead, checked=checked)
        found.append(replace(one, line=line))
        place += 1
    return found


def condition(body: WorkloadSnapshot, name: str) -> Condition | None:
    return next((one for one in body.conditions if one.type == name), None)
