"""Since when things wait, how long what was told of them holds, and that they count once."""

from collections.abc import Sequence
from typing import Any

import pytest

from apps.accounts.domain.structs import replace
from apps.clusters.domain.observed.objects import (
    Condition,
    ControllerSnapshot,
    EventSnapshot,
    ObservedKind,
    ObservedObject,
    PodGroupSnapshot,
    PodSet,
    PodSnapshot,
    QuotaSnapshot,
    WorkloadSnapshot,
)
from apps.pending.domain.diagnose import diagnose_cluster
from apps.pending.domain.diagnosis import Action, BoundPod, Cause, Counts, PendingItem
from tests.pending.cluster_states import AT, GPU, node, only, pod, seen, world

MINUTE, HOUR, DAY = 60.0, 3600.0, 86_400.0
KEY = f"requests.{GPU}"
OWNER: dict[str, Any] = {"owner_kind": "Job", "owner": "train"}


def refusal(asked: int = 1, used: int = 2, limit: int = 2, key: str = KEY) -> str:
    return (
        'pods "x" is forbidden: exceeded quota: gpu, requested:'
        f" {key}={asked}, used: {key}={used}, limited: {key}={limit}"
    )


def stateful_set(wanted: int = 3, pods: int = 2, **fields: Any) -> ObservedObject:
    """Return one that was made long ago and lost a pod ten minutes ago."""
    made: dict[str, Any] = {"created": AT - 300 * DAY, "requests": {GPU: 1.0}}
    body = ControllerSnapshot(wanted=wanted, pods=pods, **(made | fields))
    return replace(seen(ObservedKind.STATEFUL_SET, "train", body), changed=AT - 10 * MINUTE)


def refused(about: ObservedObject, first: float, last: float, message: str = "") -> ObservedObject:
    body = EventSnapshot(
        *(about.kind.short, about.name, about.uid, "FailedCreate", message or refusal()),
        first=first,
        last=last,
    )
    return seen(ObservedKind.EVENT, f"{about.name}.{first}.{last}", body)


def quota(hard: float, used: float, key: str = KEY) -> ObservedObject:
    return seen(
        ObservedKind.RESOURCE_QUOTA, "gpu", QuotaSnapshot(hard={key: hard}, used={key: used})
    )


def counted(waiting: Sequence[PendingItem]) -> float:
    return sum(one.requests.get(GPU, 0.0) * one.share for one in waiting)


# ---------------------------------------------------------------- since when


@pytest.mark.parametrize(
    ("conditions", "events", "since"),
    [
        pytest.param((), [(50.0, 10.0)], AT - 50, id="since its first event"),
        pytest.param((), [(50.0, 10.0), (90.0, 80.0)], AT - 90, id="of several the first"),
        pytest.param((), [], AT - 10 * MINUTE, id="without any since it lost its pod"),
        pytest.param(
            (Condition("ReplicaFailure", "True", "FailedCreate", refusal(), AT - 30),),
            [(50.0, 10.0)],
            AT - 30,
            id="as its condition says",
        ),
        pytest.param(
            (Condition("ReplicaFailure", "True", "FailedCreate", refusal()),),
            [(50.0, 10.0)],
            AT - 50,
            id="a condition that does not say since when",
        ),
        pytest.param(
            (Condition("ReplicaFailure", "False", "", "", AT - 9 * DAY),),
            [(50.0, 10.0)],
            AT - 50,
            id="a condition that is over says nothing",
        ),
        pytest.param(
            (Condition("Suspended", "False", "JobResumed", "", AT - 40),),
            [(50.0, 10.0)],
            AT - 40,
            id="not while it was suspended",
        ),
    ],
)
def test_a_controller_waits_since_its_pods_are_refused_and_not_since_it_was_made(
    conditions: tuple[Condition, ...], events: list[tuple[float, float]], since: float
) -> None:
    one = stateful_set(conditions=conditions)
    told = [refused(one, AT - first, AT - last) for first, last in events]
    assert only(world(one, *told, quota(2, 2))).since == since


def test_a_job_that_was_suspended_waits_since_then() -> None:
    conditions = (Condition("Suspended", "True", "JobSuspended", "", AT - HOUR),)
    assert only(world(stateful_set(suspended=True, conditions=conditions))).since == AT - HOUR


