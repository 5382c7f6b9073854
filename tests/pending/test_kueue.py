"""Queues of Kueue: what a queue has left, who is in front, and what would admit a Workload."""

from typing import Any

import pytest

from apps.clusters.domain.observed.objects import (
    ClusterQueueSnapshot,
    CohortSnapshot,
    Condition,
    FlavorQuota,
    ObservedKind,
    ObservedObject,
    WorkloadSnapshot,
)
from apps.pending.domain.diagnose import diagnose_cluster
from apps.pending.domain.diagnosis import Action, Cause, Counts
from apps.pending.domain.queues.cluster_queues import queues_of
from apps.pending.domain.workload_groups import QueuePlace, queue_place
from tests.pending.cluster_states import AT, GPU, only, pod, seen, world
from tests.pending.queues import WAITING, local, queue, raised, workload


@pytest.mark.parametrize(
    ("queues", "free", "most"),
    [
        pytest.param([queue("cq", 8, 3)], 5.0, 8.0, id="alone"),
        pytest.param(
            [queue("cq", 8, 4, cohort="c", borrowing=4), queue("other", 8, 11, cohort="c")],
            *(1.0, 12.0),
            id="a cohort where the other has borrowed",
        ),
        pytest.param(
            [queue("cq", 8, 4, cohort="c", borrowing=0), queue("other", 8, 0, cohort="c")],
            *(4.0, 8.0),
            id="may not borrow",
        ),
        pytest.param(
            [queue("cq", 2, 2, cohort="c"), queue("other", 8, 0, cohort="c", lending=3)],
            *(3.0, 5.0),
            id="the other lends some",
        ),
        pytest.param(
            [queue("cq", 8, 0, cohort="c", lending=2), queue("other", 8, 10, cohort="c")],
            *(6.0, 16.0),
            id="keeps what it does not lend",
        ),
        pytest.param(
            [
                queue("cq", 0, 0, cohort="a"),
                queue("other", 8, 1, cohort="b"),
                *(seen(ObservedKind.COHORT, n, CohortSnapshot(parent="top"), "") for n in "ab"),
                seen(
                    ObservedKind.COHORT,
                    "top",
                    CohortSnapshot(quotas=(FlavorQuota("h100", GPU, 4),)),
                    "",
                ),
            ],
            *(11.0, 12.0),
            id="cohorts of one root",
        ),
    ],
)
def test_what_a_queue_has_left_counts_what_its_cohort_lends(
    queues: list[ObservedObject], free: float, most: float
) -> None:
    (room,) = queues_of(world(*queues)).rooms("cq", GPU)
    assert (room.free, room.most) == (free, most)


@pytest.mark.parametrize(
    ("queues", "place", "told"),
    [
        pytest.param(
            [queue("cq", 40, 41, cohort="c", borrowing=2), queue("other", 8, 0, cohort="c")],
            QueuePlace(1, 1, used=41, limit=40, most=42),
            "41 of 40 nvidia.com/gpu in use (42 with borrowing)",
            id="has borrowed",
        ),
        pytest.param(
            [queue("cq", 8, 4, cohort="c", borrowing=8), queue("other", 8, 12, cohort="c")],
            QueuePlace(1, 1, used=4, limit=8, most=16),
            "4 of 8 nvidia.com/gpu in use (16 with borrowing)",
            id="others have borrowed",
        ),
        pytest.param(
            [queue("cq", 17, 17)],
            QueuePlace(1, 1, used=17, limit=17, most=17),
            "17 of 17 nvidia.com/gpu in use",
            id="alone",
        ),
    ],
)
def test_a_queue_in_use_is_told_against_its_own_limit(
    queues: list[ObservedObject], place: QueuePlace, told: str
) -> None:
    """As the page of its quota says: what may be borrowed is no part of the limit."""
    found = only(world(*queues, local(), workload("w", 16))).diagnosis
    assert queue_place(found) == place
    assert found.explanation.endswith(f"; h100: {told}.")


def test_cohorts_in_a_circle_end_where_they_began() -> None:
    around = [seen(ObservedKind.COHORT, a, CohortSnapshot(parent=b), "") for a, b in ("xy", "yx")]
    (room,) = queues_of(world(queue("cq", 8, 1, cohort="x"), *around)).rooms("cq", GPU)
    assert room.free == 7.0


