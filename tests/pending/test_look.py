"""Every kind of waiting thing, its cause, and that its GPUs count once."""

from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from time import process_time
from typing import Any, get_args, get_origin, get_type_hints

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from apps.clusters.domain.observed.objects import (
    BODIES,
    ClaimRequest,
    ClaimSnapshot,
    ClaimUse,
    Condition,
    ContainerWait,
    ControllerSnapshot,
    EventSnapshot,
    ObservedKind,
    ObservedObject,
    PodGroupSnapshot,
    PodSet,
    PodSnapshot,
    QuotaScope,
    QuotaSnapshot,
    Taint,
    VolcanoQueueSnapshot,
    WorkloadSnapshot,
)
from apps.pending.domain.causes import Cause, Counts
from apps.pending.domain.diagnose import diagnose_cluster
from apps.pending.domain.diagnosis import Action
from tests.pending.worlds import AT, GPU, claim, holder, node, only, pod, seen, world

CLASS = "gpu.nvidia.com"
ZERO = "0/1 nodes are available: "


def event(
    reason: str, about: ObservedObject, message: str, *, component: str = "", last: float = AT
) -> ObservedObject:
    body = EventSnapshot(
        *(about.kind.short, about.name, about.uid, reason, message), component=component, last=last
    )
    return seen(ObservedKind.EVENT, f"{about.name}.{reason}.{last}", body)


def job(
    name: str, wanted: int = 2, pods: int = 0, gpus: float = 4, **fields: Any
) -> ObservedObject:
    requests = {GPU: gpus, "cpu": 1.0}
    body = ControllerSnapshot(
        created=AT - 900, wanted=wanted, pods=pods, requests=requests, **fields
    )
    return seen(ObservedKind.JOB, name, body)


def found(state_of: list[ObservedObject], **fields: Any) -> tuple[Cause, str]:
    why = only(world(*state_of, **fields), "p").diagnosis
    return why.cause, why.detail


# ---------------------------------------------------------------- pods on no node


