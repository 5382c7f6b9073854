"""The figures of a long audit, on both databases."""

from collections.abc import Iterator
from pathlib import Path

from tests.bench.figures import Figure, at_most
from tests.bench.programs import on_both

MILLION = 1_000_000
MOST_VERIFY_SECONDS = 60.0
MOST_EXPORT_SECONDS = 30.0


def audited(lines: int, folder: Path) -> Iterator[Figure]:
    """Yield what a million lines take to be checked and exported, by a part of them."""
    for database, found in on_both("auditing", lines, folder=folder):
        name = f"{database}: audit, a million lines by {lines:,}"
        for words, key, most in (
            ("checked", "verify_seconds", MOST_VERIFY_SECONDS),
            ("exported", "export_seconds", MOST_EXPORT_SECONDS),
        ):
            yield at_most(f"{name}, {words}", found[key] * MILLION / lines, most, "s")
