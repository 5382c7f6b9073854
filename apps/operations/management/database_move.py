"""All rows of an SQLite file into the empty PostgreSQL that the settings name.

Everything is written in one transaction: a move that fails leaves the target as empty as it was.
"""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from decimal import Decimal
from graphlib import TopologicalSorter
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from django.apps import apps
from django.db import DEFAULT_DB_ALIAS, DatabaseError, connections, transaction
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.migrations.executor import MigrationExecutor
from django.db.migrations.recorder import MigrationRecorder
from django.db.models import AutoField, Field, JSONField, Model

from gpuportal.env import database
from gpuportal.partitions import MONTHLY, prepare_months

_SOURCE: Final = "moved"
_BATCH: Final = 2000
# `migrate` writes rows of these, under numbers of its own.
_MADE_BY_MIGRATE: Final = ("auth.Permission", "contenttypes.ContentType")
_SQLITE_HEAD: Final = b"SQLite format 3\x00"

Table = type[Model]
Row = tuple[Any, ...]
Tell = Callable[[str, int], None]
"""Told the name and the rows of each table that was moved."""


class MoveRefused(Exception):
    """The rows cannot be moved; the text says why and what to do."""


def move_database(file: Path, tell: Tell) -> int:
    """Copy all tables of an SQLite file into the default database; return the number of rows.

    Sequences go on where the file's did. Each table is read back and compared with the file by
    the number and a checksum of its rows before anything is committed. Raises MoveRefused.
    """
    target = connections[DEFAULT_DB_ALIAS]
    if target.vendor != "postgresql":
        raise MoveRefused("DATABASE_URL names no PostgreSQL, into which the rows could be moved")
    with _opened(file) as source:
        _check_migrations(file, source, target)
        # The lock of SQLite's writer: what is written meanwhile would be lost.
        with transaction.atomic(using=_SOURCE), transaction.atomic():
            _take_over(target)
            moved = 0
            for model in tables():
                rows, digest = _copied(model, target)
                if (rows, digest) != _summed(_batches(model, DEFAULT_DB_ALIAS)):
                    raise MoveRefused(f"{model._meta.db_table}: the rows read back are others")
                tell(model._meta.db_table, rows)
                moved += rows
            _set_sequences(source, target)
    with target.cursor() as cursor:
        # Without statistics the first queries would be planned as for empty tables.
        cursor.execute("ANALYZE")
    return moved


def tables() -> list[Table]:
    """Return the models of all tables, each after those that its foreign keys name."""
    models = [m for m in apps.get_models(include_auto_created=True) if m._meta.managed]
    own = [m for m in models if not m._meta.proxy]
    return list(TopologicalSorter({m: _others(m) for m in own}).static_order())


def _others(model: Table) -> list[Table]:
    """Return the models that foreign keys of this one name, in one order at each start."""
    return sorted(_referenced(model) - {model}, key=lambda m: m._meta.label)


def _referenced(model: Table) -> set[Table]:
    related = (f.related_model for f in model._meta.local_fields if f.is_relation)
    return {m for m in related if isinstance(m, type)}


# ---------------------------------------------------------------- before


@contextmanager
def _opened(file: Path) -> Iterator[BaseDatabaseWrapper]:
    """Yield a connection to the file under an alias of its own. Raises MoveRefused."""
    try:
        with file.open("rb") as opened:
            head = opened.read(len(_SQLITE_HEAD))
    except OSError as error:
        raise MoveRefused(f"{file} cannot be read: {error.strerror}") from error
    if head != _SQLITE_HEAD:
        raise MoveRefused(f"{file} is no database of SQLite")
    given = {
        DEFAULT_DB_ALIAS: connections.settings[DEFAULT_DB_ALIAS],
        _SOURCE: database(f"sqlite:///{quote(str(file.resolve()))}"),
    }
    connections.settings[_SOURCE] = connections.configure_settings(given)[_SOURCE]
    try:
        yield connections[_SOURCE]
    finally:
        connections[_SOURCE].close()
        del connections[_SOURCE], connections.settings[_SOURCE]


def _check_migrations(file: Path, source: BaseDatabaseWrapper, target: BaseDatabaseWrapper) -> None:
    """Raise MoveRefused unless both have the tables of this version."""
    if _unapplied(target):
        raise MoveRefused("The target lacks tables: run `python manage.py migrate` first")
    try:
        missing = _unapplied(source)
    except DatabaseError as error:
        raise MoveRefused(f"{file} cannot be read: {error}") from error
    if missing:
        raise MoveRefused(
            f"{file} lacks migrations of this version: run `python manage.py migrate` with "
            f"DATABASE_URL=sqlite:///{file} first"
        )
    applied = [set(MigrationRecorder(one).applied_migrations()) for one in (source, target)]
    if applied[0] != applied[1]:
        raise MoveRefused("Another version of the portal made the file or the target")


def _unapplied(connection: BaseDatabaseWrapper) -> bool:
    executor = MigrationExecutor(connection)
    return bool(executor.migration_plan(executor.loader.graph.leaf_nodes()))


