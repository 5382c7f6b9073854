"""Growth of counters from their raw samples: over resets, never over gaps."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

LONGEST_GAP_SECONDS = 300.0
"""Samples further apart tell nothing of the time between: Prometheus looks back as far."""


_LARGEST = 2.0**53
"""Beyond it a float does not count by one: such a value is a blank, or no counter."""


def is_count(value: float) -> bool:
    """Say whether a counter can have a value; not negative, NaN, infinite or beyond counting."""
    return 0.0 <= value <= _LARGEST


class Sample(NamedTuple):
    """A value of a counter at a time, Unix seconds."""

    at: float
    value: float


def growth(samples: Sequence[Sample], start: float, *, from_zero: bool = False) -> float:
    """Return how much a counter grew from `start` on; `samples` are in the order of time.

    Growth counts where a sample ends it that is not before `start`, so that the hours of a counter
    sum to the whole. After a reset the new value is the growth. Between samples too far apart
    nothing is counted, and neither is the first value, unless the counter was seen to begin
    (`from_zero`). What no counter can have is left out, see `is_count`.
    """
    total, before = 0.0, None
    for one in samples:
        if not is_count(one.value):
            continue
        if before is None:
            grown = one.value if from_zero else 0.0
        elif one.at - before.at > LONGEST_GAP_SECONDS:
            grown = 0.0
        else:
            # A process that starts again counts from zero: what it has is what it did since.
            grown = one.value - before.value if one.value >= before.value else one.value
        total += grown if one.at >= start else 0.0
        before = one
    return total


def measured_seconds(times: Iterable[float], start: float) -> float:
    """Return for how long there were samples, as `growth` counts them; `times` are in order."""
    seconds, before = 0.0, None
    for at in times:
        if before is not None and at >= start and at - before <= LONGEST_GAP_SECONDS:
            seconds += at - before
        before = at
    return seconds


def was_seen_to_begin(first: float, others: Iterable[float]) -> bool:
    """Say whether a series began at `first`: its target was scraped before, and had none of it.

    Libraries show a counter with labels from its first event on. `others` are the times at which
    the target was scraped.
    """
    return any(first - LONGEST_GAP_SECONDS <= at < first for at in others)
