"""Writing the pod ledger, node spells and namespaces of a cluster from its API server."""

import logging
import queue
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import TypeVar

from django.db import InterfaceError, OperationalError, connection

from apps.clusters.models import Cluster
from apps.clusters.ports import ClusterSource
from apps.clusters.services.recorder import COLLECTIONS, Item, Listed, Recorder
from apps.clusters.services.streams import (
    FIRST_DELAY_SECONDS,
    LONGEST_DELAY_SECONDS,
    Stream,
)

logger = logging.getLogger(__name__)

FLUSH_SECONDS = 1.0
MOST_AT_ONCE = 1000
_INBOX = 10_000
_JOIN_SECONDS = 5.0

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Snapshot:
    """How much one look at a cluster found: GPU nodes, pods that ask for GPU, rows written."""

    nodes: int
    pods: int
    rows: int


def snapshot(cluster: Cluster, source: ClusterSource, now: datetime) -> Snapshot:
    """Write one whole look at a cluster, taken at `now`; the same look twice changes nothing.

    Raises SourceUnavailable or SourceRejected before anything is written.
    """
    # Before the lists: what another process writes after them is newer than they are.
    recorder = Recorder(cluster.pk, source)
    lists = [Listed(path, source.list(path).items, now.timestamp()) for path in COLLECTIONS]
    recorder.take(lists)
    rows = recorder.write()
    nodes, pods = recorder.counts
    return Snapshot(nodes=nodes, pods=pods, rows=rows)


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

    One thread reads each collection, this one writes: what arrived within `flush_seconds`, or
    1000 changes, at once. An outage of the API server or of the database is waited out for
    ever (`wait` sleeps so many seconds or until the stop). It then ends within seconds, with
    all that had arrived written.
    """
    wait = wait or stop.wait
    inbox: queue.Queue[Item] = queue.Queue(maxsize=_INBOX)
    ended = threading.Event()

    def stopped() -> bool:
        return stop.is_set() or ended.is_set()

    streams = [
        Stream(cluster.name, path, source, inbox, clock, stopped, wait, threading.Event())
        for path in COLLECTIONS
    ]
    threads = [
        threading.Thread(target=s.run, name=f"watch {cluster.name} {s.path}", daemon=True)
        for s in streams
    ]
    try:
        recorder = _persist(lambda: Recorder(cluster.pk, source), stop, wait)
        for thread in threads:
            thread.start()
        while recorder is not None and not stop.is_set():
            batch = _gather(inbox, stop, flush_seconds)
            _record(recorder, batch, streams, stop, wait)
            _check_alive(threads, stop)
        if recorder is not None:
            _record(recorder, _arrived(inbox), streams, stop, wait)
    finally:
        ended.set()
        source.close()
        for thread in threads:
            if thread.ident is not None:
                thread.join(_JOIN_SECONDS)


def _record(
    recorder: Recorder,
    batch: list[Item],
    streams: list[Stream],
    stop: threading.Event,
    wait: Callable[[float], object],
) -> None:
    if _persist(lambda: recorder.take(batch), stop, wait):
        logger.info("the catalog's tiers name other resources or labels: listing again")
        for stream in streams:
            stream.relist.set()
    _persist(recorder.write, stop, wait)


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
    """Return all that waits to be written, without waiting for more."""
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
