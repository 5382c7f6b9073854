"""Cost files as CSV (RFC 4180) in UTF-8, streamed."""

import re
from collections.abc import Callable, Iterator
from functools import lru_cache
from itertools import islice
from typing import Any
from zoneinfo import ZoneInfo

from apps.costs.domain.files import CellType, Column, CostFile, scaled_text
from apps.usage.domain.columns import utc_text
from apps.usage.domain.csv_rows import guarded

_ROWS_AT_A_TIME = 2000
_BOM = b"\xef\xbb\xbf"
_TO_QUOTE = re.compile(r'[",\r\n]')
# Names and times come again and again: to look one up is faster than to check it for formulas.
_REMEMBERED = 50_000


def csv_parts(file: CostFile, *, bom: bool = False, with_notes: bool = True) -> Iterator[bytes]:
    """Yield a file in parts of some thousand rows.

    Texts that a spreadsheet could take for formulas are guarded; numbers stay numbers, so -1.5 is
    -1.5. The notes are columns of every row (readers of CSV know no other place, and a comment
    above the header would be taken for it); those that the file has anyway are not repeated.
    `bom` is for Excel, which takes UTF-8 without it for something else.
    """
    names = [column.name for column in file.columns]
    notes = {
        name: _quoted(text)
        for name, text in file.notes.texts().items()
        if with_notes and name not in names
    }
    zone = ZoneInfo(file.notes.time_zone)
    texts = [_text_of(column, zone) for column in file.columns]
    tail = "".join(f",{note}" for note in notes.values()) + "\r\n"
    yield (_BOM if bom else b"") + (",".join([*names, *notes]) + "\r\n").encode()
    rows = iter(file.rows)
    while part := list(islice(rows, _ROWS_AT_A_TIME)):
        lines = [
            ",".join(
                ["" if cell is None else text(cell) for text, cell in zip(texts, row, strict=True)]
            )
            for row in part
        ]
        yield (tail.join(lines) + tail).encode()


def _quoted(text: str) -> str:
    """Return a text as a field: guarded, and in quotes where it needs them."""
    safe = guarded(text)
    return '"' + safe.replace('"', '""') + '"' if _TO_QUOTE.search(safe) else safe


def _text_of(column: Column, zone: ZoneInfo) -> Callable[[Any], str]:
    match column.kind:
        case CellType.TEXT:
            return lru_cache(_REMEMBERED)(_quoted)
        case CellType.WHOLE:
            return str
        case CellType.SCALED:
            digits = column.digits
            return lambda amount: scaled_text(amount, digits)
        case CellType.RATIO:
            return lambda ratio: repr(float(ratio))
        case CellType.FLAG:
            return lambda flag: "true" if flag else "false"
        case CellType.INSTANT:
            return lru_cache(_REMEMBERED)(lambda at: utc_text(at) or "")
        case CellType.PERIOD:
            # Not remembered: the two hours that one is, when clocks go back, count as equal.
            return lambda at: at.astimezone(zone).isoformat()
