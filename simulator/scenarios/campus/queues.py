"""The queues of `campus`: each team's share of each pool, and when its pods are let through.

A team's share is its quota in the trace, scaled as its demand is. Who is first in line gets quota
as soon as there is enough, then needs an admission check; that is over when the pool has no
room any more (then the scheduler says so) or when the trace binds the pod.
"""

from collections import deque
from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct, field

from simulator import identity
from simulator.fleet import FOREVER, Admission
from simulator.scenarios.base import Queue
from simulator.scenarios.campus.demand import Draws
from simulator.scenarios.campus.pools import POOL, WHOLE, Pool
from simulator.scenarios.campus.room import FreeSpace
from simulator.scenarios.packing import Draft
from simulator.scheduler.kueue import GATE

CLAIM_GATE = "campus.example/claims"
"""What holds back pods that ask by claim: Kueue does not count their devices here."""
_LENDERS = {("medicine", WHOLE): 2}
"""What queues lend that never come near their own quota."""
_BORROWERS = {("vision", WHOLE): 2}
"""The part of a share that is borrowed. It is always there: lenders never want it back."""


def queue_of(draws: Draws, pool: Pool, number: int, team: str, namespace: str, at: int) -> Queue:
    """Return the queue of a team in a pool, made at `at`."""
    borrowed = _BORROWERS.get((team, pool.tag), 0)
    return Queue(
        name=f"{team}-{pool.tag}",
        local=pool.tag,
        namespace=namespace,
        flavor=pool.group,
        resource=pool.resource,
        nominal=draws.share(pool, number) - borrowed,
        created=at,
        # Where all request one unit, no pod can be passed over.
        strict=pool.largest > 1,
        borrowing=borrowed,
        lending=_LENDERS.get((team, pool.tag), 0),
    )


def flavors_of(pools: Sequence[Pool]) -> Mapping[str, Mapping[str, str]]:
    """Return the node labels of the flavors that pools give out, by name."""
    return {pool.group: flavor_labels(pool) for pool in pools if not pool.device_class}


def flavor_labels(pool: Pool) -> Mapping[str, str]:
    return pool.tier.node_selector or {POOL: pool.group}


def admissions(
    drafts: Sequence[Draft], pool: Pool, queue: Queue | None, room: FreeSpace, seed: str
) -> Iterator[Admission]:
    """Yield how each pod of a team in a pool is let through, in their order."""
    if queue is None:
        for draft in drafts:
            yield Admission(CLAIM_GATE, _checked(draft, draft.created, room))
        return
    line = _FifoQueue(queue.most)
    line.play(drafts)
    uids = _uids(drafts, seed)
    for draft in drafts:
        reserved = line.reserved.get(draft.number, FOREVER)
        yield Admission(
            gate=GATE,
            at=_checked(draft, reserved, room),
            queue=queue.name,
            local=queue.local,
            evaluated_at=line.first.get(draft.number, FOREVER) if queue.strict else draft.created,
            reserved=reserved,
            workload=uids[draft.number],
            adds=flavor_labels(pool),
        )


def _leaves(draft: Draft) -> int:
    """Return when a pod is no longer pending: it is bound or canceled."""
    return min(draft.bound, draft.ended)


def _order(draft: Draft) -> tuple[int, int, int]:
    return draft.created, _leaves(draft), draft.number


def _checked(draft: Draft, reserved: int, room: FreeSpace) -> int:
    """Return when a pod is let go that has had quota since `reserved`."""
    left = _leaves(draft)
    if reserved >= FOREVER:
        return FOREVER
    at = room.ends(draft.units, reserved, left) if reserved < left else left
    return at if at < left or draft.bound < FOREVER else FOREVER


def _uids(drafts: Sequence[Draft], seed: str) -> Mapping[int, str]:
    """Return the uids of Workloads by pod: of those made together they rise in their order.

    For that is how Kueue puts them in line.
    """
    ordered = sorted(drafts, key=_order)
    made = {draft.number: identity.uid(seed, "workload", draft.number) for draft in ordered}
    together: dict[int, list[int]] = {}
    for draft in ordered:
        together.setdefault(draft.created, []).append(draft.number)
    found: dict[int, str] = {}
    for numbers in together.values():
        found |= dict(zip(numbers, sorted(made[n] for n in numbers), strict=True))
    return found


class _Moment(Struct):
    """What happens in a queue at a time."""

    ended: list[Draft] = field(default_factory=list)
    left: list[Draft] = field(default_factory=list)
    came: list[Draft] = field(default_factory=list)


class _FifoQueue:
    """Plays a queue: the first in line gets quota when there is enough, none is passed over.

    In the end `reserved` is when each pod, by number, got it, `first` when it came to be the first.
    """

    def __init__(self, nominal: int) -> None:
        self.reserved: dict[int, int] = {}
        self.first: dict[int, int] = {}
        self._nominal = nominal
        self._used = 0
        self._waiting: deque[Draft] = deque()

    def play(self, drafts: Sequence[Draft]) -> None:
        moments: dict[int, _Moment] = {}
        for draft in sorted(drafts, key=_order):
            moments.setdefault(draft.created, _Moment()).came.append(draft)
            moments.setdefault(_leaves(draft), _Moment()).left.append(draft)
            if draft.bound < draft.ended:
                moments.setdefault(draft.ended, _Moment()).ended.append(draft)
        for at in sorted(moments):
            self._play(at, moments[at])

    def _play(self, at: int, moment: _Moment) -> None:
        self._used -= sum(draft.units for draft in moment.ended)
        for draft in moment.left:
            self._leave(draft, at)
        self._waiting.extend(draft for draft in moment.came if _leaves(draft) > at)
        while self._waiting:
            head = self._waiting[0]
            self.first.setdefault(head.number, at)
            if self._used + head.units > self._nominal:
                return
            self._reserve(self._waiting.popleft(), at)

    def _leave(self, draft: Draft, at: int) -> None:
        """Let a pod go that is bound, with quota of this moment at the latest, or that gives up."""
        bound = draft.bound < draft.ended
        if draft.number in self.reserved:
            self._used -= 0 if bound else draft.units
            return
        if draft.created < at:
            self._waiting.remove(draft)
        if bound:
            self.first.setdefault(draft.number, at)
            self._reserve(draft, at)

    def _reserve(self, draft: Draft, at: int) -> None:
        self.reserved[draft.number] = at
        self._used += draft.units
