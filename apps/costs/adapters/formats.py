"""Write cost files as CSV, XLSX and Parquet."""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import UTC, tzinfo
from itertools import islice
from tempfile import TemporaryDirectory, TemporaryFile
from typing import TYPE_CHECKING, Any, BinaryIO
from zoneinfo import ZoneInfo

from apps.costs.domain.files import (
    MOST_XLSX_ROWS,
    CellType,
    CostFile,
    FileColumn,
    FileFormat,
    check_row_count,
    scaled_text,
)
from apps.usage.domain.columns import guarded, utc_text

if TYPE_CHECKING:
    from xlsxwriter.format import Format
    from xlsxwriter.workbook import Workbook
    from xlsxwriter.worksheet import Worksheet

_CSV_ROWS_AT_A_TIME = 2000
_BOM = b"\xef\xbb\xbf"
_TO_QUOTE = re.compile(r'[",\r\n]')
# Names and times come again and again: to look one up is faster than to check it for formulas.
_CACHED = 50_000
# What a cell of Excel holds.
_LONGEST_TEXT = 32_767
_WIDTH = {CellType.TEXT: 24, CellType.INSTANT: 20, CellType.PERIOD: 20}
_PRECISION = (
    "Cells hold the amounts as spreadsheets do, to 15 digits; CSV and Parquet carry them in full."
)
_TIMES = "Periods are local to {}; other times are UTC."
_CellWriter = Callable[[int, int, Any], object]
_Texts = Callable[[Sequence[Any]], Iterable[str]]


def csv_parts(file: CostFile, *, bom: bool = False, with_notes: bool = True) -> Iterator[bytes]:
    """Yield a file in parts of some thousand rows.

    Texts that a spreadsheet could take for formulas are guarded; numbers stay numbers, so -1.5 is
    -1.5. The notes are columns of every row (readers of CSV know no other place, and a comment
    above the header would be taken for it); those that the file has anyway are not repeated.
    `bom` is for Excel, which takes UTF-8 without it for something else.
    """
    names = [column.name for column in file.columns]
    notes = {
        name: _csv_quoted(text)
        for name, text in file.notes.texts().items()
        if with_notes and name not in names
    }
    zone = ZoneInfo(file.notes.time_zone)
    texts = [_csv_texts(column, zone) for column in file.columns]
    tail = "".join(f",{note}" for note in notes.values()) + "\r\n"
    yield (_BOM if bom else b"") + (",".join([*names, *notes]) + "\r\n").encode()
    rows = iter(file.rows)
    while part := list(islice(rows, _CSV_ROWS_AT_A_TIME)):
        # Column by column: most of a part have one value or few, which are written once.
        cells = zip(*part, strict=True)
        written = [text(column) for text, column in zip(texts, cells, strict=True)]
        lines = list(map(",".join, zip(*written, strict=True)))
        yield (tail.join(lines) + tail).encode()


def _csv_quoted(text: str) -> str:
    """Return a text as a field: guarded, and in quotes where it needs them."""
    safe = guarded(text)
    return '"' + safe.replace('"', '""') + '"' if _TO_QUOTE.search(safe) else safe


def _csv_texts(column: FileColumn, zone: ZoneInfo) -> _Texts:
    """Return what writes the cells of a column; None is an empty cell."""
    match column.kind:
        case CellType.TEXT:
            return _cached(_csv_quoted)
        case CellType.WHOLE:
            return _each(str)
        case CellType.SCALED:
            digits = column.digits
            return _each(lambda amount: scaled_text(amount, digits))
        case CellType.RATIO:
            return _each(lambda ratio: repr(float(ratio)))
        case CellType.FLAG:
            return _each(lambda flag: "true" if flag else "false")
        case CellType.INSTANT:
            return _cached(lambda at: utc_text(at) or "")
        case CellType.PERIOD:
            # Not remembered: the two hours that one is, when clocks go back, count as equal.
            return _each(lambda at: at.astimezone(zone).isoformat())


def _each(text: Callable[[Any], str]) -> _Texts:
    def texts(cells: Sequence[Any]) -> Iterable[str]:
        return ["" if cell is None else text(cell) for cell in cells]

    return texts


def _cached(text: Callable[[Any], str]) -> _Texts:
    known: dict[Any, str] = {None: ""}

    def texts(cells: Sequence[Any]) -> Iterable[str]:
        new = set(cells).difference(known)
        if len(known) + len(new) > _CACHED:
            known.clear()
            known[None] = ""
            new = set(cells) - {None}
        known.update((cell, text(cell)) for cell in new)
        return map(known.__getitem__, cells)

    return texts


def write_xlsx(file: CostFile, out: BinaryIO) -> None:
    """Write a workbook of two sheets, row by row; only one row is in memory at a time.

    Texts are written as texts, so none becomes a formula or a link. The same file gives the same
    bytes. Raises TooManyRows at the first row too many, and writes nothing then; OSError.
    """
    # Every process has this module, and few write a workbook.
    from xlsxwriter.exceptions import FileCreateError
    from xlsxwriter.workbook import Workbook

    target = _ZipTarget(out)
    with TemporaryDirectory(prefix="gpuportal-xlsx-") as folder:
        book = Workbook(target, {"constant_memory": True, "tmpdir": folder})
        # Else the clock is written into it.
        book.set_properties({"title": file.title, "created": file.notes.window_end})
        sheet = book.add_worksheet("costs")
        _write_head(book, sheet, file.columns)
        try:
            _write_rows(book, sheet, file)
            _write_notes(book, file)
            book.close()
        except BaseException as error:
            target.give_up()
            _close_sheets(book)
            # XlsxWriter has an error of its own for a full disk, which is none of the system's.
            if isinstance(error, FileCreateError) and isinstance(error.__context__, OSError):
                raise error.__context__ from None
            raise
    target.check()


