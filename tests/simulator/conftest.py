"""The whole scenarios, made once, at a time that does not move."""

import pytest

from simulator.scenarios.base import Scenario
from simulator.scenarios.registry import published_trace
from simulator.scenarios.trace import Trace
from tests.served_lab import scenario_of

NOW = 1_795_300_000
"""2026-11-21 20:26:40 UTC."""


@pytest.fixture(scope="session")
def trace() -> Trace:
    return published_trace()


@pytest.fixture(scope="session")
def helios() -> Scenario:
    return scenario_of("helios", NOW)


@pytest.fixture(scope="session")
def reference() -> Scenario:
    return scenario_of("reference", NOW)


@pytest.fixture(scope="session")
def openb() -> Scenario:
    return scenario_of("openb", NOW)


@pytest.fixture(scope="session")
def campus() -> Scenario:
    return scenario_of("campus", NOW)
