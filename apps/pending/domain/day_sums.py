"""Sums of pending time by day, and percentiles of queue times.

Amounts are whole nano-GPU-hours: each part of an interval is rounded once, so that sums are exact.
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import date
from itertools import accumulate

from msgspec import Struct

from apps.pending.domain.diagnosis import Counts
from apps.usage.domain.amounts import nano

COLUMN = {
    Counts.PENDING.value: "waited",
    Counts.SUPPRESSED.value: "suppressed",
    Counts.STARTING.value: "starting",
}
"""The sum that an interval of each kind adds to; what counts as nothing adds to none."""
MOST = 2**63 - 1
"""The largest sum that is kept; a larger, impossible amount is cut to it."""


class DayPart(Struct, frozen=True):
    """A span of Unix time that is summed by itself: (a part of) a day, under one team."""

    start: float
    end: float
    day: date
    team_id: int = 0


class DayParts:
    """Stretches in order, disjoint, found by time."""

    def __init__(self, parts: Iterable[DayPart]) -> None:
        self._all = tuple(parts)
        self._starts = [one.start for one in self._all]

    def parts(self, start: float, end: float) -> Iterator[tuple[DayPart, float]]:
        """Yield each part that start..end touches, with the seconds of it in there."""
        place = max(0, bisect_right(self._starts, start) - 1)
        for one in self._all[place:]:
            if one.start >= end:
                return
            seconds = min(end, one.end) - max(start, one.start)
            if seconds > 0:
                yield one, seconds

    def at(self, time: float) -> DayPart | None:
        """Return the part in which a time lies; None outside of all."""
        place = bisect_right(self._starts, time) - 1
        if place < 0 or time >= self._all[place].end:
            return None
        return self._all[place]


def amount(counted: float, seconds: float) -> int:
    """Return GPU-equivalents over some seconds in nano-GPU-hours."""
    return nano(counted * seconds / 3600.0)


def nearest_rank(counts: Mapping[float, int], fractions: Sequence[float]) -> list[float]:
    """Return for each fraction (0..1] the least value that such a share does not exceed.

    `counts` says how often each value occurs; it must not be empty. By nearest rank: values
    returned are real ones, never between two.
    """
    values = sorted(counts)
    ranks = list(accumulate(counts[value] for value in values))
    total = ranks[-1]
    # Whole thousandths, for 0.95 × 20 is a little more than 19.
    wanted = [-(-round(fraction * 1000) * total // 1000) for fraction in fractions]
    return [values[bisect_right(ranks, max(rank, 1) - 1)] for rank in wanted]
