"""Tables of hourly facts in partitions by month, on PostgreSQL.

A month of rows is dropped in one statement, and pages of a week read the indexes of a week. SQLite
keeps plain tables; the code sees the same columns in both, and `id` as the key. On PostgreSQL the
key is (id, hour), since the key of a partitioned table must hold what it is divided by.

Each table has these partitions:

- `TABLE_2026_11`: the rows of a UTC month. Made ahead by a task, and by who writes an older one.
- `TABLE_until_2026_11`: the rows from before the table was divided, as they were.
- `TABLE_rest`: all others, so that no row is refused. Its rows move when their month is made.

PostgreSQL cannot make an index of a divided table beside its writers: a migration that adds one
must make it in each partition first.
"""

import logging
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from django.apps.registry import Apps
from django.db import DatabaseError, connection, transaction
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.base.schema import BaseDatabaseSchemaEditor

logger = logging.getLogger(__name__)

MONTHLY: Final = frozenset(("usage_podhour", "usage_nodehour", "costs_workloadcosthour"))
"""Divided by their column `hour`."""
AHEAD: Final = 2
"""So many months after the present one are made ahead."""

# Readers queue behind a change that is blocked on a table: it must give way soon.
_WAIT: Final = "SET LOCAL lock_timeout = '5s'"
_MONTH: Final = re.compile(r"_(\d{4})_(\d{2})$")
_Migrate = Callable[[Apps, BaseDatabaseSchemaEditor], None]


def month_of(at: datetime, later: int = 0) -> datetime:
    """Return when the UTC month of a time begins, or one so many months later."""
    utc = at.astimezone(UTC)
    months = utc.year * 12 + utc.month - 1 + later
    return datetime(months // 12, months % 12 + 1, 1, tzinfo=UTC)


def _name(table: str, month: datetime) -> str:
    return f"{table}_{month:%Y_%m}"


def _until(table: str, month: datetime) -> str:
    return f"{table}_until_{month:%Y_%m}"


def _rest(table: str) -> str:
    return f"{table}_rest"


def _bound(month: datetime) -> str:
    return f"'{month:%Y-%m-%d} 00:00:00+00'"


# ---------------------------------------------------------------- which there are


def own_months(table: str) -> frozenset[datetime]:
    """Return the months that have a partition of their own; none on SQLite. One query."""
    found = (_MONTH.search(name) for name in _partitions(table) if "_until_" not in name)
    return frozenset(datetime(int(m[1]), int(m[2]), 1, tzinfo=UTC) for m in found if m)


def _partitions(table: str) -> Sequence[str]:
    if connection.vendor != "postgresql":
        return ()
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT child.relname FROM pg_inherits JOIN pg_class child ON child.oid = inhrelid "
            "WHERE inhparent = to_regclass(%s)",
            [table],
        )
        return [name for (name,) in cursor.fetchall()]


# ---------------------------------------------------------------- making them


def prepare_months(table: str, months: Iterable[datetime]) -> int:
    """Make the partitions of months that have none; return how many. One query where all are there.

    Best called outside of a transaction: it blocks until all readers of the rest end. Where it may
    not or cannot make one, it says so in the log; the rows go to the rest then.
    """
    wanted = sorted({month_of(month) for month in months})
    if connection.vendor != "postgresql" or not wanted:
        return 0
    there = set(_partitions(table))
    if not there:
        return 0
    lower = max((_end(name) for name in there if "_until_" in name), default=wanted[0])
    made = 0
    for month in wanted:
        if month >= lower and _name(table, month) not in there:
            made += _tried(table, month)
    return made


def _end(name: str) -> datetime:
    found = _MONTH.search(name)
    assert found is not None, "our own name"  # noqa: S101
    return datetime(int(found[1]), int(found[2]), 1, tzinfo=UTC)


def prepare_ahead(now: datetime) -> int:
    """Make the partitions of this month, of those that follow, and of what lies in the rest."""
    months = [month_of(now, later) for later in range(AHEAD + 1)]
    made = 0
    for table in sorted(MONTHLY):
        made += prepare_months(table, [*months, *_in_rest(table)])
        _analyze(table)
    return made


