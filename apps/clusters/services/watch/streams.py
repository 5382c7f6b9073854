"""Following one collection for ever: list, watch, take up again, list anew when too far behind."""

import logging
import queue
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from apps.clusters.ports import ClusterSource, SourceRejected, SourceUnavailable, WatchExpired
from apps.clusters.services.watch.watch_events import (
    Item,
    Relisted,
    WatchClosed,
    WatchEvent,
    WatchForbidden,
    WatchSilent,
)

logger = logging.getLogger(__name__)

FIRST_DELAY_SECONDS = 1.0
LONGEST_DELAY_SECONDS = 60.0
MOST_ASKED_SECONDS = 300.0
_PUT_SECONDS = 1.0
_SLOW_PUTS = 5
SILENT_SECONDS = 90.0
"""A collection that is not told of for so long is said to be unanswered."""


class _Stopped(Exception):
    """Nobody reads the inbox any more."""


def asked_to_wait(error: Exception) -> float:
    """Return how long a server asks to be left alone, in seconds; a watch waits no longer than
    MOST_ASKED_SECONDS."""
    asked = error.retry_after_seconds if isinstance(error, SourceUnavailable) else 0.0
    return min(asked, MOST_ASKED_SECONDS)


@dataclass(slots=True)
class Stream:
    """One collection's changes, put into `inbox` in order, until `stopped` says so.

    `wait` sleeps for a number of seconds or until the stop. The inbox is bounded: when the
    database is away, reading stops too, and the server cuts the connection when it likes. What
    is `optional` may be refused: that is handed on and logged once, and asked again now and then.
    So is that the server does not tell of it for SILENT_SECONDS: others may still be answered.
    `keep` says which objects are of interest at all: others never reach the inbox.
    """

    cluster: str
    path: str
    source: ClusterSource
    inbox: "queue.Queue[Item]"
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

    def run(self) -> None:
        """Follow the collection; returns after a stop. Only a programming error is raised."""
        while not self.stopped():
            try:
                self._once()
            except WatchExpired as error:
                logger.info("cluster %s: %s; listing again", self.cluster, error)
                self._version = ""
                # A server that forgets at once must not be listed in a tight loop.
                self.wait(FIRST_DELAY_SECONDS)
            except SourceUnavailable as error:
                if not self._is_heard(error):
                    return
                self._back_off(error, "trying again")
            except SourceRejected as error:
                self._delay = LONGEST_DELAY_SECONDS
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
        asked = self._now()
        for change in self.source.watch(self.path, resource_version=self._version):
            changes += 1
            at_once = True
            if change.type == "BOOKMARK" or self.keep is None or self.keep(change.object):
                at_once = self._put(WatchEvent(self.path, change, self._now(), asked))
            self._version = change.resource_version or self._version
            self._heard()
            if self.stopped():
                return
            if not at_once:
                # What has come in meanwhile is late, which a stream taken up again makes known.
                return
        self._put(WatchClosed(self.path, self._now(), asked))
        self._silent_since = None
        if not changes:
            # A server that ends every watch at once must not be asked in a tight loop.
            self.wait(FIRST_DELAY_SECONDS)

    def _list(self) -> None:
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
        self._version = listing.resource_version
        self._heard()
        self._refused = False

    def _heard(self) -> None:
        self._delay, self._silent_since = 0.0, None

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
        self._delay = min(max(self._delay * 2, FIRST_DELAY_SECONDS), LONGEST_DELAY_SECONDS)
        self._delay = max(self._delay, asked_to_wait(error))
        if self.stopped():
            return
        again = self._refused
        self._refused = self.optional and isinstance(error, SourceRejected)
        level = logging.DEBUG if again and self._refused else logging.WARNING
        logger.log(level, "cluster %s: %s; %s in %.0f s", self.cluster, error, then, self._delay)
        self.wait(self._delay)

    def _put(self, item: Item) -> bool:
        """Hand on an item; return whether that took less than _SLOW_PUTS × put_seconds."""
        tries = 0
        while not self.stopped():
            try:
                self.inbox.put(item, timeout=self.put_seconds)
            except queue.Full:
                tries += 1
                continue
            return tries < _SLOW_PUTS
        raise _Stopped

    def _now(self) -> float:
        return self.clock().timestamp()
