"""Queries of pages: each is read once a page, small ones together, and SQL is written once.

Clusters, names and report settings are small and are asked for by each selector of its own. Within
`reading_once` the second one gets what the first one read. Outside of it, as in tasks, services and
files that are still being sent, every call reads: nothing is kept from one request to the next.

`Compiled` keeps the SQL of a query by database and its kind, and what differs from call to call is
put in: times, or the condition on the rows. Django takes longer to write it than the database to
answer.

A page goes by a dozen of small tables: settings, clusters, teams, what its frame counts. Each query
costs a round trip and more of Django's time than of the database's. `read_batch` reads several of
them at once within `reading_once`; each `BatchQuery` then has its rows without a further query.
"""

import json
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, date, datetime, timedelta
from functools import wraps
from itertools import repeat
from typing import Any, Generic, NamedTuple, ParamSpec, TypeVar

from django.core.exceptions import EmptyResultSet
from django.db import connections, models
from django.db.models import Model, Q, QuerySet
from msgspec import Struct
from msgspec.structs import asdict, replace

_Parts = ParamSpec("_Parts")
_Value = TypeVar("_Value")
_READ: ContextVar[dict[Hashable, Any] | None] = ContextVar("read_once", default=None)


@contextmanager
def reading_once() -> Iterator[None]:
    """Keep what functions of `read_once` return until the end of the block."""
    token = _READ.set({})
    try:
        yield
    finally:
        _READ.reset(token)


def read_here() -> dict[Hashable, Any] | None:
    """Return what was read so far within `reading_once`, to be added to; None outside of it."""
    return _READ.get()


def read_once(function: Callable[_Parts, _Value]) -> Callable[_Parts, _Value]:
    """Return a function that reads once for the same arguments within `reading_once`.

    Its arguments are hashable, and callers do not change what it returns.
    """

    @wraps(function)
    def reader(*args: _Parts.args, **kwargs: _Parts.kwargs) -> _Value:
        known = read_here()
        if known is None:
            return function(*args, **kwargs)
        key = (function, args, tuple(sorted(kwargs.items())))
        if key not in known:
            known[key] = function(*args, **kwargs)
        found: _Value = known[key]
        return found

    return reader


_GROUPED = " GROUP BY "
Rows = QuerySet[Any, Any]


class Compiled(NamedTuple):
    """A query's SQL and values, and by column what makes Python's types of the driver's."""

    sql: str
    values: tuple[Any, ...]
    converters: Mapping[int, tuple[Sequence[Callable[..., Any]], Any]]

    @classmethod
    def of(cls, rows: Rows, alias: str) -> "Compiled":
        compiler: Any = rows.query.get_compiler(alias)
        sql, values = compiler.as_sql()
        columns = [expression for expression, _, _ in compiler.select]
        return cls(sql, values, compiler.get_converters(columns))

    def rows(self, alias: str, sql: str, values: Sequence[Any]) -> Iterator[tuple[Any, ...]]:
        """Return the rows of `sql`, which has the columns of this query.

        One query; none where the page has asked the same before.
        """
        found = _fetched(alias, sql, tuple(values))
        if not self.converters or not found:
            return iter(found)
        # The connection of the thread that compiled it is not ours.
        connection = connections[alias]
        # By column: few are converted, and the lists that Django makes of rows are two for each.
        columns: list[Sequence[Any]] = [*zip(*found, strict=True)]
        for place, (converters, expression) in self.converters.items():
            for convert in converters:
                values = columns[place]
                columns[place] = [convert(value, expression, connection) for value in values]
        return zip(*columns, strict=True)


@read_once
def _fetched(alias: str, sql: str, values: tuple[Any, ...]) -> list[tuple[Any, ...]]:
    with connections[alias].cursor() as cursor:
        cursor.execute(sql, values)
        rows: list[tuple[Any, ...]] = cursor.fetchall()
    return rows


class QueryOfTimes:
    """A query of a table, beside others, whose only values that differ are `count` times."""

    def __init__(self, model: type[Model], make: Callable[..., Rows], count: int) -> None:
        self._model, self._make = model, make
        self._marks = [datetime(9999, 1, 1, 0, 0, n, tzinfo=UTC) for n in range(count)]
        self._known: dict[tuple[str, str], Compiled] = {}

    def rows(self, *times: datetime) -> Iterator[tuple[Any, ...]]:
        """Return the rows for these times. One query."""
        alias = self._model._default_manager.all().db
        place = alias, connections[alias].vendor
        if place not in self._known:
            self._known[place] = Compiled.of(self._make(*self._marks).using(alias), alias)
        known, written = self._known[place], connections[alias].ops.adapt_datetimefield_value
        given = dict(zip(map(written, self._marks), map(written, times), strict=True))
        return known.rows(alias, known.sql, [given.get(value, value) for value in known.values])


