"""The control plane: everything that acts on objects, each in its turn, until all is settled."""

from collections.abc import Callable, Sequence
from copy import deepcopy
from functools import partial

from simulator.scheduler.admission import count_quotas
from simulator.scheduler.controllers import Controllers
from simulator.scheduler.gangs import Volcano
from simulator.scheduler.kubelet import Kubelets
from simulator.scheduler.kueue import Kueue
from simulator.scheduler.placing import Scheduler
from simulator.scheduler.store import Object, Store

REPEAT_SECONDS = 300
"""How often the scheduler tries again, though nothing has changed."""
_MOST_ROUNDS = 30

Step = tuple[int, Callable[["ControlPlane"], None]]
"""When something happens from outside (Unix seconds), and what."""


class Unsettled(Exception):
    """Controllers that undo each other's work: an error of the lab."""


class ControlPlane:
    """Objects and those who act on them; `others` are nodes that never have room."""

    def __init__(self, store: Store, others: Sequence[Object] = ()) -> None:
        self.store = store
        self.scheduler = Scheduler(store, others)
        self.controllers = Controllers(store)
        self._kubelets = Kubelets(store)
        self._kueue = Kueue(store)
        self._volcano = Volcano(store)
        self._actors: tuple[Callable[[], None], ...] = (
            self.controllers.run,
            self._kueue.run,
            self._volcano.run,
            self.scheduler.run,
            self._kubelets.run,
            partial(count_quotas, store),
        )
        self._steps: list[Step] = []
        self._repeat_at = store.now + REPEAT_SECONDS

    def fork(self) -> "ControlPlane":
        """Return another that goes on by itself from here; the objects are shared."""
        shared = {id(item): item for life in self.store.lives for _, item in life.versions}
        return deepcopy(self, shared)

    def plan(self, steps: Sequence[Step]) -> None:
        """Enter what is going to happen, besides what was entered before."""
        self._steps = sorted([*self._steps, *steps], key=lambda step: step[0])

    def next_time(self) -> int:
        """Return when something happens next."""
        times = [self._repeat_at, self._kubelets.next_time(), self.controllers.next_time()]
        times += [self._steps[0][0]] if self._steps else []
        return min(at for at in times if at is not None)

    def advance(self, until: int) -> None:
        """Let everything happen that happens up to a time (included)."""
        while (at := self.next_time()) <= until:
            self.store.now = max(at, self.store.now)
            while self._steps and self._steps[0][0] <= at:
                self._steps.pop(0)[1](self)
                self.settle()
            if self._repeat_at <= at:
                self._repeat_at = at + REPEAT_SECONDS
                self.scheduler.repeat()
            self.settle()
        self.store.now = max(until, self.store.now)

    def settle(self) -> None:
        """Give each controller a turn until none changes anything."""
        seen: dict[int, int] = {}
        for _ in range(_MOST_ROUNDS):
            rest = True
            for place, act in enumerate(self._actors):
                # Who has seen all there is, and left it so, has nothing to do.
                if seen.get(place) != self.store.changes:
                    rest = False
                    before = self.store.changes
                    act()
                    seen[place] = before
            if rest:
                return
        raise Unsettled(f"no rest after {_MOST_ROUNDS} rounds at {self.store.now}")
