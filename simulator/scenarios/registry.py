"""Finds scenarios by name."""

from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import NamedTuple

from simulator.fleet import DAY, FOREVER
from simulator.scenarios import helios, openb, reference
from simulator.scenarios.base import Scenario
from simulator.scenarios.campus import failures, scenario
from simulator.scenarios.trace import MINUTE, Trace, read_trace


class UnknownScenario(Exception):
    """No scenario has that name, or it cannot use what it was given."""


class _Entry(NamedTuple):
    title: str
    make: Callable[[int, int | None, int, Path | None], Scenario]


def _reference(seed: int, origin: int | None, now: int, data: Path | None) -> Scenario:
    if data is not None:
        raise UnknownScenario("scenario reference is made up: it reads no data file")
    return reference.Reference(seed=seed, origin=_origin(origin, now, reference.DAYS * DAY))


def _helios(seed: int, origin: int | None, now: int, data: Path | None) -> Scenario:
    trace = read_trace(data) if data else published_trace()
    length = trace.minutes * MINUTE
    return helios.Helios(seed=seed, origin=_origin(origin, now, length), trace=trace)


def _campus(seed: int, origin: int | None, now: int, data: Path | None) -> Scenario:
    trace = read_trace(data) if data else published_trace()
    return scenario.Campus(seed=seed, origin=_origin(origin, now, scenario.DAYS * DAY), trace=trace)


def _campus_failures(seed: int, origin: int | None, now: int, data: Path | None) -> Scenario:
    trace = read_trace(data) if data else published_trace()
    start = _origin(origin, now, scenario.DAYS * DAY)
    losses = [failures.NodeLoss("a100-04", start + 30 * DAY + 7200)]
    return failures.FailingCampus(
        seed=seed,
        origin=start,
        trace=trace,
        planted=(start, FOREVER),
        losses=losses,
        bad=failures.BAD_HARDWARE,
    )


def _openb(seed: int, origin: int | None, now: int, data: Path | None) -> Scenario:
    if data is not None:
        raise UnknownScenario("scenario openb has a placement of its own: it reads no data file")
    return openb.OpenB(seed=seed, origin=_origin(origin, now, openb.DAYS * DAY))


@cache
def published_trace() -> Trace:
    """Return the trace that comes with the simulator, which takes more than a second to read."""
    return read_trace(helios.FILE)


def _origin(origin: int | None, now: int, length: int) -> int:
    """Return the start: as given, else so that the scenario ends at the last midnight UTC."""
    return now // DAY * DAY - length if origin is None else origin


_SCENARIOS: Mapping[str, _Entry] = {
    "campus": _Entry(scenario.Campus.title, _campus),
    "campus-failures": _Entry(failures.FailingCampus.title, _campus_failures),
    "helios": _Entry(helios.Helios.title, _helios),
    "openb": _Entry(openb.OpenB.title, _openb),
    "reference": _Entry(reference.Reference.title, _reference),
}


def titles() -> Mapping[str, str]:
    """Return what each scenario is, by name."""
    return {name: entry.title for name, entry in _SCENARIOS.items()}


def load(
    name: str, *, now: int, seed: int = 1, origin: int | None = None, data: Path | None = None
) -> Scenario:
    """Return a scenario; `now` and `origin` in Unix seconds, `data` a file in its trace's form.

    Without an origin it is laid so that it ends at the last midnight UTC before `now`. Raises
    UnknownScenario for a name there is not, TraceError for data that cannot be read.
    """
    entry = _SCENARIOS.get(name)
    if entry is None:
        raise UnknownScenario(f"there is no scenario {name!r}: choose {', '.join(_SCENARIOS)}")
    return entry.make(seed, origin, now, data)
