"""Whether work is done: the heartbeat of beat, broker and workers, and what no worker takes."""

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from django.db.models import Count, Min, QuerySet

from apps.accounts.services import leases
from apps.clusters.domain.resources import counted
from apps.costs.models import Export
from apps.operations.domain.findings import Finding
from apps.operations.models import Heartbeat
from apps.quota_requests.models import Execution
from apps.usage.models import CollectionWindow

_ROW = 1


def note_heartbeat(sent_at: datetime, *, now: datetime) -> None:
    """Write that a task which beat sent at `sent_at` is being carried out."""
    # An older message that comes late must not set it back.
    moved = Heartbeat.objects.filter(pk=_ROW, sent_at__lt=sent_at).update(sent_at=sent_at, at=now)
    if not moved:
        Heartbeat.objects.get_or_create(pk=_ROW, defaults={"sent_at": sent_at, "at": now})


LATE = timedelta(minutes=15)
"""Beat sends work anew every minute at the latest: after so long no worker takes it."""


class _Overdue(NamedTuple):
    """Rows of one queue that a worker should have taken, and the column that says since when."""

    queue: str
    what: str
    rows: QuerySet[Any]
    since: str


def overdue_work(now: datetime) -> Iterator[Finding]:
    """Yield a finding for each queue whose work is not done. Three queries."""
    late = now - LATE
    for one in (
        _Overdue(
            "quota_requests",
            "approved quota change",
            Execution.objects.filter(
                leases.free(late), ended_at=None, mode=Execution.DIRECT, next_at__lte=late
            ),
            "next_at",
        ),
        _Overdue(
            "collect",
            "hour",
            CollectionWindow.objects.filter(cluster__active=True, lease_until__lte=late),
            "lease_until",
        ),
        _Overdue(
            "exports",
            "export",
            Export.objects.filter(leases.free(late), ended_at=None, asked_at__lte=late),
            "asked_at",
        ),
    ):
        found = one.rows.aggregate(number=Count("pk"), since=Min(one.since))
        if found["number"]:
            yield _finding(one, found["number"], found["since"])


def _finding(one: _Overdue, number: int, since: datetime) -> Finding:
    return Finding(
        "work-overdue",
        "",
        one.queue,
        f"{counted(number, one.what)} should have been done by now. No worker takes from the "
        f"queue {one.queue}: it was killed, hangs, or was never started.",
        f"# is it running, and what does its log say?\n"
        f"celery -A gpuportal worker --queues {one.queue}",
        since=since,
    )
