"""The figures of cost files: rows a second against the bare library, and the most memory."""

from collections.abc import Iterator
from pathlib import Path

from tests.bench.figures import Figure, at_most, stated
from tests.bench.programs import manage, worker

MOST_MIB = 300.0
MOST_RATIO = {"csv": 2.5, "parquet": 2.5, "xlsx": 2.5}
_FOCUS = ("focus-csv", "focus1.2-csv", "focus1.3-csv")
_FORMATS = ("csv", "parquet", "xlsx")


def written(rows: int, folder: Path) -> Iterator[Figure]:
    """Yield what a file of so many rows takes; a workbook has a quarter of them.

    First the writing alone, then with the reading from a database.
    """
    for name in _FORMATS:
        count = rows // 4 if name == "xlsx" else rows
        ours, bare = (worker("exports", writer, name, count) for writer in ("portal", "bare"))
        title = f"{count:,} rows as {name}"
        ratio = ours["seconds"] / bare["seconds"]
        yield at_most(f"{title} ÷ the bare library", ratio, MOST_RATIO[name], "")
        yield stated(f"{title}: rows a second", count / ours["seconds"], "/s")
        yield at_most(f"{title}: peak memory", ours["peak_mib"], MOST_MIB, "MiB")
    url = _database(folder / "exports.db", rows)
    for name in ("csv", "parquet"):
        found = worker("exports", "stored", name, rows, DATABASE_URL=url)
        title = f"{rows:,} rows of a year, from SQLite as {name}"
        yield stated(f"{title}: rows a second", rows / found["seconds"], "/s")
        yield at_most(f"{title}: peak memory", found["peak_mib"], MOST_MIB, "MiB")


def focus_month(rows: int, folder: Path) -> Iterator[Figure]:
    """Yield what a month of so many rows takes in each version of FOCUS, from SQLite."""
    url = _database(folder / "focus.db", rows, 31)
    for name in _FOCUS:
        found = worker("exports", "month", name, rows, DATABASE_URL=url)
        title = f"{rows:,} rows of a month, from SQLite as {name}"
        yield stated(f"{title}: rows a second", rows / found["seconds"], "/s")
        yield at_most(f"{title}: peak memory", found["peak_mib"], MOST_MIB, "MiB")


def _database(path: Path, *size: int) -> str:
    """Make a database of costs and return its address; `size` is rows, and days."""
    url = f"sqlite:///{path}"
    manage("migrate", "--verbosity", "0", DATABASE_URL=url)
    worker("exports_data", *size, DATABASE_URL=url)
    return url
