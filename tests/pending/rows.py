"""Rows of waiting for tests: episodes with their intervals, sightings, evictions, at any scale."""

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec
from msgspec import Struct, field

from apps.clusters.domain.observed.objects import Body, ObservedKind
from apps.clusters.models import Cluster, ObservedObject, WatchCoverage, Workload
from apps.pending.domain.diagnosis import Cause, ClusterState, Counts, Diagnosis, PendingItem
from apps.pending.models import CauseInterval, Episode, Eviction, RefreshState

GPU = "nvidia.com/gpu"


def findings(
    explanation: str = "", *, suggestions: Iterable[dict[str, Any]] = (), **parts: Any
) -> dict[str, Any]:
    """Return the findings of an episode in given words; `parts` are those of `Findings`."""
    said = [["text", {"text": explanation}]] if explanation else []
    own = [
        {"sentence": ["text", {"text": one.pop("text")}], **one} for one in map(dict, suggestions)
    ]
    return {"sentences": said, "suggestions": own, **parts}


def make_episode(
    workload: Workload,
    name: str = "",
    *,
    since: datetime,
    until: datetime | None = None,
    cause: str = "capacity",
    counts: str = "pending",
    intervals: Sequence[tuple[datetime, str, str]] = (),
    **values: Any,
) -> Episode:
    """Make an episode and its intervals; `intervals` are (start, cause, counts), each until the
    next.

    Without any it has one, of its own cause. It asks for one GPU, and all of it counts.
    """
    name = name or f"{workload.name}-{Episode.objects.count()}"
    given = {"kind": "Pod", "uid": f"uid-{name}", "resource": GPU, "units": 1.0, **values}
    given.setdefault("gpu_equivalents", given["units"])
    given.setdefault("counted", given["gpu_equivalents"])
    if until is not None:
        given.setdefault("outcome", "started")
    episode = Episode.objects.create(
        cluster=workload.namespace.cluster,
        workload=workload,
        name=name,
        since=since,
        until=until,
        cause=cause,
        counts=counts,
        **given,
    )
    marks = list(intervals) or [(since, cause, counts)]
    ends = [start for start, _, _ in marks[1:]]
    CauseInterval.objects.bulk_create(
        CauseInterval(
            episode=episode, start=start, end=end, cause=of, counts=as_, counted=episode.counted
        )
        for (start, of, as_), end in zip(marks, [*ends, until], strict=True)
    )
    return episode


def make_many_waiting(
    workloads: Sequence[Workload],
    count: int,
    *,
    since: datetime,
    step: timedelta = timedelta(seconds=1),
    **values: Any,
) -> None:
    """Make so many pods that wait, one after the other, of these workloads in turn."""
    given = {
        "kind": "Pod",
        "resource": GPU,
        "units": 1.0,
        "gpu_equivalents": 1.0,
        "counted": 1.0,
        "cause": "capacity",
        "detail": "none free",
        "counts": "pending",
        "message": f"0/8 nodes: 8 Insufficient {GPU}.",
        "findings": findings(
            "No node has a GPU free.",
            suggestions=[{"action": "free", "text": "Free 1 GPU on node a.", "change": {}}],
        ),
        **values,
    }
    rows = [
        Episode(
            cluster_id=of.namespace.cluster_id,
            workload=of,
            name=f"waits-{number}",
            uid=f"uid-waits-{number}",
            since=since + number * step,
            **given,
        )
        for number in range(count)
        for of in (workloads[number % len(workloads)],)
    ]
    made = Episode.objects.bulk_create(rows, batch_size=1000)
    CauseInterval.objects.bulk_create(
        (
            CauseInterval(
                episode=row,
                start=row.since,
                cause=row.cause,
                counts=row.counts,
                counted=row.counted,
            )
            for row in made
        ),
        batch_size=1000,
    )


def make_eviction(workload: Workload, uid: str, *, at: datetime, **values: Any) -> Eviction:
    return Eviction.objects.create(
        cluster=workload.namespace.cluster, workload=workload, pod_uid=uid, at=at, **values
    )


def make_looked(cluster: Cluster, at: datetime, **values: Any) -> RefreshState:
    """Note that a cluster was looked at, and watched, until `at`."""
    WatchCoverage.objects.update_or_create(
        cluster=cluster, start=at - timedelta(days=30), defaults={"end": at}
    )
    return RefreshState.objects.update_or_create(cluster=cluster, defaults={"at": at, **values})[0]


def see(
    cluster: Cluster, kind: ObservedKind, uid: str, body: Body, *, at: datetime, **values: Any
) -> ObservedObject:
    """Write how an object was seen; a second time it replaces the first."""
    given = {"namespace": "vision", "name": uid, "changed_at": at, **values}
    row, _ = ObservedObject.objects.update_or_create(
        cluster=cluster,
        kind=kind.value,
        uid=uid,
        defaults={"first_at": at, "body": msgspec.to_builtins(body), **given},
    )
    return row


def waits(uid: str = "uid-a", **values: Any) -> PendingItem:
    """Return a pod of vision's Job `train` that waits for one GPU that nobody has free."""
    cause = values.pop("cause", Cause.CAPACITY)
    diagnosis = Diagnosis(
        cause,
        detail=values.pop("detail", ""),
        message=values.pop("message", ""),
        blockers=values.pop("in_front", ()),
    )
    given: dict[str, Any] = {
        "kind": "Pod",
        "uid": uid,
        "namespace": "vision",
        "name": uid.removeprefix("uid-"),
        "owner_kind": "Job",
        "owner": "train",
        "requests": {GPU: 1.0},
        "counts": Counts.PENDING,
        "diagnosis": diagnosis,
    }
    return PendingItem(**(given | values))


class Script(Struct):
    """A look that tells what it was told to; `states` are those that it was shown."""

    found: Iterable[PendingItem] = ()
    states: list[ClusterState] = field(default_factory=list)

    def __call__(self, state: ClusterState) -> list[PendingItem]:
        self.states.append(state)
        return list(self.found)
