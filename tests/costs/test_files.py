import csv
import errno
import gc
import io
import os
import tracemalloc
from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from zipfile import ZipFile
from zoneinfo import ZoneInfo

import openpyxl
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from apps.costs.adapters.formats import csv_parts, write
from apps.costs.domain.files import (
    MOST_XLSX_ROWS,
    CellValue,
    FileFormat,
    FileRow,
    TooManyRows,
    check_row_count,
    scaled_text,
)
from tests.costs.written import COLUMNS, NOTES, bytes_of, file_of, reference_charges, row

NAMES = [column.name for column in COLUMNS]
BARE = (FileFormat.CSV, FileFormat.XLSX, FileFormat.PARQUET)


def one_row(**changes: CellValue) -> FileRow:
    cells = dict(zip(NAMES, row(reference_charges()[0]), strict=True)) | changes
    return list(cells.values())


def read_csv(content: bytes) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(content.decode("utf-8-sig"), newline="")))


def read_xlsx(content: bytes) -> tuple[list[tuple[object, ...]], dict[str, object]]:
    book = openpyxl.load_workbook(io.BytesIO(content))
    rows = list(book["costs"].iter_rows(values_only=True))
    notes = {str(name): value for name, value in book["notes"].iter_rows(values_only=True)}
    return rows, notes


def cost_sums(format_: FileFormat, content: bytes) -> tuple[Decimal, Decimal]:
    """Return the whole cost and that of what was not busy, as a reader adds them up."""
    match format_:
        case FileFormat.CSV:
            rows = [(line["cause"], Decimal(line["cost"])) for line in read_csv(content)]
        case FileFormat.XLSX:
            rows = [(str(c[2]), Decimal(repr(c[4]))) for c in read_xlsx(content)[0][1:]]
        case _:
            table = pq.read_table(io.BytesIO(content))
            rows = list(zip(*(table[name].to_pylist() for name in ("cause", "cost")), strict=True))
    total = sum((cost for _, cost in rows), Decimal(0))
    return total, sum((cost for cause, cost in rows if cause != "busy"), Decimal(0))


@pytest.mark.parametrize("format_", BARE)
def test_a_file_read_back_gives_the_reference_totals_to_the_cent(format_: FileFormat) -> None:
    content = bytes_of(file_of(row(charge) for charge in reference_charges()), format_)
    total, wasted = cost_sums(format_, content)
    assert round(total, 2) == Decimal("71481.60")
    assert round(wasted, 2) == Decimal("33060.24")


@pytest.mark.parametrize("format_", BARE)
def test_the_same_file_is_the_same_bytes(format_: FileFormat) -> None:
    first, second = (
        bytes_of(file_of(row(charge) for charge in reference_charges()), format_) for _ in range(2)
    )
    assert first == second


@pytest.mark.parametrize("format_", BARE)
def test_a_file_without_rows_has_its_columns(format_: FileFormat) -> None:
    content = bytes_of(file_of([]), format_)
    match format_:
        case FileFormat.CSV:
            assert content.decode().split(",")[:9] == NAMES
        case FileFormat.XLSX:
            assert list(read_xlsx(content)[0][0]) == NAMES
        case _:
            assert pq.read_table(io.BytesIO(content)).column_names == NAMES


def test_every_row_of_a_csv_carries_the_notes_that_are_not_its_columns() -> None:
    (line,) = read_csv(bytes_of(file_of([one_row()]), FileFormat.CSV))
    texts = NOTES.texts()
    assert {name: line[name] for name in texts} == texts
    assert list(line).count("currency") == 1


def test_a_workbook_has_a_sheet_of_notes_and_a_frozen_header() -> None:
    content = bytes_of(file_of([one_row()]), FileFormat.XLSX)
    _, notes = read_xlsx(content)
    for name, text in NOTES.texts().items():
        assert str(notes[name]) == text
    assert openpyxl.load_workbook(io.BytesIO(content))["costs"].freeze_panes == "A2"


