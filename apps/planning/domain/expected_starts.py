"""When work would start that is requested now: the cluster replayed forward with drawn durations.

Everything that runs ends at a time drawn from how long its family ran before, given how long it
has run by now. What comes meanwhile is what came at the same time of an earlier day. The same
input and seed give the same queue times.
"""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Sequence
from math import sqrt
from random import Random
from statistics import median
from typing import Any, NamedTuple

from msgspec import Struct

from apps.accounts.domain.structs import replace
from apps.planning.domain.cluster_replay.engine import replay_cluster
from apps.planning.domain.cluster_replay.inputs import RecordedWork, ReplayCluster, ReplayPolicy
from apps.planning.domain.queue_time_ranges import STARTS_NOW_SECONDS
from apps.planning.domain.recorded.works import WorkLife

DAY = 86_400.0
HORIZON = DAY
"""How far a replay looks ahead; work that has not started by then counts with this time."""
_ENOUGH = 5
"""Runs of a family that are enough to draw from; else those of its tier are taken."""
_DAYS_BACK = 7
_LEAST_SECONDS = 30.0


class PastWork(Struct, frozen=True):
    """A recorded work and how it went."""

    work: RecordedWork
    life: WorkLife


class RunHistory:
    """How long work ran that was over by a time, by family and by tier."""

    def __init__(self, past: Iterable[PastWork], until: float) -> None:
        self._runs: dict[str, list[float]] = defaultdict(list)
        for one in past:
            times = one.life.times
            # What ended later was not known at that time, and a test of forecasts must not use it.
            if times.started_at is None or times.ended_at is None or times.ended_at > until:
                continue
            seconds = times.ended_at - times.started_at
            self._runs[one.life.family].append(seconds)
            self._runs[times.tier].append(seconds)
        for runs in self._runs.values():
            runs.sort()

    def left(self, life: WorkLife, age: float, random: Random) -> float:
        """Return how much longer a work runs that has run for `age` seconds, drawn."""
        for key in (life.family, life.times.tier):
            runs = self._runs.get(key, [])
            first = bisect_right(runs, age)
            # Only runs longer than this one so far can tell how it goes on.
            if len(runs) - first >= _ENOUGH:
                return runs[random.randrange(first, len(runs))] - age
        # It has run longer than all before: it is taken to run as long again.
        return max(age, 60.0)


class TierState(Struct, frozen=True):
    """Work of a tier at a moment: running, pending, and what arrived in the days before."""

    at: float
    running: Sequence[PastWork]
    pending: Sequence[PastWork]
    earlier: Sequence[PastWork]


def tier_state(past: Sequence[PastWork], at: float) -> TierState:
    """Return the state of a tier at a moment; `past` are its works by arrival."""
    running, pending, earlier = [], [], []
    for one in past:
        times = one.life.times
        if times.asked_at >= at:
            break
        over = times.ended_at is not None and times.ended_at <= at
        if not over and times.started_at is not None and times.started_at <= at:
            running.append(one)
        elif not over:
            pending.append(one)
        if times.asked_at >= at - (_DAYS_BACK + 1) * DAY:
            earlier.append(one)
    return TierState(at, running, pending, earlier)


def of_tier(cluster: ReplayCluster, tier: str) -> ReplayCluster:
    """Return the nodes of a cluster that offer a tier, with all its quotas."""
    nodes = tuple(
        node for node in cluster.nodes if any(device.tier == tier for device in node.devices)
    )
    return replace(cluster, nodes=nodes)


class QueueTimeEstimate(NamedTuple):
    """A queue time in seconds, and in how many of the replays (0..1) the work started at once."""

    expected: float
    starts_now: float


class TierForecaster(Struct, frozen=True):
    """Replays a tier forward: `cluster` is that of the tier, `past` are its works by arrival."""

    cluster: ReplayCluster
    past: Sequence[PastWork]
    policy: ReplayPolicy
    samples: int = 6

    def waits(self, asked: RecordedWork, at: float, *, seed: int = 0) -> list[float]:
        """Return how long `asked` is pending from `at` on in each sample, in seconds, sorted.

        HORIZON where it does not start by then. Only what was known at `at` is used.
        """
        state, history = tier_state(self.past, at), RunHistory(self.past, at)
        return sorted(
            self._wait(asked, state, history, Random(seed * 1_000 + number))  # noqa: S311
            for number in range(self.samples)
        )

    def estimate(self, asked: RecordedWork, at: float, *, seed: int = 0) -> QueueTimeEstimate:
        """Return what replays and history say together of the queue time of `asked`."""
        waits = self.waits(asked, at, seed=seed)
        # Ratios and logarithms of estimates follow, so none may be 0.
        mean = max(_LEAST_SECONDS, sum(waits) / len(waits))
        starts_now = sum(wait <= STARTS_NOW_SECONDS for wait in waits) / len(waits)
        usual = self._usual(asked.units, at)
        # The geometric mean: queue times differ by factors, not by seconds.
        return QueueTimeEstimate(mean if usual is None else sqrt(mean * usual), starts_now)

    def _usual(self, units: float, at: float) -> float | None:
        """Return the median queue time of work of like size that queued and started by `at`."""
        queued = [
            times.started_at - times.asked_at
            for one in self.past
            if (times := one.life.times).started_at is not None
            and times.started_at <= at
            and times.started_at - times.asked_at > STARTS_NOW_SECONDS
            and units / 2 <= one.work.units <= units * 2
        ]
        return median(queued) if queued else None

    def _wait(
        self, asked: RecordedWork, state: TierState, history: RunHistory, random: Random
    ) -> float:
        works = [_fresh(asked, HORIZON, asked_at=state.at)]
        works += [_running(one, state.at, history, random) for one in state.running]
        works += [_pending(one, history, random) for one in state.pending]
        works += _arrivals(state, history, random)
        end = state.at + HORIZON
        found = replay_cluster(
            works, self.cluster, self.policy, start=state.at, end=end, until_started=0
        )
        began = found.played[0].started_at
        return HORIZON if began is None else began - state.at


def _fresh(work: RecordedWork, runs: float, **more: Any) -> RecordedWork:
    """Return a work without what became known only later."""
    values: dict[str, Any] = {"running": False, "nodes": (), "ends_at": None, "leaves_at": None}
    # How long it was held up is known afterwards only.
    values |= {"delay_seconds": 0.0, "check_seconds": 0.0}
    return replace(work, **(values | more), runs_seconds=runs)


def _running(one: PastWork, at: float, history: RunHistory, random: Random) -> RecordedWork:
    age = at - (one.life.times.started_at or at)
    left = history.left(one.life, age, random)
    return _fresh(one.work, left, running=True, nodes=one.life.nodes)


def _pending(one: PastWork, history: RunHistory, random: Random) -> RecordedWork:
    return _fresh(one.work, history.left(one.life, 0.0, random))


def _arrivals(state: TierState, history: RunHistory, random: Random) -> list[RecordedWork]:
    """Return what came in the day from the same time on, some days ago."""
    # Whole days: demand follows the time of day.
    back = random.randint(1, _DAYS_BACK) * DAY
    return [
        replace(_pending(one, history, random), asked_at=one.work.asked_at + back)
        for one in state.earlier
        if state.at - back < one.work.asked_at < state.at - back + HORIZON
    ]