@pytest.mark.parametrize(
    ("sightings", "cause", "detail"),
    [
        pytest.param(
            [pod("p", 1, ZERO + "1 node(s) didn't match pod anti-affinity rules."), node("a")],
            *(Cause.SPREAD, "anti-affinity"),
            id="anti-affinity where there is room",
        ),
        pytest.param(
            [pod("p", 1, ZERO + "1 node(s) didn't match pod topology spread constraints.")],
            *(Cause.SPREAD, "topology-spread"),
            id="spread without nodes",
        ),
        pytest.param(
            [
                pod(
                    "p",
                    1,
                    "0/2 nodes are available: 1 Insufficient nvidia.com/gpu, 1 node(s) "
                    "didn't have free ports for the requested pod ports.",
                ),
                *(node("a"), node("b", 8, 8)),
            ],
            *(Cause.SPREAD, "host-port"),
            id="ports on the only node with room",
        ),
        pytest.param(
            [pod("p", 1, ZERO + "pod has unbound immediate PersistentVolumeClaims."), node("a")],
            *(Cause.VOLUME, "unbound"),
            id="unbound volume",
        ),
        pytest.param(
            [pod("p", 1, ZERO + "1 node(s) had volume node affinity conflict."), node("a")],
            *(Cause.VOLUME, "not available there"),
            id="volume elsewhere",
        ),
        pytest.param(
            [pod("p", 1, ZERO + "1 Insufficient nvidia.com/gpu."), node("a")],
            *(Cause.CAPACITY, "none free"),
            id="text older than the nodes",
        ),
        pytest.param(
            [pod("p", 1, ZERO + "1 Insufficient nvidia.com/gpu.")],
            *(Cause.CAPACITY, "none free"),
            id="capacity by text alone",
        ),
        pytest.param(
            [
                pod(
                    "p",
                    1,
                    "0/3 nodes are available: 1 Insufficient nvidia.com/gpu, 3 Insufficient cpu.",
                )
            ],
            *(Cause.CAPACITY, "cpu short"),
            id="cpu by text alone",
        ),
        pytest.param(
            [
                pod(
                    "p",
                    1,
                    "0/3 nodes are available: 1 node(s) were unschedulable, 2 node(s) had"
                    " untolerated taint {dedicated: llm}.",
                )
            ],
            *(Cause.TAINT, "dedicated=llm"),
            id="taint by text alone",
        ),
        pytest.param(
            [pod("p", 1, ZERO + "1 node(s) were unschedulable.")],
            *(Cause.CORDON, "cordoned"),
            id="cordon by text alone",
        ),
        pytest.param(
            [pod("p", 1, ZERO + "1 node(s) didn't match Pod's node affinity/selector.")],
            *(Cause.AFFINITY, "selector"),
            id="selector by text alone",
        ),
        pytest.param(
            [pod("p", 1, "waiting for minCount pods from a gang to appear in scheduling queue")],
            *(Cause.GANG, "waits for its gang"),
            id="gang by text alone",
        ),
        pytest.param(
            [pod("p", 1, "waiting for the preemption for this pod to be finished")],
            *(Cause.PREEMPTION, "victims terminating"),
            id="asynchronous preemption",
        ),
        pytest.param(
            [pod("p", 1, ZERO + "1 Insufficient nvidia.com/gpu.", nominated_node="a")],
            *(Cause.PREEMPTION, "victims terminating"),
            id="nominated",
        ),
        pytest.param(
            [pod("p", 1, ZERO + "1 strange. persistentvolumeclaim", nominated_node=""), node("a")],
            *(Cause.OTHER, "unknown verdict"),
            id="strange reason",
        ),
        pytest.param(
            [pod("p", 1, '0/7 nodes are available: not so. persistentvolumeclaim "d" not found')],
            *(Cause.VOLUME, "claim missing"),
            id="volume named after the sentence",
        ),
        pytest.param(
            [pod("p", 1, '0/7 nodes: resourceclaim "x" not found')],
            *(Cause.CLAIM, "not allocatable"),
            id="claim in a sentence",
        ),
        pytest.param(
            [pod("p", 0, claims=(ClaimUse("gpu", claim="mine"),)), claim("mine", allocated=AT)],
            *(Cause.SCHEDULER, "not looked at yet"),
            id="claim is there",
        ),
        pytest.param(
            [pod("p", 1, ZERO + "1 waiting for minCount pods from a gang to be scheduled.")],
            *(Cause.GANG, ""),
            id="gang among the reasons",
        ),
        pytest.param([pod("p", 1, "hic sunt dracones")], Cause.OTHER, "", id="strange text"),
        pytest.param(
            [pod("p", 1, gates=("example.com/wait",))],
            *(Cause.QUEUE, "scheduling-gated"),
            id="gate",
        ),
        pytest.param(
            [pod("p", 1, scheduler="elsewhere")],
            *(Cause.SCHEDULER, "no scheduler"),
            id="nobody looks at it",
        ),
        pytest.param(
            [
                pod("p", 1, scheduler="elsewhere"),
                pod("q", 1, ZERO + "1 Insufficient nvidia.com/gpu.", scheduler="elsewhere"),
            ],
            *(Cause.SCHEDULER, "not looked at yet"),
            id="its scheduler is at work",
        ),
        pytest.param(
            [pod("p", 1, scheduled=Condition("PodScheduled", "False", "SchedulerError", "oops"))],
            *(Cause.SCHEDULER, "scheduler error"),
            id="scheduler error",
        ),
        pytest.param(
            [pod("p", 0, ZERO + "request gpu: device class x does not exist.")],
            *(Cause.CLAIM, "class missing"),
            id="class missing",
        ),
        pytest.param(
            [pod("p", 0, ZERO + "1 resourceclaim in use.")],
            *(Cause.CLAIM, "in use"),
            id="claim in use",
        ),
        pytest.param(
            [
                pod("p", 2, ZERO + "1 cannot allocate all claims.", resource=CLASS),
                node("a", more={}, devices={CLASS: 4}, free_devices={CLASS: 1}),
            ],
            *(Cause.CAPACITY, "none free"),
            id="devices all taken",
        ),
        pytest.param(
            [pod("p", 0, claims=(ClaimUse("gpu", claim="mine"),))],
            *(Cause.CLAIM, "missing"),
            id="claim missing",
        ),
        pytest.param(
            [pod("p", 0, claims=(ClaimUse("gpu", template="t"),))],
            *(Cause.CLAIM, "not made from its template"),
            id="claim not made yet",
        ),
    ],
)
def test_a_pod_on_no_node_has_its_cause(
    sightings: list[ObservedObject], cause: Cause, detail: str
) -> None:
    assert found(sightings) == (cause, detail)


