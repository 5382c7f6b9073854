"""Kueue's admission: which work gets quota next, from which queue and flavor."""

from bisect import bisect_left, insort
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from heapq import merge
from itertools import chain
from math import inf
from operator import attrgetter
from typing import NamedTuple

from apps.planning.domain.cluster_replay.full_queues import FullQueues
from apps.planning.domain.cluster_replay.inputs import (
    SLACK,
    FlavorQuota,
    FlavorTier,
    Labels,
    Reclaim,
    RecordedWork,
    ReplayCluster,
    ReplayPolicy,
    ReplayQueue,
)
from apps.planning.domain.cluster_replay.pending_line import LineKey
from apps.planning.domain.cluster_replay.preemption import (
    QuotaDemand,
    QuotaHolder,
    own_victims,
    quota_victims,
    rank,
)
from apps.planning.domain.cluster_replay.quota_line import (
    QuotaLine,
    QuotaNeeds,
    QuotaScope,
    ScopeRoom,
)
from apps.planning.domain.cluster_replay.quota_tree import QuotaTree

_DOUBT = 1e-6
_SURE = SLACK / 2
_PRIORITY = attrgetter("priority")


class AdmittedWork(NamedTuple):
    """A work that has quota now; `victims` lose theirs for it."""

    number: int
    flavor: str
    requires: Labels
    victims: tuple[int, ...]


class _LaterWork(NamedTuple):
    """A work that comes after others; `spare` is what it had for sure beyond its needs."""

    key: LineKey
    spare: float
    available: float


class _Candidate(NamedTuple):
    """The first work of a queue that can have quota; of several, the smallest tuple is admitted."""

    borrows: bool
    share: float
    key: LineKey
    queue: str
    flavor: FlavorTier
    victims: tuple[int, ...]


_FlavorRoom = tuple[float, float, Mapping[int, float] | None, Mapping[int, float] | None]
"""What is free of a flavor, and left of the queue's own quota; and what the queue, and all that
borrow, hold by priority, where these may be preempted.
"""
_NO_LIMIT = ScopeRoom(inf)


def _no_limit(_: QuotaScope) -> ScopeRoom:
    return _NO_LIMIT