@pytest.mark.parametrize(
    ("sightings", "detail", "action", "change"),
    [
        pytest.param(
            [queue("cq", 8, 6), local(), workload("w", 8)],
            *("waiting-for-quota", Action.RAISE_QUEUE_QUOTA),
            {"cluster_queue": "cq", "flavor": "h100", "resource": GPU, "from": 8, "to": 14.0},
            id="waits for quota",
        ),
        pytest.param(
            [
                queue("cq", 8),
                local(),
                workload("w", 9, Condition("QuotaReserved", "False", "ExceedsMaxQuota", "x")),
            ],
            *("exceeds-max-quota", Action.RAISE_QUEUE_QUOTA),
            {"cluster_queue": "cq", "flavor": "h100", "resource": GPU, "from": 8, "to": 9.0},
            id="more than it can ever have",
        ),
        pytest.param(
            [
                queue("cq", 8),
                local(),
                workload(
                    "w",
                    9,
                    Condition(
                        *("QuotaReserved", "False", "Pending"),
                        message="insufficient quota for x in flavor f, request > maximum capacity",
                    ),
                ),
            ],
            *("exceeds-max-quota", Action.RAISE_QUEUE_QUOTA),
            {"cluster_queue": "cq", "flavor": "h100", "resource": GPU, "from": 8, "to": 9.0},
            id="the words of older versions",
        ),
        pytest.param(
            [
                queue("cq", 8, 8),
                local(),
                workload("w", 1, Condition("QuotaReserved", "False", "Pending", WAITING.message)),
            ],
            *("waiting-for-quota", Action.RAISE_QUEUE_QUOTA),
            {"cluster_queue": "cq", "flavor": "h100", "resource": GPU, "from": 8, "to": 9.0},
            id="waiting, in older words",
        ),
        pytest.param(
            [queue("cq", 8, stop_policy="HoldAndDrain"), local(), workload("w")],
            *("queue-stopped", Action.RESUME_QUEUE, {"cluster_queue": "cq"}),
            id="queue stopped",
        ),
        pytest.param(
            [queue("cq", 8), local(stop_policy="Hold"), workload("w")],
            *("queue-stopped", Action.RESUME_QUEUE, {"local_queue": "team/main"}),
            id="local queue stopped",
        ),
        pytest.param(
            [workload("w", 1, Condition("QuotaReserved", "False", "Suspended", "x is inactive"))],
            *("queue-stopped", Action.RESUME_QUEUE, {"cluster_queue": ""}),
            id="inactive, no queue seen",
        ),
        pytest.param(
            [queue("cq", 8), local("other"), workload("w")],
            *("queue-misconfigured", Action.CREATE_QUEUE, {"namespace": "team", "name": "main"}),
            id="no local queue",
        ),
        pytest.param(
            [
                local(to="gone"),
                workload("w", 1, Condition("QuotaReserved", "False", "Misconfigured", "no")),
            ],
            *("queue-misconfigured", Action.CREATE_QUEUE),
            {"namespace": "team", "name": "main", "cluster_queue": "gone"},
            id="no cluster queue",
        ),
        pytest.param(
            [
                queue("cq", 8, conditions=(Condition("Active", "False", "Stopped"),)),
                local(),
                workload("w"),
            ],
            *("queue-stopped", Action.RESUME_QUEUE, {"cluster_queue": "cq"}),
            id="said to be stopped",
        ),
        pytest.param(
            [
                queue("cq", 8, 8),
                local(),
                workload("w", 1, Condition("QuotaReserved", "False", "Pending", "new words")),
            ],
            *("waiting-for-quota", Action.RAISE_QUEUE_QUOTA),
            {"cluster_queue": "cq", "flavor": "h100", "resource": GPU, "from": 8, "to": 9.0},
            id="words that nobody knows",
        ),
        pytest.param(
            [queue("cq", 8), local(), workload("w", active=False)],
            *("deactivated", Action.ACTIVATE, {"namespace": "team", "name": "w"}),
            id="deactivated",
        ),
        pytest.param(
            [queue("cq", 8), local(), workload("w", 8, Condition("QuotaReserved", "True"))],
            *("admission-checks", Action.WAIT, {"what": "admission checks"}),
            id="waits for checks",
        ),
        pytest.param(
            [queue("cq", 8), local(), workload("w", 8, Condition("PodsReady", "False"))],
            *("pending-evaluation", Action.WAIT, {"what": "admission"}),
            id="not looked at",
        ),
    ],
)
def test_a_workload_waits_in_its_queue_with_what_would_admit_it(
    sightings: list[ObservedObject], detail: str, action: Action, change: dict[str, Any]
) -> None:
    why = only(world(*sightings)).diagnosis
    assert (why.cause, why.detail) == (Cause.QUEUE, detail)
    assert (why.suggestions[0].action, dict(why.suggestions[0].change)) == (action, change)


