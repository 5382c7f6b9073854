"""Each suggestion is enough: carried out, the pod starts."""

from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from apps.accounts.domain.structs import replace
from apps.clusters.domain.observed.objects import (
    ControllerSnapshot,
    EventSnapshot,
    Expression,
    NodeSnapshot,
    ObservedKind,
    ObservedObject,
    Placement,
    PodSnapshot,
    QuotaSnapshot,
    Taint,
    Toleration,
)
from apps.pending.domain.diagnose import diagnose_cluster
from apps.pending.domain.diagnosis import Action, BoundPod, Cause, ClusterState
from tests.pending.bound import applied, in_turn, nodes_of, starts_on
from tests.pending.cluster_states import (
    AT,
    GPU,
    KUBE_LISTS,
    holder,
    node,
    only,
    pod,
    recorded,
    seen,
    world,
)

NO_NODE = "0/3 nodes are available: 3 Insufficient nvidia.com/gpu. preemption: not eligible due to"
H100 = {"nvidia.com/gpu.product": "H100"}
A100 = {"nvidia.com/gpu.product": "A100"}
LLM = Taint("dedicated", "llm", "NoSchedule")
MIG = "nvidia.com/mig-2g.20gb"


def assert_enough(waiting: ObservedObject, state: ClusterState) -> None:
    """Carry out each suggestion in its own copy of the world; the pod must start each time."""
    body, nodes = waiting.body, nodes_of(state.of(ObservedKind.NODE))
    assert isinstance(body, PodSnapshot)
    assert not starts_on(body, nodes)
    found = next(one for one in diagnose_cluster(state) if one.uid == waiting.uid)
    groups = in_turn(found.diagnosis.suggestions)
    assert groups
    for group in groups:
        asked, there = body, nodes
        for step in group:
            asked, there = applied(step, asked, there)
        assert starts_on(asked, there), [step.text for step in group]


@pytest.mark.parametrize(
    ("waiting", "nodes", "cause", "detail", "action", "change"),
    [
        pytest.param(
            pod("p", 8, NO_NODE),
            [node("a", 8, 3), node("b", 8, 6), node("c", 4, 0)],
            *(Cause.CAPACITY, "none free", Action.FREE),
            {"resource": GPU, "amount": 3.0, "nodes": ["a"]},
            id="none free: the smallest number on the emptiest node",
        ),
        pytest.param(
            pod("p", 8, NO_NODE),
            [node("a", 8, 3), node("b", 8, 2), node("c", 8, 8)],
            *(Cause.CAPACITY, "fragmented", Action.FREE),
            {"resource": GPU, "amount": 2.0, "nodes": ["b"]},
            id="fragmented: enough in all, on no single node",
        ),
        pytest.param(
            pod("p", 2, NO_NODE),
            [node("a", 8, 8), node("b", 8, 8)],
            *(Cause.CAPACITY, "none free", Action.FREE),
            {"resource": GPU, "amount": 2.0, "nodes": ["a", "b"]},
            id="none free: any one of equal nodes",
        ),
        pytest.param(
            pod("p", 3, NO_NODE, resource=MIG),
            [node("a", 2, resource=MIG)],
            *(Cause.CAPACITY, "none offered", Action.REQUEST),
            {"resource": MIG, "from": 3.0, "to": 2.0},
            id="none offered: more than any node has",
        ),
        pytest.param(
            pod("p", 1, NO_NODE, resource=MIG),
            [node("a", 8, 8)],
            *(Cause.CAPACITY, "none offered", Action.ADD_NODE),
            {"resource": MIG, "amount": 1.0},
            id="none offered: a resource that nobody has",
        ),
        pytest.param(
            pod("p", 1, NO_NODE, cpu=500),
            [node("a", 8, 3, cpu_used=20)],
            *(Cause.CAPACITY, "cpu short", Action.REQUEST),
            {"resource": "cpu", "from": 500, "to": 76.0},
            id="cpu: more than any node has",
        ),
        pytest.param(
            pod("p", 1, NO_NODE, cpu=50),
            [node("a", 8, 3, cpu_used=60), node("b", 8, 8)],
            *(Cause.CAPACITY, "cpu short", Action.FREE),
            {"resource": "cpu", "amount": 14.0, "nodes": ["a"]},
            id="cpu: GPUs are free where CPU is not",
        ),
        pytest.param(
            pod("p", 1, NO_NODE, select=A100),
            [node("a", labels=H100)],
            *(Cause.AFFINITY, "selector", Action.SELECT),
            {"remove": A100, "add": H100, "nodes": ["a"]},
            id="selector: the label value that a node with room has",
        ),
        pytest.param(
            pod("p", 1, NO_NODE, select={"zone": "x"}),
            [node("a")],
            *(Cause.AFFINITY, "selector", Action.SELECT),
            {"remove": {"zone": "x"}, "nodes": ["a"]},
            id="selector: a label that no node has",
        ),
        pytest.param(
            pod("p", 1, NO_NODE, select=H100),
            [node("a", labels=H100, taints=(LLM,)), node("b", labels=A100)],
            *(Cause.TAINT, "untolerated", Action.TOLERATE),
            {"key": "dedicated", "value": "llm", "effect": "NoSchedule", "nodes": ["a"]},
            id="taint",
        ),
        pytest.param(
            pod("p", 1, NO_NODE, select=H100),
            [node("a", labels=H100, unschedulable=True), node("b", labels=A100)],
            *(Cause.CORDON, "cordoned", Action.UNCORDON),
            {"nodes": ["a"]},
            id="cordon",
        ),
        pytest.param(
            pod("p", 1, NO_NODE),
            [node("a", ready=False)],
            *(Cause.TAINT, "node not ready", Action.CHECK_NODE),
            {"nodes": ["a"], "reason": "not-ready"},
            id="node not ready",
        ),
    ],
)
def test_the_cause_comes_with_the_smallest_change_that_is_enough(
    waiting: ObservedObject,
    nodes: list[ObservedObject],
    cause: Cause,
    detail: str,
    action: Action,
    change: dict[str, Any],
) -> None:
    state = world(waiting, *nodes)
    found = only(state).diagnosis
    assert (found.cause, found.detail) == (cause, detail)
    assert (found.suggestions[0].action, dict(found.suggestions[0].change)) == (action, change)
    assert_enough(waiting, state)


