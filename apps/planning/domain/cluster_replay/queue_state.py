"""What a queue has and holds while its work is admitted, at hand without a search."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from math import inf
from typing import NamedTuple

from msgspec import Struct, field

from apps.planning.domain.cluster_replay.inputs import FlavorTier, Reclaim, ReplayQueue
from apps.planning.domain.cluster_replay.pending_line import LineKey
from apps.planning.domain.cluster_replay.preemption import QuotaHolder
from apps.planning.domain.cluster_replay.quota_line import (
    QuotaLine,
    QuotaNeeds,
    QuotaScope,
    ScopeRoom,
)
from apps.planning.domain.cluster_replay.quota_tree import QuotaCell, QuotaTree

_DOUBT = 1e-6


class TreeState(Struct, eq=False):
    """The queues that share quota: how often some was given back, and how often any changed hands.

    `reclaims` where a queue takes back what others borrow.
    """

    root: int
    reclaims: bool = False
    round: int = 0
    changes: int = 0


class BorrowedFlavor(Struct, eq=False):
    """Who borrows of a tree and flavor, and the units that all of them hold by priority."""

    queues: set[str] = field(default_factory=set)
    held: dict[int, float] = field(default_factory=dict)


class FlavorState(Struct, eq=False):
    """A flavor of a queue: its quota, and who holds units of it.

    `held` are these units by priority: sums tell whether preemption can help. `ranked` are the
    holders, who loses quota first at the front.
    """

    key: FlavorTier
    cell: QuotaCell
    borrowed: BorrowedFlavor
    held: dict[int, float] = field(default_factory=dict)
    ranked: list[QuotaHolder] = field(default_factory=list)

    def use(self, name: str, priority: int, units: float) -> None:
        """Count units that the queue of this name holds more, or fewer where negative."""
        borrowed, held = self.borrowed, self.held
        self.cell.take(units)
        is_known = name in borrowed.queues
        if is_known:
            borrowed.held[priority] = borrowed.held.get(priority, 0.0) + units
        held[priority] = held.get(priority, 0.0) + units
        if self.cell.borrows() == is_known:
            return
        borrowed.queues ^= {name}
        sign = -1 if is_known else 1
        for own, total in held.items():
            borrowed.held[own] = borrowed.held.get(own, 0.0) + sign * total


class LaterWork(NamedTuple):
    """A work that comes after others; `spare` is what it had for sure beyond its needs."""

    key: LineKey
    spare: float
    available: float
    round: int


class NextWork(NamedTuple):
    """The first work of a queue that can have quota; of several, the smallest tuple is admitted."""

    borrows: bool
    share: float
    key: LineKey
    queue: str
    flavor: FlavorTier
    victims: tuple[int, ...]


class QueueState(Struct, eq=False):
    """A queue with its pending work and its flavors, by what is counted of them as well.

    `preempts`: its pending work may preempt other work, its own or that of queues that borrow.
    `unused`: something is left of its own quota. `next` is whom it would admit, and `later` who
    comes first where it was not tried further, as it had to wait for others; each until something
    comes, goes or gives quota back (`next_round`).
    `failed` are needs that failed since the use of the tree has changed last (`failed_at`).
    """

    queue: ReplayQueue
    tree: TreeState
    flavors: dict[FlavorTier, FlavorState]
    counted: dict[str, list[FlavorState]]
    preempts: bool
    line: QuotaLine = field(default_factory=QuotaLine)
    unused: bool = True
    next: NextWork | None = None
    next_round: int = 0
    next_units: float = 0.0
    later: LaterWork | None = None
    failed: list[QuotaNeeds] = field(default_factory=list)
    failed_at: int = -1

    def note_use(self) -> None:
        """Note that the queue has other quota in use than before."""
        self.unused, self.later = False, None
        for flavor in self.flavors.values():
            if flavor.cell.used < flavor.cell.total:
                self.unused = True
                break

    def available(self) -> float:
        """Return what the queue may take of its first flavor, where it has one."""
        for flavor in self.flavors.values():
            return flavor.cell.available()
        return 0.0

    def scope_room(self, scope: QuotaScope) -> ScopeRoom:
        """Return the most that one flavor has for a scope of the queue, by preemption too.

        What is free never grows while the queues of a tree only take quota: who is told that it is
        too little need not ask again before a release.
        """
        queue, flavors = self.queue, self.counted.get(scope.counted, ())
        if len(flavors) == 1 and not self.preempts:
            room = flavors[0].cell.available()
            return ScopeRoom(room, -inf, -inf, room)
        free, unused, reclaimed, sure = 0.0, -inf, -inf, -inf
        for flavor in flavors:
            sure = room = flavor.cell.available()
            if queue.preempts_own and flavor.held:
                sure = room = room + below(flavor.held, scope.priority)
                # Sums of other orders differ by their last digits: in doubt it is tried.
                room += _DOUBT
            if room > free:
                free = room
            if queue.reclaim != Reclaim.NEVER:
                left = flavor.cell.total - flavor.cell.used
                # Nothing is reclaimed for what is free in any case.
                if left > room or len(flavors) > 1:
                    keeps = scope.priority if queue.reclaim == Reclaim.LOWER_PRIORITY else inf
                    reclaimed = max(reclaimed, room + below(flavor.borrowed.held, keeps) + _DOUBT)
                unused = max(unused, left)
        # Of several flavors a work may not have all.
        return ScopeRoom(free, unused, reclaimed, sure if len(flavors) == 1 else -inf)


def queue_states(tree: QuotaTree, queues: Sequence[ReplayQueue]) -> dict[str, QueueState]:
    """Return the state of each queue by its name."""
    trees: dict[int, TreeState] = {}
    borrowed: dict[tuple[int, FlavorTier], BorrowedFlavor] = defaultdict(BorrowedFlavor)
    found = {}
    for queue in queues:
        root = tree.root(queue.name)
        own = trees.setdefault(root, TreeState(root))
        own.reclaims = own.reclaims or queue.reclaim != Reclaim.NEVER
        preempts = queue.preempts_own or queue.reclaim != Reclaim.NEVER
        flavors = {
            key: FlavorState(key, tree.cell(queue.name, key), borrowed[root, key])
            for key in queue.quotas
        }
        counted: dict[str, list[FlavorState]] = defaultdict(list)
        for key, flavor in flavors.items():
            counted[key[1]].append(flavor)
        found[queue.name] = QueueState(queue, own, flavors, dict(counted), preempts)
        found[queue.name].note_use()
    return found


def below(held: Mapping[int, float], priority: float) -> float:
    """Return the units that are held below a priority."""
    found = 0.0
    for own, units in held.items():
        if own < priority:
            found += units
    return found
