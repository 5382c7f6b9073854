"""Database functions that Django lacks, and insertion of many rows into SQLite."""

import json
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from itertools import chain
from sqlite3 import sqlite_version_info
from typing import Any

from django.db.models import (
    Aggregate,
    BooleanField,
    FloatField,
    Func,
    IntegerField,
    Max,
    Min,
    Sum,
    Value,
)

_EPOCH_DAY = 2440587.5
"""1970-01-01 as a Julian day."""
# A quarter of the time of `strftime`, whose text is read again; SQLite has it since 3.38. Of the
# text without its fraction: both round to milliseconds, and so to the next second.
_SECONDS = (
    "unixepoch(substr(%(expressions)s, 1, 19))"
    if sqlite_version_info >= (3, 38)
    else "CAST(strftime('%%%%s', substr(%(expressions)s, 1, 19)) AS INTEGER)"
)


class _OfTime(Func):
    """A function of a time or date as a number, which a driver reads in a tenth of a time's time.

    NULL stays NULL. In `sqlite` four % stand for one: a pair for the template, a pair for the
    parameters.
    """

    arity = 1
    sqlite = ""

    def get_db_converters(self, connection: Any) -> list[Any]:
        # Numbers come as numbers; Django would make each of them one again.
        return []

    def as_sqlite(self, compiler: Any, connection: Any, **extra: Any) -> Any:
        return self.as_sql(compiler, connection, template=self.sqlite, **extra)


class UnixSeconds(_OfTime):
    """Seconds since 1970 as a float."""

    output_field = FloatField()
    # Not EXTRACT, which makes a numeric of each time: that takes three times as long.
    template = "date_part('epoch', %(expressions)s)"
    # The text is 19 characters, then perhaps a dot and the fraction of a second.
    sqlite = f"({_SECONDS} + CAST('0' || substr(%(expressions)s, 20) AS REAL))"


class WholeSeconds(_OfTime):
    """Seconds since 1970 as an int."""

    output_field = IntegerField()
    # Cut, as SQLite does: a cast alone would round.
    template = "floor(date_part('epoch', %(expressions)s))::bigint"
    sqlite = _SECONDS


class HourNumber(_OfTime):
    """Hours since 1970 as a float, in one function: that of a row may be summed several times."""

    output_field = FloatField()
    template = "(EXTRACT(EPOCH FROM %(expressions)s) / 3600.0)"
    sqlite = f"((julianday(%(expressions)s) - {_EPOCH_DAY}) * 24.0)"


class DayNumber(_OfTime):
    """Days from 1970-01-01 to a date as an int."""

    output_field = IntegerField()
    template = "(%(expressions)s - DATE '1970-01-01')"
    sqlite = f"CAST(julianday(%(expressions)s) - {_EPOCH_DAY} AS INTEGER)"


class Numbers(Func):
    """Whole numbers for `__in`, sent as one parameter.

    Of a parameter for each, a thousand take Django and PostgreSQL four times as long to read.
    """

    template = "(SELECT unnest(%(expressions)s::bigint[]))"

    def __init__(self, numbers: Iterable[int]) -> None:
        super().__init__(
            Value("{" + ",".join(map(str, numbers)) + "}"), output_field=IntegerField()
        )

    def as_sqlite(self, compiler: Any, connection: Any, **extra: Any) -> Any:
        # A list of JSON has other brackets.
        template = "(SELECT value FROM json_each('[' || trim(%(expressions)s, '{}') || ']'))"
        return self.as_sql(compiler, connection, template=template, **extra)


class OneOfTexts(Func):
    """Whether a text is one of some, which are sent as one parameter, as `Numbers` are.

    An array, as of a list of unknown length PostgreSQL would look up none in an index.
    """

    output_field = BooleanField()
    template = "(%(expressions)s::json))))"

    def __init__(self, column: Any, texts: Iterable[str]) -> None:
        super().__init__(column, Value(json.dumps(list(texts))))

    def as_postgresql(self, compiler: Any, connection: Any, **extra: Any) -> Any:
        joiner = " = ANY(ARRAY(SELECT json_array_elements_text("
        return self.as_sql(compiler, connection, arg_joiner=joiner, **extra)

    def as_sqlite(self, compiler: Any, connection: Any, **extra: Any) -> Any:
        joiner = " IN (SELECT value FROM json_each("
        template = "(%(expressions)s)))"
        return self.as_sql(compiler, connection, template=template, arg_joiner=joiner, **extra)