@pytest.mark.parametrize(
    "queues",
    [
        pytest.param([queue("cq", 8, 6)], id="alone"),
        pytest.param(
            [queue("cq", 8, 4, cohort="c", borrowing=4), queue("b", 8, 11, cohort="c")],
            id="in a cohort",
        ),
        pytest.param(
            [queue("cq", 4, 4, cohort="c", borrowing=1, lending=1), queue("b", 8, 8, cohort="c")],
            id="at its borrowing limit",
        ),
        pytest.param(
            [queue("cq", 8, 8, more=(FlavorQuota("any", "cpu", 0.5),))],
            id="another resource is short as well",
        ),
    ],
)
def test_the_quota_that_is_suggested_has_room_for_the_workload(
    queues: list[ObservedObject],
) -> None:
    state = world(*queues, local(), workload("w", 8))
    steps = only(state).diagnosis.suggestions
    for step in steps:
        if step.action is Action.RAISE_QUEUE_QUOTA:
            state = raised(step, state)
    assert only(state).diagnosis.suggestions[0].action is Action.WAIT


def test_behind_the_head_of_a_strict_queue_all_in_front_count() -> None:
    strict = queue("cq", 2, 2, strategy="StrictFIFO")
    head = workload("head", 2, created=AT - 99)
    behind = workload("w", 1, Condition("PodsReady", "False"), created=AT - 9)
    late = workload("urgent", 4, Condition("PodsReady", "False"), priority=9)
    found = {
        w.name: w.diagnosis for w in diagnose_cluster(world(strict, local(), head, behind, late))
    }
    assert found["w"].detail == "queued-behind-head"
    assert found["w"].suggestions[0].change["to"] == 9.0
    assert "position 3 of 3 in cq" in found["w"].explanation
    assert "position 1 of 3 in cq" in found["urgent"].explanation


def test_a_preempted_workload_waits_again_since_it_lost_its_quota() -> None:
    evicted = Condition("Evicted", "True", "Preempted", "to make room", AT - 30)
    preempted = Condition("Preempted", "True", "InCohortReclamation", "", AT - 30)
    waiting = only(world(queue("cq", 8, 8), local(), workload("w", 8, WAITING, evicted, preempted)))
    assert (waiting.again, waiting.since) == (True, AT - 30)
    assert waiting.diagnosis.detail == "preempted-requeued"


def test_an_eviction_because_the_queue_stopped_is_no_preemption() -> None:
    evicted = Condition("Evicted", "True", "ClusterQueueStopped", "", AT - 30)
    waiting = only(world(queue("cq", 8, 8), local(), workload("w", 8, WAITING, evicted)))
    assert (waiting.again, waiting.diagnosis.detail) == (False, "waiting-for-quota")


def test_gated_pods_have_the_cause_of_their_workload_and_count_for_it() -> None:
    owner: dict[str, Any] = {"owner_kind": "Job", "owner": "w"}
    gated = [pod(f"p{i}", 4, gates=("kueue.x-k8s.io/admission",), **owner) for i in (1, 2)]
    state = world(queue("cq", 8, 6), local(), workload("w", 4, count=3), *gated)
    found = {w.name: w for w in diagnose_cluster(state)}
    assert found["p1"].diagnosis.detail == found["w"].diagnosis.detail == "waiting-for-quota"
    assert found["w"].counts is Counts.SUPPRESSED
    assert found["w"].share * 12 == pytest.approx(4.0)


