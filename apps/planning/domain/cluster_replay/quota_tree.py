"""Kueue's quota arithmetic: what queues and cohorts use, lend and may still take.

Source: kubernetes-sigs/kueue, concepts/cluster_queue and concepts/cohort. What a queue does not
lend is used first; the rest of its use counts in its cohort as well, and so on upwards.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import inf

from apps.planning.domain.cluster_replay.inputs import (
    SLACK,
    FlavorQuota,
    FlavorTier,
    ReplayCohort,
    ReplayQueue,
)

_NO_QUOTA = FlavorQuota(0.0)


@dataclass
class _QuotaNode:
    """A queue or a cohort; `total` is its quota with what those below it lend to it."""

    quotas: Mapping[FlavorTier, FlavorQuota]
    parent: "_QuotaNode | None" = None
    children: list["_QuotaNode"] = field(default_factory=list)
    total: dict[FlavorTier, float] = field(default_factory=dict)
    used: defaultdict[FlavorTier, float] = field(default_factory=lambda: defaultdict(float))
    _retained: dict[FlavorTier, float] = field(default_factory=dict)
    _passed_on: dict[FlavorTier, float] = field(default_factory=dict)
    _has_unused: bool | None = None

    def sum_up(self) -> None:
        for child in self.children:
            child.sum_up()
        keys = {*self.quotas, *(key for child in self.children for key in child.total)}
        for key in keys:
            lent = sum(child.total.get(key, 0.0) - child.retained(key) for child in self.children)
            quota = self.quotas.get(key, _NO_QUOTA)
            total = self.total[key] = quota.nominal + lent
            # Quotas do not change while work is replayed, and each question reads it.
            if quota.lending_limit is not None:
                self._retained[key] = max(0.0, total - quota.lending_limit)

    def retained(self, key: FlavorTier) -> float:
        """Return what is never lent."""
        return self._retained.get(key, 0.0)

    def available(self, key: FlavorTier, *, borrowing: bool) -> float:
        used = self.used[key]
        if self.parent is None:
            # May be below 0: what ran before the replay holds its quota in any case.
            return self.total.get(key, 0.0) - used
        retained = self._retained.get(key, 0.0)
        above = self.parent.passed_on(key, borrowing=borrowing)
        quota = self.quotas.get(key, _NO_QUOTA)
        # Only queues borrow: cohorts still pass on what is lent to them.
        limit = quota.borrowing_limit if borrowing or self.children else 0.0
        if limit is not None:
            total = self.total.get(key, 0.0)
            above = min(above, total - retained - max(0.0, used - retained) + limit)
        return retained - used + above if used < retained else above

    def passed_on(self, key: FlavorTier, *, borrowing: bool) -> float:
        """Return what is available to those below, until `forget`: all of them ask for it."""
        if key not in self._passed_on:
            self._passed_on[key] = self.available(key, borrowing=borrowing)
        return self._passed_on[key]

    def forget(self, key: FlavorTier) -> None:
        self._passed_on.pop(key, None)

    def use(self, key: FlavorTier, units: float) -> None:
        """Add use, or take it away where negative."""
        self._has_unused = None
        used = self.used[key]
        now = self.used[key] = used + units
        if self.parent is None:
            return
        retained = self._retained.get(key)
        if retained:
            # Only what is beyond the part that is never lent counts further up.
            units = max(0.0, now - retained) - max(0.0, used - retained)
        if units:
            self.parent.use(key, units)

    def has_unused(self) -> bool:
        """Say whether anything is left of its own quota."""
        if self._has_unused is None:
            used = self.used
            self._has_unused = any(used[key] < total for key, total in self.total.items())
        return self._has_unused


class QuotaTree:
    """The use of all queues. `borrowing` False: no queue uses more than its nominal quota."""

    def __init__(
        self,
        queues: Sequence[ReplayQueue],
        cohorts: Sequence[ReplayCohort] = (),
        *,
        borrowing: bool = True,
    ) -> None:
        self._borrowing = borrowing
        self._queues = {queue.name: _QuotaNode(queue.quotas) for queue in queues}
        self._weights = {queue.name: queue.weight for queue in queues}
        declared = {cohort.name: cohort for cohort in cohorts}
        names = {*declared, *(queue.cohort for queue in queues), *(c.parent for c in cohorts)}
        above = {
            name: _QuotaNode(declared[name].quotas if name in declared else {})
            for name in sorted(names - {""})
        }
        for cohort in cohorts:
            _hang(above[cohort.name], above.get(cohort.parent))
        for queue in queues:
            _hang(self._queues[queue.name], above.get(queue.cohort))
        self._cohorts = tuple(above.values())
        for node in (*self._cohorts, *self._queues.values()):
            # From each root down; the sums of a cohort need those of its children.
            if node.parent is None:
                node.sum_up()

    def available(self, queue: str, key: FlavorTier) -> float:
        """Return how many units more the queue may take now, by borrowing too."""
        return max(0.0, self._queues[queue].available(key, borrowing=self._borrowing))

    def lacking(self, queue: str, key: FlavorTier, units: float) -> float:
        """Return how much the queue must give back before it may take so many units."""
        return units - self._queues[queue].available(key, borrowing=self._borrowing)

    def fits(self, queue: str, key: FlavorTier, units: float) -> bool:
        return units <= self.available(queue, key) + SLACK

    def borrows(self, queue: str, key: FlavorTier, units: float = 0.0) -> bool:
        """Say whether the queue uses more than its own quota, with `units` more."""
        node = self._queues[queue]
        return node.used[key] + units > node.total.get(key, 0.0) + SLACK

    def use(self, queue: str, key: FlavorTier, units: float) -> None:
        self._queues[queue].use(key, units)
        for cohort in self._cohorts:
            cohort.forget(key)

    def unused(self, queue: str, key: FlavorTier) -> float:
        """Return what is left of the queue's own quota."""
        node = self._queues[queue]
        return node.total.get(key, 0.0) - node.used[key]

    def has_unused(self, queue: str) -> bool:
        """Say whether anything is left of the queue's own quota."""
        return self._queues[queue].has_unused()

    def lent(self, queue: str, key: FlavorTier) -> float:
        """Return what the cohort of a queue has for it now."""
        parent = self._queues[queue].parent
        return 0.0 if parent is None else parent.passed_on(key, borrowing=self._borrowing)

    def cohort(self, queue: str) -> int:
        """Return a number that is the same for all queues of one cohort."""
        node = self._queues[queue]
        return id(node if node.parent is None else node.parent)

    def used(self, queue: str, key: FlavorTier) -> float:
        return self._queues[queue].used[key]

    def root(self, queue: str) -> int:
        """Return a number that is the same for all queues of one tree."""
        node = self._queues[queue]
        while node.parent is not None:
            node = node.parent
        return id(node)

    def share(self, queue: str, key: FlavorTier | None = None, units: float = 0.0) -> float:
        """Return Kueue's weighted share: what is borrowed over what the cohort lends, ÷ weight.

        The largest of all tiers, with `units` of `key` added. 0 where nothing is borrowed,
        infinite for a weight of 0.
        """
        node = self._queues[queue]
        borrowed: defaultdict[str, float] = defaultdict(float)
        lendable: defaultdict[str, float] = defaultdict(float)
        for flavor in node.total:
            used = node.used[flavor] + (units if flavor == key else 0.0)
            borrowed[flavor[1]] += max(0.0, used - node.total[flavor])
        if node.parent is not None:
            for flavor, total in node.parent.total.items():
                lendable[flavor[1]] += total
        # What ran before the replay may use more than there is to lend.
        most = max(
            (amount / max(lendable[tier], SLACK) for tier, amount in borrowed.items()), default=0.0
        )
        if most <= SLACK:
            return 0.0
        weight = self._weights[queue]
        return most / weight if weight > 0 else inf


def _hang(node: _QuotaNode, parent: _QuotaNode | None) -> None:
    node.parent = parent
    if parent is not None:
        parent.children.append(node)
