"""The figures of pages and charts over thirteen months, on both databases."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tests.bench.figures import Figure, at_least, at_most, stated
from tests.bench.programs import on_both

MOST_SECONDS = 0.1


def paged(days: int, pod_hour_days: int, workloads: int, folder: Path) -> Iterator[Figure]:
    """Yield what each page and chart takes, each database filled anew with so much."""
    for where, found in on_both("pages", days, pod_hour_days, workloads, folder=folder):
        yield stated(
            f"{where}: facts of {days} days of {workloads:,} workloads", found["rows"], "rows"
        )
        yield from _pages(where, found["pages"])
        yield from _charts(where, found["charts"])


def _pages(where: str, pages: Mapping[str, Any]) -> Iterator[Figure]:
    """Yield for each page the p95 of its slowest preset, and the median of the whole history."""
    for page, found in pages.items():
        name = f"{where}: page {page}, server's time"
        p95 = found["p95_seconds"] * 1000
        yield at_most(f"{name}, p95 ({found['window']})", p95, MOST_SECONDS * 1000, "ms")
        if found["longest_seconds"] is not None:
            yield stated(f"{name}, whole history", found["longest_seconds"] * 1000, "ms")


def _charts(where: str, charts: Mapping[str, Any]) -> Iterator[Figure]:
    for chart, found in charts.items():
        name = f"{where}: chart of {chart}, {found['rows']} days"
        yield at_most(f"{name}, its data ÷ bare SQL", found["sql_ratio"], 3, "×")
        yield at_least(f"{name}, go.Figure ÷ ours", found["plotly_ratio"], 4, "×", "13")
        yield at_most(f"{name}, figure", found["bytes"] / 1000, 25, "kB")
        yield stated(f"{name}, go.Figure", found["plotly_bytes"] / 1000, "kB", "4 × ours")
