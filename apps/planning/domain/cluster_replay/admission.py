"""Kueue's admission: which work gets quota next, from which queue and flavor."""

from bisect import bisect_left, insort
from collections.abc import Callable, Iterator, Sequence
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
from apps.planning.domain.cluster_replay.queue_state import (
    FlavorState,
    LaterWork,
    NextWork,
    QueueState,
    TreeState,
    below,
    queue_states,
)
from apps.planning.domain.cluster_replay.quota_line import QuotaNeeds, QuotaScope, ScopeRoom
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
        self._queue_of = queue_of
        self._flavors = cluster.flavors
        self._nodes = cluster.nodes
        self._serves: dict[FlavorTier, bool] = {}
        self._fair = policy.fair_sharing
        tree = QuotaTree(cluster.queues, cluster.cohorts, borrowing=policy.borrowing)
        self._tree = tree
        self._queues = queue_states(tree, cluster.queues)
        self._works: dict[int, tuple[RecordedWork, LineKey]] = {}
        self._holders: dict[int, QuotaHolder] = {}
        self._may_use: dict[tuple[str, str, str, Labels], tuple[FlavorState, ...]] = {}
        self._live: set[str] = set()
        # Trees of which quota was given back since their pending work was looked at.
        self._freed: dict[int, TreeState] = {}
        self._full = FullQueues(tree, cluster.queues)

    @property
    def is_dirty(self) -> bool:
        return bool(self._live or self._freed)

    def add(self, number: int, work: RecordedWork, key: LineKey) -> bool:
        """Put a work into its queue; False where it has none, and needs no quota."""
        own = self._queues.get(self._queue_of(work)) if self._queues else None
        if own is None:
            return False
        self._works[number] = (work, key)
        # Work that may preempt must not be blocked by work that may not.
        levels = own.queue.preempts_own or own.queue.reclaim == Reclaim.LOWER_PRIORITY
        scope = QuotaScope(work.counted, work.priority if levels else 0)
        own.line.add(QuotaNeeds(scope, work.tier, work.total_units, work.requires), key)
        room = _NO_LIMIT if own.queue.strict else own.scope_room(scope)
        lacks = work.total_units - SLACK - room.free
        # It changes nothing in a queue that is full, unless it has room itself.
        if (
            lacks <= 0
            or lacks <= room.unused - room.free
            or own.queue.name in self._live
            or not self._full.stays_full(own.queue.name, lacks)
        ):
            self._check_again(own)
        return True

    def remove(self, number: int, work: RecordedWork) -> None:
        """A pending work was canceled; later work may have been held up by it."""
        own = self._queues[self._queue_of(work)]
        own.line.remove(number)
        own.line.begin_round()
        self._check_again(own)

    def _check_again(self, own: QueueState) -> None:
        own.next = own.later = None
        self._full.forget(own.queue.name)
        self._live.add(own.queue.name)

    def keep(self, number: int, work: RecordedWork, at: float) -> None:
        """Count the quota of a work that ran before, even where it is more than there is."""
        own = self._queues.get(self._queue_of(work))
        flavors = () if own is None else self._possible(own, work)
        if own is None or not flavors:
            return
        units = work.total_units
        flavor = next((one for one in flavors if one.cell.fits(units)), flavors[0])
        self._hold(number, work, own, flavor, at)

    def release(self, number: int) -> None:
        """Give back the quota of a work, if it has any."""
        holder = self._holders.pop(number, None)
        if holder is None:
            return
        own = self._queues[holder.queue]
        flavor = own.flavors[holder.key]
        del flavor.ranked[bisect_left(flavor.ranked, rank(holder), key=rank)]
        self._use(own, flavor, holder, -1)
        self._freed[own.tree.root] = own.tree
        if own.line:
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
            own = self._queues[chosen.queue]
            own.line.remove(number)
            own.next = None
            # Before it takes quota: at no moment is more used than there is.
            for victim in chosen.victims:
                self.release(victim)
            self._hold(number, work, own, own.flavors[chosen.flavor], at)
            if not own.line:
                self._live.discard(chosen.queue)
            requires = self._requires(work, chosen.flavor)
            yield AdmittedWork(number, chosen.flavor[0], requires, chosen.victims)

    def _choose(self) -> NextWork | None:
        """Return whom to admit next: work that borrows only where no other can be admitted."""
        live = [self._queues[name] for name in sorted(self._live)]
        best: NextWork | None = None
        for unused in (True, False):
            for own in live:
                if own.unused != unused or (best is not None and self._stays_later(own, best)):
                    continue
                if self._full.is_full(own.queue.name):
                    self._live.discard(own.queue.name)
                    own.next = None
                    continue
                found = self._still_next(own) or self._head(own, best)
                if found is not None and (best is None or found < best):
                    best = found
            if best is not None and not best.borrows:
                break
        return best

    def _hold(
        self, number: int, work: RecordedWork, own: QueueState, flavor: FlavorState, at: float
    ) -> None:
        name, key, units = own.queue.name, flavor.key, work.total_units
        holder = QuotaHolder(number, name, key, flavor.cell, units, work.priority, at)
        self._holders[number] = holder
        insort(flavor.ranked, holder, key=rank)
        self._use(own, flavor, holder, 1)

    def _use(self, own: QueueState, flavor: FlavorState, holder: QuotaHolder, sign: int) -> None:
        flavor.use(own.queue.name, holder.priority, sign * holder.units)
        own.tree.changes += 1
        own.note_use()
        self._full.forget(own.queue.name)

    def _try_again(self) -> None:
        """Let work be tried again that may have quota now, after all that one instant freed."""
        for root, tree in self._freed.items():
            # An earlier work or flavor of any queue may have room now.
            tree.round += 1
            # Most releases free too little for most pending work: that is not tried again.
            self._live.update(self._full.woken(root))
        self._freed.clear()

    @staticmethod
    def _still_next(own: QueueState) -> NextWork | None:
        """Return whom a queue was to admit before others got quota, if it still can."""
        known = own.next
        # Others have only taken since: what did not fit before does not now either.
        if known is None or known.victims or own.next_round != own.tree.round:
            return None
        units = own.next_units
        return known if own.flavors[known.flavor].cell.fits(units) else None

    def _head(self, own: QueueState, best: NextWork | None) -> NextWork | None:
        """Return the first work of a queue that can have quota; the others are passed over.

        None also where it would come after `best` in any case: then the queue is looked at again.
        """
        line, queue = own.line, own.queue
        own.next = own.later = None
        if line.entered != own.tree.round:
            line.entered = own.tree.round
            line.begin_round()
        # In strict order what is too large is tried as well: it lets no other pass.
        room = _no_limit if queue.strict else own.scope_room
        while (first := line.first(room)) is not None:
            key, needs, spare = first
            if (
                best is not None
                and self._may_come_later(own, spare)
                and self._is_later(own, key, best)
            ):
                own.later = LaterWork(key, spare, own.available(), own.tree.round)
                return None
            if own.failed_at != own.tree.changes:
                own.failed_at, own.failed = own.tree.changes, []
            failed = own.failed
            if failed and not queue.strict and any(map(needs.includes, failed)):
                line.fail(needs)
                continue
            work, _ = self._works[key[-1]]
            found = self._fitting(own, work)
            if found is not None:
                flavor, victims = found
                units = work.total_units
                borrows = flavor.cell.borrows(units)
                share = self._tree.share(queue.name, flavor.key, units) if self._fair else 0.0
                own.next_round, own.next_units = own.tree.round, units
                own.next = NextWork(borrows, share, key, queue.name, flavor.key, victims)
                return own.next
            if queue.strict:
                # As in Kueue, also where it can never be admitted.
                line.close()
            else:
                line.fail(needs)
                failed.append(needs)
        self._live.discard(queue.name)
        self._full.add(queue.name, line.lacks)
        return None

    @staticmethod
    def _is_later(own: QueueState, key: LineKey, best: NextWork) -> bool:
        """Say whether a work comes after `best` in any case, and need not be tried for now."""
        return best[:3] < (not own.unused, 0.0, key)

    @staticmethod
    def _may_come_later(own: QueueState, spare: float) -> bool:
        """Say whether it comes to the same if a work is tried later: so does what fails always.

        Not what fails for now in a tree in which queues reclaim: once others have borrowed more it
        might do better.
        """
        return spare > -_SURE or not own.tree.reclaims

    def _stays_later(self, own: QueueState, best: NextWork) -> bool:
        """Say whether the first work of a queue, which was not tried, still comes after `best`.

        Others have only taken since, so no other work of the queue comes before it.
        """
        later = own.later
        if (
            later is None
            or later.round != own.tree.round
            or not self._is_later(own, later.key, best)
        ):
            return False
        if not own.tree.reclaims:
            return True
        return self._may_come_later(own, later.spare - (later.available - own.available()))

    def _fitting(
        self, own: QueueState, work: RecordedWork
    ) -> tuple[FlavorState, tuple[int, ...]] | None:
        """Return the flavor that has quota, and who is preempted for it; None if none has."""
        queue, units, borrowing = own.queue, work.total_units, None
        flavors = self._possible(own, work)
        for flavor in flavors:
            if not flavor.cell.fits(units):
                continue
            if not (queue.next_before_borrowing and flavor.cell.borrows(units)):
                return flavor, ()
            borrowing = borrowing or flavor
        if borrowing is not None:
            return borrowing, ()
        for flavor in flavors:
            demand = QuotaDemand(queue, flavor.cell, units, work.priority)
            names = _losing_queues(demand, flavor)
            losing = [self._queues[name].flavors[flavor.key] for name in names]
            if not self._is_enough(demand, losing):
                continue
            holders = _candidates(demand, losing)
            if names == [queue.name]:
                victims = own_victims(units - flavor.cell.left(), holders)
            else:
                victims = quota_victims(demand, holders)
            if victims:
                return flavor, tuple(victims)
        return None

    @staticmethod
    def _is_enough(demand: QuotaDemand, losing: Sequence[FlavorState]) -> bool:
        """Say whether a demand could have quota if all who may lose theirs lost it.

        Who gives back units makes room for no more than these.
        """
        room = demand.cell.available()
        for flavor in losing:
            room += below(flavor.held, _keeping_priority(demand, flavor))
        # Sums of other orders differ by their last digits: in doubt it is tried.
        return room >= demand.units - _DOUBT

    def _possible(self, own: QueueState, work: RecordedWork) -> tuple[FlavorState, ...]:
        """Return the flavors that a work may have, in the order of its queue."""
        alike = (own.queue.name, work.counted, work.tier, work.requires)
        found = self._may_use.get(alike)
        if found is None:
            asked = dict(work.requires)
            found = self._may_use[alike] = tuple(
                flavor
                for key, flavor in own.flavors.items()
                if key[1] == work.counted
                and all(asked.get(k, v) == v for k, v in self._flavors.get(key[0], ()))
                and (key[1] == work.tier or self._has_nodes(key[0], work.tier))
            )
        return found

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