@pytest.mark.parametrize(
    ("waiting", "nodes", "action", "change"),
    [
        pytest.param(
            pod("p", 8, NO_NODE),
            [node("a", 8, 3)],
            Action.REQUEST,
            {"resource": GPU, "from": 8.0, "to": 5.0},
            id="as many as are free",
        ),
        pytest.param(
            pod("p", 1, NO_NODE),
            [node("a", 8, 8, more={MIG: 3.0})],
            Action.REQUEST,
            {"resource": GPU, "from": 1.0, "to": 1.0, "instead": MIG},
            id="a slice that is free",
        ),
        pytest.param(
            pod("p", 1, NO_NODE),
            [node("a", 8, 8), node("b", taints=(LLM,)), node("c", taints=(LLM,))],
            Action.TOLERATE,
            {"key": "dedicated", "value": "llm", "effect": "NoSchedule", "nodes": ["b", "c"]},
            id="tainted nodes with room",
        ),
        pytest.param(
            pod("p", 1, NO_NODE),
            [node("a", 8, 8), node("b", unschedulable=True)],
            Action.UNCORDON,
            {"nodes": ["b"]},
            id="cordoned nodes with room",
        ),
        pytest.param(
            pod("p", 1, NO_NODE, select=H100),
            [node("a", 8, 8, labels=H100), node("b", labels=A100)],
            Action.SELECT,
            {"remove": H100, "add": A100, "nodes": ["b"]},
            id="room on other nodes",
        ),
    ],
)
def test_what_would_do_as_well_comes_after(
    waiting: ObservedObject, nodes: list[ObservedObject], action: Action, change: dict[str, Any]
) -> None:
    state = world(waiting, *nodes)
    found = only(state).diagnosis.suggestions
    assert found[0].action is Action.FREE
    assert [dict(one.change) for one in found[1:] if one.action is action] == [change]
    assert_enough(waiting, state)


