"""A lab served from a thread of the test, for whoever talks to it as a client."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

from simulator.catalog import catalog_yaml
from simulator.clock import Clock, PinnedClock
from simulator.fleet import DAY
from simulator.scenarios.base import Scenario
from simulator.scenarios.registry import load
from simulator.server import LabServer

_DEADLINE_SECONDS = 20.0


def scenario_of(name: str, now: float) -> Scenario:
    """Return a scenario as of `now` (Unix seconds), made once a process.

    A lab keeps what is changed in it for itself.
    """
    return _scenario_of(name, int(now) // DAY * DAY)


@cache
def _scenario_of(name: str, midnight: int) -> Scenario:
    # Of the time, scenarios take the day alone.
    return load(name, now=midnight)


def reference_catalog(url: str) -> str:
    """Return the catalog that fits a lab of the reference scenario at a URL."""
    return catalog_yaml(scenario_of("reference", time.time()), url=url)


@contextmanager
def served_reference() -> Iterator[str]:
    """Serve the reference scenario by real time, for processes beside the test; yield the URL."""
    with served_by(scenario_of("reference", time.time()), Clock()) as url:
        yield url


@contextmanager
def served_lab(scenario: Scenario, now: float) -> Iterator[str]:
    """Serve a scenario with its clock pinned at `now` (Unix seconds) and yield the URL."""
    with served_by(scenario, PinnedClock(round(now * 1000))) as url:
        yield url


@contextmanager
def served_by(scenario: Scenario, clock: Clock) -> Iterator[str]:
    """Serve a scenario by a clock, which the test may advance, and yield the URL."""
    with LabServer(scenario, clock) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield server.url
        finally:
            server.stop()
            thread.join(_DEADLINE_SECONDS)
