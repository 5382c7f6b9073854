"""Pending work in order, grouped by what fits or does not fit alike."""

from bisect import bisect_right, insort
from collections import defaultdict
from collections.abc import Callable, Hashable
from heapq import heappop, heappush
from math import inf
from operator import attrgetter
from typing import NamedTuple, Protocol

from apps.planning.domain.cluster_replay.inputs import SLACK

LineKey = tuple[float, float, int]
"""Minus the priority, when it was asked for, and its number: the least comes first."""


class PendingNeeds(Hashable, Protocol):
    """What pending work needs: `units`, of the room that all needs of one `scope` share."""

    @property
    def units(self) -> float: ...

    @property
    def scope(self) -> Hashable: ...


class PendingGroup(NamedTuple):
    """Work of a team that needs the same: where one does not fit, no other does."""

    team: str
    needs: PendingNeeds


_UNITS: Callable[[PendingNeeds], float] = attrgetter("units")


class PendingLine:
    """Pending work of one queue or tier; groups that do not fit are passed over for a while.

    Of each group that is not passed over the first work is in the heap of its team: who comes next
    is found without looking at all groups.
    """

    def __init__(self) -> None:
        self._heaps: dict[PendingGroup, list[LineKey]] = {}
        self._heads: dict[str, list[tuple[LineKey, PendingGroup]]] = defaultdict(list)
        self._listed: dict[PendingGroup, LineKey] = {}
        self._aside: dict[PendingNeeds, set[PendingGroup]] = {}
        self._there: dict[int, PendingGroup] = {}
        self._blocked: set[PendingNeeds] = set()
        # Of each scope the blocked needs by units: those that have room are the first ones.
        self._by_units: dict[Hashable, list[PendingNeeds]] = {}
        self._closed = False

    def add(self, group: PendingGroup, key: LineKey) -> None:
        """Add a work. One that is removed stays in its heap until it is first there."""
        heappush(self._heaps.setdefault(group, []), key)
        self._there[key[-1]] = group
        if group.needs in self._blocked:
            self._aside.setdefault(group.needs, set()).add(group)
        else:
            self._list(group)
        # It may stand before the work that closed the line.
        self._closed = False

    def remove(self, number: int) -> None:
        self._there.pop(number, None)

    def block(self, group: PendingGroup) -> None:
        """Let pass what needs the same, until it is unblocked."""
        if group.needs not in self._blocked:
            self._blocked.add(group.needs)
            insort(self._by_units.setdefault(group.needs.scope, []), group.needs, key=_UNITS)

    def close(self) -> None:
        """Let no later work pass, until `unblock`."""
        self._closed = True

    def unblock(self, room: Callable[[Hashable], float] | None = None) -> bool:
        """Pass over no longer what needs at most the `room` of its scope; without it, nothing.

        Say whether any were passed over, or the line was closed.
        """
        was_closed, self._closed = self._closed, False
        over: list[PendingNeeds] = []
        for scope, blocked in self._by_units.items():
            if blocked:
                most = inf if room is None else room(scope) + SLACK
                count = bisect_right(blocked, most, key=_UNITS)
                over += blocked[:count]
                del blocked[:count]
        self._blocked.difference_update(over)
        for needs in over:
            for group in self._aside.pop(needs, ()):
                self._list(group)
        return was_closed or bool(over)

    def first(
        self, turn: Callable[[str], tuple[float, ...]] | None = None
    ) -> tuple[int, PendingGroup] | None:
        """Return the number and group of who comes next of those not passed over.

        By priority, then by `turn` of the team where given, then by age.
        """
        if self._closed:
            return None
        best: tuple[float, tuple[float, ...], LineKey] | None = None
        chosen = None
        for team in list(self._heads):
            found = self._head(team)
            if found is None:
                del self._heads[team]
                continue
            key, group = found
            # Minus the priority, so that higher ones come first whichever team has its turn.
            head = (key[0], () if turn is None else turn(team), key)
            if best is None or head < best:
                best, chosen = head, (key[-1], group)
        return chosen

    def _list(self, group: PendingGroup) -> None:
        """Put the first of a group into the heap of its team, unless it is there."""
        heap = self._heaps.get(group)
        if heap and heap[0] != self._listed.get(group):
            self._listed[group] = heap[0]
            heappush(self._heads[group.team], (heap[0], group))

    def _head(self, team: str) -> tuple[LineKey, PendingGroup] | None:
        """Return the first of a team that is pending and not passed over."""
        heads = self._heads[team]
        while heads:
            key, group = heads[0]
            if self._listed.get(group) != key:
                # Somebody came who stands before it, and is in the heap as well.
                heappop(heads)
            elif group.needs in self._blocked:
                heappop(heads)
                del self._listed[group]
                self._aside.setdefault(group.needs, set()).add(group)
            elif self._there.get(key[-1]) == group:
                return heads[0]
            else:
                heappop(heads)
                del self._listed[group]
                self._drop_removed(group)
                self._list(group)
        return None

    def _drop_removed(self, group: PendingGroup) -> None:
        heap = self._heaps[group]
        # By its group: preempted work comes back with the needs of another flavor.
        while heap and self._there.get(heap[0][-1]) != group:
            heappop(heap)
        if not heap:
            del self._heaps[group]
