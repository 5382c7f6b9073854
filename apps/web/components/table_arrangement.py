"""How a reader arranges tables by the address: order, filter, page and columns.

Keys are short (`sort`, `q`, `page`, `columns`) where a page has one table; where it has several,
the table's name stands before them: `teams.sort`.
"""

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from itertools import islice

from django.http import HttpRequest, HttpResponseBase, QueryDict
from msgspec import Struct

from apps.accounts.domain.structs import replace
from apps.web.components.formats import Format, Value
from apps.web.components.page_query import pages_from, path_of, with_query
from apps.web.components.table_cells import ColumnChoice, TableTools
from apps.web.components.tables import Column, Table, TableRow, paged
from apps.web.components.window_picker import PLACE_KEYS, remaining_query

MOST_SORTED = 10_000
"""Rows that are sorted or filtered at most: all of them must be read for it."""

_MANY_COLUMNS = 6
_LONGEST_TEXT = 100
_COOKIE_AGE = 400 * 24 * 3600  # seconds; browsers keep none longer


class TableOrder(Struct, frozen=True):
    """A wish to sort: by the column of this key, from large to small where `falling`."""

    key: str
    falling: bool = False

    def __str__(self) -> str:
        return f"-{self.key}" if self.falling else self.key


class _TableAddress(Struct, frozen=True):
    """What the address of a request says of one table; `prefix` goes before its keys."""

    request: HttpRequest
    table_id: str
    prefix: str
    path: str = ""

    def key(self, name: str) -> str:
        return f"{self.prefix}{name}"

    def get(self, name: str) -> str:
        # PostgreSQL refuses NUL in a text.
        return self.request.GET.get(self.key(name), "").replace("\0", "").strip()

    def others(self, *names: str) -> list[tuple[str, str]]:
        """Return the pairs of the address but for these keys, and for places within lists."""
        own = (*map(self.key, names), self.key("page"))
        return remaining_query(self.request, drop=(*PLACE_KEYS, *own))

    def href(self, pairs: Sequence[tuple[str, str]]) -> str:
        return f"{with_query(self.path, pairs)}#{self.table_id}"


def arranged(tables: Iterable[Table], request: HttpRequest, path: str = "") -> list[Table]:
    """Return the tables as the address wants them, with links and fields to arrange them.

    `path` is the page's, where it answers at another address.
    """
    given = list(tables)
    prefixes = ["" if len(given) == 1 else f"{table.id}." for table in given]
    return [
        _arranged(table, _TableAddress(request, table.id, prefix, path or path_of(request)))
        for table, prefix in zip(given, prefixes, strict=True)
    ]


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
        # Apart from the sort: reversed, what has no value would come first.
        (none if row.values.get(column.key) in {None, ""} else some).append(row)
    some.sort(key=lambda row: _rank(row.values[column.key]), reverse=order.falling)
    return [*some, *none]


def _rank(value: Value) -> tuple[int, float, str]:
    if isinstance(value, str):
        # Texts and numbers of one column cannot be compared with each other.
        return (1, 0.0, value.casefold())
    if isinstance(value, datetime):
        return (0, value.timestamp(), "")
    return (0, value or 0, "")


def matching(rows: Iterable[TableRow], columns: Sequence[Column], text: str) -> list[TableRow]:
    """Return the rows whose names hold every word of a text; names are the columns of text."""
    keys = [column.key for column in columns if column.kind is Format.TEXT]
    words = text.casefold().split()

    def holds(row: TableRow) -> bool:
        # Line by line, so that no word is found across two names.
        names = "\n".join(str(row.values.get(key) or "") for key in keys).casefold()
        return all(word in names for word in words)

    return [row for row in rows if holds(row)]


def _arranged(table: Table, address: _TableAddress) -> Table:
    wanted = None if table.ordered else order_from(address.request.GET, address.key("sort"))
    column = next((c for c in table.columns if wanted and c.key == wanted.key), None)
    if wanted and not column:
        table = _noted(table, f"There is no column “{wanted.key[:40]}” to sort by.")
    text = address.get("q")[:_LONGEST_TEXT]
    is_long = bool(
        len(table.rows) > table.page_length
        or table.first_href
        or table.previous_href
        or table.next_href
        or text
    )
    several = len(table.rows) > 1 or is_long
    table = _rearranged(table, address, wanted if column else None, column, text)
    found = replace(
        table,
        sorted_by=str(wanted) if wanted and column else "",
        sort_links=_links(table, address, wanted) if several and not table.ordered else {},
        hidden=_hidden(table, address),
    )
    return replace(found, tools=_tools(found, address, text, filters=is_long))


