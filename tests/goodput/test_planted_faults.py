"""A planted bad node and a planted bad GPU are found in generated fleets, and no other."""

from collections.abc import Iterable, Iterator
from itertools import product
from typing import NamedTuple

import pytest

from apps.goodput.domain.reliability import gpu_failures, node_failures
from apps.goodput.domain.runs import PodRun
from tests.goodput.fleets import Faults, Fleet, gpu

BAD_NODE, BAD_GPU = "node-05", gpu(11, 3)
FAULTS = Faults(nodes={BAD_NODE: 0.12}, gpus={BAD_GPU: 0.3})
HOUR = 3600.0
# A fleet takes a third of a second.
MANY_IN_CHECK_FULL = pytest.mark.parametrize(
    "seeds",
    [range(6), pytest.param(range(6, 100), marks=pytest.mark.exhaustive)],
    ids=["few", "many"],
)


def accused(runs: list[PodRun]) -> tuple[list[str], list[str]]:
    gpus = [one.uuid for one in gpu_failures(runs) if one.is_unreliable]
    nodes = node_failures(runs, accused_gpus=gpus)
    return [one.node for one in nodes if one.is_unreliable], gpus


class Found(NamedTuple):
    """In how many fleets the bad node and the bad GPU were accused, and any other."""

    node: int
    gpu: int
    other_nodes: int
    other_gpus: int


def found_in(fleets: Iterable[list[PodRun]]) -> Found:
    each = [accused(runs) for runs in fleets]
    return Found(
        sum(BAD_NODE in nodes for nodes, _ in each),
        sum(BAD_GPU in gpus for _, gpus in each),
        sum(bool({*nodes} - {BAD_NODE}) for nodes, _ in each),
        sum(bool({*gpus} - {BAD_GPU}) for _, gpus in each),
    )


@pytest.mark.parametrize(
    ("seeds", "found"),
    [
        pytest.param(range(6), Found(6, 6, 0, 0), id="few"),
        pytest.param(range(100), Found(100, 96, 0, 0), id="many", marks=pytest.mark.exhaustive),
    ],
)
def test_both_are_found_and_no_other(seeds: range, found: Found) -> None:
    """Fleets are the same for a seed: what was found in them is found exactly so again."""
    assert found_in(Fleet(seed, FAULTS).runs() for seed in seeds) == found


@pytest.mark.parametrize(
    ("node", "gpu_rate", "found", "node_ratios", "gpu_ratios"),
    [
        pytest.param(0.06, 0.2, Found(8, 8, 0, 0), (8, 12), (18, 64), id="all"),
        pytest.param(0.03, 0.1, Found(6, 6, 0, 0), (4, 8), (11, 36), id="most"),
        pytest.param(0.01, 0.02, Found(2, 0, 0, 0), (3, 8), (3, 13), id="few"),
    ],
)
def test_how_many_faults_of_a_size_are_found(
    node: float,
    gpu_rate: float,
    found: Found,
    node_ratios: tuple[int, int],
    gpu_ratios: tuple[int, int],
) -> None:
    """As docs/definitions.md#reliability states it, with the ratios that the eight fleets have."""
    faults = Faults(nodes={BAD_NODE: node}, gpus={BAD_GPU: gpu_rate})
    fleets = [Fleet(seed, faults).runs() for seed in range(8)]
    assert found_in(fleets) == found
    nodes: list[float] = []
    gpus: list[float] = []
    for runs in fleets:
        nodes += [one.ratio or 0.0 for one in node_failures(runs) if one.node == BAD_NODE]
        gpus += [one.ratio or 0.0 for one in gpu_failures(runs) if one.uuid == BAD_GPU]
    assert (round(min(nodes)), round(max(nodes))) == node_ratios
    assert (round(min(gpus)), round(max(gpus))) == gpu_ratios


def three_times(expected: int) -> Iterator[PodRun]:
    """Yield 600 hours of runs on each of 24 nodes, of which one has thrice the failures."""
    for node, number in product(range(24), range(60)):
        failures = expected * (3 if node == 3 else 1)
        start = (number * 12 * HOUR) + node * 60
        fails = number * failures // 60 != (number + 1) * failures // 60
        own = node * 1000 + number
        reason = "Error" if fails else ""
        gpus = tuple(gpu(node, index) for index in range(8))
        yield PodRun(
            f"node-{node:02}", own, start, start + 10 * HOUR, 8.0, reason, own, "train-*", gpus
        )


@pytest.mark.parametrize(("expected", "is_named"), [(4, False), (5, True)])
def test_three_times_the_expected_is_named_from_fifteen_failures_on(
    expected: int, is_named: bool
) -> None:
    found = {one.node: one for one in node_failures(list(three_times(expected)))}
    bad = found.pop("node-03")
    assert bad.ratio == pytest.approx(3.0)
    assert (bad.incidents, bad.is_unreliable) == (3 * expected, is_named)
    assert not any(one.is_unreliable for one in found.values())


@MANY_IN_CHECK_FULL
def test_sound_fleets_accuse_none(seeds: range) -> None:
    assert found_in(Fleet(seed).runs() for seed in seeds) == (0, 0, 0, 0)


@MANY_IN_CHECK_FULL
def test_three_bad_days_accuse_no_node(seeds: range) -> None:
    bad = Faults(days={(BAD_NODE, day): 0.5 for day in (4, 11, 19)})
    assert found_in(Fleet(seed, bad).runs() for seed in seeds) == (0, 0, 0, 0)


def always_together() -> Iterator[PodRun]:
    """Yield four workloads a day on all GPUs of each node, of which two always fail on one."""
    for number, day, node in product(range(4), range(30), range(10)):
        start = day * 24 * HOUR
        life = PodRun(f"node-{node:02}", number, start, start + (4 + number) * HOUR, 8.0)
        yield life._replace(
            reason="Error" if node == 3 and number % 2 else "",
            pod=1 + number * 100 + day + node * 1000,
            family=f"train-{number}",
            gpus=tuple(gpu(node, n) for n in range(8)),
        )


def test_gpus_that_always_fail_together_are_not_accused_and_their_node_is() -> None:
    assert accused(list(always_together())) == (["node-03"], [])


def test_what_one_gpu_explains_accuses_none_that_ran_with_it() -> None:
    runs = []
    for number in range(240):
        node, first = number % 6, number % 7
        held = (gpu(node, first), gpu(node, first + 1))
        fails = gpu(2, 3) in held
        start = number * 3 * HOUR
        runs.append(
            PodRun(
                f"node-{node:02}",
                number,
                start,
                start + 2 * HOUR,
                2.0,
                "Error" if fails else "",
                number,
                "eval-*",
                held,
            )
        )
    assert accused(runs) == ([], [gpu(2, 3)])
    (bad, *_) = gpu_failures(runs)
    assert (bad.node, bad.lost_gpu_hours) == ("node-02", bad.incidents * 4.0)
    assert bad.ratio_low is not None
    assert bad.ratio_low > 1
