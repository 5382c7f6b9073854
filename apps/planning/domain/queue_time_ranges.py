"""Ranges of queue times: what replays forward said before, held against how long it took.

Replays know the queue and what runs, but not everything that delays work. So an estimate is
multiplied by the ratios of real to estimated queue times, of work with similar estimates.
"""

from collections.abc import Sequence
from math import ceil, exp, floor, log
from typing import NamedTuple

from msgspec import Struct

STARTS_NOW_SECONDS = 60.0
"""What starts within a minute starts now."""
_FRACTIONS = (0.1, 0.5, 0.9)
_NEAREST = 60
_OTHER_TIER = 1.0
"""Distance of another tier: as much as a queue time that is 2.7 times as long."""
_ENOUGH = 30


class PastForecast(NamedTuple):
    """The estimate, and the queue time, of work that had to queue; in seconds."""

    tier: str
    expected: float
    waited: float


class QueueTimeForecast(Struct, frozen=True):
    """Queue times in seconds: p10, p50, p90 of work that has to queue, and of any; and how likely
    it starts now.
    """

    queued: tuple[float, float, float]
    any: tuple[float, float, float]
    starts_now: float


def forecast(
    tier: str, expected: float, starts_now: float, past: Sequence[PastForecast]
) -> QueueTimeForecast | None:
    """Return the range of queue times for work with this estimate.

    None where too few earlier forecasts are known to tell how wide it is.
    """
    if len(past) < _ENOUGH:
        return None
    near = sorted(
        past,
        key=lambda one: (abs(log(one.expected / expected)) + _OTHER_TIER * (one.tier != tier), one),
    )[:_NEAREST]
    # In logarithms: half and twice as long are equally far off.
    ratios = sorted(log(one.waited / one.expected) for one in near)

    def queued(fraction: float) -> float:
        return max(STARTS_NOW_SECONDS, expected * exp(_rank(ratios, fraction)))

    def whole(fraction: float) -> float:
        # That part of the replays starts at once; the rest is spread over the others.
        if fraction <= starts_now:
            return 0.0
        return queued((fraction - starts_now) / (1.0 - starts_now))

    low, middle, high = _FRACTIONS
    return QueueTimeForecast(
        queued=(queued(low), queued(middle), queued(high)),
        any=(whole(low), whole(middle), whole(high)),
        starts_now=starts_now,
    )


def _rank(values: Sequence[float], fraction: float) -> float:
    # Ranks of n + 1, outwards: the next one is one more of them (split conformal prediction).
    place = fraction * (len(values) + 1)
    rank = floor(place) if fraction < 0.5 else ceil(place)
    return values[min(len(values), max(1, rank)) - 1]


class ForecastRow(Struct, frozen=True):
    """The forecast for work of a tier, a ClusterQueue (or none) and a size in units."""

    tier: str
    queue: str
    units: float
    queued: tuple[float, float, float]
    any: tuple[float, float, float]
    starts_now: float


def row_for(rows: Sequence[ForecastRow], tier: str, queue: str, units: float) -> ForecastRow | None:
    """Return the row of the smallest size that is at least as large, else of the largest.

    None where no work of the tier and queue was requested recently.
    """
    own = [one for one in rows if (one.tier, one.queue) == (tier, queue)]
    return min(own, key=lambda one: (one.units < units, abs(one.units - units)), default=None)
