"""Pending work of a queue in order, by what it needs of a quota."""

from bisect import insort
from collections.abc import Callable
from heapq import heappop, heappush
from math import inf
from operator import attrgetter
from typing import NamedTuple

from msgspec import Struct, field

from apps.planning.domain.cluster_replay.inputs import SLACK, Labels
from apps.planning.domain.cluster_replay.pending_line import LineKey


class QuotaScope(NamedTuple):
    """Needs that share one room: what is counted, and the priority by which they may preempt."""

    counted: str
    priority: int


class ScopeRoom(NamedTuple):
    """What needs of one scope can have: by themselves, or where others give back.

    `free` is what the queue may take, by preemption of its own work too. Work of other queues goes
    for up to `unused` units, what is left of the queue's own quota; `reclaimed` is what there would
    be if all went that may. A queue that reclaims nothing has no `unused` units.
    `sure` is what it can have in any case, where that is known.
    """

    free: float
    unused: float = -inf
    reclaimed: float = -inf
    sure: float = -inf


class QuotaNeeds(NamedTuple):
    """Needs that works of one queue have in common: where one does not fit, none does."""

    scope: QuotaScope
    tier: str
    units: float
    requires: Labels

    def includes(self, other: "QuotaNeeds") -> bool:
        """Say whether quota for this would be quota for the other, too."""
        (counted, priority), (other_counted, other_priority) = self.scope, other.scope
        alike = (counted, self.tier, self.requires) == (other_counted, other.tier, other.requires)
        # A larger request borrows sooner, and may then not reclaim what others borrow.
        return alike and self.units >= other.units and priority <= other_priority


class _NeedsGroup(Struct, eq=False):
    """Work of the same needs; `failed_in` is the round in which it was tried in vain.

    `least` is the room that is enough for it.
    """

    needs: QuotaNeeds
    units: float
    least: float
    heap: list[LineKey] = field(default_factory=list)
    failed_in: int = -1


_UNITS = attrgetter("units")


class QuotaLine:
    """Pending work of one queue. What failed is not tried again until the next round.

    Groups are sorted by units; those that request more than the room are skipped. `lacks` is how
    much what is free must grow before another group can come first. `entered` is the round of the
    tree that it was told of.
    """

    def __init__(self) -> None:
        self._groups: dict[QuotaNeeds, _NeedsGroup] = {}
        self._by_scope: dict[QuotaScope, list[_NeedsGroup]] = {}
        self._there: dict[int, _NeedsGroup] = {}
        self._round = 0
        self.entered = 0
        self._closed = False
        self.lacks = 0.0

    def __bool__(self) -> bool:
        """Whether any work is pending."""
        return bool(self._there)

    def add(self, needs: QuotaNeeds, key: LineKey) -> None:
        """Add a work. One that is removed stays in its heap until it is first there."""
        group = self._groups.get(needs)
        if group is None:
            group = self._groups[needs] = _NeedsGroup(needs, needs.units, needs.units - SLACK)
        if not group.heap:
            insort(self._by_scope.setdefault(needs.scope, []), group, key=_UNITS)
        heappush(group.heap, key)
        self._there[key[-1]] = group
        # It may stand before the work that closed the line.
        self._closed = False

    def remove(self, number: int) -> None:
        group = self._there.pop(number)
        heap = group.heap
        # By its group: preempted work may come back with other needs.
        while heap and self._there.get(heap[0][-1]) is not group:
            heappop(heap)
        if not heap:
            self._by_scope[group.needs.scope].remove(group)

    def fail(self, needs: QuotaNeeds) -> None:
        """Let pass what needs the same, until the next round."""
        self._groups[needs].failed_in = self._round

    def close(self) -> None:
        """Let no later work pass, until the next round."""
        self._closed = True

    def begin_round(self) -> None:
        """Let all be tried again."""
        self._round += 1
        self._closed = False

    def first(
        self, room: Callable[[QuotaScope], ScopeRoom]
    ) -> tuple[LineKey, QuotaNeeds, float] | None:
        """Return who comes next of those that need at most the room of their scope.

        And what it can have for sure beyond what it needs.
        """
        self.lacks = 0.0
        if self._closed:
            return None
        found, hopeless, lacks, spare = self._with_room(room)
        for group in hopeless:
            # Its turn comes, and even if all went that may it would have no quota.
            if found is None or group.heap[0] < found.heap[0]:
                group.failed_in, lacks = self._round, 0.0
        if found is None:
            self.lacks = lacks
            return None
        return found.heap[0], found.needs, spare

    def _with_room(
        self, room: Callable[[QuotaScope], ScopeRoom]
    ) -> tuple[_NeedsGroup | None, list[_NeedsGroup], float, float]:
        """Return the first group with room, who reclaims too little, and what others lack.

        And what is sure for the first beyond its needs.
        """
        found, lacks, spare, this_round = None, inf, -inf, self._round
        hopeless: list[_NeedsGroup] = []
        for scope, groups in self._by_scope.items():
            if not groups:
                continue
            free, unused, reclaimed, sure = room(scope)
            most = free if free > unused else unused
            for group in groups:
                units = group.least
                if units > most:
                    if units - free < lacks:
                        lacks = units - free
                    break
                if group.failed_in == this_round:
                    lacks = 0.0
                elif units > free and group.units > reclaimed:
                    hopeless.append(group)
                elif found is None or group.heap[0] < found.heap[0]:
                    found, spare = group, sure - group.units
        return found, hopeless, lacks, spare
