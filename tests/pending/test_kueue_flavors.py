"""What a workload in a queue needs of the nodes of its flavor."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apps.accounts.domain.structs import replace
from apps.clusters.domain.observed.objects import (
    Condition,
    ControllerSnapshot,
    FlavorQuota,
    ObservedKind,
    ObservedObject,
    Placement,
    PodSet,
)
from apps.pending.domain.diagnose import diagnose_cluster
from apps.pending.domain.diagnosis import Action
from tests.pending.bound import in_turn
from tests.pending.cluster_states import AT, GPU, holder, node, only, pod, seen, world
from tests.pending.queues import POOL, flavor, local, queue, raised, workload

ELSEWHERE = [node(f"other{i}", 8) for i in range(3)]


def texts(*sightings: ObservedObject, name: str = "w", **more: Any) -> list[str]:
    """Return the steps of the best suggestion for a Workload."""
    state = world(local(), *sightings, *ELSEWHERE, **more)
    first, *rest = only(state, name).diagnosis.suggestions
    also = [one.text for one in rest if one.text.startswith("Also needed: ")]
    return [first.text, *also]


def test_a_quota_alone_is_raised_where_the_nodes_of_the_flavor_have_room() -> None:
    assert texts(queue("cq", 8, 8), workload("w", 8), flavor(), node("a", labels=POOL)) == [
        "Raise the nominal quota of cq for nvidia.com/gpu in flavor h100 from 8 to 16."
    ]


def test_what_no_node_of_the_flavor_could_hold_is_to_be_asked_for_smaller() -> None:
    found = texts(queue("cq", 16, 4), workload("w", 16), flavor(), node("a", 4, labels=POOL))
    assert found == [
        "Request at most 4 nvidia.com/gpu a pod: more neither its queue"
        " nor the nodes of its flavor can give."
    ]


def test_no_more_is_asked_for_than_the_queue_may_ever_give() -> None:
    wide = [node(n, 8, labels=POOL) for n in "ab"]
    change = (
        only(world(local(), queue("cq", 6), workload("w", 16, count=2), flavor(), *wide), "w")
        .diagnosis.suggestions[0]
        .change
    )
    assert change == {"resource": GPU, "from": 16, "to": 3.0}


def test_nodes_are_added_where_not_even_one_gpu_each_has_a_place() -> None:
    small = node("a", 2, labels=POOL)
    found = texts(queue("cq", 4, 2), workload("w", 1, count=4), flavor(), small)
    assert found == [
        "Raise the nominal quota of cq for nvidia.com/gpu in flavor h100 from 4 to 6.",
        "Also needed: add 2 nodes of its flavor with 1 nvidia.com/gpu: there is none.",
    ]


@pytest.mark.parametrize(
    ("nodes", "count", "step"),
    [
        pytest.param(
            [node("a", 8, 6, labels=POOL), node("b", 8, 8, labels=POOL)],
            *(1, "free 2 nvidia.com/gpu on a."),
            id="on the node where least is missing",
        ),
        pytest.param(
            [node(n, 4, 4, labels=POOL) for n in "abcde"],
            *(5, "make room for 5 more pods on nodes of its flavor"),
            id="on more nodes than one cares to read of",
        ),
        pytest.param(
            [node("a", 8, labels=POOL, unschedulable=True), node("b", 8, 8, labels=POOL)],
            *(1, "free 4 nvidia.com/gpu on b"),
            id="not on a node that is cordoned",
        ),
        pytest.param(
            [node("a", 8, 0, cpu=4, cpu_used=4, labels=POOL)],
            *(1, "free 1 CPU on a"),
            id="of what else is short there",
        ),
    ],
)
def test_what_the_nodes_of_the_flavor_lack_is_needed_as_well(
    nodes: list[ObservedObject], count: int, step: str
) -> None:
    more = [queue("cq", 20, 20), workload("w", 4, count=count), flavor()]
    first, second = texts(*more, *nodes, holders=[holder("x", "a", 2)])
    assert first.startswith("Raise the nominal quota of cq")
    assert second.startswith(f"Also needed: {step}")


def test_those_in_front_that_the_raised_quota_lets_in_are_counted_too() -> None:
    small = workload("first", 2, created=AT - 1000)
    large = workload("huge", 64, created=AT - 1000)
    there = [node("a", 8, 4, labels=POOL), node("b", 8, 8, labels=POOL)]
    found = texts(queue("cq", 4, 4), small, large, workload("w", 4), flavor(), *there)
    # Of four more the first would take two, and with them two of the four on the node.
    assert found == [
        "Raise the nominal quota of cq for nvidia.com/gpu in flavor h100 from 4 to 10:"
        " +6 admits all 2 pending.",
        "Also needed: free 2 nvidia.com/gpu on a.",
    ]


def test_what_its_own_pods_still_hold_comes_back_to_a_workload_that_lost_its_quota() -> None:
    going = replace(
        holder("w-1", "a", 8), namespace="team", owner_kind="Job", owner="w", running=True
    )
    there = node("a", 8, 8, labels=POOL)
    assert texts(queue("cq", 8, 8), workload("w", 8), flavor(), there, holders=[going]) == [
        "Raise the nominal quota of cq for nvidia.com/gpu in flavor h100 from 8 to 16."
    ]


def test_the_flavor_whose_nodes_could_hold_it_is_raised() -> None:
    two = queue("cq", 8, 1, more=(FlavorQuota("a100", GPU, 6),))
    flavors = [flavor(), flavor("a100", node_labels={"pool": "a100"})]
    there = [node("a", 4, labels=POOL), node("b", 8, labels={"pool": "a100"})]
    assert texts(two, workload("w", 8), *flavors, *there) == [
        "Raise the nominal quota of cq for nvidia.com/gpu in flavor a100 from 6 to 8."
    ]


def test_pods_go_where_their_owner_and_their_flavor_say() -> None:
    job = ControllerSnapshot(
        AT - 900, 1, 0, suspended=True, queue="main",
        placement=Placement(node_selector={"zone": "x"}),
    )  # fmt: skip
    there = [node("a", labels=POOL), node("b", 8, 8, labels={**POOL, "zone": "x"})]
    found = texts(
        queue("cq", 8, 8), workload("w", 8), flavor(), seen(ObservedKind.JOB, "w", job), *there
    )
    assert found[1] == "Also needed: free 8 nvidia.com/gpu on b."


def asking_for(labels: dict[str, str]) -> ObservedObject:
    """Return the Job of the Workload, whose pods ask for these labels."""
    placement = Placement(node_selector=labels)
    job = ControllerSnapshot(AT - 900, 1, 0, suspended=True, queue="main", placement=placement)
    return seen(ObservedKind.JOB, "w", job)


TWO_POOLS = [node("a", labels=POOL), node("b", labels={"pool": "a100"})]


def test_a_flavor_for_other_nodes_than_the_pods_ask_for_is_not_raised() -> None:
    two = queue("cq", 8, 1, more=(FlavorQuota("a100", GPU, 6),))
    flavors = [flavor(), flavor("a100", node_labels={"pool": "a100"})]
    found = texts(two, workload("w", 8), *flavors, *TWO_POOLS, asking_for({"pool": "a100"}))
    assert found == ["Raise the nominal quota of cq for nvidia.com/gpu in flavor a100 from 6 to 8."]


def test_less_is_asked_of_the_flavor_that_the_pods_ask_for_rather_than_of_another() -> None:
    two = queue("cq", 32, 1, more=(FlavorQuota("a100", GPU, 16),))
    flavors = [flavor(), flavor("a100", node_labels={"pool": "a100"})]
    pods = asking_for({"pool": "a100"})
    found = texts(two, workload("w", 16), *flavors, *TWO_POOLS, pods)
    assert found[0].startswith("Request at most 8 nvidia.com/gpu a pod")


def test_pods_are_to_ask_for_the_nodes_of_the_only_flavor_there_is() -> None:
    there = [queue("cq", 4), workload("w", 8), flavor(), *TWO_POOLS]
    state = world(local(), *there, asking_for({"pool": "a100", "kubernetes.io/hostname": "a"}))
    first, *rest = only(state, "w").diagnosis.suggestions
    assert first.text == "The flavor h100 is not for pool=a100: choose pool=h100 instead."
    assert first.action is Action.SELECT
    assert first.change == {"remove": {"pool": "a100"}, "add": POOL, "nodes": ["a"]}
    assert [one.text for one in rest] == [
        "Also needed: raise the nominal quota of cq for nvidia.com/gpu in flavor h100 from 4 to 8."
    ]


@pytest.mark.parametrize(
    ("gpus", "pool", "action"),
    [
        pytest.param(8, "a100", Action.SELECT, id="other nodes"),
        pytest.param(16, "h100", Action.REQUEST, id="less"),
    ],
)
def test_to_free_quota_is_no_way_out_for_what_must_change_itself(
    gpus: float, pool: str, action: Action
) -> None:
    there = [queue("cq", 16, 12), flavor(), *TWO_POOLS, asking_for({"pool": pool})]
    found = only(world(local(), *there, workload("w", gpus)), "w").diagnosis.suggestions
    assert [one.action for one in found] == [action, Action.RAISE_QUEUE_QUOTA]


A10 = {"nvidia.com/gpu.product": "NVIDIA-A10"}
SHARED = {"nvidia.com/gpu.product": "Tesla-T4-SHARED", "nvidia.com/gpu.replicas": "4"}


@pytest.mark.parametrize(
    ("more", "text", "name"),
    [
        pytest.param(
            [flavor("a10", node_labels=A10), node("a", labels=A10)],
            "Add the flavor a10 to the ClusterQueue cq: its flavors are for other GPUs.",
            "a10",
            id="there is one",
        ),
        pytest.param(
            [],
            "Create a ResourceFlavor for nvidia.com/gpu.product=NVIDIA-A10, add it to the"
            " ClusterQueue cq: its flavors are for other GPUs.",
            "",
            id="there is none",
        ),
    ],
)
def test_who_requests_whole_gpus_is_not_told_to_take_shares(
    more: list[ObservedObject], text: str, name: str
) -> None:
    there = [queue("cq", 16), flavor(node_labels=SHARED), node("t4", labels=SHARED), *more]
    state = world(local(), *there, workload("w", 2), asking_for(A10))
    (step,) = only(state, "w").diagnosis.suggestions
    assert (step.text, step.change) == (text, {"cluster_queue": "cq", "flavor": name})


@pytest.mark.parametrize(
    "more",
    [
        pytest.param({}, id="the only flavor of its queue"),
        pytest.param(
            {"pod_sets": (PodSet("main", 1, {GPU: 2.0}, {GPU: "h100"}),)}, id="the one it has"
        ),
    ],
)
def test_workload_and_pod_are_for_the_nodes_of_the_flavor(more: dict[str, Any]) -> None:
    quotas = (FlavorQuota("a100", GPU, 4),) if more else ()
    gated = pod("p", 2, gates=("kueue.x-k8s.io/admission",), select={"zone": "x"}, queue="main")
    there = [
        local(),
        queue("cq", 8, more=quotas),
        flavor(),
        flavor("a100", node_labels={"pool": "a"}),
    ]
    owned = workload("w", 2, owner_kind="Pod", owner="p", **more)
    found = diagnose_cluster(world(*there, gated, owned))
    assert {one.kind: one.node_selector for one in found} == {
        "Pod": {**POOL, "zone": "x"},
        "Workload": {**POOL, "zone": "x"},
    }


def test_the_fix_of_a_queue_is_one_for_all_that_pend_in_it() -> None:
    four = [workload(f"w{n}", 1, created=AT - 900 + n) for n in range(4)]
    there = [local(), queue("cq", 8, 8), flavor(), node("a", 8, labels=POOL), *four]
    told = {one.diagnosis.suggestions[0].text for one in diagnose_cluster(world(*there))}
    assert told == {
        "Raise the nominal quota of cq for nvidia.com/gpu in flavor h100 from 8 to 12:"
        " +4 admits all 4 pending."
    }


@given(
    sizes=st.lists(st.tuples(st.integers(1, 12), st.integers(1, 3)), min_size=1, max_size=5),
    nominal=st.integers(0, 16),
    used=st.integers(0, 16),
    strict=st.booleans(),
    nodes=st.lists(st.sampled_from([4, 8]), min_size=1, max_size=4),
)
def test_a_raised_queue_requests_no_more_quota_when_it_is_looked_at_again(
    sizes: list[tuple[int, int]], nominal: int, used: int, strict: bool, nodes: list[int]
) -> None:
    there = [
        *(workload(f"w{n}", g, count=c, created=AT - 900 + n) for n, (g, c) in enumerate(sizes)),
        *(node(f"n{n}", size, labels=POOL) for n, size in enumerate(nodes)),
        *(local(), flavor()),
        queue("cq", nominal, used, strategy="StrictFIFO" if strict else "BestEffortFIFO"),
    ]
    state = world(*there)
    for one in diagnose_cluster(state):
        group = in_turn(one.diagnosis.suggestions)[0]
        raising = [step for step in group if step.action is Action.RAISE_QUEUE_QUOTA]
        if not raising or any(step.action is Action.REQUEST for step in group):
            continue
        again = only(raised(raising[0], state), one.name).diagnosis.suggestions
        assert Action.RAISE_QUEUE_QUOTA not in {step.action for step in in_turn(again)[0]}


def test_a_label_that_the_flavor_has_nothing_to_say_of_is_no_contradiction() -> None:
    there = [queue("cq", 4), workload("w", 8), flavor(), *TWO_POOLS]
    found = texts(*there, asking_for({**POOL, "kubernetes.io/hostname": "a"}))
    assert found == ["Raise the nominal quota of cq for nvidia.com/gpu in flavor h100 from 4 to 8."]


@pytest.mark.parametrize(
    ("given", "freed_on"),
    [
        pytest.param("h100", ["Also needed: free 4 nvidia.com/gpu on a."], id="of this flavor"),
        pytest.param("a100", [], id="of another flavor"),
    ],
)
def test_pods_that_are_still_checked_take_their_place_on_the_nodes(
    given: str, freed_on: list[str]
) -> None:
    reserved = Condition("QuotaReserved", "True", "QuotaReserved")
    sets = (PodSet("main", 1, {GPU: 4.0}, {GPU: given}),)
    checked = workload("checked", 4, reserved, created=AT - 2000, pod_sets=sets)
    there = node("a", 8, 4, labels=POOL)
    assert texts(queue("cq", 8, 8), checked, workload("w", 4), flavor(), there) == [
        "Raise the nominal quota of cq for nvidia.com/gpu in flavor h100 from 8 to 12.",
        *freed_on,
    ]
