"""Writing the ledger of clusters from their API servers, each cluster in its own thread."""

import logging
import queue
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from typing import Any, NamedTuple, TypeVar

from django.db import InterfaceError, OperationalError, connection
from msgspec import Struct

from apps.accounts.domain.structs import replace
from apps.clusters.domain.observed.pods import explains_pending
from apps.clusters.gateways import cluster_source
from apps.clusters.models import Cluster
from apps.clusters.ports import ClusterSource, SourceRejected, SourceUnavailable
from apps.clusters.services.watch.claims import GROUP, discovered_claims
from apps.clusters.services.watch.collections import (
    COLLECTIONS,
    EVENTS,
    NODES,
    Item,
    Relisted,
    Sources,
    WatchForbidden,
    WatchSilent,
    discovered_sources,
)
from apps.clusters.services.watch.informer import Informer
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
_QUEUE_LENGTH = 10_000
# Where nodes cannot be listed, pods are written all the same.
_NODES_SECONDS = 10.0
_JOIN_SECONDS = 5.0

T = TypeVar("T")

Opener = Callable[[Cluster], ClusterSource | None]
Clock = Callable[[], datetime]


class Snapshot(Struct, frozen=True):
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


def _always() -> bool:
    return True


class WatchRun(Struct, frozen=True):
    """How a watch runs: until `stop` is set, and writing only while `may_write` says yes.

    `wait` sleeps so many seconds or until the stop; what arrives within `flush_seconds` is written
    at once.
    """

    clock: Clock
    stop: threading.Event
    may_write: Callable[[], bool] = _always
    wait: Callable[[float], object] | None = None
    flush_seconds: float = FLUSH_SECONDS

    def sleep(self, seconds: float) -> None:
        (self.wait or self.stop.wait)(seconds)

    def persist(self, work: Callable[[], T]) -> T | None:
        """Do `work` as soon as the database lets it and it is ours; None when stopped before.

        While the database is away the right to write cannot be renewed: both must come back.
        """
        delay = FIRST_DELAY_SECONDS
        while True:
            try:
                if self.may_write():
                    return work()
                reason = "the right to write has not been renewed"
            except (OperationalError, InterfaceError) as error:
                # Django opens a new connection only after the broken one is closed.
                connection.close_if_unusable_or_obsolete()
                reason = f"the database is away ({error})"
            if self.stop.is_set():
                logger.warning("stopped before the database could be written: %s", reason)
                return None
            logger.warning("%s; trying again in %.0f s", reason, delay)
            self.sleep(delay)
            delay = min(delay * 2, LONGEST_DELAY_SECONDS)


class _Streams:
    """The streams of one cluster, each in its thread; what they tell arrives in `inbox`."""

    def __init__(self, cluster: str, source: ClusterSource, run: WatchRun) -> None:
        # Bounded: while the database is away, streams stop reading instead of filling memory.
        self.inbox: queue.Queue[Item] = queue.Queue(maxsize=_QUEUE_LENGTH)
        self._cluster, self._source, self._run = cluster, source, run
        self._running: dict[str, _Running] = {}

    def serve(self, found: "_Discovered") -> None:
        """Begin what is served and not followed yet, end what is served no more."""
        paths = (*COLLECTIONS, *found.optional)
        for path in self._running.keys() - set(paths):
            # Its watch may last for a minute: no other work depends on it.
            self._running.pop(path).ended.set()
        for path in paths:
            if path not in self._running:
                self._running[path] = self._begun(path, optional=path in found.optional)

    def list_again(self) -> None:
        """Have every collection listed anew."""
        for running in self._running.values():
            running.stream.relist.set()

    def check_alive(self) -> None:
        """Raise when a reader died of a programming error: half a watch must not look like one."""
        for thread in (running.thread for running in self._running.values()):
            if not thread.is_alive() and not self._run.stop.is_set():
                raise RuntimeError(f"{thread.name} ended unexpectedly; see the log above")

    def end(self) -> None:
        """End all streams and close the source; raises nothing."""
        for running in self._running.values():
            running.ended.set()
        self._source.close()
        for running in self._running.values():
            running.thread.join(_JOIN_SECONDS)

    def _begun(self, path: str, *, optional: bool) -> "_Running":
        ended = threading.Event()
        stream = Stream(
            self._cluster,
            path,
            source=self._source,
            events=self.inbox,
            clock=self._run.clock,
            stopped=lambda: self._run.stop.is_set() or ended.is_set(),
            wait=self._run.sleep,
            optional=optional,
            keep=explains_pending if path == EVENTS else None,
        )
        name = f"watch {self._cluster} {path}"
        thread = threading.Thread(target=stream.run, name=name, daemon=True)
        thread.start()
        return _Running(stream, thread, ended)


class _Running(NamedTuple):
    stream: Stream
    thread: threading.Thread
    ended: threading.Event


