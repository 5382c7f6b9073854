"""Demand of the coming days: pattern, trend, range, and how it is held against what came."""

import csv
import gzip
from collections import defaultdict
from math import pi, sin
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from apps.planning.domain.forecast import FEWEST_DAYS, LONGEST_AHEAD, forecast

HELIOS = Path("simulator/data/helios_earth/earth_vc_minutely_20200501_20200524.csv.gz")
Days = list[float | None]


def weekly(count: int, seed: int, *, noise: float = 6.0, growth: float = 0.0) -> Days:
    """Return days with empty weekends, noise and a trend."""
    random = np.random.default_rng(seed)
    return [
        max(0.0, 60 - 30 * (day % 7 > 4) + growth * day + random.normal(0, noise))
        for day in range(count)
    ]


def wave(count: int, seed: int) -> Days:
    """Return days of a weekly wave over a random walk."""
    random, level, found = np.random.default_rng(seed), 100.0, list[float | None]()
    for day in range(count):
        level += random.normal(0, 2)
        found.append(max(0.0, level + 15 * sin(2 * pi * day / 7) + random.normal(0, 8)))
    return found


def test_a_pattern_of_weekdays_goes_on() -> None:
    days = weekly(70, 1, noise=0.0)
    found = forecast(days, ahead=14)
    assert found is not None
    assert found.middle == pytest.approx(tuple(days[:14]), abs=0.01)
    assert found.skill is not None
    assert found.skill.error == pytest.approx(0, abs=0.01)


def test_a_trend_goes_on_and_is_damped() -> None:
    days: Days = [10.0 + day for day in range(60)]
    found = forecast(days, ahead=28)
    assert found is not None
    assert 69 < found.middle[6] < 77
    assert found.middle[-1] < 60 + 28 + 10


def test_a_range_holds_the_middle_and_widens() -> None:
    found = forecast(wave(100, 3), ahead=60)
    assert found is not None
    assert all(
        0 <= low <= middle <= high
        for low, middle, high in zip(found.low, found.middle, found.high, strict=True)
    )
    first, last = (found.high[n] - found.low[n] for n in (0, -1))
    assert last > first


def test_too_few_days_give_no_forecast() -> None:
    assert forecast(weekly(FEWEST_DAYS - 1, 1), ahead=7) is None
    assert forecast([None] * 40, ahead=7) is None
    assert forecast([], ahead=7) is None


def test_no_more_days_are_forecast_than_are_known() -> None:
    few, many = forecast(weekly(25, 1), ahead=91), forecast(weekly(400, 1), ahead=400)
    assert few is not None
    assert many is not None
    assert (len(few.middle), len(many.middle)) == (25, LONGEST_AHEAD)


def test_a_forecast_is_of_one_day_at_least() -> None:
    with pytest.raises(ValueError, match="from 1 on"):
        forecast(weekly(30, 1), ahead=0)


def test_few_scattered_days_have_a_forecast_without_a_test() -> None:
    days: Days = [5.0] * 10 + [None] * 40 + [5.0] * 11
    found = forecast(days, ahead=7)
    assert found is not None
    assert found.middle == pytest.approx((5.0,) * 7)


@settings(max_examples=60)
@given(
    st.lists(st.none() | st.floats(0, 1e6, allow_nan=False), min_size=0, max_size=90),
    st.integers(1, 60),
)
def test_any_days_give_a_finite_range_or_none(days: Days, ahead: int) -> None:
    found = forecast(days, ahead=ahead)
    if found is None:
        assert sum(day is not None for day in days) < FEWEST_DAYS
        return
    assert all(
        0 <= low <= middle <= high < 1e9
        for low, middle, high in zip(found.low, found.middle, found.high, strict=True)
    )


def test_it_errs_less_than_the_weekday_before_and_its_range_holds_four_fifths() -> None:
    errors = naive = within = compared = 0.0
    for seed in range(12):
        for days in (weekly(140, seed), wave(140, seed), weekly(140, seed, growth=0.2)):
            found = forecast(days, ahead=28)
            assert found is not None
            assert found.skill is not None
            errors += found.skill.error
            naive += found.skill.naive_error
            within += found.skill.coverage * found.skill.compared
            compared += found.skill.compared
    assert errors < 0.9 * naive
    assert 0.75 <= within / compared <= 0.9


def test_it_errs_less_than_the_weekday_before_on_the_helios_trace() -> None:
    demand: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    with gzip.open(HELIOS, "rt", encoding="ascii") as file:
        for row in csv.DictReader(file):
            gpus = float(row["running_gpu_num"]) + float(row["pending_gpu_num"])
            demand[row["vc"]][row["time"][:10]] += gpus / 1440
    skills = []
    for days in demand.values():
        found = forecast([days[day] for day in sorted(days)], ahead=7)
        assert found is not None
        assert found.skill is not None
        skills.append(found.skill)
    assert sum(one.error for one in skills) < sum(one.naive_error for one in skills)
