"""Which nodes are accused, and which are not: planted faults and sound fleets."""

import random
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom, chi2, poisson

from apps.goodput.domain.ledger import PodHistory, pod_runs, runs_of
from apps.goodput.domain.poisson import binomial_tail, poisson_range, poisson_tail
from apps.goodput.domain.reliability import (
    LEVEL,
    Judgement,
    interruptions_by_size,
    judgement,
    node_failures,
)
from apps.goodput.domain.runs import RESTARTED, PodRun, is_failure

HOUR = 3600.0
DAYS = 30
NODES = [f"node-{number:02}" for number in range(40)]


def fleet(seed: int, *, bad: str = "", times: float = 6.0) -> list[PodRun]:
    """Return a month of runs; workloads differ in how often they fail, `bad` fails them more."""
    chance = random.Random(seed)  # noqa: S311 - repeatable, not secret
    runs = []
    for workload in range(60):
        rate = chance.choice([0.0, 0.002, 0.01, 0.05])
        for _ in range(chance.randint(5, 60)):
            node = chance.choice(NODES)
            start = chance.uniform(0, DAYS * 24 * HOUR)
            hours = chance.expovariate(1 / 6)
            until_failure = (
                chance.expovariate(rate * (times if node == bad else 1)) if rate else 1e9
            )
            end = start + min(hours, until_failure) * HOUR
            reason = "Error" if until_failure < hours else ""
            runs.append(PodRun(node, workload, start, end, 2.0, reason))
    return runs


def accused(runs: Sequence[PodRun]) -> list[str]:
    return [one.node for one in node_failures(runs) if one.is_unreliable]


def test_of_a_hundred_sound_fleets_at_most_the_stated_share_has_an_accused_node() -> None:
    wrong = sum(bool(accused(fleet(seed))) for seed in range(100))
    assert poisson.sf(wrong - 1, 100 * LEVEL) > 0.01, wrong


def test_a_planted_node_is_found_and_no_other_is_accused() -> None:
    found = [accused(fleet(seed, bad="node-07", times=20.0)) for seed in range(100)]
    others = sum(names != ["node-07"] for names in found if names)
    assert sum("node-07" in names for names in found) >= 95, found
    assert poisson.sf(others - 1, 100 * LEVEL) > 0.01, found


def test_work_that_always_fails_accuses_no_node() -> None:
    runs = [PodRun(NODES[k % 3], 1, k * HOUR, k * HOUR + 600, 1.0, "Error") for k in range(300)]
    runs += [PodRun(node, 2, 0.0, 1e6, 1.0) for node in NODES]
    assert accused(runs) == []


def test_a_node_that_takes_all_its_pods_at_once_fails_once() -> None:
    steady = [PodRun(node, k, 0.0, 50 * HOUR, 1.0) for node in NODES for k in range(8)]
    lost = [PodRun("node-03", k, 0.0, 50 * HOUR + k, 1.0, "NodeLost") for k in range(8)]
    first = next(one for one in node_failures([*steady, *lost]) if one.node == "node-03")
    assert (first.incidents, first.reasons) == (1, {"NodeLost": 8})
    assert first.lost_gpu_hours == pytest.approx(8 * 50, rel=1e-3)
    assert not first.is_unreliable


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 5), st.booleans()), max_size=40))
def test_expected_incidents_are_as_many_as_there_were(drawn: list[tuple[int, int, bool]]) -> None:
    runs = [
        PodRun(NODES[node], workload, k * HOUR, (k + 1) * HOUR, 1.0, "Error" if fails else "")
        for k, (node, workload, fails) in enumerate(drawn)
    ]
    found = node_failures(runs)
    assert sum(one.expected for one in found) == pytest.approx(sum(o.incidents for o in found))
    assert sum(one.gpu_hours for one in found) == pytest.approx(sum(run.gpu_hours for run in runs))


