"""What a database is made of, in a form that two databases can be compared by."""

import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from urllib.parse import urlsplit

import psycopg

_POSTGRESQL = {
    "columns": """
        SELECT c.relname, attname, format_type(atttypid, atttypmod), attnotnull, attidentity,
            pg_get_expr(adbin, adrelid), attcollation
        FROM pg_attribute JOIN tables c ON c.oid = attrelid
        LEFT JOIN pg_attrdef ON adrelid = attrelid AND adnum = attnum
        WHERE attnum > 0 AND NOT attisdropped""",
    "kinds": """
        SELECT relname, relkind, pg_get_partkeydef(oid), pg_get_expr(relpartbound, oid)
        FROM tables""",
    "constraints": """
        SELECT c.relname, conname, pg_get_constraintdef(k.oid), condeferrable, condeferred
        FROM pg_constraint k JOIN tables c ON c.oid = conrelid WHERE contype <> 'n'""",
    "indexes": """
        SELECT c.relname, pg_get_indexdef(indexrelid), indisvalid
        FROM pg_index JOIN tables c ON c.oid = indrelid""",
    "triggers": """
        SELECT c.relname, pg_get_triggerdef(t.oid), tgenabled
        FROM pg_trigger t JOIN tables c ON c.oid = tgrelid WHERE NOT tgisinternal""",
    "functions": """
        SELECT proname, pg_get_functiondef(oid) FROM pg_proc
        WHERE pronamespace = 'public'::regnamespace""",
    "sequences": """
        SELECT sequencename, data_type::text, increment_by, cycle FROM pg_sequences""",
}
# Partitions of months are made when there are rows.
_TABLES = """
    WITH tables AS (
        SELECT * FROM pg_class
        WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'p')
            AND (NOT relispartition OR relname LIKE '%_rest')
    )"""
_NARROWER = "auth_group_permissions"
"""Of Django: numbered by a bigint as all tables are, by an integer where its migrations made it."""
_LENGTH = re.compile(r"varchar\(\d+\)")
_CASTS = re.compile(r"::[a-z ]+(\[\])?|[()]")


def schema(url: str) -> set[tuple[object, ...]]:
    """Return tables, columns, defaults, constraints, indexes, triggers, functions, partitions."""
    if urlsplit(url).scheme == "sqlite":
        return set(_of_sqlite(url.removeprefix("sqlite:///")))
    with psycopg.connect(url) as session:
        return {
            (what, *row)
            for what, query in _POSTGRESQL.items()
            for row in session.execute(f"{_TABLES} {query}".encode())
        }


def of_models(url: str) -> set[tuple[object, ...]]:
    """Return the schema without what Django's migrations make otherwise than its models."""
    ids = {("columns", _NARROWER, "id"), ("sequences", f"{_NARROWER}_id_seq")}
    return {row for row in schema(url) if row[:3] not in ids and row[:2] not in ids}


def without_casts(found: set[tuple[object, ...]]) -> set[tuple[object, ...]]:
    """Return a schema without casts and brackets, which PostgreSQL restores elsewhere."""
    return {tuple(_CASTS.sub("", v) if isinstance(v, str) else v for v in row) for row in found}


def rows(url: str, query: str) -> set[tuple[object, ...]]:
    if urlsplit(url).scheme == "sqlite":
        with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as session:
            return set(session.execute(query))
    with psycopg.connect(url) as session:
        return set(session.execute(query.encode()))


def _of_sqlite(path: str) -> Iterator[tuple[object, ...]]:
    with closing(sqlite3.connect(path)) as session:
        made = list(session.execute("SELECT type, name, tbl_name, sql FROM sqlite_master"))
    for kind, name, table, sql in made:
        # Lengths are words to SQLite: migrations do not build a table anew for a longer one.
        text = _LENGTH.sub("varchar", " ".join((sql or "").split()))
        if kind == "table" and text:
            head, _, body = text.partition("(")
            yield kind, name, head.replace('"', "").strip(), ""
            for part in _parts(body.rpartition(")")[0]):
                yield kind, name, "part", part
        else:
            yield kind, name, table, text


def _parts(body: str) -> Iterator[str]:
    """Yield columns and constraints of a table: what stands between commas of the outer level."""
    depth, start = 0, 0
    for found in re.finditer(r"'(?:[^']|'')*'|[(),]", body):
        sign = found[0]
        if sign == "," and depth == 0:
            yield body[start : found.start()].strip()
            start = found.end()
        depth += (sign == "(") - (sign == ")")
    yield body[start:].strip()
