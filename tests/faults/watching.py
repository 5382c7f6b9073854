"""A watch in the thread of its test, which takes turns with the simulator's clock."""

import queue
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime

from django.db import connection, transaction

from apps.clusters.domain.observed.pods import explains_pending
from apps.clusters.gateways import cluster_source
from apps.clusters.models import Cluster
from apps.clusters.services.watch.claims import discovered_claims
from apps.clusters.services.watch.collections import (
    COLLECTIONS,
    EVENTS,
    Item,
    WatchClosed,
    discovered_sources,
)
from apps.clusters.services.watch.informer import Informer
from apps.clusters.services.watch.streams import Stream
from apps.pending.services import refresh
from simulator.fault_scenarios.cycle import times_of
from tests.faults.collecting import Collecting
from tests.faults.proxy import Fault, Request
from tests.simulator.only_faults import faults_once

_OF_PROMETHEUS = re.compile(r"/api/v1/(query|query_range|labels|series|metadata|status/|label/)")
_TOLD_IN_TIME = ("pods", "nodes", "resourceclaims")
"""Objects whose changes are dated by when they are seen, as far as they have no time themselves."""


class Killed(BaseException):
    """The process is no more: nothing catches this."""


class Watch:
    """A watch process, turn by turn: what `follow` does in threads, in one.

    In a turn each stream is followed until it has told all that there is, or failed; then what
    came is written. Whoever drops it has killed the process: a new one knows the database alone.
    Raises SourceUnavailable while the API server does not tell what it serves.
    """

    def __init__(self, now: Callable[[], datetime]) -> None:
        self._now = now
        cluster = Cluster.objects.get()
        source = cluster_source(cluster)
        assert source is not None
        claims = discovered_claims(source)
        sources = discovered_sources(source, claims)
        self._pk, self._name, self._source = cluster.pk, cluster.name, source
        self._informer = Informer(cluster.pk, source, claims, sources)
        self._inbox: queue.Queue[Item] = queue.Queue()
        self._waits = 0.0
        optional = (*claims, *sources.paths)
        self._streams = {
            path: self._stream(path, optional=path in optional)
            for path in (*COLLECTIONS, *optional)
        }
        self._rests: dict[str, float] = {}

    def turn(self) -> None:
        """Take in what the API server tells until now, and write it."""
        now, batch = self._now().timestamp(), list[Item]()
        for path, stream in self._streams.items():
            if self._rests.get(path, 0.0) <= now:
                self._waits = 0.0
                stream.run()
                self._rests[path] = now + self._waits
                batch += [self._inbox.get_nowait() for _ in range(self._inbox.qsize())]
        if self._informer.apply(batch):
            for stream in self._streams.values():
                stream.relist.set()
        self._informer.write()

    def refresh(self) -> None:
        """Find out why what is pending is pending."""
        refresh(self._pk, now=self._now())

    def end(self) -> None:
        """Close the connections, of which the process would take leave with its end."""
        self._source.close()

    def _stream(self, path: str, *, optional: bool) -> Stream:
        return Stream(
            self._name,
            path,
            source=self._source,
            events=self._inbox,
            clock=self._now,
            stopped=self._is_over,
            wait=self._note_wait,
            optional=optional,
            keep=explains_pending if path == EVENTS else None,
        )

    def _is_over(self) -> bool:
        last = self._inbox.queue[-1] if self._inbox.qsize() else None
        return self._waits > 0.0 or isinstance(last, WatchClosed)

    def _note_wait(self, seconds: float) -> None:
        self._waits = seconds


@contextmanager
def watching(portal: Collecting) -> Iterator[Watch]:
    """Yield a watch that begins now; it writes nothing more after the end."""
    # Every watch then ends in order as soon as it has told everything.
    portal.clock.close()
    made = Watch(portal.now)
    try:
        yield made
    finally:
        made.end()


@contextmanager
def killed_at(statement: int) -> Iterator[None]:
    """Raise Killed instead of that statement of the database, counted from 1, to be caught here."""
    left = statement

    def count(execute: Callable[..., object], *given: object) -> object:
        nonlocal left
        left -= 1
        # Once: the savepoint that is rolled back is the database's part of it.
        if left == 0:
            raise Killed
        return execute(*given)

    try:
        with connection.execute_wrapper(count):
            yield
    except Killed:
        # What was begun is rolled back; the transaction of the test goes on.
        transaction.set_rollback(False)


def changes(start: float, end: float) -> list[float]:
    """Return the Unix seconds of start..end at which what is dated by being seen changes."""
    course = faults_once().faults
    numbers = range(course.number(int(start)), course.number(int(end)) + 1)
    times = {
        -(-version // 1000)
        for number in numbers
        for life in course.lives(number)
        if life.plural in _TOLD_IN_TIME
        for version in times_of(life)
    }
    return sorted(float(at) for at in times if start <= at < end)


def without_api_server(request: Request) -> Fault | None:
    """Refuse what is asked of the Kubernetes API; Prometheus answers."""
    return None if _OF_PROMETHEUS.match(request.path) else Fault.REFUSED
