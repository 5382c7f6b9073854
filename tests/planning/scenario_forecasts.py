"""Holds forecasts against what came on `campus`: expected queue times, and demand.

`python -m tests.planning.scenario_forecasts` writes what a watch would have recorded of 21 days,
learns from the first 14 as a worker does, and tests on work of the other 7. It ends with status 1
where a range of 80 % holds less than 75 % or more than 85 % of the queue times of work that had to
queue, where its pinball loss is no less than that of plain history, or where the Brier score of
«starts now» is no less than that of the base rate. So it does where forecasts of the demand of
tiers, of the last third of the days, err no less than *the weekday of the week before*, and where
the definitions have other figures than these.
"""

import sys
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

from msgspec import Struct

from simulator.fleet import DAY
from simulator.scenarios.registry import load
from tests.simulator.truths import NOW
from tests.truths import begin

if TYPE_CHECKING:
    from apps.planning.domain.expected_starts import PastWork, TierForecaster
    from apps.planning.selectors import RecordedDemand

_TODAY = NOW // DAY * DAY
_FIRST, _DAYS, _LEARNT = 35, 21, 14
"""Days before today at which the recording begins, of how many it is, and how many are learnt from.

After 21 days the demand of `campus` repeats, minute by minute: of days 22 to 35, 99 % of the work
that queued has a twin of its size that queued as long. Such tests ask what was told before.
"""
_SAMPLE = 400
_HISTORY = 30 * DAY
_NOW_SECONDS = 60.0
_AHEAD = 7
_DOCUMENT = Path("docs/definitions.md")
_FRACTIONS = (0.1, 0.5, 0.9)
_HELD = (0.75, 0.85)


class ForecastScores(Struct, frozen=True):
    """What is held: a share (0..1), pinball losses in seconds, Brier scores (0..1)."""

    within: float
    pinball: float
    history_pinball: float
    brier: float
    base_brier: float

    def published(self) -> Sequence[str]:
        """Return the lines of the table in the definitions."""
        return (
            "| 80 % range holds the real queue time, of work that queued for more than 60 s "
            f"| {self.within * 100:.1f} % | |",
            f"| pinball loss of p10, p50, p90 (s) | {self.pinball:,.0f} "
            f"| {self.history_pinball:,.0f} |",
            f"| Brier score of *starts now* | {self.brier:.3f} "
            f"| {self.base_brier:.3f} (base rate) |",
        )

    def failures(self) -> Iterator[str]:
        """Yield a line for each score that is not as promised."""
        low, high = _HELD
        if not low <= self.within <= high:
            yield f"80 % ranges hold {self.within:.1%} of queue times"
        if self.pinball >= self.history_pinball:
            yield f"pinball loss {self.pinball:,.0f} s, plain history {self.history_pinball:,.0f} s"
        if self.brier >= self.base_brier:
            yield f"Brier score {self.brier:.3f}, base rate {self.base_brier:.3f}"


class DemandScores(Struct, frozen=True):
    """Forecasts of the demand of tiers held against what came.

    `error` and `naive_error` are sums over tiers of mean absolute errors in GPUs, of the method and
    of the weekday of the week before. `within` is the share (0..1) of days in the range of 80 %.
    """

    tiers: int
    error: float
    naive_error: float
    within: float

    def published(self) -> Sequence[str]:
        """Return the lines of the table in the definitions."""
        return (
            f"| mean error of {self.tiers} tiers, summed (GPUs) | {self.error:.1f} "
            f"| {self.naive_error:.1f} |",
            f"| 80 % range holds the demand of the day | {self.within * 100:.0f} % | |",
        )

    def failures(self) -> Iterator[str]:
        """Yield a line for each score that is not as promised."""
        if not self.error < self.naive_error:
            yield f"demand errs by {self.error:.1f} GPUs, the week before by {self.naive_error:.1f}"


def demand_scores(recorded: "RecordedDemand") -> DemandScores:
    """Return the scores of forecasts of the recorded demand, day by day, of each tier."""
    from apps.planning.domain.cluster_replay.backtest import ALL_TIERS, tier_times
    from apps.planning.domain.forecast import forecast

    start, end = int(recorded.window.start_seconds), int(recorded.window.end_seconds)
    times = [life.times for life in recorded.lives]
    days = [tier_times(times, start=at, end=at + DAY) for at in range(start, end, DAY)]
    skills = []
    for tier in sorted({tier for day in days for tier in day} - {ALL_TIERS}):
        asked = [
            (day[tier].allocated_gpu_hours + day[tier].unmet_gpu_hours) / 24 if tier in day else 0.0
            for day in days
        ]
        found = forecast(asked, ahead=_AHEAD)
        if found is not None and found.skill is not None:
            skills.append(found.skill)
    compared = sum(one.compared for one in skills)
    return DemandScores(
        tiers=len(skills),
        error=sum(one.error for one in skills),
        naive_error=sum(one.naive_error for one in skills),
        within=sum(one.coverage * one.compared for one in skills) / compared,
    )


