"""Tables: one structure that a page shows and a file carries, cell for cell."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import date, datetime
from decimal import Decimal
from typing import Any, Generic, Protocol, TypeVar, overload
from zoneinfo import ZoneInfo

from msgspec import Struct, field

from apps.accounts.domain.structs import replace
from apps.clusters.domain.columns import Column as Declared
from apps.clusters.domain.columns import columns_of
from apps.clusters.domain.resources import counted
from apps.usage.domain.amounts import CAPACITY_FIELDS, STATE_FIELDS, Amounts, nano
from apps.usage.domain.columns import LedgerFigures
from apps.web.components.formats import FALLING, NUMERIC, Format, Value, exact, shown
from apps.web.components.page_query import (
    PER_PAGE,
    PER_PAGE_KEY,
    Pages,
    Query,
    explain_href,
    with_query,
    without,
)
from apps.web.components.table_cells import Cell, CellPart, TableTools


def hue_class(key: str) -> str:
    """Return the style class that has the hue of an amount of the ledger."""
    return "of-active" if key == "busy" else f"of-{key.replace('_', '-')}"


class LedgerClass(Struct, frozen=True):
    """One class: `key` names the field of Amounts; `pattern` is a shape of Plotly, or a line."""

    key: str
    label: str
    meaning: str
    pattern: str = ""

    @property
    def token(self) -> str:
        """The style sheet's variable that holds the colour, in either theme."""
        return f"--ledger-{self.key.replace('_', '-')}"

    @property
    def css(self) -> str:
        """The style classes that draw colour and pattern in legends and bars."""
        pattern = {"/": " hatched", "x": " crossed", "|": " striped", "-": " lined"}.get(
            self.pattern, ""
        )
        return f"{hue_class(self.key)}{pattern}"


_COLUMNS = {column.key: column for column in columns_of(LedgerFigures)}


def _class(key: str, pattern: str = "") -> LedgerClass:
    column = _COLUMNS[f"{key}_gpu_hours"]
    return LedgerClass(key, column.label, column.help, pattern)


BUSY = _class("busy")
UNDERUSED = _class("underused")
IDLE = _class("idle")
NOT_RUNNING = _class("not_running")
UNMEASURED = _class("unmeasured", "/")
UNALLOCATED = _class("unallocated")
UNHEALTHY = _class("unhealthy", "x")
PLANNED_OUTAGE = _class("planned_outage", "|")

ALLOCATED_CLASSES = (BUSY, UNDERUSED, IDLE, NOT_RUNNING, UNMEASURED)
CAPACITY_CLASSES = (*ALLOCATED_CLASSES, UNALLOCATED, UNHEALTHY)
WHOLE_CLASSES = (*CAPACITY_CLASSES, PLANNED_OUTAGE)
"""All classes of capacity: for what leaves out those that nothing is of."""


class StripPart(Struct, frozen=True):
    """One class as a part of a bar; `percent` of the whole, 0..100."""

    cls: LedgerClass
    percent: float
    gpu_hours: int


def strip(amounts: Amounts, classes: Sequence[LedgerClass]) -> list[StripPart]:
    """Return the parts of a bar that shows `classes` of one ledger line; empty for nothing."""
    parts = [(c, getattr(amounts, c.key) or 0) for c in classes]
    whole = sum(amount for _, amount in parts)
    if whole <= 0:
        return []
    return [StripPart(c, round(100 * n / whole, 3), n) for c, n in parts if n > 0]


# What a phone shows until the row is opened, as in tables.css: a name and a line of three values.
_PHONE_ROWS, _PHONE_COLUMNS = 6, 4


class Column(Struct, frozen=True):
    """`key` heads the column in files and carries its unit; `label` and `unit` on the page.

    A column `in_files` is not on the page. `absent` says there that a value is none: `never`.
    """

    key: str
    label: str
    kind: Format = Format.TEXT
    unit: str = ""
    hint: str = ""
    wraps: bool = False
    in_files: bool = False
    absent: str = ""

    @property
    def is_number(self) -> bool:
        return self.kind in NUMERIC

    @property
    def head(self) -> str:
        """The label with its unit."""
        return f"{self.label} {self.unit}".rstrip()

    @property
    def falls_first(self) -> bool:
        """Whether sorting by it starts with the largest or latest."""
        return self.kind in FALLING


