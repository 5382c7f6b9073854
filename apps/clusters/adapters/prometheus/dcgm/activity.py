"""Telling usable activity values from blanks, wrong units and copies. Pure functions.

DCGM writes activity as a fraction 0..1 (`DCGM_FI_PROF_GR_ENGINE_ACTIVE`) or as whole per cent
(`DCGM_FI_DEV_GPU_UTIL`). Collectors in between have been seen to rescale either, and old
exporters leak blanks such as 2147483632 or 9.2e18.
"""

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from itertools import pairwise
from math import inf
from statistics import median

Sample = tuple[float, float]
"""(Unix seconds, value)."""

# Values a little over 1 are jitter of the counters and are clamped; more is no fraction.
LARGEST_FRACTION = 1.05
LARGEST_PERCENT = 105.0
# Part of a sampling interval that must lie between samples of two series of one device, for the
# second to count as following the first and not as its copy.
_APART = 0.75


def usable(samples: Iterable[Sample], *, scale: float) -> list[Sample]:
    """Return the samples that are fractions 0..1 once multiplied by `scale`; 1..1.05 become 1."""
    # NaN fails both comparisons.
    return [
        (at, min(value * scale, 1.0))
        for at, value in samples
        if 0.0 <= value * scale <= LARGEST_FRACTION
    ]


def reads_percent(values: Iterable[float]) -> bool:
    """Say whether values of a metric of fractions are per cent: most that are not 0 exceed 1."""
    fractions = percents = 0
    for value in values:
        if 0.0 < value <= LARGEST_FRACTION:
            fractions += 1
        elif LARGEST_FRACTION < value <= LARGEST_PERCENT:
            percents += 1
    return percents > fractions


def reads_fraction(sums: Iterable[tuple[float, int]]) -> bool:
    """Say whether (sum, samples) of a metric of whole per cent were rescaled to fractions.

    No mean is over 1 then, and only a value strictly between 0 and 1 proves it: a sum of whole
    per cent is a whole number. A device at exactly 1 % looks like one at 100 % of the other
    scale and proves nothing.
    """
    found = False
    for total, count in sums:
        if not 0.0 <= total <= LARGEST_PERCENT * count:
            continue
        if total > LARGEST_FRACTION * count:
            return False
        if total != int(total):
            found = True
    return found


def merged(series: Sequence[Sequence[Sample]]) -> list[Sample]:
    """Return the samples of several series of one device and holder as those of one.

    Series that follow each other are joined; where they overlap (two exporters, or one that is
    scraped twice) the copies are dropped.
    """
    if len(series) == 1:
        return list(series[0])
    spacing = sampling_interval(max(series, key=len, default=())) or 0.0
    ordered = sorted((at, number, value) for number, one in enumerate(series) for at, value in one)
    kept: list[Sample] = []
    last_at, last_number = float("-inf"), -1
    for at, number, value in ordered:
        if number == last_number or at - last_at >= _APART * spacing:
            kept.append((at, value))
            last_at, last_number = at, number
    return kept


def between(samples: Sequence[Sample], others: Sequence[Sequence[Sample]]) -> list[Sample]:
    """Return those samples that lie where none of the other series has any.

    What an exporter shows that does not know the pods is dropped where another one names them.
    """
    spacing = sampling_interval(max([*others, samples], key=len)) or 0.0
    times = sorted(at for one in others for at, _ in one)
    kept = []
    for at, value in samples:
        place = bisect_left(times, at)
        near = min((abs(at - other) for other in times[max(0, place - 1) : place + 1]), default=inf)
        if near >= _APART * spacing:
            kept.append((at, value))
    return kept


def sampling_interval(samples: Sequence[Sample]) -> float | None:
    """Return the median spacing in seconds, to the millisecond; None of fewer than two samples."""
    spacings = [b[0] - a[0] for a, b in pairwise(samples)]
    return round(median(spacings), 3) if spacings else None
