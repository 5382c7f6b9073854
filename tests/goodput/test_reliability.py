"""Which nodes are accused, and which are not: planted faults and sound fleets."""

import random
from collections.abc import Sequence

import numpy as np
import pytest
import scipy  # loads its parts when they are asked for
from hypothesis import example, given
from hypothesis import strategies as st

from apps.accounts.domain.structs import replace
from apps.goodput.domain.advice import excess_text
from apps.goodput.domain.failure_rates import FailureRates
from apps.goodput.domain.ledger import PodHistory, pod_runs, runs_of
from apps.goodput.domain.poisson import (
    WorkKind,
    binomial_tail,
    poisson_tail,
    ratio_range,
    share_tail,
)
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


@pytest.mark.parametrize("fleets", [25, pytest.param(100, marks=pytest.mark.exhaustive)])
def test_of_sound_fleets_at_most_the_stated_share_has_an_accused_node(fleets: int) -> None:
    wrong = sum(bool(accused(fleet(seed))) for seed in range(fleets))
    assert scipy.stats.poisson.sf(wrong - 1, fleets * LEVEL) > 0.01, wrong


@pytest.mark.parametrize("fleets", [25, pytest.param(100, marks=pytest.mark.exhaustive)])
def test_a_planted_node_is_found_and_no_other_is_accused(fleets: int) -> None:
    found = [accused(fleet(seed, bad="node-07", times=20.0)) for seed in range(fleets)]
    others = sum(names != ["node-07"] for names in found if names)
    assert sum("node-07" in names for names in found) >= 0.95 * fleets, found
    assert scipy.stats.poisson.sf(others - 1, fleets * LEVEL) > 0.01, found


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
def test_incidents_are_divided_among_places_and_expected_at_the_rate_of_the_others(
    drawn: list[tuple[int, int, bool]],
) -> None:
    runs = [
        PodRun(NODES[node], workload, k * HOUR, (k + 1) * HOUR, 1.0, "Error" if fails else "")
        for k, (node, workload, fails) in enumerate(drawn)
    ]
    rates = FailureRates(runs, lambda run: run.node)
    found = {one.node: one for one in node_failures(runs)}
    tallies = {
        node: rates.tally(n for n, run in enumerate(runs) if run.node == node) for node in found
    }
    incidents = sum(one.incidents for one in found.values())
    assert sum(one.even for one in tallies.values()) == pytest.approx(incidents)
    assert sum(one.gpu_hours for one in found.values()) == pytest.approx(len(runs))
    for node, one in found.items():
        others = [run for run in runs if run.node != node]
        expected = 0.0
        for workload in {run.workload for run in runs if run.node == node}:
            # What failed wherever it was tried says nothing of a place.
            own = [run for run in runs if run.workload == workload]
            if all(run.reason for run in own) and len({run.node for run in own}) > 1:
                continue
            here = sum(run.workload == workload and run.node == node for run in runs)
            there = [run for run in others if run.workload == workload]
            if 4 * len(there) >= here:
                expected += here * sum(bool(run.reason) for run in there) / max(1, len(there))
        assert one.expected == pytest.approx(expected)


def test_work_that_ran_on_one_node_alone_is_compared_with_nothing() -> None:
    runs = [
        PodRun("alone", 1, k * HOUR, (k + 0.5) * HOUR, 1.0, "Error" if k % 2 else "")
        for k in range(40)
    ]
    runs += [PodRun(node, 2, 0.0, 5 * HOUR, 1.0) for node in ("alone", *NODES)]
    one = next(found for found in node_failures(runs) if found.node == "alone")
    assert (one.incidents, one.compared, one.expected) == (20, 0, 0.0)
    assert (one.ratio, one.ratio_low, one.ratio_high) == (None, None, None)
    assert one.compared_ratio == pytest.approx(5 / 25)
    assert one.p_value == 1.0
    assert judgement(one) is Judgement.INCOMPARABLE


def test_failures_that_the_same_work_never_has_elsewhere_have_a_range_and_no_ratio() -> None:
    lives = [
        PodRun(node, k % 4, k * 30 * HOUR, (k * 30 + 9) * HOUR, 1.0)
        for k in range(20)
        for node in ("bad", *NODES[:9])
    ]
    runs = [
        life._replace(pod=number, reason="Error" if life.node == "bad" else "")
        for number, life in enumerate(lives, 1)
    ]
    (bad, *_) = node_failures(runs)
    assert (bad.node, bad.compared, bad.expected, bad.ratio) == ("bad", 20, 0.0, None)
    assert bad.is_unreliable
    assert bad.ratio_high is None
    # All 20 fell to the node that has a tenth of the run time.
    low = scipy.stats.beta.ppf(0.025, 20, 1)
    assert bad.ratio_low == pytest.approx(low / (1 - low) * 9, rel=1e-3)
    text = excess_text(bad.ratio, bad.ratio_low, bad.ratio_high, 180.0)
    assert text == (
        f"the same work never failed elsewhere (at least {bad.ratio_low:.0f}× as often), "
        "180 GPU-hours lost in at most 30 days"
    )


@given(st.integers(0, 200), st.floats(0.001, 300))
def test_tails_of_counts_are_the_exact_ones(count: int, mean: float) -> None:
    assert poisson_tail(count, mean) == pytest.approx(
        scipy.stats.poisson.sf(count - 1, mean), abs=1e-9
    )


