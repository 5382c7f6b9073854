"""Growth of counters: never negative, over resets, never over gaps."""

from collections.abc import Sequence
from itertools import pairwise
from math import inf, nan

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apps.clusters.domain.counters import (
    LONGEST_GAP_SECONDS,
    Sample,
    growth,
    measured_seconds,
    was_seen_to_begin,
)

HOUR = 3600.0
ODD = st.sampled_from([nan, inf, -inf, -1.0])
VALUES = st.one_of(st.integers(0, 10**9).map(float), ODD)


def series(values: Sequence[float], step: float = 30.0) -> list[Sample]:
    return [Sample(number * step, value) for number, value in enumerate(values)]


@st.composite
def sampled(draw: st.DrawFn) -> list[Sample]:
    """Draw samples at any distance from each other, with values that no counter can have."""
    steps = draw(st.lists(st.floats(1.0, 900.0), max_size=60))
    at, found = 0.0, []
    for step in steps:
        at += step
        found.append(Sample(at, draw(VALUES)))
    return found


@given(sampled(), st.floats(0.0, 10_000.0), st.booleans())
def test_growth_is_finite_and_never_negative(
    samples: list[Sample], start: float, from_zero: bool
) -> None:
    found = growth(samples, start, from_zero=from_zero)
    assert 0.0 <= found < inf


@given(sampled(), st.lists(st.floats(1.0, 20_000.0), max_size=4))
def test_hours_sum_to_the_whole(samples: list[Sample], cuts: list[float]) -> None:
    edges = [0.0, *sorted(cuts), inf]
    parts = seconds = 0.0
    for start, end in pairwise(edges):
        # As each hour is read: with the five minutes before it.
        own = [one for one in samples if start - LONGEST_GAP_SECONDS <= one.at < end]
        parts += growth(own, start)
        seconds += measured_seconds([one.at for one in own], start)
    whole = growth(samples, 0.0)
    # A value that cannot be hides those before it from the hour alone where they are older.
    if all(0.0 <= one.value < inf for one in samples):
        assert parts == pytest.approx(whole)
    assert seconds == pytest.approx(measured_seconds([one.at for one in samples], 0.0))


@given(st.lists(st.lists(st.integers(0, 10**6), min_size=1, max_size=20), min_size=1, max_size=5))
def test_each_process_counts_from_zero(processes: list[list[int]]) -> None:
    values: list[float] = [0.0]
    expected = 0
    for grown in processes:
        reached = 0
        for one in grown:
            reached += one
            values.append(float(reached))
        expected += reached
    found = growth(series(values), 0.0)
    # A process that is past its predecessor at its first sample is not known to be another.
    assert found <= expected
    if all(reached[0] < sum(before) for before, reached in pairwise(processes)):
        assert found == expected


@given(sampled())
def test_measured_time_is_no_longer_than_there_were_samples(samples: list[Sample]) -> None:
    times = [one.at for one in samples]
    found = measured_seconds(times, 0.0)
    assert 0.0 <= found <= (times[-1] - times[0] if times else 0.0) + 1e-6


def test_nothing_is_counted_over_a_gap() -> None:
    samples = [Sample(0, 100), Sample(30, 130), Sample(1000, 5000), Sample(1030, 5010)]
    assert growth(samples, 0.0) == 40.0
    assert measured_seconds([one.at for one in samples], 0.0) == 60.0


def test_the_first_value_counts_only_where_the_series_was_seen_to_begin() -> None:
    samples = series([7.0, 9.0])
    assert growth(samples, 0.0) == 2.0
    assert growth(samples, 0.0, from_zero=True) == 9.0
    assert was_seen_to_begin(1000.0, [970.0, 1000.0])
    assert not was_seen_to_begin(1000.0, [1000.0, 1030.0])
    assert not was_seen_to_begin(1000.0, [600.0])


def test_growth_belongs_to_the_hour_in_which_it_was_seen() -> None:
    samples = series([0.0, 10.0, 30.0], step=HOUR / 12)
    assert growth(samples, HOUR / 12) == 30.0
    assert growth(samples, HOUR / 12 + 1) == 20.0
