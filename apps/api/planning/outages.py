"""Planned outages: rows and the endpoint."""

from functools import partial

from django.http.response import HttpResponseBase
from django.utils import timezone
from rest_framework.request import Request

from apps.api import parameters
from apps.api.endpoints import PortalView, ShortList, documented, visibility_in
from apps.api.parameters import filters_of
from apps.api.row_serializers import records, serializer_of
from apps.usage import selectors as usage
from apps.usage.selectors import OutageRow

# Nodes and authors are given to who sees how the clusters run: the rows of others have none.
_ROWS: ShortList[OutageRow] = ShortList(
    "planned-outages", lambda row: f"{row.number}", partial(records, admin=True)
)


class PlannedOutagesView(PortalView):
    """Nodes that are or were away as announced."""

    @documented(
        "planned-outages",
        parameters.ClusterParams,
        serializer_of(OutageRow),
        summary="Announced outages of nodes, and those of the last 92 days.",
    )
    def get(self, request: Request) -> HttpResponseBase:
        query = parameters.ClusterParams.read(request.query_params)
        usage.check_names(filters_of(query))
        rows = usage.outage_rows(
            now=timezone.now(),
            visibility=visibility_in(request),
            clusters=query.get("cluster", ()),
        )
        return _ROWS.response(request, query, rows)
