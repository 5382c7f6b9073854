"""The capacity plan: rows and the endpoint."""

from django.http.response import HttpResponseBase
from django.utils import timezone
from rest_framework.request import Request

from apps.api import parameters
from apps.api.endpoints import PortalView, ShortList, documented, visibility_in
from apps.api.parameters import NamesField, filters_of
from apps.api.row_serializers import records, serializer_of
from apps.planning import selectors as planning
from apps.planning.selectors import CapacityPlanRow
from apps.quota_requests.selectors import bookings_ahead
from apps.usage import selectors as usage


class CapacityPlanParams(parameters.PageParams):
    """Parameters of `capacity-plan`."""

    tier = NamesField(help_text="Only these service tiers.")


_ROWS: ShortList[CapacityPlanRow] = ShortList(
    "capacity-plan", lambda row: f"{row.tier}\n{row.action}\n{row.to_tier}", records
)


class CapacityPlanView(PortalView):
    """Demand to come, and what it speaks for."""

    @documented(
        "capacity-plan",
        CapacityPlanParams,
        serializer_of(CapacityPlanRow),
        summary="Forecast demand of tiers, and GPUs to buy, return, move or share.",
    )
    def get(self, request: Request) -> HttpResponseBase:
        query = CapacityPlanParams.read(request.query_params)
        usage.check_names(filters_of(query))
        tiers = query.get("tier", ())
        now = timezone.now()
        plans = planning.capacity_plans(
            now, booked=bookings_ahead(now=now), visibility=visibility_in(request)
        )
        rows = [
            row for plan in plans if not tiers or plan.outlook.tier in tiers for row in plan.rows()
        ]
        rows.sort(key=lambda row: (row.tier, str(row.action), row.to_tier))
        return _ROWS.response(request, query, rows)
