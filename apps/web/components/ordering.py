"""Sorting tables: by any column, as the address says, on the server.

An address sorts the only table of a page by `sort=busy_gpu_hours`, or one of several by
`teams.sort=busy_gpu_hours`; a minus before the key sorts from large to small. Pages, pagers and
files carry the rows in this order. What is absent comes last either way.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import islice

from django.http import HttpRequest, QueryDict

from apps.web.components.formats import Value
from apps.web.components.links import path_of, with_query
from apps.web.components.picker import PLACE_KEYS, kept
from apps.web.components.tables import Column, Table, TableRow, paged
from apps.web.forms import pages_from

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
    """Return the tables in the order that the address asks for, with links to other orders."""
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
