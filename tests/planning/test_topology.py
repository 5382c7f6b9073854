"""Slots and fragmentation, against what trying everything finds."""

from collections import Counter, defaultdict
from collections.abc import Sequence
from itertools import combinations
from random import Random

import numpy as np
import pytest

from apps.planning.domain.topology.fragmentation import (
    WHOLE,
    GpuRequest,
    fragmentation_index,
    unusable_gpus,
    unusable_parts,
    usable_parts,
)
from apps.planning.domain.topology.slots import (
    GpuSpan,
    free_gpus,
    offered_gpus,
    possible_slots,
    slots,
)
from simulator.scenarios.openb import WINDOW, OpenB, TracePod, read_entries


def placed_parts(free: Sequence[int], request: GpuRequest) -> int:
    """Return the most parts that pods take, by trying every set of GPUs for every pod."""
    seen: dict[tuple[int, ...], int] = {}

    def most(left: tuple[int, ...]) -> int:
        key = tuple(sorted(left))
        if key not in seen:
            seen[key] = 0
            able = [at for at, one in enumerate(key) if one >= request.part]
            for chosen in combinations(able, request.gpus):
                rest = tuple(one - request.part * (at in chosen) for at, one in enumerate(key))
                seen[key] = max(seen[key], request.gpus * request.part + most(rest))
        return seen[key]

    return most(tuple(free))


@pytest.mark.parametrize("seed", range(40))
def test_no_placing_takes_more_of_a_node_than_is_said_to_be_usable(seed: int) -> None:
    draw = Random(seed)  # noqa: S311 - no secret
    free = [draw.choice((0, 100, 250, 500, 750, 1000)) for _ in range(draw.randint(1, 4))]
    for request in (GpuRequest(1, 250), GpuRequest(2, 250), GpuRequest(3, 500), GpuRequest(2)):
        assert usable_parts(free, request) == placed_parts(free, request), (free, request)


def test_pods_of_no_gpu_use_nothing() -> None:
    assert usable_parts([WHOLE], GpuRequest(0)) == usable_parts([WHOLE], GpuRequest(1, 0)) == 0


def test_fragmentation_is_the_mean_over_what_is_asked_for() -> None:
    nodes = [[WHOLE] * 3, [500, 500]]
    # One GPU: 1,000 of the halves are lost. Two GPUs: 1,000 of the three, and both halves.
    asked = {GpuRequest(1): 3.0, GpuRequest(2): 1.0}
    assert unusable_parts(nodes, asked) == pytest.approx(0.75 * 1000 + 0.25 * 2000)
    assert unusable_parts(nodes, {}) is None


def test_an_index_needs_something_free_and_something_asked_for() -> None:
    assert fragmentation_index(1.0, 4.0) == 0.25
    assert fragmentation_index(0.0, 0.0) is None
    assert fragmentation_index(None, 4.0) is None


def test_whole_gpus_are_found_as_parts_of_gpus_are() -> None:
    draw = Random(7)  # noqa: S311 - no secret
    free = np.array([[draw.randint(0, 8) for _ in range(5)] for _ in range(6)])
    asked = {1: 5.0, 4: 2.0, 8: 8.0}
    by_free = [Counter(free[:, at].tolist()) for at in range(5)]
    lost = unusable_gpus(by_free, asked)
    assert lost is not None
    for at in range(5):
        nodes = [[WHOLE] * int(n) for n in free[:, at]]
        expected = unusable_parts(nodes, {GpuRequest(n): w for n, w in asked.items()})
        assert expected is not None
        assert lost[at] == pytest.approx(expected / WHOLE)
    assert unusable_gpus(by_free, {}) is None


def test_free_gpus_are_what_is_offered_and_not_held_at_each_time() -> None:
    offered = [GpuSpan(0, 0, 100, 8), GpuSpan(1, 50, 100, 4)]
    held = [GpuSpan(0, 10, 60, 3), GpuSpan(0, 20, 30, 1), GpuSpan(1, 0, 70, 6)]
    times = [0, 10, 29, 30, 60, 70, 100]
    free = free_gpus(3, offered, held, times)
    assert free.tolist() == [[8, 5, 4, 5, 8, 8, 0], [0, 0, 0, 0, 0, 4, 0], [0] * 7]
    assert offered_gpus(2, offered, [0, 50])[:, 1].tolist() == [8, 4]
    assert free_gpus(2, [], [], [1.0]).tolist() == [[0], [0]]


