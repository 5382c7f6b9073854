"""Whose turn it is to carry an order out: the lease of one worker, without which nobody writes."""

from datetime import datetime, timedelta
from typing import Any, Final

from apps.accounts.services import leases
from apps.quota_requests.models import Execution

LEASE: Final = timedelta(seconds=120)
"""Longer than a read and a patch may take together, by their time-outs."""


def claim(pk: int, now: datetime) -> Execution | None:
    """Take the lease of an order that is not over; None where there is nothing to take."""
    rows = Execution.objects.select_related("request__cluster")
    open_ones = rows.filter(pk=pk, ended_at__isnull=True, mode=Execution.DIRECT)
    return leases.take(open_ones, now, lease=leases.new_token(), lease_until=now + LEASE)


def store(execution: Execution, **values: Any) -> None:
    """Write to the record as long as the lease is one's own. Raises LeaseLost."""
    mine = Execution.objects.filter(pk=execution.pk, lease=execution.lease, ended_at__isnull=True)
    leases.keep(mine, **values)
    for name, value in values.items():
        setattr(execution, name, value)