def _take_over(target: BaseDatabaseWrapper) -> None:
    """Lock all tables, and empty what `migrate` filled. Raises MoveRefused where rows are."""
    with target.cursor() as cursor:
        for name in ("statement_timeout", "idle_in_transaction_session_timeout"):
            cursor.execute(f"SET LOCAL {name} = 0")
        names = ", ".join(target.ops.quote_name(m._meta.db_table) for m in tables())
        cursor.execute(f"LOCK TABLE {names} IN EXCLUSIVE MODE")
        # Checked at each statement: PostgreSQL keeps those of a whole transaction in memory.
        cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")
    filled = [
        m._meta.db_table
        for m in tables()
        if m._meta.label not in _MADE_BY_MIGRATE and m._base_manager.exists()
    ]
    if filled:
        raise MoveRefused(
            f"The target is not empty: there are rows in {', '.join(filled[:5])}. Stop all "
            "processes that use it, and name a new database in DATABASE_URL"
        )
    for label in _MADE_BY_MIGRATE:
        apps.get_model(label)._base_manager.all().delete()


# ---------------------------------------------------------------- rows


def _fields(model: Table) -> "list[Field[Any, Any]]":
    """Return the fields that are written; the database computes generated ones itself."""
    return [f for f in model._meta.local_concrete_fields if not getattr(f, "generated", False)]


def _batches(model: Table, alias: str) -> Iterator[Sequence[Row]]:
    """Yield the rows of a table in the order of its key, some at a time."""
    fields = _fields(model)
    key = fields.index(model._meta.pk)
    ordered = model._base_manager.using(alias).order_by("pk")
    rows = ordered.values_list(*(f.attname for f in fields))
    batch = list(rows[:_BATCH])
    while batch:
        yield batch
        batch = list(rows.filter(pk__gt=batch[-1][key])[:_BATCH])


def _copied(model: Table, target: BaseDatabaseWrapper) -> tuple[int, int]:
    """Copy a table and return the number and the checksum of its rows in the file."""
    refers_to_itself = model in _referenced(model)
    if refers_to_itself:
        _constraints(target, "DEFERRED")

    def written() -> Iterator[Sequence[Row]]:
        for batch in _batches(model, _SOURCE):
            try:
                _write(model, batch, target)
            except DatabaseError as error:
                message = " ".join(str(error).split())
                raise MoveRefused(
                    f"{model._meta.db_table} does not fit PostgreSQL: {message}. Nothing was moved"
                ) from error
            yield batch

    table = model._meta.db_table
    if table in MONTHLY:
        rows = model._base_manager.using(_SOURCE).order_by()
        prepare_months(table, rows.datetimes("hour", "month", tzinfo=UTC))
    summed = _summed(written())
    if refers_to_itself:
        _constraints(target, "IMMEDIATE")
    return summed


def _constraints(target: BaseDatabaseWrapper, when: str) -> None:
    with target.cursor() as cursor:
        cursor.execute(f"SET CONSTRAINTS ALL {when}")


def _write(model: Table, rows: Iterable[Row], target: BaseDatabaseWrapper) -> None:
    fields, quoted = _fields(model), target.ops.quote_name
    columns = ", ".join(quoted(str(f.column)) for f in fields)
    statement = f"COPY {quoted(model._meta.db_table)} ({columns}) FROM STDIN"
    with target.cursor() as cursor, target.wrap_database_errors, cursor.cursor.copy(statement) as c:
        for row in rows:
            c.write_row([_stored(f, v, target) for f, v in zip(fields, row, strict=True)])


def _stored(field: "Field[Any, Any]", value: Any, target: BaseDatabaseWrapper) -> Any:
    if value is None and isinstance(field, JSONField) and not field.null:
        # JSON's own null, which is read as None just as a column without a value.
        return target.ops.adapt_json_value(None, field.encoder)
    return field.get_db_prep_save(value, target)


# ---------------------------------------------------------------- after


def _summed(batches: Iterable[Sequence[Row]]) -> tuple[int, int]:
    """Return the number of rows and a checksum that does not depend on their order."""
    rows = digest = 0
    for batch in batches:
        rows += len(batch)
        for row in batch:
            text = repr([_plain(value) for value in row]).encode("utf-8", "surrogatepass")
            digest += int.from_bytes(hashlib.blake2b(text, digest_size=16).digest())
    return rows, digest % 2**128


def _plain(value: Any) -> Any:
    """Return a value in the one form that both databases' forms of it come to."""
    match value:
        case dict():
            return sorted((name, _plain(each)) for name, each in value.items())
        case list():
            return [_plain(each) for each in value]
        case float() if value.is_integer():
            return int(value)  # PostgreSQL writes a JSON 1e16 as an integer
        case Decimal():
            return value.normalize()
        case datetime():
            return value.astimezone(UTC).isoformat()
        case bytes() | memoryview():
            return bytes(value)
        case _:
            return value


def _set_sequences(source: BaseDatabaseWrapper, target: BaseDatabaseWrapper) -> None:
    """Let numbers go on after the highest that SQLite gave, of rows that are gone too.

    Facts name clusters, teams and workloads without a foreign key: a number that is given again
    would hand them to others.
    """
    with source.cursor() as cursor:
        cursor.execute("SELECT name, seq FROM sqlite_sequence")
        given = dict(cursor.fetchall())
    with target.cursor() as cursor:
        for model in tables():
            key, table = model._meta.pk, model._meta.db_table
            if isinstance(key, AutoField) and (highest := given.get(table)):
                cursor.execute(
                    "SELECT setval(pg_get_serial_sequence(%s, %s), %s)",
                    [target.ops.quote_name(table), str(key.column), highest],
                )
