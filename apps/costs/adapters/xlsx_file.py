"""Cost files as workbooks: typed cells, a frozen header, and a sheet of notes."""

from collections.abc import Callable, Sequence
from datetime import UTC, tzinfo
from tempfile import TemporaryDirectory
from typing import Any, BinaryIO
from zoneinfo import ZoneInfo

import xlsxwriter
from xlsxwriter.format import Format
from xlsxwriter.workbook import Workbook
from xlsxwriter.worksheet import Worksheet

from apps.costs.domain.files import (
    MOST_XLSX_ROWS,
    CellType,
    Column,
    CostFile,
    FileFormat,
    check_row_count,
)

_LONGEST_TEXT = 32_767
_WIDTH = {CellType.TEXT: 24, CellType.INSTANT: 20, CellType.PERIOD: 20}
_PRECISION = (
    "Cells hold the amounts as spreadsheets do, to 15 digits; CSV and Parquet carry them in full."
)
_TIMES = "Periods are local to {}; other times are UTC."

_Put = Callable[[int, int, Any], object]


def write_xlsx(file: CostFile, out: BinaryIO) -> None:
    """Write a workbook of two sheets, row by row; only one row is in memory at a time.

    Texts are written as texts, so none becomes a formula or a link. The same file gives the same
    bytes. Raises TooManyRows at the first row too many, and writes nothing then.
    """
    with TemporaryDirectory(prefix="gpuportal-xlsx-") as folder:
        book = xlsxwriter.Workbook(out, {"constant_memory": True, "tmpdir": folder})
        # Else the clock is written into it.
        book.set_properties({"title": file.title, "created": file.notes.window_end})
        sheet = book.add_worksheet("costs")
        _head(book, sheet, file.columns)
        try:
            _rows(book, sheet, file)
        except BaseException:
            # Nobody else closes what a workbook that is given up had opened.
            sheet.row_data_fh.close()
            raise
        _notes(book, file)
        book.close()


def _rows(book: Workbook, sheet: Worksheet, file: CostFile) -> None:
    zone = ZoneInfo(file.notes.time_zone)
    puts = [_put_of(book, sheet, column, zone) for column in file.columns]
    at = 0
    for at, row in enumerate(file.rows, start=1):
        if at > MOST_XLSX_ROWS:
            check_row_count(FileFormat.XLSX, at)
        for place, (put, cell) in enumerate(zip(puts, row, strict=True)):
            if cell is not None:
                put(at, place, cell)
    if at:
        sheet.autofilter(0, 0, at, len(file.columns) - 1)


def _head(book: Workbook, sheet: Worksheet, columns: Sequence[Column]) -> None:
    bold = book.add_format({"bold": True, "bottom": 1})
    for place, column in enumerate(columns):
        sheet.set_column(place, place, max(_WIDTH.get(column.kind, 14), len(column.name) + 2))
        sheet.write_string(0, place, column.name, bold)
    sheet.freeze_panes(1, 0)


def _put_of(book: Workbook, sheet: Worksheet, column: Column, zone: tzinfo) -> _Put:
    match column.kind:
        case CellType.TEXT:
            return lambda row, place, text: sheet.write_string(row, place, text[:_LONGEST_TEXT])
        case CellType.SCALED:
            shown = _format(book, "#,##0.00" if column.digits else "#,##0")
            step = 10**column.digits
            return lambda row, place, amount: sheet.write_number(row, place, amount / step, shown)
        case CellType.WHOLE:
            return lambda row, place, whole: sheet.write_number(row, place, whole)
        case CellType.RATIO:
            shown = _format(book, "0.0000")
            return lambda row, place, ratio: sheet.write_number(row, place, ratio, shown)
        case CellType.FLAG:
            return lambda row, place, flag: sheet.write_boolean(row, place, flag)
        case CellType.INSTANT | CellType.PERIOD:
            written = zone if column.kind is CellType.PERIOD else UTC
            shown = _format(book, "yyyy-mm-dd hh:mm:ss")
            return lambda row, place, at: sheet.write_datetime(
                row, place, at.astimezone(written).replace(tzinfo=None), shown
            )


def _format(book: Workbook, shown: str) -> Format:
    return book.add_format({"num_format": shown})


def _notes(book: Workbook, file: CostFile) -> None:
    sheet = book.add_worksheet("notes")
    sheet.set_column(0, 1, 34)
    lines = [("title", file.title), *file.notes.texts().items()]
    lines += [("times", _TIMES.format(file.notes.time_zone)), ("precision", _PRECISION)]
    for row, (name, text) in enumerate(lines):
        sheet.write_string(row, 0, name)
        sheet.write_string(row, 1, text)