def _analyze(table: str) -> None:
    """Let the planner know all months together: autovacuum looks at each partition alone."""
    if connection.vendor != "postgresql":
        return
    try:
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute(f"ANALYZE {table}")
    except DatabaseError as error:  # a vacuum holds one of them: tomorrow again
        logger.warning("%s is not analyzed: %s", table, error)


def _in_rest(table: str) -> list[datetime]:
    if _rest(table) not in _partitions(table):
        return []
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT DISTINCT date_trunc('month', hour AT TIME ZONE 'UTC') AT TIME ZONE 'UTC' "  # noqa: S608
            f"FROM {_rest(table)}"
        )
        return [month for (month,) in cursor.fetchall()]


def _tried(table: str, month: datetime) -> int:
    try:
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute(_WAIT)
            return _make(cursor, table, month)
    except DatabaseError as error:
        logger.warning(
            "%s is not made; rows go to %s: %s", _name(table, month), _rest(table), error
        )
        return 0


def _make(cursor: Any, table: str, month: datetime) -> int:
    # Another process that makes one blocks here, and rows of the month cannot go to the rest
    # meanwhile.
    cursor.execute(f"LOCK TABLE {_rest(table)} IN ACCESS EXCLUSIVE MODE")
    name, start, end = _name(table, month), _bound(month), _bound(month_of(month, 1))
    cursor.execute("SELECT to_regclass(%s) IS NOT NULL", [name])
    if cursor.fetchone()[0]:
        return 0
    # Attached and not made as a partition, for which PostgreSQL would lock out all readers.
    cursor.execute(f"CREATE TABLE {name} (LIKE {table} INCLUDING DEFAULTS INCLUDING CONSTRAINTS)")
    cursor.execute(
        f"WITH moved AS (DELETE FROM {_rest(table)} WHERE hour >= {start} AND hour < {end} "  # noqa: S608
        f"RETURNING *) INSERT INTO {name} SELECT * FROM moved"
    )
    cursor.execute(
        f"ALTER TABLE {table} ATTACH PARTITION {name} FOR VALUES FROM ({start}) TO ({end})"
    )
    return 1


# ---------------------------------------------------------------- dropping them


def drop_month(tables: Iterable[str], month: datetime) -> None:
    """Drop all rows of a month in one statement; must run in a transaction.

    Raises OperationalError where readers held a table for five seconds.
    """
    names = [_name(table, month) for table in tables if month in own_months(table)]
    if names:
        with connection.cursor() as cursor:
            cursor.execute(_WAIT)
            cursor.execute(f"DROP TABLE {', '.join(names)}")


# ---------------------------------------------------------------- migrations


def divide(*tables: str) -> _Migrate:
    """Return what divides tables; for a migration that is not atomic.

    Rows that are there stay where they are: their table becomes the first partition. Its key and
    the proof of its bound are made beside its writers, who then wait for a moment only.
    """

    def by_month(_: Apps, editor: BaseDatabaseSchemaEditor) -> None:
        if editor.connection.vendor == "postgresql":
            for table in tables:
                _divide(editor.connection, table, month_of(datetime.now(UTC)))

    return by_month


def join(*tables: str) -> _Migrate:
    """Return what makes plain tables of divided ones, with all their rows."""

    def plain(_: Apps, editor: BaseDatabaseSchemaEditor) -> None:
        if editor.connection.vendor == "postgresql":
            for table in tables:
                _join(editor.connection, table)

    return plain


def _divide(database: BaseDatabaseWrapper, table: str, now: datetime) -> None:
    with database.cursor() as cursor:
        cursor.execute("SELECT relkind FROM pg_class WHERE oid = to_regclass(%s)", [table])
        if cursor.fetchone()[0] == "p":
            return  # by an attempt that was broken off after this table
        cursor.execute(f"SELECT max(hour) FROM {table}")  # noqa: S608
        (newest,) = cursor.fetchone()
        until = month_of(max(newest, now), 1) if newest else None
        if until:
            _prove(cursor, table, until)
        with transaction.atomic(using=database.alias):
            cursor.execute(f"LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE")
            _swap(cursor, table, until)


