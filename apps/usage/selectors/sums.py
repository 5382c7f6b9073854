"""Amounts summed in the database."""

from collections.abc import Sequence
from itertools import chain
from typing import Any

from django.db.models import Aggregate, F

from apps.clusters.models.sql import LargestOf, LargeSum, WholeSum
from apps.usage.domain.amounts import CAPACITY_FIELDS, HELD_FIELDS, LEVEL_FIELDS, Amounts

_PEAK = len(HELD_FIELDS)
_LEVELS = tuple(chain.from_iterable(LEVEL_FIELDS))


def sums_of(*, capacity: bool, large: bool = False) -> dict[str, Aggregate]:
    """Return the aggregates whose values `amounts_of` takes, in this order.

    With `large` a sum may be 2^63 nano-GPU-hours or more, as that of a million GPUs over a year.
    """
    kind = LargeSum if large else WholeSum
    held = {f"sum_{name}": kind(name) for name in HELD_FIELDS}
    beside = {f"sum_{name}": kind(name) for name in (CAPACITY_FIELDS if capacity else ())}
    levels = {f"sum_{name}": kind(name) for name in _LEVELS}
    return {**held, "max_memory": LargestOf("memory_peak_mib"), **levels, **beside}


def sums_of_unused() -> dict[str, Aggregate]:
    """Return the aggregates of the four amounts that tell held from used, in this order."""
    return {
        f"sum_{name}": WholeSum(name) for name in ("allocated", "not_running", "idle", "underused")
    }


def sum_of_unused() -> Aggregate:
    """Return the aggregate of all that was held and not used."""
    return WholeSum(F("not_running") + F("idle") + F("underused"))


def amounts_of(values: Sequence[Any]) -> Amounts:
    """Return the amounts of a row of `sums_of`; without capacity its fields stay None.

    So do they where devices were active and no capacity is known, as of those that only claims
    give out before somebody watched: that they are none would be wrong.
    """
    if type(values[0]) is int:
        found = Amounts(*values)
    else:
        beside = (None if value is None else int(value) for value in values[_PEAK + 1 :])
        found = Amounts(*map(int, values[:_PEAK]), *values[_PEAK : _PEAK + 1], *beside)
    if found.capacity == 0 and found.unattributed:
        found.capacity = found.unhealthy = found.unallocated = found.stranded = None
    return found
