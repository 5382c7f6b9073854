"""Drain plans: fewest GPUs moved, constraints respected, and a bounded search."""

from collections.abc import Mapping, Sequence
from itertools import chain, combinations, product
from random import Random
from typing import Any

import pytest

from apps.clusters.domain.observed.objects import (
    NodeSnapshot,
    ObservedKind,
    ObservedObject,
    Placement,
    Taint,
    Toleration,
)
from apps.pending.domain.placement.fits import Nodes
from apps.planning.domain.topology.drain_plan import DrainHosts, MovablePod, drain_plan

GPU = "nvidia.com/gpu"


def hosts(
    held: Mapping[str, Sequence[int]],
    *,
    fixed: Mapping[str, int] | None = None,
    **nodes: NodeSnapshot,
) -> DrainHosts:
    """Return hosts of eight GPUs with pods of so many; `fixed` GPUs are held by who cannot move."""
    still = fixed or {}
    used = {name: sum(pods) + still.get(name, 0) for name, pods in held.items()}
    seen = [
        ObservedObject(
            ObservedKind.NODE, name, "", name, nodes.get(name) or node(used[name]), 0.0, 0.0
        )
        for name in held
    ]
    known = Nodes(seen, lambda resource: resource == GPU)
    pods = {
        known.names.index(name): [pod(f"{name}-{n}", gpus) for n, gpus in enumerate(sizes)]
        for name, sizes in held.items()
    }
    return DrainHosts(known, known.every, GPU, pods)


def node(gpus: float, more: Mapping[str, float] | None = None, **values: Any) -> NodeSnapshot:
    """Return a host of eight GPUs of which so many are held, and `more` of other resources."""
    amounts = {GPU: 8.0, "cpu": 64.0, "pods": 110.0}
    used = {GPU: float(gpus), "cpu": gpus * 8.0} | dict(more or {})
    return NodeSnapshot(allocatable=amounts, used=used, **values)


def pod(uid: str, gpus: int, **values: Placement) -> MovablePod:
    requests = {GPU: float(gpus), "cpu": gpus * 8.0, "pods": 1.0}
    return MovablePod(
        uid, "vision", uid, "Job/train", gpus, requests, values.get("at", Placement())
    )


def moves_of(found: DrainHosts, size: int = 8) -> list[tuple[str, list[tuple[str, str]]]]:
    plan = drain_plan(found, size)
    assert plan.is_complete
    return [(one.host, [(m.pod.uid, m.target) for m in one.moves]) for one in plan.opened]


def test_the_host_that_lacks_least_is_opened_and_its_pod_fills_another() -> None:
    found = hosts({"a": (1,), "b": (2, 2), "c": (4, 3)})
    assert moves_of(found) == [("a", [("a-0", "c")])]


def test_slots_that_are_there_are_counted_and_not_given_up() -> None:
    found = hosts({"a": (1,), "b": ()})
    plan = drain_plan(found, 8)
    assert (plan.slots, plan.opened) == (1, ())


def test_several_slots_are_opened_one_after_the_other() -> None:
    found = hosts({"a": (1,), "b": (1,), "c": (2,)})
    assert moves_of(found) == [("a", [("a-0", "c")]), ("b", [("b-0", "c")])]
    assert drain_plan(found, 8, most_slots=1).opened[0].gpus == 1


def test_pods_of_one_host_may_go_to_different_ones() -> None:
    found = hosts({"a": (2, 2), "b": (6,), "c": (6,)})
    assert moves_of(found) == [("a", [("a-0", "b"), ("a-1", "c")])]


def test_a_pod_that_fits_only_once_another_went_elsewhere_is_placed() -> None:
    # The larger pod may go to b alone, which best fit would fill with the smaller ones.
    only = Placement(node_selector={"disk": "ssd"})
    found = hosts({"a": (2, 2), "b": (5,), "c": (6,)}, b=node(6, labels={"disk": "ssd"}))
    pods = dict(found.pods) | {0: [pod("x", 2), pod("y", 2, at=only)]}
    assert moves_of(DrainHosts(found.nodes, found.tier, GPU, pods)) == [
        ("a", [("x", "c"), ("y", "b")])
    ]


