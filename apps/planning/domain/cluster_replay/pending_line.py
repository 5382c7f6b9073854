"""Pending work in order, grouped by what fits or does not fit alike."""

from collections.abc import Callable, Hashable, Iterator
from heapq import heappop, heappush
from typing import NamedTuple

LineKey = tuple[float, float, int]
"""Minus the priority, when it was asked for, and its number: the least comes first."""


class PendingGroup(NamedTuple):
    """Work of a team that needs the same: where one does not fit, no other does."""

    team: str
    needs: Hashable


class PendingLine:
    """Pending work of one queue or tier; groups that do not fit are passed over for a while."""

    def __init__(self) -> None:
        self._heaps: dict[PendingGroup, list[LineKey]] = {}
        self._there: set[int] = set()
        self._blocked: set[Hashable] = set()
        self._closed = False

    def __len__(self) -> int:
        return len(self._there)

    def add(self, group: PendingGroup, key: LineKey) -> None:
        """Add a work. One that is removed stays in its heap until it is first there."""
        heappush(self._heaps.setdefault(group, []), key)
        self._there.add(key[-1])
        # It may stand before the work that closed the line.
        self._closed = False

    def remove(self, number: int) -> None:
        self._there.discard(number)

    def needs(self) -> set[Hashable]:
        """Return what pending work needs; what has gone may still be among it."""
        return {group.needs for group in self._heaps}

    def block(self, group: PendingGroup) -> None:
        """Let pass what needs the same, until `unblock`."""
        self._blocked.add(group.needs)

    def block_where(self, is_hopeless: Callable[[Hashable], bool]) -> None:
        """Let pass all groups whose needs are hopeless, until `unblock`."""
        self._blocked |= {one for one in self.needs() - self._blocked if is_hopeless(one)}

    def close(self) -> None:
        """Let no later work pass, until `unblock`."""
        self._closed = True

    def unblock(self) -> None:
        self._blocked.clear()
        self._closed = False

    def first(
        self, turn: Callable[[str], tuple[float, ...]] | None = None
    ) -> tuple[int, PendingGroup] | None:
        """Return the number and group of who comes next of those not passed over.

        By priority, then by `turn` of the team where given, then by age.
        """
        if self._closed:
            return None
        turns: dict[str, tuple[float, ...]] = {}
        best: tuple[float, tuple[float, ...], LineKey] | None = None
        chosen = None
        for group, key in self._heads():
            if turn is not None and group.team not in turns:
                turns[group.team] = turn(group.team)
            # Minus the priority, so that higher ones come first whoever's turn it is.
            head = (key[0], turns.get(group.team, ()), key)
            if best is None or head < best:
                best, chosen = head, (key[-1], group)
        return chosen

    def _heads(self) -> Iterator[tuple[PendingGroup, LineKey]]:
        empty = []
        for group, heap in self._heaps.items():
            if group.needs in self._blocked:
                continue
            while heap and heap[0][-1] not in self._there:
                heappop(heap)
            if heap:
                yield group, heap[0]
            else:
                empty.append(group)
        # Afterwards, for a dictionary must not shrink while it is read.
        for group in empty:
            del self._heaps[group]
