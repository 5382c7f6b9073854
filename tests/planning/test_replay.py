"""The replay's scheduler: who starts when, and what a slot saw of it."""

import random

import numpy as np
import pytest

from apps.planning.domain.replay import ReplayedWork, ReplayWork, TierPlan, replay
from apps.planning.domain.what_if import LevelSpan, slot_means

END = 1000.0


def work(
    team: str,
    gpus: float,
    asked_at: float,
    runs: float | None = 100.0,
    *,
    leaves_at: float | None = None,
    running: bool = False,
) -> ReplayWork:
    return ReplayWork(team, "a100", gpus, asked_at, runs, leaves_at, running)


def spans(played: list[ReplayedWork]) -> list[tuple[float | None, float | None]]:
    return [(p.started_at, p.ended_at) for p in played]


EVEN = TierPlan(4, {"a": 2, "b": 2})
CASES = [
    pytest.param(
        [work("a", 4, 0), work("b", 2, 10), work("a", 1, 20)],
        [(0, 100), (100, 200), (100, 200)],
        id="what-does-not-fit-waits",
    ),
    pytest.param(
        [work("a", 2, 0), work("a", 4, 10), work("a", 2, 20)],
        [(0, 100), (120, 220), (20, 120)],
        id="small-work-passes-by",
    ),
    pytest.param(
        [work("a", 4, 0), work("a", 2, 10), work("a", 2, 11), work("b", 2, 90)],
        [(0, 100), (100, 200), (200, 300), (100, 200)],
        id="who-holds-less-than-the-entitlement-goes-first",
    ),
    pytest.param(
        [work("a", 4, 0, None), work("b", 1, 10)],
        [(0, None), (None, None)],
        id="without-an-end-it-holds-on",
    ),
    pytest.param(
        [work("a", 4, 0), work("b", 1, 10, leaves_at=60), work("b", 1, 20, leaves_at=500)],
        [(0, 100), (None, 60), (100, 200)],
        id="who-gives-up-goes-unless-it-runs",
    ),
    pytest.param(
        [work("a", 4, 0), work("b", 1, 10, 50, leaves_at=150)],
        [(0, 100), (100, 150)],
        id="giving-up-at-its-end-ends-it-once",
    ),
    pytest.param(
        [work("a", 4, 0), work("b", 1, 10, 50, leaves_at=400), work("b", 4, 300)],
        [(0, 100), (100, 150), (300, 400)],
        id="giving-up-after-its-end-is-nothing",
    ),
    pytest.param([work("a", 5, 0)], [(None, None)], id="larger-than-the-tier-never-starts"),
    pytest.param([work("a", 1, END)], [], id="asked-for-after-the-end"),
    pytest.param([work("a", 1, 950)], [(950, None)], id="still-running-at-the-end"),
    pytest.param([work("a", 4, 900), work("a", 1, 950)], [(900, END), (None, None)], id="at-end"),
]


@pytest.mark.parametrize(("works", "expected"), CASES)
def test_work_starts_and_ends(
    works: list[ReplayWork], expected: list[tuple[float | None, float | None]]
) -> None:
    assert spans(replay(works, EVEN, start=0, end=END)) == expected


def test_what_ran_before_is_placed_before_all_others() -> None:
    works = [work("b", 4, -50), work("a", 3, -500, 80, running=True), work("b", 1, -60)]
    played = replay(works, EVEN, start=0, end=END)
    assert [(p.work.gpus, p.started_at) for p in played] == [(3, 0), (1, 0), (4, 100)]


def test_the_oldest_of_those_that_waited_at_the_start_comes_first() -> None:
    works = [work("a", 4, -10), work("a", 4, -90)]
    played = replay(works, EVEN, start=0, end=END)
    assert [(p.work.asked_at, p.started_at) for p in played] == [(-90, 0), (-10, 100)]


def test_above_entitlements_who_holds_least_for_its_weight_goes_first() -> None:
    plan = TierPlan(9, {"a": 0, "b": 0}, {"a": 1, "b": 2})
    works = [work(team, 1, 0, None) for team in "ab" for _ in range(9)]
    played = replay(works, plan, start=0, end=END)
    held = {t: sum(p.started_at is not None for p in played if p.work.team == t) for t in "ab"}
    assert held == {"a": 3, "b": 6}


