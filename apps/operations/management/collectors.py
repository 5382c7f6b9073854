"""Collecting in several processes: while one computes, the metrics server works for another."""

import multiprocessing
import signal
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

import django

from apps.clusters.domain.window import Window

if TYPE_CHECKING:
    # A spawned process imports this module before Django is set up: no models at import.
    from apps.usage.services import HourOutcome

_TRIES = 4


class HourBatch(NamedTuple):
    """Hours of a cluster that are collected together: a day at most."""

    cluster: str
    window: Window


class Collected(NamedTuple):
    """How the hours of a stretch ended, and how long it took."""

    stretch: HourBatch
    ended: Sequence["HourOutcome"]
    seconds: float


class CollectorEnded(Exception):
    """A collecting process ended before its work was done."""


def collect_here(plan: Sequence[HourBatch]) -> Iterator[Collected]:
    """Collect one stretch after the other in this process; yield each as it ends."""
    for stretch in plan:
        yield _collect(stretch)


@contextmanager
def collecting(plan: Sequence[HourBatch], jobs: int) -> Iterator[Iterator[Collected]]:
    """Collect in `jobs` processes from now on; they end with the context, done or not.

    Gives the stretches as they end. Killing a process does no harm: an hour is written in one
    transaction. Raises CollectorEnded.
    """
    before = set(multiprocessing.active_children())
    processes = ProcessPoolExecutor(
        min(jobs, len(plan)), multiprocessing.get_context("spawn"), initializer=django.setup
    )
    try:
        # A Ctrl-C means nothing to these processes: who started them ends them.
        with signal_handled(signal.SIGINT, signal.SIG_IGN):
            asked = [processes.submit(_collect, stretch) for stretch in plan]
        yield _done(asked)
    finally:
        processes.shutdown(wait=False, cancel_futures=True)
        started = set(multiprocessing.active_children()) - before
        for process in started:
            process.terminate()
        for process in started:
            process.join()


def _done(asked: Sequence[Future[Collected]]) -> Iterator[Collected]:
    for one in as_completed(asked):
        failure = one.exception()
        if failure is not None:
            raise CollectorEnded(f"a collecting process ended: {failure}") from failure
        yield one.result()


def _collect(stretch: HourBatch) -> Collected:
    """Collect a stretch; try again when the database does not answer for a moment.

    SQLite gives its lock to whichever writer asks first, so one of several may wait in vain.
    """
    # A process of its own reads this module before Django is set up in it.
    from django.db import OperationalError, connection

    from apps.usage import services

    started = time.monotonic()
    for tries_left in reversed(range(_TRIES)):
        try:
            ended = services.collect_window(stretch.cluster, stretch.window, now=datetime.now(UTC))
            break
        except OperationalError:
            if not tries_left:
                raise
            connection.close()
    return Collected(stretch, ended, time.monotonic() - started)


@contextmanager
def signal_handled(number: signal.Signals, handler: Any) -> Iterator[None]:
    """Let a signal be handled by `handler` for a while, as `signal.signal` takes it."""
    before = signal.signal(number, handler)
    try:
        yield
    finally:
        signal.signal(number, before)
