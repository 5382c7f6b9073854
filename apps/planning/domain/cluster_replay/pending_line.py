"""Pending work in order, grouped by what fits or does not fit alike."""

from bisect import bisect_right, insort
from collections import defaultdict
from collections.abc import Callable
from heapq import heapify, heappop, heappush, heapreplace
from math import inf
from typing import NamedTuple

from msgspec import Struct, field

from apps.planning.domain.cluster_replay.inputs import SLACK, Labels

LineKey = tuple[float, float, int]
"""Minus the priority, when it was asked for, and its number: the least comes first."""
TeamOrder = Callable[[str], tuple[float, ...]]
"""What sorts the teams of pending work of one priority."""


class RoomNeeds(NamedTuple):
    """What pending work of a tier needs, and its `level` where priority lets it preempt."""

    units: float
    pods: int
    requires: Labels
    level: int

    def includes(self, other: "RoomNeeds") -> bool:
        """Say whether room for this would be room for the other, too."""
        more = self.units >= other.units and self.pods >= other.pods and self.level <= other.level
        return more and (not other.requires or self.requires == other.requires)


class _NeedsState(Struct, eq=False):
    """Needs of some teams; `aside` are the groups that were passed over while it is blocked.

    Places tell apart what is the same otherwise.
    """

    needs: RoomNeeds
    place: int
    is_blocked: bool = False
    aside: "set[_TeamGroup]" = field(default_factory=set)


class _TeamGroup(Struct, eq=False):
    """Work of a team that needs the same; `listed` is whom of it the heap of the team has."""

    team: str
    state: _NeedsState
    place: int
    heap: list[LineKey] = field(default_factory=list)
    listed: LineKey | None = None


_Head = tuple[LineKey, int, _TeamGroup]
_Rank = tuple[float, tuple[float, ...], LineKey, str]


class PendingLine:
    """Pending work of a tier; what does not fit is passed over for a while.

    Of each group that is not passed over the first work is in the heap of its team: who comes next
    is found without looking at all groups.
    """

    def __init__(self) -> None:
        self._groups: dict[tuple[str, RoomNeeds], _TeamGroup] = {}
        self._states: dict[RoomNeeds, _NeedsState] = {}
        self._heads: dict[str, list[_Head]] = defaultdict(list)
        self._there: dict[int, _TeamGroup] = {}
        # Of each level the blocked needs by units: those that have room are the first ones.
        self._blocked: dict[int, list[tuple[float, int, _NeedsState]]] = defaultdict(list)
        self._closed_by: tuple[int, RoomNeeds] | None = None
        self._turn: TeamOrder | None = None
        # The first of each team by priority, turn and age; None where it is to be made again.
        self._ranked: list[_Rank] | None = None

    @property
    def is_held_up(self) -> bool:
        """Whether any work is passed over, or the line is closed."""
        return self._closed_by is not None or any(self._blocked.values())

    def add(self, team: str, needs: RoomNeeds, key: LineKey) -> None:
        """Add a work. One that is removed stays in its heap until it is first there."""
        group = self._groups.get((team, needs))
        if group is None:
            state = self._states.get(needs)
            if state is None:
                state = self._states[needs] = _NeedsState(needs, len(self._states))
            group = self._groups[team, needs] = _TeamGroup(team, state, len(self._groups))
        heappush(group.heap, key)
        self._there[key[-1]] = group
        if group.state.is_blocked:
            group.state.aside.add(group)
        else:
            self._list(group)
        # It may stand before the work that closed the line.
        self._closed_by = self._ranked = None

    def remove(self, number: int) -> None:
        self._there.pop(number, None)

    def block(self, needs: RoomNeeds) -> None:
        """Let pass what needs the same, until it is unblocked."""
        state = self._states[needs]
        state.is_blocked = True
        insort(self._blocked[needs.level], (needs.units, state.place, state))

    def close(self, number: int, needs: RoomNeeds) -> None:
        """Let no later work pass a work that has no room, until `unblock`."""
        self._closed_by = (number, needs)

    def unblock(
        self,
        most: Callable[[int], float] | None = None,
        fits: Callable[[RoomNeeds], bool] | None = None,
    ) -> bool:
        """Pass over no longer what needs at most the room of its level and `fits`, or everything.

        Say whether any were passed over, or a closed line is open again.
        """
        over: list[_NeedsState] = []
        for level, blocked in self._blocked.items():
            if not blocked:
                continue
            room = inf if most is None else most(level) + SLACK
            count = bisect_right(blocked, (room, inf))
            found = [one for _, _, one in blocked[:count] if fits is None or fits(one.needs)]
            if found:
                over += found
                blocked[:count] = [one for one in blocked[:count] if one[2] not in found]
        for state in over:
            state.is_blocked = False
            for group in state.aside:
                self._list(group)
            state.aside.clear()
        self._ranked = None
        if self._closed_by is None:
            return bool(over)
        number, needs = self._closed_by
        # It is still first, and has no room: unless it is another team's turn now.
        is_first = self._turn is None and not over and number in self._there
        if is_first and fits is not None and not fits(needs):
            return False
        self._closed_by = None
        return True

    def order(self, turn: TeamOrder | None) -> None:
        """Let teams come by their turn of this instant, where given."""
        self._turn, self._ranked = turn, None

    def first(self) -> tuple[int, RoomNeeds] | None:
        """Return the number and needs of who comes next of those not passed over.

        By priority, then by the turn of the team, then by age.
        """
        if self._closed_by is not None:
            return None
        ranked = self._ranked
        if ranked is None:
            heads = [self._head(team) for team in list(self._heads)]
            ranked = self._ranked = [self._rank(head) for head in heads if head is not None]
            heapify(ranked)
        while ranked:
            _, _, key, team = ranked[0]
            head = self._head(team)
            if head is None:
                heappop(ranked)
            elif head[0] == key:
                return key[-1], head[-1].state.needs
            else:
                # Its turn may have changed as well: its work that was first here has started.
                heapreplace(ranked, self._rank(head))
        return None

    def _rank(self, head: _Head) -> _Rank:
        key, team = head[0], head[-1].team
        # Minus the priority, so that higher ones come first whichever team has its turn.
        return (key[0], () if self._turn is None else self._turn(team), key, team)

    def _list(self, group: _TeamGroup) -> None:
        """Put the first of a group into the heap of its team, unless it is there."""
        heap = group.heap
        if heap and heap[0] != group.listed:
            group.listed = heap[0]
            heappush(self._heads[group.team], (heap[0], group.place, group))

    def _head(self, team: str) -> _Head | None:
        """Return the first of a team that is pending and not passed over."""
        heads, there = self._heads[team], self._there
        while heads:
            key, _, group = head = heads[0]
            if group.listed != key:
                # Somebody came who stands before it, and is in the heap as well.
                heappop(heads)
            elif group.state.is_blocked:
                heappop(heads)
                group.listed = None
                group.state.aside.add(group)
            elif there.get(key[-1]) is group:
                return head
            else:
                heappop(heads)
                group.listed = None
                heap = group.heap
                # By its group: preempted work comes back with the needs of another flavor.
                while heap and there.get(heap[0][-1]) is not group:
                    heappop(heap)
                self._list(group)
        # It is listed again with its next work.
        del self._heads[team]
        return None
