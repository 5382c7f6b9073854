"""Open a bill's file: CSV with commas or semicolons, or Parquet; as a head and numbered lines."""

import csv
from collections.abc import Iterator, Sequence
from typing import BinaryIO

from msgspec import Struct

from apps.costs.domain.bills.charges import (
    EXPORT_AGAIN,
    BillRefused,
    Cells,
    NumberedRows,
    refused,
)
from apps.costs.domain.files import NO_PARQUET, FileFormat

_PARQUET = b"PAR1"
_ZIPPED = (b"\x1f\x8b", b"PK\x03\x04")
_LONGEST_CELL = 1_000_000  # Tags of a cloud take many kilobytes; Python's own limit is 128.


class BillFile(Struct, frozen=True):
    """An open file: its head, and its rows, to be read once. `semicolons`: it is CSV with these.

    `rows` raises BillRefused where the file is broken.
    """

    format: str
    head: Sequence[str]
    rows: NumberedRows
    semicolons: bool = False


def open_bill(binary: BinaryIO) -> BillFile:
    """Open a file by what its first bytes are. Raises BillRefused."""
    start = binary.read(4)
    binary.seek(0)
    if start.startswith(_ZIPPED):
        raise BillRefused(f"The file is compressed, or a workbook. {EXPORT_AGAIN}")
    if start == _PARQUET:
        # Arrow takes 37 MB: only where such a file is read.
        if not FileFormat.PARQUET.is_installed:
            raise BillRefused(f"{NO_PARQUET} Export the file again as CSV (UTF-8).")
        from apps.costs.adapters.parquet import open_parquet

        return BillFile("parquet", *open_parquet(binary))
    return _csv(_texts(binary))


def _texts(binary: BinaryIO) -> Iterator[str]:
    """Yield lines as text. One by one, so that a wrong sign is found in its own line."""
    for number, line in enumerate(binary, start=1):
        try:
            yield line.decode("utf-8-sig" if number == 1 else "utf-8")
        except UnicodeDecodeError:
            raise refused(number, f"the text is not UTF-8. {EXPORT_AGAIN}") from None


def _csv(texts: Iterator[str]) -> BillFile:
    first = next(texts, "")
    if not first.strip():
        raise refused(1, f"the head is empty. {EXPORT_AGAIN}")
    semicolons = first.count(";") > first.count(",")
    delimiter = ";" if semicolons else ","
    head = [name.strip() for name in next(csv.reader([first], delimiter=delimiter))]
    return BillFile("csv", head, _csv_rows(texts, delimiter, len(head)), semicolons)


def _csv_rows(texts: Iterator[str], delimiter: str, width: int) -> Iterator[tuple[int, Cells]]:
    limit = csv.field_size_limit(_LONGEST_CELL)
    reader = csv.reader(texts, delimiter=delimiter, strict=True)
    # Where the next record starts: below the head, and below cells in quotes of several lines.
    starts = 2
    try:
        for cells in reader:
            line, starts = starts, reader.line_num + 2
            if any(cell.strip() for cell in cells):
                if len(cells) != width:
                    raise refused(
                        line,
                        f"{len(cells)} columns where the head has {width}. Quote texts with "
                        f"“{delimiter}” in them.",
                    )
                yield line, cells
    except csv.Error as error:
        raise refused(starts, f"the CSV is broken ({error}). {EXPORT_AGAIN}") from None
    finally:
        csv.field_size_limit(limit)