def _prove(cursor: Any, table: str, until: datetime) -> None:
    """Make the index of the key and the proof of the bound without keeping writers out."""
    cursor.execute(f"DROP INDEX IF EXISTS {table}_key")
    cursor.execute(f"ALTER TABLE {table} DROP CONSTRAINT IF EXISTS {table}_before")
    cursor.execute(f"CREATE UNIQUE INDEX CONCURRENTLY {table}_key ON {table} (id, hour)")
    cursor.execute(
        f"ALTER TABLE {table} ADD CONSTRAINT {table}_before "
        f"CHECK (hour < {_bound(until)}) NOT VALID"
    )
    cursor.execute(f"ALTER TABLE {table} VALIDATE CONSTRAINT {table}_before")


def _swap(cursor: Any, table: str, until: datetime | None) -> None:
    """Put a divided table in the place of a plain one, of which it takes columns and indexes."""
    indexes, number = _indexes(cursor, table), _next_number(cursor, table)
    old = _until(table, until) if until else f"{table}_empty"
    cursor.execute(f"ALTER TABLE {table} ALTER id DROP IDENTITY, DROP CONSTRAINT {table}_pkey")
    cursor.execute(f"ALTER TABLE {table} RENAME TO {old}")
    for name in indexes:
        cursor.execute(f"ALTER INDEX {name} RENAME TO {name}_old")
    cursor.execute(
        f"CREATE TABLE {table} (LIKE {old} INCLUDING DEFAULTS) PARTITION BY RANGE (hour)"
    )
    cursor.execute(
        f"ALTER TABLE {table} ALTER id ADD GENERATED BY DEFAULT AS IDENTITY (START {number}), "
        f"ADD CONSTRAINT {table}_pkey PRIMARY KEY (id, hour)"
    )
    for definition in indexes.values():
        cursor.execute(definition)
    if until is None:
        cursor.execute(f"DROP TABLE {old}")
    else:
        cursor.execute(
            f"ALTER TABLE {old} ADD CONSTRAINT {old}_pkey PRIMARY KEY USING INDEX {table}_key"
        )
        cursor.execute(
            f"ALTER TABLE {table} ATTACH PARTITION {old} "
            f"FOR VALUES FROM (MINVALUE) TO ({_bound(until)})"
        )
        cursor.execute(f"ALTER TABLE {old} DROP CONSTRAINT {table}_before")
    cursor.execute(f"CREATE TABLE {_rest(table)} PARTITION OF {table} DEFAULT")


def _join(database: BaseDatabaseWrapper, table: str) -> None:
    with database.cursor() as cursor, transaction.atomic(using=database.alias):
        cursor.execute(f"LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE")
        indexes, number = _indexes(cursor, table), _next_number(cursor, table)
        cursor.execute(f"ALTER TABLE {table} RENAME TO {table}_divided")
        cursor.execute(f"CREATE TABLE {table} (LIKE {table}_divided INCLUDING DEFAULTS)")
        cursor.execute(f"INSERT INTO {table} SELECT * FROM {table}_divided")  # noqa: S608
        cursor.execute(f"DROP TABLE {table}_divided")
        cursor.execute(
            f"ALTER TABLE {table} ALTER id ADD GENERATED BY DEFAULT AS IDENTITY (START {number}), "
            f"ADD CONSTRAINT {table}_pkey PRIMARY KEY (id)"
        )
        for definition in indexes.values():
            cursor.execute(definition.replace(" ON ONLY ", " ON "))


def _indexes(cursor: Any, table: str) -> Mapping[str, str]:
    """Return how each index of a table was made, but for its key."""
    cursor.execute(
        "SELECT name.relname, pg_get_indexdef(indexrelid) FROM pg_index "
        "JOIN pg_class name ON name.oid = indexrelid "
        "WHERE indrelid = to_regclass(%s) AND NOT indisprimary AND NOT indisunique "
        "ORDER BY name.relname",
        [table],
    )
    return dict(cursor.fetchall())


def _next_number(cursor: Any, table: str) -> int:
    """Return the id of the next row: numbers go on where they were."""
    cursor.execute("SELECT nextval(pg_get_serial_sequence(%s, 'id'))", [table])
    number: int = cursor.fetchone()[0]
    return number
