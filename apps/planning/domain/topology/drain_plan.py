"""Which small pods to move so that whole hosts become free for gangs.

A plan is for people: the portal moves nothing. The search is bounded; see
docs/definitions.md#drain-plan.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations

from msgspec import Struct, field

from apps.clusters.domain.observed.objects import Placement
from apps.pending.domain.placement.fits import EPSILON, Nodes, bits, free

MOST_TRIES = 20_000
"""Hosts tried for a pod, in one search: about a second."""
_MOST_ON_HOST = 12
"""Pods of a host that are chosen from; the smallest, as their sets are tried one by one."""


class MovablePod(Struct, frozen=True):
    """A pod whose controller makes it anew elsewhere; `requests` has its place (`pods`: 1) too.

    `gpus` are whole GPUs of the tier's resource, `held` the seconds since it was bound.
    """

    uid: str
    namespace: str
    name: str
    owner: str
    gpus: int
    requests: Mapping[str, float]
    placement: Placement
    held: float = 0.0


class DrainHosts(Struct, frozen=True):
    """The hosts of a tier (bits of `nodes`) with its GPU resource, and their movable pods."""

    nodes: Nodes
    tier: int
    resource: str
    pods: Mapping[int, Sequence[MovablePod]]

    @property
    def largest(self) -> int:
        """GPUs of the host that has most, those in use too."""
        return max(
            (int(self.nodes.seen[at].allocatable[self.resource]) for at in bits(self.tier)),
            default=0,
        )


class Move(Struct, frozen=True):
    """A pod to delete on one host, and a host that has room for it."""

    pod: MovablePod
    source: str
    target: str


class OpenedSlot(Struct, frozen=True):
    """A host that takes a gang once these pods are gone; `gpus` are those that move."""

    host: str
    moves: tuple[Move, ...]

    @property
    def gpus(self) -> int:
        return sum(move.pod.gpus for move in self.moves)


class DrainPlan(Struct, frozen=True):
    """The slots to open, each with the fewest GPUs to move after those before it.

    `slots` there are already. `is_complete`: the search found everything; else it was cut short.
    """

    size: int
    slots: int
    opened: tuple[OpenedSlot, ...] = ()
    is_complete: bool = True


class _BoundReached(Exception):
    """The bound of the search is reached."""


def drain_plan(
    hosts: DrainHosts, size: int, *, most_slots: int = 8, most_tries: int = MOST_TRIES
) -> DrainPlan:
    """Return which pods to move to open slots for gangs of `size` GPUs, one host for each.

    A pod moves to hosts of the same tier that its node selector, affinity and tolerations allow
    and that have what it requests; no slot that is there is given up for it.
    """
    search = _Search(hosts, size, most_tries)
    slots = sum(search.slots_on(at) for at in bits(hosts.tier))
    opened: list[OpenedSlot] = []
    try:
        while len(opened) < most_slots and (found := search.next_slot()) is not None:
            opened.append(found)
    except _BoundReached:
        return DrainPlan(size, slots, tuple(opened), is_complete=False)
    return DrainPlan(size, slots, tuple(opened))


class _Search(Struct):
    hosts: DrainHosts
    size: int
    tries: int
    opened: set[int] = field(default_factory=set)
    _taken: dict[tuple[int, str], float] = field(default_factory=dict)
    _gone: set[str] = field(default_factory=set)

    def slots_on(self, at: int) -> int:
        """Return how many gangs fit on a host now."""
        return int(self._free(at, self.hosts.resource) + EPSILON) // self.size

    def next_slot(self) -> OpenedSlot | None:
        """Return the slot that moves fewest GPUs, and take it as opened; None without any."""
        best: tuple[int, tuple[MovablePod, ...], tuple[int, ...]] | None = None
        fewest = 0
        for bound, at in sorted(self._candidates()):
            # No set of pods on this host or those after it is smaller than what it lacks.
            if best is not None and bound >= fewest:
                break
            for pods in self._sets(at, bound):
                moved = sum(pod.gpus for pod in pods)
                if best is not None and moved >= fewest:
                    break
                targets = self._placed(at, pods)
                if targets is not None:
                    best, fewest = (at, pods, targets), moved
                    break
        return None if best is None else self._open(*best)

    def _open(self, at: int, pods: Sequence[MovablePod], targets: Sequence[int]) -> OpenedSlot:
        names = self.hosts.nodes.names
        for pod, target in zip(pods, targets, strict=True):
            self._put(pod, target)
            self._put(pod, at, -1.0)
            self._gone.add(pod.uid)
        self.opened.add(at)
        moves = (Move(pod, names[at], names[to]) for pod, to in zip(pods, targets, strict=True))
        return OpenedSlot(names[at], tuple(moves))

    def _candidates(self) -> Iterator[tuple[int, int]]:
        """Yield (GPUs that it lacks, host) of hosts that pods can be moved from."""
        nodes = self.hosts.nodes
        for at in bits(self.hosts.tier & nodes.uncordoned(())):
            lacking = self.size - int(self._free(at, self.hosts.resource) + EPSILON)
            movable = sum(pod.gpus for pod in self._pods(at))
            # More than its movable pods hold cannot be freed at all.
            if nodes.seen[at].ready and at not in self.opened and 0 < lacking <= movable:
                yield lacking, at

    def _pods(self, at: int) -> list[MovablePod]:
        own = [pod for pod in self.hosts.pods.get(at, ()) if pod.uid not in self._gone]
        # A pod as large as the gang needs a slot itself.
        small = [pod for pod in own if pod.gpus < self.size]
        return sorted(small, key=lambda pod: (pod.gpus, pod.held, pod.uid))[:_MOST_ON_HOST]

    def _sets(self, at: int, lacking: int) -> list[tuple[MovablePod, ...]]:
        """Return the sets of a host's pods that free enough, the fewest GPUs first."""
        own = self._pods(at)
        found = [
            pods
            for count in range(1, len(own) + 1)
            for pods in combinations(own, count)
            if sum(pod.gpus for pod in pods) >= lacking
        ]

        def cost(pods: tuple[MovablePod, ...]) -> tuple[float, ...]:
            gpus = sum(pod.gpus for pod in pods)
            # Of equal sets the one that loses least work: seconds held times GPUs.
            return (gpus, len(pods), sum(pod.gpus * pod.held for pod in pods))

        return sorted(found, key=cost)

    def _placed(self, source: int, pods: Sequence[MovablePod]) -> tuple[int, ...] | None:
        """Return a host for each of these pods; None where they do not fit all together."""
        # Large pods have the fewest hosts: placed first, they fail early.
        order = sorted(range(len(pods)), key=lambda n: -pods[n].gpus)
        targets: dict[int, int] = {}

        def place(rank: int) -> bool:
            if rank == len(order):
                return True
            pod = pods[order[rank]]
            for at in self._hosts_for(pod, source):
                self._put(pod, at)
                targets[order[rank]] = at
                if place(rank + 1):
                    return True
                self._put(pod, at, -1.0)
            return False

        found = place(0)
        if found:
            # Only tried: what is taken is put there once the slot is chosen.
            for number, at in targets.items():
                self._put(pods[number], at, -1.0)
        return tuple(targets[n] for n in range(len(pods))) if found else None

    def _hosts_for(self, pod: MovablePod, source: int) -> list[int]:
        """Return the hosts that a pod may move to, those that it fills best first."""
        nodes, tolerations = self.hosts.nodes, pod.placement.tolerations
        mask = self.hosts.tier & nodes.selected(pod.placement) & nodes.tolerated(tolerations)
        mask &= nodes.uncordoned(tolerations) & ~(1 << source)
        found = []
        for at in bits(mask):
            # Counted here, where the time goes: other steps are cheap.
            self.tries -= 1
            if self.tries < 0:
                raise _BoundReached
            if at not in self.opened and self._has_room(pod, at):
                found.append((self._free(at, self.hosts.resource), at))
        return [at for _, at in sorted(found)]

    def _has_room(self, pod: MovablePod, at: int) -> bool:
        there = self._free(at, self.hosts.resource)
        # A move that closes one slot to open another wins nothing.
        keeps = int(there - pod.gpus + EPSILON) // self.size == self.slots_on(at)
        return keeps and all(
            self._free(at, resource) >= units - EPSILON for resource, units in pod.requests.items()
        )

    def _free(self, at: int, resource: str) -> float:
        return free(self.hosts.nodes.seen[at], resource) - self._taken.get((at, resource), 0.0)

    def _put(self, pod: MovablePod, at: int, sign: float = 1.0) -> None:
        for resource, units in pod.requests.items():
            key = (at, resource)
            self._taken[key] = self._taken.get(key, 0.0) + sign * units