class OneOfTimes(Func):
    """Whether a time is one of some, which are sent as one parameter, as `Numbers` are.

    PostgreSQL makes the same plan as of a list: an array that is written out is a constant.
    """

    output_field = BooleanField()

    def __init__(self, column: Any, times: Iterable[datetime]) -> None:
        found = [at.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S") for at in times]
        super().__init__(column, Value("{" + ",".join(f'"{at}+00"' for at in found) + "}"))
        self._listed = "[" + ",".join(f'"{at}"' for at in found) + "]"

    def as_postgresql(self, compiler: Any, connection: Any, **extra: Any) -> Any:
        template = "(%(expressions)s::timestamptz[]))"
        return self.as_sql(compiler, connection, template=template, arg_joiner=" = ANY(", **extra)

    def as_sqlite(self, compiler: Any, connection: Any, **extra: Any) -> Any:
        own = self.copy()
        # In a list of JSON, and written as SQLite keeps times.
        own.set_source_expressions([self.get_source_expressions()[0], Value(self._listed)])
        joiner = " IN (SELECT value FROM json_each("
        template = "(%(expressions)s)))"
        return own.as_sql(compiler, connection, template=template, arg_joiner=joiner, **extra)


class Unindexed(Func):
    """A whole number that SQLite looks up in no index: it has no statistics to choose one by.

    PostgreSQL gets the column as it is, for of an expression it would expect a two hundredth of
    the rows, and then look up what they refer to one by one.
    """

    arity = 1
    output_field = IntegerField()
    template = "(%(expressions)s + 0)"

    def as_postgresql(self, compiler: Any, connection: Any, **extra: Any) -> Any:
        return self.as_sql(compiler, connection, template="%(expressions)s", **extra)


class _AsGiven(Aggregate):
    """An aggregate as the driver gives it: Django would call a converter for each value.

    A page has 8,500 of them.
    """

    def get_db_converters(self, connection: Any) -> list[Any]:
        return []


class LargestOf(_AsGiven, Max):
    """The largest of numbers."""


class LeastOf(_AsGiven, Min):
    """The least of numbers."""


class LargeSum(_AsGiven, Sum):
    """A sum of whole numbers of any size: an int, or on PostgreSQL a Decimal without a fraction."""


class WholeSum(_AsGiven, Sum):
    """A sum of less than 2^63, as an int.

    PostgreSQL sums bigint to numeric; sending and reading that as Decimal takes as long again as
    the summing.
    """

    def as_postgresql(self, compiler: Any, connection: Any, **context: Any) -> Any:
        sql, params = self.as_sql(compiler, connection, **context)
        return f"{sql}::bigint", params


class SmallSum(_AsGiven, Sum):
    """A sum of whole numbers that stays below 2^53, as an int: of one pod, or of one hour.

    PostgreSQL adds doubles, exact up to there: nine million GPU-hours. That and sending them take
    half the time of numeric.
    """

    def as_postgresql(self, compiler: Any, connection: Any, **context: Any) -> Any:
        template = "%(function)s((%(expressions)s)::float8)"
        sql, params = self.as_sql(compiler, connection, template=template, **context)
        return f"{sql}::bigint", params


_VALUES_TOGETHER = 500
"""Values of a statement that inserts several rows into SQLite."""
_MANY = 1_000
"""Rows from which on it is worth a second statement for what is left over."""


def insert_many(
    cursor: Any, insertion: str, rows: Sequence[Sequence[Any]], conflict: str = ""
) -> None:
    """Insert rows into SQLite by an `INSERT INTO table (columns)`; `conflict` follows the values.

    Several rows go by one statement, because SQLite counts ids up once for each.
    """
    if not rows:
        return
    row = f"({', '.join(['%s'] * len(rows[0]))})"
    together = max(1, _VALUES_TOGETHER // len(rows[0]))
    whole = len(rows) - len(rows) % together if len(rows) >= _MANY else 0
    if whole:
        values = [
            list(chain.from_iterable(rows[start : start + together]))
            for start in range(0, whole, together)
        ]
        cursor.executemany(f"{insertion} VALUES {', '.join([row] * together)} {conflict}", values)
    if whole < len(rows):
        cursor.executemany(f"{insertion} VALUES {row} {conflict}", rows[whole:])
