"""Sums of days: made anew from the rows of their hours whenever an hour changes."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from typing import Any

from django.db.models import Aggregate, Max, Model, QuerySet, Sum

from apps.clusters.domain.window import Window
from apps.usage.services.fact_store import day_value, insert

_PEAK = "memory_peak_mib"
"""The one column of which days keep the largest value."""


@dataclass(frozen=True, slots=True)
class Rollup:
    """A table of hours and that of its days; `keys` tell rows apart, `sums` are added up.

    `counts` are columns of days alone.
    """

    hours: type[Model]
    days: type[Model]
    keys: tuple[str, ...]
    sums: tuple[str, ...]
    counts: Mapping[str, Aggregate] = field(default_factory=dict)

    @property
    def columns(self) -> tuple[str, ...]:
        return (*self.keys, *self.sums)


def sum_day(table: Rollup, day: date, span: Window, **of: object) -> Sequence[tuple[Any, ...]]:
    """Replace a day's rows by the sums of its hours and return them; must run in a transaction.

    `of` tells which rows: those of a cluster. What is added up are integers, so the order of hours
    is no matter.
    """
    hours = table.hours._default_manager.filter(hour__gte=span.start, hour__lt=span.end, **of)
    rows = list(summed(hours, table.keys, table.sums, table.counts))
    table.days._default_manager.filter(day=day, **of).delete()
    columns = ("day", *table.columns, *table.counts)
    insert(table.days, columns, ((day_value(day), *row) for row in rows))
    return rows


def summed(
    rows: QuerySet[Any, Any],
    keys: Sequence[str],
    columns: Sequence[str],
    counts: Mapping[str, Aggregate],
) -> Iterable[tuple[Any, ...]]:
    """Return one row for each key, in order: the keys, the columns summed, then the counts."""
    sums = {f"sum_{name}": (Max if name == _PEAK else Sum)(name) for name in columns}
    beside = {f"count_{name}": count for name, count in counts.items()}
    found: Iterable[tuple[Any, ...]] = (
        rows.order_by().values_list(*keys).annotate(**sums, **beside).order_by(*keys)
    )
    return found