def test_a_workload_that_a_stopped_queue_put_out_waits_since_then() -> None:
    conditions = (
        Condition("Evicted", "True", "ClusterQueueStopped", "", AT - MINUTE),
        Condition("QuotaReserved", "False", "Pending", "stopped", AT - MINUTE),
    )
    sets = (PodSet("main", 1, {GPU: 8.0}),)
    body = WorkloadSnapshot(created=AT - DAY, pod_sets=sets, conditions=conditions, **OWNER)
    waiting = only(world(seen(ObservedKind.KUEUE_WORKLOAD, "w", body)))
    assert (waiting.since, waiting.again) == (AT - MINUTE, False)


def gang(kind: ObservedKind = ObservedKind.VOLCANO_POD_GROUP, **fields: Any) -> ObservedObject:
    values: dict[str, Any] = {"created": AT - 10 * DAY, "min_member": 8, **OWNER}
    values["requests"] = {GPU: 8.0}
    body = PodGroupSnapshot(**(values | fields))
    return replace(seen(kind, "g", body), changed=AT - HOUR)


UNSCHEDULABLE = Condition("Unschedulable", "True", "NotEnoughResources", "", AT - MINUTE)
NOT_SCHEDULED = Condition("PodGroupScheduled", "False", "Unschedulable", "", AT - MINUTE)


@pytest.mark.parametrize(
    ("group", "since"),
    [
        pytest.param(
            gang(phase="Inqueue", conditions=(UNSCHEDULABLE,)), AT - 10 * DAY, id="never ran"
        ),
        pytest.param(
            gang(ObservedKind.COSCHEDULING_POD_GROUP, phase="Scheduling", scheduled=3),
            AT - 10 * DAY,
            id="never whole",
        ),
        pytest.param(
            gang(phase="Unknown", running=6, conditions=(UNSCHEDULABLE,)),
            AT - MINUTE,
            id="lost a member",
        ),
        pytest.param(gang(phase="Unknown", running=6), AT - HOUR, id="lost one, nothing said"),
        pytest.param(
            gang(phase="Pending", conditions=(Condition("Scheduled", "True", "ok"), UNSCHEDULABLE)),
            AT - MINUTE,
            id="lost all",
        ),
        pytest.param(
            gang(ObservedKind.GANG_POD_GROUP, conditions=(NOT_SCHEDULED,)),
            AT - MINUTE,
            id="of Kubernetes itself",
        ),
    ],
)
def test_a_gang_waits_since_it_was_made_or_is_no_longer_whole(
    group: ObservedObject, since: float
) -> None:
    assert only(world(group)).since == since


# ---------------------------------------------------------------- turned away


def turned_away(name: str, ago: float) -> ObservedObject:
    fields: dict[str, Any] = {
        "phase": "Failed",
        "reason": "TopologyAffinityError",
        "controller": "team-train",
    }
    return pod(name, 1, node="a", bound=AT - ago, **fields)


def test_a_pod_turned_away_long_ago_does_not_explain_one_that_is_missing_now() -> None:
    assert diagnose_cluster(world(stateful_set(), turned_away("old", 30 * DAY))) == []


def test_tries_that_followed_close_upon_each_other_are_one_wait() -> None:
    away = [turned_away(f"p{i}", ago) for i, ago in enumerate([60.0, 900.0, 1500.0, 9000.0])]
    waiting = only(world(stateful_set(), *away))
    assert (waiting.since, waiting.counts) == (AT - 1500, Counts.SUPPRESSED)
    assert waiting.diagnosis.explanation.startswith("3 pods rejected by the kubelet, last p0")


# ---------------------------------------------------------------- what still speaks


def test_a_refusal_that_nobody_repeated_for_an_hour_explains_nothing() -> None:
    one = stateful_set()
    old = refused(one, AT - DAY, AT - HOUR - 1)
    assert diagnose_cluster(world(one, old)) == []
    assert diagnose_cluster(world(one, refused(one, AT - DAY, AT - HOUR + 1))) != []


def test_an_event_does_not_speak_against_a_quota_that_has_room() -> None:
    one = stateful_set()
    assert diagnose_cluster(world(one, refused(one, AT - 90, AT - 60), quota(20, 2))) == []


