"""The use of a token is noted on the way, and holds up nobody who reads."""

import sqlite3
import time
from datetime import UTC, datetime
from pathlib import Path

from django.db import connections
from pytest_django import DjangoDbBlocker

from apps.accounts.services import note_use
from gpuportal.env import database

NOW = datetime(2026, 3, 28, 12, 34, 56, tzinfo=UTC)


def test_a_read_does_not_wait_for_another_writer(
    tmp_path: Path, django_db_blocker: DjangoDbBlocker
) -> None:
    """SQLite lets one process write at a time; the others wait for up to half a minute."""
    path = str(tmp_path / "portal.db")
    options = database(f"sqlite:///{path}")
    connections.databases["file"] = connections.configure_settings({"default": options})["default"]
    connection = connections["file"]
    django_db_blocker.unblock()
    writer = sqlite3.connect(path, isolation_level=None)
    try:
        with connection.cursor() as cursor:
            cursor.execute("CREATE TABLE accounts_apitoken (id INTEGER, last_used_at DATETIME)")
            cursor.execute("INSERT INTO accounts_apitoken VALUES (1, NULL)")
        writer.execute("BEGIN IMMEDIATE")
        began = time.monotonic()
        note_use(1, now=NOW, using="file")
        assert time.monotonic() - began < 5
        (kept,) = writer.execute("SELECT last_used_at FROM accounts_apitoken").fetchone()
        assert kept is None, "nobody can have written it"
        writer.execute("ROLLBACK")
        note_use(1, now=NOW, using="file")
        (kept,) = writer.execute("SELECT last_used_at FROM accounts_apitoken").fetchone()
        assert kept == "2026-03-28 12:34:00"
        assert connection.connection.execute("PRAGMA busy_timeout").fetchone() == (30_000,)
    finally:
        writer.close()
        connection.close()
        django_db_blocker.restore()
        del connections["file"]
        del connections.databases["file"]