def test_a_team_without_weight_takes_what_the_others_leave() -> None:
    plan = TierPlan(3, {"b": 1})
    works = [work("a", 1, 0, None), work("a", 1, 0, None), work("b", 2, 0, None)]
    started = {p.work.team for p in replay(works, plan, start=0, end=END) if p.started_at == 0}
    assert started == {"a", "b"}


def test_sevenths_of_a_gpu_fill_it_whole() -> None:
    works = [work("a", 1 / 7, at, 50) for at in range(7)] + [work("a", 1.0, 10, 10)]
    played = replay(works, TierPlan(1, {"a": 1}), start=0, end=END)
    assert [p.started_at for p in played] == [0, 1, 2, 3, 4, 5, 6, 56]


@pytest.mark.parametrize("seed", range(30))
def test_nothing_waits_that_would_fit_and_never_more_runs_than_there_is(seed: int) -> None:
    dice = random.Random(seed)  # noqa: S311
    plan = TierPlan(8, {"a": 4, "b": 2}, {"a": 1, "b": 1, "c": 1})
    works = [
        work(
            dice.choice("abc"),
            dice.choice([1, 2, 4]),
            float(dice.randrange(900)),
            dice.choice([5.0, 40.0, 200.0, None]),
            leaves_at=dice.choice([None, 950.0]),
        )
        for _ in range(60)
    ]
    played = replay(works, plan, start=0, end=END)
    assert len(played) == len(works)
    for at in np.arange(0.5, END, 7):
        running = sum(p.work.gpus for p in played if _holds(p, at))
        assert running <= plan.capacity
        waiting = [p.work.gpus for p in played if _waits(p, at)]
        assert running + min(waiting, default=plan.capacity + 1) > plan.capacity


def test_the_order_given_changes_nothing_where_times_differ() -> None:
    works = [work("ab"[i % 2], 1 + i % 3, float(i * 7 % 101), 30.0) for i in range(101)]
    forth = replay(works, EVEN, start=0, end=END)
    assert replay(works[::-1], EVEN, start=0, end=END) == forth


def _holds(played: ReplayedWork, at: float) -> bool:
    if played.started_at is None or played.started_at > at:
        return False
    return played.ended_at is None or played.ended_at > at


def _waits(played: ReplayedWork, at: float) -> bool:
    if played.work.asked_at > at or (played.started_at is not None and played.started_at <= at):
        return False
    return played.started_at is not None or played.ended_at is None or played.ended_at > at


class TestSlotMeans:
    @pytest.mark.parametrize(
        ("start", "end", "expected"),
        [
            pytest.param(0, 30, [2, 2, 2], id="all-the-time"),
            pytest.param(10, 20, [0, 2, 0], id="a-whole-slot"),
            pytest.param(5, 12, [1, 0.4, 0], id="across-an-edge"),
            pytest.param(12, 17, [0, 1, 0], id="inside-a-slot"),
            pytest.param(-50, 5, [1, 0, 0], id="since-before"),
            pytest.param(25, 99, [0, 0, 1], id="until-after"),
            pytest.param(-50, -5, [0, 0, 0], id="before"),
            pytest.param(40, 50, [0, 0, 0], id="after"),
            pytest.param(7, 7, [0, 0, 0], id="no-time"),
        ],
    )
    def test_a_stretch_counts_for_its_time(
        self, start: float, end: float, expected: list[float]
    ) -> None:
        means = slot_means([LevelSpan(1, 2.0, start, end)], edges=[0, 10, 20, 30], teams=2)
        assert means[:, 1] == pytest.approx(expected)
        assert not means[:, 0].any()

    def test_stretches_add_up_in_slots_of_any_length(self) -> None:
        stretches = [LevelSpan(0, 1.0, 0, 15), LevelSpan(0, 3.0, 5, 40), LevelSpan(1, 1.0, 12, 14)]
        means = slot_means(stretches, edges=[0, 10, 40], teams=2)
        assert means.tolist() == [[2.5, 0.0], [pytest.approx(95 / 30), pytest.approx(2 / 30)]]

    def test_nothing_gives_zeros(self) -> None:
        assert slot_means([], edges=[0, 10], teams=3).tolist() == [[0, 0, 0]]

    @pytest.mark.parametrize("edges", [[0], [0, 0], [5, 1]])
    def test_edges_must_ascend(self, edges: list[float]) -> None:
        with pytest.raises(ValueError, match="ascending"):
            slot_means([], edges=edges, teams=1)