def test_workloads_without_gpus_wait_only_in_queues_of_gpus() -> None:
    body = WorkloadSnapshot(
        created=AT, queue="main", owner="c", owner_kind="Job", conditions=(WAITING,)
    )
    other = seen(ObservedKind.KUEUE_WORKLOAD, "c", body)
    plain = ClusterQueueSnapshot(quotas=(FlavorQuota("any", "cpu", 1),))
    assert (
        diagnose_cluster(world(seen(ObservedKind.CLUSTER_QUEUE, "cq", plain, ""), local(), other))
        == []
    )
    waiting = only(world(queue("cq", 8), local(), other))
    assert (waiting.counts, waiting.requests) == (Counts.NOTHING, {})


def test_those_in_front_hold_quota_of_the_same_cohort() -> None:
    queues = [queue(n, 8, 8, cohort=c) for n, c in (("cq", "c"), ("a", "c"), ("b", "x"), ("d", ""))]
    why = only(world(*queues, local(), workload("w"))).diagnosis
    assert why.blockers == ("cluster_queue:cq", "cluster_queue:a")


def freed(*sightings: ObservedObject) -> list[str]:
    """Return the steps of the suggestion to free quota that is in use."""
    found = only(world(local(), *sightings), "w").diagnosis.suggestions
    start = next((i for i, one in enumerate(found) if one.text.startswith("Or ")), len(found))
    assert all(one.action is Action.FREE for one in found[start:])
    return [one.text for one in found[start:]]


@pytest.mark.parametrize(
    ("queues", "steps"),
    [
        pytest.param(
            [queue("cq", 8, 8, cohort="campus"), queue("b", 8, 8, cohort="campus")],
            ["Or free 4 nvidia.com/gpu of flavor h100 in the cohort campus."],
            id="the cohort lends nothing more",
        ),
        pytest.param(
            [queue("cq", 8, 6, cohort="campus", borrowing=0), queue("b", 8, 0, cohort="campus")],
            ["Or free 2 nvidia.com/gpu of flavor h100 in the queue cq."],
            id="may not borrow",
        ),
        pytest.param(
            [queue("cq", 4, 6, cohort="campus", borrowing=2), queue("b", 8, 1, cohort="campus")],
            ["Or free 4 nvidia.com/gpu of flavor h100 in the queue cq."],
            id="has borrowed all it may",
        ),
        pytest.param(
            [queue("cq", 8, 8, cohort="campus", borrowing=0), queue("b", 8, 8, cohort="campus")],
            ["Or free 4 nvidia.com/gpu of flavor h100 in the queue cq."],
            id="may not borrow from a cohort that has nothing left",
        ),
        pytest.param(
            [queue("cq", 4, 2, cohort="campus", borrowing=1), queue("b", 8, 9, cohort="campus")],
            [
                "Or free 1 nvidia.com/gpu of flavor h100 in the queue cq.",
                "Also needed: free 2 nvidia.com/gpu of flavor h100 in the cohort campus.",
            ],
            id="its own limit is in the way, and the cohort has too little",
        ),
        pytest.param(
            [queue("cq", 8, 6)],
            ["Or free 2 nvidia.com/gpu of flavor h100 in the queue cq."],
            id="alone",
        ),
        pytest.param(
            [queue("cq", 2, 2, cohort="campus", borrowing=1), queue("b", 8, 0, cohort="campus")],
            [],
            id="more than it may ever have",
        ),
    ],
)
def test_quota_is_freed_where_it_helps(queues: list[ObservedObject], steps: list[str]) -> None:
    assert freed(*queues, workload("w", 4)) == steps


@pytest.mark.parametrize("strategy", ["StrictFIFO", "BestEffortFIFO"])
def test_those_that_have_their_quota_are_counted_once(strategy: str) -> None:
    reserved = Condition("QuotaReserved", "True", "QuotaReserved")
    checked = [workload(n, 1, reserved, created=AT - 2000) for n in ("one", "two")]
    # The eleven in use are nine of others and those two.
    state = world(queue("cq", 11, 11, strategy=strategy), local(), *checked, workload("w", 1))
    found = {w.name: w.diagnosis for w in diagnose_cluster(state)}
    assert (found["w"].suggestions[0].change["from"], found["w"].suggestions[0].change["to"]) == (
        *(11, 12),
    )
    assert "position 1 of 1 in cq" in found["w"].explanation
    assert found["one"].detail == found["two"].detail == "admission-checks"
