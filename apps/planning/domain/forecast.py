"""Demand of the coming days: a weekday pattern and a damped trend, with a range from past errors.

Additive Holt-Winters smoothing (Winters 1960; damped trend: Gardner and McKenzie 1985), with the
gains of a fixed list that erred less when each past day was forecast from the days before it, mixed
with *as on the same weekday of the week before*: a mean of both errs less than either where little
is known.
"""

from collections.abc import Sequence
from itertools import product

import numpy as np
from msgspec import Struct

from apps.fairness.domain.shares import Array

WEEK = 7
FEWEST_DAYS = 3 * WEEK
"""Known days below which there is no forecast: a weekday must have been seen three times."""
LONGEST_AHEAD = 182
_TESTED_AHEAD = 28
# From the day on from which a forecast is held against what came: the first week starts the state.
_FIRST_ORIGIN = 10
_LOW, _HIGH = 0.1, 0.9
_TINY = 1e-9
_TRENDS = ((0.0, 1.0), (0.02, 0.9), (0.02, 0.98), (0.1, 0.9), (0.1, 0.98))
_GAINS = np.array(
    [
        (level, trend, damping, season)
        for level, (trend, damping), season in product(
            (0.05, 0.1, 0.2, 0.35, 0.5, 0.7), _TRENDS, (0.0, 0.05, 0.15)
        )
    ]
).T


class ForecastSkill(Struct, frozen=True):
    """How forecasts of past days came out, each made from the days before it.

    `error` and `naive_error` are mean absolute errors in GPUs, of this method and of *as on the
    same weekday of the week before*. `coverage` is the part of days (0..1) that were within the
    range. `compared` counts pairs of a day and a number of days ahead, up to `ahead`.
    """

    error: float
    naive_error: float
    coverage: float
    compared: int
    ahead: int


class Forecast(Struct, frozen=True):
    """Mean GPUs in demand on each coming day, the first one first; `low` to `high` holds 80 %.

    `skill` is None where too few days are known to hold a forecast against what came.
    """

    low: tuple[float, ...]
    middle: tuple[float, ...]
    high: tuple[float, ...]
    skill: ForecastSkill | None