def declared_columns(
    row: type,
    *more: Column,
    after: Mapping[str, Sequence[Column]] | None = None,
    groups: tuple[str, ...] = (),
    admin: bool = False,
) -> tuple[Column, ...]:
    """Return the columns of a page's table as the row declares them, with those of `groups`.

    Columns of the page alone come `after` the declared ones of these keys, and `more` at the end.
    Those for administrators are there with `admin` alone.
    """
    found: list[Column] = []
    for column in columns_of(row, groups):
        found += [_of_page(column)] if column.label and (admin or not column.admin) else []
        found += (after or {}).get(column.key, ())
    return (*found, *more)


def declared_values(row: Any) -> dict[str, Value]:
    """Return the values of a row by column key, but for its groups.

    Several names are one text, a flag yes or no, days and decimals texts in full.
    """
    return {
        column.key: _value(getattr(row, column.name), column)
        for column in columns_of(row.__class__, ())
        if column.label
    }


def _value(value: Any, column: Declared) -> Value:
    # Pages write GPU-hours from whole nano-GPU-hours; some rows declare them as floats.
    if column.unit == "GPU-h" and isinstance(value, float):
        return nano(value)
    # Before numbers: a bool is one to Python.
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Decimal):
        return f"{value:f}"
    # A datetime is a date to Python, too, and is written by its column.
    if isinstance(value, date) and not isinstance(value, datetime):
        return value.isoformat()
    return " ".join(value) if isinstance(value, tuple) else value


def _of_page(column: Declared) -> Column:
    return Column(
        column.key,
        column.label,
        _format(column),
        column.unit if column.unit != "s" else "",
        column.help,
        wraps=column.wraps,
        in_files=column.off_page,
        absent=column.absent,
    )


_FORMATS = {"%": Format.RATIO, "GPU-h": Format.GPU_HOURS, "s": Format.SECONDS}
_FORMATS_OF_TYPES = {
    datetime: Format.TIME,
    int: Format.COUNT,
    float: Format.NUMBER,
    Decimal: Format.DECIMAL,
}


def _format(column: Declared) -> Format:
    """Return how a column is written: as declared, by its unit, or by its type."""
    if column.shown_as:
        return Format(column.shown_as)
    # A text may have a unit in its head, and is still a text.
    by_unit = None if column.type is str else _FORMATS.get(column.unit)
    if by_unit is None and column.digits:
        return Format.DECIMAL
    return by_unit or _FORMATS_OF_TYPES.get(column.type, Format.TEXT)


class Explained:
    """Where the figures of a row are explained; made when the row is shown, and once for all.

    `query` is that of the reading, `scope` as for `links.explain_href`.
    """

    __slots__ = ("_address", "_query", "_scope")

    def __init__(self, query: Query, scope: Mapping[str, str]) -> None:
        self._query = query
        self._scope = scope
        self._address = ""

    def address_of(self, figure: str) -> str:
        """Return the address that explains the figure of this key."""
        # Encoded once for all figures of a row: a table has hundreds of them.
        if not self._address:
            self._address = explain_href("", self._query, **self._scope)
        joint = "&" if "?" in self._address else "?"
        return f"{self._address}{joint}figure={figure}"


class RowAction(Struct, frozen=True):
    """What a reader may do with a row: a button that posts `fields`, or a link.

    `name` says it with what the row is about, to who hears one button after the other.
    """

    label: str
    href: str
    name: str
    fields: Query = ()
    is_link: bool = False


