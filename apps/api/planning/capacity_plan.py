"""The capacity plan: parameters and the endpoint."""

from apps.api import parameters
from apps.api.endpoints import ListRequest, listed
from apps.api.parameters import NamesField
from apps.planning import selectors as planning
from apps.planning.selectors import CapacityPlanRow
from apps.quota_requests.selectors import bookings_ahead


class CapacityPlanParams(parameters.PageParams):
    """Parameters of `capacity-plan`."""

    tier = NamesField(help_text="Only these service tiers.")


@listed(
    "capacity-plan",
    CapacityPlanRow,
    CapacityPlanParams,
    key=lambda row: f"{row.tier}\n{row.action}\n{row.to_tier}",
)
def capacity_plan(of: ListRequest) -> list[CapacityPlanRow]:
    """Forecast demand of tiers, and GPUs to buy, return, move or share.

    Demand to come, and what it speaks for.
    """
    tiers = of.filters().tier
    booked = bookings_ahead(now=of.now)
    plans = planning.capacity_plans(of.now, booked=booked, visibility=of.visibility)
    rows = [row for plan in plans if not tiers or plan.outlook.tier in tiers for row in plan.rows()]
    return sorted(rows, key=lambda row: (row.tier, str(row.action), row.to_tier))
