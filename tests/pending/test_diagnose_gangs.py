"""Gangs and claims wait with their pods, and count once."""

from typing import Any

import pytest

from apps.accounts.domain.structs import replace
from apps.clusters.domain.observed.objects import (
    ClaimRequest,
    ClaimSnapshot,
    ClaimUse,
    Condition,
    ObservedKind,
    ObservedObject,
    PodSet,
    VolcanoQueueSnapshot,
    WorkloadSnapshot,
)
from apps.pending.domain.diagnose import diagnose_cluster
from apps.pending.domain.diagnosis import Action, Cause, Counts
from tests.pending.cluster_states import AT, GPU, claim, node, only, pod, seen, world
from tests.pending.pending_objects import CLASS, ZERO, event, group


def of_group(message: str) -> ObservedObject:
    """Return what Volcano says of the group `g`."""
    return event("Unschedulable", group("g"), message)


@pytest.mark.parametrize(
    ("sightings", "cause", "detail", "action"),
    [
        pytest.param(
            [group("g", phase="Inqueue")],
            *(Cause.GANG, "not all can start", Action.COMPLETE_GANG),
            id="let in, not all can start",
        ),
        pytest.param(
            [
                group("g", phase="Pending", queue="q"),
                seen(ObservedKind.VOLCANO_QUEUE, "q", VolcanoQueueSnapshot(state="Closed"), ""),
            ],
            *(Cause.QUEUE, "queue-closed", Action.RESUME_QUEUE),
            id="queue closed",
        ),
        pytest.param(
            [
                group("g", phase="Pending", queue="q"),
                seen(
                    ObservedKind.VOLCANO_QUEUE,
                    "q",
                    VolcanoQueueSnapshot("Open", capability={GPU: 20.0}, allocated={GPU: 8.0}),
                    "",
                ),
            ],
            *(Cause.QUEUE, "queue-over-capability", Action.RAISE_QUEUE_QUOTA),
            id="queue overused",
        ),
        pytest.param(
            [
                group("g", phase="Pending", queue="q"),
                *(
                    seen(ObservedKind.VOLCANO_QUEUE, name, body, "")
                    for name, body in (
                        ("q", VolcanoQueueSnapshot("Open", parent="top")),
                        (
                            "top",
                            VolcanoQueueSnapshot(
                                "Open", capability={GPU: 20.0}, allocated={GPU: 8.0}
                            ),
                        ),
                    )
                ),
            ],
            *(Cause.QUEUE, "queue-over-capability", Action.RAISE_QUEUE_QUOTA),
            id="the queue above it overused",
        ),
        pytest.param(
            [
                group("g", phase="Pending"),
                of_group("queue resource quota insufficient: insufficient nvidia.com/gpu"),
            ],
            *(Cause.QUEUE, "queue-over-capability", Action.WAIT),
            id="said of a queue that is not seen",
        ),
        pytest.param(
            [
                group("g", phase="Pending"),
                of_group("resource in cluster is overused: overused nvidia.com/gpu"),
            ],
            *(Cause.QUEUE, "cluster-overused", Action.COMPLETE_GANG),
            id="the cluster is overused",
        ),
        pytest.param(
            [group("g", phase="Pending")],
            *(Cause.QUEUE, "not-enqueued", Action.WAIT),
            id="not let in",
        ),
        pytest.param(
            [
                group("g", ObservedKind.COSCHEDULING_POD_GROUP, phase="Pending"),
                pod("a", 4, group="g"),
            ],
            *(Cause.GANG, "too few pods", Action.COMPLETE_GANG),
            id="too few pods",
        ),
        pytest.param(
            [
                group(
                    "g",
                    ObservedKind.GANG_POD_GROUP,
                    min_member=1,
                    conditions=(Condition("PodGroupScheduled", "False", "Unschedulable", "no"),),
                ),
                pod("a", 4, group="g"),
            ],
            *(Cause.GANG, "not all can start", Action.COMPLETE_GANG),
            id="of Kubernetes itself",
        ),
    ],
)
def test_a_gang_waits_as_a_gang_or_in_its_queue(
    sightings: list[ObservedObject], cause: Cause, detail: str, action: Action
) -> None:
    why = only(world(*sightings), "g").diagnosis
    assert (why.cause, why.detail) == (cause, detail)
    assert why.suggestions[0].action is action