def test_the_raw_text_and_what_autoscalers_say_are_kept_word_for_word() -> None:
    waiting = pod("p", 1)
    text = "0/1 nodes are available: 1 Insufficient nvidia.com/gpu."
    karpenter = 'Failed to schedule pod, incompatible with nodepool "gpu", limits exceeded'
    grown = "pod didn't trigger scale-up: 1 max node group size reached"
    why = only(
        world(
            waiting,
            event("FailedScheduling", waiting, karpenter, component="karpenter"),
            event("FailedScheduling", waiting, text, last=AT - 60),
            event("NotTriggerScaleUp", waiting, grown, component="cluster-autoscaler", last=AT - 9),
        )
    ).diagnosis
    assert (why.cause, why.message) == (Cause.CAPACITY, text)
    assert why.context == (f"karpenter: {karpenter}", f"cluster-autoscaler: {grown}")


def test_the_condition_counts_before_the_event() -> None:
    waiting = pod("p", 1, ZERO + "1 node(s) were unschedulable.")
    old = event("FailedScheduling", waiting, ZERO + "1 Insufficient nvidia.com/gpu.")
    assert only(world(waiting, old)).diagnosis.cause is Cause.CORDON


def test_a_claim_that_quota_holds_back_says_by_how_much() -> None:
    waiting = pod("p", 0, claims=(ClaimUse("gpu", template="three"),))
    said = (
        "create ResourceClaim: forbidden: exceeded quota: dra, requested: x/devices=3, used:"
        " x/devices=2, limited: x/devices=4"
    )
    state = world(waiting, event("FailedResourceClaimCreation", waiting, said))
    (step,) = only(state).diagnosis.suggestions
    assert step.action is Action.RAISE_QUOTA
    assert (step.change["from"], step.change["to"]) == (4.0, 5.0)


# ---------------------------------------------------------------- bound pods


@pytest.mark.parametrize(
    ("waits", "reason", "detail", "action"),
    [
        pytest.param(
            [ContainerWait("main", "ImagePullBackOff", "not found")],
            *("", "ImagePullBackOff", Action.MEND_IMAGE),
            id="image",
        ),
        pytest.param(
            [
                ContainerWait("main", "PodInitializing"),
                ContainerWait("init", "ErrImagePull", "", True),
            ],
            *("", "ErrImagePull", Action.MEND_IMAGE),
            id="image of an init container",
        ),
        pytest.param(
            [ContainerWait("main", "CrashLoopBackOff")],
            *("", "CrashLoopBackOff", Action.LOOK_AT_CONTAINER),
            id="crash",
        ),
        pytest.param(
            [ContainerWait("main", "CreateContainerConfigError")],
            *("", "CreateContainerConfigError", Action.LOOK_AT_CONTAINER),
            id="config",
        ),
        pytest.param(
            [ContainerWait("main", "ContainerCreating")],
            *("FailedMount", "volume not mounted", Action.LOOK_AT_NODE),
            id="volume",
        ),
        pytest.param(
            [ContainerWait("main", "ContainerCreating")],
            *("FailedCreatePodSandBox", "no sandbox", Action.LOOK_AT_NODE),
            id="sandbox",
        ),
        pytest.param(
            [ContainerWait("main", "ContainerCreating")],
            *("", "ContainerCreating", Action.WAIT),
            id="creating",
        ),
        pytest.param(
            [ContainerWait("main", "PodInitializing")], "", "initializing", Action.WAIT, id="init"
        ),
        pytest.param([], "", "bound", Action.WAIT, id="nothing said"),
    ],
)
def test_a_bound_pod_is_starting_and_says_what_holds_it(
    waits: list[ContainerWait], reason: str, detail: str, action: Action
) -> None:
    waiting = pod("p", 1, node="a", bound=AT - 60, waiting=tuple(waits))
    events = [event(reason, waiting, "said")] if reason else []
    one = only(world(waiting, *events))
    assert (one.diagnosis.cause, one.diagnosis.detail) == (Cause.STARTING, detail)
    assert (one.counts, one.bound, one.node) == (Counts.STARTING, AT - 60, "a")
    assert [step.action for step in one.diagnosis.suggestions] == [action]