def _losing_queues(demand: QuotaDemand, flavor: FlavorState) -> list[str]:
    """Return the queues whose work may lose quota for a demand: its own, and who borrows."""
    queue = demand.queue
    reclaims = queue.reclaim != Reclaim.NEVER and not flavor.cell.borrows(demand.units)
    names = [queue.name] if queue.preempts_own else []
    if reclaims:
        # A queue that reclaims has quota left, so it is not among those that borrow.
        names += sorted(flavor.borrowed.queues)
    return names


def _candidates(demand: QuotaDemand, losing: Sequence[FlavorState]) -> Iterator[QuotaHolder]:
    """Return whose quota may be taken for a demand: of other queues first, then by rank."""
    own: list[QuotaHolder] = []
    others: list[list[QuotaHolder]] = []
    for flavor in losing:
        ranked = flavor.ranked
        lower = ranked[: bisect_left(ranked, _keeping_priority(demand, flavor), key=_PRIORITY)]
        if flavor.cell is demand.cell:
            own = lower
        else:
            others.append(lower)
    return chain(merge(*others, key=rank), own)


def _keeping_priority(demand: QuotaDemand, flavor: FlavorState) -> float:
    """Return the least priority that keeps quota of a queue."""
    is_lower = flavor.cell is demand.cell or demand.queue.reclaim == Reclaim.LOWER_PRIORITY
    return demand.priority if is_lower else inf


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