def forecast(days: Sequence[float | None], *, ahead: int) -> Forecast | None:
    """Forecast demand from that of consecutive days, the oldest first; None: a day without data.

    `ahead` is in days; no more are forecast than are known, and at most LONGEST_AHEAD. None where
    fewer than FEWEST_DAYS are known. Raises ValueError for an `ahead` below 1.
    """
    if ahead < 1:
        raise ValueError(f"ahead is a number of days from 1 on, got {ahead}")
    demand = _from_first_known(days)
    known = int(np.isfinite(demand).sum())
    if known < FEWEST_DAYS:
        return None
    far = min(ahead, known, LONGEST_AHEAD)
    tested = min(_TESTED_AHEAD, demand.size // 3)
    long = max(far, tested)
    found, naive, came = _smoothed(demand, long), _naive(demand, long), _ahead_of(demand, tested)
    if not np.isfinite(came[_FIRST_ORIGIN:]).any():
        return None
    mixed = _mixed(found, naive, came)
    low, high = _spread(came - mixed[:, :tested], far)
    middle = mixed[-1, :far]
    return Forecast(
        low=_gpus(middle + low),
        middle=_gpus(middle),
        high=_gpus(middle + high),
        skill=_skill(found[:, :, :tested], naive[:, :tested], came),
    )


def _gpus(line: Array) -> tuple[float, ...]:
    """Return values as they are kept: none below zero, in thousandths of a GPU."""
    return tuple(np.maximum(0.0, np.round(line, 3)).tolist())


def _from_first_known(days: Sequence[float | None]) -> Array:
    demand = np.array([np.nan if value is None else value for value in days], dtype=np.float64)
    known = np.flatnonzero(np.isfinite(demand))
    return demand[known[0] :] if known.size else demand[:0]


def _smoothed(demand: Array, ahead: int) -> Array:
    """Return what each day's state forecasts: (days, gains, ahead), NaN where it has none yet."""
    level_gain, trend_gain, damping, season_gain = _GAINS
    first = demand[: 2 * WEEK]
    level = np.full(level_gain.size, float(np.nanmean(first)))
    trend = np.zeros_like(level)
    weekdays = np.array([_mean(first[day::WEEK]) for day in range(WEEK)]) - level[0]
    season = np.tile(np.nan_to_num(weekdays), (level.size, 1))
    steps = np.arange(1, ahead + 1)
    # The trend of a day ahead, two, …: damping + damping² + …
    reach = np.cumsum(damping[:, np.newaxis] ** steps, axis=1)
    found = np.full((demand.size, level.size, ahead), np.nan)
    for day, value in enumerate(demand):
        expected = level + damping * trend
        weekday = day % WEEK
        if np.isfinite(value):
            before = level
            level = level_gain * (value - season[:, weekday]) + (1 - level_gain) * expected
            trend = trend_gain * (level - before) + (1 - trend_gain) * damping * trend
            season[:, weekday] += (
                (1 - level_gain) * season_gain * (value - expected - season[:, weekday])
            )
        else:
            # A day without data teaches nothing; the trend goes on.
            level, trend = expected, damping * trend
        found[day] = (
            level[:, np.newaxis] + trend[:, np.newaxis] * reach + season[:, (day + steps) % WEEK]
        )
    return found


def _mean(values: Array) -> float:
    known = values[np.isfinite(values)]
    return float(known.mean()) if known.size else np.nan


def _ahead_of(demand: Array, tested: int) -> Array:
    """Return what came 1, 2, … days after each day: (days, tested), NaN where nothing is known."""
    later = np.full((demand.size, tested), np.nan)
    for step in range(1, tested + 1):
        later[:-step, step - 1] = demand[step:]
    return later


def _mixed(found: Array, naive: Array, came: Array) -> Array:
    """Return the forecasts of each day, (days, ahead): the better half of all gains, and *naive*.

    Both weigh by the inverse square of their errors, as means of forecasts do that err apart
    (Bates and Granger 1969). `came` is what is known to have come, and is all that teaches.
    """
    tested = came.shape[1]
    errors = np.abs(came[:, np.newaxis, :] - found[:, :, :tested])
    # The state of the first days was made from them and the days after them.
    errors[:_FIRST_ORIGIN] = np.nan
    known = np.isfinite(errors[:, 0])
    order = np.argsort(np.nansum(errors, axis=(0, 2)) / known.sum())
    smooth = found[:, order[: order.size // 2]].mean(axis=1)
    weights = [
        1.0 / (float(np.nanmean(np.abs(came - way[:, :tested])[_FIRST_ORIGIN:])) + _TINY) ** 2
        for way in (smooth, naive)
    ]
    mixed: Array = (smooth * weights[0] + naive * weights[1]) / sum(weights)
    mixed[:_FIRST_ORIGIN] = np.nan
    return mixed


def _spread(errors: Array, ahead: int) -> tuple[Array, Array]:
    """Return how far below and above the middle 80 % of what came was, for each day ahead.

    `errors` are (days, tested). Farther ahead than was tested it grows as a random walk does.
    """
    tested = errors.shape[1]
    low, high = np.zeros(tested), np.zeros(tested)
    for step in range(tested):
        # Neighbours help: few days are known, and errors of two and three days ahead are alike.
        near = errors[:, max(0, step - 2) : step + 3]
        if not np.isfinite(near).any():
            near = errors
        low[step], high[step] = np.nanquantile(near, (_LOW, _HIGH))
    # It is no surer about a later day than about an earlier one.
    low, high = np.minimum.accumulate(low), np.maximum.accumulate(high)
    steps = np.arange(1, ahead + 1)
    # Errors of neighbouring days are one experience: few weeks know little of what can happen.
    weeks = np.isfinite(errors).any(axis=1).sum() / WEEK
    grown = np.sqrt(np.maximum(1.0, steps / tested)) * (1.0 + 1.0 / max(1.0, weeks))
    at = np.minimum(steps, tested) - 1
    return np.minimum(0.0, low[at]) * grown, np.maximum(0.0, high[at]) * grown


def _skill(found: Array, naive: Array, came: Array) -> ForecastSkill | None:
    """Hold forecasts of the last third of days against what came.

    Weights and range are those that the days before the first of them teach, and nothing later.
    """
    days, tested = came.shape
    begin = days - days // 3
    past = came.copy()
    for step in range(1, tested + 1):
        # What came `step` days later must have come before the test begins.
        past[max(0, begin - step) :, step - 1] = np.nan
    taught = np.isfinite(past[_FIRST_ORIGIN:]).any(axis=0)
    if not taught.any():
        return None
    tested = int(taught.sum())
    past, came, naive = past[:, :tested], came[:, :tested], naive[:, :tested]
    mixed = _mixed(found[:, :, :tested], naive, past)
    low, high = _spread(past - mixed, tested)
    errors, naive_errors = (came - mixed)[begin:], (came - naive)[begin:]
    both = np.isfinite(errors) & np.isfinite(naive_errors)
    if not both.any():
        return None
    within = (errors >= low) & (errors <= high)
    return ForecastSkill(
        error=float(np.abs(errors[both]).mean()),
        naive_error=float(np.abs(naive_errors[both]).mean()),
        coverage=float(within[both].mean()),
        compared=int(both.sum()),
        ahead=tested,
    )


def _naive(demand: Array, tested: int) -> Array:
    """Return the demand of the newest same weekday that each day knew of: (days, tested).

    Where that day has no data, the mean of the week before stands in.
    """
    found = np.full((demand.size, tested), np.nan)
    steps = np.arange(1, tested + 1)
    for day in range(WEEK - 1, demand.size):
        same = demand[day + steps - WEEK * -(-steps // WEEK)]
        found[day] = np.where(np.isfinite(same), same, _mean(demand[day - WEEK + 1 : day + 1]))
    return found