@pytest.mark.parametrize(
    "fields", [{"phase": "Succeeded"}, {"phase": "Failed", "reason": "Evicted"}, {"deleting": AT}]
)
def test_what_is_over_or_being_deleted_does_not_wait(fields: dict[str, Any]) -> None:
    assert diagnose_cluster(world(pod("p", 1, **fields))) == []


# ---------------------------------------------------------------- refused work

REFUSED = (
    'Error creating: pods "x" is forbidden: exceeded quota: gpus, requested:'
    " requests.nvidia.com/gpu=4, used: requests.nvidia.com/gpu=6, limited:"
    " requests.nvidia.com/gpu=8"
)


def quota(name: str, hard: float, used: float, **fields: Any) -> ObservedObject:
    key = f"requests.{GPU}"
    body = QuotaSnapshot(hard={key: hard}, observed_hard={key: hard}, used={key: used}, **fields)
    return seen(ObservedKind.RESOURCE_QUOTA, name, body)


def test_refused_pods_wait_with_their_controller_and_the_quotas_that_block() -> None:
    one = job("train", wanted=3, pods=1)
    unscoped = [quota("gpus", 8, 6), quota("all", 10, 6), quota("wide", 100, 6)]
    scoped = quota("urgent", 1, 1, scopes=(QuotaScope("PriorityClass", "In", ("urgent",)),))
    waiting = only(world(one, event("FailedCreate", one, REFUSED), *unscoped, scoped))
    assert (waiting.kind, waiting.counts, waiting.requests) == (
        "Job",
        Counts.SUPPRESSED,
        {GPU: 8.0},
    )
    assert (waiting.diagnosis.cause, waiting.diagnosis.message) == (Cause.QUOTA, REFUSED)
    changes = [dict(step.change) for step in waiting.diagnosis.suggestions]
    assert [(c["quota"], c["from"], c["to"]) for c in changes] == [
        ("all", 10.0, 14.0),
        ("gpus", 8.0, 14.0),
    ]
    assert waiting.diagnosis.suggestions[1].text.startswith("Also needed: ")


def test_without_the_quota_the_refusal_itself_tells_how_much() -> None:
    failure = Condition("ReplicaFailure", "True", "FailedCreate", REFUSED, AT - 60)
    one = job("train", wanted=2, conditions=(failure,))
    waiting = only(world(one))
    assert waiting.since == AT - 60
    (step,) = waiting.diagnosis.suggestions
    assert (step.change["quota"], step.change["to"]) == ("gpus", 14.0)


def test_a_full_quota_explains_missing_pods_after_the_events_are_gone() -> None:
    assert only(world(job("train"), quota("gpus", 8, 8))).diagnosis.cause is Cause.QUOTA


def test_missing_pods_that_nothing_refused_do_not_wait() -> None:
    assert diagnose_cluster(world(job("train"), quota("gpus", 80, 8))) == []
    assert diagnose_cluster(world(job("done", wanted=2, pods=2), quota("gpus", 1, 1))) == []


@pytest.mark.parametrize(
    ("message", "actions"),
    [
        ("failed quota: q: must specify limits.cpu", [Action.SPECIFY]),
        ("denied by a webhook", []),
    ],
)
def test_what_admission_refuses_otherwise_is_admission(message: str, actions: list[Action]) -> None:
    one = job("train")
    why = only(world(one, event("FailedCreate", one, message))).diagnosis
    assert why.cause is Cause.ADMISSION
    assert [step.action for step in why.suggestions] == actions


def test_a_suspended_job_waits_to_be_resumed_or_for_its_queue() -> None:
    assert only(world(job("j", suspended=True))).diagnosis.cause is Cause.ADMISSION
    assert only(world(job("j", suspended=True, queue="main"))).diagnosis.cause is Cause.QUEUE


# ---------------------------------------------------------------- turned away by a kubelet

OUT_OF = (
    "Pod was rejected: Node didn't have enough resource: nvidia.com/gpu, requested: 4, used: 6,"
    " capacity: 8"
)


