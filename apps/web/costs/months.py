"""Months of the report: open or closed, their cost files, and later adjustments."""

from collections.abc import Callable, Sequence
from datetime import date, datetime
from http import HTTPStatus
from os import SEEK_END
from typing import BinaryIO

from django.http import FileResponse, HttpResponse, StreamingHttpResponse
from django.http.response import HttpResponseBase
from django.urls import reverse
from msgspec import Struct

from apps.costs.adapters.formats import csv_parts, write_to_file
from apps.costs.domain.files import CostFile, FileFormat, FileRefused, file_name
from apps.costs.selectors import AdjustmentRow, MonthState, PeriodState, uncollected_hours
from apps.costs.services import ClosedCopy
from apps.usage.selectors import GroupingRefused
from apps.web.components.page_query import figure_href, with_query, without
from apps.web.components.tables import Table, declared_columns
from apps.web.costs.money_format import MoneyTable, money_row
from apps.web.costs.query import BASES, POLICIES, CostPageQuery
from apps.web.query_session import QuerySession

_SUFFIXES = {"csv": "CSV", "xlsx": "XLSX", "parquet": "Parquet"}
LABELS = {
    format_: (
        f"FOCUS {format_.focus_version} ({_SUFFIXES[format_.suffix]})"
        if format_.is_focus
        else _SUFFIXES[format_.suffix]
    )
    for format_ in FileFormat
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
        return _sent(write_to_file(file, format_), file, format_, name)
    except FileRefused as error:
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
        # Nothing streams it any more, and no other code would close it.
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


def _sent(whole: BinaryIO, file: CostFile, format_: FileFormat, name: str) -> FileResponse:
    # Told, so that a browser shows how much is left: a file object has no length of its own.
    length = whole.seek(0, SEEK_END)
    whole.seek(0)
    response = FileResponse(whole, content_type=format_.content_type)
    for key, value in _headers(file, name, format_).items():
        response[key] = value
    response["Content-Length"] = str(length)
    return response


STATES = {
    MonthState.CURRENT: ("in progress", "none"),
    MonthState.OPEN: ("open", "partial"),
    MonthState.REOPENED: ("reopened", "partial"),
    MonthState.CLOSED: ("closed", "complete"),
}


class FileLink(Struct, frozen=True):
    """A file of a month; `sha256` is what it was frozen with, empty while the month is open."""

    label: str
    href: str
    sha256: str = ""


class Month(Struct, frozen=True):
    """A month as its line shows it; `gaps` say what keeps it from being closed."""

    name: str
    period: PeriodState
    state: str
    css: str
    terms: str
    gaps: Sequence[str]
    files: Sequence[FileLink]
    warnings: Sequence[str] = ()


def months_of(periods: Sequence[PeriodState], asked: CostPageQuery, now: datetime) -> list[Month]:
    """Return the months, newest first."""
    return [_month(period, asked, now) for period in periods]


def uncollected_texts(month: date, now: datetime) -> list[str]:
    """Return in one sentence which hours the files of a month lack, by cluster. One query."""
    lacking = [
        f"{one.cluster} {one.hours:,} of {one.due:,} h" for one in uncollected_hours(month, now=now)
    ]
    return [f"Not collected in {month:%B %Y}: {', '.join(lacking)}."] if lacking else []


def _month(period: PeriodState, asked: CostPageQuery, now: datetime) -> Month:
    state, css = STATES[period.state]
    name = f"{period.month:%Y-%m}"
    bases = {basis.value: label for basis, label in BASES.items()}
    policies = {policy.value: label for policy, label in POLICIES.items()}
    terms = ""
    # Only a closed month has terms of its own; others go by the settings of the day.
    if period.state is MonthState.CLOSED:
        basis = bases.get(period.basis, period.basis)
        policy = policies.get(period.policy, period.policy)
        terms = f"Charge basis: {basis}. Unallocated cost: {policy}. Price book {period.price_book}"
    return Month(
        name=name,
        period=period,
        state=state,
        css=css,
        terms=terms,
        gaps=period.gaps.texts() if period.gaps else (),
        files=month_files(name, asked, period),
        warnings=uncollected_texts(period.month, now),
    )


def month_files(
    name: str, asked: CostPageQuery, period: PeriodState | None = None
) -> list[FileLink]:
    """Return the files of a month, with the hashes of a closed one."""
    path = reverse("web:month-file")
    # A month's file always has days and workloads: how the page is grouped changes nothing.
    kept = without(asked.query, "by")
    hashes = period.files if period else {}
    return [
        FileLink(
            LABELS[format_],
            with_query(path, [("period", name), ("format", format_.value), *kept]),
            hashes.get(format_.value, ""),
        )
        for format_ in FileFormat
    ]


def adjustments_table(found: Sequence[AdjustmentRow], reading: QuerySession) -> Table:
    """Return what was booked against closed months, newest first."""
    return MoneyTable(
        id="adjustments",
        title="Adjustments",
        columns=declared_columns(AdjustmentRow),
        rows=[
            money_row(
                row,
                values={"month": f"{row.month:%Y-%m}"},
                links={},
                explains={
                    "cost": figure_href(
                        "closed_month_adjustment",
                        reading.query,
                        month=f"{row.month:%Y-%m}",
                        booked_on=row.booked_on.isoformat(),
                        currency=row.currency or "",
                    )
                },
            )
            for row in found
        ],
        zone=reading.choice.zone,
        empty="No adjustments of closed months.",
        note="Late facts and corrected prices of closed months, booked in the month that was open.",
    )
