"""Times and dates of SQLite, made of their text once.

SQLite has no type for them: each is a text in each row, which Django reads and then says that it is
of UTC. Rows of facts have the same few hours and days by the thousand, and to read them took a
fifth of a page of hours.
"""

import sqlite3
from datetime import UTC, date, datetime
from functools import lru_cache
from typing import Any

from django.db.backends.signals import connection_created
from django.utils.dateparse import parse_date, parse_datetime

_HOURS = 8192
"""So many texts are kept: the hours of three months, and times that nothing else has."""
_DAYS = 2048


@lru_cache(maxsize=_HOURS)
def time_of(text: bytes) -> datetime | None:
    """Return the time of a text, in UTC where it names no zone; None for what is none."""
    found = parse_datetime(text.decode())
    return found if found is None or found.tzinfo is not None else found.replace(tzinfo=UTC)


@lru_cache(maxsize=_DAYS)
def date_of(text: bytes) -> date | None:
    """Return the date of a text; None for what is none."""
    return parse_date(text.decode())


def keep_times() -> None:
    """Read times and dates of SQLite so from now on. The process has one table of readers."""
    connection_created.connect(_register, dispatch_uid="sqlite times")


def _register(connection: Any, **_: Any) -> None:
    # Django registers its own readers when it first connects.
    if connection.vendor == "sqlite":
        sqlite3.register_converter("datetime", time_of)
        sqlite3.register_converter("timestamp", time_of)
        sqlite3.register_converter("date", date_of)