def turned_away(name: str, **fields: Any) -> ObservedObject:
    values: dict[str, Any] = {"phase": "Failed", "node": "a", "bound": AT - 60}
    values["reason"] = "OutOfnvidia.com/gpu"
    one = pod(name, 4, **(values | fields))
    assert isinstance(one.body, PodSnapshot)
    return replace(one, body=replace(one.body, message=OUT_OF))


def test_pods_that_a_kubelet_turned_away_wait_as_one_with_their_controller() -> None:
    one = job("train", wanted=3, pods=1)
    pods = [turned_away(f"t{i}", controller=one.uid) for i in range(5)]
    again = pod("t9", 4, ZERO + "1 Insufficient nvidia.com/gpu.", controller=one.uid)
    waiting = only(world(one, *pods, again), "train")
    assert (waiting.kind, waiting.uid, waiting.diagnosis.cause) == ("Job", one.uid, Cause.ADMISSION)
    assert waiting.requests == {GPU: 12.0}
    assert (waiting.counts, round(waiting.share * 12)) == (Counts.SUPPRESSED, 8)
    assert dict(waiting.diagnosis.suggestions[0].change) == {
        "resource": GPU,
        "amount": 2.0,
        "nodes": ["a"],
    }


def test_a_controller_with_all_its_pods_running_no_longer_waits() -> None:
    one = job("train", wanted=2, pods=2)
    assert diagnose_cluster(world(one, turned_away("t", controller=one.uid))) == []


@pytest.mark.parametrize("controller", ["", "unseen"])
def test_what_nobody_makes_again_adds_to_nothing(controller: str) -> None:
    fields = {"controller": controller, "controller_kind": "Job" if controller else ""}
    (waiting,) = diagnose_cluster(world(turned_away("t", **fields)))
    assert (waiting.counts, waiting.share) == (Counts.NOTHING, 0.0)


def test_a_controller_is_said_once_when_both_quota_and_kubelet_refused() -> None:
    one = job("train", wanted=3, pods=1)
    away = turned_away("t", controller=one.uid)
    waiting = only(world(one, away, event("FailedCreate", one, REFUSED)))
    assert waiting.diagnosis.cause is Cause.QUOTA


# ---------------------------------------------------------------- gangs


def group(
    name: str, kind: ObservedKind = ObservedKind.VOLCANO_POD_GROUP, **fields: Any
) -> ObservedObject:
    values: dict[str, Any] = {"created": AT - 600, "min_member": 4, "requests": {GPU: 16.0}}
    return seen(kind, name, PodGroupSnapshot(**(values | fields)))


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


# ---------------------------------------------------------------- counted once


@settings(max_examples=60, deadline=None)
@given(
    members=st.integers(1, 6),
    there=st.integers(0, 6),
    gpus=st.sampled_from([1.0, 2.0, 8.0]),
    refused=st.booleans(),
)
def test_a_gang_its_pods_and_its_controller_count_once(
    members: int, there: int, gpus: float, *, refused: bool
) -> None:
    there = min(there, members)
    owner: dict[str, Any] = {"owner_kind": "Job", "owner": "j"}
    pods = [pod(f"w{i}", gpus, "x", group="g", **owner) for i in range(there)]
    gang = group("g", phase="Inqueue", min_member=members, requests={GPU: members * gpus}, **owner)
    maker = job("j", wanted=members, pods=there, gpus=gpus)
    events = [event("FailedCreate", maker, REFUSED)] if refused else []
    total = sum(
        w.requests.get(GPU, 0.0) * w.share
        for w in diagnose_cluster(world(gang, maker, *pods, *events))
    )
    assert total == pytest.approx(members * gpus)


# ---------------------------------------------------------------- many


