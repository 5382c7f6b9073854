"""Cost files as downloads: the rows of a page, or a month as finance takes it home."""

from collections.abc import Callable
from http import HTTPStatus
from os import SEEK_END
from typing import BinaryIO

from django.http import FileResponse, HttpResponse, StreamingHttpResponse
from django.http.response import HttpResponseBase

from apps.costs.adapters import csv_parts, write_beside
from apps.costs.domain.files import CostFile, FileFormat, TooManyRows, file_name
from apps.costs.services import ClosedCopy
from apps.usage.selectors import GroupingRefused

LABELS = {
    FileFormat.CSV: "CSV",
    FileFormat.XLSX: "XLSX",
    FileFormat.PARQUET: "Parquet",
    FileFormat.FOCUS_CSV: "FOCUS 1.0 (CSV)",
    FileFormat.FOCUS_PARQUET: "FOCUS 1.0 (Parquet)",
}


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


def as_closed(
    make: Callable[[], CostFile], copy: ClosedCopy, format_: FileFormat, name: str
) -> HttpResponseBase:
    """Answer with the file of a closed month as it is kept, `make` telling what to call it.

    One that was made anew and is not what was closed says so in its name.
    """
    try:
        file = make()
    except GroupingRefused as refusal:
        copy.binary.close()
        return refused(f"This cannot be had over this window: {refusal}.")
    named = name if copy.as_closed else f"{name}-NOT-as-closed"
    return _sent(copy.binary, file, format_, named)


def refused(reason: str, *, status: int = HTTPStatus.BAD_REQUEST) -> HttpResponse:
    """Say why there is no file."""
    return HttpResponse(reason, status=status, content_type="text/plain; charset=utf-8")


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
    return _sent(write_beside(file, format_), file, format_, name)


def _sent(whole: BinaryIO, file: CostFile, format_: FileFormat, name: str) -> FileResponse:
    length = whole.seek(0, SEEK_END)
    whole.seek(0)
    response = FileResponse(whole, content_type=format_.content_type)
    for key, value in _headers(file, name, format_).items():
        response[key] = value
    response["Content-Length"] = str(length)
    return response
