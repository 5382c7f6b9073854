"""A time column read as Unix seconds by the database, which is quicker than by Python."""

from typing import Any

from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import FloatField, Func
from django.db.models.sql.compiler import SQLCompiler


class UnixSeconds(Func):
    """Return a date and time as Unix seconds (float); NULL stays NULL."""

    output_field = FloatField()
    arity = 1
    template = "CAST(EXTRACT(EPOCH FROM %(expressions)s) AS DOUBLE PRECISION)"

    def get_db_converters(self, connection: BaseDatabaseWrapper) -> list[Any]:
        # Floats come as floats; Django would make each one a float again.
        return []

    def as_sqlite(
        self, compiler: SQLCompiler, connection: BaseDatabaseWrapper, **extra: Any
    ) -> Any:
        # The text is 19 characters, then perhaps a dot and the fraction of a second.
        seconds = "CAST(strftime('%%%%s', %(expressions)s) AS REAL)"
        fraction = "CAST('0' || substr(%(expressions)s, 20) AS REAL)"
        return self.as_sql(compiler, connection, template=f"({seconds} + {fraction})", **extra)