@pytest.mark.parametrize(
    "kept",
    [
        node(4, unschedulable=True),
        node(4, taints=(Taint("x", "", "NoSchedule"),)),
        node(4, ready=False),
        node(4, {"cpu": 63.0}),
        node(4, {"pods": 110.0}),
    ],
    ids=["cordoned", "tainted", "not ready", "no CPU", "no place"],
)
def test_a_host_that_does_not_take_the_pod_is_no_target(kept: NodeSnapshot) -> None:
    assert moves_of(hosts({"a": (1,), "b": ()}, fixed={"b": 4}, b=kept)) == []


def test_a_cordoned_host_opens_no_slot_and_a_taint_that_is_borne_keeps_nothing_away() -> None:
    assert moves_of(hosts({"a": (1,), "b": (4,)}, a=node(1, unschedulable=True))) == []
    borne = Placement(tolerations=(Toleration("x", "Exists"),))
    found = hosts(
        {"a": (), "b": (4,)}, a=node(1), b=node(4, taints=(Taint("x", "", "NoSchedule"),))
    )
    pods = {0: [pod("p", 1, at=borne)]}
    assert moves_of(DrainHosts(found.nodes, found.tier, GPU, pods)) == [("a", [("p", "b")])]


def test_hosts_of_other_tiers_take_no_part() -> None:
    found = hosts({"a": (1,), "b": (4,)})
    assert moves_of(DrainHosts(found.nodes, 0b01, GPU, found.pods)) == []


def test_what_is_as_large_as_the_gang_or_cannot_move_stays() -> None:
    full = hosts({"a": (4, 4), "b": (4, 3)})
    assert moves_of(full, 4) == []
    assert moves_of(hosts({"a": (1,), "b": ()}, fixed={"a": 1, "b": 4})) == []


def test_of_two_hosts_that_lack_the_same_the_first_by_name_is_opened() -> None:
    found = hosts({"a": (2,), "b": (2,), "c": ()}, fixed={"a": 3, "b": 3, "c": 6})
    assert moves_of(found, 4) == [("a", [("a-0", "c")])]


def test_a_search_that_reaches_its_bound_says_so() -> None:
    found = hosts(dict.fromkeys("abcdefgh", (1, 1, 1)))
    plan = drain_plan(found, 8, most_tries=5)
    assert not plan.is_complete
    assert plan.opened == ()


@pytest.mark.parametrize("seed", range(60))
def test_no_other_way_to_open_a_slot_moves_fewer_gpus(seed: int) -> None:
    draw = Random(seed)  # noqa: S311 - no secret
    held = {}
    for name in "abcd"[: draw.randint(2, 4)]:
        left, sizes = 4, []
        while left and draw.random() < 0.8:
            sizes.append(draw.randint(1, min(left, 3)))
            left -= sizes[-1]
        held[name] = (*sizes, 4)  # half of the host is held for good
    fixed = dict.fromkeys(held, 4)
    movable = {name: sizes[:-1] for name, sizes in held.items()}
    plan = drain_plan(hosts(movable, fixed=fixed), 4, most_slots=1)
    fewest = _fewest(movable)
    assert (plan.opened[0].gpus if plan.opened else None) == fewest


def _fewest(held: Mapping[str, Sequence[int]]) -> int | None:
    """Return the fewest GPUs to move, by trying every set of pods and every host for each."""
    free = {name: 4 - sum(sizes) for name, sizes in held.items()}
    found = []
    for name, sizes in held.items():
        if free[name] >= 4:
            continue
        every = range(len(sizes))
        for chosen in chain.from_iterable(combinations(every, n + 1) for n in every):
            moved = [sizes[n] for n in chosen if sizes[n] < 4]
            if free[name] + sum(moved) < 4:
                continue
            others = [other for other in held if other != name]
            for targets in product(others, repeat=len(moved)):
                left = dict(free)
                for gpus, target in zip(moved, targets, strict=True):
                    left[target] -= gpus
                # A host that is a slot is given to no pod.
                if all(left[one] >= 0 and (left[one] >= 4) == (free[one] >= 4) for one in others):
                    found.append(sum(moved))
    return min(found, default=None)