def _rearranged(
    table: Table, address: _TableAddress, order: TableOrder | None, column: Column | None, text: str
) -> Table:
    """Return one page of the table, of the rows that match a text, in the order asked for."""
    has_own_pages = table.every is not None
    if not (text or order) and has_own_pages:
        return table
    rows: Sequence[TableRow] = table.rows
    if text or order:
        # One more than is sorted tells that there are too many, without reading all of them.
        every = list(islice(table.every() if table.every else rows, MOST_SORTED + 1))
        if len(every) > MOST_SORTED:
            return _noted(
                table,
                f"Not sorted or filtered: there are more than {MOST_SORTED:,} rows. Narrow the "
                "window, or use the file.",
            )
        rows = matching(every, table.columns, text) if text else every
        rows = in_order(rows, column, order) if order and column else rows
        table = replace(
            table,
            first_href=None,
            previous_href=None,
            next_href=None,
            every=lambda: rows,
            # A total is of all rows; of some of them it would mislead.
            total=None if text else table.total,
            empty=f"No row matches “{text}”." if text else table.empty,
        )
    elif len(rows) <= table.page_length:
        return table
    # A page that cuts a list itself says so by `page`, however many tables it has.
    key = "page" if has_own_pages else address.key("page")
    pages = pages_from(address.request.GET, count=len(rows), usual=table.page_length, key=key)
    part = replace(table, rows=rows[pages.part], every=lambda: rows)
    others = remaining_query(address.request, drop=(*PLACE_KEYS, key))
    return paged(part, address.path, others, pages, key=key)


def _noted(table: Table, note: str) -> Table:
    return replace(table, note=f"{table.note} {note}".strip())


def _links(table: Table, address: _TableAddress, now: TableOrder | None) -> dict[str, str]:
    """Return by column where a click on its head leads: numbers start with the largest."""
    others, name = address.others("sort"), address.key("sort")
    links = {}
    for column in table.columns:
        falling = not now.falling if now and now.key == column.key else column.falls_first
        order = TableOrder(column.key, falling=falling)
        links[column.key] = address.href((*others, (name, str(order))))
    return links


# ---------------------------------------------------------------- columns


def _hidden(table: Table, address: _TableAddress) -> frozenset[str]:
    """Return the columns that are not shown: as the address says, else as the reader chose last.

    The first column is always shown; where nothing that is named is there, all are.
    """
    shown = [column.key for column in table.shown_columns]
    given = address.request.GET.getlist(address.key("columns"))
    if not given and not _is_reset(address):
        given = address.request.COOKIES.get(_cookie(address), "").split(".")
    # Only keys that are there: a cookie may be of an older version of the page.
    asked = {key for text in given for key in text.split(",")} & set(shown)
    return frozenset(shown[1:]) - asked if asked else frozenset()


def remember_columns(
    response: HttpResponseBase, tables: Sequence[Table], request: HttpRequest
) -> None:
    """Keep in a cookie which columns the reader has just chosen; a link of others keeps nothing."""
    for table in tables:
        address = _TableAddress(request, table.id, "" if len(tables) == 1 else f"{table.id}.")
        if _is_reset(address):
            response.delete_cookie(_cookie(address), samesite="Lax")
        # Only by the form of columns: a link from somebody must not change what a reader chose.
        elif table.hidden and request.headers.get("HX-Trigger") == _form_id(table.id):
            keys = ".".join(column.key for column in table.shown_columns)
            response.set_cookie(
                _cookie(address), keys, max_age=_COOKIE_AGE, httponly=True, samesite="Lax"
            )


def _form_id(table_id: str) -> str:
    return f"{table_id}-columns"


def _is_reset(address: _TableAddress) -> bool:
    return address.request.headers.get("HX-Trigger") == f"{_form_id(address.table_id)}-all"


def _cookie(address: _TableAddress) -> str:
    match = address.request.resolver_match
    return f"columns-{match.url_name if match else ''}-{address.table_id}"


def _tools(table: Table, address: _TableAddress, text: str, *, filters: bool) -> TableTools | None:
    many = [c for c in table.columns if not c.in_files]
    chooses = len(many) > _MANY_COLUMNS
    if not (filters or chooses):
        return None
    return TableTools(
        filter_key=address.key("q") if filters else "",
        text=text,
        filter_hidden=address.others("q"),
        clear_href=address.href(address.others("q")),
        columns_key=address.key("columns") if chooses else "",
        columns=tuple(_choices(many[1:], table.hidden)) if chooses else (),
        first=many[0].key,
        columns_hidden=address.others("columns"),
        all_href=address.href(address.others("columns")),
    )


def _choices(columns: Sequence[Column], hidden: frozenset[str]) -> Iterator[ColumnChoice]:
    for column in columns:
        label = f"{column.label} ({column.unit})" if column.unit else column.label
        yield ColumnChoice(column.key, label, column.key not in hidden)