def test_a_controller_that_still_fails_waits_for_its_next_try_once_there_is_room() -> None:
    failure = Condition("ReplicaFailure", "True", "FailedCreate", refusal(), AT - 60)
    waiting = only(world(stateful_set(conditions=(failure,)), quota(20, 2)))
    assert (waiting.diagnosis.cause, waiting.counts) == (Cause.QUOTA, Counts.SUPPRESSED)
    assert [step.action for step in waiting.diagnosis.suggestions] == [Action.WAIT]


def test_a_key_that_pods_do_not_tell_is_held_against_the_quota_as_it_is() -> None:
    one = stateful_set()
    event = refused(one, AT - 90, AT - 60, refusal(4, 7, 8, "limits.cpu"))
    (step,) = only(world(one, event, quota(10, 9, "limits.cpu"))).diagnosis.suggestions
    assert (step.change["from"], step.change["to"]) == (10.0, 13.0)
    assert diagnose_cluster(world(one, event, quota(100, 9, "limits.cpu"))) == []


@pytest.mark.parametrize("message", [refusal(1, 2, 20), refusal(0, 2, 2)])
def test_no_quota_is_ever_to_be_lowered_or_left_as_it_is(message: str) -> None:
    one = stateful_set()
    waiting = only(world(one, refused(one, AT - 90, AT - 60, message)))
    assert (waiting.diagnosis.cause, waiting.diagnosis.suggestions) == (Cause.QUOTA, ())


def test_events_of_another_namespace_say_nothing_of_a_pod() -> None:
    waiting = pod("p", 1)
    body = EventSnapshot("Pod", "p", waiting.uid, "FailedScheduling", "lies", first=AT, last=AT)
    events = [
        seen(ObservedKind.EVENT, "e1", body, namespace="elsewhere"),
        seen(
            ObservedKind.EVENT,
            "e2",
            replace(body, reason="TriggeredScaleUp"),
            namespace="elsewhere",
        ),
    ]
    why = only(world(waiting, node("a"), *events)).diagnosis
    assert (why.cause, why.message, why.context) == (Cause.SCHEDULER, "", ())


# ---------------------------------------------------------------- counted once


def member(number: int) -> BoundPod:
    return BoundPod(
        *(f"h{number}", "team", f"train-{number}", "Job", "train", f"n{number}", {GPU: 1.0})
    )


def test_a_gang_does_not_count_what_its_running_pods_hold() -> None:
    waiting = pod("w", 1, "x", group="g", **OWNER)
    running = [member(number) for number in range(6)]
    found = diagnose_cluster(world(gang(phase="Unknown", running=6), waiting, holders=running))
    assert counted([one for one in found if one.kind == "PodGroup"]) == pytest.approx(1.0)
    assert counted(found) == pytest.approx(2.0)


def test_a_gang_counts_whole_when_only_others_of_its_owner_run() -> None:
    assert counted(
        diagnose_cluster(world(gang(phase="Inqueue"), holders=[member(1)]))
    ) == pytest.approx(8.0)


def test_refused_pods_count_beside_workloads_that_have_their_pods() -> None:
    owner: dict[str, Any] = {"owner_kind": "Deployment", "owner": "serve"}
    failure = Condition("ReplicaFailure", "True", "FailedCreate", refusal(), AT - 60)
    body = ControllerSnapshot(
        created=AT - HOUR, wanted=8, pods=3, requests={GPU: 1.0}, conditions=(failure,), **owner
    )
    maker = seen(ObservedKind.REPLICA_SET, "serve-1", body)
    sets = (PodSet("main", 1, {GPU: 1.0}),)
    queued = [
        seen(
            ObservedKind.KUEUE_WORKLOAD,
            f"w{i}",
            WorkloadSnapshot(created=AT, pod_sets=sets, **owner),
        )
        for i in range(3)
    ]
    gate = ("kueue.x-k8s.io/admission",)
    pods = [pod(f"p{i}", 1, gates=gate, controller=maker.uid, **owner) for i in range(3)]
    assert all(isinstance(one.body, PodSnapshot) for one in pods)
    found = diagnose_cluster(world(maker, quota(3, 3), *queued, *pods))
    assert counted([one for one in found if one.counts is Counts.SUPPRESSED]) == 5.0
    assert counted(found) == 8.0
