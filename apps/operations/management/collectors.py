"""Collecting in several processes: while one computes, the metrics server works for another."""

import multiprocessing
import signal
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import TYPE_CHECKING, Any, NamedTuple

import django

from apps.clusters.domain.window import Window

if TYPE_CHECKING:
    # A spawned process imports this module before Django is set up: no models at import.
    from apps.usage.services import HourOutcome

_QUEUED_HOURS = 2
"""Stretches in progress: a process continues with the next one while the days before are summed."""

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
    """A collecting process ended before its work was done; its log says why."""


class _Collector(NamedTuple):
    process: BaseProcess
    pipe: "Connection[Any, Any]"


def collect_here(plan: Sequence[HourBatch]) -> Iterator[Collected]:
    """Collect one stretch after the other in this process; yield each as it ends."""
    for stretch in plan:
        yield _collect(stretch)


@contextmanager
def collecting(plan: Sequence[HourBatch], jobs: int) -> Iterator[Iterator[Collected]]:
    """Collect in `jobs` processes from now on; they end with the context, done or not.

    Gives the stretches as they end, about in the plan's order. Killing a process does no harm: an
    hour is written in one transaction. Raises CollectorEnded.
    """
    context = multiprocessing.get_context("spawn")
    started: list[_Collector] = []
    try:
        # A Ctrl-C means nothing to these processes: who started them ends them.
        with signal_handled(signal.SIGINT, signal.SIG_IGN):
            for _ in range(min(jobs, len(plan))):
                here, there = context.Pipe()
                process = context.Process(target=_serve, args=(there,), daemon=True)
                process.start()
                there.close()
                started.append(_Collector(process, here))
        hands = {one.pipe: 0 for one in started}
        left = deque(plan)
        # Before anything is asked for what is done: they work while who asks is still busy.
        for _ in range(_QUEUED_HOURS):
            for pipe in hands:
                _give(pipe, hands, left)
        yield _done(hands, left)
    finally:
        for one in started:
            one.process.terminate()
        for one in started:
            one.process.join()


_Hands = dict["Connection[Any, Any]", int]
"""How many stretches each process has in hand."""


def _give(pipe: "Connection[Any, Any]", hands: _Hands, left: deque[HourBatch]) -> None:
    if left:
        try:
            pipe.send(left.popleft())
        except BrokenPipeError as error:
            # It had answered once more before it ended.
            raise CollectorEnded("a collecting process ended; its log says why") from error
        hands[pipe] += 1


def _done(hands: _Hands, left: deque[HourBatch]) -> Iterator[Collected]:
    while busy := [pipe for pipe, count in hands.items() if count]:
        for ready in wait(busy):
            pipe = next(one for one in busy if one is ready)
            try:
                done = pipe.recv()
            except EOFError as error:
                raise CollectorEnded("a collecting process ended; its log says why") from error
            hands[pipe] -= 1
            _give(pipe, hands, left)
            yield done


def _serve(pipe: "Connection[Any, Any]") -> None:
    """Collect what comes through the pipe until its other end is closed."""
    django.setup()
    while True:
        try:
            stretch = pipe.recv()
        except EOFError:
            return
        pipe.send(_collect(stretch))


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