A10 = {"nvidia.com/gpu.product": "NVIDIA-A10", "nvidia.com/gpu.memory": "23028"}
T4 = {"nvidia.com/gpu.product": "Tesla-T4", "nvidia.com/gpu.memory": "15360"}
T4_SHARED = {
    "nvidia.com/gpu.product": "Tesla-T4-SHARED",
    "nvidia.com/gpu.replicas": "4",
    "nvidia.com/gpu.sharing-strategy": "time-slicing",
}


@pytest.mark.parametrize(
    ("mine", "there", "told"),
    [
        pytest.param(A10, T4_SHARED, False, id="replicas are no GPUs"),
        pytest.param(A10, T4, False, id="less memory"),
        pytest.param(A10, {"nvidia.com/gpu.product": "A100-MIG-1g.5gb"}, False, id="slices"),
        pytest.param(T4, A10, True, id="larger"),
        pytest.param(T4_SHARED, T4_SHARED, True, id="shared as before"),
        pytest.param(T4_SHARED, A10, True, id="a whole GPU instead of a share"),
    ],
)
def test_nobody_is_told_to_take_less_gpu_than_they_ask_for(
    mine: dict[str, str], there: dict[str, str], told: bool
) -> None:
    full = node("a", 8, 8, labels={**mine, "pool": "mine"})
    waiting = pod("p", 2, NO_NODE, select={"pool": "mine"})
    state = world(waiting, full, node("b", 8, labels={**there, "pool": "other"}))
    found = only(state).diagnosis.suggestions
    assert any(step.action is Action.SELECT for step in found) is told
    assert_enough(waiting, state)


def test_no_shared_gpu_stands_for_a_model_that_no_node_has() -> None:
    waiting = pod("p", 2, NO_NODE, select={"nvidia.com/gpu.product": "NVIDIA-A10"})
    state = world(waiting, node("b", 8, labels=T4_SHARED))
    assert [one.action for one in only(state).diagnosis.suggestions] == [Action.ADD_NODE]
    assert_enough(waiting, state)


def test_two_obstacles_are_both_named() -> None:
    waiting = pod("p", 2, NO_NODE, select=H100)
    state = world(waiting, node("a", 8, 7, labels=H100, taints=(LLM,)))
    first, second = only(state).diagnosis.suggestions
    assert (first.action, second.action) == (Action.TOLERATE, Action.FREE)
    assert second.text.startswith("Also needed: ")
    assert_enough(waiting, state)


def test_a_node_with_two_taints_is_not_opened_by_one_toleration() -> None:
    both = (LLM, Taint("gpu", "", "NoExecute"))
    state = world(pod("p", 1, NO_NODE), node("a", 8, 8), node("b", taints=both))
    found = only(state).diagnosis.suggestions
    assert [one.action for one in found] == [Action.FREE]


def test_who_holds_is_for_machines_alone_and_never_in_words() -> None:
    state = world(pod("p", 8, NO_NODE), node("a", 8, 8), holders=[holder("secret", "a", 8)])
    why = only(state).diagnosis
    assert why.suggestions[0].change["holders"] == ["others/secret"]
    words = [why.explanation, why.detail, *why.context, *(step.text for step in why.suggestions)]
    assert not any("others" in text or "secret" in text for text in words)


@pytest.mark.parametrize(
    "key",
    [
        "ToBeDeletedByClusterAutoscaler",
        "DeletionCandidateOfClusterAutoscaler",
        "karpenter.sh/disrupted",
        "aws-node-termination-handler/spot-itn",
        "cloud.google.com/impending-node-termination",
        "node.cilium.io/agent-not-ready",
        "node.kubernetes.io/unreachable",
    ],
)
def test_nobody_is_told_to_tolerate_that_a_node_is_about_to_go(key: str) -> None:
    leaving = node("a", 8, 0, taints=(Taint(key, "", "NoSchedule"),))
    steps = only(world(pod("p", 1, NO_NODE), leaving)).diagnosis.suggestions
    assert [step.action for step in steps] == [Action.CHECK_NODE]


