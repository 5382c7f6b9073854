"""Sort tables as the address says, and write them as HTML and CSV."""

import csv
import io
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from html import escape
from itertools import islice

from django.http import HttpRequest, HttpResponse, QueryDict, StreamingHttpResponse
from django.http.response import HttpResponseBase
from django.utils.safestring import SafeString, mark_safe

from apps.usage.domain.columns import guarded
from apps.web.components.formats import NOTHING, Value
from apps.web.components.page_query import WindowChoice, pages_from, path_of, with_query
from apps.web.components.tables import Cell, Column, Table, TableRow, paged
from apps.web.components.window_picker import PLACE_KEYS, kept


def body(rows: Iterable[list[Cell]]) -> SafeString:
    """Return the rows of a table's body."""
    return _joined(_row("".join(map(_cell, cells))) for cells in rows)


def foot(cells: list[Cell]) -> SafeString:
    """Return the row of a total; text that is absent there stays empty, unlike a number."""
    return _joined([_row("".join(map(_foot_cell, cells)))])


def _joined(rows: Iterable[str]) -> SafeString:
    return mark_safe("\n".join(rows))  # noqa: S308 - every value in it went through escape


def _row(cells: str) -> str:
    return f"<tr>{cells}</tr>"


def _cell(cell: Cell) -> str:
    return f"<td{_attributes(cell)}>{_content(cell)}</td>"


def _foot_cell(cell: Cell) -> str:
    number = ' class="num"' if cell.is_number else ""
    absent = cell.text == NOTHING and not cell.is_number
    return f"<td{number}{_title(cell)}>{'' if absent else _content(cell)}</td>"


def _attributes(cell: Cell) -> str:
    if cell.share:
        kind = f' class="num bar" style="--share: {escape(cell.share)}"'
    elif cell.is_number:
        kind = ' class="num"'
    elif cell.wraps:
        kind = ' class="wraps"'
    elif cell.is_long:
        # A name brings its length along for the style sheet.
        kind = f' class="long" style="--characters: {len(cell.text)}"'
    else:
        kind = ""
    return kind + _title(cell)


def _title(cell: Cell) -> str:
    return f' title="{escape(cell.title)}"' if cell.title else ""


def _content(cell: Cell) -> str:
    text = escape(cell.text)
    if cell.href:
        return f'<a href="{escape(cell.href)}">{text}</a>'
    if cell.explain_href:
        return f'<a class="explained" href="{escape(cell.explain_href)}">{text}</a>'
    if cell.badge:
        return f'<span class="state state-{escape(cell.badge)}">{text}</span>'
    return text


MOST_SORTED = 10_000
"""Rows that are sorted at most: all of them must be read for it."""


@dataclass(frozen=True, slots=True)
class TableOrder:
    """A wish to sort: by the column of this key, from large to small where `falling`."""

    key: str
    falling: bool = False

    def __str__(self) -> str:
        return f"-{self.key}" if self.falling else self.key


def arranged(tables: Iterable[Table], request: HttpRequest) -> list[Table]:
    """Return the tables in the order of the address, with links to other orders."""
    given = list(tables)
    return [_arranged(table, request, _parameter(table, given)) for table in given]


def order_from(params: QueryDict, name: str) -> TableOrder | None:
    """Return the order asked for under `name`; None when there is none."""
    text = params.get(name, "").strip()
    key = text.removeprefix("-")
    return TableOrder(key, falling=text.startswith("-")) if key else None


def in_order(rows: Iterable[TableRow], column: Column, order: TableOrder) -> list[TableRow]:
    """Return the rows by the values of a column, those without one last, ties as they were."""
    some: list[TableRow] = []
    none: list[TableRow] = []
    for row in rows:
        (none if row.values.get(column.key) in {None, ""} else some).append(row)
    some.sort(key=lambda row: _rank(row.values[column.key]), reverse=order.falling)
    return [*some, *none]


def _rank(value: Value) -> tuple[int, float, str]:
    if isinstance(value, str):
        return (1, 0.0, value.casefold())
    if isinstance(value, datetime):
        return (0, value.timestamp(), "")
    return (0, value or 0, "")


def _parameter(table: Table, others: Sequence[Table]) -> str:
    return "sort" if len(others) == 1 else f"{table.id}.sort"


def _arranged(table: Table, request: HttpRequest, name: str) -> Table:
    if table.ordered:
        return table
    order = order_from(request.GET, name)
    column = next((c for c in table.columns if order and c.key == order.key), None)
    if order and column:
        table = _sorted(table, column, order, request)
    elif order:
        table = _noted(table, f"There is no column “{order.key[:40]}” to sort by.")
    several = len(table.rows) > 1 or table.next_href or table.previous_href
    return replace(
        _first_pages(table, request),
        sorted_by=str(order) if order and column else "",
        sort_links=_links(table, request, name, order) if several else {},
    )


def _sorted(table: Table, column: Column, order: TableOrder, request: HttpRequest) -> Table:
    if table.every is None:
        return replace(table, rows=in_order(table.rows, column, order))
    every = list(islice(table.every(), MOST_SORTED + 1))
    if len(every) > MOST_SORTED:
        return _noted(
            table,
            f"Not sorted: there are more than {MOST_SORTED:,} rows. Narrow the window, or sort "
            "the file.",
        )
    rows = in_order(every, column, order)
    pages = pages_from(request.GET, count=len(rows))
    sorted_table = replace(table, rows=rows[pages.part], every=lambda: rows)
    return paged(sorted_table, path_of(request), kept(request, drop=PLACE_KEYS), pages)


def _first_pages(table: Table, request: HttpRequest) -> Table:
    """Return the table with one page of its rows, where it has a page length and has more."""
    rows = table.rows
    if not table.page_length or len(rows) <= table.page_length:
        return table
    pages = pages_from(request.GET, count=len(rows), usual=table.page_length)
    part = replace(table, rows=rows[pages.part], every=lambda: rows)
    noted = _noted(part, f"Page {pages.number} of {pages.last}; {len(rows)} rows in all.")
    return paged(noted, path_of(request), kept(request, drop=PLACE_KEYS), pages)


def _noted(table: Table, note: str) -> Table:
    return replace(table, note=f"{table.note} {note}".strip())


def _links(table: Table, request: HttpRequest, name: str, now: TableOrder | None) -> dict[str, str]:
    """Return by column where a click on its head leads: numbers start with the largest."""
    path, others = path_of(request), kept(request, drop=(*PLACE_KEYS, name))
    links = {}
    for column in table.columns:
        falling = not now.falling if now and now.key == column.key else column.falls_first
        order = TableOrder(column.key, falling=falling)
        links[column.key] = f"{with_query(path, (*others, (name, str(order))))}#{table.id}"
    return links


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
