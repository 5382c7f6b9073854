"""Where work that is not submitted yet would stand in a queue."""

from typing import Any

from apps.accounts.domain.structs import replace
from apps.clusters.domain.observed.objects import NodeSnapshot, ObservedKind, PodSnapshot
from apps.pending.domain.diagnosis import Cause, ClusterState
from apps.pending.domain.planned_pods import PlannedPods
from apps.pending.domain.submission import (
    PlannedStart,
    PlannedWork,
    QueuePosition,
    SubmissionDiagnoser,
)
from tests.pending.cluster_states import AT, GPU, seen, world
from tests.pending.queues import flavor, local, queue, workload

POD = PodSnapshot(created=AT, requests={GPU: 8.0}, phase="Pending")


def start(state: ClusterState, pod: PodSnapshot = POD, to: str = "") -> PlannedStart:
    (found,) = SubmissionDiagnoser(state).starts(
        PlannedWork("Job", "team", "new", (PlannedPods(pod),), queue=to)
    )
    return found


def node(free: float) -> Any:
    body = NodeSnapshot({"pool": "h100"}, allocatable={GPU: 8.0}, used={GPU: 8.0 - free})
    return seen(ObservedKind.NODE, "n1", body, namespace="")


def pending(name: str, **fields: Any) -> Any:
    return seen(ObservedKind.POD, name, replace(POD, created=AT - 60, **fields))


def test_a_pod_comes_after_those_of_its_priority_and_above() -> None:
    others = (pending("low", priority=-1), pending("same"), pending("high", priority=9))
    assert start(world(node(0), *others)).position == QueuePosition(3, 4)


def test_a_pod_that_starts_or_that_the_scheduler_does_not_try_has_no_position() -> None:
    assert start(world(node(8))).position is None
    gated = replace(POD, gates=("a/b",))
    assert start(world(node(0)), gated).position is None


def test_what_is_placed_over_gated_or_of_other_gpus_is_not_ahead() -> None:
    others = (
        pending("bound", bound=AT),
        pending("over", phase="Failed"),
        pending("leaving", deleting=AT),
        pending("gated", gates=("a/b",)),
        pending("other", requests={"amd.com/gpu": 1.0}),
    )
    assert start(world(node(0), *others)).position == QueuePosition(1, 1)


def test_the_order_of_volcano_is_not_known() -> None:
    ran = pending("ran", bound=AT, node="n1", scheduler="volcano")
    others = (pending("own"), pending("other", scheduler="volcano"), ran)
    state = world(node(0), *others)
    found = start(state, replace(POD, scheduler="volcano"))
    assert found.why is not None
    assert found.why.cause is Cause.CAPACITY
    assert found.position is None
    assert start(state).position == QueuePosition(2, 2), "its pods are in no line of the scheduler"


def test_a_queue_of_kueue_is_stood_in_by_priority_and_age() -> None:
    state = world(
        node(8),
        flavor(),
        queue("cq", 8, 8),
        local(),
        workload("first"),
        workload("urgent", priority=5),
    )
    assert start(state, to="main").position == QueuePosition(3, 3, "cq")
    important = replace(POD, priority=3)
    assert start(state, important, to="main").position == QueuePosition(2, 3, "cq")


def test_a_queue_that_leads_nowhere_has_no_position() -> None:
    state = world(node(8), flavor(), queue("cq", 8, 8), local(to="gone"))
    found = start(state, to="main")
    assert found.why is not None
    assert found.position is None
