"""Looking at what waits beside the watch, however busy the workers are with hours."""

import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from django.conf import settings
from django.db import DatabaseError, InterfaceError, OperationalError, connection

from apps.clusters.models import Cluster
from apps.pending import services as pending

logger = logging.getLogger(__name__)


def look_at_waiting(cluster_id: int) -> int:
    """Look at what waits in a cluster now; return how many things do."""
    return pending.refresh(cluster_id, now=datetime.now(UTC))


def clusters_to_look_at(name: str | None = None) -> list[int]:
    """Return the ids of the active clusters, or of the one of that name. One query."""
    rows = Cluster.objects.filter(active=True).order_by("pk")
    return list((rows.filter(name=name) if name else rows).values_list("pk", flat=True))


@dataclass(frozen=True, slots=True)
class WaitingLooks:
    """A thread that looks at what waits until `stop` is set.

    Beat asks workers for the same, but one that collects weeks of hours has no time for it; a
    lease keeps two from doing it at once. What fails is kept with the cluster and tried again.
    """

    stop: threading.Event
    name: str | None = None
    clusters: Callable[[str | None], Sequence[int]] = clusters_to_look_at
    look: Callable[[int], int] = look_at_waiting
    seconds: float = float(settings.WAITING_SECONDS)

    def start(self) -> threading.Thread:
        """Begin; the thread ends soon after `stop` is set."""
        thread = threading.Thread(target=self.run, name="look at waiting", daemon=True)
        thread.start()
        return thread

    def run(self) -> None:
        """Look at every cluster, wait, and begin again."""
        try:
            while not self.stop.wait(self.seconds):
                self._look_at_all()
        finally:
            connection.close()

    def _look_at_all(self) -> None:
        try:
            for pk in self.clusters(self.name):
                self._look_at(pk)
        except (DatabaseError, InterfaceError) as error:
            logger.warning("the catalog cannot be read now: %s", error)
            connection.close_if_unusable_or_obsolete()

    def _look_at(self, pk: int) -> None:
        try:
            self.look(pk)
        except (OperationalError, InterfaceError):
            raise
        except Exception:
            # Whatever it is, the other clusters are looked at, and this one again.
            logger.exception("what waits in cluster %s could not be looked at", pk)