@pytest.mark.parametrize(
    ("holders", "named"),
    [
        pytest.param([holder("x", "a", 8)], ["others/x"], id="one that holds enough"),
        pytest.param(
            [holder("x", "a", 4), holder("y", "a", 4, running=False)],
            ["others/y"],
            id="one that does not run",
        ),
        pytest.param(
            [holder(n, "a", 1) for n in "xyz"],
            ["others/x", "others/y", "others/z"],
            id="several together",
        ),
        pytest.param([holder("x", "a", 1)], None, id="not enough known"),
    ],
)
def test_holders_are_named_only_when_they_are_enough(
    holders: list[Any], named: list[str] | None
) -> None:
    state = world(pod("p", 8, NO_NODE), node("a", 8, 3), holders=holders)
    assert only(state).diagnosis.suggestions[0].change.get("holders") == named


def mine(name: str, on: str, gpus: float, **fields: Any) -> BoundPod:
    """Return a pod of the Job `ddp` that holds GPUs."""
    return replace(holder(name, on, gpus, **fields), namespace="team", owner_kind="Job")


@pytest.mark.parametrize(
    ("holders", "change"),
    [
        pytest.param(
            [mine("ddp-1", "a", 2), holder("x", "a", 6), holder("y", "b", 8)],
            {"resource": GPU, "amount": 4.0, "nodes": ["a", "b"], "holders": ["others/x"]},
            id="what others hold beside it",
        ),
        pytest.param(
            [mine("ddp-1", "a", 8), holder("y", "b", 8)],
            {"resource": GPU, "amount": 4.0, "nodes": ["b"], "holders": ["others/y"]},
            id="another node, where its own hold all",
        ),
        pytest.param(
            [mine("ddp-1", "a", 8), mine("ddp-2", "b", 6), holder("y", "b", 2)],
            {"resource": GPU, "amount": 4.0},
            id="a new node, where its own hold too much of every one",
        ),
        pytest.param(
            [replace(mine("ddp-1", "a", 8, group="g"), owner="other"), holder("y", "b", 8)],
            {"resource": GPU, "amount": 4.0, "nodes": ["b"], "holders": ["others/y"]},
            id="pods of its group are its own",
        ),
    ],
)
def test_no_job_is_asked_to_let_go_of_its_own_pods(
    holders: list[BoundPod], change: dict[str, Any]
) -> None:
    held = [one if one.owner != one.name else replace(one, owner="ddp") for one in holders]
    held = [h if h.namespace == "team" else replace(h, owner=h.name) for h in held]
    waiting = pod("ddp-9", 4, NO_NODE, owner_kind="Job", owner="ddp", group="g")
    state = world(waiting, node("a", 8, 8), node("b", 8, 8), holders=held)
    assert dict(only(state).diagnosis.suggestions[0].change) == change


def test_the_node_that_misses_one_label_alone_comes_before_those_that_miss_more() -> None:
    near = node("z", labels={"rack": "r9", "memory": "23028"})
    far = [node(n, labels={"rack": "r6", "memory": "23028"}) for n in "ab"]
    large = Placement({"rack": "r9"}, ((Expression("memory", "Gt", ("100000",)),),))
    waiting = pod("p", 1, NO_NODE, placement=large)
    state = world(waiting, *far, near)
    step = only(state).diagnosis.suggestions[0]
    assert step.change == {
        "remove": ["memory Gt 100000"],
        "add": {"memory": "23028"},
        "nodes": ["z"],
    }
    assert_enough(waiting, state)


@pytest.mark.parametrize(
    ("nodes", "text", "cause", "names"),
    [
        pytest.param(
            [node("a"), node("b", labels=A100)],
            "2 node(s) didn't match Pod's node affinity/selector, 1 node(s) had a bad day",
            *(Cause.OTHER, ["a"]),
            id="what fits was refused in words nobody knows",
        ),
        pytest.param(
            [node("a", 8, 8)],
            "2 Insufficient nvidia.com/gpu, 1 node(s) had a bad day",
            *(Cause.CAPACITY, ["a"]),
            id="nothing fits: the words do not matter",
        ),
        pytest.param(
            [node("a"), node("b"), node("c")],
            "1 Insufficient nvidia.com/gpu, 1 node(s) had a bad day",
            *(Cause.CAPACITY, None),
            id="more fit than were refused so: the text is from before",
        ),
    ],
)
def test_words_that_nobody_knows_are_looked_into_where_it_would_fit(
    nodes: list[ObservedObject], text: str, cause: Cause, names: list[str] | None
) -> None:
    kept = [
        replace(n, body=replace(n.body, labels={**n.body.labels, "x": "y"}))
        if isinstance(n.body, NodeSnapshot) and n.name != "b"
        else n
        for n in nodes
    ]
    message = f"0/3 nodes are available: {text}."
    why = only(world(pod("p", 2, message, select={"x": "y"}), *kept)).diagnosis
    assert (why.cause, why.message) == (cause, message)
    assert why.suggestions[0].change.get("nodes") == names