class TableRow(Struct, frozen=True):
    """Values by column key, and the address that a value leads to, where it leads anywhere.

    `explained` tells where the row's figures of the ledger are explained, `explains` where others
    are, by column key. The page alone has `short` texts in place of long values, `details` below
    values, the `parts` of values that are several names, and the `actions`; `anchor` is the row's
    id there.
    """

    values: Mapping[str, Value]
    links: Mapping[str, str | None] = field(default_factory=dict)
    badges: Mapping[str, str] = field(default_factory=dict)
    explained: Explained | None = None
    explains: Mapping[str, str] = field(default_factory=dict)
    short: Mapping[str, str] = field(default_factory=dict)
    details: Mapping[str, str] = field(default_factory=dict)
    parts: Mapping[str, Sequence[CellPart]] = field(default_factory=dict)
    actions: Sequence[RowAction] = ()
    anchor: str = ""


_Source = TypeVar("_Source")


class LaterRows(Sequence[TableRow], Generic[_Source]):
    """Rows that are made of what was read when they are shown: of thousands a page shows few."""

    def __init__(self, found: Sequence[_Source], row_of: Callable[[_Source], TableRow]) -> None:
        self._found = found
        self._row_of = row_of

    def __len__(self) -> int:
        return len(self._found)

    @overload
    def __getitem__(self, place: int) -> TableRow: ...

    @overload
    def __getitem__(self, place: slice) -> Sequence[TableRow]: ...

    def __getitem__(self, place: int | slice) -> TableRow | Sequence[TableRow]:
        if isinstance(place, slice):
            return [self._row_of(one) for one in self._found[place]]
        return self._row_of(self._found[place])


class Heading(Struct, frozen=True):
    """The head of a column: where a click on it leads, and how the table is sorted by it.

    A phone shows the column on demand where it `is_more`.
    """

    column: Column
    href: str
    direction: str
    is_more: bool


