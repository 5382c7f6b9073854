"""Sums of money of any size, on a database that adds up 64 bits at most too."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from django.db import OperationalError, connection
from django.db.models import Aggregate, F, QuerySet

from apps.clusters.models.sql import LargeSum

_PART = 10**9
"""What two parts of a sum are told apart by: neither comes near 2^63 then."""


def rows_with_costs(
    rows: QuerySet[Any, Any],
    columns: Sequence[str],
    names: Sequence[str],
    beside: Mapping[str, Aggregate],
) -> Iterator[tuple[Any, ...]]:
    """Yield grouped rows: `columns`, the sum of `cost_` of each of `names`, then what is `beside`.

    SQLite has no sum of 2^63 units or more, some 92 billion of a currency: only where it refuses
    one each sum is made of two, which takes longer. One query, or there two.
    """
    sums = {f"sum_cost_{name}": LargeSum(f"cost_{name}") for name in names}
    found = rows.annotate(**sums, **beside).values_list(*columns, *sums, *beside)
    if connection.vendor != "sqlite":
        yield from found
        return
    try:
        known = list(found)
    except OperationalError as error:
        if "integer overflow" not in str(error):
            raise
    else:
        yield from known
        return
    yield from _in_two_parts(rows, columns, names, beside)


def _in_two_parts(
    rows: QuerySet[Any, Any],
    columns: Sequence[str],
    names: Sequence[str],
    beside: Mapping[str, Aggregate],
) -> Iterator[tuple[Any, ...]]:
    large = {f"large_{name}": LargeSum(F(f"cost_{name}") / _PART) for name in names}
    small = {f"small_{name}": LargeSum(F(f"cost_{name}") % _PART) for name in names}
    found = rows.annotate(**large, **small, **beside)
    first, count = len(columns), len(names)
    for row in found.values_list(*columns, *large, *small, *beside):
        parts = row[first : first + count], row[first + count : first + 2 * count]
        costs = (high * _PART + low for high, low in zip(*parts, strict=True))
        yield (*row[:first], *costs, *row[first + 2 * count :])
