"""Every kind of waiting thing, its cause, and that its GPUs count once."""

from typing import Any

import pytest

from apps.clusters.domain.observed.objects import ClaimUse, Condition, ContainerWait, ObservedObject
from apps.pending.domain.diagnose import diagnose_cluster
from apps.pending.domain.diagnosis import Action, Cause, Counts
from tests.pending.cluster_states import AT, claim, node, only, pod, world
from tests.pending.pending_objects import CLASS, ZERO, event


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
            *(Cause.GANG, "gang incomplete"),
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
            *("", "ImagePullBackOff", Action.FIX_IMAGE),
            id="image",
        ),
        pytest.param(
            [
                ContainerWait("main", "PodInitializing"),
                ContainerWait("init", "ErrImagePull", "", True),
            ],
            *("", "ErrImagePull", Action.FIX_IMAGE),
            id="image of an init container",
        ),
        pytest.param(
            [ContainerWait("main", "CrashLoopBackOff")],
            *("", "CrashLoopBackOff", Action.CHECK_CONTAINER),
            id="crash",
        ),
        pytest.param(
            [ContainerWait("main", "CreateContainerConfigError")],
            *("", "CreateContainerConfigError", Action.CHECK_CONTAINER),
            id="config",
        ),
        pytest.param(
            [ContainerWait("main", "ContainerCreating")],
            *("FailedMount", "volume not mounted", Action.CHECK_NODE),
            id="volume",
        ),
        pytest.param(
            [ContainerWait("main", "ContainerCreating")],
            *("FailedCreatePodSandBox", "no sandbox", Action.CHECK_NODE),
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
