"""Amounts summed in the database."""

from collections.abc import Sequence
from typing import Any

from django.db.models import Aggregate, Max, Sum

from apps.usage.domain.amounts import CAPACITY_FIELDS, HELD_FIELDS, Amounts

_PEAK = len(HELD_FIELDS)


class _Plain(Sum):
    """A sum as the driver gives it: an int, or on PostgreSQL a Decimal.

    Django would call a converter for each of a page's 8,500 sums; `amounts_of` does it by row.
    """

    def get_db_converters(self, connection: Any) -> list[Any]:
        return []


def sums_of(*, capacity: bool) -> dict[str, Aggregate]:
    """Return the aggregates whose values `amounts_of` takes, in this order."""
    names = (*HELD_FIELDS, *(CAPACITY_FIELDS if capacity else ()))
    return {"max_memory": Max("memory_peak_mib")} | {f"sum_{name}": _Plain(name) for name in names}


def amounts_of(values: Sequence[Any]) -> Amounts:
    """Return the amounts of a row of `sums_of`; without capacity its fields stay None."""
    whole = [*values[1:]] if type(values[1]) is int else [*map(int, values[1:])]
    whole.insert(_PEAK, values[0])
    return Amounts(*whole)
