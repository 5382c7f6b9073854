"""Cost files: their columns, their rows, and the notes that go with them."""

import re
from collections.abc import Iterable, Sequence
from datetime import datetime
from enum import StrEnum
from importlib.util import find_spec

from msgspec import Struct

from apps.clusters.domain.columns import Column
from apps.usage.domain.columns import utc_text

MOST_XLSX_ROWS = 500_000
"""Above this a workbook opens slowly or not at all; the format itself ends at 1,048,576."""
NO_PARQUET = (
    "Parquet is not installed here: an administrator installs requirements-parquet.txt, "
    "or builds the image with PARQUET=yes."
)
CellValue = str | int | float | bool | datetime | None
FileRow = Sequence[CellValue]


class FocusVersion(StrEnum):
    """A version of FOCUS that files are written in; compared by `is_since`."""

    V1_0 = "1.0"
    V1_2 = "1.2"
    V1_3 = "1.3"

    def is_since(self, other: "FocusVersion") -> bool:
        """Say whether it is `other` or a later one."""
        # By the order of the members: as texts 1.10 would come before 1.2.
        order = list(FocusVersion)
        return order.index(self) >= order.index(other)


class FileFormat(StrEnum):
    """How a file is written; of FOCUS, the version too, where it is not 1.0.

    Databases have 16 characters for it.
    """

    CSV = "csv"
    XLSX = "xlsx"
    PARQUET = "parquet"
    FOCUS_CSV = "focus-csv"
    FOCUS_PARQUET = "focus-parquet"
    FOCUS_1_2_CSV = "focus1.2-csv"
    FOCUS_1_2_PARQUET = "focus1.2-parquet"
    FOCUS_1_3_CSV = "focus1.3-csv"
    FOCUS_1_3_PARQUET = "focus1.3-parquet"

    @property
    def suffix(self) -> str:
        """What the file's name ends with, without the dot."""
        return self.value.rpartition("-")[2]

    @property
    def subject(self) -> str:
        """What the file's name begins with: `costs`, `focus` (of 1.0), or `focus1.3`."""
        return self.value.rpartition("-")[0] or "costs"

    @property
    def focus_version(self) -> FocusVersion | None:
        """The version of FOCUS whose columns it has; None: it has other columns."""
        return next((one for one, formats in _FOCUS_FORMATS.items() if self in formats), None)

    @property
    def is_focus(self) -> bool:
        """Whether its columns are FOCUS's."""
        return self.subject != "costs"

    @property
    def is_installed(self) -> bool:
        """Whether what writes it is there: Parquet is an optional package."""
        # Looked for and not imported: only what writes Parquet needs it in memory.
        return self.suffix != "parquet" or find_spec("pyarrow") is not None

    @property
    def content_type(self) -> str:
        """Its media type."""
        return {
            "csv": "text/csv; charset=utf-8; header=present",
            "xlsx": "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
            "parquet": "application/vnd.apache.parquet",
        }[self.suffix]


# Below the class whose members it names: its properties look it up when they are called.
_FOCUS_FORMATS = {
    FocusVersion.V1_0: (FileFormat.FOCUS_CSV, FileFormat.FOCUS_PARQUET),
    FocusVersion.V1_2: (FileFormat.FOCUS_1_2_CSV, FileFormat.FOCUS_1_2_PARQUET),
    FocusVersion.V1_3: (FileFormat.FOCUS_1_3_CSV, FileFormat.FOCUS_1_3_PARQUET),
}


class CellType(StrEnum):
    """The type of a column's cells; every cell may be None, which is an empty cell."""

    TEXT = "text"
    WHOLE = "whole"
    SCALED = "scaled"
    """Whole numbers of 10 to the minus `digits`, written as decimals in full."""
    RATIO = "ratio"
    """A float."""
    FLAG = "flag"
    INSTANT = "instant"
    """Aware times, written in UTC."""
    PERIOD = "period"
    """The start of a period: an aware time, written with the offset of the report's zone."""


class FileColumn(Struct, frozen=True):
    name: str
    kind: CellType = CellType.TEXT
    digits: int = 0


def file_columns(columns: Iterable[Column]) -> list[FileColumn]:
    """Return the columns of a file as a row declares them."""
    return [FileColumn(one.key, _cell_type(one), one.digits) for one in columns if one.files]


def _cell_type(column: Column) -> CellType:
    # Digits before the type: such amounts are whole numbers here and decimals in files.
    if column.digits:
        return CellType.SCALED
    return CellType.PERIOD if column.keep_offset else _CELL_TYPES[column.type]