class QueueAdmission:
    """The queues with their pending work, and who has quota of them.

    `queue_of` tells a work's queue: its ClusterQueue, or its namespace for ResourceQuotas.
    """

    def __init__(
        self,
        cluster: ReplayCluster,
        policy: ReplayPolicy,
        queue_of: Callable[[RecordedWork], str] = attrgetter("queue"),
    ) -> None:
        self._queues = {queue.name: queue for queue in cluster.queues}
        self._queue_of = queue_of
        self._flavors = cluster.flavors
        self._nodes = cluster.nodes
        self._serves: dict[FlavorTier, bool] = {}
        self._fair = policy.fair_sharing
        self._keys: dict[str, dict[str, list[FlavorTier]]] = {}
        for queue in cluster.queues:
            counted = self._keys[queue.name] = defaultdict(list)
            for key in queue.quotas:
                counted[key[1]].append(key)
        self._tree = QuotaTree(cluster.queues, cluster.cohorts, borrowing=policy.borrowing)
        self._roots = {name: self._tree.root(name) for name in self._queues}
        # Trees with a queue that takes back what others borrow.
        self._reclaiming = {
            self._roots[name]
            for name, queue in self._queues.items()
            if queue.reclaim != Reclaim.NEVER
        }
        self._lines = {name: QuotaLine() for name in self._queues}
        self._works: dict[int, tuple[RecordedWork, LineKey]] = {}
        self._holders: dict[int, QuotaHolder] = {}
        # The same by queue and flavor, who loses quota first at the front.
        self._ranked: dict[tuple[str, FlavorTier], list[QuotaHolder]] = defaultdict(list)
        self._may_use: dict[tuple[str, str, str, Labels], tuple[FlavorTier, ...]] = {}
        # Units held of a flavor by queue and priority: sums that tell whether preemption can help.
        self._held: dict[tuple[str, FlavorTier], dict[int, float]] = defaultdict(
            lambda: defaultdict(float)
        )
        self._live: set[str] = set()
        # Trees of which quota was given back since their pending work was looked at.
        self._freed: set[int] = set()
        self._full = FullQueues(self._tree, cluster.queues)
        # How often quota was given back in each tree: then all is tried again.
        self._rounds: Counter[int] = Counter()
        # Of each tree how often its use has changed, and by queue what failed since then.
        self._changes: Counter[int] = Counter()
        self._failed: dict[str, tuple[int, list[QuotaNeeds]]] = {}
        # Who borrows of a tree and flavor, and the units that all of them hold by priority.
        self._borrowing: dict[tuple[int, FlavorTier], set[str]] = defaultdict(set)
        self._borrowed: dict[tuple[int, FlavorTier], dict[int, float]] = defaultdict(
            lambda: defaultdict(float)
        )
        # Whom each queue would admit, until something comes, goes or gives quota back.
        self._next: dict[str, _Candidate] = {}
        # Who comes first of queues that were not tried further, as they had to wait for others.
        self._later: dict[str, _LaterWork] = {}
        self._first_keys = {queue.name: next(iter(queue.quotas), None) for queue in cluster.queues}

    @property
    def is_dirty(self) -> bool:
        return bool(self._live or self._freed)

    def add(self, number: int, work: RecordedWork, key: LineKey) -> bool:
        """Put a work into its queue; False where it has none, and needs no quota."""
        queue = self._queues.get(self._queue_of(work))
        if queue is None:
            return False
        self._works[number] = (work, key)
        # Work that may preempt must not be blocked by work that may not.
        levels = queue.preempts_own or queue.reclaim == Reclaim.LOWER_PRIORITY
        scope = QuotaScope(work.counted, work.priority if levels else 0)
        needs = QuotaNeeds(scope, work.tier, work.total_units, work.requires)
        self._lines[queue.name].add(needs, key)
        self._next.pop(queue.name, None)
        self._later.pop(queue.name, None)
        self._full.forget(queue.name)
        self._live.add(queue.name)
        return True

    def remove(self, number: int, work: RecordedWork) -> None:
        """A pending work was canceled; later work may have been held up by it."""
        name = self._queue_of(work)
        self._lines[name].remove(number)
        self._lines[name].begin_round()
        self._next.pop(name, None)
        self._later.pop(name, None)
        self._full.forget(name)
        self._live.add(name)

    def keep(self, number: int, work: RecordedWork, at: float) -> None:
        """Count the quota of a work that ran before, even where it is more than there is."""
        queue = self._queues.get(self._queue_of(work))
        keys = () if queue is None else self._possible(queue, work)
        if queue is None or not keys:
            return
        units = work.total_units
        key = next((key for key in keys if self._tree.fits(queue.name, key, units)), keys[0])
        self._hold(number, work, key, at)

    def release(self, number: int) -> None:
        """Give back the quota of a work, if it has any."""
        holder = self._holders.pop(number, None)
        if holder is None:
            return
        ranked = self._ranked[holder.queue, holder.key]
        del ranked[bisect_left(ranked, rank(holder), key=rank)]
        self._use(holder, -1)
        self._freed.add(self._roots[holder.queue])
        self._live.add(holder.queue)

    def admit(self, at: float) -> Iterator[AdmittedWork]:
        """Yield what is admitted at `at`, one by one; the caller preempts the victims."""
        while self.is_dirty:
            self._try_again()
            chosen = self._choose()
            if chosen is None:
                return
            number = chosen.key[-1]
            work, _ = self._works.pop(number)
            self._lines[chosen.queue].remove(number)
            self._next.pop(chosen.queue, None)
            # Before it takes quota: at no moment is more used than there is.
            for victim in chosen.victims:
                self.release(victim)
            self._hold(number, work, chosen.flavor, at)
            requires = self._requires(work, chosen.flavor)
            yield AdmittedWork(number, chosen.flavor[0], requires, chosen.victims)

    def _choose(self) -> _Candidate | None:
        """Return whom to admit next: work that borrows only where no other can be admitted."""
        own: list[str] = []
        borrowing: list[str] = []
        for name in sorted(self._live):
            if self._full.is_full(name):
                self._live.discard(name)
                self._next.pop(name, None)
            else:
                (own if self._tree.has_unused(name) else borrowing).append(name)
        best: _Candidate | None = None
        for names in (own, borrowing):
            for name in names:
                if best is not None and self._stays_later(name, best):
                    continue
                found = self._still_next(name) or self._head(name, best)
                if found is not None and (best is None or found < best):
                    best = found
            if best is not None and not best.borrows:
                break
        return best

    def _hold(self, number: int, work: RecordedWork, key: FlavorTier, at: float) -> None:
        name = self._queue_of(work)
        holder = QuotaHolder(number, name, key, work.total_units, work.priority, at)
        self._holders[number] = holder
        insort(self._ranked[name, key], holder, key=rank)
        self._use(holder, 1)

    def _use(self, holder: QuotaHolder, sign: int) -> None:
        name, key, units, root = (
            holder.queue,
            holder.key,
            sign * holder.units,
            self._roots[holder.queue],
        )
        borrowing, held = self._borrowing[root, key], self._held[name, key]
        self._tree.use(name, key, units)
        borrowed = self._borrowed[root, key]
        if name in borrowing:
            borrowed[holder.priority] += units
        held[holder.priority] += units
        if self._tree.borrows(name, key) != (name in borrowing):
            borrowing ^= {name}
            sign = 1 if name in borrowing else -1
            for priority, own in held.items():
                borrowed[priority] += sign * own
        self._changes[root] += 1
        self._later.pop(name, None)
        self._full.forget(name)

    def _try_again(self) -> None:
        """Let work be tried again that may have quota now, after all that one instant freed."""
        for root in self._freed:
            self._rounds[root] += 1
            # Most releases free too little for most pending work: that is not tried again.
            self._live.update(self._full.woken(root))
        for name in [name for name in self._later if self._roots[name] in self._freed]:
            del self._later[name]
        # An earlier work or flavor may have room now.
        for name in [name for name in self._next if self._roots[name] in self._freed]:
            del self._next[name]
        self._freed.clear()

    def _still_next(self, name: str) -> _Candidate | None:
        """Return whom a queue was to admit before others got quota, if it still can."""
        known = self._next.get(name)
        # Others have only taken since: what did not fit before does not now either.
        if known is None or known.victims:
            return None
        work, _ = self._works[known.key[-1]]
        return known if self._tree.fits(name, known.flavor, work.total_units) else None

    def _head(self, name: str, best: _Candidate | None) -> _Candidate | None:
        """Return the first work of a queue that can have quota; the others are passed over.

        None also where it would come after `best` in any case: then the queue is looked at again.
        """
        line, queue = self._lines[name], self._queues[name]
        self._next.pop(name, None)
        self._later.pop(name, None)
        line.enter_round(self._rounds[self._roots[name]])
        # In strict order what is too large is tried as well: it lets no other pass.
        room = _no_limit if queue.strict else partial(self._scope_room, queue, {})
        while (first := line.first(room)) is not None:
            key, needs, spare = first
            if (
                best is not None
                and self._may_come_later(name, spare)
                and self._is_later(name, key, best)
            ):
                self._later[name] = _LaterWork(key, spare, self._available(name))
                return None
            failed = self._failed_since(name)
            if not queue.strict and any(map(needs.includes, failed)):
                line.fail(needs)
                continue
            work, _ = self._works[key[-1]]
            found = self._fitting(queue, work)
            if found is not None:
                flavor, victims = found
                borrows = self._tree.borrows(name, flavor, work.total_units)
                share = self._tree.share(name, flavor, work.total_units) if self._fair else 0.0
                self._next[name] = _Candidate(borrows, share, key, name, flavor, victims)
                return self._next[name]
            if queue.strict:
                # As in Kueue, also where it can never be admitted.
                line.close()
            else:
                line.fail(needs)
                failed.append(needs)
        self._live.discard(name)
        self._full.add(name, line.lacks)
        return None

    def _is_later(self, name: str, key: LineKey, best: _Candidate) -> bool:
        """Say whether a work comes after `best` in any case, and need not be tried for now."""
        return (best.borrows, best.share, best.key) < (not self._tree.has_unused(name), 0.0, key)

    def _may_come_later(self, name: str, spare: float) -> bool:
        """Say whether it comes to the same if a work is tried later: so does what fails always.

        Not what fails for now in a tree in which queues reclaim: once others have borrowed more it
        might do better.
        """
        return spare > -_SURE or self._roots[name] not in self._reclaiming

    def _stays_later(self, name: str, best: _Candidate) -> bool:
        """Say whether the first work of a queue, which was not tried, still comes after `best`.

        Others have only taken since, so no other work of the queue comes before it.
        """
        later = self._later.get(name)
        if later is None or not self._is_later(name, later.key, best):
            return False
        if self._roots[name] not in self._reclaiming:
            return True
        return self._may_come_later(name, later.spare - (later.available - self._available(name)))

    def _available(self, name: str) -> float:
        """Return what a queue may take of its flavor, where it has one."""
        keys = self._first_keys[name]
        return self._tree.available(name, keys) if keys else 0.0

    def _failed_since(self, name: str) -> list[QuotaNeeds]:
        """Return the needs that failed in a queue since the use of its tree has changed last."""
        changes = self._changes[self._roots[name]]
        if self._failed.get(name, (-1,))[0] != changes:
            self._failed[name] = (changes, [])
        return self._failed[name][1]

    def _scope_room(
        self, queue: ReplayQueue, known: dict[str, list[_FlavorRoom]], scope: QuotaScope
    ) -> ScopeRoom:
        """Return the most that one flavor has for a scope of a queue, by preemption too.

        What is free never grows while the queues of a tree only take quota: who is told that it is
        too little need not ask again before a release.
        """
        free, unused, reclaimed, sure = 0.0, -inf, -inf, -inf
        rooms = self._flavor_rooms(queue, known, scope.counted)
        for room, left, held, borrowed in rooms:
            if held:
                room += _below(held, scope.priority)
                sure = room
                # Sums of other orders differ by their last digits: in doubt it is tried.
                room += _DOUBT
            else:
                sure = room
            if room > free:
                free = room
            if borrowed is not None:
                keeps = scope.priority if queue.reclaim == Reclaim.LOWER_PRIORITY else inf
                unused = max(unused, left)
                reclaimed = max(reclaimed, room + _below(borrowed, keeps) + _DOUBT)
        # Of several flavors a work may not have all.
        return ScopeRoom(free, unused, reclaimed, sure if len(rooms) == 1 else -inf)

    def _flavor_rooms(
        self, queue: ReplayQueue, known: dict[str, list[_FlavorRoom]], counted: str
    ) -> list[_FlavorRoom]:
        """Return what all scopes of a queue that count the same have in common."""
        rooms = known.get(counted)
        if rooms is None:
            rooms = known[counted] = []
            for key in self._keys[queue.name].get(counted, ()):
                room, left, borrowed = self._tree.available(queue.name, key), -inf, None
                held = self._held[queue.name, key] if queue.preempts_own else None
                if queue.reclaim != Reclaim.NEVER:
                    left = self._tree.unused(queue.name, key)
                    borrowed = self._borrowed[self._roots[queue.name], key]
                rooms.append((room, left, held, borrowed))
        return rooms

    def _fitting(
        self, queue: ReplayQueue, work: RecordedWork
    ) -> tuple[FlavorTier, tuple[int, ...]] | None:
        """Return the flavor that has quota, and who is preempted for it; None if none has."""
        units, borrowing = work.total_units, None
        keys = self._possible(queue, work)
        for key in keys:
            if not self._tree.fits(queue.name, key, units):
                continue
            if not (queue.next_before_borrowing and self._tree.borrows(queue.name, key, units)):
                return key, ()
            borrowing = borrowing or key
        if borrowing is not None:
            return borrowing, ()
        for key in keys:
            demand = QuotaDemand(queue, key, units, work.priority)
            names = self._losing_queues(demand)
            if not self._is_enough(demand, names):
                continue
            holders = self._candidates(demand, names)
            if names == [queue.name]:
                victims = own_victims(self._tree.lacking(queue.name, key, units), holders)
            else:
                victims = quota_victims(self._tree, demand, holders)
            if victims:
                return key, tuple(victims)
        return None

    def _losing_queues(self, demand: QuotaDemand) -> list[str]:
        """Return the queues whose work may lose quota for a demand: its own, and who borrows."""
        queue = demand.queue
        reclaims = queue.reclaim != Reclaim.NEVER and not self._tree.borrows(
            queue.name, demand.key, demand.units
        )
        names = [queue.name] if queue.preempts_own else []
        if reclaims:
            # A queue that reclaims has quota left, so it is not among those that borrow.
            names += sorted(self._borrowing[self._roots[queue.name], demand.key])
        return names

    def _is_enough(self, demand: QuotaDemand, names: Sequence[str]) -> bool:
        """Say whether a demand could have quota if all who may lose theirs lost it.

        Who gives back units makes room for no more than these.
        """
        room = self._tree.available(demand.queue.name, demand.key)
        for name in names:
            keeps = self._keeping_priority(demand, name)
            room += _below(self._held[name, demand.key], keeps)
        # Sums of other orders differ by their last digits: in doubt it is tried.
        return room >= demand.units - _DOUBT

    def _candidates(self, demand: QuotaDemand, names: Sequence[str]) -> Iterator[QuotaHolder]:
        """Return whose quota may be taken for a demand: of other queues first, then by rank."""
        own: list[QuotaHolder] = []
        others: list[list[QuotaHolder]] = []
        for name in names:
            ranked = self._ranked[name, demand.key]
            lower = ranked[
                : bisect_left(ranked, self._keeping_priority(demand, name), key=_PRIORITY)
            ]
            if name == demand.queue.name:
                own = lower
            else:
                others.append(lower)
        return chain(merge(*others, key=rank), own)

    @staticmethod
    def _keeping_priority(demand: QuotaDemand, name: str) -> float:
        """Return the least priority that keeps quota of a queue."""
        queue = demand.queue
        is_lower = name == queue.name or queue.reclaim == Reclaim.LOWER_PRIORITY
        return demand.priority if is_lower else inf

    def _possible(self, queue: ReplayQueue, work: RecordedWork) -> tuple[FlavorTier, ...]:
        """Return the flavors that a work may have, in the order of its queue."""
        alike = (queue.name, work.counted, work.tier, work.requires)
        if alike not in self._may_use:
            asked = dict(work.requires)
            self._may_use[alike] = tuple(
                key
                for key in queue.quotas
                if key[1] == work.counted
                and all(asked.get(k, v) == v for k, v in self._flavors.get(key[0], ()))
                and (key[1] == work.tier or self._has_nodes(key[0], work.tier))
            )
        return self._may_use[alike]

    def _has_nodes(self, flavor: str, tier: str) -> bool:
        """Say whether nodes of a flavor offer a tier: one resource may be of several."""
        key, labels = (flavor, tier), self._flavors.get(flavor, ())
        if key not in self._serves:
            self._serves[key] = not labels or any(
                any(device.tier == tier for device in node.devices)
                and all(node.labels.get(name) == value for name, value in labels)
                for node in self._nodes
            )
        return self._serves[key]

    def _requires(self, work: RecordedWork, key: FlavorTier) -> Labels:
        return tuple(sorted({*work.requires, *self._flavors.get(key[0], ())}))


