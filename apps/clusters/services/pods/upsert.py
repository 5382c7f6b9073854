"""Many rows of plain values in one statement, new ones and those that are there."""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec
from django.db import connection, models

_encode = msgspec.json.Encoder().encode


def upsert(
    model: type[models.Model],
    rows: Sequence[Mapping[str, Any]],
    *,
    unique: Sequence[str],
    update: Collection[str] = (),
) -> None:
    """Insert rows, or set the columns `update` of those that are there by the columns `unique`.

    Every row maps the same columns to values; times are aware datetimes, and what a JSON column
    holds is anything that JSON can say. Nothing of a row that is there changes without `update`.
    """
    if not rows:
        return
    quoted = connection.ops.quote_name
    table, columns = quoted(model._meta.db_table), list(rows[0])
    names = ", ".join(map(quoted, columns))
    sets = ", ".join(f"{quoted(column)} = EXCLUDED.{quoted(column)}" for column in update)
    conflict = f"ON CONFLICT ({', '.join(map(quoted, unique))}) DO " + (
        f"UPDATE SET {sets}" if sets else "NOTHING"
    )
    with connection.cursor() as cursor:
        if connection.vendor == "postgresql":
            # One parameter for all rows: to adapt half a million values takes Django seconds.
            cursor.execute(
                f"INSERT INTO {table} ({names}) SELECT {names} "  # noqa: S608 (names of ours)
                f"FROM json_populate_recordset(NULL::{table}, %s) {conflict}",
                [_encode(rows).decode()],
            )
            return
        places = ", ".join(["%s"] * len(columns))
        cursor.executemany(
            f"INSERT INTO {table} ({names}) VALUES ({places}) {conflict}",  # noqa: S608
            [[_plain(row[column]) for column in columns] for row in rows],
        )


def _plain(value: Any) -> Any:
    """Return a value as SQLite stores it."""
    if isinstance(value, datetime):
        return connection.ops.adapt_datetimefield_value(value)
    return _encode(value).decode() if isinstance(value, dict | list) else value
