"""Layout advice: rows and the endpoint."""

from django.http.response import HttpResponseBase
from rest_framework.request import Request

from apps.api import parameters
from apps.api.endpoints import PortalView, ShortList, documented, visibility_in
from apps.api.parameters import filters_of
from apps.api.row_serializers import records, serializer_of
from apps.planning import selectors as planning
from apps.planning.selectors import LayoutRow
from apps.usage import selectors as usage

_ROWS: ShortList[LayoutRow] = ShortList("layouts", lambda row: row.name, records)


class LayoutsView(PortalView):
    """Recorded demand with today's layout, and with the advised one."""

    @documented(
        "layouts",
        parameters.TierParams,
        serializer_of(LayoutRow),
        summary="Unmet and unallocated GPU-hours of tiers, with today's layout and the advised.",
    )
    def get(self, request: Request) -> HttpResponseBase:
        query = parameters.TierParams.read(request.query_params)
        usage.check_names(filters_of(query))
        reports = planning.layout_reports(visibility=visibility_in(request))
        rows = [
            row
            for one in reports
            for row in one.rows()
            if row.cluster in query.get("cluster", (row.cluster,))
            and row.tier in query.get("tier", (row.tier,))
        ]
        return _ROWS.response(request, query, sorted(rows, key=lambda row: row.name))