@pytest.mark.parametrize(
    ("reason", "message", "change", "said"),
    [
        pytest.param(
            "FailedMount",
            'MountVolume.SetUp failed for volume "data" : rpc error: code = DeadlineExceeded '
            "desc = context deadline exceeded",
            {"node": "a", "what": "volume not mounted", "volume": "data"},
            "context deadline exceeded",
            id="a volume",
        ),
        pytest.param(
            "FailedMount",
            'MountVolume.SetUp failed for volume "settings" : configmap "train" not found',
            {"node": "a", "what": "volume not mounted", "volume": "settings"},
            'configmap "train" not found',
            id="what it is made from is not there",
        ),
        pytest.param(
            "FailedAttachVolume",
            'AttachVolume.Attach failed for volume "pvc-1" : timed out',
            {"node": "a", "what": "volume not attached", "volume": "pvc-1"},
            "timed out",
            id="not attached",
        ),
        pytest.param(
            "FailedMount",
            "Unable to attach or mount volumes: unmounted volumes=[data], unattached volumes=[]: "
            "timed out waiting for the condition",
            {"node": "a", "what": "volume not mounted", "volume": "data"},
            "timed out waiting for the condition",
            id="as older kubelets say it",
        ),
        pytest.param(
            "FailedMount",
            'MountVolume.MountDevice failed for volume "pvc-1" : kubernetes.io/csi: driver name '
            "nfs.csi.k8s.io not found in the list of registered CSI drivers",
            {
                "node": "a",
                "what": "volume not mounted",
                "volume": "pvc-1",
                "driver": "nfs.csi.k8s.io",
            },
            "driver nfs.csi.k8s.io",
            id="a driver",
        ),
    ],
)
def test_a_volume_that_is_not_mounted_is_named_with_what_keeps_it(
    reason: str, message: str, change: dict[str, str], said: str
) -> None:
    waiting = pod("p", 1, node="a", bound=AT - 60)
    told = EventSnapshot("Pod", "p", waiting.uid, reason, message, last=AT - 30)
    (step,) = only(world(waiting, seen(ObservedKind.EVENT, "e", told))).diagnosis.suggestions
    assert (step.action, dict(step.change)) == (Action.FIX_VOLUME, change)
    assert said in step.text


def test_a_quota_that_refused_several_is_raised_for_all_of_them() -> None:
    key = f"requests.{GPU}"
    limits = QuotaSnapshot(hard={key: 4.0}, observed_hard={key: 4.0}, used={key: 4.0})
    refusal = (
        f'pods "x" is forbidden: exceeded quota: gpus, requested: {key}=2, used: {key}=4, '
        f"limited: {key}=4"
    )
    jobs = [
        seen(ObservedKind.JOB, name, ControllerSnapshot(AT - 900, wanted, 0, requests={GPU: 2.0}))
        for name, wanted in (("one", 1), ("two", 3))
    ]
    events = [
        EventSnapshot("Job", one.name, one.uid, "FailedCreate", refusal, last=AT - 9)
        for one in jobs
    ]
    state = world(
        *jobs,
        *(seen(ObservedKind.EVENT, f"e{i}", one) for i, one in enumerate(events)),
        seen(ObservedKind.RESOURCE_QUOTA, "gpus", limits),
    )
    steps = {w.name: w.diagnosis.suggestions[0] for w in diagnose_cluster(state)}
    assert {name: step.change["to"] for name, step in steps.items()} == {"one": 12.0, "two": 12.0}
    assert "8 nvidia.com/gpu more, 6 of it for others" in steps["one"].text


RECORDED = recorded("kube-1.36.2", KUBE_LISTS)
BY_NODES = (Cause.CAPACITY, Cause.AFFINITY, Cause.TAINT, Cause.CORDON)


