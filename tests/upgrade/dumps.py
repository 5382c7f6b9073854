"""Databases of releases, as `make_dump` wrote them."""

import gzip
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg

from tests.portal import postgres_database

FOLDER = Path(__file__).parent


def kept() -> dict[str, Path]:
    """Return the dumps by version, the oldest first."""
    return {path.name.removesuffix(".sql.gz"): path for path in sorted(FOLDER.glob("*.sql.gz"))}


@contextmanager
def restored(dump: Path) -> Iterator[str]:
    """Yield the URL of a PostgreSQL database that is as the release left it."""
    lines = gzip.decompress(dump.read_bytes()).splitlines(keepends=True)
    # Newer versions of pg_dump write commands that psql alone knows.
    statements = b"".join(line for line in lines if not line.startswith(b"\\"))
    with postgres_database("template0") as url:
        with psycopg.connect(url, autocommit=True) as session:
            session.execute(statements)
        yield url
