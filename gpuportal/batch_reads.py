"""Small queries of one page are sent as one statement.

A page goes by a dozen of small tables: settings, clusters, teams, what its frame counts. Each query
costs a round trip and more of Django's time than of the database's. `read_batch` reads several of
them at once within `reading_once`; each `BatchQuery` then has its rows without a further query.
"""

import json
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from datetime import UTC, date, datetime
from typing import Any, Generic, NamedTuple, ParamSpec, TypeVar

from django.core.exceptions import EmptyResultSet
from django.db import connections, models
from django.db.models import QuerySet

from gpuportal.compiled import Compiled
from gpuportal.read_once import read_here

Parts = ParamSpec("Parts")
Rows = QuerySet[Any, Any]
_Found = Sequence[tuple[Any, ...]]

# Of rows as JSON, and of many of them: the same order as the query has.
_WRITTEN = {
    "postgresql": ("json_build_array", "SELECT json_agg(row)::text FROM"),
    "sqlite": ("json_array", "SELECT json_group_array(json(row)) FROM"),
}


class BoundQuery(NamedTuple):
    """A query with its arguments, to be read with others; one without any is written once."""

    key: Hashable
    make: Callable[[], Rows]
    is_fixed: bool

    def read(self) -> _Found:
        """Return the rows. One query; none on a page that has read them."""
        known = read_here()
        if known is None:
            return _read_alone(self)
        if self.key not in known:
            known[self.key] = _read_alone(self)
        found: _Found = known[self.key]
        return found


class BatchQuery(Generic[Parts]):
    """A query of few rows, made from arguments that are hashable.

    Its columns are numbers without a fraction, texts, truth values, dates, times and JSON.
    """

    def __init__(self, make: Callable[Parts, Rows]) -> None:
        self._make = make

    def rows(self, *args: Parts.args, **kwargs: Parts.kwargs) -> _Found:
        """Return the rows. One query; none on a page that has read them."""
        return self.query(*args, **kwargs).read()

    def query(self, *args: Parts.args, **kwargs: Parts.kwargs) -> BoundQuery:
        """Return what `read_batch` takes."""
        key = (self._make, args, tuple(sorted(kwargs.items())))
        is_fixed = not args and not kwargs
        return BoundQuery(key, lambda: self._make(*args, **kwargs), is_fixed)


def read_batch(*queries: BoundQuery) -> None:
    """Read what a page has not read yet of these queries: one statement for each database.

    Nothing is read outside of `reading_once`, where nothing could be kept.
    """
    known = read_here()
    if known is None:
        return
    wanted: dict[str, dict[Hashable, _Written]] = {}
    for one in queries:
        if one.key not in known:
            rows = one.make()
            try:
                written = _written(one, rows)
            except EmptyResultSet:
                known[one.key] = []
            else:
                wanted.setdefault(rows.db, {})[one.key] = written
    for alias, by_key in wanted.items():
        known.update(_read_together(alias, by_key))


def _read_alone(bound: BoundQuery) -> _Found:
    rows = bound.make()
    if not bound.is_fixed:
        return list(rows)
    compiled = _once(Compiled.of, bound, rows)
    return list(compiled.rows(rows.db, compiled.sql, compiled.values))


def _read_together(alias: str, by_key: Mapping[Hashable, "_Written"]) -> dict[Hashable, _Found]:
    queries = list(by_key.values())
    with connections[alias].cursor() as cursor:
        cursor.execute(
            "SELECT " + ", ".join(f"({one.sql})" for one in queries),
            [value for one in queries for value in one.values],
        )
        texts = cursor.fetchone()
    return {key: list(by_key[key].read(text)) for key, text in zip(by_key, texts, strict=True)}


_Made = TypeVar("_Made")
_KNOWN: dict[Hashable, Any] = {}


def _once(make: Callable[[Rows, str], _Made], bound: BoundQuery, rows: Rows) -> _Made:
    """Return what is made of a query without arguments; kept by database and its kind."""
    place = make, bound.key, rows.db, connections[rows.db].vendor
    if place not in _KNOWN:
        _KNOWN[place] = make(rows, rows.db)
    found: _Made = _KNOWN[place]
    return found


def _written(bound: BoundQuery, rows: Rows) -> "_Written":
    return _once(_Written.of, bound, rows) if bound.is_fixed else _Written.of(rows, rows.db)


class _Written(NamedTuple):
    """A query whose rows come as one text, and what makes Python's values of it."""

    sql: str
    values: tuple[Any, ...]
    readers: tuple[tuple[int, Callable[[Any], Any]], ...]

    @classmethod
    def of(cls, rows: Rows, alias: str) -> "_Written":
        vendor = connections[alias].vendor
        compiler: Any = rows.query.get_compiler(alias)
        sql, values = compiler.as_sql()
        fields = [_plain(expression.output_field) for expression, _, _ in compiler.select]
        names = ", ".join(f"c{place}" for place in range(len(fields)))
        each, all_of = _WRITTEN[vendor]
        lines = f"(SELECT {each}({names}) AS row FROM own) AS lines"  # noqa: S608 - no value in it
        return cls(
            f"WITH own({names}) AS ({sql}) {all_of} {lines}",
            tuple(values),
            tuple(
                (place, reader)
                for place, field in enumerate(fields)
                if (reader := _reader_of(type(field), vendor)) is not None
            ),
        )

    def read(self, text: str | None) -> Iterator[tuple[Any, ...]]:
        """Yield the rows; PostgreSQL has no text of no rows."""
        for row in json.loads(text or "[]"):
            for place, reader in self.readers:
                if row[place] is not None:
                    row[place] = reader(row[place])
            yield tuple(row)


def _plain(field: Any) -> Any:
    """Return the field whose values a column has: of a foreign key the one that it names."""
    return _plain(field.target_field) if field.is_relation else field


def _reader_of(field: type["models.Field[Any, Any]"], vendor: str) -> Callable[[Any], Any] | None:
    """Return what makes a value of a column of what JSON has; None where they are the same.

    Raises TypeError for a column that JSON may round.
    """
    if issubclass(field, models.DateTimeField):
        return _time
    if issubclass(field, models.DateField):
        return date.fromisoformat
    if issubclass(field, models.BooleanField):
        return bool
    if issubclass(field, models.JSONField):
        return json.loads if vendor == "sqlite" else None
    if issubclass(field, models.IntegerField | models.CharField | models.TextField):
        return None
    raise TypeError(f"{field.__name__} is not read in batches")


def _time(text: str) -> datetime:
    found = datetime.fromisoformat(text)
    return found if found.tzinfo else found.replace(tzinfo=UTC)
