"""Following one collection for ever: list, watch, take up again; and the time this covers."""

import contextlib
import logging
import queue
import threading
from collections.abc import Callable, Collection, Mapping
from datetime import datetime
from typing import Any

from msgspec import Struct, field

from apps.clusters.ports import ClusterSource, SourceRejected, SourceUnavailable, WatchExpired
from apps.clusters.services.watch.collections import (
    Item,
    Relisted,
    WatchClosed,
    WatchEvent,
    WatchForbidden,
    WatchSilent,
)
from gpuportal.telemetry.metrics import WATCH_CONNECTED, WATCH_EVENT, WATCH_RELISTS

# A stream that is well proves itself more often than this: it ends in order after a minute.
GAP_SECONDS = 90.0
# A stream that resumes within this time delays its readers hardly at all.
PROMPT_SECONDS = 5.0

logger = logging.getLogger(__name__)
FIRST_DELAY_SECONDS = 1.0
# A server that is back is heard within this time.
LONGEST_DELAY_SECONDS = 8.0
REFUSED_DELAY_SECONDS = 60.0
CREDENTIALS_DELAY_SECONDS = 10.0
MOST_WAIT_SECONDS = 300.0
_SETTLED_SECONDS = 10.0
"""After so long a watch has told of everything that was there when it began."""
_PUT_SECONDS = 1.0
_SLOW_PUTS = 5
SILENT_SECONDS = 90.0
"""A collection that is not told of for so long is said to be unanswered."""


class StreamCoverage:
    """The span in which every required stream was followed without a gap; Unix seconds.

    A list begins a span: earlier changes may have been missed. A bookmark, and the end of a stream
    in order, prove that all changes until then were delivered. So does a line, except on a stream
    that was resumed after a pause. There the server first sends the changes of the pause, and no
    line tells how many more follow: lines count as late until the next bookmark or the end. A pause
    of more than GAP_SECONDS leaves a gap: its changes are delivered, the times at which they
    happened are not.
    """

    def __init__(self, required: Collection[str]) -> None:
        self._required = set(required)
        self._waived: set[str] = set()
        self._proofs: dict[str, float] = {}
        # By collection whose lines are late: until when it had been followed before.
        self._behind: dict[str, float] = {}
        self._asked: dict[str, float] = {}
        self._start = 0.0
        self._finished: list[tuple[float, float]] = []
        self._written: tuple[float, float] | None = None

    def listed(self, path: str, at: float) -> None:
        """Note a whole list of a collection: what was proven before it is a span of its own."""
        if path in self._waived:
            self._waived.discard(path)
            self._required.add(path)
        if path not in self._required:
            return
        self._begin(path, at)
        self._behind.pop(path, None)
        self._asked.pop(path, None)

    def waive(self, path: str) -> None:
        """Note that a collection may not be read: until it is listed the others vouch alone."""
        if path in self._required:
            self._required.discard(path)
            self._waived.add(path)
            self._proofs.pop(path, None)
            self._behind.pop(path, None)

    def arrived(self, path: str, at: float, asked: float | None = None) -> bool:
        """Note a line of a stream asked for at `asked`; return whether it is late.

        A late line's change happened at any time since `last_proof`. Without `asked` the stream
        is taken to be as old as the last proof, unless that is older than a stream can be.
        """
        self._opened(path, at, asked)
        if path in self._behind:
            return True
        self._prove(path, at)
        return False

    def caught_up(self, path: str, at: float, asked: float | None = None) -> None:
        """Note a bookmark or an end in order: every change until `at` has arrived."""
        self._opened(path, at, asked)
        self._behind.pop(path, None)
        self._prove(path, at)

    def last_proof(self, path: str) -> float | None:
        """Return until when a collection was followed; None before its first list."""
        return self._behind.get(path, self._proofs.get(path))

    @property
    def span(self) -> tuple[float, float] | None:
        """The present span; None until every required collection was listed."""
        # A collection that was not listed yet can hide anything.
        if self._proofs.keys() != self._required:
            return None
        # The slowest stream decides: until then every change of all of them has arrived.
        return (self._start, max(self._start, min(self._proofs.values())))

    @property
    def unwritten(self) -> list[tuple[float, float]]:
        """The spans that ended or grew since `written`."""
        span = self.span
        grown = [] if span is None or span == self._written else [span]
        return [*self._finished, *grown]

    def written(self) -> None:
        """Note that these are in the database."""
        self._finished.clear()
        self._written = self.span

    def _opened(self, path: str, at: float, asked: float | None) -> None:
        """Take note of a stream's first sign of life."""
        proof = self.last_proof(path)
        if proof is None or (asked is not None and asked == self._asked.get(path)):
            return
        since = at if asked is None else asked
        if asked is None and since - proof <= GAP_SECONDS:
            return
        if asked is not None:
            self._asked[path] = asked
        # The changes of the pause still come. Only the times at which they happened are lost.
        if since - proof > GAP_SECONDS:
            self._begin(path, since)
        if since - proof > PROMPT_SECONDS:
            self._behind[path] = proof

    def _begin(self, path: str, at: float) -> None:
        span = self.span
        if span is not None:
            self._finished.append(span)
        # Collections are listed one after the other: a span begins with the last of them.
        self._start = max(at, self._start)
        self._proofs[path] = at

    def _prove(self, path: str, at: float) -> None:
        if path in self._proofs:
            self._proofs[path] = max(at, self._proofs[path])


