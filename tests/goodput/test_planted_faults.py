"""A planted bad node and a planted bad GPU are found in generated fleets, and no other."""

from collections.abc import Iterator
from itertools import product

import pytest
from scipy.stats import poisson

from apps.goodput.domain.reliability import LEVEL, gpu_failures, node_failures
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


def check(seeds: range) -> None:
    """Check that both are found, and that others are accused no more often than is stated."""
    found = [accused(Fleet(seed, FAULTS).runs()) for seed in seeds]
    most = len(found)
    for place, bad in enumerate((BAD_NODE, BAD_GPU)):
        wrong = sum(any(name != bad for name in one[place]) for one in found)
        assert poisson.sf(wrong - 1, most * LEVEL) > 0.01, found
        assert sum(bad in one[place] for one in found) >= 0.95 * most - 1, found


def test_both_are_found_and_no_other() -> None:
    check(range(6))


@pytest.mark.exhaustive
def test_both_are_found_and_no_other_over_a_hundred_seeds() -> None:
    check(range(100))


def test_the_smallest_faults_that_are_stated_are_found() -> None:
    edge = Faults(nodes={BAD_NODE: 0.06}, gpus={BAD_GPU: 0.2})
    nodes: list[float] = []
    gpus: list[float] = []
    for seed in range(8):
        runs = Fleet(seed, edge).runs()
        assert accused(runs) == ([BAD_NODE], [BAD_GPU])
        nodes += [one.ratio or 0.0 for one in node_failures(runs) if one.node == BAD_NODE]
        gpus += [one.ratio or 0.0 for one in gpu_failures(runs) if one.uuid == BAD_GPU]
    assert (round(min(nodes)), round(max(nodes))) == (8, 12)
    assert round(min(gpus)) == 18


@MANY_IN_CHECK_FULL
def test_sound_fleets_accuse_no_more_often_than_is_stated(seeds: range) -> None:
    found = [accused(Fleet(seed).runs()) for seed in seeds]
    for place in (0, 1):
        wrong = sum(bool(one[place]) for one in found)
        assert poisson.sf(wrong - 1, len(found) * LEVEL) > 0.01, found


@MANY_IN_CHECK_FULL
def test_three_bad_days_accuse_no_node(seeds: range) -> None:
    bad = Faults(days={(BAD_NODE, day): 0.5 for day in (4, 11, 19)})
    found = [accused(Fleet(seed, bad).runs()) for seed in seeds]
    wrong = sum(found_one != ([], []) for found_one in found)
    assert poisson.sf(wrong - 1, len(found) * 2 * LEVEL) > 0.01, found


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
