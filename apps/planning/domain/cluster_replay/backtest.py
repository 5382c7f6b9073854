"""How near a replay with nothing changed comes to what happened, tier by tier."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from msgspec import Struct, field

from apps.pending.domain.day_sums import nearest_rank
from apps.planning.domain.cluster_replay.engine import replay_cluster
from apps.planning.domain.cluster_replay.inputs import (
    SLACK,
    Packing,
    PlayedWork,
    RecordedWork,
    ReplayAssumption,
    ReplayCluster,
    ReplayPolicy,
)

ALL_TIERS = ""
"""The key of the sums over all tiers."""
_SECONDS = 3600.0


class WorkTimes(NamedTuple):
    """When a work was asked for, started and ended or was canceled, as it was or in a replay.

    `running`: it held GPUs before the window; it has no queue time in it. `delay`: seconds that it
    was pending for what is neither quota nor room: no replay knows why. `preempted`: seconds from
    its start on in which it was pending again.
    """

    tier: str
    gpus: float
    asked_at: float
    started_at: float | None
    ended_at: float | None
    running: bool = False
    delay: float = 0.0
    preempted: float = 0.0


class TierTimes(Struct):
    """Queue times of what started in the window, and GPU-hours pending and allocated in it.

    Both without delays, which are apart.
    """

    waits: Counter[float] = field(default_factory=Counter)
    unmet_gpu_hours: float = 0.0
    allocated_gpu_hours: float = 0.0
    delayed_gpu_hours: float = 0.0

    def percentiles(self) -> tuple[float | None, float | None]:
        """Return the median and the 95th percentile of queue times; None where none started."""
        if not self.waits:
            return None, None
        p50, p95 = nearest_rank(self.waits, (0.5, 0.95))
        return p50, p95


def tier_times(works: Iterable[WorkTimes], *, start: float, end: float) -> Mapping[str, TierTimes]:
    """Return the sums of each tier from `start` to `end`, and of ALL_TIERS."""
    found: dict[str, TierTimes] = defaultdict(TierTimes)
    for work in works:
        began = end if work.started_at is None else work.started_at
        over = end if work.ended_at is None else work.ended_at
        pending = max(0.0, min(began, over, end) - max(work.asked_at, start))
        held = max(0.0, min(over, end) - max(began, start)) - work.preempted
        # What ran before and lost its room in a replay is pending, without a delay of its request.
        delayed = 0.0 if work.running else min(work.delay, pending)
        unmet = pending - delayed + work.preempted
        for own in (found[work.tier], found[ALL_TIERS]):
            own.allocated_gpu_hours += work.gpus * held / _SECONDS
            own.unmet_gpu_hours += work.gpus * unmet / _SECONDS
            own.delayed_gpu_hours += work.gpus * delayed / _SECONDS
            # What ran before has its queue time in the weeks before.
            if not work.running and work.started_at is not None and work.started_at < end:
                own.waits[max(0.0, work.started_at - work.asked_at - work.delay)] += 1
    return dict(found)


def replayed_times(
    played: Sequence[PlayedWork], happened: Sequence[WorkTimes], *, end: float
) -> list[WorkTimes]:
    """Return when each work was replayed until `end`, in the order of both.

    It has the recorded size: what a unit weighs may differ between nodes of a tier.
    """
    return [
        was._replace(
            started_at=one.started_at, ended_at=one.ended_at, preempted=_preempted(one, end)
        )
        for one, was in zip(played, happened, strict=True)
    ]


def _preempted(one: PlayedWork, end: float) -> float:
    """Return the seconds from its first start to `end` that a work was pending."""
    over = end if one.ended_at is None else one.ended_at
    begins = [*(run.start for run in one.runs[1:]), over]
    return sum(
        begin - run.end
        for run, begin in zip(one.runs, begins[: len(one.runs)], strict=True)
        if run.end is not None
    )


class TimesRow(Struct, frozen=True):
    """What is compared of a tier: queue times in seconds (None where none started), GPU-hours.

    `delayed_gpu_hours` were pending for what is neither quota nor room, and are in no other sum.
    """

    p50_seconds: float | None
    p95_seconds: float | None
    unmet_gpu_hours: float
    allocated_gpu_hours: float
    delayed_gpu_hours: float = 0.0


class BacktestRow(Struct, frozen=True):
    """A tier as it was and as it is replayed; ALL_TIERS has the sums."""

    tier: str
    happened: TimesRow
    replayed: TimesRow


class Backtested(Struct, frozen=True):
    """The rows, sums first; how nodes were chosen; and what is taken for granted."""

    rows: tuple[BacktestRow, ...]
    packing: Packing
    assumptions: tuple[ReplayAssumption, ...]


class RecordedSpan(Struct, frozen=True):
    """What was recorded from `start` to `end`: works, how each went in the same order, nodes."""

    works: Sequence[RecordedWork]
    happened: Sequence[WorkTimes]
    cluster: ReplayCluster
    start: float
    end: float


def backtest(span: RecordedSpan, packing: Packing) -> Backtested:
    """Replay recorded works with nothing changed, beside what happened."""
    real = tier_times(span.happened, start=span.start, end=span.end)
    policy = ReplayPolicy(packing=packing, recorded_nodes=True)
    played, assumptions = _replayed(span, policy)
    rows = (
        BacktestRow(tier, times_row(real[tier]), times_row(played[tier])) for tier in sorted(real)
    )
    return Backtested(tuple(rows), packing, assumptions)


def nearest_packing(span: RecordedSpan) -> Packing | None:
    """Return the way to choose nodes that comes nearest to the GPU-hours allocated and unmet.

    How the scheduler chooses nodes is not recorded: days before those of a backtest tell it. None
    where all come as near.
    """
    real = _sums(tier_times(span.happened, start=span.start, end=span.end))
    # Not on the nodes that it was on: there all do the same.
    errors = {
        one: _error(real, _sums(_replayed(span, ReplayPolicy(packing=one))[0])) for one in Packing
    }
    nearest = min(errors.values())
    near = [one for one in Packing if errors[one] <= nearest + SLACK]
    if len(near) == len(Packing):
        return None
    # What kube-scheduler does where it is not told otherwise goes before others as near.
    return Packing.SPREAD if Packing.SPREAD in near else near[0]


def _replayed(
    span: RecordedSpan, policy: ReplayPolicy
) -> tuple[Mapping[str, TierTimes], tuple[ReplayAssumption, ...]]:
    found = replay_cluster(span.works, span.cluster, policy, start=span.start, end=span.end)
    times = replayed_times(found.played, span.happened, end=span.end)
    played = tier_times(times, start=span.start, end=span.end)
    return played, found.assumptions


def _error(real: TierTimes, played: TierTimes) -> float:
    return abs(played.allocated_gpu_hours - real.allocated_gpu_hours) + abs(
        played.unmet_gpu_hours - real.unmet_gpu_hours
    )


def _sums(found: Mapping[str, TierTimes]) -> TierTimes:
    return found.get(ALL_TIERS, TierTimes())


def times_row(times: TierTimes) -> TimesRow:
    """Return what is compared of a tier's sums."""
    p50, p95 = times.percentiles()
    return TimesRow(
        p50, p95, times.unmet_gpu_hours, times.allocated_gpu_hours, times.delayed_gpu_hours
    )
