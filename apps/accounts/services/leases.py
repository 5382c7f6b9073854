"""Leases: of several processes one works on a row, and what a dead one held is free after a while.

A row has `lease_until` and, where its holder writes over and over, `lease`: a token of the holder.
A process that stood still for longer than its lease finds another token there, so it writes
nothing any more. Times are those of the process that asks; the database locks rows, no more.
"""

import secrets
from datetime import datetime, timedelta
from typing import Any, TypeVar

from django.db import transaction
from django.db.models import Model, Q, QuerySet

_Row = TypeVar("_Row", bound=Model)
COMPUTED_WITHIN = timedelta(minutes=15)
"""How long a figure that is computed ahead may take before another process begins it anew."""


class LeaseLost(Exception):
    """Another process works on the row meanwhile, or the row takes no more work."""


def free(now: datetime, *, longest: timedelta | None = None) -> Q:
    """Return the condition on rows without a live lease.

    No lease lasts for longer than `longest`: one that ends later was taken by a clock that was
    ahead, maybe by years, and counts for nothing.
    """
    ended = Q(lease_until__isnull=True) | Q(lease_until__lte=now)
    return ended if longest is None else ended | Q(lease_until__gt=now + longest)


def new_token() -> str:
    """Return a unique name for a lease."""
    return secrets.token_hex(16)


def take(rows: QuerySet[_Row], now: datetime, **values: Any) -> _Row | None:
    """Write `values` to the first row that is free and return it; None where none is."""
    with transaction.atomic():
        row = rows.filter(free(now)).select_for_update(of=("self",)).first()
        if row is not None:
            for name, value in values.items():
                setattr(row, name, value)
            row.save(update_fields=list(values))
    return row


def take_all(
    rows: QuerySet[Any], now: datetime, *, longest: timedelta | None = None, **values: Any
) -> int:
    """Write `values` to all rows that are free and return how many are.

    It is one conditional UPDATE: of two processes that ask at once only one changes a row.
    """
    return rows.filter(free(now, longest=longest)).update(**values)


def take_figure(
    model: type[_Row], now: datetime, *, computed: Q | None = None, **key: Any
) -> _Row | None:
    """Return the row of a figure that is computed ahead, held; None where it is not to be computed.

    That is: where it is `computed` already, or another process is at it. The first who asks makes
    the row. The one who got it writes None to `lease_until` together with the figure.
    """
    rows = model._default_manager
    # Two workers may both find no row: the unique key lets one insert, the lease lets one compute.
    rows.bulk_create([model(**key)], ignore_conflicts=True)
    due = rows.filter(**key)
    if computed is not None:
        due = due.exclude(computed)
    return take(due.order_by("pk"), now, lease_until=now + COMPUTED_WITHIN)


def keep(mine: QuerySet[Any], **values: Any) -> None:
    """Write to the row of a holder, found by its token. Raises LeaseLost."""
    if not mine.update(**values):
        raise LeaseLost
