"""Watching the clusters of the catalog by name, each in its own thread."""

import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from django.db import DatabaseError, connection

from apps.clusters.gateways import cluster_source
from apps.clusters.models import Cluster
from apps.clusters.ports import ClusterSource, SourceRejected
from apps.clusters.services.watch.follow import Snapshot, follow, snapshot

logger = logging.getLogger(__name__)

LOOK_SECONDS = 30.0

Opener = Callable[[Cluster], ClusterSource | None]
Clock = Callable[[], datetime]


class UnknownWatchCluster(Exception):
    """The catalog has no active cluster of that name; the text names those it has."""


@dataclass(frozen=True, slots=True)
class WatchedCluster:
    """An active cluster of the catalog; without an API server there is nothing to watch."""

    name: str
    kubernetes: Mapping[str, Any] | None


def clusters_to_watch(name: str | None = None) -> list[WatchedCluster]:
    """Return the active clusters by name, or the one of that name. One query.

    Raises UnknownCluster when there is none of that name.
    """
    rows = Cluster.objects.filter(active=True).order_by("name")
    known = [WatchedCluster(row.name, row.kubernetes) for row in rows]
    if name is None:
        return known
    chosen = [cluster for cluster in known if cluster.name == name]
    if not chosen:
        names = ", ".join(cluster.name for cluster in known) or "none yet: run load_catalog"
        raise UnknownWatchCluster(f"no cluster is called {name!r}; the catalog has {names}")
    return chosen


def snapshot_cluster(name: str, *, now: datetime, opener: Opener = cluster_source) -> Snapshot:
    """Write one look at a cluster. Raises SourceUnavailable, SourceRejected or UnknownCluster."""
    clusters_to_watch(name)
    cluster = Cluster.objects.get(name=name)
    source = _opened(cluster, opener)
    try:
        return snapshot(cluster, source, now)
    finally:
        source.close()


def watch_cluster(
    name: str, stop: threading.Event, *, clock: Clock, opener: Opener = cluster_source
) -> None:
    """Follow a cluster until `stop` is set, or until that cannot go on; says why in the log."""
    logger.info("cluster %s: watching", name)
    try:
        cluster = Cluster.objects.get(name=name)
        follow(cluster, _opened(cluster, opener), clock, stop)
    except SourceRejected as error:
        logger.error("cluster %s cannot be watched: %s", name, error)  # noqa: TRY400
    except Exception:
        # Whatever it is, the other clusters go on, and this one is taken up again.
        logger.exception("cluster %s: the watch broke; it is started again", name)
    logger.info("cluster %s: no longer watching", name)


@dataclass(slots=True)
class Watchers:
    """One thread for each cluster that has an API server, kept in step with the catalog.

    A cluster that is loaded, changed or dropped while this runs is taken up, taken up anew or
    let go at the next look; so is one whose watch ended by itself. `watch` follows the cluster
    of a name until an event is set, `catalog` tells what there is; `name` picks one cluster.
    """

    watch: Callable[[str, threading.Event], None]
    stop: threading.Event
    name: str | None = None
    catalog: Callable[[], list[WatchedCluster]] = clusters_to_watch
    look_seconds: float = LOOK_SECONDS
    _running: dict[str, "_Watch"] = field(default_factory=dict)

    def run(self) -> None:
        """Watch until `stop` is set; all threads have ended when this returns."""
        while not self.stop.is_set():
            try:
                self._look()
            except DatabaseError as error:
                logger.warning("the catalog cannot be read now: %s", error)
                connection.close_if_unusable_or_obsolete()
            self.stop.wait(self.look_seconds)
        for watch in self._running.values():
            watch.stop.set()
        for watch in self._running.values():
            watch.thread.join()

    def _look(self) -> None:
        clusters = {
            cluster.name: cluster.kubernetes
            for cluster in self.catalog()
            if cluster.kubernetes and self.name in {None, cluster.name}
        }
        for name, watch in list(self._running.items()):
            if clusters.get(name) != watch.kubernetes or not watch.thread.is_alive():
                watch.stop.set()
                watch.thread.join()
                del self._running[name]
        for name in sorted(clusters.keys() - self._running.keys()):
            self._running[name] = self._start(name, clusters[name])

    def _start(self, name: str, kubernetes: Mapping[str, Any]) -> "_Watch":
        stop = threading.Event()

        def run() -> None:
            try:
                self.watch(name, stop)
            finally:
                connection.close()

        thread = threading.Thread(target=run, name=f"watch {name}")
        thread.start()
        return _Watch(kubernetes, thread, stop)


@dataclass(frozen=True, slots=True)
class _Watch:
    kubernetes: Mapping[str, Any]
    thread: threading.Thread
    stop: threading.Event


def _opened(cluster: Cluster, opener: Opener) -> ClusterSource:
    source = opener(cluster)
    if source is None:
        raise SourceRejected(
            f"cluster {cluster.name} has no kubernetes entry in the catalog: its pod ledger comes "
            "from kube-state-metrics series, and there is nothing to watch"
        )
    return source
