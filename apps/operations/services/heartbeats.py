"""Whether work is done: the heartbeat of beat, broker and workers, and what no worker takes."""

import logging
import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from django.db import Error, connections
from django.db.models import Count, Min, Q, QuerySet

from apps.accounts.services import leases
from apps.accounts.services.process_leases import ProcessLeases
from apps.clusters.domain.resources import counted
from apps.costs.models import Export
from apps.operations.adapters.task_queues import QueueDepth
from apps.operations.domain.findings import Finding
from apps.operations.models import Heartbeat
from apps.operations.selectors.running import WORKER, present_workers, worker_lease
from apps.quota_requests.models import Execution
from apps.usage.models import CollectionWindow

logger = logging.getLogger(__name__)

_ROW = 1
# A worker is gone after four lost beats: one may be late while the database is under load.
_PRESENT_SECONDS = 90.0
_BEAT_SECONDS = 20.0


def note_heartbeat(sent_at: datetime, *, now: datetime) -> None:
    """Write that a task which beat sent at `sent_at` is being carried out.

    `now` is a time of the database's clock: pages hold it against that.
    """
    # An older message that comes late must not set it back; a time to come is of a clock that was
    # ahead, and would stay until then.
    rows = Heartbeat.objects.filter(Q(sent_at__lt=sent_at) | Q(sent_at__gt=now), pk=_ROW)
    moved = rows.update(sent_at=sent_at, at=now)
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


def silent_queues(depths: Mapping[str, QueueDepth], now: datetime) -> Iterator[Finding]:
    """Yield a finding for each queue whose tasks wait although no worker takes from it."""
    late = (now - LATE).timestamp()
    waiting = {
        name: (one.messages, datetime.fromtimestamp(one.oldest, UTC))
        for name, one in depths.items()
        if one.messages and one.oldest is not None and one.oldest <= late
    }
    if not waiting:
        return
    present = present_workers(now)
    for queue, (messages, since) in sorted(waiting.items()):
        if not present.get(queue):
            yield Finding(
                "worker-silent",
                "",
                queue,
                f"{counted(messages, 'task')} stay in the queue {queue}, and no worker that takes "
                "from it has a heartbeat.",
                "# is it running, and what does its log say?\n"
                f"celery -A gpuportal worker --queues {queue}",
                since=since,
            )


class WorkerPresence:
    """The heartbeat of a worker: a thread renews a lease for each queue that it takes from."""

    def __init__(self, queues: Collection[str]) -> None:
        self._leases = ProcessLeases(seconds=_PRESENT_SECONDS)
        self._names = [worker_lease(queue, self._leases.token) for queue in sorted(queues)]
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="presence", daemon=True)

    def start(self) -> None:
        """Show the worker until `stop`."""
        self._thread.start()

    def stop(self) -> None:
        """Take the worker away at once."""
        self._ended.set()
        self._thread.join(_BEAT_SECONDS)

    def _run(self) -> None:
        while True:
            self._with_database(self._beat)
            if self._ended.wait(_BEAT_SECONDS):
                break
        self._with_database(lambda: self._leases.give_back(self._names))

    def _beat(self) -> None:
        self._leases.renew()
        for name in self._names:
            self._leases.take(name)
        self._leases.forget_ended(WORKER)

    def _with_database(self, act: Callable[[], None]) -> None:
        try:
            act()
        except Error as error:
            logger.warning("the heartbeat of this worker was not written: %s", error)
        finally:
            # A child that is forked meanwhile would share the connection.
            connections.close_all()
