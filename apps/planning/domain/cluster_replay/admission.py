"""Kueue's admission: which work gets quota next, from which queue and flavor."""

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterator, Sequence
from math import inf
from operator import attrgetter
from typing import NamedTuple, cast

from apps.planning.domain.cluster_replay.inputs import (
    SLACK,
    FlavorTier,
    Labels,
    Reclaim,
    RecordedWork,
    ReplayCluster,
    ReplayPolicy,
    ReplayQueue,
)
from apps.planning.domain.cluster_replay.pending_line import LineKey, PendingGroup, PendingLine
from apps.planning.domain.cluster_replay.preemption import QuotaDemand, QuotaHolder, quota_victims
from apps.planning.domain.cluster_replay.quota_tree import QuotaTree

_DOUBT = 1e-6


class AdmittedWork(NamedTuple):
    """A work that has quota now; `victims` lose theirs for it."""

    number: int
    flavor: str
    requires: Labels
    victims: tuple[int, ...]


class _QuotaNeeds(NamedTuple):
    """Needs that works of one queue have in common: where one does not fit, none does."""

    tier: str
    counted: str
    units: float
    priority: int
    requires: Labels

    def includes(self, other: "_QuotaNeeds") -> bool:
        """Say whether quota for this would be quota for the other, too."""
        alike = self[:2] == other[:2] and self.requires == other.requires
        # Who asks for more borrows sooner, and may then not reclaim what others borrow.
        return alike and self.units >= other.units and self.priority <= other.priority