@given(st.integers(0, 200), st.floats(0.001, 300))
def test_tails_and_ranges_are_the_exact_ones(count: int, mean: float) -> None:
    assert poisson_tail(count, mean) == pytest.approx(poisson.sf(count - 1, mean), abs=1e-9)
    low, high = poisson_range(count)
    assert low == pytest.approx(chi2.ppf(0.025, 2 * count) / 2 if count else 0.0, abs=1e-6)
    assert high == pytest.approx(chi2.ppf(0.975, 2 * count + 2) / 2, abs=1e-6)


@given(st.integers(0, 60), st.integers(0, 60), st.floats(0.001, 0.999))
def test_tails_of_shares_are_the_exact_ones(one: int, other: int, share: float) -> None:
    expected = binom.sf(one - 1, one + other, share)
    assert binomial_tail(one, one + other, share) == pytest.approx(expected, abs=1e-9)


def test_runs_of_a_pod_are_cut_to_the_window_and_fail_where_they_end() -> None:
    life = PodRun("a", 1, 0.0, 100.0, 1.0, "OOMKilled")
    pod = PodHistory((0, 100), ended=True, reason="OOMKilled", spans=[[10, 20], [30, 90]])
    assert list(pod_runs(life, pod, start=15.0, end=200.0)) == [
        life._replace(start=15.0, end=20.0, reason=RESTARTED, lost_seconds=15.0),
        life._replace(start=30.0, end=90.0, lost_seconds=70.0),
    ]
    assert [run.reason for run in pod_runs(life, pod, start=0.0, end=50.0)] == [RESTARTED, ""]
    lasting = PodHistory((0, 100), spans=[[5, None]])
    assert [run.end for run in pod_runs(life, lasting, start=0.0, end=60.0)] == [60.0]
    assert list(pod_runs(life, lasting, start=200.0, end=300.0)) == []
    refused = PodHistory((40, 40), ended=True, reason="UnexpectedAdmissionError")
    assert [run.reason for run in pod_runs(life, refused, start=0, end=60)] == [refused.reason]
    assert [is_failure(one) for one in ("Completed", "Deleted", "", "Evicted", "Error")] == [
        *(False, False, False, True, True)
    ]


def test_exits_and_checkpoints_count_as_in_goodput() -> None:
    life = PodRun("a", 1, 0.0, HOUR, 2.0)
    done = PodHistory(
        (0, HOUR),
        spans=[[0, 900], [910, 1800], [1810, None]],
        exits=[(900, "Completed"), (1800, "Completed")],
    )
    assert [run.reason for run in pod_runs(life, done, start=0, end=2 * HOUR)] == ["", "", ""]
    assert runs_of(done).lost == ()
    evicted = PodHistory((0, HOUR), ended=True, reason="Evicted", checkpoints=[3000])
    (run,) = pod_runs(life, evicted, start=0, end=2 * HOUR)
    (lost,) = runs_of(evicted).lost
    assert (run.reason, run.lost_seconds) == ("Evicted", lost.end - lost.start) == ("Evicted", 600)
    (one,) = node_failures([run])
    assert one.lost_gpu_hours == pytest.approx(2 * 600 / HOUR)


def test_a_gang_is_interrupted_once_and_counts_by_its_size() -> None:
    gang = [PodRun(NODES[k], 1, 0.0, 10 * HOUR + k, 8.0, "Error") for k in range(2)]
    again = [PodRun(NODES[k], 1, 12 * HOUR, 22 * HOUR, 8.0) for k in range(2)]
    alone = [PodRun("node-09", 2, 0.0, 5 * HOUR, 1.0)]
    small, large = interruptions_by_size([*gang, *again, *alone])
    assert (small.least, small.interruptions, small.mean_hours) == (0, 0, None)
    assert (large.least, large.workloads, large.interruptions) == (16, 1, 1)
    assert large.mean_hours == pytest.approx(20.0, rel=1e-3)


def test_more_failures_than_expected_that_are_not_accused_are_too_few_to_tell() -> None:
    assert judgement(is_unreliable=True, low=2.0) is Judgement.UNRELIABLE
    assert judgement(is_unreliable=False, low=1.1) is Judgement.UNDECIDED
    assert judgement(is_unreliable=False, low=0.9) is Judgement.USUAL
    assert judgement(is_unreliable=False, low=None) is Judgement.USUAL
