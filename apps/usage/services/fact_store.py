"""Writing facts in bulk: `COPY` on PostgreSQL, `executemany` on SQLite."""

from collections.abc import Iterable, Sequence
from datetime import date, datetime
from typing import Any

from django.db import connection, models

from apps.usage.domain.amounts import Amounts

HELD_COLUMNS = (
    "allocated",
    "not_running",
    "unmeasured",
    "idle",
    "underused",
    "busy",
    "burst",
    "allocated_on_unhealthy",
    "grade_apportioned",
    "grade_inferred",
    "energy_mwh",
    "memory_peak_mib",
)
CAPACITY_COLUMNS = ("capacity", "unhealthy", "unallocated", "stranded", "unattributed")


def held_values(amounts: Amounts) -> tuple[object, ...]:
    """Return the values of HELD_COLUMNS, in their order."""
    return (
        amounts.allocated,
        amounts.not_running,
        amounts.unmeasured,
        amounts.idle,
        amounts.underused,
        amounts.busy,
        amounts.burst,
        amounts.allocated_on_unhealthy,
        amounts.grade_apportioned,
        amounts.grade_inferred,
        amounts.energy_mwh,
        amounts.memory_peak_mib,
    )


def capacity_values(amounts: Amounts) -> tuple[object, ...]:
    """Return the values of CAPACITY_COLUMNS."""
    return (
        amounts.capacity or 0,
        amounts.unhealthy or 0,
        amounts.unallocated or 0,
        amounts.stranded or 0,
        amounts.unattributed or 0,
    )


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
        return at
    return connection.ops.adapt_datetimefield_value(at)


def day_value(day: date) -> object:
    """Return a date in the form that the database at hand stores."""
    if connection.vendor == "postgresql":
        return day
    return connection.ops.adapt_datefield_value(day)
