"""Writing facts in bulk: `COPY` on PostgreSQL, `executemany` on SQLite."""

from collections.abc import Iterable, Sequence
from datetime import date, datetime
from itertools import chain
from operator import attrgetter
from typing import Any

from django.db import connection, models

from apps.usage.domain.amounts import CAPACITY_FIELDS, HELD_FIELDS, LEVEL_FIELDS

HELD_COLUMNS = (*HELD_FIELDS, *chain.from_iterable(LEVEL_FIELDS), "memory_peak_mib")
CAPACITY_COLUMNS = CAPACITY_FIELDS

held_values = attrgetter(*HELD_COLUMNS)
"""The values of HELD_COLUMNS of an `Amounts`, in their order."""
capacity_values = attrgetter(*CAPACITY_COLUMNS)
"""The values of CAPACITY_COLUMNS; of a row that has a capacity side none is None."""


def insert(
    model: type[models.Model], columns: Sequence[str], rows: Iterable[Sequence[Any]]
) -> None:
    """Insert rows of plain values; `columns` are column names, ids come from the database."""
    table = connection.ops.quote_name(model._meta.db_table)
    names = ", ".join(connection.ops.quote_name(c) for c in columns)
    with connection.cursor() as cursor:
        if connection.vendor == "postgresql":
            with cursor.copy(f"COPY {table} ({names}) FROM STDIN") as copy:
                for row in rows:
                    copy.write_row(row)
            return
        places = ", ".join(["%s"] * len(columns))
        cursor.executemany(
            f"INSERT INTO {table} ({names}) VALUES ({places})",  # noqa: S608 (names of ours)
            list(rows),
        )


def instant(at: datetime) -> object:
    """Return a time in the form that the database at hand stores."""
    if connection.vendor == "postgresql":
        return at.isoformat()
    return connection.ops.adapt_datetimefield_value(at)


def day_value(day: date) -> object:
    """Return a date in the form that the database at hand stores."""
    if connection.vendor == "postgresql":
        return day
    return connection.ops.adapt_datefield_value(day)
