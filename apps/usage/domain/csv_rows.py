"""Rows as lines of CSV (RFC 4180) that a spreadsheet opens without running anything."""

import csv
import io
from collections.abc import Sequence
from datetime import date, datetime
from decimal import Decimal

Cell = str | int | float | bool | Decimal | date | datetime | None

# Some spreadsheets read the full-width forms of East Asian keyboards as the plain ones.
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20")


def guarded(text: str) -> str:
    """Return `text` so that no spreadsheet takes it for a formula.

    Names of pods and workloads are other people's input: `=HYPERLINK(...)` must stay text. Only
    texts need it; a negative number starts with `-` and is harmless.
    """
    return f"'{text}" if text.startswith(_FORMULA) else text


def csv_line(cells: Sequence[Cell]) -> str:
    """Return one line of CSV with its line end."""
    line = io.StringIO(newline="")
    csv.writer(line, lineterminator="\r\n").writerow([_text(cell) for cell in cells])
    return line.getvalue()


def _text(cell: Cell) -> str | int | float | Decimal:
    match cell:
        case None:
            return ""
        case bool():
            return "true" if cell else "false"
        case date():
            return cell.isoformat()
        case str():
            return guarded(cell)
        case _:
            return cell
