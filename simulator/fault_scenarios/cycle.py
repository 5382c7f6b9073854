"""One cycle of the fault scenarios as it was played: every object with its versions."""

from collections.abc import Callable, Iterator, Sequence
from threading import Lock

from simulator.fault_scenarios import script, site
from simulator.fleet import Node
from simulator.scheduler.plane import ControlPlane
from simulator.scheduler.store import Object, ObjectLife, Store

EVENT_SECONDS = 3600
"""How long an event is kept (the API server's default)."""


class FaultCycle:
    """The fault scenarios of a cluster, cycle by cycle since `begins`.

    `others` gives the cluster's other nodes as they are at a time; they never have room for
    what is in the fault scenarios, and are counted where the scheduler counts nodes.
    """

    def __init__(
        self,
        *,
        seed: str,
        begins: int,
        ground: Sequence[Node],
        others: Callable[[int], list[Object]],
    ) -> None:
        self.seed = seed
        self.begins = begins
        self.ground = tuple(ground)
        self.node_names = frozenset(node.name for node in ground)
        self.namespaces = frozenset(site.NAMESPACES)
        self._others = others
        self._played: dict[int, list[ObjectLife]] = {}
        self._playing = Lock()
        self._paused: dict[int, ControlPlane] = {}

    def number(self, at: int) -> int:
        """Return the number of the cycle of a time."""
        return (at - self.begins) // site.CYCLE_SECONDS

    def base(self, number: int) -> int:
        """Return when a cycle starts."""
        return self.begins + number * site.CYCLE_SECONDS

    def plane(self, number: int) -> ControlPlane:
        """Return a control plane at the start of a cycle, with all of its script ahead."""
        base = self.base(number)
        store = Store(self.seed, number, base)
        site.build(store, self.seed, self.begins, self.ground, base)
        plane = ControlPlane(store, self._others(base))
        plane.plan(script.steps(base))
        plane.settle()
        return plane

    def plane_at(self, now: int) -> ControlPlane:
        """Return a control plane as it is at a time (Unix seconds), in the middle of its cycle.

        Some are kept as they are, so that the next goes on from the last before it.
        """
        number = self.number(now)
        earlier = [at for at in list(self._paused) if self.base(number) <= at <= now]
        paused = self._paused.get(max(earlier)) if earlier else None
        plane = paused.fork() if paused else self.plane(number)
        plane.advance(now)
        while len(self._paused) >= _MOST_PAUSED:
            # Another thread may have dropped the same one.
            self._paused.pop(next(iter(self._paused)), None)
        self._paused[now] = plane.fork()
        return plane

    def lives(self, number: int) -> list[ObjectLife]:
        """Return what was there in a cycle; played once, then kept for a while."""
        # A watch that begins lists twenty kinds at once: one of them plays, the others wait for it.
        with self._playing:
            found = self._played.get(number)
            if found is None:
                plane = self.plane(number)
                plane.advance(self.base(number + 1) - 1)
                found = plane.store.lives
                while len(self._played) >= _MOST_CACHED:
                    self._played.pop(next(iter(self._played)))
                self._played[number] = found
        return found

    def seen(self, plural: str, start: int, end: int) -> Iterator[tuple[int, ObjectLife]]:
        """Yield (number of its cycle, object) of a kind that may be there in start..end."""
        first = start - EVENT_SECONDS if plural == "events" else start
        for number in range(max(0, self.number(first)), self.number(end) + 1):
            for life in self.lives(number):
                if life.plural == plural:
                    yield number, life

    def next_change(self, after: int) -> int | None:
        """Return the next whole second at which anything of them changes."""
        if after < self.begins:
            return self.begins
        number = self.number(after)
        times = (at // 1000 for life in self.lives(number) for at in times_of(life))
        return min((at for at in times if at > after), default=self.base(number + 1))


_MOST_CACHED = 4
_MOST_PAUSED = 32


def times_of(life: ObjectLife) -> list[int]:
    """Return the versions at which an object changes; an event goes an hour after its last."""
    times = [at for at, _ in life.versions]
    gone = gone_at(life)
    return times if gone is None else [*times, gone]


def gone_at(life: ObjectLife) -> int | None:
    """Return the version from which an object is not there any more."""
    if life.plural != "events":
        return life.deleted
    expires = life.versions[-1][0] + EVENT_SECONDS * 1000
    return expires if life.deleted is None else min(life.deleted, expires)
