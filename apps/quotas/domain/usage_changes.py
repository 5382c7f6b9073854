"""How a quota key was used over time, change by change.

Spans of pods, refusals and settings tell when something changed. Summed hours tell how much it was:
an hour whose spans do not come to its sums keeps its means, and the highest limit that it can have
had: limits are whole.
"""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from math import ceil
from typing import NamedTuple

from apps.quotas.domain.allocations import UnitSpan
from apps.quotas.domain.saturation import LimitInterval

_SAME = 1e-6
# Kubernetes tells times in whole seconds: each edge may be off by one to either side.
_SLACK_SECONDS = 2.0


class UsageStep(NamedTuple):
    """A span in which nothing changed, in Unix seconds; amounts in units, None: not known."""

    start: float
    end: float
    hard: float
    used: float | None
    blocked: float | None


@dataclass(frozen=True, slots=True)
class KeySpans:
    """What is known to the second: settings, what was used, and what was blocked."""

    limits: Sequence[LimitInterval] = ()
    used: Sequence[UnitSpan] = ()
    blocked: Sequence[UnitSpan] = ()


@dataclass(frozen=True, slots=True)
class _Level:
    """The sum of spans at any time: `totals[n]` from `times[n]` on, and nothing before."""

    times: Sequence[float] = field(default_factory=list)
    totals: Sequence[float] = field(default_factory=list)

    @classmethod
    def of(cls, spans: Iterable[UnitSpan]) -> "_Level":
        changes: dict[float, float] = defaultdict(float)
        for units, start, end in spans:
            changes[start] += units
            if end is not None:
                changes[end] -= units
        times = sorted(changes)
        return cls(times, list(accumulate(changes[at] for at in times)))

    def at(self, time: float) -> float:
        place = bisect_right(self.times, time)
        return round(self.totals[place - 1], 9) if place else 0.0

    def between(self, start: float, end: float) -> Sequence[float]:
        return self.times[bisect_right(self.times, start) : bisect_right(self.times, end)]


def usage_steps(hours: Iterable[UsageStep], spans: KeySpans) -> list[UsageStep]:
    """Return the steps within these hours (with the means of each), by time, joined where equal."""
    limits = _Level.of((one.hard, one.start, one.end) for one in spans.limits)
    used, blocked = _Level.of(spans.used), _Level.of(spans.blocked)
    found: list[UsageStep] = []
    for hour in hours:
        parts = [
            _exact(hour._replace(used=hour.hard), limits, whole=True),
            _exact(hour, used),
            _exact(hour._replace(used=hour.blocked), blocked),
        ]
        for step in _merged(hour, parts):
            last = found[-1] if found else None
            if last is not None and last.end == step.start and last[2:] == step[2:]:
                found[-1] = last._replace(end=step.end)
            else:
                found.append(step)
    return found


_Part = list[tuple[float, float | None]]
"""Amounts from a time on."""


def _exact(hour: UsageStep, level: _Level, *, whole: bool = False) -> _Part:
    """Return how the hour's `used` went within it; its mean where the spans say another sum.

    Of `whole` amounts, as limits are, a broken mean says that it changed: the highest stands then.
    """
    mean = hour.used
    if mean is None:
        return [(hour.start, None)]
    edges = [hour.start, *(at for at in level.between(hour.start, hour.end) if at < hour.end)]
    ends = [*edges[1:], hour.end]
    amounts = [level.at(start) for start in edges]
    total = sum(
        amount * (end - start) for amount, start, end in zip(amounts, edges, ends, strict=True)
    )
    slack = _SLACK_SECONDS * max([1.0, *amounts]) * len(edges)
    if abs(total - mean * (hour.end - hour.start)) > slack:
        return [(hour.start, ceil(mean - _SAME) if whole else mean)]
    return list(zip(edges, amounts, strict=True))


def _merged(hour: UsageStep, parts: Sequence[_Part]) -> Iterator[UsageStep]:
    edges = sorted({at for part in parts for at, _ in part})
    for start, end in zip(edges, [*edges[1:], hour.end], strict=True):
        hard, used, blocked = (
            next(amount for at, amount in reversed(part) if at <= start) for part in parts
        )
        yield UsageStep(start, end, hard or 0.0, used, blocked)


class TimeAtLimit(NamedTuple):
    """How long all of a limit was used, in seconds, and of how long that is known."""

    full: float
    known: float

    @property
    def share(self) -> float | None:
        """The part of the known time; None without any."""
        return self.full / self.known if self.known else None


def time_at_limit(steps: Iterable[UsageStep]) -> TimeAtLimit:
    """Return how long all of a limit was used. A limit of 0 without use is shut, not full."""
    known = full = 0.0
    for step in steps:
        if step.used is None:
            continue
        known += step.end - step.start
        if step.used >= step.hard - _SAME and step.used > 0:
            full += step.end - step.start
    return TimeAtLimit(full, known)
