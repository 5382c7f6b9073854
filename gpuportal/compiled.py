"""Queries that are written once: Django takes longer for that than the database for an answer.

Of each query the SQL is kept by database and its kind, and what differs from call to call is put
in: times, or the condition on the rows.
"""

from collections.abc import Callable, Iterator, Sequence
from copy import copy
from datetime import UTC, datetime
from typing import Any, NamedTuple

from django.core.exceptions import EmptyResultSet
from django.db import connections
from django.db.models import Model, Q, QuerySet

from gpuportal.read_once import read_once

_GROUPED = " GROUP BY "
Rows = QuerySet[Any, Any]


class Compiled(NamedTuple):
    """A query's SQL and values, and what makes rows of Python's types of the driver's."""

    sql: str
    values: tuple[Any, ...]
    compiler: Any

    @classmethod
    def of(cls, rows: Rows, alias: str) -> "Compiled":
        compiler: Any = rows.query.get_compiler(alias)
        sql, values = compiler.as_sql()
        return cls(sql, values, compiler)

    def rows(self, alias: str, sql: str, values: Sequence[Any]) -> Iterator[tuple[Any, ...]]:
        """Return the rows of `sql`, which has the columns of this query.

        One query; none where the page has asked the same before.
        """
        connection = connections[alias]
        found = _fetched(alias, sql, tuple(values))
        # The connection of the thread that compiled it is not ours.
        compiler = copy(self.compiler)
        compiler.connection = connection
        rows: Iterator[tuple[Any, ...]] = compiler.results_iter([found], tuple_expected=True)
        return rows


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
