"""Which node has room for a pod, and which one the scheduler takes."""

from bisect import bisect_left, insort
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct, field

from apps.planning.domain.cluster_replay.inputs import (
    SLACK,
    DevicePart,
    Labels,
    Packing,
    ReplayNode,
)


class _TierNode(Struct):
    """What a node offers of a tier, and what is free of it on each of its devices.

    `line` has the open nodes of its size, `largest` is the size of a device. `missing_on` is what
    its devices lack now, `owed` what they will lack as soon as it is free.
    """

    capacity: float
    devices: list[int]
    line: list[tuple[float, int]]
    largest: float
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
                line, largest = self._open[size], max(units.values())
                line.append((size, place))
                self._nodes[place] = _TierNode(size, own, line, largest, size, units)

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
        if pods > 1 and not self.has_room(units, pods, requires):
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

    def has_room(self, units: float, pods: int, requires: Labels) -> bool:
        """Say whether so many pods fit on open nodes."""
        allowed = self._allowed_places(requires) if requires else None
        left = pods
        for line in self._open.values():
            start = bisect_left(line, (units - SLACK, -1))
            if allowed is None and len(line) - start >= left:
                return True
            for free, node in line[start:]:
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
            start = bisect_left(line, (units - SLACK, -1))
            if start == len(line):
                continue
            best = self._best_of(line, start, allowed)
            if best is not None:
                part = (best[0] - units) / size
                # Rounded, so that equal parts are equal and the first node wins.
                score = (round(-part if spreads else part, 9), best[1])
                found = score if found is None else min(found, score)
        return None if found is None else found[1]

    def release(self, parts: Iterable[DevicePart]) -> list[int]:
        """Give back what was taken; return its nodes."""
        nodes: list[int] = []
        own, free = None, 0.0
        for node, device, units in parts:
            # A pod has several devices of one node, which moves once in its line.
            if own is None or node != nodes[-1]:
                if own is not None:
                    self._move(nodes[-1], own, free)
                nodes.append(node)
                own = self._nodes[node]
                free = own.free
            missing = 0.0
            if own.owed:
                # What failed under a running pod goes as soon as the pod gives it back.
                missing = min(own.owed, units)
                own.owed -= missing
                self._set_aside(own, device, missing)
            own.free_on[device] += units - missing
            free = free + units - missing
        if own is not None:
            self._move(nodes[-1], own, free)
        return nodes

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
        self._move(node, own, own.free - (units - left))

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
        self._move(node, own, own.free + back)

    @staticmethod
    def _set_aside(own: _TierNode, device: int, units: float) -> None:
        if units > 0:
            own.missing_on[device] = own.missing_on.get(device, 0.0) + units

    def close(self, node: int) -> None:
        """Let no further pod come to a node."""
        line = self._nodes[node].line
        line[:] = [one for one in line if one[1] != node]

    def reopen(self, node: int) -> None:
        own = self._nodes[node]
        insort(own.line, (own.free, node))

    def is_open(self, node: int) -> bool:
        """Say whether pods of the tier may come to a node."""
        own = self._nodes.get(node)
        if own is None:
            return False
        place = bisect_left(own.line, (own.free, node))
        return own.line[place : place + 1] == [(own.free, node)]

    def has(self, node: int) -> bool:
        return node in self._nodes

    def free(self, node: int) -> float:
        return self._nodes[node].free

    def room(self, node: int) -> float:
        """Return what is free on a node, less what it will lack as soon as that is released."""
        own = self._nodes[node]
        return own.free - own.owed

    def allows(self, node: int, requires: Labels) -> bool:
        """Say whether a node has the labels that work requires."""
        return node in self._allowed_places(requires)

    def open_nodes(self, requires: Labels) -> list[int]:
        """Return the places of nodes that take pods with such labels, in order."""
        allowed = self._allowed_places(requires)
        return sorted(n for line in self._open.values() for _, n in line if n in allowed)

    def _first(self, units: float, allowed: frozenset[int] | None) -> int | None:
        # No order of what is free helps here: all with room are looked at.
        rooms = (line[bisect_left(line, (units - SLACK, -1)) :] for line in self._open.values())
        places = (node for room in rooms for _, node in room)
        return min((one for one in places if allowed is None or one in allowed), default=None)

    def _best_of(
        self, line: Sequence[tuple[float, int]], start: int, allowed: frozenset[int] | None
    ) -> tuple[float, int] | None:
        """Return the best node of one size with room; of those with the same room, the first."""
        end = len(line)
        spreads = self._packing == Packing.SPREAD
        while end > start:
            first = max(start, bisect_left(line, (line[end - 1][0], -1))) if spreads else start
            # No slices: most lines are long, and the first node is taken.
            for place in range(first, end):
                if allowed is None or line[place][1] in allowed:
                    return line[place]
            end = first
        return None

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
        free_on, enough, left, taken = own.free_on, units - SLACK, units, []
        devices = own.devices
        # On one device if it can be: the fullest with room. Else over several, in their order.
        if own.largest >= enough:
            single = [(free, device) for device, free in free_on.items() if free >= enough]
            devices = [min(single)[1]] if single else devices
        for device in devices:
            free = free_on[device]
            part = free if free < left else left
            if part > SLACK:
                free_on[device] = free - part
                left -= part
                taken.append(DevicePart(node, device, part))
        self._move(node, own, own.free - units)
        return taken

    @staticmethod
    def _move(node: int, own: _TierNode, free: float) -> None:
        line, before = own.line, (own.free, node)
        place = bisect_left(line, before)
        own.free = free
        # A closed node is in no line, and what ends there does not bring it back.
        if place < len(line) and line[place] == before:
            del line[place]
            insort(line, (free, node))


def tier_spaces(nodes: Sequence[ReplayNode], packing: Packing) -> Mapping[str, TierSpace]:
    """Return the space of each tier that a node offers."""
    tiers = sorted({device.tier for node in nodes for device in node.devices})
    return {tier: TierSpace(tier, nodes, packing) for tier in tiers}
