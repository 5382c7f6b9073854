"""Cost files: their columns and rows, the exports that ask for them, and who may have those."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import date, datetime, timedelta
from enum import StrEnum
from typing import Any

from apps.clusters.domain.columns import Column as Declared
from apps.clusters.domain.window import Window
from apps.costs.domain.costing import Basis, Policy
from apps.usage.domain.columns import utc_text
from apps.usage.domain.usage_query import Filters, Grouping, TimeStep

MOST_XLSX_ROWS = 500_000
"""Above this a workbook opens slowly or not at all; the format itself ends at 1,048,576."""

Cell = str | int | float | bool | datetime | None
FileRow = Sequence[Cell]


class FileFormat(StrEnum):
    CSV = "csv"
    XLSX = "xlsx"
    PARQUET = "parquet"
    FOCUS_CSV = "focus-csv"
    FOCUS_PARQUET = "focus-parquet"

    @property
    def suffix(self) -> str:
        """What the file's name ends with, without the dot."""
        return self.value.removeprefix("focus-")

    @property
    def is_focus(self) -> bool:
        """Whether its columns are FOCUS's."""
        return self in (FileFormat.FOCUS_CSV, FileFormat.FOCUS_PARQUET)

    @property
    def content_type(self) -> str:
        """Its media type."""
        return {
            "csv": "text/csv; charset=utf-8; header=present",
            "xlsx": "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
            "parquet": "application/vnd.apache.parquet",
        }[self.suffix]


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


@dataclass(frozen=True, slots=True)
class Column:
    name: str
    kind: CellType = CellType.TEXT
    digits: int = 0


def file_columns(columns: Iterable[Declared]) -> list[Column]:
    """Return the columns of a file as a row declares them."""
    return [Column(one.key, _cell_type(one), one.digits) for one in columns if one.files]


def _cell_type(column: Declared) -> CellType:
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


@dataclass(frozen=True, slots=True)
class Notes:
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


@dataclass(frozen=True, slots=True)
class CostFile:
    """A file to be written. `rows` is read once, from first to last, and never held as a whole."""

    title: str
    columns: Sequence[Column]
    rows: Iterable[FileRow]
    notes: Notes


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
    return "_".join(re.sub(r"[^A-Za-z0-9.-]+", "-", part) for part in parts) + f".{format_.suffix}"


class TooManyRows(Exception):
    """A workbook was asked for that no spreadsheet would open; says what to ask for instead."""


def check_row_count(format_: FileFormat, count: int) -> None:
    """Raise TooManyRows where a format cannot take so many rows; ask before reading them."""
    if format_ is FileFormat.XLSX and count > MOST_XLSX_ROWS:
        raise TooManyRows(
            f"An XLSX file takes at most {MOST_XLSX_ROWS:,} rows and there are {count:,} or more. "
            "Ask for CSV or Parquet, which have no limit, or for fewer groups or a shorter window."
        )


def scaled_text(amount: int, digits: int) -> str:
    """Return a whole number of 10 to the minus `digits` as a decimal in full: `-0.05000000`."""
    text = str(amount).zfill(digits + (2 if amount < 0 else 1))
    return f"{text[:-digits]}.{text[-digits:]}" if digits else text


def _ratio(value: float | None) -> str:
    return "" if value is None else repr(value)


MOST_ATTEMPTS = 3
"""A file whose writer was lost so often would be lost again."""


_EVERYTHING = Filters()


class ExportSubject(StrEnum):
    """A whole month as it is closed or stands, or the rows of some days."""

    MONTH = "month"
    WINDOW = "window"


class ExportState(StrEnum):
    """`expired`: it was written, and its file is deleted again."""

    QUEUED = "queued"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    EXPIRED = "expired"

    @property
    def moves(self) -> bool:
        """Whether it is going to be another state by itself, soon."""
        return self in (ExportState.QUEUED, ExportState.RUNNING)


class MailState(StrEnum):
    """`failed`: it was tried as often as it is worth. `waiting`: the month is not whole yet."""

    WAITING = "waiting"
    DUE = "due"
    SENT = "sent"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class ExportScope:
    """What a file is to hold: a month (its first day), or a window of whole local days.

    Of a window `groups` are the columns to tell apart, None for all that a month's file has, by
    periods of `interval`; `filters` narrow it. A month's file is always whole.
    """

    basis: Basis
    policy: Policy
    month: date | None = None
    window: Window | None = None
    bom: bool = False
    groups: tuple[Grouping, ...] | None = None
    interval: TimeStep = TimeStep.DAY
    filters: Filters = _EVERYTHING

    @property
    def subject(self) -> ExportSubject:
        return ExportSubject.MONTH if self.month else ExportSubject.WINDOW

    def record(self) -> dict[str, Any]:
        """Return it as JSON knows it."""
        return {
            "basis": self.basis.value,
            "policy": self.policy.value,
            "bom": self.bom,
            "month": self.month.isoformat() if self.month else None,
            "window": [self.window.start.isoformat(), self.window.end.isoformat()]
            if self.window
            else None,
            "groups": None if self.groups is None else [group.value for group in self.groups],
            "interval": self.interval.value,
            "filters": {name: list(of) for name, of in asdict(self.filters).items() if of},
        }

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> "ExportScope":
        """Return what `record` gave, now or before there were groups.

        Raises ValueError and KeyError where it is none.
        """
        month, window, groups = record["month"], record["window"], record.get("groups")
        return cls(
            basis=Basis(record["basis"]),
            policy=Policy(record["policy"]),
            month=date.fromisoformat(month) if month else None,
            window=Window(*map(datetime.fromisoformat, window)) if window else None,
            bom=bool(record["bom"]),
            groups=None if groups is None else tuple(Grouping(name) for name in groups),
            interval=TimeStep(record.get("interval", TimeStep.DAY)),
            filters=Filters(**{k: tuple(v) for k, v in record.get("filters", {}).items()}),
        )


def counted(
    rows: Iterable[FileRow],
    tell: Callable[[int], None],
    *,
    clock: Callable[[], float],
    every_seconds: float,
    look_after_rows: int = 500,
) -> Iterator[FileRow]:
    """Yield rows; tell how many there were, at most once in a while, and at the end.

    `tell` may raise to stop the writing. The clock is looked at after every so many rows alone.
    """
    count, told = 0, clock()
    for count, row in enumerate(rows, start=1):
        yield row
        if count % look_after_rows == 0 and clock() - told >= every_seconds:
            tell(count)
            told = clock()
    tell(count)


def progress(written: int, expected: int | None) -> float | None:
    """Return how much of a file is written, 0..1; None while its length is unknown.

    What is expected is an estimate: nothing is said to be whole before it is done.
    """
    return None if not expected else min(written / expected, 0.99)


def expires_at(ended: datetime, days: int) -> datetime:
    """Return when a file is deleted that was written at `ended`."""
    return ended + timedelta(days=days)


def covers(now: tuple[bool, Sequence[int]], frozen: tuple[bool, Sequence[int]]) -> bool:
    """Say whether who sees `now` sees all that a file was written of, as (everything, teams)."""
    everything, teams = now
    all_then, teams_then = frozen
    return everything or (not all_then and set(teams_then) <= set(teams))
