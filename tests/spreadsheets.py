"""Spreadsheets as a reader meets them: the rows of one sheet, and the file closed again."""

import io
from pathlib import Path
from typing import Any

import openpyxl


def sheet_rows(source: bytes | Path, sheet: str) -> list[dict[str, Any]]:
    """Return the rows of a sheet of an XLSX file by its header's names."""
    content = source if isinstance(source, bytes) else source.read_bytes()
    # A workbook that is read lazily holds its file open until somebody closes it: of bytes in
    # memory nothing is left behind, whatever the garbage collector does.
    book = openpyxl.load_workbook(io.BytesIO(content), read_only=True)
    try:
        head, *rows = book[sheet].iter_rows(values_only=True)
        return [dict(zip(map(str, head), row, strict=True)) for row in rows]
    finally:
        book.close()
