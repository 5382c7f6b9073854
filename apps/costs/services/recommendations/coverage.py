"""How much of a cluster's waste the recommendations found would avoid, and why not the rest."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from django.db.models import Sum

from apps.clusters.models import Tier
from apps.costs.domain.costing import FREE, Cause
from apps.costs.domain.recommendations import Recommendation as Found
from apps.costs.domain.recommendations.coverage import (
    Cell,
    Gap,
    avoided,
    cell_name,
    together,
)
from apps.costs.domain.recommendations.recommendation import OF_QUOTA
from apps.costs.models import PoolCostDay, WasteSum, WorkloadCostDay
from apps.costs.services.evidence.span import EvidenceSpan
from apps.costs.services.evidence.workloads import TeamEvidence

MOST_CELLS = 500
"""Kept of one recommendation are its largest cells: what is left out counts as not covered."""
_HELD = (Cause.IDLE, Cause.UNDERUSED, Cause.NOT_RUNNING)
_ROWS_AT_A_TIME = 2000


class Of(NamedTuple):
    """Whose waste it is; no team: the platform's."""

    team: int | None
    tier: int
    currency: str


@dataclass(slots=True)
class Waste:
    """The waste of one tier in units, by whose it is and cell; and why rules pass cells over."""

    tier: Tier
    cells: dict[Of, dict[Cell, int]] = field(default_factory=lambda: defaultdict(dict))
    gaps: dict[str, Gap] = field(default_factory=dict)

    def covers(self, found: Found, team: int | None) -> dict[Cell, int]:
        """Return what a recommendation avoids; nothing where it saves no cash."""
        if found.kind in OF_QUOTA:
            return {}
        waste = self.cells.get(Of(team, self.tier.pk, found.currency), {})
        claimed = avoided(found.cells, waste)
        largest = sorted(claimed, key=lambda cell: (-claimed[cell], cell))[:MOST_CELLS]
        return {cell: claimed[cell] for cell in largest}

    def sums(
        self, claims: Iterable[tuple[Of, Mapping[Cell, int]]]
    ) -> Iterator[tuple[Of, str, str, int]]:
        """Yield (whose, cause, reason, units): what is covered, and the rest by why it is not."""
        by_owner: dict[Of, list[Mapping[Cell, int]]] = defaultdict(list)
        for of, claim in claims:
            by_owner[of].append(claim)
        for of, cells in self.cells.items():
            covered = together(by_owner[of])
            sums: dict[tuple[str, str], int] = defaultdict(int)
            for cell, units in cells.items():
                there = covered.get(cell, 0)
                sums[cell.cause, WasteSum.COVERED] += there
                sums[cell.cause, self._why(cell, there)] += units - there
            for (cause, reason), units in sorted(sums.items()):
                if units:
                    yield of, cause, reason, units

    def _why(self, cell: Cell, covered: int) -> str:
        if cell.cause == Cause.UNHEALTHY.value:
            return Gap.UNAVAILABLE.value
        if covered:
            return Gap.REMAINDER.value
        if cell.cause == Cause.UNALLOCATED.value:
            return Gap.NEEDED.value
        return self.gaps.get(cell.name, Gap.NO_RULE).value


def waste_of(span: EvidenceSpan, tier: Tier, found: Iterable[TeamEvidence]) -> Waste:
    """Return the priced waste of a tier over the days of the evidence. Two queries."""
    waste = Waste(tier)
    names: dict[tuple[int, str, str], str] = {}
    for one in found:
        evidence = one.evidence
        if evidence.gap is not None:
            waste.gaps[evidence.cell] = evidence.gap
        for member in one.members:
            names[member, evidence.gpu_model, evidence.capacity_type] = evidence.cell
    days = {"cluster": span.cluster, "tier": tier, "day__gte": span.first, "day__lte": span.last}
    held = WorkloadCostDay.objects.filter(**days).order_by()
    keys = ("team_id", "currency", "workload_id", "gpu_model__name", "capacity_type")
    for team, currency, workload, model, kind, *costs in _sums(held, keys, _HELD):
        place = (workload, model, kind)
        name = names.get(place) or cell_name("", str(workload), model, kind)
        _add(waste.cells[Of(team, tier.pk, currency)], name, _HELD, costs)
    pools = PoolCostDay.objects.filter(**days).order_by()
    for currency, model, kind, *costs in _sums(
        pools, ("currency", "gpu_model__name", "capacity_type"), FREE
    ):
        name = cell_name("", "", model, kind)
        _add(waste.cells[Of(None, tier.pk, currency)], name, FREE, costs)
    return waste


def _sums(rows: Any, keys: tuple[str, ...], causes: tuple[Cause, ...]) -> Iterator[tuple[Any, ...]]:
    sums = {f"sum_{cause.value}": Sum(f"cost_{cause.value}") for cause in causes}
    priced = rows.exclude(currency="").values_list(*keys).annotate(**sums)
    yield from priced.iterator(_ROWS_AT_A_TIME)


def _add(
    cells: dict[Cell, int], name: str, causes: tuple[Cause, ...], costs: Iterable[Any]
) -> None:
    for cause, cost in zip(causes, costs, strict=True):
        if cost:
            cell = Cell(name, cause.value)
            cells[cell] = cells.get(cell, 0) + int(cost)
