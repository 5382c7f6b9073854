"""Whose turn it is to carry an order out: the lease of one worker, without which nobody writes."""

import secrets
from datetime import datetime, timedelta
from typing import Any, Final

from django.db import transaction
from django.db.models import Q

from apps.quota_requests.models import Execution

LEASE: Final = timedelta(seconds=120)
"""Longer than a read and a patch may take together, by their time-outs."""


class ExecutionLeaseLost(Exception):
    """Another worker carries this out meanwhile."""


def claim(pk: int, lease: str, now: datetime) -> Execution | None:
    """Take the lease of an order that is not over; None where there is nothing to take."""
    with transaction.atomic():
        rows = Execution.objects.select_for_update(of=("self",)).select_related("request__cluster")
        free = Q(lease_until__isnull=True) | Q(lease_until__lte=now)
        row = rows.filter(free, pk=pk, ended_at__isnull=True, mode=Execution.DIRECT).first()
        if row is None:
            return None
        row.lease, row.lease_until = lease, now + LEASE
        row.save(update_fields=["lease", "lease_until"])
    return row


def new_lease() -> str:
    """Return a name for a lease that nobody else has."""
    return secrets.token_hex(16)


def store(execution: Execution, **values: Any) -> None:
    """Write to the record as long as the lease is one's own. Raises LeaseLost."""
    mine = Execution.objects.filter(pk=execution.pk, lease=execution.lease, ended_at__isnull=True)
    if not mine.update(**values):
        raise ExecutionLeaseLost
    for name, value in values.items():
        setattr(execution, name, value)