class _Stopped(Exception):
    """The queue of watch events has no reader any more."""


def wait_requested(error: Exception) -> float:
    """Return how long a server asks to be left alone, in seconds; at most MOST_WAIT_SECONDS."""
    asked = error.retry_after_seconds if isinstance(error, SourceUnavailable) else 0.0
    return min(asked, MOST_WAIT_SECONDS)


def newer_version(known: str, other: str) -> str:
    """Return the newer of two versions of a collection; the known one where that is not told."""
    comparable = known.isdecimal() and other.isdecimal()
    return other if comparable and int(other) > int(known) else known


class Stream(Struct):
    """One collection's changes, put into `events` in order, until `stopped` says so.

    `wait` sleeps for a number of seconds or until the stop. The events is bounded: when the
    database is away, reading stops too, and the server cuts the connection when it likes. What
    is `optional` may be refused: that is handed on and logged once, and asked again now and then.
    So is that the server does not tell of it for SILENT_SECONDS: others may still be answered.
    `keep` says which objects are of interest at all: others never reach the events.

    Of some collections, as Events, no bookmark comes. Their last line is soon older than what the
    server remembers, and each quiet watch would end in a list of everything. So the version of
    before such a watch is taken at its end: all changes until then have arrived meanwhile.
    """

    cluster: str
    path: str
    source: ClusterSource
    events: "queue.Queue[Item]"
    clock: Callable[[], datetime]
    stopped: Callable[[], bool]
    wait: Callable[[float], object]
    relist: threading.Event = field(default_factory=threading.Event)
    put_seconds: float = _PUT_SECONDS
    optional: bool = False
    keep: Callable[[Mapping[str, Any]], bool] | None = None
    _version: str = ""
    _delay: float = 0.0
    _refused: bool = False
    _silent_since: float | None = None
    _connected: bool = False
    _unmarked: bool = False

    def run(self) -> None:
        """Follow the collection; returns after a stop. Only a programming error is raised."""
        try:
            self._follow()
        finally:
            self._note_connected(connected=False)

    def _follow(self) -> None:
        while not self.stopped():
            try:
                self._once()
            except WatchExpired as error:
                logger.info("cluster %s: %s; listing again", self.cluster, error)
                self._version = ""
                self._note_connected(connected=False)
                # A server that forgets at once must not be listed in a tight loop.
                self.wait(FIRST_DELAY_SECONDS)
            except SourceUnavailable as error:
                if not self._is_heard(error):
                    return
                self._back_off(error, "trying again")
            except SourceRejected as error:
                # A person has to give the right: asking sooner changes nothing. Credentials are
                # replaced by machines, and a file that changed is read for the next request.
                self._delay = (
                    CREDENTIALS_DELAY_SECONDS if error.credentials else REFUSED_DELAY_SECONDS
                )
                if not self._hand_on(WatchForbidden(self.path, self._now(), str(error))):
                    return
                self._back_off(error, "a person must act; trying again")
            except _Stopped:
                return

    def _once(self) -> None:
        if self.relist.is_set():
            self.relist.clear()
            self._version = ""
        if not self._version:
            self._list()
        changes = 0
        # Before the watch is asked for, which then tells of every change until this version. A
        # server without bookmarks would else leave a quiet collection at a version that expires.
        fresh = self.source.version(self.path) if self._unmarked else ""
        self._unmarked = True
        asked = self._now()
        for change in self.source.watch(self.path, resource_version=self._version):
            changes += 1
            at_once = True
            if change.type == "BOOKMARK":
                self._unmarked = False
            if change.type == "BOOKMARK" or self.keep is None or self.keep(change.object):
                at_once = self._put(WatchEvent(self.path, change, self._now(), asked))
            self._version = change.resource_version or self._version
            WATCH_EVENT.labels(self.cluster, self.path).set(self._now())
            self._heard()
            if self.stopped():
                return
            if not at_once:
                # What has come in meanwhile is late, which a stream taken up again makes known.
                return
        self._put(WatchClosed(self.path, self._now(), asked))
        if self._now() - asked >= _SETTLED_SECONDS:
            self._version = newer_version(self._version, fresh)
        self._silent_since = None
        self._note_connected(connected=True)
        if not changes:
            # A server that ends every watch at once must not be asked in a tight loop.
            self.wait(FIRST_DELAY_SECONDS)

    def _list(self) -> None:
        # The time before the request: what changes while it runs comes with the watch.
        at = self._now()
        listing = self.source.list(self.path)
        logger.info(
            "cluster %s: listed %d objects of %s at version %s",
            self.cluster,
            len(listing.items),
            self.path,
            listing.resource_version,
        )
        items = listing.items if self.keep is None else list(filter(self.keep, listing.items))
        self._put(Relisted(self.path, items, at))
        WATCH_RELISTS.labels(self.cluster, self.path).inc()
        self._version = listing.resource_version
        self._heard()
        self._refused = False

    def _heard(self) -> None:
        self._delay, self._silent_since = 0.0, None
        self._note_connected(connected=True)

    def _note_connected(self, *, connected: bool) -> None:
        if connected and not self._connected:
            WATCH_CONNECTED.labels(self.cluster, self.path).set(self._now())
        elif self._connected and not connected:
            with contextlib.suppress(KeyError):
                WATCH_CONNECTED.remove(self.cluster, self.path)
        self._connected = connected

    def _is_heard(self, error: SourceUnavailable) -> bool:
        """Tell that nothing is heard of what is optional; return whether anybody listens."""
        now = self._now()
        if self._silent_since is None:
            self._silent_since = now
        if now - self._silent_since < SILENT_SECONDS:
            return True
        return self._hand_on(WatchSilent(self.path, now, str(error)))

    def _hand_on(self, item: Item) -> bool:
        """Tell what keeps the stream of what is optional; return whether anybody listens."""
        if self.optional:
            try:
                self._put(item)
            except _Stopped:
                return False
        return True

    def _back_off(self, error: Exception, then: str) -> None:
        if not isinstance(error, SourceRejected):
            self._delay = min(max(self._delay * 2, FIRST_DELAY_SECONDS), LONGEST_DELAY_SECONDS)
        self._delay = max(self._delay, wait_requested(error))
        self._note_connected(connected=False)
        if self.stopped():
            return
        again = self._refused
        self._refused = self.optional and isinstance(error, SourceRejected)
        level = logging.DEBUG if again and self._refused else logging.WARNING
        logger.log(level, "cluster %s: %s; %s in %.0f s", self.cluster, error, then, self._delay)
        self.wait(self._delay)

    def _put(self, item: Item) -> bool:
        """Hand on an item; return whether that took less than _SLOW_PUTS × put_seconds."""
        # A full events means that the database is away. The server ends a stream that is not read.
        tries = 0
        while not self.stopped():
            try:
                self.events.put(item, timeout=self.put_seconds)
            except queue.Full:
                tries += 1
                continue
            return tries < _SLOW_PUTS
        raise _Stopped

    def _now(self) -> float:
        return self.clock().timestamp()