@pytest.mark.parametrize(
    "started",
    [
        group("g", phase="Running"),
        group(
            "g",
            ObservedKind.GANG_POD_GROUP,
            conditions=(Condition("PodGroupScheduled", "True", "Scheduled"),),
        ),
    ],
)
def test_a_gang_that_has_started_does_not_wait(started: ObservedObject) -> None:
    assert diagnose_cluster(world(started)) == []


def test_a_gang_says_how_many_of_it_could_start() -> None:
    pods = [pod(f"w{i}", 4, "pod group is not ready", group="g") for i in range(4)]
    state = world(group("g", phase="Inqueue"), *pods, node("a", 8, 4), node("b", 4, 0))
    waiting = only(state, "g")
    assert "2 pods could start now" in waiting.diagnosis.explanation
    change = waiting.diagnosis.suggestions[0].change
    assert (change["missing"], change["amount"], change["resource"]) == (2, 8.0, GPU)
    assert {w.diagnosis.cause for w in diagnose_cluster(state)} == {Cause.GANG}
    assert (waiting.counts, waiting.share) == (Counts.NOTHING, 0.0)


# ---------------------------------------------------------------- claims


def test_a_claim_waits_with_its_pod_and_adds_nothing() -> None:
    waiting = pod(
        "p", 1, ZERO + "1 Insufficient cpu.", resource=CLASS, claims=(ClaimUse("gpu", "mine"),)
    )
    one = only(world(waiting, claim("mine")), "mine")
    assert (one.kind, one.diagnosis.cause) == ("ResourceClaim", Cause.CLAIM)
    assert (one.counts, one.share, one.requests) == (Counts.NOTHING, 0.0, {CLASS: 1.0})


@pytest.mark.parametrize(
    "one",
    [
        pytest.param(claim("mine", allocated=AT - 5), id="allocated"),
        pytest.param(claim("mine"), id="of no pod"),
    ],
)
def test_a_claim_that_no_pod_waits_for_does_not_wait(one: ObservedObject) -> None:
    assert diagnose_cluster(world(one)) == []


# ---------------------------------------------------------------- waiting again


def test_a_pod_made_again_after_a_preemption_waits_again() -> None:
    victim = pod("v", 1, controller="rs", disrupted="PreemptionByScheduler", deleting=AT - 1900)
    made = pod("p", 1, ZERO + "1 Insufficient nvidia.com/gpu.", controller="rs")
    other = pod("q", 1, ZERO + "1 Insufficient nvidia.com/gpu.", controller="else")
    state = world(made, other)
    again = {w.name: w.again for w in diagnose_cluster(replace(state, gone=(victim,)))}
    assert again == {"p": True, "q": False}


def test_a_workload_and_a_gang_of_one_job_count_once() -> None:
    owner: dict[str, Any] = {"owner_kind": "Job", "owner": "j"}
    sets = (PodSet("main", 4, {GPU: 4.0}),)
    queued = seen(
        ObservedKind.KUEUE_WORKLOAD, "w", WorkloadSnapshot(created=AT, pod_sets=sets, **owner)
    )
    waiting = diagnose_cluster(world(queued, group("g", phase="Inqueue", **owner)))
    assert [(w.kind, w.share) for w in waiting] == [("PodGroup", 0.0), ("Workload", 1.0)]


def test_a_claim_of_all_devices_counts_one_and_monitoring_none() -> None:
    wishes = (ClaimRequest("all", CLASS, None), ClaimRequest("look", CLASS, 8, admin=True))
    one = seen(ObservedKind.RESOURCE_CLAIM, "c", ClaimSnapshot(created=AT, requests=wishes))
    waiting = pod("p", 1, resource=CLASS, claims=(ClaimUse("gpu", "c"),))
    assert only(world(one, waiting), "c").requests == {CLASS: 1.0}


def test_a_gang_whose_pods_may_go_nowhere_is_told_so_first() -> None:
    pods = [pod(f"w{i}", 4, "x", group="g", select={"pool": "no"}) for i in range(4)]
    why = only(world(group("g", phase="Inqueue"), *pods, node("a")), "g").diagnosis
    assert [one.action for one in why.suggestions] == [Action.SELECT, Action.COMPLETE_GANG]
    assert "No node matches its node selector" in why.explanation
