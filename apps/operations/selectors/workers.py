"""Whether beat and workers run: by the heartbeat of beat, and by the leases that they hold."""

from collections import Counter
from datetime import datetime, timedelta

from django.conf import settings
from django.db.models import Exists
from django.db.models.functions import Now

from apps.accounts.models import ProcessLease
from apps.operations.domain.findings import Finding
from apps.operations.models import Heartbeat
from gpuportal.queries import read_once

BEAT = "beat"
"""The lease of the beat that sends."""
HEARTBEAT_LATE = timedelta(minutes=5)
"""Beat sends one every 30 seconds; one behind a long task is no standstill."""
WORKER = "worker:"


def worker_lease(queue: str, token: str) -> str:
    """Return the name of the lease of a worker for a queue."""
    return f"{WORKER}{queue}:{token}"


def present_workers(now: datetime) -> dict[str, int]:
    """Return by queue how many workers take from it, by their heartbeat; 0 too. One query."""
    names = ProcessLease.objects.filter(name__startswith=WORKER, lease_until__gt=now)
    counts = Counter(name.split(":")[1] for name in names.values_list("name", flat=True))
    return {queue: counts[queue] for queue in sorted({*settings.QUEUES, *counts})}


@read_once
def overdue_heartbeat() -> Finding | None:
    """Return that nothing beat sends is carried out, since the last heartbeat; None where it is.

    None too before the first heartbeat: of a portal that beat never served nothing is known. By the
    database's clock, which no process's clock changes. One query.
    """
    lives = ProcessLease.objects.filter(name=BEAT, lease_until__gt=Now())
    found = Heartbeat.objects.annotate(clock=Now(), beats=Exists(lives))
    row = found.order_by("pk").values_list("at", "clock", "beats").first()
    if row is None or row[1] - row[0] < HEARTBEAT_LATE:
        return None
    since, _, beats = row
    if beats:
        what = (
            "Beat runs, but no heartbeat that it sends is carried out. The broker is away, or the "
            "worker of the queue alerts is stopped or behind."
        )
        fix = (
            "# does the broker answer, and what does the worker's log say?\n"
            "celery -A gpuportal worker --queues alerts"
        )
        return Finding("tasks-overdue", "", "", what, fix, since=since)
    what = (
        "No beat holds its lease, and no heartbeat comes any more. Beat was ended, hangs, or "
        "cannot reach the database."
    )
    fix = "# is it running, and what does its log say?\ncelery -A gpuportal beat"
    return Finding("beat-stopped", "", "", what, fix, since=since)