def test_parquet_has_the_notes_in_its_metadata() -> None:
    schema = pq.read_schema(io.BytesIO(bytes_of(file_of([one_row()]), FileFormat.PARQUET)))
    for name, text in NOTES.texts().items():
        assert schema.metadata[f"gpuportal.{name}".encode()].decode() == text


def test_parquet_has_types_and_decimals_in_full() -> None:
    large = one_row(cost=-9_000_000_000_000_000_001)
    table = pq.read_table(io.BytesIO(bytes_of(file_of([large]), FileFormat.PARQUET)))
    assert [str(kind) for kind in table.schema.types] == [
        "timestamp[us, tz=UTC]",
        "string",
        "string",
        "decimal128(28, 9)",
        "decimal128(27, 8)",
        "string",
        "int64",
        "double",
        "bool",
    ]
    assert table["cost"].to_pylist() == [Decimal("-90000000000.00000001")]


def test_periods_are_written_in_the_time_of_the_report_zone_twice_where_clocks_go_back() -> None:
    berlin = ZoneInfo("Europe/Berlin")
    hours = [datetime(2026, 10, 25, 2, tzinfo=berlin, fold=fold) for fold in (0, 1)]
    rows = [one_row(period=hour) for hour in (*hours, datetime(2026, 11, 19, 23, tzinfo=UTC))]
    lines = read_csv(bytes_of(file_of(rows), FileFormat.CSV))
    cells, notes = read_xlsx(bytes_of(file_of(rows), FileFormat.XLSX))

    assert [line["period"] for line in lines] == [
        "2026-10-25T02:00:00+02:00",
        "2026-10-25T02:00:00+01:00",
        "2026-11-20T00:00:00+01:00",
    ]
    assert str(cells[3][0]) == "2026-11-20 00:00:00"
    assert notes["times"] == "Periods are local to Europe/Berlin; other times are UTC."


def test_cells_of_a_workbook_are_typed() -> None:
    rows, _ = read_xlsx(bytes_of(file_of([one_row(cost=-150_000_000)]), FileFormat.XLSX))
    assert [type(cell) for cell in rows[1]] == [
        datetime,
        str,
        str,
        float,
        float,
        str,
        int,
        float,
        bool,
    ]
    assert rows[1][4] == -1.5


@pytest.mark.parametrize("format_", BARE)
def test_what_is_not_known_is_an_empty_cell(format_: FileFormat) -> None:
    content = bytes_of(file_of([[None] * len(COLUMNS), one_row()]), format_)
    match format_:
        case FileFormat.CSV:
            assert [read_csv(content)[0][name] for name in NAMES] == [""] * len(NAMES)
        case FileFormat.XLSX:
            assert set(read_xlsx(content)[0][1]) == {None}
        case _:
            first = pq.read_table(io.BytesIO(content)).slice(0, 1).to_pylist()[0]
            assert set(first.values()) == {None}


HOSTILE = (
    '=HYPERLINK("http://x","y")',
    "+1+1",
    "-2+3",
    "@SUM(A1)",
    "\t=1",
    "\r=1",
    "＝1+1",  # noqa: RUF001 - the full-width form that spreadsheets take for the plain one
)


@pytest.mark.parametrize("name", HOSTILE)
def test_a_name_that_looks_like_a_formula_stays_text(name: str) -> None:
    rows = [one_row(team=name, cost=-150_000_000)]
    (line,) = read_csv(bytes_of(file_of(rows), FileFormat.CSV))
    assert line["team"] == f"'{name}"
    assert line["cost"] == "-1.50000000"
    book = openpyxl.load_workbook(io.BytesIO(bytes_of(file_of(rows), FileFormat.XLSX)))
    assert book["costs"]["B2"].data_type == "s"
    table = pq.read_table(io.BytesIO(bytes_of(file_of(rows), FileFormat.PARQUET)))
    assert table["team"].to_pylist() == [name]