class GroupedQuery:
    """Rows of one table in groups, to be narrowed by a condition on its own columns."""

    def __init__(self, grouped: Rows) -> None:
        self._grouped = grouped
        self._known: dict[tuple[str, str], Compiled] = {}

    def rows(self, where: Q) -> Iterator[tuple[Any, ...]]:
        """Return the groups of the rows that meet `where`, which is not empty. One query."""
        return rows_of_both((self, where))

    def narrowed(self, where: Q) -> tuple[str, Compiled] | None:
        """Return the database and the query of the rows that meet `where`; None for no rows."""
        model = self._grouped.model
        narrowed = model._default_manager.order_by().filter(where)
        alias = narrowed.db
        place = alias, connections[alias].vendor
        if place not in self._known:
            self._known[place] = Compiled.of(self._grouped.using(alias), alias)
        known, query = self._known[place], narrowed.query
        try:
            condition, values = query.get_compiler(alias).compile(query.where)
        except EmptyResultSet:
            return None
        head, grouped, groups = known.sql.rpartition(_GROUPED)
        sql = f"{head} WHERE {condition}{grouped}{groups}"
        return alias, known._replace(sql=sql, values=(*known.values, *values))


def rows_of_both(*parts: tuple[GroupedQuery, Q]) -> Iterator[tuple[Any, ...]]:
    """Return the rows of queries whose columns have the same types, one after another. One query.

    Each is narrowed by its own condition.
    """
    found = [one for one in (query.narrowed(where) for query, where in parts) if one is not None]
    if not found:
        return iter(())
    alias, first = found[0]
    sql = " UNION ALL ".join(query.sql for _, query in found)
    return first.rows(alias, sql, [value for _, query in found for value in query.values])


Parts = ParamSpec("Parts")
_Found = Sequence[tuple[Any, ...]]

# Of rows as JSON, and of many of them: the same order as the query has.
_WRITTEN = {
    "postgresql": ("json_build_array", "SELECT json_agg(row)::text FROM"),
    "sqlite": ("json_array", "SELECT json_group_array(json(row)) FROM"),
}


_FIXED: dict[Hashable, Rows] = {}


class BoundQuery(NamedTuple):
    """A query with its arguments, to be read with others; one that is fixed is written once.

    `shape` is what its SQL depends on. It is written with marks, for which `times` are put in;
    `other` makes it with other marks.
    """

    key: Hashable
    make: Callable[[], Rows]
    is_fixed: bool
    shape: Hashable = None
    times: tuple[datetime, ...] = ()
    other: Callable[[], Rows] | None = None

    def located(self) -> tuple[str, "BoundQuery"]:
        """Return the database that it reads now, and the query, which need not be made twice.

        A router may name another one each time, but what it goes by does not change.
        """
        if not self.is_fixed:
            rows = self.make()
            return rows.db, self._replace(make=lambda: rows)
        # To make it takes longer than to read it.
        if self.shape not in _FIXED:
            if len(_FIXED) > _MOST_FIXED:
                _FIXED.clear()
                _KNOWN.clear()
            _FIXED[self.shape] = self.make()
        return _FIXED[self.shape].db, self

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

    Its columns are numbers, but for decimals, texts, truth values, dates, times and JSON. With
    `is_pure` its SQL is kept for arguments that differ in times alone: to write it takes ten times
    as long as to read the rows. It must depend on nothing but them then, and times must come into
    it as they are, or a span before or after: none rounded, compared, or taken to be a date.
    """

    def __init__(self, make: Callable[Parts, Rows], *, is_pure: bool = False) -> None:
        self._make, self._is_pure = make, is_pure

    def rows(self, *args: Parts.args, **kwargs: Parts.kwargs) -> _Found:
        """Return the rows. One query; none on a page that has read them."""
        return self.query(*args, **kwargs).read()

    def query(self, *args: Parts.args, **kwargs: Parts.kwargs) -> BoundQuery:
        """Return what `read_batch` takes."""
        key = (self._make, args, tuple(sorted(kwargs.items())))
        if not self._is_pure:
            is_fixed = not args and not kwargs
            return BoundQuery(key, lambda: self._make(*args, **kwargs), is_fixed, key)
        times: list[datetime] = []
        marked: Any = [_marked(one, times, timedelta()) for one in args]
        again: list[datetime] = []
        others: Any = [_marked(one, again, _OTHER_MARKS) for one in args]
        return BoundQuery(
            key,
            lambda: self._make(*marked, **kwargs),
            is_fixed=True,
            shape=(self._make, tuple(marked), key[2]),
            times=tuple(times),
            other=lambda: self._make(*others, **kwargs),
        )


_MOST_FIXED = 1000
# So far apart that a value of the SQL, a span before or after its mark, tells which it is of.
_FIRST_MARK, _MARKS_APART = datetime(8000, 7, 1, tzinfo=UTC), timedelta(days=1000)
# What differs in a query that is written with other marks comes from times, and nothing else does.
# Of a year and of each of its parts, so that a time that was rounded shows.
_OTHER_MARKS = timedelta(days=401, hours=1, minutes=1, seconds=1, microseconds=1)
_Place = tuple[int, int, timedelta]
"""A value's place in the SQL, that of its time, and the span between them."""