def test_five_thousand_pods_on_two_thousand_nodes_take_less_than_three_seconds() -> None:
    taint = (Taint("dedicated", "x", "NoSchedule"),)
    nodes = [
        node(
            f"n{i}",
            8,
            5 + i % 4,
            labels={"pool": f"p{i % 7}"},
            taints=taint if i % 9 == 0 else (),
            unschedulable=i % 31 == 0,
        )
        for i in range(2000)
    ]
    message = "0/2000 nodes are available: 2000 Insufficient nvidia.com/gpu."
    # Half of them share a shape; each of the others is of its own.
    pods = [
        pod(f"w{i}", 4 + i % 5, message, cpu=4 + i % 2 * i / 100, select={"pool": f"p{i % 7}"})
        for i in range(5000)
    ]
    state = world(*nodes, *pods, holders=[holder(f"h{i}", f"n{i % 2000}", 1) for i in range(9000)])
    began = process_time()
    assert len(diagnose_cluster(state)) == 5000
    assert process_time() - began < 3.0


# ---------------------------------------------------------------- anything

TEXTS = st.sampled_from(
    [
        *(
            "",
            "p",
            "Failed",
            "Pending",
            "OutOfx",
            "True",
            "False",
            "Unschedulable",
            "QuotaReserved",
        ),
        *("0/1 nodes are available: 1 Insufficient x.", "nvidia.com/gpu", "FailedCreate", "Exists"),
        "exceeded quota: p, requested: pods=1, used: pods=1, limited: pods=1",
    ]
)
AMOUNTS = st.floats(-10, 1e6, allow_nan=False)
PLAIN: dict[Any, st.SearchStrategy[Any]] = {
    str: TEXTS,
    float: AMOUNTS,
    int: st.integers(-3, 9),
    bool: st.booleans(),
    type(None): st.none(),
}


def anything(of: Any) -> st.SearchStrategy[Any]:
    """Return values of a type of the sightings: few texts, so that they refer to each other."""
    if of in PLAIN:
        return PLAIN[of]
    if isinstance(of, type) and is_dataclass(of):
        hints = get_type_hints(of)
        return st.builds(of, **{one.name: anything(hints[one.name]) for one in fields(of)})
    parts = get_args(of)
    if get_origin(of) is tuple:
        return st.lists(anything(parts[0]), max_size=2).map(tuple)
    if get_origin(of) is Mapping:
        return st.dictionaries(anything(parts[0]), anything(parts[1]), max_size=2)
    return st.one_of([anything(part) for part in parts])


OF_KIND = {kind: anything(body) for kind, body in BODIES.items()}


@st.composite
def any_sighting(draw: st.DrawFn) -> ObservedObject:
    kind = draw(st.sampled_from(list(ObservedKind)))
    return seen(kind, draw(TEXTS), draw(OF_KIND[kind]), namespace="n", uid=draw(TEXTS))


@settings(max_examples=200, deadline=None)
@given(st.lists(any_sighting(), max_size=8))
def test_nothing_that_can_be_seen_makes_it_fail(sightings: list[ObservedObject]) -> None:
    for waiting in diagnose_cluster(world(*sightings, holders=[holder("h", "p", 1)])):
        assert waiting.diagnosis.cause in Cause
        assert 0.0 <= waiting.share <= 1.0 + 1e-9
        assert isinstance(waiting.requests, dict)


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


def test_a_refusal_by_a_kubelet_with_odd_figures_is_looked_into_on_the_node() -> None:
    one = turned_away("t")
    assert isinstance(one.body, PodSnapshot)
    odd = OUT_OF.replace("used: 6", "used: 1")
    waiting = only(world(replace(one, body=replace(one.body, message=odd))))
    assert waiting.diagnosis.suggestions[0].action is Action.LOOK_AT_NODE


def test_a_gang_whose_pods_may_go_nowhere_is_told_so_first() -> None:
    pods = [pod(f"w{i}", 4, "x", group="g", select={"pool": "no"}) for i in range(4)]
    why = only(world(group("g", phase="Inqueue"), *pods, node("a")), "g").diagnosis
    assert [one.action for one in why.suggestions] == [Action.SELECT, Action.COMPLETE_GANG]
    assert "No node matches its node selector" in why.explanation


def test_a_quota_of_pods_counts_each_pod_as_one() -> None:
    body = QuotaSnapshot(hard={"pods": 5.0}, used={"pods": 4.0})
    waiting = only(world(job("train", wanted=3), seen(ObservedKind.RESOURCE_QUOTA, "few", body)))
    (step,) = waiting.diagnosis.suggestions
    assert (step.change["key"], step.change["to"]) == ("pods", 7.0)
