"""Kueue's admission: which work gets quota next, from which queue and flavor."""

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator
from math import inf
from operator import attrgetter
from typing import NamedTuple

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
        self._live: set[str] = set()
        self._least: dict[str, dict[str, float]] = {}

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
        self._least.pop(queue.name, None)
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
        self._tree.use(name, holder.key, -holder.units)
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
        name, units = self._queue_of(work), work.total_units
        self._tree.use(name, key, units)
        self._holders[name][number] = QuotaHolder(number, name, key, units, work.priority, at)
        self._held_in[number] = name

    def _unblock(self, root: int) -> None:
        for name in self._members[root]:
            line = self._lines[name]
            # Most releases free too little for any pending work: then nothing is tried again.
            if name in self._least and self._is_too_little(name):
                continue
            # Even where nothing is pending: later work must not find the line blocked.
            line.unblock()
            if len(line):
                self._live.add(name)

    def _head(self, name: str) -> _Candidate | None:
        """Return the first work of a queue that can have quota; the others are passed over."""
        line, queue = self._lines[name], self._queues[name]
        if not queue.strict:
            # Most that is pending is larger than all that can be had: none of it is looked at.
            line.block_where(self._is_hopeless(queue))
        while (first := line.first()) is not None:
            number, group = first
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
        self._live.discard(name)
        if not queue.strict:
            self._least[name] = _least_units(line)
        return None

    def _is_too_little(self, name: str) -> bool:
        """Say whether a queue has less quota left than its smallest pending work needs."""
        most = self._most_room(self._queues[name])
        least = self._least[name].items()
        return all(units > most.get(counted, 0.0) + SLACK for counted, units in least)

    def _is_hopeless(self, queue: ReplayQueue) -> Callable[[Hashable], bool]:
        """Return a test of needs that no flavor can meet, not even by preemption."""
        most = self._most_room(queue)
        return lambda needs: (
            isinstance(needs, _QuotaNeeds) and needs.units > most.get(needs.counted, 0.0) + SLACK
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
            victims = quota_victims(self._tree, demand, self._candidates(demand))
            if victims:
                return key, tuple(victims)
        return None

    def _candidates(self, demand: QuotaDemand) -> list[QuotaHolder]:
        """Return who may lose quota for a demand: of queues that borrow, and of its own."""
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
        lower_only = queue.reclaim == Reclaim.LOWER_PRIORITY
        return [
            holder
            for name in names
            for holder in self._holders[name].values()
            if holder.key == demand.key
            and (holder.priority < demand.priority if name == queue.name or lower_only else True)
        ]

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


def _least_units(line: PendingLine) -> dict[str, float]:
    """Return the least units that pending work of a queue needs, by what is counted."""
    least: dict[str, float] = {}
    for needs in line.needs():
        if isinstance(needs, _QuotaNeeds):  # pragma: no branch
            least[needs.counted] = min(needs.units, least.get(needs.counted, inf))
    return least
