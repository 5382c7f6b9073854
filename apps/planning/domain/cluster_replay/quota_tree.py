"""Kueue's quota arithmetic: what queues and cohorts use, lend and may still take.

Source: kubernetes-sigs/kueue, concepts/cluster_queue and concepts/cohort. What a queue does not
lend is used first; the rest of its use counts in its cohort as well, and so on upwards.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from math import inf

from msgspec import Struct, field

from apps.planning.domain.cluster_replay.inputs import (
    SLACK,
    FlavorQuota,
    FlavorTier,
    ReplayCohort,
    ReplayQueue,
)

_NO_QUOTA = FlavorQuota(0.0)


class QuotaCell(Struct, eq=False):
    """What a queue or cohort has of one flavor and uses of it.

    `total` is its quota with what those below it lend to it, `retained` is never lent. `limit` is
    what it may borrow, None without a limit. `cohorts` are the cells of all cohorts of its tree.
    """

    total: float
    retained: float
    limit: float | None
    parent: "QuotaCell | None"
    cohorts: "list[QuotaCell]"
    used: float = 0.0
    _passed_on: float | None = None

    def left(self) -> float:
        """Return how many units more it may take; below 0 where it uses more than there is."""
        used, parent, retained = self.used, self.parent, self.retained
        if parent is None:
            # May be below 0: what ran before the replay holds its quota in any case.
            return self.total - used
        above = parent._passed_on
        if above is None:
            above = parent.passed_on()
        if self.limit is not None:
            above = min(above, self.total - retained - max(0.0, used - retained) + self.limit)
        return retained - used + above if used < retained else above

    def passed_on(self) -> float:
        """Return what is available to those below, until `take`: all of them ask for it."""
        if self._passed_on is None:
            self._passed_on = self.left()
        return self._passed_on

    def available(self) -> float:
        """Return how many units more it may take, by borrowing too."""
        left = self.left()
        return left if left > 0.0 else 0.0

    def fits(self, units: float) -> bool:
        left = self.left()
        return units <= (left if left > 0.0 else 0.0) + SLACK

    def borrows(self, units: float = 0.0) -> bool:
        """Say whether it uses more than its own quota, with `units` more."""
        return self.used + units > self.total + SLACK

    def take(self, units: float) -> None:
        """Add use, or take it away where negative."""
        cell = self
        while True:
            used = cell.used
            now = cell.used = used + units
            if cell.parent is None:
                break
            retained = cell.retained
            if retained:
                # Only what is beyond the part that is never lent counts further up.
                units = max(0.0, now - retained) - max(0.0, used - retained)
            if not units:
                break
            cell = cell.parent
        for cohort in self.cohorts:
            cohort._passed_on = None


class _QuotaNode(Struct, eq=False):
    """A queue or a cohort with a cell for each flavor of its own or of those below it."""

    quotas: Mapping[FlavorTier, FlavorQuota]
    parent: "_QuotaNode | None" = None
    children: list["_QuotaNode"] = field(default_factory=list)
    cells: dict[FlavorTier, QuotaCell] = field(default_factory=dict)

    def sum_up(self, *, borrowing: bool) -> None:
        for child in self.children:
            child.sum_up(borrowing=borrowing)
        keys = {*self.quotas, *(key for child in self.children for key in child.cells)}
        for key in keys:
            below = [child.cells[key] for child in self.children if key in child.cells]
            quota = self.quotas.get(key, _NO_QUOTA)
            total = quota.nominal + sum(cell.total - cell.retained for cell in below)
            # Quotas do not change while work is replayed, and each question reads it.
            lent = quota.lending_limit
            retained = 0.0 if lent is None else max(0.0, total - lent)
            # Only queues borrow: cohorts still pass on what is lent to them.
            limit = quota.borrowing_limit if borrowing or self.children else 0.0
            cell = self.cells[key] = QuotaCell(total, retained, limit, None, [])
            for one in below:
                one.parent = cell

    def share_cohorts(self, above: Mapping[FlavorTier, list[QuotaCell]]) -> None:
        """Let all cells of the tree know those of its cohorts."""
        for key, cell in self.cells.items():
            cell.cohorts = above[key]
            if self.children:
                cell.cohorts.append(cell)
        for child in self.children:
            child.share_cohorts(above)


class QuotaTree:
    """The use of all queues. `borrowing` False: no queue uses more than its nominal quota."""

    def __init__(
        self,
        queues: Sequence[ReplayQueue],
        cohorts: Sequence[ReplayCohort] = (),
        *,
        borrowing: bool = True,
    ) -> None:
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
        for node in (*above.values(), *self._queues.values()):
            # From each root down; the sums of a cohort need those of its children.
            if node.parent is None:
                node.sum_up(borrowing=borrowing)
                node.share_cohorts({key: [] for key in node.cells})

    def cell(self, queue: str, key: FlavorTier) -> QuotaCell:
        """Return what a queue has of a flavor for which it has quota."""
        return self._queues[queue].cells[key]

    def available(self, queue: str, key: FlavorTier) -> float:
        """Return how many units more the queue may take now, by borrowing too."""
        return self.cell(queue, key).available()

    def borrows(self, queue: str, key: FlavorTier, units: float = 0.0) -> bool:
        """Say whether the queue uses more than its own quota, with `units` more."""
        return self.cell(queue, key).borrows(units)

    def use(self, queue: str, key: FlavorTier, units: float) -> None:
        self.cell(queue, key).take(units)

    def cohort(self, queue: str) -> int:
        """Return a number that is the same for all queues of one cohort."""
        node = self._queues[queue]
        return id(node if node.parent is None else node.parent)

    def used(self, queue: str, key: FlavorTier) -> float:
        return self.cell(queue, key).used

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
        for flavor, cell in node.cells.items():
            used = cell.used + (units if flavor == key else 0.0)
            borrowed[flavor[1]] += max(0.0, used - cell.total)
        if node.parent is not None:
            for flavor, cell in node.parent.cells.items():
                lendable[flavor[1]] += cell.total
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
