"""How much was held at once, which no mean of an hour tells."""

from collections.abc import Iterable
from typing import NamedTuple


class AllocationInterval(NamedTuple):
    """A span in which units were held, in Unix seconds; `end` None: they still are."""

    start: float
    end: float | None
    units: float


def most_at_once(intervals: Iterable[AllocationInterval]) -> float:
    """Return the highest sum of units of intervals that overlap, 0.0 for none.

    What is freed in the second in which something else is taken is not held beside it.
    """
    steps: list[tuple[float, float]] = []
    for start, end, units in intervals:
        if end is None or end > start:
            steps.append((start, units))
            if end is not None:
                steps.append((end, -units))
    steps.sort()
    held = most = 0.0
    for _, units in steps:
        held += units
        most = max(most, held)
    return round(most, 9)
