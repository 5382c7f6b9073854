"""The answers of the Prometheus HTTP API as typed structs, decoded straight from bytes."""

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any, Generic, TypeVar

import msgspec

from apps.clusters.adapters.prometheus.promql import END_MARGIN_SECONDS
from apps.clusters.domain.window import SLOT_SECONDS
from apps.clusters.ports import SourceRejected, SourceUnavailable

Labels = TypeVar("Labels")
Item = TypeVar("Item")

_MOST_SAMPLES = 1e12
"""No sum of counts over a day comes near it."""


class Instant(msgspec.Struct, Generic[Labels], gc=False):
    """One series of an instant query: (Unix seconds, value)."""

    metric: Labels
    value: tuple[float, float]


class Matrix(msgspec.Struct, Generic[Labels]):
    """One series of a range query or a range selector: its (Unix seconds, value) in order."""

    metric: Labels
    values: list[tuple[float, float]]


class _InstantText(msgspec.Struct, Generic[Labels], gc=False):
    metric: Labels
    value: tuple[float, str]


class _MatrixText(msgspec.Struct, Generic[Labels]):
    metric: Labels
    values: list[tuple[float, str]]


class _Result(msgspec.Struct, Generic[Item], rename="camel"):
    result_type: str
    result: list[Item]


class Envelope(msgspec.Struct, Generic[Item], rename="camel"):
    """What surrounds every answer; `error` is the server's own text.

    `is_partial` is VictoriaMetrics' word for what Thanos says in a warning.
    """

    status: str
    data: Item | None = None
    error_type: str = ""
    error: str = ""
    warnings: list[str] | None = None
    infos: list[str] | None = None
    is_partial: bool = False

    @property
    def notes(self) -> list[str]:
        """Everything the server remarked on its answer."""
        partial = ["the answer is partial"] if self.is_partial else []
        return [*(self.warnings or ()), *partial, *(self.infos or ())]


@lru_cache(maxsize=128)
def _decoder(item: Any) -> msgspec.json.Decoder[Envelope[_Result[Any]]]:
    # Not strict: Prometheus writes sample values as strings, and here they become floats.
    return msgspec.json.Decoder(Envelope[_Result[item]], strict=False)


def decode_instant(body: bytes, labels: type[Labels]) -> tuple[list[Instant[Labels]], list[str]]:
    """Return the series of an instant vector and the answer's remarks.

    Raises SourceUnavailable where the body was cut off, SourceRejected where it is no answer of
    the Prometheus API.
    """
    try:
        envelope = _decode(body, Instant[labels])  # type: ignore[valid-type]
    except msgspec.ValidationError:
        # The fast path does not know "+Inf"; a server that sends one is read again, as text.
        text = _checked(body, _InstantText[labels])  # type: ignore[valid-type]
        items = [Instant(i.metric, (i.value[0], _number(i.value[1]))) for i in _items(text)]
        return items, text.notes
    return _items(envelope), envelope.notes


def decode_matrix(body: bytes, labels: type[Labels]) -> tuple[list[Matrix[Labels]], list[str]]:
    """Return the series of a matrix and the answer's remarks; raises as `decode_instant`."""
    try:
        envelope = _decode(body, Matrix[labels])  # type: ignore[valid-type]
    except msgspec.ValidationError:
        text = _checked(body, _MatrixText[labels])  # type: ignore[valid-type]
        items = [Matrix(i.metric, [(t, _number(v)) for t, v in i.values]) for i in _items(text)]
        return items, text.notes
    return _items(envelope), envelope.notes


def decode_error(body: bytes) -> tuple[str, str] | None:
    """Return (error type, text) of an error answer; None where it is not one of Prometheus."""
    try:
        envelope = msgspec.json.decode(body, type=Envelope[Any])
    except msgspec.DecodeError:
        return None
    return (envelope.error_type, envelope.error) if envelope.status == "error" else None


def _decode(body: bytes, item: Any) -> Envelope[_Result[Any]]:
    try:
        return _decoder(item).decode(body)
    except msgspec.ValidationError:
        raise
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise _unreadable(body, str(error)) from error


def _checked(body: bytes, item: Any) -> Envelope[_Result[Any]]:
    try:
        return _decode(body, item)
    except msgspec.ValidationError as error:
        raise SourceRejected(
            f"answers with JSON that is not of the Prometheus API ({error}); "
            "check that the URL is that of the API, without /api/v1"
        ) from error


def _unreadable(body: bytes, reason: str) -> SourceUnavailable | SourceRejected:
    cut = "truncated" in reason or not body.rstrip().endswith(b"}")
    if not body or (cut and body.lstrip()[:1] == b"{"):
        return SourceUnavailable(
            f"sent an answer that was cut off after {len(body)} bytes; "
            "a proxy's limit or time-out on the way may be the cause"
        )
    page = b"<html" in body[:2000].lower() or body.lstrip()[:1] == b"<"
    what = "an HTML page" if page else "something that is not JSON"
    return SourceRejected(
        f"answers with {what}; check that the URL is that of the API itself and not of a "
        "login page or a dashboard"
    )


def _items(envelope: Envelope[_Result[Any]]) -> list[Any]:
    if envelope.status != "success" or envelope.data is None:
        detail = f": {envelope.error}" if envelope.error else ""
        raise SourceRejected(f"answers with status {envelope.status!r} and no data{detail}")
    return envelope.data.result


def check_counts(query: str, series: Sequence[Any]) -> None:
    """Raise SourceUnavailable where an answer to a query that counts samples has no such number.

    No sample makes Prometheus answer so: something between changes its answers, and what else it
    says is not to be trusted either.
    """
    values = [v for one in series for v in _values(one)]
    bad = [v for v in values if not 0.0 <= v <= _MOST_SAMPLES]
    if bad:
        what = "NaN" if bad[0] != bad[0] else f"{bad[0]:g}"
        raise SourceUnavailable(
            f"answers {what} for {len(bad):,} of {len(values):,} values of {query}, which counts "
            "samples: see what lies between the portal and Prometheus (a proxy, a query frontend)"
        )


def _values(one: Any) -> list[float]:
    return [one.value[1]] if isinstance(one, Instant) else [value for _, value in one.values]


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError as error:
        raise SourceRejected(f"answers with a sample that is not a number: {text!r}") from error


def slot_of(at: float) -> int:
    """Return the slot that a query evaluated at `at` (a slot's end minus a millisecond) reads."""
    return round(at + END_MARGIN_SECONDS) - SLOT_SECONDS


def flat(series: list[Matrix[Labels]]) -> Iterator[tuple[int, Labels, float]]:
    """Yield (slot, labels, value) of every point of a range query over slots."""
    numbers: dict[float, int] = {}
    for one in series:
        labels = one.metric
        for at, value in one.values:
            slot = numbers.get(at)
            if slot is None:
                slot = numbers[at] = slot_of(at)
            yield slot, labels, value
