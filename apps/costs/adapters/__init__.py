"""Cost files written row by row: CSV, XLSX and Parquet, in memory that does not grow with them."""

from tempfile import TemporaryFile
from typing import BinaryIO

from apps.costs.adapters.csv_file import csv_parts
from apps.costs.adapters.file_store import Stored, opened, removed, stored, swept
from apps.costs.adapters.parquet_file import write_parquet
from apps.costs.adapters.xlsx_file import write_xlsx
from apps.costs.domain.files import CostFile, FileFormat


def write(file: CostFile, format_: FileFormat, out: BinaryIO, *, bom: bool = False) -> None:
    """Write `file` to `out`, which has to be seekable for XLSX; `bom` is for CSV alone.

    FOCUS files are the same formats with FOCUS's columns (`domain.focus.focus_file`). Raises
    TooManyRows for a workbook that would be too long; `out` then holds no workbook.
    """
    match format_:
        case FileFormat.CSV | FileFormat.FOCUS_CSV:
            # FOCUS knows no other columns than its own, and has the notes among them.
            for part in csv_parts(file, bom=bom, with_notes=not format_.is_focus):
                out.write(part)
        case FileFormat.XLSX:
            write_xlsx(file, out)
        case FileFormat.PARQUET | FileFormat.FOCUS_PARQUET:
            write_parquet(file, out, floats=format_.is_focus)


def write_beside(file: CostFile, format_: FileFormat) -> BinaryIO:
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