_CELL_TYPES = {
    str: CellType.TEXT,
    bool: CellType.FLAG,
    int: CellType.WHOLE,
    float: CellType.RATIO,
    datetime: CellType.INSTANT,
}


class Notes(Struct, frozen=True):
    """What one has to know to read the figures of a file; every format carries all of it.

    `coverage_ratio` is 0..1, None where nothing ran. `policy` and `basis` are in the words of
    `unallocated.Policy` and `costing.Basis`.
    """

    window_start: datetime
    window_end: datetime
    time_zone: str
    currency: str
    basis: str
    policy: str
    coverage_ratio: float | None
    price_book: str
    unmeasured_gpu_hours: float | None = None
    unpriced_gpu_hours: float | None = None

    def texts(self) -> dict[str, str]:
        """Return the notes by name, as every format writes them."""
        return {
            "window_start": utc_text(self.window_start) or "",
            "window_end": utc_text(self.window_end) or "",
            "time_zone": self.time_zone,
            "currency": self.currency,
            "basis": self.basis,
            "unallocated_policy": self.policy,
            "coverage_ratio": _ratio(self.coverage_ratio),
            "unmeasured_gpu_hours": _ratio(self.unmeasured_gpu_hours),
            "unpriced_gpu_hours": _ratio(self.unpriced_gpu_hours),
            "price_book_version": self.price_book,
        }


class CostFile(Struct, frozen=True):
    """A file to be written. `rows` is read once, from first to last, and never held as a whole."""

    title: str
    columns: Sequence[FileColumn]
    rows: Iterable[FileRow]
    notes: Notes


def focus_format(version: FocusVersion, suffix: str) -> FileFormat:
    """Return the format of a version of FOCUS as `csv` or `parquet`."""
    return next(one for one in _FOCUS_FORMATS[version] if one.suffix == suffix)


def file_name(file: CostFile, name: str, format_: FileFormat) -> str:
    """Return a name that tells window, zone, currency, basis, policy, coverage and price book."""
    notes = file.notes
    first, after = (f"{at:%Y-%m-%dT%H%MZ}" for at in (notes.window_start, notes.window_end))
    ratio = notes.coverage_ratio
    coverage = "unknown" if ratio is None else f"{ratio:.4f}".rstrip("0").rstrip(".")
    parts = (
        *("gpuportal", name, first, after, notes.time_zone, notes.currency, notes.basis),
        *(notes.policy, f"coverage-{coverage}", f"prices-{notes.price_book}"),
    )
    # The slash of a zone, and whatever else a file system may refuse, becomes a dash.
    return "_".join(re.sub(r"[^A-Za-z0-9.-]+", "-", part) for part in parts) + f".{format_.suffix}"


class FileRefused(Exception):
    """A file cannot be written here; says why, and what to ask for instead."""


class FormatNotInstalled(FileRefused):
    """What writes a format is not installed."""


class TooManyRows(FileRefused):
    """A workbook was asked for that no spreadsheet would open; says what to ask for instead."""


def offered_formats() -> tuple[FileFormat, ...]:
    """Return the formats that this installation writes."""
    return tuple(format_ for format_ in FileFormat if format_.is_installed)


def check_installed(format_: FileFormat) -> None:
    """Raise FormatNotInstalled where what writes a format is missing."""
    if not format_.is_installed:
        raise FormatNotInstalled(f"{NO_PARQUET} Choose CSV or XLSX.")


def check_row_count(format_: FileFormat, count: int) -> None:
    """Raise TooManyRows where a format cannot take so many rows; ask before reading them."""
    if format_ is FileFormat.XLSX and count > MOST_XLSX_ROWS:
        raise TooManyRows(
            f"An XLSX file takes at most {MOST_XLSX_ROWS:,} rows and there are {count:,} or more. "
            "Ask for CSV or Parquet, which have no limit, or for fewer groups or a shorter window."
        )


def scaled_text(amount: int, digits: int) -> str:
    """Return a whole number of 10 to the minus `digits` as a decimal in full: `-0.05000000`."""
    # Filled up so that one digit is left before the point; a minus sign takes a place, too.
    text = str(amount).zfill(digits + (2 if amount < 0 else 1))
    return f"{text[:-digits]}.{text[-digits:]}" if digits else text


def _ratio(value: float | None) -> str:
    # The shortest text that is read back as the same float.
    return "" if value is None else repr(value)
