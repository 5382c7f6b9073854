"""Work for KAI Scheduler that is not submitted: its queue and those above it are asked first."""

from typing import Any

import pytest

from apps.accounts.domain.structs import replace
from apps.clusters.domain.observed.objects import (
    KaiQueueSnapshot,
    NodeSnapshot,
    ObservedKind,
    PodSnapshot,
    VolcanoQueueSnapshot,
)
from apps.clusters.domain.resources import GPU_FRACTION
from apps.pending.domain.diagnosis import Cause, ClusterState
from apps.pending.domain.planned_pods import PlannedPods
from apps.pending.domain.queues import kai
from apps.pending.domain.submission import (
    PlannedStart,
    PlannedWork,
    SubmissionDiagnoser,
)
from apps.planning.domain.verdicts import QuotaTouched, Verdict, quotas_touched, verdict_of
from apps.quotas.domain.limits import own_limits
from tests.pending.cluster_states import AT, GPU, seen, world

POD = PodSnapshot(created=AT, requests={GPU: 1.0}, phase="Pending", scheduler="kai-scheduler")


def kai_queue(name: str, used: float = 0.0, **fields: Any) -> Any:
    body = KaiQueueSnapshot(allocated={GPU: used}, **fields)
    return seen(ObservedKind.KAI_QUEUE, name, body, namespace="")


def cluster(*queues: Any) -> ClusterState:
    node = NodeSnapshot({}, allocatable={GPU: 8.0})
    return world(seen(ObservedKind.NODE, "n1", node, namespace=""), *queues)


PROJECT = kai_queue("vision", 3.0, parent="research", quota=2.0, limit=6.0)
DEPARTMENT = kai_queue("research", 7.0, limit=8.0)


def work(*parts: PlannedPods, queue: str = "vision") -> PlannedWork:
    return PlannedWork("Job", "team", "new", parts, queue=queue)


def start(state: ClusterState, one: PlannedWork) -> PlannedStart:
    return SubmissionDiagnoser(state).starts(one)[0]


def verdict(state: ClusterState, one: PlannedWork) -> Verdict:
    quotas = quotas_touched(state, one)
    return verdict_of(start(state, one).why, one.pods[0], one, None, quotas)


def test_what_the_queue_and_those_above_it_leave_starts() -> None:
    state, one = cluster(PROJECT, DEPARTMENT), work(PlannedPods(POD))
    assert start(state, one) == PlannedStart(None, 1, 1)
    assert quotas_touched(state, one) == [
        QuotaTouched("KaiQueue", "", "research", f"limit/{GPU}", 8.0, 7.0, 1.0, 8.0, 1.0),
        QuotaTouched("KaiQueue", "", "vision", f"limit/{GPU}", 6.0, 3.0, 3.0, 6.0, 1.0),
    ]


def test_a_full_queue_above_holds_the_pods_that_it_has_no_room_for() -> None:
    state, one = cluster(PROJECT, DEPARTMENT), work(PlannedPods(POD, count=2))
    found = start(state, one)
    assert found.why is not None
    assert (found.why.cause, found.why.detail) == (Cause.QUEUE, kai.OVER_LIMIT)
    assert f"research has 7 {GPU} allocated of its limit of 8 {GPU}" in found.why.explanation
    # Each of them is placed by itself, and the order of KAI is not known.
    assert (found.count, found.could, found.position) == (2, 1, None)
    assert found.why.suggestions[0].change["to"] == 9.0
    assert verdict(state, one) is Verdict.WAITS


def test_a_gang_starts_whole_or_not_at_all() -> None:
    state = cluster(PROJECT)
    assert start(state, work(PlannedPods(POD, count=3, gang=3))).could == 3
    # It starts with three, and no quota holds those: the fourth comes later.
    assert start(state, work(PlannedPods(POD, count=4, gang=3))).why is None
    gang = work(PlannedPods(POD, count=4, gang=4))
    assert (start(state, gang).count, start(state, gang).could) == (4, 0)
    assert verdict(state, gang) is Verdict.WAITS


def test_parts_that_start_together_share_what_is_left() -> None:
    two = PlannedPods(replace(POD, requests={GPU: 2.0}))
    first, second = SubmissionDiagnoser(cluster(PROJECT)).starts(work(two, two))
    assert first.why is None
    assert second.why is not None
    assert second.why.detail == kai.OVER_LIMIT


@pytest.mark.parametrize(
    ("pods", "expected"),
    [
        (PlannedPods(replace(POD, requests={GPU: 7.0})), Verdict.NEVER),
        (PlannedPods(POD, count=7, gang=7), Verdict.NEVER),
        (PlannedPods(POD, count=7), Verdict.WAITS),
        (PlannedPods(replace(POD, requests={GPU_FRACTION: 0.5}), count=None), Verdict.WAITS),
    ],
)
def test_more_than_a_limit_ever_gives_never_starts(pods: PlannedPods, expected: Verdict) -> None:
    full = kai_queue("vision", 6.0, limit=6.0)
    assert verdict(cluster(full), work(pods)) is expected


def test_a_queue_that_is_not_there_lets_nothing_start() -> None:
    state, one = cluster(PROJECT), work(PlannedPods(POD), queue="visoin")
    found = start(state, one)
    assert found.why is not None
    assert (found.why.detail, found.could) == (kai.NO_QUEUE, 0)
    assert verdict(state, one) is Verdict.NEVER


@pytest.mark.parametrize(
    ("state", "one"),
    [
        pytest.param(cluster(), work(PlannedPods(POD)), id="no queue was seen"),
        pytest.param(cluster(PROJECT), work(PlannedPods(POD), queue=""), id="it names none"),
        pytest.param(
            cluster(kai_queue("vision", 9.0, limit=9.0)),
            work(PlannedPods(replace(POD, scheduler="default-scheduler"))),
            id="of another scheduler",
        ),
        pytest.param(
            cluster(kai_queue("vision", 9.0, limit=9.0)),
            work(PlannedPods(replace(POD, requests={"cpu": 1.0}))),
            id="without GPUs",
        ),
        pytest.param(
            cluster(kai_queue("a", parent="b"), kai_queue("b", parent="a", quota=0.0)),
            work(PlannedPods(POD), queue="a"),
            id="without a limit, in a circle",
        ),
    ],
)
def test_without_a_limit_nothing_is_held(state: ClusterState, one: PlannedWork) -> None:
    found = start(state, one)
    assert found.why is None or found.why.cause is not Cause.QUEUE
    assert quotas_touched(state, one) == []


def test_a_key_of_a_queue_has_the_name_that_its_page_has() -> None:
    body = VolcanoQueueSnapshot(capability={GPU: 4.0}, deserved={GPU: 2.0}, allocated={GPU: 1.0})
    volcano = seen(ObservedKind.VOLCANO_QUEUE, "gpus", body, namespace="")
    one = work(PlannedPods(replace(POD, scheduler="volcano")), queue="gpus")
    (found,) = quotas_touched(cluster(volcano), one)
    assert found == QuotaTouched("Queue", "", "gpus", f"capability/{GPU}", 4.0, 1.0, 3.0, 4.0, 1.0)
    assert found.key in {limit.key for limit in own_limits(volcano)}
