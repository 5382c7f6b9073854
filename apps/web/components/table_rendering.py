"""Write tables as HTML and CSV."""

import csv
import io
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from html import escape
from itertools import islice

from django.http import HttpResponse, StreamingHttpResponse
from django.http.response import HttpResponseBase
from django.utils.safestring import SafeString, mark_safe

from apps.usage.domain.columns import guarded
from apps.web.components.formats import NOTHING
from apps.web.components.page_query import WindowChoice
from apps.web.components.table_cells import Cell, CellPart
from apps.web.components.tables import RowAction, Table, TableRow


def body(table: Table, token: str = "") -> SafeString:
    """Return the rows of a table's body; `token` goes with what its buttons post."""
    acts, more = table.has_actions, _more(table)

    def written(row: TableRow, cells: Sequence[Cell]) -> str:
        actions = f'<td role="cell">{_actions(row, token)}</td>' if acts else ""
        return _row(f"{_cells(cells, more, table.leading, _cell)}{actions}", row.anchor)

    return _joined(map(written, table.rows, table.body()))


def foot(table: Table) -> SafeString:
    """Return the row of a total; text that is absent there stays empty, unlike a number."""
    more = [False, *_more(table)[1:]]  # its first cell says that it is the total
    return _joined([_row(_cells(table.foot(), more, 0, _foot_cell))])


def _more(table: Table) -> list[bool]:
    """Say of each column whether a phone shows it on demand."""
    return [head.is_more for head in table.headings()]


def _joined(rows: Iterable[str]) -> SafeString:
    return mark_safe("\n".join(rows))  # noqa: S308 - every value in it went through escape


def _row(cells: str, anchor: str = "") -> str:
    place = f' id="{escape(anchor)}"' if anchor else ""
    return f'<tr role="row"{place}>{cells}</tr>'


def _cells(
    cells: Sequence[Cell], more: Sequence[bool], leading: int, written: Callable[[Cell], str]
) -> str:
    """Return the cells of a row; all but the `leading` one bring the head of their column."""

    def of_phone(place: int) -> str:
        if place == leading:
            return " data-leads" if place else ""
        # A narrow label would else break within its unit: "GPU-" and "h" below it.
        label = cells[place].label.replace("GPU-h", "GPU\u2011h")
        return f' data-label="{escape(label)}"{" data-more" * more[place]}'

    return "".join(
        f'<td role="cell"{of_phone(place)}{written(cell)}' for place, cell in enumerate(cells)
    )


def _cell(cell: Cell) -> str:
    detail = f"<small>{escape(cell.detail)}</small>" if cell.detail else ""
    return f"{_attributes(cell)}>{_content(cell)}{detail}</td>"


def _actions(row: TableRow, token: str) -> str:
    actions = "".join(_action(one, token) for one in row.actions)
    return f'<div class="row-actions">{actions}</div>' if actions else ""


def _action(action: RowAction, token: str) -> str:
    name = f'aria-label="{escape(action.name)}"'
    if action.is_link:
        return f'<a href="{escape(action.href)}" {name}>{escape(action.label)}</a>'
    fields = "".join(
        f'<input type="hidden" name="{escape(key)}" value="{escape(value)}">'
        for key, value in (("csrfmiddlewaretoken", token), *action.fields)
    )
    button = f'<button class="btn btn-sm" type="submit" {name}>{escape(action.label)}</button>'
    return f'<form method="post" action="{escape(action.href)}">{fields}{button}</form>'


def _foot_cell(cell: Cell) -> str:
    number = ' class="num"' if cell.is_number else ""
    # A dash in the total of names would look like a name that lacks.
    absent = cell.text == NOTHING and not cell.is_number
    return f"{number}{_title(cell)}>{'' if absent else _content(cell)}</td>"


def _attributes(cell: Cell) -> str:
    if cell.share:
        kind = _bar(cell)
    elif cell.is_number:
        kind = ' class="num"'
    elif cell.wraps:
        kind = ' class="wraps wide"' if cell.is_long else ' class="wraps"'
    elif cell.is_long:
        # A name brings its length along for the style sheet.
        kind = f' class="long" style="--characters: {cell.length}"'
    else:
        kind = ""
    return kind + _title(cell)


def _bar(cell: Cell) -> str:
    parts = [("share", cell.share), ("mark", cell.mark), ("whole", cell.whole)]
    style = "; ".join(f"--{name}: {escape(value)}" for name, value in parts if value)
    marked = f"{' bar-marked' if cell.mark else ''}{' bar-over' if cell.whole else ''}"
    return f' class="num bar{marked}" style="{style}"'


def _title(cell: Cell) -> str:
    return f' title="{escape(cell.title)}"' if cell.title else ""


def _content(cell: Cell) -> str:
    text = escape(cell.text)
    if cell.parts:
        return "".join(map(_part, cell.parts))
    if cell.href:
        return f'<a href="{escape(cell.href)}">{text}</a>'
    if cell.explain_href:
        return f'<a class="explained" href="{escape(cell.explain_href)}">{text}</a>'
    if cell.badge:
        return f'<span class="state state-{escape(cell.badge)}">{text}</span>'
    return text


def _part(part: CellPart) -> str:
    text = escape(part.text)
    if part.href:
        text = f'<a href="{escape(part.href)}">{text}</a>'
    if part.swatch:
        text = f'<span class="swatch {escape(part.swatch)}" aria-hidden="true"></span> {text}'
    detail = f" <small>{escape(part.detail)}</small>" if part.detail else ""
    return f'<span class="cell-part">{text}{detail}</span>'


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
    # Some hundred rows at a time: one line each would be as many writes to the network.
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
    # The name stands in a header: a quote or a line break would end it.
    return re.sub(r"[^A-Za-z0-9._-]+", "-", name)