def pinball(values: Sequence[float], quantiles: Sequence[float]) -> float:
    """Return the mean pinball loss of quantiles at 10, 50 and 90 %, for values that came."""
    losses = [
        max(fraction * (value - quantile), (fraction - 1) * (value - quantile))
        for value in values
        for fraction, quantile in zip(_FRACTIONS, quantiles, strict=True)
    ]
    return sum(losses) / len(losses)


def scores(learnt: "RecordedDemand", whole: "RecordedDemand", *, split: float) -> ForecastScores:
    """Return the scores of forecasts of work that was asked for after `split`."""
    from apps.planning.domain.cluster_replay.inputs import Packing
    from apps.planning.domain.queue_time_ranges import forecast
    from apps.planning.services.queue_forecasts import past_forecasts, tier_forecasters

    past = list(past_forecasts(tier_forecasters(learnt, Packing.PACK), learnt.window))
    tiers = tier_forecasters(whole, Packing.PACK)
    tested = [one for own in tiers.values() for one in own.past if _is_tested(one, split)]
    queued, losses, plain, brier = [], [], [], []
    for one in _sample([one for one in tested if _wait(one) > _NOW_SECONDS]):
        tier = tiers[one.work.tier]
        at, waited = one.work.asked_at, _wait(one)
        found = forecast(one.work.tier, *tier.estimate(one.work, at), past)
        history = _plain(tier.past, one)
        if found is None or history is None:
            continue
        queued.append(found.queued[0] <= waited <= found.queued[2])
        losses.append(pinball([waited], found.queued))
        plain.append(pinball([waited], history))
    rate = _base_rate(tiers.values(), split)
    base = []
    for one in _sample(tested):
        _, starts_now = tiers[one.work.tier].estimate(one.work, one.work.asked_at)
        happened = float(_wait(one) <= _NOW_SECONDS)
        brier.append((starts_now - happened) ** 2)
        base.append((rate - happened) ** 2)
    return ForecastScores(*(sum(own) / len(own) for own in (queued, losses, plain, brier, base)))


def _is_tested(one: "PastWork", split: float) -> bool:
    times = one.life.times
    return times.asked_at >= split and times.started_at is not None


def _wait(one: "PastWork") -> float:
    times = one.life.times
    assert times.started_at is not None
    return times.started_at - times.asked_at


def _sample(works: Sequence["PastWork"]) -> list["PastWork"]:
    return Random(len(works)).sample(list(works), min(_SAMPLE, len(works)))  # noqa: S311


def _plain(past: Sequence["PastWork"], asked: "PastWork") -> tuple[float, ...] | None:
    """Return the quantiles of work of half to twice the size that started in the month before."""
    at, units = asked.work.asked_at, asked.work.units
    waits = sorted(
        _wait(one)
        for one in past
        if (began := one.life.times.started_at) is not None
        and at - _HISTORY <= began <= at
        and units / 2 <= one.work.units <= units * 2
    )
    return tuple(waits[int(one * (len(waits) - 1))] for one in _FRACTIONS) if waits else None


def _base_rate(tiers: Iterable["TierForecaster"], split: float) -> float:
    started = [
        _wait(one) <= _NOW_SECONDS
        for own in tiers
        for one in own.past
        if (began := one.life.times.started_at) is not None and began < split
    ]
    return sum(started) / len(started)


def campus_scores() -> tuple[ForecastScores, DemandScores]:
    """Return the scores on the recorded tables of `campus`: of queue times, and of demand."""
    from tests.planning.recorded_scenario import record_scenario

    start = _TODAY - _FIRST * DAY
    end, split = start + _DAYS * DAY, start + _LEARNT * DAY
    cluster = record_scenario(load("campus", now=NOW), start=start, end=end)
    learnt, whole = (_demand(cluster.name, start, until) for until in (split, end))
    return scores(learnt, whole, split=split), demand_scores(whole)


def _demand(cluster: str, start: int, end: int) -> "RecordedDemand":
    from apps.accounts.permissions import EVERYTHING
    from apps.clusters.domain.window import Window
    from apps.planning.selectors import recorded_demand

    window = Window(datetime.fromtimestamp(start, UTC), datetime.fromtimestamp(end, UTC))
    return recorded_demand(cluster, window, visibility=EVERYTHING)


def unpublished(found: Iterable[ForecastScores | DemandScores], document: str) -> Iterator[str]:
    """Yield a sentence for each line of figures that a document has not, or has otherwise."""
    lines = set(document.splitlines())
    for one in found:
        yield from (f"not in {_DOCUMENT}: {line}" for line in one.published() if line not in lines)


def main() -> int:
    begin()
    found = campus_scores()
    sys.stdout.write("".join(f"{one}\n" for one in found))
    wrong = [line for one in found for line in one.failures()]
    wrong += unpublished(found, _DOCUMENT.read_text(encoding="utf-8"))
    sys.stdout.write("".join(f"{line}\n" for line in wrong))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
