"""The figures of a long audit, on both databases."""

from collections.abc import Iterator
from pathlib import Path

from tests.bench.figures import Figure, at_most
from tests.bench.page_figures import DATABASES
from tests.bench.programs import manage, worker
from tests.servers import temporary_postgres

MILLION = 1_000_000
MOST_VERIFY_SECONDS = 60.0
MOST_EXPORT_SECONDS = 30.0


def audited(lines: int, folder: Path) -> Iterator[Figure]:
    """Yield what a million lines take to be checked and exported, by a part of them."""
    yield from _on(f"sqlite:///{folder / 'audit.db'}", lines)
    with temporary_postgres() as url:
        yield from _on(url, lines)


def _on(url: str, lines: int) -> Iterator[Figure]:
    manage("migrate", "--verbosity", "0", DATABASE_URL=url)
    found = worker("auditing", lines, DATABASE_URL=url)
    name = f"{DATABASES[found['database']]}: audit, a million lines by {lines:,}"
    for words, key, most in (
        ("checked", "verify_seconds", MOST_VERIFY_SECONDS),
        ("exported", "export_seconds", MOST_EXPORT_SECONDS),
    ):
        yield at_most(f"{name}, {words}", found[key] * MILLION / lines, most, "s")
