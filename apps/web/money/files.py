"""Cost files as downloads: the rows of a page, or a month as finance takes it home."""

import re
from collections.abc import Callable
from decimal import Decimal
from http import HTTPStatus
from tempfile import TemporaryFile

from django.http import FileResponse, HttpResponse, StreamingHttpResponse
from django.http.response import HttpResponseBase

from apps.costs.adapters import csv_parts, write
from apps.costs.domain.files import CostFile, FileFormat, TooManyRows
from apps.usage.selectors import GroupingRefused
from apps.web.formats import plain

LABELS = {
    FileFormat.CSV: "CSV",
    FileFormat.XLSX: "XLSX",
    FileFormat.PARQUET: "Parquet",
    FileFormat.FOCUS_CSV: "FOCUS 1.0 (CSV)",
    FileFormat.FOCUS_PARQUET: "FOCUS 1.0 (Parquet)",
}
_MOST_DIGITS = 4


def download(
    make: Callable[[], CostFile], format_: FileFormat, name: str, *, bom: bool = False
) -> HttpResponseBase:
    """Answer with the file that `make` gives, named for what it holds.

    What cannot be had as this file is told as plain text. A CSV is streamed as it is read; the
    other formats cannot be written from front to back and go by a file beside.
    """
    try:
        file = make()
        if format_.suffix == "csv":
            return _streamed(file, name, format_, bom=bom)
        return _whole(file, format_, name)
    except TooManyRows as error:
        return refused(str(error))
    except GroupingRefused as refusal:
        return refused(f"This cannot be had over this window: {refusal}.")


def refused(reason: str) -> HttpResponse:
    """Say why there is no file."""
    kind = "text/plain; charset=utf-8"
    return HttpResponse(reason, status=HTTPStatus.BAD_REQUEST, content_type=kind)


def file_name(file: CostFile, name: str, format_: FileFormat) -> str:
    """Return a name that tells window, zone, currency, basis, policy, coverage and price book."""
    notes = file.notes
    first, after = (f"{at:%Y-%m-%dT%H%MZ}" for at in (notes.window_start, notes.window_end))
    coverage = "unknown" if notes.coverage_ratio is None else _short(notes.coverage_ratio)
    parts = (
        *("gpuportal", name, first, after, notes.time_zone, notes.currency, notes.basis),
        *(notes.policy, f"coverage-{coverage}", f"prices-{notes.price_book}"),
    )
    return "_".join(re.sub(r"[^A-Za-z0-9.-]+", "-", part) for part in parts) + f".{format_.suffix}"


def _short(ratio: float) -> str:
    return plain(Decimal(repr(round(ratio, _MOST_DIGITS))))


def _headers(file: CostFile, name: str, format_: FileFormat) -> dict[str, str]:
    named = file_name(file, name, format_)
    return {"Content-Disposition": f'attachment; filename="{named}"'}


def _streamed(
    file: CostFile, name: str, format_: FileFormat, *, bom: bool
) -> StreamingHttpResponse:
    return StreamingHttpResponse(
        csv_parts(file, bom=bom, with_notes=not format_.is_focus),
        content_type=format_.content_type,
        headers=_headers(file, name, format_),
    )


def _whole(file: CostFile, format_: FileFormat, name: str) -> FileResponse:
    beside = TemporaryFile()  # noqa: SIM115 - the response closes it
    try:
        write(file, format_, beside)
    except BaseException:
        beside.close()
        raise
    length = beside.tell()
    beside.seek(0)
    response = FileResponse(beside, content_type=format_.content_type)
    for key, value in _headers(file, name, format_).items():
        response[key] = value
    response["Content-Length"] = str(length)
    return response
