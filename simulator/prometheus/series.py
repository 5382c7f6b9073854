"""Series in closed form: values that are constant, or grow evenly, between changes.

A series is scraped every 30 s, or as its exporter is set up, at its target's own phase. What lies
between two changes is a segment; its samples are counted, summed and compared by arithmetic, never
listed, unless raw samples are asked for. All times here are whole milliseconds.
"""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

SCRAPE_MS = 30_000


class Segment(NamedTuple):
    """`value` at `start_ms`, growing by `slope` a millisecond, up to, not including, `end_ms`."""

    start_ms: int
    end_ms: int
    value: float
    slope: float = 0.0


class Series(NamedTuple):
    """One labelled series; `segments` are in order and do not overlap."""

    labels: Mapping[str, str]
    phase_ms: int
    segments: list[Segment]
    interval_ms: int = SCRAPE_MS


class Samples(NamedTuple):
    """The samples number `first` .. `last` of a segment; number n is at phase + n x interval."""

    first: int
    last: int
    phase_ms: int
    segment: Segment
    interval_ms: int = SCRAPE_MS

    @property
    def size(self) -> int:
        return self.last - self.first + 1

    def time_ms(self, number: int) -> int:
        return self.phase_ms + number * self.interval_ms

    def value(self, number: int) -> float:
        start, _, value, slope = self.segment
        return value + slope * (self.time_ms(number) - start) if slope else value

    def total(self) -> float:
        """Return the sum of the values: an arithmetic series."""
        if not self.segment.slope:
            return self.segment.value * self.size
        return (self.value(self.first) + self.value(self.last)) * self.size / 2.0

    def listed(self) -> Iterator[tuple[int, float]]:
        """Yield (time in milliseconds, value) of each sample."""
        for number in range(self.first, self.last + 1):
            yield self.time_ms(number), self.value(number)


def samples_between(
    segment: Segment, phase_ms: int, low_ms: int, high_ms: int, interval_ms: int = SCRAPE_MS
) -> Samples | None:
    """Return a segment's samples at low..high, both ends included; None when there are none."""
    first = -((phase_ms - max(segment.start_ms, low_ms)) // interval_ms)
    last = (min(segment.end_ms - 1, high_ms) - phase_ms) // interval_ms
    return Samples(first, last, phase_ms, segment, interval_ms) if last >= first else None