class _Candidate(NamedTuple):
    """The first work of a queue that can have quota; of several, the smallest tuple is admitted."""

    borrows: bool
    share: float
    key: LineKey
    queue: str
    flavor: FlavorTier
    victims: tuple[int, ...]


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
        self._tree = QuotaTree(cluster.queues, cluster.cohorts, borrowing=policy.borrowing)
        self._roots = {name: self._tree.root(name) for name in self._queues}
        self._members: dict[int, list[str]] = defaultdict(list)
        for name, root in self._roots.items():
            self._members[root].append(name)
        self._lines = {name: PendingLine() for name in self._queues}
        self._works: dict[int, tuple[RecordedWork, LineKey]] = {}
        self._holders: dict[str, dict[int, QuotaHolder]] = {name: {} for name in self._queues}
        self._held_in: dict[int, str] = {}
        # Units held of a flavor by queue and priority: sums that tell whether preemption can help.
        self._held: dict[tuple[str, FlavorTier], dict[int, float]] = defaultdict(
            lambda: defaultdict(float)
        )
        self._live: set[str] = set()
        # Of each tree how often its use has changed, and by queue what failed since then.
        self._changes: Counter[int] = Counter()
        self._failed: dict[str, tuple[int, list[_QuotaNeeds]]] = {}

    @property
    def is_dirty(self) -> bool:
        return bool(self._live)

    def add(self, number: int, work: RecordedWork, key: LineKey) -> bool:
        """Put a work into its queue; False where it has none, and needs no quota."""
        queue = self._queues.get(self._queue_of(work))
        if queue is None:
            return False
        self._works[number] = (work, key)
        # Work that may preempt must not be blocked by work that may not.
        levels = queue.preempts_own or queue.reclaim == Reclaim.LOWER_PRIORITY
        needs = _QuotaNeeds(
            work.tier,
            work.counted,
            work.total_units,
            work.priority if levels else 0,
            work.requires,
        )
        self._lines[queue.name].add(PendingGroup("", needs), key)
        self._live.add(queue.name)
        return True

    def remove(self, number: int, work: RecordedWork) -> None:
        """A pending work was canceled; later work may have been held up by it."""
        name = self._queue_of(work)
        self._lines[name].remove(number)
        self._lines[name].unblock()
        self._live.add(name)

    def keep(self, number: int, work: RecordedWork, at: float) -> None:
        """Count the quota of a work that ran before, even where it is more than there is."""
        queue = self._queues.get(self._queue_of(work))
        keys = [] if queue is None else list(self._possible(queue, work))
        if queue is None or not keys:
            return
        units = work.total_units
        key = next((key for key in keys if self._tree.fits(queue.name, key, units)), keys[0])
        self._hold(number, work, key, at)

    def release(self, number: int) -> None:
        """Give back the quota of a work, if it has any."""
        name = self._held_in.pop(number, None)
        if name is None:
            return
        holder = self._holders[name].pop(number)
        self._use(holder, -1)
        self._unblock(self._roots[name])

    def admit(self, at: float) -> Iterator[AdmittedWork]:
        """Yield what is admitted at `at`, one by one; the caller preempts the victims."""
        while self._live:
            candidates = [found for name in sorted(self._live) if (found := self._head(name))]
            if not candidates:
                return
            chosen = min(candidates)
            number = chosen.key[-1]
            work, _ = self._works.pop(number)
            self._lines[chosen.queue].remove(number)
            # Before it takes quota: at no moment is more used than there is.
            for victim in chosen.victims:
                self.release(victim)
            self._hold(number, work, chosen.flavor, at)
            requires = self._requires(work, chosen.flavor)
            yield AdmittedWork(number, chosen.flavor[0], requires, chosen.victims)

    def _hold(self, number: int, work: RecordedWork, key: FlavorTier, at: float) -> None:
        name = self._queue_of(work)
        holder = QuotaHolder(number, name, key, work.total_units, work.priority, at)
        self._holders[name][number] = holder
        self._held_in[number] = name
        self._use(holder, 1)

    def _use(self, holder: QuotaHolder, sign: int) -> None:
        self._tree.use(holder.queue, holder.key, sign * holder.units)
        self._held[holder.queue, holder.key][holder.priority] += sign * holder.units
        self._changes[self._roots[holder.queue]] += 1

    def _unblock(self, root: int) -> None:
        for name in self._members[root]:
            line = self._lines[name]
            # Most releases free too little for most pending work: that is not tried again.
            if line.is_passing and line.unblock(self._may_fit(self._queues[name])):
                self._live.add(name)

    def _head(self, name: str) -> _Candidate | None:
        """Return the first work of a queue that can have quota; the others are passed over."""
        line, queue = self._lines[name], self._queues[name]
        may_fit = self._may_fit(queue)
        failed = self._failed_since(name)
        while (first := line.first()) is not None:
            number, group = first
            needs = cast("_QuotaNeeds", group.needs)
            # Most that is pending is larger than all that can be had: none of it is tried.
            if not queue.strict and (not may_fit(needs) or any(map(needs.includes, failed))):
                line.block(group)
                continue
            work, key = self._works[number]
            found = self._fitting(queue, work)
            if found is not None:
                flavor, victims = found
                borrows = self._tree.borrows(name, flavor, work.total_units)
                share = self._tree.share(name, flavor, work.total_units) if self._fair else 0.0
                return _Candidate(borrows, share, key, name, flavor, victims)
            if queue.strict:
                # As in Kueue, also where it can never be admitted.
                line.close()
            else:
                line.block(group)
                failed.append(needs)
        self._live.discard(name)
        return None

    def _failed_since(self, name: str) -> list[_QuotaNeeds]:
        """Return the needs that failed in a queue since the use of its tree has changed last."""
        changes = self._changes[self._roots[name]]
        if self._failed.get(name, (-1,))[0] != changes:
            self._failed[name] = (changes, [])
        return self._failed[name][1]

    def _may_fit(self, queue: ReplayQueue) -> Callable[[Hashable], bool]:
        """Return a test of needs that some flavor could meet, by preemption or not."""
        most = self._most_room(queue)
        return lambda needs: (
            isinstance(needs, _QuotaNeeds) and needs.units <= most.get(needs.counted, 0.0) + SLACK
        )

    def _most_room(self, queue: ReplayQueue) -> dict[str, float]:
        """Return the most units that one flavor has for a queue, by what is counted."""
        most: dict[str, float] = {}
        for key in queue.quotas:
            room = self._tree.available(queue.name, key)
            if queue.preempts_own:
                room = inf
            elif queue.reclaim != Reclaim.NEVER:
                room = max(room, self._tree.unused(queue.name, key))
            most[key[1]] = max(most.get(key[1], 0.0), room)
        return most

    def _fitting(
        self, queue: ReplayQueue, work: RecordedWork
    ) -> tuple[FlavorTier, tuple[int, ...]] | None:
        """Return the flavor that has quota, and who is preempted for it; None if none has."""
        units, borrowing = work.total_units, None
        keys = list(self._possible(queue, work))
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
            victims = quota_victims(self._tree, demand, self._candidates(demand, names))
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
            names += [
                name
                for name in self._members[self._roots[queue.name]]
                if name != queue.name and self._tree.borrows(name, demand.key)
            ]
        return names

    def _is_enough(self, demand: QuotaDemand, names: Sequence[str]) -> bool:
        """Say whether a demand could have quota if all who may lose theirs lost it.

        Who gives back units makes room for no more than these.
        """
        room = self._tree.available(demand.queue.name, demand.key)
        for name in names:
            held = self._held[name, demand.key]
            is_lower = self._is_lower(demand, name)
            room += sum(units for priority, units in held.items() if is_lower(priority))
        # Sums of other orders differ by their last digits: in doubt it is tried.
        return room >= demand.units - _DOUBT

    def _candidates(self, demand: QuotaDemand, names: Sequence[str]) -> list[QuotaHolder]:
        """Return whose quota may be taken for a demand."""
        found = []
        for name in names:
            is_lower = self._is_lower(demand, name)
            found += [
                holder
                for holder in self._holders[name].values()
                if holder.key == demand.key and is_lower(holder.priority)
            ]
        return found

    @staticmethod
    def _is_lower(demand: QuotaDemand, name: str) -> Callable[[int], bool]:
        """Return a test of the priorities that may lose quota of a queue."""
        queue = demand.queue
        if name == queue.name or queue.reclaim == Reclaim.LOWER_PRIORITY:
            return lambda priority: priority < demand.priority
        return lambda _: True

    def _possible(self, queue: ReplayQueue, work: RecordedWork) -> Iterator[FlavorTier]:
        asked = dict(work.requires)
        for key in queue.quotas:
            labels = self._flavors.get(key[0], ())
            if key[1] != work.counted or any(asked.get(k, v) != v for k, v in labels):
                continue
            if key[1] == work.tier or self._has_nodes(key[0], work.tier):
                yield key

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
