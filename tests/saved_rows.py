"""All rows of the database as they are, kept to be put back: a world is computed once."""

import sqlite3
from datetime import time
from typing import Any

from django.db import connection
from msgspec import Struct

# Rows are read as Django's connection converts them; Python's module writes all but times of day.
sqlite3.register_adapter(time, str)


class SavedRows(Struct, frozen=True):
    """Table that has rows → these as the database gives them: bytes of COPY, or tuples."""

    tables: dict[str, Any]

    @staticmethod
    def now() -> "SavedRows":
        """Return what all tables hold in this transaction."""
        return SavedRows({table: _read(table) for table in _filled()})

    def put_back(self) -> None:
        """Make all tables hold what they held; the sequences of PostgreSQL went on and stay."""
        there = SavedRows.now().tables
        for table in sorted({*there, *self.tables}):
            rows = self.tables.get(table)
            if there.get(table) != rows:
                _write(table, rows)


_NUMBERS = "SELECT sequencename, last_value FROM pg_sequences WHERE last_value IS NOT NULL"
_GO_ON = """SELECT setval(quote_ident(sequencename)::regclass, GREATEST(last_value, there.value))
    FROM pg_sequences JOIN unnest(%s::text[], %s::bigint[]) AS there(name, value)
        ON there.name = sequencename"""


def numbers_given() -> dict[str, int]:
    """Return the last number of each sequence of PostgreSQL; SQLite keeps them in a table."""
    if connection.vendor != "postgresql":
        return {}
    with connection.cursor() as cursor:
        cursor.execute(_NUMBERS)
        return dict(cursor.fetchall())


def give_no_number_again(numbers: dict[str, int]) -> None:
    """Let sequences go on where another database's were: its rows are put back into this one."""
    if numbers:
        with connection.cursor() as cursor:
            cursor.execute(_GO_ON, [[*numbers], [*numbers.values()]])


_DEAD = "SELECT relid::regclass::text FROM pg_stat_user_tables WHERE n_dead_tup > 5000"


def vacuum() -> None:
    """Free the space of rows that tests rolled back; not while a transaction is open."""
    if connection.vendor == "postgresql" and connection.is_usable():
        with connection.cursor() as cursor:
            cursor.execute(_DEAD)
            for (table,) in cursor.fetchall():
                cursor.execute(f"VACUUM {table}")


def _filled() -> list[str]:
    """Return the tables that have rows, by one query: most of a hundred and more have none."""
    with connection.cursor() as cursor:
        tables = sorted(connection.introspection.table_names(cursor))
        if connection.vendor == "sqlite":
            tables.append("sqlite_sequence")
        asked = (
            f'SELECT {number} WHERE EXISTS (SELECT 1 FROM "{table}")'  # noqa: S608 - our own names
            for number, table in enumerate(tables)
        )
        cursor.execute(" UNION ALL ".join(asked))
        return [tables[number] for (number,) in sorted(cursor.fetchall())]


def _read(table: str) -> Any:
    with connection.cursor() as cursor:
        if connection.vendor == "postgresql":
            # A table in partitions cannot be named alone.
            query = f'SELECT * FROM "{table}"'  # noqa: S608 - our own names
            with cursor.cursor.copy(f"COPY ({query}) TO STDOUT") as copy:
                return b"".join(copy)
        return connection.connection.execute(f'SELECT * FROM "{table}"').fetchall()  # noqa: S608 - our own names


def _write(table: str, rows: Any) -> None:
    with connection.cursor() as cursor:
        cursor.execute(f'DELETE FROM "{table}"')  # noqa: S608 - our own names
        if not rows:
            return
        if connection.vendor == "postgresql":
            with cursor.cursor.copy(f'COPY "{table}" FROM STDIN') as copy:
                copy.write(rows)
        else:
            marks = ", ".join("?" for _ in rows[0])
            sql = f'INSERT INTO "{table}" VALUES ({marks})'  # noqa: S608 - our own names
            connection.connection.executemany(sql, rows)
