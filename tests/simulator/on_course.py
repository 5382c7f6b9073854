"""The obstacle course alone, as a scenario of its own: quick to make and to ask."""

from collections.abc import Iterator

from simulator.epochs import Epoch
from simulator.fault_scenarios import site
from simulator.fault_scenarios.cycle import FaultCycle
from simulator.fault_scenarios.pods import CoursePods, controllers_of, limits_of
from simulator.fleet import DAY
from simulator.scenarios.base import Scenario

ORIGIN = 1_790_812_800
"""Midnight UTC, 2026-10-01: the start of the first cycle."""


class OnCourse(Scenario):
    """Two days of the course, twelve cycles each."""

    name = "on-course"
    title = "the obstacle course"

    def __init__(self) -> None:
        self.seed = "on-course"
        self.begins = ORIGIN
        self.nodes = site.nodes(self.seed, ORIGIN, 1)
        self.played = self.course = FaultCycle(
            seed=self.seed, begins=ORIGIN, ground=self.nodes, others=lambda at: []
        )
        self.namespaces = site.namespaces(self.seed, ORIGIN)
        self.quotas = site.quotas(self.seed, ORIGIN)
        self.controllers = []
        self.teams = []
        end = ORIGIN + 2 * DAY
        pods = list(CoursePods(self.course).between(ORIGIN, end))
        self._epoch = Epoch(
            ORIGIN,
            end,
            pods=pods,
            hard=limits_of(ORIGIN, end),
            controllers=controllers_of(pods),
        )

    def epochs(self, start: int, end: int) -> Iterator[Epoch]:
        if end >= ORIGIN and start < self._epoch.end:
            yield self._epoch


def at_minute(minute: float, cycle: int = 1) -> int:
    """Return the Unix seconds of a minute of a cycle."""
    return ORIGIN + cycle * site.CYCLE_SECONDS + round(60 * minute)
