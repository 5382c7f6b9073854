"""The fault scenarios alone, as a scenario of its own: quick to make and to ask."""

from collections.abc import Iterator
from functools import cache

from simulator.epochs import Epoch
from simulator.fault_scenarios import site
from simulator.fault_scenarios.cycle import FaultCycle
from simulator.fault_scenarios.pods import FaultPods, controllers_of, limits_of
from simulator.fault_scenarios.scenario import FaultScenario
from simulator.fleet import DAY

ORIGIN = 1_790_812_800
"""Midnight UTC, 2026-10-01: the start of the first cycle."""


class OnlyFaults(FaultScenario):
    """Twelve cycles a day of them, for two days."""

    name = "on-course"
    title = "the fault scenarios"

    def __init__(self, begins: int = ORIGIN, ends: int = ORIGIN + 2 * DAY) -> None:
        self.seed = "on-course"
        self.begins = begins
        self.nodes = site.nodes(self.seed, begins, 1)
        self.faults = FaultCycle(
            seed=self.seed, begins=begins, ground=self.nodes, others=lambda at: []
        )
        self.namespaces = site.namespaces(self.seed, begins)
        self.quotas = site.quotas(self.seed, begins)
        self.controllers = []
        self.teams = []
        pods = list(FaultPods(self.faults).between(begins, ends))
        self._epoch = Epoch(
            begins,
            ends,
            pods=pods,
            hard=limits_of(begins, ends),
            controllers=controllers_of(pods),
        )

    def epochs(self, start: int, end: int) -> Iterator[Epoch]:
        if end >= self.begins and start < self._epoch.end:
            yield self._epoch


@cache
def faults_once() -> OnlyFaults:
    """Return the scenario, made once a process: a lab keeps what is changed in it for itself."""
    return OnlyFaults()


def at_minute(minute: float, cycle: int = 1) -> int:
    """Return the Unix seconds of a minute of a cycle."""
    return ORIGIN + cycle * site.CYCLE_SECONDS + round(60 * minute)
