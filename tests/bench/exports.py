"""Worker: a cost file of many rows, by the portal, by the bare library, and from a database.

python -m tests.bench.exports WRITER FORMAT ROWS

WRITER is `portal` or `bare` (the same made-up rows, so that only the writing differs), `stored`:
the rows of the database, read and written as a file that somebody asks for, or `month`: those of
its first month alone, as FOCUS has them.
"""

import csv
import io
import tempfile
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from itertools import islice
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq
import xlsxwriter

from apps.accounts.permissions import EVERYTHING
from apps.clusters.domain.window import Window, day_window
from apps.clusters.selectors import report
from apps.costs.adapters.formats import write
from apps.costs.domain.costing import Basis, Cause, Policy
from apps.costs.domain.files import CellType, CostFile, FileColumn, FileFormat, FileRow, Notes
from apps.costs.selectors.cost_files import cost_file, period_file
from apps.costs.selectors.months import days_query
from tests.bench.exports_data import DAYS, FIRST
from tests.bench.measuring import peak_mib, timed

_START = datetime(2026, 1, 1, tzinfo=UTC)
_CAUSES = [cause.value for cause in Cause]
_GROUP = 100_000
COLUMNS = (
    FileColumn("period", CellType.INSTANT),
    *(
        FileColumn(name)
        for name in ("cluster", "team", "namespace", "workload", "tier", "gpu_model")
    ),
    FileColumn("capacity_type"),
    FileColumn("cost_center"),
    FileColumn("cause"),
    FileColumn("gpu_hours", CellType.SCALED, 9),
    FileColumn("cost", CellType.SCALED, 8),
    FileColumn("currency"),
    FileColumn("price_per_gpu_hour", CellType.SCALED, 8),
    FileColumn("unpriced", CellType.FLAG),
    FileColumn("correction", CellType.FLAG),
)
_NOTES = Notes(
    window_start=_START,
    window_end=_START + timedelta(days=365),
    time_zone="Europe/Berlin",
    currency="USD",
    basis="allocated",
    policy="platform",
    coverage_ratio=0.99,
    price_book="0123456789ab",
)


def measure(writer: str, format_: str, rows: str) -> dict[str, Any]:
    """Return seconds, rows and the most memory of writing a file."""
    kind, count = FileFormat(format_), int(rows)
    with tempfile.TemporaryFile() as out:
        run = _run(writer, kind, count, out)
        took = timed(run)
        size = out.seek(0, io.SEEK_END)
    return {"seconds": took.wall, "rows": count, "peak_mib": peak_mib(), "size": size}


def _run(writer: str, kind: FileFormat, count: int, out: BinaryIO) -> Callable[[], object]:
    if writer == "stored":
        return lambda: write(_stored(), kind, out)
    if writer == "month":
        return lambda: write(period_file(FIRST, kind, visibility=EVERYTHING), kind, out)
    if writer == "portal":
        return lambda: write(CostFile("Costs", COLUMNS, made_up(count), _NOTES), kind, out)
    return lambda: _BARE[kind](_plain(made_up(count)), out)


def made_up(count: int) -> Iterator[FileRow]:
    """Yield rows as those of a cluster: ordered by day, many workloads a day."""
    for number in range(count):
        yield [
            _START + timedelta(days=number * 365 // count),
            "west",
            f"team-{number % 40}",
            f"namespace-{number % 200}",
            f"Job/train-{number // 4}",
            f"tier-{number % 5}",
            "NVIDIA-A100-SXM4-80GB",
            "on-demand",
            "CC-100",
            _CAUSES[number % 4],
            1_000_000_000 + number,
            306_000_000 + number,
            "USD",
            306_000_000,
            False,
            False,
        ]


def _stored() -> CostFile:
    zone = report().zone
    end = day_window(FIRST + timedelta(days=DAYS), zone).start
    window = Window(day_window(FIRST, zone).start, end)
    question = days_query(window, Basis.ALLOCATED, Policy.PLATFORM)
    return cost_file(question, FileFormat.CSV, visibility=EVERYTHING)


# ---------------------------------------------------------------- the bare libraries


def _plain(rows: Iterable[FileRow]) -> Iterator[list[Any]]:
    """Yield rows with decimals in place of whole numbers, as somebody writes them by hand."""
    scaled = [(at, column.digits) for at, column in enumerate(COLUMNS) if column.digits]
    for row in rows:
        cells: list[Any] = list(row)
        for at, digits in scaled:
            cells[at] = Decimal(cells[at]).scaleb(-digits)
        yield cells


def _bare_csv(rows: Iterable[list[Any]], out: BinaryIO) -> None:
    text = io.TextIOWrapper(out, encoding="utf-8", newline="")
    writer = csv.writer(text)
    writer.writerow([column.name for column in COLUMNS])
    writer.writerows(rows)
    text.flush()
    text.detach()


def _bare_parquet(rows: Iterable[list[Any]], out: BinaryIO) -> None:
    schema = pa.schema([(column.name, _type(column)) for column in COLUMNS])
    with pq.ParquetWriter(out, schema, compression="zstd") as writer:
        while part := list(islice(rows, _GROUP)):
            arrays = [
                pa.array(cells, field.type)
                for cells, field in zip(zip(*part, strict=True), schema, strict=True)
            ]
            writer.write_table(pa.Table.from_arrays(arrays, schema=schema))


def _type(column: FileColumn) -> Any:
    return {
        CellType.INSTANT: pa.timestamp("us", tz="UTC"),
        CellType.FLAG: pa.bool_(),
        CellType.SCALED: pa.decimal128(28, column.digits),
    }.get(column.kind, pa.string())


def _bare_xlsx(rows: Iterable[list[Any]], out: BinaryIO) -> None:
    book = xlsxwriter.Workbook(out, {"constant_memory": True, "remove_timezone": True})
    shown = book.add_format({"num_format": "yyyy-mm-dd"})
    sheet = book.add_worksheet("costs")
    sheet.write_row(0, 0, [column.name for column in COLUMNS])
    for at, (period, *cells) in enumerate(rows, start=1):
        sheet.write_datetime(at, 0, period, shown)
        sheet.write_row(at, 1, cells)
    book.close()


_BARE = {
    FileFormat.CSV: _bare_csv,
    FileFormat.PARQUET: _bare_parquet,
    FileFormat.XLSX: _bare_xlsx,
}