def follow(cluster: Cluster, source: ClusterSource, run: WatchRun) -> None:
    """Keep the ledger of a cluster up to date until the run is stopped.

    One thread reads each collection, this one writes: what arrived within the flush time, or 1000
    changes, at once. An outage of the API server or of the database is retried for ever. After a
    stop it ends within seconds, with all that had arrived written. Collections that explain pending
    work may come and go meanwhile. It also ends when those of claims do, as after an upgrade of the
    server: the caller then starts it again.
    """
    found = _await_discovery(source, run)
    if found is None:
        source.close()
        return
    served, refused = found
    streams = _Streams(cluster.name, source, run)
    due = run.clock().timestamp() + DISCOVER_SECONDS
    try:
        informer = run.persist(lambda: Informer(cluster.pk, source, served.claims, served.sources))
        if informer is None:
            return
        # Streams begin after the rows were read: whatever they show is newer than these.
        _persist_batch(informer, refused, streams, run)
        streams.serve(served)
        _persist_batch(informer, _gather_first(streams.inbox, run), streams, run)
        while not run.stop.is_set():
            batch = _gather(streams.inbox, run.stop, run.flush_seconds)
            _persist_batch(informer, batch, streams, run)
            streams.check_alive()
            if run.clock().timestamp() >= due:
                due += DISCOVER_SECONDS
                before, served = served, _served_now(served, source, cluster.name)
                if served.claims != before.claims:
                    break
                if served.sources.paths != before.sources.paths:
                    informer.serve(served.sources)
                    streams.serve(served)
        # The next watch lists everything, but would not know when these changes happened.
        _persist_batch(informer, _arrived(streams.inbox), streams, run)
    finally:
        streams.end()


def _await_discovery(source: ClusterSource, run: WatchRun) -> tuple[_Discovered, list[Item]] | None:
    """Return what `_discovered` does as soon as the server answers; None when stopped before."""
    delay = FIRST_DELAY_SECONDS
    while not run.stop.is_set():
        try:
            return _discovered(source, run.clock().timestamp())
        except SourceUnavailable as error:
            pause = max(delay, wait_requested(error))
            logger.warning("%s; trying again in %.0f s", error, pause)
            run.sleep(pause)
            delay = min(delay * 2, LONGEST_DELAY_SECONDS)
    return None


def _served_now(before: _Discovered, source: ClusterSource, cluster: str) -> _Discovered:
    """Return the optional collections that the server has now; as before where it does not tell."""
    try:
        claims = discovered_claims(source)
        found = _Discovered(claims, discovered_sources(source, claims))
    except (SourceRejected, SourceUnavailable) as error:
        logger.debug("cluster %s: not discovered: %s", cluster, error)
        return before
    if set(found.optional) == set(before.optional):
        return before
    logger.info("cluster %s: other collections are served", cluster)
    return found


def _persist_batch(informer: Informer, batch: list[Item], streams: _Streams, run: WatchRun) -> None:
    if run.persist(lambda: informer.apply(batch)):
        logger.info("the catalog's tiers name other resources or labels: listing again")
        streams.list_again()
    run.persist(informer.write)


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


def _gather_first(inbox: "queue.Queue[Item]", run: WatchRun) -> list[Item]:
    """Return what arrives until nodes are listed: what HAMi gave pods is read with its nodes."""
    until = time.monotonic() + _NODES_SECONDS
    batch: list[Item] = []
    while time.monotonic() < until and len(batch) < _QUEUE_LENGTH and not run.stop.is_set():
        batch += _gather(inbox, run.stop, run.flush_seconds)
        if any(isinstance(item, Relisted) and item.path == NODES for item in batch):
            break
    return batch


def _arrived(inbox: "queue.Queue[Item]") -> list[Item]:
    """Return all changes that are ready to be written, without blocking for more."""
    return [inbox.get_nowait() for _ in range(inbox.qsize())]


class UnknownWatchCluster(Exception):
    """The catalog has no active cluster of that name; the text names those it has."""


class WatchedCluster(Struct, frozen=True):
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


def snapshot_cluster(name: str, *, now: datetime) -> Snapshot:
    """Write one look at a cluster. Raises SourceUnavailable, SourceRejected or UnknownCluster."""
    clusters_to_watch(name)
    cluster = Cluster.objects.get(name=name)
    source = _opened(cluster, cluster_source)
    try:
        return snapshot(cluster, source, now)
    finally:
        source.close()


def watch_cluster(name: str, run: WatchRun, *, opener: Opener = cluster_source) -> None:
    """Follow a cluster until the run is stopped, or until it cannot go on; says why in the log."""
    logger.info("cluster %s: watching", name)
    try:
        cluster = Cluster.objects.get(name=name)
        while not run.stop.is_set():
            follow(cluster, _opened(cluster, opener), run)
    except SourceRejected as error:
        logger.error("cluster %s cannot be watched: %s", name, error)  # noqa: TRY400
    except Exception:
        # Whatever it is, the other clusters go on, and this one is taken up again.
        logger.exception("cluster %s: the watch broke; it is started again", name)
    logger.info("cluster %s: no longer watching", name)


def _opened(cluster: Cluster, opener: Opener) -> ClusterSource:
    source = opener(cluster)
    if source is None:
        raise SourceRejected(
            f"cluster {cluster.name} has no kubernetes entry in the catalog: its pod ledger comes "
            "from kube-state-metrics series, and there is nothing to watch"
        )
    return source
