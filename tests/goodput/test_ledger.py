"""The goodput ledger: it sums in every grouping, and what is lost is what was run in vain."""

from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apps.clusters.domain.window import overlap, seconds
from apps.goodput.domain.ledger import (
    PREEMPTIONS,
    PodRuns,
    RunAmounts,
    goodput_of,
    is_lost,
    lost_in_hour,
    runs_of,
    total_of,
)
from apps.goodput.domain.runs import RESTARTED
from apps.usage.domain.amounts import NANO, Amounts

HOUR = 3600
LOST = ("Error", "OOMKilled", "Evicted", "NodeLost", "DeletionByTaintManager", *sorted(PREEMPTIONS))
NOT_LOST = ("Completed", "Deleted", "Succeeded", "DeadlineExceeded", "")
Span = tuple[float, float | None]


class PodLife(NamedTuple):
    """A pod, held from 0: its GPUs, its runs, why it ended, and shares of what it did."""

    team: str
    node: str
    workload: int
    gpus: int
    end: int
    spans: list[Span]
    reason: str
    ended: bool
    shares: tuple[int, int, int, int]

    @property
    def runs(self) -> PodRuns:
        return runs_of((0, self.end), self.reason, self.spans, ended=self.ended)

    def hours(self) -> Iterator[tuple[int, Amounts]]:
        """Yield each hour with its row of the capacity ledger."""
        for hour in range(0, self.end, HOUR):
            held = (min(self.end, hour + HOUR) - hour) * self.gpus
            ran = round(overlap(self.runs.ran, hour, hour + HOUR) * self.gpus * NANO / HOUR)
            allocated = round(held * NANO / HOUR)
            weight = sum(self.shares) or 1
            idle, underused, busy = (ran * share // weight for share in self.shares[1:])
            rest = ran - idle - underused - busy
            yield hour, Amounts(allocated, allocated - ran, rest, idle, underused, busy)


@st.composite
def lives(draw: st.DrawFn) -> PodLife:
    """Draw a pod that crashes, is restarted, preempted, loses its node, or does what it should."""
    ended = draw(st.booleans())
    times = sorted(draw(st.sets(st.integers(0, 5 * HOUR), min_size=2, max_size=8)))
    cuts = times[: len(times) // 2 * 2]
    spans: list[Span] = [(cuts[at], cuts[at + 1]) for at in range(0, len(cuts), 2)]
    if not ended:
        spans[-1] = (spans[-1][0], None)
    return PodLife(
        team=draw(st.sampled_from("ab")),
        node=draw(st.sampled_from("xyz")),
        workload=draw(st.integers(0, 3)),
        gpus=draw(st.integers(1, 8)),
        end=cuts[-1] + draw(st.integers(0, 900)),
        spans=spans if draw(st.integers(0, 9)) else [],
        reason=draw(st.sampled_from((*LOST, *NOT_LOST))) if ended else "",
        ended=ended,
        shares=draw(st.tuples(*[st.integers(0, 9)] * 4)),
    )


def lost_of(life: PodLife, hour: int, amounts: Amounts) -> RunAmounts:
    ran = RunAmounts(amounts.unmeasured, amounts.idle, amounts.underused, amounts.busy)
    return total_of(lost_in_hour(ran, life.runs, hour).values())


@given(st.lists(lives(), max_size=8))
def test_the_ledger_sums_in_every_grouping(pods: list[PodLife]) -> None:
    totals = []
    for key in ("", "team", "node", "workload", "hour"):
        held: defaultdict[object, Amounts] = defaultdict(Amounts)
        lost: defaultdict[object, RunAmounts] = defaultdict(RunAmounts)
        for life in pods:
            for hour, amounts in life.hours():
                group = hour if key == "hour" else getattr(life, key, None)
                held[group].add(amounts)
                lost[group] = lost[group].plus(lost_of(life, hour, amounts))
        rows = [goodput_of(held[group], lost[group]) for group in held]
        for row in rows:
            assert row.allocated == sum(row[1:])
            assert min(row) >= 0
            assert row.goodput_ratio is None or 0 <= row.goodput_ratio <= 1
        totals.append([sum(column) for column in zip(*rows, strict=True)])
    assert all(total == totals[0] for total in totals)


@given(lives())
def test_what_is_lost_is_what_ran_in_vain(life: PodLife) -> None:
    known: list[Span] = life.spans or [(0, life.end)]
    in_vain = [(start, life.end if end is None else end) for start, end in known[:-1]]
    if life.ended and is_lost(life.reason):
        in_vain += [(start, life.end if end is None else end) for start, end in known[-1:]]
    rows = list(life.hours())
    lost = sum(lost_of(life, hour, amounts).total for hour, amounts in rows)
    # Four amounts of each hour are rounded, each to the nearest.
    assert lost == pytest.approx(
        seconds(in_vain) * life.gpus * NANO / HOUR, abs=4 * len(rows) + life.gpus
    )


@pytest.mark.parametrize("reason", LOST)
def test_failures_evictions_and_preemptions_throw_work_away(reason: str) -> None:
    assert runs_of((0, HOUR), reason, [(60, HOUR)], ended=True).lost == ((60, HOUR, reason),)
    assert not runs_of((0, HOUR), reason, [(60, None)], ended=False).lost


@pytest.mark.parametrize("reason", NOT_LOST)
def test_work_that_ended_as_its_owner_wanted_is_there(reason: str) -> None:
    assert not runs_of((0, HOUR), reason, [(60, HOUR)], ended=True).lost


def test_a_restart_loses_the_run_before_it_and_not_the_one_after() -> None:
    runs = runs_of((0, 2 * HOUR), "", [(0, 1800), (2700, None)], ended=False)
    assert runs.lost == ((0, 1800, RESTARTED),)
    amounts = RunAmounts(unmeasured=0, idle=300, underused=0, busy=600)
    assert lost_in_hour(amounts, runs, 0) == {RESTARTED: RunAmounts(0, 200, 0, 400)}
    assert lost_in_hour(amounts, runs, HOUR) == {}


def test_the_ratio_leaves_out_what_nobody_measured() -> None:
    held = Amounts(100, 10, 30, 10, 10, 40)
    row = goodput_of(held, RunAmounts(unmeasured=10, busy=10))
    assert (row.lost, row.unmeasured, row.productive) == (20, 20, 30)
    assert row.goodput_ratio == 30 / 80
    assert goodput_of(Amounts(5, 0, 5), RunAmounts()).goodput_ratio is None