class _ZipTarget:
    """What a ZIP is written to: it takes all of it, and `check` raises the first error then.

    A ZipFile that met an error is ended only when Python forgets it. It writes once more then, to
    a file that is closed by that time, and Python complains of both on standard error.
    """

    def __init__(self, out: BinaryIO) -> None:
        self._out: BinaryIO | None = out
        self._at = out.tell()
        self._error: OSError | None = None

    def write(self, part: bytes) -> int:
        self._do(lambda out: out.write(part))
        self._at += len(part)
        return len(part)

    def seek(self, offset: int) -> int:
        self._do(lambda out: out.seek(offset))
        self._at = offset
        return offset

    def tell(self) -> int:
        return self._at

    def flush(self) -> None:
        self._do(lambda out: out.flush())

    def give_up(self) -> None:
        """Write nothing any more."""
        self._out = None

    def check(self) -> None:
        """Raise the first error, if there was one."""
        if self._error is not None:
            raise self._error

    def _do(self, act: Callable[[BinaryIO], object]) -> None:
        if self._out is None:
            return
        try:
            act(self._out)
        except OSError as error:
            self._error = error
            self.give_up()


def _close_sheets(book: "Workbook") -> None:
    """Close the files of a workbook that is given up, which its library leaves open."""
    for sheet in book.worksheets():
        # What is still to be written of it may find the disk full too.
        with suppress(OSError):
            sheet.row_data_fh.close()


def _write_rows(book: "Workbook", sheet: "Worksheet", file: CostFile) -> None:
    zone = ZoneInfo(file.notes.time_zone)
    puts = [_cell_writer(book, sheet, column, zone) for column in file.columns]
    at = 0
    for at, row in enumerate(file.rows, start=1):
        if at > MOST_XLSX_ROWS:
            check_row_count(FileFormat.XLSX, at)
        for place, (put, cell) in enumerate(zip(puts, row, strict=True)):
            if cell is not None:
                put(at, place, cell)
    if at:
        sheet.autofilter(0, 0, at, len(file.columns) - 1)


def _write_head(book: "Workbook", sheet: "Worksheet", columns: Sequence[FileColumn]) -> None:
    bold = book.add_format({"bold": True, "bottom": 1})
    for place, column in enumerate(columns):
        sheet.set_column(place, place, max(_WIDTH.get(column.kind, 14), len(column.name) + 2))
        sheet.write_string(0, place, column.name, bold)
    sheet.freeze_panes(1, 0)


def _cell_writer(
    book: "Workbook", sheet: "Worksheet", column: FileColumn, zone: tzinfo
) -> _CellWriter:
    match column.kind:
        case CellType.TEXT:
            return lambda row, place, text: sheet.write_string(row, place, text[:_LONGEST_TEXT])
        case CellType.SCALED:
            shown = _number_format(book, "#,##0.00" if column.digits else "#,##0")
            step = 10**column.digits
            return lambda row, place, amount: sheet.write_number(row, place, amount / step, shown)
        case CellType.WHOLE:
            return lambda row, place, whole: sheet.write_number(row, place, whole)
        case CellType.RATIO:
            shown = _number_format(book, "0.0000")
            return lambda row, place, ratio: sheet.write_number(row, place, ratio, shown)
        case CellType.FLAG:
            return lambda row, place, flag: sheet.write_boolean(row, place, flag)
        case CellType.INSTANT | CellType.PERIOD:
            written = zone if column.kind is CellType.PERIOD else UTC
            shown = _number_format(book, "yyyy-mm-dd hh:mm:ss")
            return lambda row, place, at: sheet.write_datetime(
                row, place, at.astimezone(written).replace(tzinfo=None), shown
            )


def _number_format(book: "Workbook", shown: str) -> "Format":
    return book.add_format({"num_format": shown})


def _write_notes(book: "Workbook", file: CostFile) -> None:
    sheet = book.add_worksheet("notes")
    sheet.set_column(0, 1, 34)
    lines = [("title", file.title), *file.notes.texts().items()]
    lines += [("times", _TIMES.format(file.notes.time_zone)), ("precision", _PRECISION)]
    for row, (name, text) in enumerate(lines):
        sheet.write_string(row, 0, name)
        sheet.write_string(row, 1, text)


def write(file: CostFile, format_: FileFormat, out: BinaryIO, *, bom: bool = False) -> None:
    """Write `file` to `out`, which has to be seekable for XLSX; `bom` is for CSV alone.

    FOCUS files are the same formats with FOCUS's columns (`domain.focus_file`). Raises
    TooManyRows for a workbook that would be too long; `out` then holds no workbook.
    """
    match format_.suffix:
        case "csv":
            # FOCUS knows no other columns than its own, and has the notes among them.
            for part in csv_parts(file, bom=bom, with_notes=not format_.is_focus):
                out.write(part)
        case "xlsx":
            write_xlsx(file, out)
        case "parquet":
            # Arrow takes 37 MB: in those processes alone that write or read such a file.
            from apps.costs.adapters.parquet import write_parquet

            write_parquet(file, out, floats=format_.is_focus)


def write_to_file(file: CostFile, format_: FileFormat) -> BinaryIO:
    """Return `file` in a file without a name, at its end; who closes it deletes it.

    For formats that cannot be written from front to back. Raises TooManyRows, and leaves nothing.
    """
    beside = TemporaryFile()  # noqa: SIM115 - the caller closes it
    try:
        write(file, format_, beside)
    except BaseException:
        beside.close()
        raise
    return beside