@given(st.integers(0, 60), st.integers(0, 60), st.floats(0.05, 20))
def test_ranges_of_one_kind_of_work_are_the_exact_ones(here: int, there: int, times: float) -> None:
    kinds = [WorkKind(here + there, 3600.0, times * 3600.0)] if here + there else []
    low, high = ratio_range(here, kinds)
    if not kinds:
        assert (low, high) == (None, None)
        return
    share = scipy.stats.beta.ppf(0.025, here, there + 1) if here else 0.0
    assert low == pytest.approx(share / (1 - share) * times, rel=1e-5)
    share = scipy.stats.beta.ppf(0.975, here + 1, there) if there else 1.0
    expected = share / (1 - share) * times if there else None
    assert high == (expected if expected is None else pytest.approx(expected, rel=1e-5))


def test_against_a_rate_that_is_known_well_the_range_is_that_of_a_poisson_count() -> None:
    low, high = ratio_range(7, [WorkKind(2_000_000, 1.0, 1_000_000.0)])
    assert low == pytest.approx(scipy.stats.chi2.ppf(0.025, 14) / 2 / 2, rel=1e-3)
    assert high == pytest.approx(scipy.stats.chi2.ppf(0.975, 16) / 2 / 2, rel=1e-3)


KINDS = st.lists(
    st.tuples(st.integers(1, 12), st.floats(1, 100), st.floats(1, 3000)), min_size=1, max_size=5
)


@given(KINDS, st.integers(0, 30))
@example([(1, 1.0, 1.0), (1, 1.0, 49.0)], 2)
@example([(12, 1.0, 50.0), (3, 1.0, 1.0)], 3)
def test_the_chance_over_all_kinds_of_work_is_the_exact_one(
    drawn: list[tuple[int, float, float]], count: int
) -> None:
    kinds = [WorkKind(*one) for one in drawn]
    chances = np.ones(1)
    for one in kinds:
        own = scipy.stats.binom.pmf(np.arange(one.incidents + 1), one.incidents, one.share)
        chances = np.convolve(chances, np.asarray(own))
    exact = float(chances[count:].sum())
    found = share_tail(count, kinds)
    mean = sum(one.incidents * one.share for one in kinds)
    if count > mean + 1 and all(one.share > 0.02 for one in kinds):
        assert found == pytest.approx(exact, abs=1e-9)
    # Where many are rare the chance is never taken for less than it is.
    elif count > mean + 1:
        assert found >= exact - 1e-9


@given(st.integers(0, 60), st.integers(0, 60), st.floats(0.001, 0.999))
def test_tails_of_shares_are_the_exact_ones(one: int, other: int, share: float) -> None:
    expected = scipy.stats.binom.sf(one - 1, one + other, share)
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


def test_a_pod_that_never_ran_interrupts_nothing() -> None:
    ran = PodRun(NODES[0], 1, 0.0, 10 * HOUR, 2.0)
    refused = [PodRun(NODES[0], 1, k * HOUR, k * HOUR, 2.0, "Failed", k) for k in range(1, 9)]
    (found,) = interruptions_by_size([ran, *refused])
    assert (found.least, found.hours, found.interruptions) == (2, 10.0, 0)
    assert node_failures([ran, *refused])[0].incidents > 0, "the node refused them all the same"


def test_more_failures_than_expected_that_are_not_accused_are_too_few_to_tell() -> None:
    (node,) = node_failures([PodRun("a", 1, 0.0, HOUR, 1.0)])

    def told(*, is_unreliable: bool = False, low: float | None, compared: float = 0.9) -> Judgement:
        found = replace(node, is_unreliable=is_unreliable, ratio_low=low, compared_ratio=compared)
        return judgement(found)

    assert told(is_unreliable=True, low=2.0, compared=0.1) is Judgement.UNRELIABLE
    assert told(low=1.1, compared=0.1) is Judgement.UNDECIDED
    assert told(low=0.9) is Judgement.USUAL
    assert told(low=None) is Judgement.USUAL
    assert told(low=0.9, compared=0.4) is Judgement.INCOMPARABLE


def test_rounding_is_no_failure_elsewhere() -> None:
    """All that fails does so on one node, in incidents of several pods, in any order."""
    for seed in range(50):
        chance = random.Random(seed)  # noqa: S311 - repeatable, not secret
        runs = [
            PodRun(
                NODES[0], 1, day * 86_400.0, day * 86_400.0 + 3600 + n, 1.0, "Error", 100 * day + n
            )
            for day in range(1, 13)
            for n in range(chance.choice([1, 3, 5, 6, 7]))
        ]
        runs += [
            PodRun(NODES[1 + n % 4], 1, 0.0, 13 * 86_400.0, 1.0, pod=5000 + n) for n in range(40)
        ]
        chance.shuffle(runs)
        (bad,) = [one for one in node_failures(runs) if one.incidents]
        assert (bad.ratio, bad.expected, bad.compared) == (None, 0.0, 12), seed
        assert bad.ratio_low is not None


@pytest.mark.parametrize("incidents", [1e-12, 1 / 3, 0.999_999_999])
@pytest.mark.parametrize("seconds", [60.0, 1e12])
def test_the_range_of_a_part_of_an_incident_is_one(incidents: float, seconds: float) -> None:
    for count in (0, 1, 400):
        low, high = ratio_range(count, [WorkKind(incidents, seconds, 60.0)])
        known = [end for end in (low, high) if end is not None]
        assert known == sorted(known)
        assert all(0 <= end <= 1e6 * (1 + 1e-9) for end in known)
