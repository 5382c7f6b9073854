"""Which nodes fit: expressions, tolerations, amounts, and how both are worded."""

import pytest

from apps.clusters.domain.observed.objects import (
    Expression,
    NodeSnapshot,
    Placement,
    Taint,
    Toleration,
)
from apps.pending.domain.placement.fits import (
    Nodes,
    bears,
    bits,
    constraints_of,
    free,
    offered,
    steps_on,
)
from apps.pending.domain.placement.node_search import NONE_OFFERED
from apps.pending.domain.wording import amount, listed
from tests.pending.cluster_states import GIB, GPU, is_gpu_name, node, only, pod, world

NODES = Nodes(
    [
        node("a", labels={"memory": "80", "pool": "x"}),
        node("b", labels={"memory": "141", "pool": "y"}, unschedulable=True),
        node("c", labels={"memory": "much"}),
    ],
    is_gpu_name,
)


@pytest.mark.parametrize(
    ("wish", "names"),
    [
        (Expression("pool", "In", ("x", "z")), ["a"]),
        (Expression("pool", "NotIn", ("x",)), ["b", "c"]),
        (Expression("pool", "Exists"), ["a", "b"]),
        (Expression("pool", "DoesNotExist"), ["c"]),
        (Expression("memory", "Gt", ("100",)), ["b"]),
        (Expression("memory", "Lt", ("100",)), ["a"]),
        (Expression("memory", "Gt", ("much",)), []),
        (Expression("memory", "Gt", ()), []),
        (Expression("memory", "Near", ("100",)), []),
        (Expression("metadata.name", "In", ("c",), field=True), ["c"]),
        (Expression("metadata.uid", "In", ("c",), field=True), []),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else str(value.operator),
)
def test_an_expression_holds_for_some_nodes(wish: Expression, names: list[str]) -> None:
    assert NODES.names_of(NODES.matching(wish)) == names


def test_any_term_will_do_and_an_empty_one_matches_nothing() -> None:
    either = Placement(
        affinity=((Expression("pool", "In", ("x",)),), (Expression("pool", "DoesNotExist"),))
    )
    assert NODES.names_of(NODES.selected(either)) == ["a", "c"]
    assert NODES.selected(Placement(affinity=((),))) == 0


@pytest.mark.parametrize(
    ("toleration", "taint", "borne"),
    [
        (Toleration("k", "Equal", "v"), Taint("k", "v", "NoSchedule"), True),
        (Toleration("k", "Equal", "w"), Taint("k", "v", "NoSchedule"), False),
        (Toleration("k", "Exists"), Taint("k", "v", "NoExecute"), True),
        (Toleration("k", "Exists", "", "NoSchedule"), Taint("k", "v", "NoExecute"), False),
        (Toleration("", "Exists"), Taint("k", "v", "NoSchedule"), True),
        (Toleration("", "Equal"), Taint("k", "", "NoSchedule"), False),
        (Toleration("j", "Exists"), Taint("k", "v", "NoSchedule"), False),
    ],
)
def test_a_toleration_bears_a_taint(toleration: Toleration, taint: Taint, *, borne: bool) -> None:
    assert bears(toleration, taint) is borne


def test_a_cordon_is_borne_by_its_own_toleration() -> None:
    cordon = Toleration("node.kubernetes.io/unschedulable", "Exists")
    assert NODES.names_of(NODES.uncordoned(())) == ["a", "c"]
    assert NODES.uncordoned((cordon,)) == NODES.every


def test_what_a_node_does_not_say_of_cpu_is_no_limit_but_of_gpus_it_is() -> None:
    silent = NodeSnapshot(devices={"gpu.nvidia.com": 4}, free_devices={"gpu.nvidia.com": 1})
    assert offered(silent, "cpu") == float("inf")
    assert (offered(silent, GPU), free(silent, GPU)) == (0.0, 0.0)
    assert (offered(silent, "gpu.nvidia.com"), free(silent, "gpu.nvidia.com")) == (4.0, 1.0)


def test_bits_are_the_nodes_of_a_set() -> None:
    assert list(bits(0b1011)) == [0, 1, 3]


def test_a_selector_of_nodes_without_the_resource_is_none_offered() -> None:
    waiting = pod("p", 1, "0/2 nodes are available: x.", select={"pool": "cpu"})
    why = only(world(waiting, node("a"), node("c", 0, labels={"pool": "cpu"}))).diagnosis
    assert why.detail == NONE_OFFERED


def test_a_node_that_has_none_of_it_needs_another_node() -> None:
    wish = constraints_of({GPU: 2.0}, Placement(), is_gpu_name)
    (step,) = steps_on(Nodes([node("c", 0)], is_gpu_name), 0, wish, {})
    assert dict(step.change) == {"resource": GPU, "amount": 2.0}


def test_a_request_of_several_gpu_resources_has_no_single_smaller_one() -> None:
    waiting = pod("p", 4, "0/1 nodes are available: x.")
    two = {GPU: 4.0, "nvidia.com/mig-1g.10gb": 1.0}
    found = only(
        world(
            pod("p", 4, "0/1 nodes are available: x.", requests=two),
            node("a", 8, 6, more={"nvidia.com/mig-1g.10gb": 2.0}),
        )
    )
    assert [step.change["amount"] for step in found.diagnosis.suggestions] == [2.0]
    assert len(only(world(waiting, node("a", 8, 6))).diagnosis.suggestions) == 2


@pytest.mark.parametrize(
    ("resource", "units", "text"),
    [
        (GPU, 8.0, "8 nvidia.com/gpu"),
        ("requests.cpu", 1.5, "1.5 CPU"),
        ("memory", 4 * 1024 * GIB, "4 Ti memory"),
        ("memory", 100.0, "100 bytes of memory"),
        (GPU, 12345678.0, "12,345,678 nvidia.com/gpu"),
    ],
)
def test_amounts_are_worded_with_their_unit(resource: str, units: float, text: str) -> None:
    assert amount(resource, units) == text


def test_lists_are_cut_with_what_is_left_out() -> None:
    assert [listed(list("abcde"[:n])) for n in (0, 1, 2, 5)] == [
        "",
        "a",
        "a and b",
        "a, b, c and 2 more",
    ]
