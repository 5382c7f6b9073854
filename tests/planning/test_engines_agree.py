"""Both engines, of one pool and of a cluster, give the same answer where one pool is all there is.

They differ by definition, and these worlds leave that out:

* The pool of one tier knows no strict order: small work passes large work there. So strict order is
  compared with works of one size.
* What arrives at the moment at which other work ends: the pool lets those start first that were
  pending before, the cluster lets all of them compete. In strict order both come to the same. In
  fair order no work arrives when another ends.
* Work that is canceled before it arrives: the pool starts it where it has room, the cluster never.
* Teams whose turn is the same: the pool goes by their names, the cluster by who came first. So each
  team holds a GPU throughout, and no amounts ÷ weights are equal.
* A work larger than the pool: nowhere in the pool's results does it count as pending; the what-if
  leaves it out of demand. The cluster counts it. So no work is larger.
"""

from collections.abc import Sequence
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apps.planning.domain.capacity_cases import replay_size
from apps.planning.domain.cluster_replay.backtest import WorkTimes, tier_times, times_row
from apps.planning.domain.cluster_replay.engine import replay_cluster
from apps.planning.domain.cluster_replay.inputs import (
    PendingOrder,
    RecordedWork,
    ReplayCluster,
    ReplayDevice,
    ReplayNode,
    ReplayPolicy,
)
from apps.planning.domain.replay import ReplayWork, TierPlan, replay
from tests.planning.clusters import TIER

START, END = 0.0, 200.0
TEAMS = {"a": 2.03, "b": 3.07, "c": 5.11}


class Request(NamedTuple):
    """A work of a world; its times are whole seconds."""

    team: str
    size: int
    asked_at: int
    runs: int | None
    leaves_after: int | None
    running: bool


REQUESTS = st.builds(
    Request,
    team=st.sampled_from(sorted(TEAMS)),
    size=st.integers(1, 4),
    asked_at=st.integers(-20, 150),
    runs=st.one_of(st.none(), st.integers(1, 90)),
    leaves_after=st.one_of(st.none(), st.integers(1, 60)),
    running=st.booleans(),
)
WORLDS = st.lists(REQUESTS, max_size=30)


class EngineAnswer(NamedTuple):
    """When each work started and ended, and the sums of the tier."""

    times: list[tuple[float | None, float | None]]
    unmet_gpu_hours: float
    allocated_gpu_hours: float
    p95_seconds: float | None


def one_pool(works: Sequence[ReplayWork], capacity: float, plan: TierPlan) -> EngineAnswer:
    played = replay(works, plan, start=START, end=END)
    # It answers in the order of asking; each work of these worlds is an object of its own.
    by_work = {id(one.work): (one.started_at, one.ended_at) for one in played}
    point = replay_size(works, plan, capacity, start=START, end=END)
    return EngineAnswer(
        [by_work[id(one)] for one in works],
        point.unmet_gpu_hours,
        point.allocated_gpu_hours,
        point.p95_seconds,
    )


def whole_cluster(
    works: Sequence[ReplayWork], capacity: float, policy: ReplayPolicy
) -> EngineAnswer:
    """Return the answer for one node with one device, which is a pool."""
    recorded = [
        RecordedWork(
            team=one.team,
            tier=TIER,
            units=one.gpus,
            asked_at=one.asked_at,
            runs_seconds=one.runs_seconds,
            leaves_at=one.leaves_at,
            running=one.running,
        )
        for one in works
    ]
    cluster = ReplayCluster((ReplayNode("pool", (ReplayDevice(TIER, capacity),)),))
    played = replay_cluster(recorded, cluster, policy, start=START, end=END).played
    times = [
        WorkTimes(TIER, w.units, w.asked_at, one.started_at, one.ended_at, running=w.running)
        for one in played
        for w in [one.work]
    ]
    sums = tier_times(times, start=START, end=END)
    row = times_row(sums[TIER])
    return EngineAnswer(
        [(one.started_at, one.ended_at) for one in played],
        row.unmet_gpu_hours,
        row.allocated_gpu_hours,
        row.p95_seconds,
    )


def assert_equal(pool: EngineAnswer, cluster: EngineAnswer) -> None:
    assert pool.times == cluster.times
    assert pool.unmet_gpu_hours == pytest.approx(cluster.unmet_gpu_hours)
    assert pool.allocated_gpu_hours == pytest.approx(cluster.allocated_gpu_hours)
    assert pool.p95_seconds == cluster.p95_seconds


@given(WORLDS.filter(bool), st.integers(1, 3), st.integers(0, 3))
def test_strict_first_in_first_out_has_the_same_queue_times_in_both_engines(
    asked: list[Request], places: int, part: int
) -> None:
    gpus = (1.0, 2.0, 0.5, 8.0)[part]
    capacity = places * gpus
    works = [_work(one, gpus=gpus, team="a", number=0) for one in asked]
    assert_equal(
        one_pool(works, capacity, TierPlan(capacity, {"a": 1.0})),
        whole_cluster(works, capacity, ReplayPolicy(strict=True)),
    )


@given(WORLDS.filter(bool), st.integers(4, 9))
def test_fair_order_has_the_same_queue_times_in_both_engines(
    asked: list[Request], capacity: int
) -> None:
    works = [
        _work(one, gpus=float(one.size), team=one.team, number=number)
        for number, one in enumerate(asked, 1)
    ]
    works += [ReplayWork(team, TIER, 1.0, -30.0, None, None, running=True) for team in TEAMS]
    capacity += len(TEAMS)
    shares = {(team, TIER): amount for team, amount in TEAMS.items()}
    assert_equal(
        one_pool(works, float(capacity), TierPlan(float(capacity), TEAMS)),
        whole_cluster(
            works,
            float(capacity),
            ReplayPolicy(order=PendingOrder.FAIR, entitlements=shares, weights=shares),
        ),
    )


def _work(one: Request, *, gpus: float, team: str, number: int) -> ReplayWork:
    """Return a work that arrives at a moment of its own where it has a number."""
    running = one.running and one.asked_at < START
    asked_at = one.asked_at + number / 64
    # Canceled before the replay begins: it is in none of the two.
    leaves = None if one.leaves_after is None else asked_at + one.leaves_after + 1 / 128
    if running or (leaves is not None and leaves <= START):
        leaves = None
    runs = None if one.runs is None else float(one.runs)
    return ReplayWork(team, TIER, gpus, asked_at, runs, leaves, running)
