"""What workloads cost, and what of it was unused."""

from collections import defaultdict
from dataclasses import dataclass
from typing import NamedTuple
from zoneinfo import ZoneInfo

from apps.accounts.permissions import Visibility
from apps.clusters.domain.window import Window
from apps.costs.domain.costing import HELD, WASTE, Cause
from apps.costs.selectors.costs import cost_rows
from apps.costs.selectors.rows import CostQuery
from apps.usage.domain.usage_query import Filters, Grouping

WORKLOAD_GROUPS = (
    Grouping.CLUSTER,
    Grouping.NAMESPACE,
    Grouping.WORKLOAD,
    Grouping.TEAM,
    Grouping.TIER,
)


class WorkloadKey(NamedTuple):
    """A workload of a team on a tier; `workload` reads `Kind/name`."""

    cluster: str
    namespace: str
    workload: str
    team: str
    tier: str


@dataclass(slots=True)
class WorkloadCost:
    """Units of 1e-8 of a currency: `total` of all that was held, `unused` of its waste.

    `measured` is the part of the total that has metrics.
    """

    currency: str
    total: int = 0
    unused: int = 0
    measured: int = 0

    @property
    def unused_ratio(self) -> float | None:
        """Unused ÷ allocated cost, without what has no metrics; None without any."""
        return self.unused / self.measured if self.measured > 0 else None


def workload_costs(
    window: Window, *, filters: Filters, visibility: Visibility, zone: ZoneInfo | None = None
) -> dict[WorkloadKey, list[WorkloadCost]]:
    """Return what each workload costs in a window, by currency; none of what has no price.

    Only workloads of teams that the reader sees. Queries as of `cost_rows`.
    """
    asked = CostQuery(window, group_by=WORKLOAD_GROUPS, filters=filters, waste=True)
    found: dict[WorkloadKey, dict[str, WorkloadCost]] = defaultdict(dict)
    for row in cost_rows(asked, visibility=visibility, zone=zone):
        workload = row.groups.get(Grouping.WORKLOAD)
        if row.cost is None or not row.currency or not workload or row.cause not in HELD:
            continue
        key = WorkloadKey(*(row.groups[name] for name in WORKLOAD_GROUPS))
        cost = found[key].setdefault(row.currency, WorkloadCost(row.currency))
        cost.total += row.cost
        cost.measured += row.cost if row.cause is not Cause.UNMEASURED else 0
        if row.cause in WASTE:
            cost.unused += row.cost
    return {key: list(costs.values()) for key, costs in found.items()}
