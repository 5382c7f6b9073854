"""Write cost files, and read bills, as Parquet."""

from collections.abc import Iterator, Sequence
from decimal import Decimal
from itertools import islice
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from apps.costs.domain.bills.charges import (
    EXPORT_AGAIN,
    BillRefused,
    Cells,
    NumberedRows,
    refused,
)
from apps.costs.domain.bills.focus_charges import READ
from apps.costs.domain.files import CellType, CostFile, FileColumn, FileRow

# Rows become Arrow columns soon, where they take a tenth of the memory; readers like large groups.
_ROWS_AT_A_TIME = 10_000
_BATCHES_IN_GROUP = 5
# An int64 has 19 digits; times a decimal of d digits Arrow makes them 19 + d + 1 + 1.
_INT64_DIGITS = 19


def write_parquet(file: CostFile, out: BinaryIO, *, floats: bool = False) -> None:
    """Write a file in groups of 50,000 rows; one group is in memory at a time.

    Amounts are decimals of their column's digits. With `floats` they are doubles, as readers of
    FOCUS expect (its validator refuses decimals); what a double cannot hold is beyond 1e-15 of it.
    The notes are in the schema's metadata, keys prefixed `gpuportal.`.
    """
    metadata = {f"gpuportal.{name}": text for name, text in file.notes.texts().items()}
    schema = pa.schema(
        [pa.field(column.name, _arrow_type(column, floats=floats)) for column in file.columns],
        metadata={"gpuportal.title": file.title, **metadata},
    )
    with pq.ParquetWriter(out, schema, compression="zstd") as writer:
        for group in _row_groups(file, schema, floats=floats):
            writer.write_table(group)


def _row_groups(file: CostFile, schema: pa.Schema, *, floats: bool) -> Iterator[pa.Table]:
    rows = iter(file.rows)
    batches: list[pa.RecordBatch] = []
    while part := list(islice(rows, _ROWS_AT_A_TIME)):
        batches.append(_record_batch(part, file.columns, schema, floats=floats))
        if len(batches) == _BATCHES_IN_GROUP:
            yield pa.Table.from_batches(batches, schema)
            batches = []
    if batches:
        yield pa.Table.from_batches(batches, schema)


def _record_batch(
    rows: Sequence[FileRow], columns: Sequence[FileColumn], schema: pa.Schema, *, floats: bool
) -> pa.RecordBatch:
    arrays = [
        _arrow_array(cells, column, floats=floats)
        for cells, column in zip(zip(*rows, strict=True), columns, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _arrow_type(column: FileColumn, *, floats: bool) -> Any:
    match column.kind:
        case CellType.TEXT:
            return pa.string()
        case CellType.WHOLE:
            return pa.int64()
        case CellType.SCALED:
            return pa.float64() if floats else _arrow_decimal(column.digits)
        case CellType.RATIO:
            return pa.float64()
        case CellType.FLAG:
            return pa.bool_()
        case CellType.INSTANT | CellType.PERIOD:
            return pa.timestamp("us", tz="UTC")


def _arrow_decimal(digits: int) -> Any:
    return pa.decimal128(_INT64_DIGITS + digits, digits)


def _arrow_array(cells: Sequence[Any], column: FileColumn, *, floats: bool) -> Any:
    if column.kind is not CellType.SCALED:
        return pa.array(cells, _arrow_type(column, floats=floats))
    whole = pa.array(cells, pa.int64())
    if floats:
        # Up to 2^53 both numbers are exact, so this is the double that a reader of the CSV gets.
        return pc.divide(pc.cast(whole, pa.float64(), safe=False), 10.0**column.digits)
    step = pa.scalar(
        Decimal(1).scaleb(-column.digits), pa.decimal128(column.digits + 1, column.digits)
    )
    made = pc.multiply(pc.cast(whole, pa.decimal128(_INT64_DIGITS, 0)), step)
    return pc.cast(made, _arrow_decimal(column.digits))


def open_parquet(binary: BinaryIO) -> tuple[list[str], NumberedRows]:
    """Return the columns of a bill's file that are read, and its rows. Raises BillRefused."""
    try:
        file = pq.ParquetFile(binary)
    except pa.ArrowException as error:
        raise BillRefused(
            f"The Parquet file is broken ({_first_line(error)}). {EXPORT_AGAIN}"
        ) from None
    columns = [name for name in file.schema_arrow.names if name in READ]
    return columns, _parquet_rows(file, columns)


def _parquet_rows(file: pq.ParquetFile, columns: list[str]) -> Iterator[tuple[int, Cells]]:
    row = 0
    try:
        for batch in file.iter_batches(_ROWS_AT_A_TIME, columns=columns):
            for cells in zip(*(batch.column(name).to_pylist() for name in columns), strict=True):
                row += 1
                yield row, cells
    except pa.ArrowException as error:
        raise refused(
            row + 1, f"the Parquet file is broken ({_first_line(error)}). {EXPORT_AGAIN}"
        ) from None


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [""])[0][:200]
