"""The figures of many quotas, on both databases."""

from collections.abc import Iterator
from pathlib import Path

from tests.bench.figures import Figure, at_most, stated
from tests.bench.programs import on_both

MOST_ROLL_SECONDS = 2.0
MOST_PAGE_SECONDS = 0.1
MOST_RENDERED_SECONDS = {"month": 0.5, "year": 1.0}
"""CPU seconds by the period of the budgets."""


def limited(namespaces: int, folder: Path) -> Iterator[Figure]:
    """Yield what quotas of so many namespaces take to be summed and shown."""
    for database, found in on_both("quotas", namespaces, folder=folder):
        size = f"{database}: {found['keys']:,} keys of quotas"
        yield at_most(f"{size}, an hour summed", found["roll_seconds"], MOST_ROLL_SECONDS, "s")
        for name, words in (("page", "by name"), ("fullest", "the fullest first")):
            took = found[f"{name}_seconds"] * 1000
            yield at_most(
                f"{size}, read of {found['rows']} {words}", took, MOST_PAGE_SECONDS * 1000, "ms"
            )
        yield stated(f"{size}, their sums by team", found["sums_seconds"] * 1000, "ms")
        for period, most in MOST_RENDERED_SECONDS.items():
            took = found[f"{period}_cpu_seconds"] * 1000
            words = f"the page with budgets of a {period}, CPU"
            yield at_most(f"{size}, {words}", took, most * 1000, "ms")