def test_part_of_a_gpu_that_is_held_is_no_slot() -> None:
    assert free_gpus(1, [GpuSpan(0, 0, 9, 2)], [GpuSpan(0, 0, 9, 0.5)], [1]).tolist() == [[1]]


@pytest.mark.parametrize("seed", range(20))
def test_slots_are_what_placing_one_gang_after_another_finds(seed: int) -> None:
    draw = Random(seed)  # noqa: S311 - no secret
    nodes = draw.randint(1, 9)
    free = [draw.randint(0, 8) for _ in range(nodes)]
    domains = [draw.randint(-1, 3) for _ in range(nodes)]
    grid = np.array(free).reshape(nodes, 1)
    for size in (1, 2, 4, 8, 16):
        # Three do not divide a gang: its last pod has more than it needs.
        for pod_gpus in (1, 2, 3, 4, 8):
            found = int(slots(grid, domains, size, pod_gpus)[0])
            assert found == _placed_gangs(free, domains, size, min(size, pod_gpus))
            assert found == possible_slots(dict(enumerate(free)), domains, size, pod_gpus)


def _placed_gangs(free: Sequence[int], domains: Sequence[int], size: int, pod_gpus: int) -> int:
    gangs = 0
    for domain in set(domains) - {-1}:
        left = [n for n, of in zip(free, domains, strict=True) if of == domain]
        while True:
            pods = -(-size // pod_gpus)
            for at in range(len(left)):
                while pods and left[at] >= pod_gpus:
                    left[at] -= pod_gpus
                    pods -= 1
            if pods:
                break
            gangs += 1
    return gangs


# ---------------------------------------------------------------- openb


def test_fragmentation_of_openb_is_what_trying_every_placing_finds() -> None:
    """At eight times of the trace, of all 120 GPUs, weighed by every pod that it asked for."""
    entries = read_entries()
    gpus = {node.name: len(node.devices) for node in OpenB(seed=1, origin=0).nodes}
    asked = Counter(GpuRequest(one.gpus, one.milli) for one in entries)
    checked: dict[tuple[tuple[int, ...], GpuRequest], int] = {}
    indexes = []
    for at in range(WINDOW[0] + 43_200, WINDOW[1], (WINDOW[1] - WINDOW[0]) // 8):
        free = _free_parts(entries, gpus, at)
        expected = 0.0
        for node in free:
            for request, weight in asked.items():
                key = (tuple(sorted(node)), request)
                if key not in checked:
                    checked[key] = _taken(*key)
                expected += weight / asked.total() * (sum(node) - checked[key])
        found = unusable_parts(free, {one: float(n) for one, n in asked.items()})
        assert found == pytest.approx(expected)
        indexes.append(fragmentation_index(found, sum(map(sum, free))))
    assert len(indexes) == 8
    assert all(one is not None and 0 < one < 1 for one in indexes), indexes


def _taken(free: Sequence[int], request: GpuRequest) -> int:
    if request.gpus > 1:
        return placed_parts(free, request)
    taken, left = 0, list(free)
    # One pod after another, as long as any GPU takes one.
    while (at := next((n for n, one in enumerate(left) if one >= request.part), None)) is not None:
        left[at] -= request.part
        taken += request.part
    return taken


def _free_parts(entries: Sequence[TracePod], gpus: dict[str, int], at: int) -> list[list[int]]:
    held: dict[tuple[str, int], int] = defaultdict(int)
    for one in entries:
        if one.node and one.bound <= at < one.ended:
            for device in one.devices:
                held[one.node, device] += one.milli
    return [
        [max(0, WHOLE - held[name, device]) for device in range(count)]
        for name, count in gpus.items()
    ]