def _marked(argument: Any, times: list[datetime], shift: timedelta) -> Any:
    """Return an argument with marks in place of its times, which are added to `times`."""
    if isinstance(argument, datetime):
        times.append(argument)
        return _FIRST_MARK + (len(times) - 1) * _MARKS_APART + shift
    if isinstance(argument, Struct):
        # A window: its start gets the earlier mark, so that it is one still.
        marked = {
            name: _marked(value, times, shift)
            for name, value in asdict(argument).items()
            if isinstance(value, datetime)
        }
        return replace(argument, **marked) if marked else argument
    return argument


def _places(values: Sequence[Any], others: Sequence[Any]) -> tuple[_Place, ...]:
    """Return where times stand in values that were written with either marks.

    Raises TypeError where a time is not in them as it is, or a span before or after.
    """
    found = []
    for place, (value, other) in enumerate(zip(values, others, strict=True)):
        # JSON is wrapped for PostgreSQL, and no wrapper equals another.
        if getattr(value, "obj", value) == getattr(other, "obj", other):
            continue
        at, moved = (
            datetime.fromisoformat(one).replace(tzinfo=UTC) if isinstance(one, str) else one
            for one in (value, other)
        )
        if moved - at != _OTHER_MARKS:
            raise TypeError(f"{value!r} is no time as it was given")
        number = round((at - _FIRST_MARK) / _MARKS_APART)
        found.append((place, number, at - _FIRST_MARK - number * _MARKS_APART))
    return tuple(found)


def _with_times(
    values: Sequence[Any], places: Sequence[_Place], times: Sequence[datetime], alias: str
) -> tuple[Any, ...]:
    """Return the values of a query that was written with marks, with times in their place."""
    written, put = connections[alias].ops.adapt_datetimefield_value, list(values)
    for place, number, span in places:
        put[place] = written(times[number] + span)
    return tuple(put)


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
            alias, made = one.located()
            try:
                written = _once(_Written.of, made, alias)
            except EmptyResultSet:
                known[one.key] = []
            else:
                wanted.setdefault(alias, {})[one.key] = written
    for alias, by_key in wanted.items():
        known.update(_read_together(alias, by_key))


def _read_alone(bound: BoundQuery) -> _Found:
    alias, made = bound.located()
    if not bound.is_fixed:
        return list(made.make())
    try:
        compiled = _once(Compiled.of, made, alias)
    except EmptyResultSet:
        # Django does not ask either what no row can fulfil, as to be of one of no teams.
        return []
    return list(compiled.rows(alias, compiled.sql, compiled.values))


def _read_together(alias: str, by_key: Mapping[Hashable, "_Written"]) -> dict[Hashable, _Found]:
    queries = list(by_key.values())
    with connections[alias].cursor() as cursor:
        cursor.execute(
            "SELECT " + ", ".join(f"({one.sql})" for one in queries),
            [value for one in queries for value in one.values],
        )
        texts = cursor.fetchone()
    return {key: list(by_key[key].read(text)) for key, text in zip(by_key, texts, strict=True)}


_Made = TypeVar("_Made", Compiled, "_Written")
_KNOWN: dict[Hashable, tuple[Any, tuple[_Place, ...]]] = {}


def _once(make: Callable[[Rows, str], _Made], bound: BoundQuery, alias: str) -> _Made:
    """Return what is made of a query; of one that is fixed kept, by database and its kind."""
    if not bound.is_fixed:
        return make(bound.make(), alias)
    place = make, bound.shape, alias, connections[alias].vendor
    if place not in _KNOWN:
        first = make(bound.make(), alias)
        other = make(bound.other(), alias) if bound.other else first
        if other.sql != first.sql:
            raise TypeError("the query depends on more than its arguments")
        _KNOWN[place] = first, _places(first.values, other.values)
    found, places = _KNOWN[place]
    kept: _Made = found
    return kept._replace(values=_with_times(kept.values, places, bound.times, alias))


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
        columns = [f"c{place}" for place in range(len(fields))]
        names = ", ".join(columns)
        each, all_of = _WRITTEN[vendor]
        written = ", ".join(map(_as_json, columns, fields, repeat(vendor)))
        lines = f"(SELECT {each}({written}) AS row FROM own) AS lines"  # noqa: S608 - no value in it
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


def _as_json(column: str, field: Any, vendor: str) -> str:
    """Return what JSON gets of a column: SQLite's JSON rounds fractions to 15 digits."""
    if vendor == "sqlite" and isinstance(field, models.FloatField):
        return f"CASE WHEN {column} IS NOT NULL THEN printf('%%!.17g', {column}) END"
    return column


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
    if issubclass(field, models.FloatField):
        return float
    if issubclass(field, models.JSONField):
        return json.loads if vendor == "sqlite" else None
    if issubclass(field, models.IntegerField | models.CharField | models.TextField):
        return None
    raise TypeError(f"{field.__name__} is not read in batches")


def _time(text: str) -> datetime:
    found = datetime.fromisoformat(text)
    return found if found.tzinfo else found.replace(tzinfo=UTC)