@pytest.mark.parametrize(
    "uid",
    [
        w.uid
        for w in diagnose_cluster(RECORDED)
        if w.kind == "Pod" and w.diagnosis.cause in BY_NODES
    ],
)
def test_suggestions_for_recorded_pods_are_enough(uid: str) -> None:
    assert_enough(next(one for one in RECORDED.of(ObservedKind.POD) if one.uid == uid), RECORDED)


# ---------------------------------------------------------------- any cluster

KEYS = st.sampled_from(["pool", "zone"])
VALUES = st.sampled_from(["1", "2", "30"])
TAINTS = st.sampled_from(
    [
        LLM,
        Taint("gpu", "", "NoExecute"),
        Taint("soft", "", "PreferNoSchedule"),
        Taint("node.kubernetes.io/disk-pressure", "", "NoSchedule"),
    ]
)
EXPRESSIONS = st.builds(
    Expression,
    key=KEYS,
    operator=st.sampled_from(["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"]),
    values=VALUES.map(lambda value: (value,)),
)
TOLERATIONS = st.builds(
    Toleration,
    key=st.sampled_from(["dedicated", "gpu", ""]),
    operator=st.sampled_from(["Equal", "Exists"]),
    value=st.sampled_from(["llm", ""]),
    effect=st.sampled_from(["", "NoSchedule", "NoExecute"]),
)
PLACEMENTS = st.builds(
    Placement,
    node_selector=st.dictionaries(KEYS, VALUES, max_size=2),
    affinity=st.lists(st.lists(EXPRESSIONS, min_size=1, max_size=2).map(tuple), max_size=2).map(
        tuple
    ),
    tolerations=st.lists(TOLERATIONS, max_size=2).map(tuple),
)


@st.composite
def any_node(draw: st.DrawFn) -> NodeSnapshot:
    size = {"cpu": 96.0, "memory": 1e12, "pods": 10.0}
    size |= draw(st.dictionaries(st.sampled_from([GPU, MIG]), st.sampled_from([1.0, 4.0, 8.0])))
    used = {
        r: float(draw(st.integers(0, int(units)))) for r, units in size.items() if r != "memory"
    }
    return NodeSnapshot(
        labels=draw(st.dictionaries(KEYS, VALUES)),
        taints=tuple(draw(st.lists(TAINTS, max_size=2, unique=True))),
        allocatable=size,
        used=used,
        ready=draw(st.sampled_from([True, True, False])),
        unschedulable=draw(st.booleans()),
    )


@st.composite
def any_pod(draw: st.DrawFn) -> PodSnapshot:
    cpu = float(draw(st.sampled_from([1, 40, 200])))
    amount = float(draw(st.sampled_from([1, 2, 8, 16])))
    one = pod("p", amount, NO_NODE, resource=draw(st.sampled_from([GPU, MIG])), cpu=cpu)
    assert isinstance(one.body, PodSnapshot)
    body = one.body
    return PodSnapshot(
        created=body.created,
        phase="Pending",
        scheduled=body.scheduled,
        requests=body.requests,
        placement=draw(PLACEMENTS),
    )


@given(body=any_pod(), nodes=st.lists(any_node(), min_size=1, max_size=5))
def test_in_any_cluster_every_suggestion_is_enough(
    body: PodSnapshot, nodes: list[NodeSnapshot]
) -> None:
    there = [seen(ObservedKind.NODE, f"n{i}", one, namespace="") for i, one in enumerate(nodes)]
    assume(not starts_on(body, nodes_of(there)))
    waiting = seen(ObservedKind.POD, "p", body)
    assert_enough(waiting, world(waiting, *there))


@given(body=any_pod(), nodes=st.lists(any_node(), min_size=1, max_size=5))
def test_nodes_with_room_are_those_a_plain_scheduler_finds(
    body: PodSnapshot, nodes: list[NodeSnapshot]
) -> None:
    there = [seen(ObservedKind.NODE, f"n{i}", one, namespace="") for i, one in enumerate(nodes)]
    found = only(world(seen(ObservedKind.POD, "p", body), *there)).diagnosis
    waits = [s for s in found.suggestions if s.action is Action.WAIT]
    assert bool(waits) == bool(starts_on(body, nodes_of(there)))
