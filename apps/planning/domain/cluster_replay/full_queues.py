"""Queues that have room for none of their pending work, and what must change for that."""

from collections import defaultdict
from collections.abc import Iterable
from math import inf

from apps.planning.domain.cluster_replay.inputs import SLACK, FlavorTier, ReplayQueue
from apps.planning.domain.cluster_replay.quota_tree import QuotaTree


class FullQueues:
    """Queues that need not be looked at until their cohort has as much more as they lack.

    That holds while the use and the pending work of the queue itself stay the same: `forget` a
    queue where these change.
    """

    def __init__(self, tree: QuotaTree, queues: Iterable[ReplayQueue]) -> None:
        self._tree = tree
        self._keys = {queue.name: tuple(queue.quotas) for queue in queues}
        # What the cohort must have of each flavor. It is kept when a queue is woken: most often
        # another one of the cohort takes what was given back.
        self._needed: dict[str, tuple[float, ...]] = {}
        # By tree, and there by cohort and flavor: what each queue that is full needs.
        self._asleep: dict[int, dict[tuple[int, FlavorTier], dict[str, float]]] = defaultdict(
            lambda: defaultdict(dict)
        )
        self._places = {
            name: [self._asleep[tree.root(name)][tree.cohort(name), key] for key in keys]
            for name, keys in self._keys.items()
        }

    def add(self, name: str, lacks: float) -> None:
        """Let a queue be until its cohort has `lacks` units more; where 0, until a release."""
        self._needed[name] = tuple(
            self._tree.lent(name, key) + lacks if lacks > 0 else -inf for key in self._keys[name]
        )
        self._put_to_sleep(name)

    def forget(self, name: str) -> None:
        """Look at a queue again."""
        if self._needed.pop(name, None) is not None:
            self._wake(name)

    def is_full(self, name: str) -> bool:
        """Say whether a queue that was woken has no more room than before; it is let be again."""
        needed = self._needed.get(name)
        if needed is None:
            return False
        for key, units in zip(self._keys[name], needed, strict=True):
            # Most often it lacks nothing that could be told.
            if units == -inf or self._tree.lent(name, key) >= units - SLACK:
                return False
        self._put_to_sleep(name)
        return True

    def woken(self, root: int) -> list[str]:
        """Return the queues of a tree that may have room after a release."""
        found = []
        for (_, key), asleep in self._asleep[root].items():
            if asleep:
                # All of a cohort have the same.
                lent = self._tree.lent(next(iter(asleep)), key) + SLACK
                found += [name for name, units in asleep.items() if units <= lent]
        for name in found:
            self._wake(name)
        return found

    def _put_to_sleep(self, name: str) -> None:
        for asleep, units in zip(self._places[name], self._needed[name], strict=True):
            asleep[name] = units

    def _wake(self, name: str) -> None:
        for asleep in self._places[name]:
            asleep.pop(name, None)
