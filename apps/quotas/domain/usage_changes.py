"""How a quota key was used over time, change by change.

Spans of pods, refusals and settings tell when something changed. Summed hours tell how much it was:
an hour whose spans do not come to its sums keeps its means, and the highest limit that it can have
had: limits are whole.
"""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from itertools import accumulate
from math import ceil
from operator import attrgetter
from typing import Annotated, NamedTuple

from msgspec import Struct, field

from apps.accounts.domain.structs import replace
from apps.clusters.domain.columns import Column
from apps.clusters.domain.window import from_seconds
from apps.quotas.domain.allocations import UnitSpan
from apps.quotas.domain.saturation import LimitInterval

_SAME = 1e-6
# Kubernetes tells times in whole seconds: each edge may be off by one to either side.
_SLACK_SECONDS = 2.0


class UsageStep(Struct, frozen=True):
    """A span in which nothing changed; amounts in units of the key, None: not known."""

    start: Annotated[datetime, Column("From")]
    end: Annotated[datetime, Column("Until")]
    hard: Annotated[float, Column("Limit")]
    used: Annotated[float | None, Column("Used")]
    blocked: Annotated[float | None, Column("Blocked", key="suppressed")]


class KeySpans(Struct, frozen=True):
    """What is known to the second, in Unix time: settings, what was used, what was blocked."""

    limits: Sequence[LimitInterval] = ()
    used: Sequence[UnitSpan] = ()
    blocked: Sequence[UnitSpan] = ()


class _Level(Struct, frozen=True):
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
        # Floats that come and go leave crumbs, which would look like changes.
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
            _exact(hour, hour.hard, limits, whole=True),
            _exact(hour, hour.used, used),
            _exact(hour, hour.blocked, blocked),
        ]
        for step in _merged(hour, parts):
            last = found[-1] if found else None
            if last and last.end == step.start and _amounts(last) == _amounts(step):
                found[-1] = replace(last, end=step.end)
            else:
                found.append(step)
    return found


_amounts = attrgetter("hard", "used", "blocked")
_Part = list[tuple[float, float | None]]
"""Amounts from a time on."""


def _exact(hour: UsageStep, mean: float | None, level: _Level, *, whole: bool = False) -> _Part:
    """Return how an amount changed within the hour; its mean where the spans give another sum.

    A fraction as the mean of `whole` amounts, such as limits, shows that they changed: then the
    mean is rounded up.
    """
    first, last = hour.start.timestamp(), hour.end.timestamp()
    if mean is None:
        return [(first, None)]
    edges = [first, *(at for at in level.between(first, last) if at < last)]
    ends = [*edges[1:], last]
    amounts = [level.at(start) for start in edges]
    total = sum(
        amount * (end - start) for amount, start, end in zip(amounts, edges, ends, strict=True)
    )
    # Each edge may be late or early, and moves at most the largest amount for that long.
    slack = _SLACK_SECONDS * max([1.0, *amounts]) * len(edges)
    if abs(total - mean * (last - first)) > slack:
        # Less a crumb, so that a mean of 8.0000000001 is a limit of 8 and not of 9.
        return [(first, ceil(mean - _SAME) if whole else mean)]
    return list(zip(edges, amounts, strict=True))


def _merged(hour: UsageStep, parts: Sequence[_Part]) -> Iterator[UsageStep]:
    edges = sorted({at for part in parts for at, _ in part})
    for start, end in zip(edges, [*edges[1:], hour.end.timestamp()], strict=True):
        hard, used, blocked = (
            next(amount for at, amount in reversed(part) if at <= start) for part in parts
        )
        yield UsageStep(from_seconds(start), from_seconds(end), hard or 0.0, used, blocked)


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
        seconds = (step.end - step.start).total_seconds()
        known += seconds
        if step.used >= step.hard - _SAME and step.used > 0:
            full += seconds
    return TimeAtLimit(full, known)
