"""What of a pod is lost is what was run in vain; in every grouping: `test_conservation`."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apps.clusters.domain.window import overlap
from apps.goodput.domain.ledger import (
    PREEMPTIONS,
    PodHistory,
    PodRuns,
    RunAmounts,
    goodput_of,
    lost_in_hour,
    runs_of,
    total_of,
)
from apps.goodput.domain.runs import RESTARTED
from apps.usage.domain.amounts import NANO, Amounts

HOUR = 3600
LOST = ("Error", "OOMKilled", "Evicted", "NodeLost", "DeletionByTaintManager", *sorted(PREEMPTIONS))
EXITS = ("Error", "OOMKilled", "Completed")
NOT_LOST = ("Completed", "Deleted", "Succeeded", "DeadlineExceeded", "")
Span = tuple[float, float | None]


class PodLife(NamedTuple):
    """A pod, held from 0: its GPUs, its runs, why it ended, and shares of what it did."""

    gpus: int
    end: int
    spans: list[Span]
    reason: str
    ended: bool
    shares: tuple[int, int, int, int]
    exits: list[tuple[float, str]]
    checkpoints: list[int]

    @property
    def runs(self) -> PodRuns:
        return runs_of(self.history)

    @property
    def history(self) -> PodHistory:
        life = (0, self.end)
        return PodHistory(life, self.ended, self.reason, self.spans, self.exits, self.checkpoints)

    @property
    def lost_seconds(self) -> float:
        """What was run in vain, and waited for after it: said apart from the code under test."""
        known: list[Span] = self.spans or [(0, self.end)]
        runs = [(start, self.end if end is None else end) for start, end in known]
        exits, lost = dict(self.exits), 0.0
        for place, (start, end) in enumerate(runs):
            is_last = place == len(runs) - 1
            why = exits.get(end, "Restarted")
            if is_last:
                why = exits.get(end, "") if end < self.end else ""
                if self.ended and self.reason in LOST and exits.get(end) != "Completed":
                    why = self.reason
            if why in ("", *NOT_LOST):
                continue
            saved = [at for at in self.checkpoints if start < at <= end]
            lost += end - max([start, *saved])
            lost += (self.end if is_last else runs[place + 1][0]) - end
        return lost

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
    if not draw(st.integers(0, 9)):
        spans = []
    return PodLife(
        gpus=draw(st.integers(1, 8)),
        end=cuts[-1] + draw(st.integers(0, 900)),
        spans=spans,
        reason=draw(st.sampled_from((*LOST, *NOT_LOST))) if ended else "",
        ended=ended,
        shares=draw(st.tuples(*[st.integers(0, 9)] * 4)),
        exits=[
            (end, draw(st.sampled_from(EXITS)))
            for _, end in spans
            if end is not None and draw(st.booleans())
        ],
        checkpoints=draw(st.lists(st.integers(0, 6 * HOUR), max_size=4)),
    )


def lost_of(life: PodLife, hour: int, amounts: Amounts) -> RunAmounts:
    ran = RunAmounts(
        *(amounts.unmeasured, amounts.idle, amounts.underused, amounts.busy),
        amounts.not_running,
    )
    return total_of(lost_in_hour(ran, life.runs, hour).values())


@given(lives())
def test_what_is_lost_is_what_ran_in_vain(life: PodLife) -> None:
    rows = list(life.hours())
    lost = sum(lost_of(life, hour, amounts).total for hour, amounts in rows)
    # Five amounts of each hour are rounded, each to the nearest.
    assert lost == pytest.approx(
        life.lost_seconds * life.gpus * NANO / HOUR, abs=5 * len(rows) + life.gpus
    )


def history(*spans: Span, ended: bool = True, **known: Any) -> PodHistory:
    return PodHistory((0, HOUR), ended, spans=spans, **known)


@pytest.mark.parametrize("reason", LOST)
def test_failures_evictions_and_preemptions_throw_work_away(reason: str) -> None:
    assert runs_of(history((60, HOUR), reason=reason)).lost == ((60, HOUR, reason, HOUR),)
    assert not runs_of(history((60, None), reason=reason, ended=False)).lost


@pytest.mark.parametrize("reason", NOT_LOST)
def test_work_that_ended_as_its_owner_wanted_is_there(reason: str) -> None:
    assert not runs_of(history((60, HOUR), reason=reason)).lost


def test_a_restart_loses_the_run_before_it_and_its_back_off_and_not_the_run_after() -> None:
    known = PodHistory((0, 2 * HOUR), spans=[(0, 1800), (2700, None)])
    runs = runs_of(known)
    run, wait = (0, 1800, RESTARTED, 1800), (1800, 2700, RESTARTED, 1800)
    assert (runs.lost, runs.waited) == ((run,), (wait,))
    amounts = RunAmounts(unmeasured=0, idle=300, underused=0, busy=600, not_running=90)
    assert lost_in_hour(amounts, runs, 0) == {
        run: RunAmounts(0, 200, 0, 400),
        wait: RunAmounts(not_running=90),
    }
    assert lost_in_hour(amounts, runs, HOUR) == {}


def test_work_is_lost_since_the_last_checkpoint_of_its_run() -> None:
    known = history((0, 1000), (1200, HOUR), reason="Evicted", checkpoints=(600, 3000, 9000))
    assert [one[:2] for one in runs_of(known).lost] == [(600, 1000), (3000, HOUR)]
    # One of an earlier run saves nothing of a later one.
    known = history((0, 1000), (1200, HOUR), reason="Evicted", checkpoints=(600,))
    assert [one[:2] for one in runs_of(known).lost] == [(600, 1000), (1200, HOUR)]


def test_the_exit_of_a_container_says_what_a_restart_cost() -> None:
    spans = ((0, 1000), (1010, 2000), (2010, None))
    known = history(*spans, ended=False, exits=((1000, "OOMKilled"), (2000, "Completed")))
    assert runs_of(known).lost == ((0, 1000, "OOMKilled", 1000),)
    # Within the second, so that both runs are one span.
    known = history((0, None), ended=False, exits=((1000, "Error"),))
    assert runs_of(known).lost == ((0, 1000, "Error", 1000),)
    # It backs off still, or was deleted while it did.
    for pod in ({"ended": False}, {"reason": "Deleted"}):
        runs = runs_of(history((0, 1000), exits=((1000, "Error"),), **pod))
        assert [one[:2] for one in (*runs.lost, *runs.waited)] == [(0, 1000), (1000, HOUR)]
    # The work was done, whatever took the rest of the pod.
    assert not runs_of(history((0, 1000), reason="Evicted", exits=((1000, "Completed"),))).lost


def test_the_ratio_leaves_out_what_nobody_measured() -> None:
    held = Amounts(100, 10, 30, 10, 10, 40)
    row = goodput_of(held, RunAmounts(unmeasured=10, busy=10))
    assert (row.lost, row.unmeasured, row.productive) == (20, 20, 30)
    assert row.goodput_ratio == 30 / 80
    assert goodput_of(Amounts(5, 0, 5), RunAmounts()).goodput_ratio is None
