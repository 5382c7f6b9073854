"""Writing the ledger of clusters from their API servers, each cluster in its own thread."""

import logging
import queue
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from typing import Any, NamedTuple, TypeVar

from django.db import DatabaseError, InterfaceError, OperationalError, connection

from apps.clusters.domain.observed.pods import explains_pending
from apps.clusters.gateways import cluster_source
from apps.clusters.models import Cluster
from apps.clusters.ports import ClusterSource, SourceRejected, SourceUnavailable
from apps.clusters.services.watch.claims import GROUP, discovered_claims
from apps.clusters.services.watch.collections import (
    EVENTS,
    Item,
    Relisted,
    Sources,
    WatchForbidden,
    WatchSilent,
    discovered_sources,
)
from apps.clusters.services.watch.informer import COLLECTIONS, Informer
from apps.clusters.services.watch.streams import (
    FIRST_DELAY_SECONDS,
    LONGEST_DELAY_SECONDS,
    Stream,
    wait_requested,
)

logger = logging.getLogger(__name__)

FLUSH_SECONDS = 1.0
MOST_AT_ONCE = 1000
# Somebody may install Kueue or upgrade the server while this runs.
DISCOVER_SECONDS = 600.0
# Bounded: while the database is away, streams stop reading instead of filling memory.
_QUEUE_LENGTH = 10_000
_JOIN_SECONDS = 5.0

T = TypeVar("T")

CATALOG_SECONDS = 30.0
Opener = Callable[[Cluster], ClusterSource | None]
Clock = Callable[[], datetime]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """How much one snapshot of a cluster found: GPU nodes, pods that ask for GPU, rows written."""

    nodes: int
    pods: int
    rows: int


def snapshot(cluster: Cluster, source: ClusterSource, now: datetime) -> Snapshot:
    """Write all that a cluster shows at `now`; the same twice changes nothing.

    Raises SourceUnavailable or SourceRejected before anything is written. Access to ResourceClaims
    and their kin, and to objects that only explain pending work, may be refused: that is noted, and
    the rest is written.
    """
    at = now.timestamp()
    found, items = _discovered(source, at)
    # Before the lists: what another process writes after them is newer than they are.
    informer = Informer(cluster.pk, source, found.claims, found.sources)
    items += [_listed(source, path, at) for path in found.claims]
    items += [Relisted(path, source.list(path).items, at) for path in COLLECTIONS]
    items += _explained(source, found.sources, at)
    informer.apply(items)
    rows = informer.write()
    nodes, pods = informer.counts
    return Snapshot(nodes=nodes, pods=pods, rows=rows)


class _Discovered(NamedTuple):
    """Optional collections that a server has: of claims, and those that explain pending work."""

    claims: tuple[str, ...]
    sources: Sources

    @property
    def optional(self) -> tuple[str, ...]:
        return (*self.claims, *self.sources.paths)


def _discovered(source: ClusterSource, at: float) -> tuple[_Discovered, list[Item]]:
    """Return the optional collections that the server has; what is refused, as what is to note.

    Raises SourceUnavailable.
    """
    claims: tuple[str, ...] = ()
    refused: list[Item] = []
    try:
        claims = discovered_claims(source)
    except SourceRejected as error:
        logger.warning("whether there are ResourceClaims cannot be asked: %s", error)
        refused = [WatchForbidden(GROUP, at, str(error))]
    return _Discovered(claims, discovered_sources(source, claims)), refused


def _listed(source: ClusterSource, path: str, at: float) -> Item:
    try:
        return Relisted(path, source.list(path).items, at)
    except SourceRejected as error:
        logger.warning("%s is left out: %s", path, error)
        return WatchForbidden(path, at, str(error))


def _explained(source: ClusterSource, sources: Sources, at: float) -> Iterator[Item]:
    """Yield the objects that explain pending work; a note for each collection that fails now."""
    for path in sources.paths:
        try:
            item = _listed(source, path, at)
        except SourceUnavailable as error:
            logger.warning("%s is left out: %s", path, error)
            item = WatchSilent(path, at, str(error))
        if path == EVENTS and isinstance(item, Relisted):
            item = replace(item, items=[one for one in item.items if explains_pending(one)])
        yield item


def follow(
    cluster: Cluster,
    source: ClusterSource,
    clock: Callable[[], datetime],
    stop: threading.Event,
    *,
    wait: Callable[[float], object] | None = None,
    flush_seconds: float = FLUSH_SECONDS,
) -> None:
    """Keep the ledger of a cluster up to date until `stop` is set.

    One thread reads each collection, this one writes: what arrived within `flush_seconds`, or 1000
    changes, at once. An outage of the API server or of the database is retried for ever (`wait`
    sleeps so many seconds or until the stop). After a stop it ends within seconds, with all that
    had arrived written. It also ends when the server has other optional collections than before, as
    after an upgrade: the caller then starts it again.
    """
    wait = wait or stop.wait
    found = _await_discovery(source, clock, stop, wait)
    if found is None:
        source.close()
        return
    served, refused = found
    inbox: queue.Queue[Item] = queue.Queue(maxsize=_QUEUE_LENGTH)
    ended = threading.Event()

    def stopped() -> bool:
        return stop.is_set() or ended.is_set()

    stream = partial(
        Stream, cluster.name, source=source, events=inbox, clock=clock, stopped=stopped, wait=wait
    )
    streams = _streams(served, stream)
    due = clock().timestamp() + DISCOVER_SECONDS
    threads = [_thread(stream) for stream in streams]
    try:
        informer = _persist(
            lambda: Informer(cluster.pk, source, served.claims, served.sources), stop, wait
        )
        if informer is None:
            return
        # Streams begin after the rows were read: whatever they show is newer than these.
        _persist_batch(informer, refused, streams, stop, wait)
        for thread in threads:
            thread.start()
        while not stop.is_set():
            batch = _gather(inbox, stop, flush_seconds)
            _persist_batch(informer, batch, streams, stop, wait)
            _check_alive(threads, stop)
            if clock().timestamp() >= due:
                due += DISCOVER_SECONDS
                if _is_outdated(served, source, cluster.name):
                    break
        # The next watch lists everything, but would not know when these changes happened.
        _persist_batch(informer, _arrived(inbox), streams, stop, wait)
    finally:
        ended.set()
        source.close()
        _join(threads)


