"""Decoding answers into typed structs."""

from math import inf, isnan

import msgspec
import pytest

from apps.clusters.adapters.prometheus.http_api import (
    decode_error,
    decode_instant,
    decode_matrix,
    flat,
    slot_of,
)
from apps.clusters.ports import SourceRejected, SourceUnavailable


class Labels(msgspec.Struct, frozen=True):
    a: str = ""
    b: str = ""


def vector(value: str) -> bytes:
    return (
        '{"status":"success","data":{"resultType":"vector","result":'
        f'[{{"metric":{{"a":"x","other":"y"}},"value":[1772409599.999,"{value}"]}}]}}}}'
    ).encode()


def matrix(*values: str) -> bytes:
    points = ",".join(f'[{1772411399.999 + n * 1800},"{v}"]' for n, v in enumerate(values))
    return (
        '{"status":"success","data":{"resultType":"matrix","result":'
        f'[{{"metric":{{"b":"z"}},"values":[{points}]}}]}}}}'
    ).encode()


@pytest.mark.parametrize(
    ("text", "value"), [("1.5", 1.5), ("1.8e+19", 1.8e19), ("+Inf", inf), ("-Inf", -inf), ("0", 0)]
)
def test_values_of_an_instant_query(text: str, value: float) -> None:
    series, _ = decode_instant(vector(text), Labels)
    assert (series[0].metric, series[0].value) == (Labels(a="x"), (1772409599.999, value))


def test_not_a_number_is_a_value() -> None:
    series, _ = decode_instant(vector("NaN"), Labels)
    assert isnan(series[0].value[1])
    ranges, _ = decode_matrix(matrix("1", "NaN", "+Inf"), Labels)
    assert [v for _, v in ranges[0].values][::2] == [1.0, inf]


def test_a_sample_that_is_no_number_is_rejected() -> None:
    with pytest.raises(SourceRejected, match="not a number: 'many'"):
        decode_instant(vector("many"), Labels)


def test_points_of_a_range_query_know_their_slot() -> None:
    ranges, _ = decode_matrix(matrix("1", "2"), Labels)
    assert list(flat(ranges)) == [
        (1772409600, Labels(b="z"), 1.0),
        (1772411400, Labels(b="z"), 2.0),
    ]
    assert slot_of(1772411399.999) == 1772409600


@pytest.mark.parametrize("cut", range(1, len(vector("1"))))
def test_an_answer_cut_anywhere_is_unavailable(cut: int) -> None:
    with pytest.raises(SourceUnavailable, match="cut off"):
        decode_instant(vector("1")[:cut], Labels)


def test_bytes_that_are_no_text_are_rejected() -> None:
    with pytest.raises(SourceRejected):
        decode_instant(vector("1").replace(b"x", b"\xff\xfe"), Labels)


def test_errors_of_prometheus_are_told_from_other_pages() -> None:
    assert decode_error(b'{"status":"error","errorType":"bad_data","error":"no"}') == (
        "bad_data",
        "no",
    )
    assert decode_error(b'{"status":"success"}') is None
    assert decode_error(b"<html>") is None