class Table(Struct, frozen=True):
    """`total` is shown as a last line; `empty` says why there are no rows and what to do.

    `every` gives the rows of all pages of a table that shows one at a time: what a file carries.
    They are read when the file is written, not before. `ordered` tables keep the order they have.
    `table_arrangement` shows `page_length` rows at a time; it also sets `sort_links`, by column
    key, `sorted_by`, the `hidden` columns and the `tools`. `place` says which rows these are, and
    `more_href` leads to a longer page of a list that opens short. `of_rows`: how many there are,
    where a part is shown under a picture. `on_phone` are the columns that a phone shows at first,
    where these are not the leading ones; the first of them names a row there.
    """

    id: str
    title: str
    columns: Sequence[Column]
    rows: Sequence[TableRow]
    zone: ZoneInfo
    empty: str
    total: TableRow | None = None
    note: str = ""
    first_href: str | None = None
    previous_href: str | None = None
    next_href: str | None = None
    more_href: str | None = None
    every: Callable[[], Iterable[TableRow]] | None = None
    ordered: bool = False
    page_length: int = PER_PAGE
    sorted_by: str = ""
    sort_links: Mapping[str, str] = field(default_factory=dict)
    hidden: frozenset[str] = frozenset()
    tools: TableTools | None = None
    place: str = ""
    of_rows: int = 0
    on_phone: tuple[str, ...] = ()

    @property
    def has_actions(self) -> bool:
        return any(row.actions for row in self.rows)

    @property
    def size_text(self) -> str:
        """Say how many rows there are: `3 rows`, or `25 of 46 rows`."""
        shown = len(self.rows)
        if self.of_rows > shown:
            return f"{shown} of {self.of_rows} rows"
        return counted(shown, "row")

    def headings(self) -> list[Heading]:
        """Return the heads of the columns."""
        more = self._more
        return [
            Heading(c, self.sort_links.get(c.key, ""), self._direction(c), is_more=c.key in more)
            for c in self.shown_columns
        ]

    @property
    def shown_columns(self) -> list[Column]:
        return [c for c in self.columns if not (c.in_files or c.key in self.hidden)]

    @property
    def more_text(self) -> str:
        """Say what a phone shows on demand: `All 25 rows, 12 columns`; empty where that is none."""
        rows, columns = len(self.rows), len(self.shown_columns)
        parts = [
            *([f"{rows} rows"] if rows > _PHONE_ROWS else []),
            *([f"{columns} columns"] if self._more else []),
        ]
        return f"All {', '.join(parts)}" if parts else ""

    @property
    def _more(self) -> frozenset[str]:
        """Return the columns that a phone shows on demand; never the one it is sorted by."""
        shown = [column.key for column in self.shown_columns]
        first = list(self.on_phone or shown[:_PHONE_COLUMNS])
        if (by := self.sorted_by.removeprefix("-")) and by not in first:
            # In place of the last one: a phone has room for no more.
            first[-1] = by
        return frozenset(shown) - {shown[self.leading], *first}

    @property
    def leading(self) -> int:
        """Return the place of the column that names a row on a phone: the first, unless said."""
        shown = [column.key for column in self.shown_columns]
        named = self.on_phone[0] if self.on_phone else ""
        return shown.index(named) if named in shown else 0

    def _direction(self, column: Column) -> str:
        """Return what `aria-sort` says of a column; empty for those it is not sorted by."""
        return {column.key: "ascending", f"-{column.key}": "descending"}.get(self.sorted_by, "")

    def body(self) -> list[list[Cell]]:
        """Return the cells of the rows."""
        scales = [(column, self._scale(column)) for column in self.shown_columns]
        return [[self._cell(row, column, scale) for column, scale in scales] for row in self.rows]

    def foot(self) -> list[Cell]:
        """Return the cells of the total; empty without one."""
        if self.total is None:
            return []
        return [self._cell(self.total, c, self._scale(c)) for c in self.shown_columns]

    def _scale(self, column: Column) -> float:
        """Return the ratio at which a bar of this column is full: 1, or the largest above."""
        if column.kind is not Format.RATIO:
            return 1.0
        values = (row.values.get(column.key) for row in self.rows)
        # Ratios above 1, such as over an entitlement, would all end at the edge of the bar.
        return max(1.0, *(float(v) for v in values if isinstance(v, int | float)), 1.0)

    def records(self) -> Iterator[list[str]]:
        """Yield the head, all rows and the total with exact values: what a file carries."""
        yield [column.key for column in self.columns]
        for row in self.every() if self.every else self.rows:
            yield self._record(row)
        if self.total:
            yield self._record(self.total)

    def _record(self, row: TableRow) -> list[str]:
        return [exact(row.values.get(c.key), c.kind, self.zone) for c in self.columns]

    def _cell(self, row: TableRow, column: Column, scale: float) -> Cell:
        value = row.values.get(column.key)
        text = row.short.get(column.key) or shown(value, column.kind, self.zone)
        if value is None and column.absent:
            text = column.absent
        if column.unit == "%":
            text = text.removesuffix(" %")
        # A time says on hover what it is in UTC, also where a file gives it with its offset.
        kind = Format.TIME if column.kind is Format.HOUR else column.kind
        full = exact(value, kind, self.zone)
        unit = f" {_unit_of_exact(column)}" if full and _unit_of_exact(column) else ""
        return Cell(
            text=text,
            title=f"{full}{unit}" if full != text else "",
            is_number=column.is_number,
            wraps=column.wraps,
            href=row.links.get(column.key),
            badge=row.badges.get(column.key, ""),
            explain_href=_explain_href(row, column, value),
            share=_share(value, column, scale),
            whole=f"{1 / scale:.3f}" if scale > 1 else "",
            detail=row.details.get(column.key, ""),
            label=column.head,
            parts=row.parts.get(column.key, ()),
        )


def _unit_of_exact(column: Column) -> str:
    """Return the unit of the value in full, where it differs from that of the short one."""
    if column.kind is Format.SECONDS:
        return "s"
    return "" if column.kind in (Format.RATIO, Format.CHANGE) else column.unit


def _share(value: Value, column: Column, scale: float) -> str:
    """Return how much of a bar a ratio fills, 0..1; empty for what is no ratio of a whole."""
    if column.kind is not Format.RATIO or not isinstance(value, int | float):
        return ""
    return f"{min(max(value / scale, 0.0), 1.0):.3f}"


def _explain_href(row: TableRow, column: Column, value: Value) -> str:
    if value is not None and column.key in row.explains:
        return row.explains[column.key]
    if row.explained is None or column.key not in EXPLAINED or value is None:
        return ""
    return row.explained.address_of(column.key)


