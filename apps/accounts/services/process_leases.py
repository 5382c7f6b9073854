"""Work that one process of several does at a time: it holds a lease by name and renews it.

Another process takes over when the lease has run out, or at once where the holder is known to be
dead. A process that stood still finds its lease lost before it writes anything more: `holds` asks
no database, so it may be asked before each write.

The end of a lease is a time of the database's clock: that of a machine which runs ahead would take
leases that others still hold.
"""

import os
import socket
import time
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path

from django.db import connection
from msgspec import Struct, field

from apps.accounts.models import ProcessLease
from apps.accounts.services import leases

LEASE_SECONDS = 30.0


def this_process() -> str:
    """Return host, process namespace and process id: containers may share the first and last."""
    try:
        namespace = str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        namespace = ""
    return f"{socket.gethostname()}/{namespace}/{os.getpid()}"


def database_now() -> datetime:
    """Return the time by the database's clock. One query; none on SQLite, which has no other."""
    if connection.vendor != "postgresql":
        return datetime.now(UTC)
    with connection.cursor() as cursor:
        cursor.execute("SELECT clock_timestamp()")
        now: datetime = cursor.fetchone()[0]
    return now


class ProcessLeases(Struct):
    """The leases of one process. One thread renews, takes and gives back; any thread may ask."""

    clock: Callable[[], datetime] = database_now
    seconds: float = LEASE_SECONDS
    holder: str = field(default_factory=this_process)
    token: str = field(default_factory=leases.new_token)
    _held: frozenset[str] = frozenset()
    _until: float = 0.0

    def holds(self, name: str) -> bool:
        """Say whether the lease is certainly ours now; by the monotonic clock."""
        return name in self._held and time.monotonic() < self._until

    def renew(self) -> frozenset[str]:
        """Renew all leases and return the names of those that are still ours. Three queries."""
        # Taken before the question: an answer that was long on its way must not lengthen a lease.
        begun, mine = time.monotonic(), ProcessLease.objects.filter(lease=self.token)
        mine.update(lease_until=self.clock() + self._length)
        self._held = frozenset(mine.values_list("name", flat=True))
        self._until = begun + self.seconds
        return self._held

    def take(self, name: str) -> bool:
        """Take a lease that is free or whose holder is dead; say whether it is ours now."""
        if self.holds(name):
            return True
        begun, now = time.monotonic(), self.clock()
        row, _ = ProcessLease.objects.get_or_create(name=name)
        rows = ProcessLease.objects.filter(pk=row.pk)
        if row.holder and _is_dead(row.holder):
            rows.filter(lease=row.lease).update(lease_until=None)
        values = {"lease": self.token, "holder": self.holder, "lease_until": now + self._length}
        if leases.take(rows, now, **values) is None:
            return False
        # The others were renewed before this one: all last as long as the first of them.
        self._until = min(self._until, begun + self.seconds) if self._held else begun + self.seconds
        self._held |= {name}
        return True

    def give_back(self, names: Iterable[str]) -> None:
        """End leases, so that others need not wait for their end."""
        gone = frozenset(names)
        self._held -= gone
        ProcessLease.objects.filter(name__in=gone, lease=self.token).delete()

    def forget_ended(self, prefix: str) -> None:
        """Delete leases of that prefix that ended an hour ago: their names never come again."""
        ended = self.clock() - timedelta(hours=1)
        ProcessLease.objects.filter(name__startswith=prefix, lease_until__lt=ended).delete()

    @property
    def _length(self) -> timedelta:
        return timedelta(seconds=self.seconds)


def live_leases(prefix: str, now: datetime) -> int:
    """Return how many leases whose name begins so are held. One query."""
    return ProcessLease.objects.filter(name__startswith=prefix, lease_until__gt=now).count()


def _is_dead(holder: str) -> bool:
    """Say whether a holder is certainly gone: only of this machine's processes can that be told."""
    here, _, process_id = holder.rpartition("/")
    if here != this_process().rpartition("/")[0]:
        return False
    try:
        os.kill(int(process_id), 0)
    except ProcessLookupError:
        return True
    except (PermissionError, ValueError):
        pass  # there is such a process, of another user; or no number was written
    return False
