"""Which queues have workers: each of these holds a lease for each of its queues while it runs."""

from collections import Counter
from datetime import datetime

from django.conf import settings

from apps.accounts.models import ProcessLease

WORKER = "worker:"


def worker_lease(queue: str, token: str) -> str:
    """Return the name of the lease of a worker for a queue."""
    return f"{WORKER}{queue}:{token}"


def present_workers(now: datetime) -> dict[str, int]:
    """Return by queue how many workers take from it, by their heartbeat; 0 too. One query."""
    names = ProcessLease.objects.filter(name__startswith=WORKER, lease_until__gt=now)
    counts = Counter(name.split(":")[1] for name in names.values_list("name", flat=True))
    return {queue: counts[queue] for queue in sorted({*settings.QUEUES, *counts})}
