"""Lists as CSV files: the columns of the JSON rows, streamed."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo

from django.http import StreamingHttpResponse

from apps.clusters.domain.window import Window
from apps.usage.domain.columns import flat
from apps.usage.domain.csv_rows import csv_line

# Rows read at a time: few queries, little memory.
ROWS_AT_A_TIME = 5000


def csv_response(
    parts: Iterable[Sequence[Mapping[str, Any]]],
    *,
    columns: Sequence[str],
    name: str,
    window: Window,
    zone: ZoneInfo,
) -> StreamingHttpResponse:
    """Return the records of `parts` as a file named for `name` and the window's local days."""
    days = (window.start.astimezone(zone).date(), window.end.astimezone(zone).date())
    return _streamed(parts, columns, f"gpuportal-{name}-{days[0]}-to-{days[1]}.csv")


def csv_now(
    parts: Iterable[Sequence[Mapping[str, Any]]],
    *,
    columns: Sequence[str],
    name: str,
    at: datetime,
) -> StreamingHttpResponse:
    """Return the records of `parts` as a file named for `name` and the instant they are of."""
    return _streamed(parts, columns, f"gpuportal-{name}-{at.astimezone(UTC):%Y-%m-%dT%H%MZ}.csv")


def _streamed(
    parts: Iterable[Sequence[Mapping[str, Any]]], columns: Sequence[str], filename: str
) -> StreamingHttpResponse:
    return StreamingHttpResponse(
        _lines(parts, columns),
        content_type="text/csv; charset=utf-8; header=present",
        headers={"Content-Disposition": f'attachment; filename="{filename}"'},
    )


def _lines(parts: Iterable[Sequence[Mapping[str, Any]]], columns: Sequence[str]) -> Iterator[str]:
    yield csv_line(columns)
    for part in parts:
        rows = (flat(record) for record in part)
        yield "".join(csv_line([row[column] for column in columns]) for row in rows)
