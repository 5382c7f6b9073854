"""One thread for each watched cluster, in step with the catalog and with other processes."""

import logging
import threading
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from django.db import DatabaseError, InterfaceError, connection
from msgspec import Struct, field

from apps.clusters.services.watch.follow import WatchedCluster, clusters_to_watch
from apps.clusters.services.watch.shares import ClusterShare

logger = logging.getLogger(__name__)

# A lease lasts three times as long: the clusters of a killed process are watched within a minute.
CATALOG_SECONDS = 10.0
Watch = Callable[[str, threading.Event, Callable[[], bool]], None]


class Watchers(Struct):
    """One thread for each cluster that has an API server, kept in step with the catalog.

    A cluster that is loaded, changed or dropped while this runs is taken up, taken up anew or
    let go at the next look; so is one whose watch ended by itself, and one that another process
    watches or may watch now. `watch` follows the cluster of a name until an event is set, and
    writes only while its third argument says yes; `catalog` tells what there is, `share` which of
    it is this process' part; `name` picks one cluster.
    """

    watch: Watch
    stop: threading.Event
    share: ClusterShare
    name: str | None = None
    catalog: Callable[[], list[WatchedCluster]] = clusters_to_watch
    catalog_seconds: float = CATALOG_SECONDS
    _running: dict[str, "_Watch"] = field(default_factory=dict)

    def run(self) -> None:
        """Watch until `stop` is set; all threads have ended when this returns."""
        while not self.stop.is_set():
            try:
                self._keep_in_step()
            except (DatabaseError, InterfaceError) as error:
                logger.warning("the catalog cannot be read now: %s", error)
                connection.close_if_unusable_or_obsolete()
            self.stop.wait(self.catalog_seconds)
        for watch in self._running.values():
            watch.stop.set()
        for watch in self._running.values():
            watch.thread.join()
        try:
            self.share.leave(self._running)
        except (DatabaseError, InterfaceError) as error:
            logger.warning("other processes have to wait for the end of the leases: %s", error)

    def _keep_in_step(self) -> None:
        clusters = {
            cluster.name: cluster.kubernetes
            for cluster in self.catalog()
            if cluster.kubernetes and self.name in {None, cluster.name}
        }
        ours = self.share.settle(clusters)
        ended = []
        for name, watch in list(self._running.items()):
            # Another address or other credentials need new clients, so the watch begins anew.
            changed = clusters.get(name) != watch.kubernetes
            if changed or name not in ours or not watch.thread.is_alive():
                watch.stop.set()
                watch.thread.join()
                del self._running[name]
                ended.append(name)
        # After the last write: the next watcher lists everything anew.
        self.share.give_back([name for name in ended if name not in ours])
        for name in sorted(ours - self._running.keys()):
            self._running[name] = self._start(name, clusters[name])

    def _start(self, name: str, kubernetes: Mapping[str, Any]) -> "_Watch":
        stop = threading.Event()

        def run() -> None:
            try:
                self.watch(name, stop, partial(self.share.may_write, name))
            finally:
                # Django closes the connections of requests, not those of our own threads.
                connection.close()

        thread = threading.Thread(target=run, name=f"watch {name}")
        thread.start()
        return _Watch(kubernetes, thread, stop)


class _Watch(Struct, frozen=True):
    kubernetes: Mapping[str, Any]
    thread: threading.Thread
    stop: threading.Event
