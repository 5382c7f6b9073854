"""Refreshing pending work beside the watch.

Here and not with what else follows from collected hours: the watch is to load no rooms above, which
would take a third of its memory.
"""

import logging
import threading
from collections.abc import Callable, Sequence
from datetime import UTC, datetime

from django.conf import settings
from django.db import DatabaseError, InterfaceError, OperationalError, connection
from msgspec import Struct

from apps.clusters.models import Cluster
from apps.pending.services.refresh import refresh

logger = logging.getLogger(__name__)


def diagnose_pending(cluster_id: int) -> int:
    """Diagnose the pending work of a cluster now; return how many items there are."""
    return refresh(cluster_id, now=datetime.now(UTC))


def _everywhere(_: str) -> bool:
    return True


def clusters_to_diagnose(
    name: str | None = None, is_watched_here: Callable[[str], bool] = _everywhere
) -> list[int]:
    """Return the ids of the active clusters, or of the one of that name. One query.

    Of clusters with an API server only those that this process watches.
    """
    rows = Cluster.objects.filter(active=True).order_by("pk")
    return [
        row.pk
        for row in (rows.filter(name=name) if name else rows)
        if not row.kubernetes or is_watched_here(row.name)
    ]


class PendingRefresher(Struct, frozen=True):
    """A thread that diagnoses pending work until `stop` is set.

    Beat asks workers for the same, but one that collects weeks of hours has no time for it; a
    lease keeps two from doing it at once. What fails is kept with the cluster and tried again.
    """

    stop: threading.Event
    name: str | None = None
    clusters: Callable[[str | None], Sequence[int]] = clusters_to_diagnose
    diagnose: Callable[[int], int] = diagnose_pending
    seconds: float = float(settings.PENDING_SECONDS)

    def start(self) -> threading.Thread:
        """Begin; the thread ends soon after `stop` is set."""
        thread = threading.Thread(target=self.run, name="diagnose pending work", daemon=True)
        thread.start()
        return thread

    def run(self) -> None:
        """Diagnose every cluster, wait, and begin again."""
        try:
            while not self.stop.wait(self.seconds):
                self._diagnose_all()
        finally:
            # Each thread has a database connection of its own, which only it closes.
            connection.close()

    def _diagnose_all(self) -> None:
        try:
            for pk in self.clusters(self.name):
                self._diagnose_one(pk)
        except (DatabaseError, InterfaceError) as error:
            logger.warning("the catalog cannot be read now: %s", error)
            # Where the connection was lost, the next round makes a new one.
            connection.close_if_unusable_or_obsolete()

    def _diagnose_one(self, pk: int) -> None:
        try:
            self.diagnose(pk)
        except (OperationalError, InterfaceError):
            raise
        except Exception:
            # Whatever it is, the other clusters are looked at, and this one again.
            logger.exception("pending work of cluster %s could not be diagnosed", pk)
