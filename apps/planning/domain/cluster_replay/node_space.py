"""Which node has room for a pod, and which one the scheduler takes."""

from bisect import bisect_left, insort
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from operator import attrgetter

from apps.planning.domain.cluster_replay.inputs import (
    SLACK,
    DevicePart,
    Labels,
    Packing,
    ReplayNode,
)

_NODE = attrgetter("node")


@dataclass(slots=True)
class _TierNode:
    """What a node offers of a tier, and what is free of it on each of its devices.

    `missing_on` is what its devices lack now, `owed` what they will lack as soon as it is free.
    """

    capacity: float
    devices: list[int]
    free: float = 0.0
    free_on: dict[int, float] = field(default_factory=dict)
    missing_on: dict[int, float] = field(default_factory=dict)
    owed: float = 0.0


class TierSpace:
    """The nodes of one tier by what is free of it.

    Nodes of one size are in a list of their own, sorted by what is free: among those, a free amount
    is a score, and the best node is found without looking at all.
    """

    def __init__(self, tier: str, nodes: Sequence[ReplayNode], packing: Packing) -> None:
        self._packing = packing
        self._nodes: dict[int, _TierNode] = {}
        self._open: dict[float, list[tuple[float, int]]] = defaultdict(list)
        self._labels = nodes
        self._allowed: dict[Labels, frozenset[int]] = {}
        for place, node in enumerate(nodes):
            own = [number for number, device in enumerate(node.devices) if device.tier == tier]
            if own:
                units = {number: node.devices[number].units for number in own}
                size = sum(units.values())
                self._nodes[place] = _TierNode(size, own, size, units)
                self._open[size].append((size, place))

    def fits_empty(self, units: float, pods: int, requires: Labels) -> bool:
        """Say whether the work would fit if nothing ran."""
        places = self._allowed_places(requires)
        rooms = (self._nodes[place].capacity for place in places)
        return sum(int((room + SLACK) / units) for room in rooms) >= pods

    def place(self, units: float, pods: int, requires: Labels) -> list[DevicePart] | None:
        """Take room for all pods, each on its best node; None, and nothing taken, if not all fit.

        Pods are alike and need one amount: what one takes never hinders more than one other, so
        taking nodes one by one finds room for all wherever there is.
        """
        taken: list[DevicePart] = []
        # Most gangs that are pending do not fit: nothing is taken to find that out.
        if pods > 1 and not self._has_room(units, pods, requires):
            return None
        for _ in range(pods):
            node = self.best(units, requires)
            if node is None:
                self.release(taken)
                return None
            taken += self._take(node, units)
        return taken

    def place_on(self, units: float, nodes: Iterable[int]) -> list[DevicePart] | None:
        """Take room for one pod on each of these nodes, open or not; None if one has none."""
        taken: list[DevicePart] = []
        for node in nodes:
            own = self._nodes.get(node)
            if own is None or own.free < units - SLACK:
                self.release(taken)
                return None
            taken += self._take(node, units)
        return taken

    def _has_room(self, units: float, pods: int, requires: Labels) -> bool:
        """Say whether so many pods fit on open nodes."""
        allowed = self._allowed_places(requires) if requires else None
        left = pods
        for line in self._open.values():
            for free, node in line[bisect_left(line, (units - SLACK, -1)) :]:
                if allowed is None or node in allowed:
                    # At least one: a quotient just below 1 is rounded down.
                    left -= max(1, int((free + SLACK) / units))
                    if left <= 0:
                        return True
        return False

    def best(self, units: float, requires: Labels) -> int | None:
        """Return the node that the scheduler takes for a pod; None where none has room.

        By what part of it is free after that: the least to pack, the most to spread; then the
        first. Or the first alone.
        """
        allowed = self._allowed_places(requires) if requires else None
        if self._packing == Packing.FIRST:
            return self._first(units, allowed)
        found, spreads = None, self._packing == Packing.SPREAD
        for size, line in self._open.items():
            place = bisect_left(line, (units - SLACK, -1))
            for free, node in self._by_score(line, place):
                if allowed is None or node in allowed:
                    part = (free - units) / size
                    # Rounded, so that equal parts are equal and the first node wins.
                    score = (round(-part if spreads else part, 9), node)
                    found = score if found is None else min(found, score)
                    break
        return None if found is None else found[1]

    def release(self, parts: Iterable[DevicePart]) -> None:
        """Give back what was taken."""
        # A pod has several devices of one node, which moves once in its line.
        for node, of_node in groupby(parts, key=_NODE):
            own = self._nodes[node]
            free = own.free
            for _, device, units in of_node:
                # What failed under a running pod goes as soon as the pod gives it back.
                missing = min(own.owed, units) if own.owed else 0.0
                if missing:
                    own.owed -= missing
                    self._set_aside(own, device, missing)
                own.free_on[device] += units - missing
                free = free + units - missing
            self._move(node, free)

    def lose(self, node: int, units: float) -> None:
        """Take units off a node: free ones at once, held ones as soon as they are released."""
        own, left = self._nodes[node], units
        # The emptiest first: as little as possible is owed by running pods.
        for device in sorted(own.devices, key=lambda one: (-own.free_on[one], -one)):
            part = min(left, own.free_on[device])
            own.free_on[device] -= part
            self._set_aside(own, device, part)
            left -= part
        own.owed += left
        self._move(node, own.free - (units - left))

    def regain(self, node: int, units: float) -> None:
        """Give a node back what it lost."""
        own = self._nodes[node]
        still_held = min(own.owed, units)
        own.owed -= still_held
        back, left = 0.0, units - still_held
        for device, missing in sorted(own.missing_on.items()):
            part = min(left, missing)
            own.missing_on[device] = missing - part
            own.free_on[device] += part
            back, left = back + part, left - part
        self._move(node, own.free + back)

    @staticmethod
    def _set_aside(own: _TierNode, device: int, units: float) -> None:
        if units > 0:
            own.missing_on[device] = own.missing_on.get(device, 0.0) + units

    def close(self, node: int) -> None:
        """Let no further pod come to a node."""
        self._leave_line(node)

    def reopen(self, node: int) -> None:
        own = self._nodes[node]
        insort(self._open[own.capacity], (own.free, node))

    def is_open(self, node: int) -> bool:
        """Say whether pods of the tier may come to a node."""
        own = self._nodes.get(node)
        return own is not None and self._place_in_line(node, own) is not None

    def has(self, node: int) -> bool:
        return node in self._nodes

    def free(self, node: int) -> float:
        return self._nodes[node].free

    def room(self, node: int) -> float:
        """Return what is free on a node, less what it will lack as soon as that is released."""
        own = self._nodes[node]
        return own.free - own.owed

    def open_nodes(self, requires: Labels) -> list[int]:
        """Return the places of nodes that take pods with such labels, in order."""
        allowed = self._allowed_places(requires)
        return sorted(n for line in self._open.values() for _, n in line if n in allowed)

    def _first(self, units: float, allowed: frozenset[int] | None) -> int | None:
        # No order of what is free helps here: all with room are looked at.
        rooms = (line[bisect_left(line, (units - SLACK, -1)) :] for line in self._open.values())
        places = (node for room in rooms for _, node in room)
        return min((one for one in places if allowed is None or one in allowed), default=None)

    def _by_score(
        self, line: Sequence[tuple[float, int]], start: int
    ) -> Iterator[tuple[float, int]]:
        """Yield nodes with room, best first: of those with the same room, the first comes first."""
        if self._packing != Packing.SPREAD:
            # No slices: most lines are long, and the first node is taken.
            yield from (line[place] for place in range(start, len(line)))
            return
        end = len(line)
        while end > start:
            first = max(start, bisect_left(line, (line[end - 1][0], -1)))
            yield from (line[place] for place in range(first, end))
            end = first

    def _allowed_places(self, requires: Labels) -> frozenset[int]:
        if requires not in self._allowed:
            self._allowed[requires] = frozenset(
                place
                for place in self._nodes
                if all(self._labels[place].labels.get(k) == v for k, v in requires)
            )
        return self._allowed[requires]

    def _take(self, node: int, units: float) -> list[DevicePart]:
        own = self._nodes[node]
        left, taken = units, []
        # On one device if it can be: the fullest with room. Else over several, in their order.
        single = [(free, device) for device, free in own.free_on.items() if free >= units - SLACK]
        devices = [min(single)[1]] if single else own.devices
        for device in devices:
            part = min(left, own.free_on[device])
            if part > SLACK:
                own.free_on[device] -= part
                left -= part
                taken.append(DevicePart(node, device, part))
        self._move(node, own.free - units)
        return taken

    def _move(self, node: int, free: float) -> None:
        own = self._nodes[node]
        # A closed node is in no line, and what ends there does not bring it back.
        is_open = self._leave_line(node)
        own.free = free
        if is_open:
            insort(self._open[own.capacity], (free, node))

    def _leave_line(self, node: int) -> bool:
        own = self._nodes[node]
        place = self._place_in_line(node, own)
        if place is not None:
            del self._open[own.capacity][place]
        return place is not None

    def _place_in_line(self, node: int, own: _TierNode) -> int | None:
        line = self._open[own.capacity]
        place = bisect_left(line, (own.free, node))
        return place if place < len(line) and line[place] == (own.free, node) else None


def tier_spaces(nodes: Sequence[ReplayNode], packing: Packing) -> Mapping[str, TierSpace]:
    """Return the space of each tier that a node offers."""
    tiers = sorted({device.tier for node in nodes for device in node.devices})
    return {tier: TierSpace(tier, nodes, packing) for tier in tiers}
