"""The fault scenarios from the first change on: no longer as written, but as they go on.

The changes are kept in memory alone: a lab that is started again knows nothing of them.
"""

from collections.abc import Callable, Iterator
from threading import RLock
from typing import TypeVar

from simulator.clock import Clock
from simulator.fault_scenarios import script
from simulator.fault_scenarios.cycle import EVENT_SECONDS, FaultCycle
from simulator.scheduler.plane import ControlPlane
from simulator.scheduler.store import ObjectLife

_T = TypeVar("_T")


class Live:
    """Plays the fault scenarios on from now once somebody writes; until then it is not `active`."""

    def __init__(self, faults: FaultCycle, clock: Clock) -> None:
        self._faults = faults
        self._clock = clock
        self._lock = RLock()
        self._plane: ControlPlane | None = None
        self._number = 0
        self._since_ms = 0

    @property
    def active(self) -> bool:
        return self._plane is not None

    @property
    def since_ms(self) -> int:
        """From which version on what it shows holds: the start of the cycle of the first change."""
        return self._since_ms

    def covers(self, version: int) -> bool:
        """Say whether a version is as it was changed, rather than as written."""
        return self.active and version >= self._since_ms

    def version(self, now_ms: int) -> int:
        """Bring it up to the time and return the version of now."""
        with self._lock:
            if self._plane is None:
                return now_ms
            self._advance(self._plane, now_ms)
            return max(now_ms, self._plane.store.version)

    def write(self, act: Callable[[ControlPlane], _T]) -> _T:
        """Let something happen now, and everything that follows from it; wakes the watches."""
        with self._lock:
            now_ms = self._clock.now_ms()
            plane = self._plane or self._begin(now_ms)
            self._advance(plane, now_ms)
            plane.store.floor = now_ms
            done = act(plane)
            plane.controllers.wake()
            plane.settle()
        self._clock.nudge()
        return done

    def read(self, look: Callable[[ControlPlane], _T]) -> _T:
        """Return what is seen in it now; nothing may be changed."""
        with self._lock:
            return look(self._plane or self._faults.plane_at(self._clock.now_ms() // 1000))

    def lives(self, plural: str) -> Iterator[ObjectLife]:
        """Yield what it has of a kind, and the events of the cycle before it."""
        with self._lock:
            if self._plane is None:
                return
            found = [life for life in self._plane.store.lives if life.plural == plural]
            if plural == "events":
                base = self._since_ms // 1000
                earlier = self._faults.seen(plural, base - EVENT_SECONDS, base - 1)
                found += [life for _, life in earlier]
        yield from found

    def _begin(self, now_ms: int) -> ControlPlane:
        self._number = self._faults.number(now_ms // 1000)
        plane = self._faults.plane_at(now_ms // 1000)
        plane.store.ticking = False
        self._since_ms = self._faults.base(self._number) * 1000
        self._plane = plane
        return plane

    def _advance(self, plane: ControlPlane, now_ms: int) -> None:
        now = now_ms // 1000
        while now >= self._faults.base(self._number + 1):
            base = self._faults.base(self._number + 1)
            plane.advance(base - 1)
            self._number += 1
            plane.store.start_cycle(self._number)
            plane.store.forget((base - EVENT_SECONDS) * 1000)
            plane.plan(script.steps(base))
        plane.advance(now)