class HasAmounts(Protocol):
    """Anything that carries a line of the ledger."""

    @property
    def amounts(self) -> Amounts: ...


LEDGER = {column.key: column for column in declared_columns(LedgerFigures)}
CAPACITY = LEDGER["capacity_gpu_hours"]
ALLOCATED = LEDGER["allocated_gpu_hours"]
ALLOCATION = LEDGER["allocation_ratio"]
UTILIZATION = LEDGER["utilization_ratio"]
COVERAGE = LEDGER["coverage_ratio"]


def class_columns(classes: Sequence[LedgerClass]) -> list[Column]:
    """Return one GPU-hours column per ledger class."""
    return [LEDGER[f"{c.key}_gpu_hours"] for c in classes]


def capacity_classes(amounts: Iterable[Amounts]) -> Sequence[LedgerClass]:
    """Return the classes of capacity; planned outages are one of them where there were any."""
    # A column or legend of zeros on every page would puzzle who has announced none.
    return WHOLE_CLASSES if any(one.planned_outage for one in amounts) else CAPACITY_CLASSES


def ledger_values(amounts: Amounts) -> dict[str, Value]:
    """Return every ledger value of `amounts` by the column keys used here."""
    values: dict[str, Value] = {
        f"{name}_gpu_hours": getattr(amounts, name) for name in _AMOUNT_NAMES
    }
    return values | {
        "allocation_ratio": amounts.allocation_ratio,
        "utilization_ratio": amounts.utilization_ratio,
        "coverage_ratio": amounts.coverage_ratio,
    }


_AMOUNT_NAMES = (*CAPACITY_FIELDS, *STATE_FIELDS)


EXPLAINED = frozenset(
    {
        *(f"{name}_gpu_hours" for name in (*_AMOUNT_NAMES, "not_busy")),
        *("allocation_ratio", "utilization_ratio", "coverage_ratio"),
    }
)
"""The keys of the columns whose figures can be explained."""


def summed(rows: Sequence[HasAmounts]) -> Amounts:
    """Return the sum of the rows' ledgers; ratios then derive from the sums."""
    total = Amounts()
    for row in rows:
        total.add(row.amounts)
    return total


def total_row(
    label_key: str,
    rows: Sequence[HasAmounts],
    *,
    explained: Explained | None = None,
    **extra: Value,
) -> TableRow | None:
    """Return the line `Total`; None for fewer than two rows."""
    # The total of one row is that row.
    if len(rows) < 2:
        return None
    values = {**ledger_values(summed(rows)), label_key: "Total", **extra}
    return TableRow(values, explained=explained)


def attributes(row: object, *names: str, **of: str) -> dict[str, Any]:
    """Return attributes of a row as the values of the columns of these names; `of`: of others."""
    columns = {**{name: name for name in names}, **of}
    return {column: getattr(row, name) for column, name in columns.items()}


def with_rows(table: Table, rows: Sequence[TableRow]) -> Table:
    """Return `table` with other rows."""
    return replace(table, rows=rows)


def paged(table: Table, path: str, query: Query, pages: Pages, *, key: str = "page") -> Table:
    """Return `table` with its place and the links to the pages before and after."""

    def link(number: int) -> str:
        return f"{with_query(path, (*query, (key, str(number))))}#{table.id}"

    return replace(
        table,
        previous_href=link(pages.number - 1) if pages.number > 1 else None,
        next_href=link(pages.number + 1) if pages.number < pages.last else None,
        place=pages.place,
        more_href=_longer(table, path, query, pages),
    )


def _longer(table: Table, path: str, query: Query, pages: Pages) -> str | None:
    """Return the address with the usual number of rows, of a list that opens with fewer."""
    if pages.per_page >= PER_PAGE or pages.count <= pages.per_page:
        return None
    kept = without(query, PER_PAGE_KEY)
    return f"{with_query(path, (*kept, (PER_PAGE_KEY, str(PER_PAGE))))}#{table.id}"
