"""Tables as files: RFC 4180, exact values, safe to open in a spreadsheet."""

import csv
import io
import re
from collections.abc import Iterator
from itertools import islice

from django.http import HttpResponse, StreamingHttpResponse
from django.http.response import HttpResponseBase

from apps.usage.domain.csv_rows import guarded
from apps.web.components.tables import Table
from apps.web.forms import WindowChoice

_ROWS_AT_A_TIME = 500


def csv_response(table: Table, *, page: str, choice: WindowChoice) -> HttpResponseBase:
    """Return `table` as a download whose name says page, table and window.

    A table of several pages comes whole and is streamed: it may be long.
    """
    name = "_".join(("gpuportal", page, table.id, str(choice.first), str(choice.last)))
    kind = "text/csv; charset=utf-8"
    response: HttpResponseBase = (
        StreamingHttpResponse(csv_parts(table), content_type=kind)
        if table.every
        else HttpResponse(csv_text(table), content_type=kind)
    )
    response["Content-Disposition"] = f'attachment; filename="{_plain(name)}.csv"'
    return response


def csv_text(table: Table) -> str:
    """Write what `table` holds: its columns, its rows and its total, values in full."""
    return "".join(csv_parts(table))


def csv_parts(table: Table) -> Iterator[str]:
    """Yield the same in parts of some hundred rows.

    Names come from clusters, where anybody with a namespace may call a pod what they like, so
    texts are guarded against being taken for formulas; numbers need no guard.
    """
    numeric = [column.is_number for column in table.columns]
    records = table.records()
    while part := list(islice(records, _ROWS_AT_A_TIME)):
        out = io.StringIO()
        csv.writer(out).writerows(
            [
                cell if number else guarded(cell)
                for cell, number in zip(record, numeric, strict=True)
            ]
            for record in part
        )
        yield out.getvalue()


def _plain(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]+", "-", name)
