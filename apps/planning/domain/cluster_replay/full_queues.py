"""Queues that have room for none of their pending work, and what must change for that."""

from collections import defaultdict
from collections.abc import Iterable
from math import inf

from apps.planning.domain.cluster_replay.inputs import SLACK, ReplayQueue
from apps.planning.domain.cluster_replay.quota_tree import QuotaCell, QuotaTree

_NO_COHORT = QuotaCell(0.0, 0.0, None, None, [])


class FullQueues:
    """Queues that need not be looked at until their cohort has as much more as they lack.

    That holds while the use and the pending work of the queue itself stay the same: `forget` a
    queue where these change.
    """

    def __init__(self, tree: QuotaTree, queues: Iterable[ReplayQueue]) -> None:
        # What the cohort of each queue has of each flavor.
        self._cohorts = {
            queue.name: tuple(
                tree.cell(queue.name, key).parent or _NO_COHORT for key in queue.quotas
            )
            for queue in queues
        }
        # What the cohort must have of each flavor. A woken queue is full again as soon as another
        # one of the cohort takes what was given back, so it is forgotten only when it changes.
        self._needed: dict[str, tuple[float, ...]] = {}
        # By tree, and there by cohort and flavor: what each queue that is full needs.
        self._asleep: dict[int, dict[QuotaCell, dict[str, float]]] = defaultdict(
            lambda: defaultdict(dict)
        )
        self._places = {
            name: [self._asleep[tree.root(name)][cell] for cell in cells]
            for name, cells in self._cohorts.items()
        }

    def add(self, name: str, lacks: float) -> None:
        """Let a queue be until its cohort has `lacks` units more; where 0, until a release."""
        self._needed[name] = tuple(
            [cell.passed_on() + lacks if lacks > 0 else -inf for cell in self._cohorts[name]]
        )
        self._put_to_sleep(name)

    def stays_full(self, name: str, lacks: float) -> bool:
        """Let a queue be that got a work which lacks so many units; False where it is looked at."""
        needed = self._needed.get(name)
        if lacks <= 0 or not needed or -inf in needed:
            return False
        self._needed[name] = tuple(
            [
                min(units, cell.passed_on() + lacks)
                for cell, units in zip(self._cohorts[name], needed, strict=True)
            ]
        )
        self._put_to_sleep(name)
        return True

    def forget(self, name: str) -> None:
        """Look at a queue again."""
        if self._needed.pop(name, None) is not None:
            for asleep in self._places[name]:
                asleep.pop(name, None)

    def is_full(self, name: str) -> bool:
        """Say whether a queue, woken or not, has no more room than before."""
        needed = self._needed.get(name)
        if needed is None:
            return False
        for cell, units in zip(self._cohorts[name], needed, strict=True):
            # Most often it lacks nothing that could be told.
            if units == -inf or cell.passed_on() >= units - SLACK:
                return False
        return True

    def woken(self, root: int) -> list[str]:
        """Return the queues of a tree that may have room after a release."""
        found = []
        for cell, asleep in self._asleep[root].items():
            if asleep:
                # All of a cohort have the same.
                lent = cell.passed_on() + SLACK
                found += [name for name, units in asleep.items() if units <= lent]
        return found

    def _put_to_sleep(self, name: str) -> None:
        for asleep, units in zip(self._places[name], self._needed[name], strict=True):
            asleep[name] = units
