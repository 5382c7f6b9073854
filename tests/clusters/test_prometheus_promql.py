"""Putting queries together: escaping, and what may not be a label."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apps.clusters.adapters.prometheus.http_api import (
    Matcher,
    by,
    duration,
    equal,
    literally,
    one_of,
    over,
    quoted,
    range_seconds,
    raw,
    selector,
)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        pytest.param("west", '"west"', id="plain"),
        pytest.param('a"b', r'"a\"b"', id="quote"),
        pytest.param("a\\b", r'"a\\b"', id="backslash"),
        pytest.param("a\nb\tc\rd", r'"a\nb\tc\rd"', id="white"),
        pytest.param("\x00\x7f", r'"\u0000\u007f"', id="control"),
        pytest.param("é日😀", '"é日😀"', id="letters"),
        pytest.param("\u2028", r'"\u2028"', id="line-separator"),
        pytest.param("\U000e0001", r'"\U000e0001"', id="invisible"),
        pytest.param("\ud800", r'"\uFFFD"', id="half-a-pair"),
    ],
)
def test_values_are_quoted_as_promql_strings(value: str, text: str) -> None:
    assert quoted(value) == text


@given(st.text())
def test_no_value_ends_its_string_or_its_line(value: str) -> None:
    inner = quoted(value)[1:-1]
    # Every quote and backslash belongs to an escape, and no line is broken.
    assert re.fullmatch(r'(?:[^"\\\n\r]|\\["\\ntr]|\\u[0-9a-fA-F]{4}|\\U[0-9a-f]{8})*', inner)


@given(st.lists(st.text(min_size=1), min_size=1), st.text())
def test_an_alternation_matches_its_values_and_no_other(values: list[str], other: str) -> None:
    pattern = literally(values)
    assert all(re.fullmatch(pattern, value) for value in values)
    assert bool(re.fullmatch(pattern, other)) == (other in values)


@pytest.mark.parametrize("label", ["", "a-b", "a.b", 'a="x",b', "1a", "a b", "a\n"])
def test_a_label_that_is_none_is_refused(label: str) -> None:
    with pytest.raises(ValueError, match="is not a label name"):
        str(Matcher(label, "=", "x"))


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(None, "30m"), (1800, "30m"), (3690.0, "3690s"), (86400, "86400s"), (0.5, "500ms")],
)
def test_durations(seconds: float | None, text: str) -> None:
    assert duration(seconds) == text


def test_the_query_shapes() -> None:
    matchers = equal({"b": "2", "a": "1"})
    assert selector("up") == "up"
    assert by("sum", ("x", "y"), over("sum_over_time", "m", matchers)) == (
        'sum by (x,y) (sum_over_time(m{a="1",b="2"}[30m]))'
    )
    assert raw("m", (one_of("UUID", ["GPU-1.0", "b"]),), seconds=60) == (
        'm{UUID=~"GPU-1\\\\.0|b"}[60s]'
    )


@pytest.mark.parametrize("seconds", [0.5, 30.0, 1800.0, 86_400.0])
def test_a_range_selector_says_for_how_long_it_selects(seconds: float) -> None:
    assert range_seconds(raw("up", (), seconds=seconds)) == seconds


def test_a_query_without_a_range_selects_for_no_time() -> None:
    with pytest.raises(ValueError, match="no range selector"):
        range_seconds("sum(up)")
