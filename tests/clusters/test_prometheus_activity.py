"""Telling usable activity values from blanks, wrong units and copies."""

from math import inf, nan

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apps.clusters.adapters.prometheus.dcgm.device_rows import (
    between,
    merged,
    reads_fraction,
    reads_percent,
    sampling_interval,
    usable,
)


def every(seconds: float, count: int, *, first: float = 0.0) -> list[tuple[float, float]]:
    return [(first + n * seconds, 0.5) for n in range(count)]


@pytest.mark.parametrize(
    ("value", "kept"),
    [
        pytest.param(0.0, 0.0, id="nothing"),
        pytest.param(1.0, 1.0, id="all"),
        pytest.param(1.04, 1.0, id="a-little-over"),
        pytest.param(1.06, None, id="over"),
        pytest.param(-0.001, None, id="negative"),
        pytest.param(nan, None, id="nan"),
        pytest.param(inf, None, id="inf"),
        pytest.param(9223372036854775794.0, None, id="blank-64"),
        pytest.param(2147483632.0, None, id="blank-32"),
    ],
)
def test_only_fractions_are_usable(value: float, kept: float | None) -> None:
    assert usable([(7.0, value)], scale=1.0) == ([] if kept is None else [(7.0, kept)])


def test_per_cent_is_scaled() -> None:
    assert usable([(0.0, 80.0), (30.0, 250.0)], scale=0.01) == [(0.0, 0.8)]


@pytest.mark.parametrize(
    ("values", "verdict"),
    [
        pytest.param([0.0, 80.0, 95.0, 0.5], True, id="mostly-over-one"),
        pytest.param([0.2, 0.9, 80.0], False, id="one-strange-value"),
        pytest.param([0.0, 0.0], False, id="idle"),
        pytest.param([1.8e19, nan, inf, -3.0, 0.4], False, id="blanks-do-not-count"),
        pytest.param([], False, id="none"),
    ],
)
def test_fractions_written_as_per_cent_are_noticed(values: list[float], verdict: bool) -> None:
    assert reads_percent(values) is verdict


@pytest.mark.parametrize(
    ("sums", "verdict"),
    [
        pytest.param([(30.125, 60), (0.0, 60)], True, id="broken-numbers"),
        pytest.param([(60.0, 60), (0.0, 60)], False, id="one-per-cent-throughout"),
        pytest.param([(60.0, 60), (0.25, 60)], True, id="one-beside-a-fraction"),
        pytest.param([(0.0, 60), (12.0, 60)], False, id="idle-per-cent"),
        pytest.param([(30.125, 60), (4800.0, 60)], False, id="one-is-over-one"),
        pytest.param([(nan, 60), (1e19, 60)], False, id="blanks-say-nothing"),
        pytest.param([], False, id="none"),
    ],
)
def test_per_cent_written_as_fractions_is_noticed(
    sums: list[tuple[float, int]], verdict: bool
) -> None:
    assert reads_fraction(sums) is verdict


def test_series_that_follow_each_other_are_joined() -> None:
    assert merged([every(30, 10), every(30, 10, first=300)]) == every(30, 20)


def test_series_beside_each_other_count_once() -> None:
    assert merged([every(30, 20), every(30, 20, first=11)]) == every(30, 20)


def test_what_only_the_second_series_has_is_kept() -> None:
    both = merged([every(30, 10), every(30, 20, first=11)])
    assert [at for at, _ in both] == [n * 30.0 for n in range(10)] + [
        311 + n * 30.0 for n in range(10)
    ]


def test_what_lies_beside_other_samples_is_left_out() -> None:
    named = every(30, 10)
    assert between(every(30, 20, first=11), [named]) == every(30, 10, first=311)
    assert between(every(30, 10, first=300), [named]) == every(30, 10, first=300)
    assert between(every(30, 3), []) == every(30, 3)


@given(st.floats(0, 29.9), st.integers(2, 60), st.integers(0, 60), st.integers(1, 60))
def test_two_exporters_never_give_more_samples_than_the_grid_holds(
    shift: float, first: int, start: int, second: int
) -> None:
    both = merged([every(30, first), every(30, second, first=start * 30 + shift)])
    end = max(first, start + second + 1)
    assert len(both) <= end
    assert [at for at, _ in both] == sorted(at for at, _ in both)


def test_intervals() -> None:
    assert sampling_interval([(0.0, 1), (30.0, 1), (60.001, 1), (150.0, 1)]) == 30.001
    assert sampling_interval([(0.0, 1)]) is None
