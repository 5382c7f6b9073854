"""Tables as files: RFC 4180, exact values, safe to open in a spreadsheet."""

import csv
import io
import re

from django.http import HttpResponse

from apps.usage.domain.csv_rows import guarded
from apps.web.forms import WindowChoice
from apps.web.tables import Table


def csv_response(table: Table, *, page: str, choice: WindowChoice) -> HttpResponse:
    """Return `table` as a download whose name says page, table and window."""
    name = "_".join(("gpuportal", page, table.id, str(choice.first), str(choice.last)))
    response = HttpResponse(csv_text(table), content_type="text/csv; charset=utf-8")
    response["Content-Disposition"] = f'attachment; filename="{_plain(name)}.csv"'
    return response


def csv_text(table: Table) -> str:
    """Write what `table` shows: its columns, its rows and its total, values in full.

    Names come from clusters, where anybody with a namespace may call a pod what they like, so
    texts are guarded against being taken for formulas; numbers need no guard.
    """
    out = io.StringIO()
    writer = csv.writer(out)
    numeric = [column.is_number for column in table.columns]
    for record in table.records():
        writer.writerow(
            [
                cell if number else guarded(cell)
                for cell, number in zip(record, numeric, strict=True)
            ]
        )
    return out.getvalue()


def _plain(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]+", "-", name)