@pytest.mark.parametrize("name", ["a,b", 'say "so"', "two\nlines", "tränen", "💡", "it's"])
def test_names_of_all_kinds_come_back_as_they_were(name: str) -> None:
    rows = [one_row(team=name)]
    assert read_csv(bytes_of(file_of(rows), FileFormat.CSV))[0]["team"] == name
    assert read_xlsx(bytes_of(file_of(rows), FileFormat.XLSX))[0][1][1] == name


def test_a_byte_order_mark_is_written_on_request_alone() -> None:
    assert bytes_of(file_of([]), FileFormat.CSV, bom=True).startswith(b"\xef\xbb\xbfperiod,")
    assert bytes_of(file_of([]), FileFormat.CSV).startswith(b"period,")


@given(st.integers(-(10**24), 10**24), st.integers(0, 12))
def test_decimals_are_written_in_full(amount: int, digits: int) -> None:
    text = scaled_text(amount, digits)
    assert Decimal(text) * 10**digits == amount
    assert ("." in text) == (digits > 0)


def test_a_workbook_that_would_be_too_long_is_refused_with_the_formats_that_would_do() -> None:
    check_row_count(FileFormat.XLSX, MOST_XLSX_ROWS)
    check_row_count(FileFormat.CSV, 10**9)
    with pytest.raises(TooManyRows, match=r"500,000 rows .* CSV or Parquet"):
        check_row_count(FileFormat.XLSX, MOST_XLSX_ROWS + 1)


def test_a_workbook_that_turns_out_too_long_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    out = io.BytesIO()
    one_cell: list[CellValue] = [None] * len(COLUMNS)
    long = file_of(one_cell for _ in range(MOST_XLSX_ROWS + 1))
    with pytest.raises(TooManyRows):
        write(long, FileFormat.XLSX, out)
    assert out.getvalue() == b""
    assert list(tmp_path.iterdir()) == []


class FullDisk(io.BytesIO):
    """A file on a disk that has so many bytes left."""

    def __init__(self, room: int) -> None:
        super().__init__()
        self.room = room

    def write(self, part: Any) -> int:
        if self.tell() + len(part) > self.room:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return super().write(part)


@pytest.mark.parametrize("room", [0, 200, 2_000])
def test_a_full_disk_is_told_once_and_as_what_it_is(room: int) -> None:
    with pytest.raises(OSError, match="No space left") as told, FullDisk(room) as out:
        write(file_of([one_row()]), FileFormat.XLSX, out)
    # What Python says of files that it forgets, pytest makes an error.
    told.value.with_traceback(None)
    told.value.__context__ = told.value.__cause__ = None
    del told
    gc.collect()


def test_a_workbook_has_no_clock_in_it() -> None:
    with ZipFile(io.BytesIO(bytes_of(file_of([one_row()]), FileFormat.XLSX))) as parts:
        core = parts.read("docProps/core.xml").decode()
    assert NOTES.window_end.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ") in core


def test_rows_are_read_as_they_are_written_and_not_before() -> None:
    read = 0

    def rows() -> Iterator[FileRow]:
        nonlocal read
        for _ in range(50_000):
            read += 1
            yield one

    one = one_row()
    parts = csv_parts(file_of(rows()))
    next(parts)
    assert read == 0
    next(parts)
    assert 0 < read < 5_000


@pytest.mark.parametrize("format_", BARE)
def test_memory_does_not_grow_with_the_rows(format_: FileFormat, tmp_path: Path) -> None:
    """Python's own memory: three times the rows must not take half as much again."""
    one = one_row()
    peaks = []
    for count in (4_000, 12_000) if format_ is FileFormat.XLSX else (10_000, 30_000):
        with (tmp_path / f"{count}").open("w+b") as out:
            tracemalloc.start()
            write(file_of(list(one) for _ in range(count)), format_, out)
            peaks.append(tracemalloc.get_traced_memory()[1])
            tracemalloc.stop()
    assert peaks[1] < 1.5 * peaks[0]