def _below(held: Mapping[int, float], priority: float) -> float:
    """Return the units that are held below a priority."""
    found = 0.0
    for own, units in held.items():
        if own < priority:
            found += units
    return found


def namespace_admission(cluster: ReplayCluster, policy: ReplayPolicy) -> QueueAdmission:
    """Return the admission of pods to their namespaces, by ResourceQuotas."""
    queue_of = partial(_limiting_namespace, cluster)
    return QueueAdmission(_namespace_queues(cluster), policy, queue_of)


def _namespace_queues(cluster: ReplayCluster) -> ReplayCluster:
    """Return ResourceQuotas as queues that lend what is told of them, mostly nothing."""
    lent = cluster.namespace_lending
    queues = tuple(
        ReplayQueue(
            name,
            {
                ("", key): FlavorQuota(hard, lending_limit=lent.get((name, key), 0.0))
                for key, hard in limits.items()
            },
            cohort="namespaces" if lent else "",
        )
        for name, limits in cluster.namespace_quotas.items()
    )
    # They know no nodes and no flavors: what may be created is placed by other rules.
    return ReplayCluster((), queues)


def _limiting_namespace(cluster: ReplayCluster, work: RecordedWork) -> str:
    """Return the namespace whose ResourceQuota limits a work; empty where none names it."""
    limits = cluster.namespace_quotas.get(work.namespace, {})
    return work.namespace if work.counted in limits else ""
