"""Celery's beat with its schedule in the database: of several beats one sends, the others wait.

`CELERY_BEAT_SCHEDULER` names the class below. A task of once a day keeps its turn over a restart,
because the time of each task's last run is kept.
"""

import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from celery.beat import Scheduler
from django.conf import settings
from django.db import DatabaseError, InterfaceError, connection

from apps.accounts.services.process_leases import ProcessLeases
from apps.operations.models import BEAT_LEASE, ScheduledRun
from gpuportal.telemetry.metrics import BEAT_TICK

CHECK_SECONDS = 10.0

logger = logging.getLogger(__name__)


class DatabaseScheduler(Scheduler):  # type: ignore[misc]
    """Sends what is due while it holds the lease; tries to take it otherwise."""

    # Seconds: what was sent since the last writing may be sent again after a crash.
    sync_every = 60

    def __init__(self, *args: Any, leases: ProcessLeases | None = None, **kwargs: Any) -> None:
        self._leases = leases or ProcessLeases()
        self._checked: float | None = None
        super().__init__(*args, **kwargs)

    def setup_schedule(self) -> None:
        """Take in the tasks of the settings; when they last ran is read with the lease."""
        self.merge_inplace(self.app.conf.beat_schedule)

    def tick(self, *args: Any, **kwargs: Any) -> float:
        """Send what is due; return after how many seconds to come again."""
        leads = self._leads()
        seconds = float(super().tick(*args, **kwargs)) if leads else CHECK_SECONDS
        # One label alone: a beat that lost the lease must not look as if it still led.
        BEAT_TICK.clear()
        BEAT_TICK.labels("yes" if leads else "no").set_to_current_time()
        # Well within the time of the lease, so that it is renewed before it ends.
        return min(seconds, CHECK_SECONDS)

    def sync(self) -> None:
        """Keep when each task last ran; where the database is away, the next time."""
        if self._leases.holds(BEAT_LEASE):
            self._with_database(self._write)

    def close(self) -> None:
        """Let another beat go on at once."""
        # This writes, for which the lease is needed; only then it is given back.
        super().close()
        self._with_database(lambda: self._leases.give_back([BEAT_LEASE]))

    def _leads(self) -> bool:
        now = time.monotonic()
        if self._checked is None or now - self._checked >= CHECK_SECONDS:
            self._checked = now
            # The liveness probe reads the file's time, also while this process is idle.
            Path(settings.BEAT_ALIVE_FILE).touch()
            self._with_database(self._renew)
            self._forget_times_to_come()
        return self._leases.holds(BEAT_LEASE)

    def _renew(self) -> None:
        if BEAT_LEASE not in self._leases.renew() and self._leases.take(BEAT_LEASE):
            logger.info("this beat sends from now on")
            self._read()

    def _read(self) -> None:
        """Go on where the last beat ended."""
        for name, at in ScheduledRun.objects.values_list("name", "last_run_at"):
            if name in self.schedule:
                self.schedule[name].last_run_at = at
        # Celery keeps due times in a heap beside the entries; without one it is built anew.
        self._heap = None
        self._forget_times_to_come()

    def _forget_times_to_come(self) -> None:
        """Take a task for run now that ran later: its clock was set back, and it would wait."""
        now = self.app.now()
        for entry in self.schedule.values():
            if entry.last_run_at > now:
                entry.last_run_at = now
                self._heap = None

    def _write(self) -> None:
        rows = [
            ScheduledRun(name=e.name, last_run_at=e.last_run_at) for e in self.schedule.values()
        ]
        ScheduledRun.objects.bulk_create(
            rows, update_conflicts=True, unique_fields=["name"], update_fields=["last_run_at"]
        )
        ScheduledRun.objects.exclude(name__in=[row.name for row in rows]).delete()

    def _with_database(self, work: Callable[[], None]) -> None:
        try:
            work()
        except (DatabaseError, InterfaceError) as error:
            logger.warning("the database is away: %s", error)
            connection.close_if_unusable_or_obsolete()
