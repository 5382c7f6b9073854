"""Rows as a table, or whole as JSON, YAML or CSV."""

import csv
import json
import os
import sys
import textwrap
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

import yaml
from rich.console import Console
from rich.table import Table
from rich.text import Text

from gpuportal_client.connection import Row
from gpuportal_client.shapes import misfit

_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20")

_WIDE = 400
_VALUES_AT = 15
_SHOWN = 40


class Output(StrEnum):
    """How rows are written; all but `table` have every field."""

    TABLE = "table"
    JSON = "json"
    CSV = "csv"
    YAML = "yaml"


def amount(value: Any) -> str:
    """Return a number as people read it; an empty cell for null."""
    if value is None or isinstance(value, str):
        return value or ""
    return f"{value:,.1f}".removesuffix(".0")


def short(value: Any) -> str:
    """Return a large number in thousands (k), millions (M) or billions (G); empty for null."""
    if value is None:
        return ""
    for letter, size in (("G", 10**9), ("M", 10**6), ("k", 10**3)):
        if value >= size:
            return f"{value / size:,.1f} {letter}"
    return amount(value)


def equivalents(value: Any) -> str:
    """Return GPU-equivalents with two decimals at most; an empty cell for null."""
    return "" if value is None else f"{value:,.2f}".rstrip("0").rstrip(".")


def percent(value: Any) -> str:
    """Return a ratio of 0 to 1 in percent; an empty cell for null."""
    return "" if value is None else f"{value * 100:.0f} %"


def money(value: Any) -> str:
    """Return money with cents; an empty cell for null."""
    return "" if value is None else f"{float(value):,.2f}"


def duration(seconds: Any) -> str:
    """Return seconds as `3d 1h`, `2h 5m`, `4m` or `12s`; an empty cell for null."""
    if seconds is None:
        return ""
    whole = int(seconds)
    units = (("d", 86_400, "h", 3_600), ("h", 3_600, "m", 60), ("m", 60, "s", 1))
    for letter, size, next_letter, next_size in units:
        count, rest = divmod(whole, size)
        if count:
            smaller = rest // next_size
            return f"{count}{letter} {smaller}{next_letter}" if smaller else f"{count}{letter}"
    return f"{whole}s"


def milliseconds(value: Any) -> str:
    """Return milliseconds as `250 ms` or `1.5 s`; an empty cell for null."""
    if value is None:
        return ""
    return f"{value:,} ms" if value < 1_000 else f"{value / 1_000:g} s"


def instant(value: Any) -> str:
    """Return an RFC 3339 time as `2026-03-28 07:41` in its own offset."""
    return f"{datetime.fromisoformat(value):%Y-%m-%d %H:%M}" if value else ""


def names(value: Any) -> str:
    """Return a list of names in one cell."""
    return ", ".join(value or ())


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table: the field of the API, its heading, and how it is written."""

    field: str
    heading: str
    written: Callable[[Any], str] = lambda value: "" if value is None else str(value)
    is_number: bool = False


def write_rows(
    rows: Sequence[Row],
    columns: Iterable[Column],
    output: Output,
    *,
    empty: str,
    heading: str = "",
) -> None:
    """Write rows to standard output; a table has `heading` above it.

    A table without rows says `empty` on standard error. Raises PortalError.
    """
    if output is not Output.TABLE:
        write_data(rows, output)
        return
    if not rows:
        complain(" ".join(part for part in (empty, heading and f"({heading})") if part))
        return
    if heading:
        write_story(heading)
    present = [column for column in columns if any(_has(row, column) for row in rows)]
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in present:
        table.add_column(
            Text(printable(column.heading)),
            justify="right" if column.is_number else "left",
            overflow="fold",
        )
    for row in rows:
        table.add_row(*(Text(_written(row, column)) for column in present))
    console().print(table)


def complain(text: str) -> None:
    """Write one sentence to standard error."""
    sys.stderr.write(f"{printable(text)}\n")


def _written(row: Row, column: Column) -> str:
    value = row.get(column.field)
    try:
        return printable(column.written(value))
    except (ArithmeticError, TypeError, ValueError) as error:
        # The column itself knows what it can write: a list of kinds beside it would drift.
        what = f"“{column.field}” is {str(value)[:_SHOWN]!r}"
        raise misfit("the portal", what) from error


def printable(text: str) -> str:
    """Return a text of the cluster without characters that would steer the terminal."""
    return "".join(c if c.isprintable() else " " for c in text)


def console() -> Console:
    """Return the terminal; what is piped is wrapped only where COLUMNS says so."""
    is_wide = not sys.stdout.isatty() and "COLUMNS" not in os.environ
    return Console(width=_WIDE if is_wide else None, highlight=False)


def write_story(text: str) -> None:
    """Write lines of names and values, wrapped under their values."""
    out = console()
    for line in text.splitlines():
        line = printable(line)
        indent = " " * _VALUES_AT if line.startswith("  ") else ""
        wrapped = textwrap.fill(
            line,
            out.width,
            subsequent_indent=indent,
            break_long_words=False,
            break_on_hyphens=False,
        )
        out.print(wrapped, markup=False, soft_wrap=True)


def _has(row: Row, column: Column) -> bool:
    return row.get(column.field) not in (None, "")


def write_data(rows: Sequence[Row], output: Output) -> None:
    """Write rows whole, as JSON, YAML or CSV.

    On a terminal, what would steer it is escaped; files and pipes get every character as it is.
    """
    is_terminal = sys.stdout.isatty()
    if output is Output.JSON:
        sys.stdout.write(json.dumps(rows, indent=2, ensure_ascii=is_terminal) + "\n")
    elif output is Output.YAML:
        yaml.safe_dump(list(rows), sys.stdout, sort_keys=False, allow_unicode=not is_terminal)
    else:
        flat = [_flat(row) for row in rows]
        if is_terminal:
            flat = [{_escaped(name): _escaped(cell) for name, cell in row.items()} for row in flat]
        heads = list(dict.fromkeys(name for row in flat for name in row))
        writer = csv.DictWriter(sys.stdout, heads, lineterminator="\r\n")
        if heads:
            writer.writeheader()
        writer.writerows(flat)


def _flat(row: Row) -> dict[str, Any]:
    """Return a row with one cell a field: `grades.measured`; lists as JSON."""
    cells: dict[str, Any] = {}
    for name, value in row.items():
        if isinstance(value, dict) and value and not any(map(_is_nested, value.values())):
            cells.update({f"{name}.{key}": _cell(inner) for key, inner in value.items()})
        else:
            cells[name] = _cell(value)
    return cells


def _escaped(value: Any) -> Any:
    """Return a text with its control and format characters as `\\x1b`; other values as they are."""
    if not isinstance(value, str):
        return value
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in value)


def _is_nested(value: Any) -> bool:
    return isinstance(value, dict | list)


def _cell(value: Any) -> Any:
    """Return a cell; a text that a spreadsheet would take for a formula gets a leading `'`."""
    if _is_nested(value):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, str) and value.startswith(_FORMULA):
        return f"'{value}"
    return value