def _join(threads: Iterable[threading.Thread]) -> None:
    """Wait for the threads that were started to end."""
    for thread in threads:
        if thread.ident is not None:
            thread.join(_JOIN_SECONDS)


def _streams(found: _Discovered, stream: Callable[..., Stream]) -> list[Stream]:
    """Return a stream for each collection, made by `stream`; none is begun."""
    return [
        stream(
            path=path,
            optional=path in found.optional,
            keep=explains_pending if path == EVENTS else None,
        )
        for path in (*COLLECTIONS, *found.optional)
    ]


def _thread(stream: Stream) -> threading.Thread:
    name = f"watch {stream.cluster} {stream.path}"
    return threading.Thread(target=stream.run, name=name, daemon=True)


def _await_discovery(
    source: ClusterSource,
    clock: Callable[[], datetime],
    stop: threading.Event,
    wait: Callable[[float], object],
) -> tuple[_Discovered, list[Item]] | None:
    """Return what `_discovered` does as soon as the server answers; None when stopped before."""
    delay = FIRST_DELAY_SECONDS
    while not stop.is_set():
        try:
            return _discovered(source, clock().timestamp())
        except SourceUnavailable as error:
            pause = max(delay, wait_requested(error))
            logger.warning("%s; trying again in %.0f s", error, pause)
            wait(pause)
            delay = min(delay * 2, LONGEST_DELAY_SECONDS)
    return None


def _is_outdated(before: _Discovered, source: ClusterSource, cluster: str) -> bool:
    """Say whether the server has other optional collections now; no where it does not tell."""
    try:
        claims = discovered_claims(source)
        found = _Discovered(claims, discovered_sources(source, claims))
    except (SourceRejected, SourceUnavailable) as error:
        logger.debug("cluster %s: not discovered: %s", cluster, error)
        return False
    if set(found.optional) != set(before.optional):
        logger.info("cluster %s: other collections are served; beginning anew", cluster)
        return True
    return False


def _persist_batch(
    informer: Informer,
    batch: list[Item],
    streams: list[Stream],
    stop: threading.Event,
    wait: Callable[[float], object],
) -> None:
    if _persist(lambda: informer.apply(batch), stop, wait):
        logger.info("the catalog's tiers name other resources or labels: listing again")
        for stream in streams:
            stream.relist.set()
    _persist(informer.write, stop, wait)


def _gather(inbox: "queue.Queue[Item]", stop: threading.Event, seconds: float) -> list[Item]:
    """Return what arrives within so many seconds, at most MOST_AT_ONCE; nothing when stopped."""
    until = time.monotonic() + seconds
    batch: list[Item] = []
    while len(batch) < MOST_AT_ONCE and not stop.is_set():
        left = until - time.monotonic()
        try:
            batch.append(inbox.get(timeout=left) if left > 0 else inbox.get_nowait())
        except queue.Empty:
            break
    return batch


def _arrived(inbox: "queue.Queue[Item]") -> list[Item]:
    """Return all changes that are ready to be written, without blocking for more."""
    return [inbox.get_nowait() for _ in range(inbox.qsize())]


def _persist(
    work: Callable[[], T], stop: threading.Event, wait: Callable[[float], object]
) -> T | None:
    """Do `work` until the database lets it; None when stopped meanwhile."""
    delay = FIRST_DELAY_SECONDS
    while True:
        try:
            return work()
        except (OperationalError, InterfaceError) as error:
            # Django opens a new connection only after the broken one is closed.
            connection.close_if_unusable_or_obsolete()
            if stop.is_set():
                logger.warning("stopped before the database could be written: %s", error)
                return None
            logger.warning("the database is away (%s); trying again in %.0f s", error, delay)
            wait(delay)
            delay = min(delay * 2, LONGEST_DELAY_SECONDS)


def _check_alive(threads: list[threading.Thread], stop: threading.Event) -> None:
    """Raise when a reader died of a programming error: half a watch must not look like one."""
    for thread in threads:
        if not thread.is_alive() and not stop.is_set():
            raise RuntimeError(f"{thread.name} ended unexpectedly; see the log above")


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
    catalog_seconds: float = CATALOG_SECONDS
    _running: dict[str, "_Watch"] = field(default_factory=dict)

    def run(self) -> None:
        """Watch until `stop` is set; all threads have ended when this returns."""
        while not self.stop.is_set():
            try:
                self._keep_in_step()
            except DatabaseError as error:
                logger.warning("the catalog cannot be read now: %s", error)
                connection.close_if_unusable_or_obsolete()
            self.stop.wait(self.catalog_seconds)
        for watch in self._running.values():
            watch.stop.set()
        for watch in self._running.values():
            watch.thread.join()

    def _keep_in_step(self) -> None:
        clusters = {
            cluster.name: cluster.kubernetes
            for cluster in self.catalog()
            if cluster.kubernetes and self.name in {None, cluster.name}
        }
        for name, watch in list(self._running.items()):
            # Another address or other credentials need new clients, so the watch begins anew.
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
                # Django closes the connections of requests, not those of our own threads.
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
