"""Reliability of nodes: rows and the endpoint."""

from django.http.response import HttpResponseBase
from rest_framework.request import Request

from apps.api import parameters
from apps.api.endpoints import PortalView, ShortList, documented, visibility_in
from apps.api.parameters import NamesField, filters_of
from apps.api.row_serializers import records, serializer_of
from apps.goodput import selectors as goodput
from apps.goodput.selectors import ReliabilityRow
from apps.usage import selectors as usage


class ReliabilityParams(parameters.PageParams):
    """Parameters of `reliability`."""

    cluster = NamesField(help_text="Only these clusters.")


_ROWS: ShortList[ReliabilityRow] = ShortList(
    "reliability", lambda row: f"{row.cluster}\n{row.node}", records
)


class ReliabilityView(PortalView):
    """Nodes on which work fails."""

    @documented(
        "reliability",
        ReliabilityParams,
        serializer_of(ReliabilityRow),
        summary="Failures of nodes over 30 days, for who sees all teams.",
    )
    def get(self, request: Request) -> HttpResponseBase:
        query = ReliabilityParams.read(request.query_params)
        usage.check_names(filters_of(query))
        clusters = query.get("cluster", ())
        rows = goodput.reliability_rows(visibility=visibility_in(request))
        return _ROWS.response(
            request, query, [row for row in rows if not clusters or row.cluster in clusters]
        )
