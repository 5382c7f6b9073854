"""Reliability of nodes and GPUs: rows and endpoints."""

from django.http.response import HttpResponseBase
from rest_framework.request import Request

from apps.api import parameters
from apps.api.endpoints import PortalView, ShortList, documented, visibility_in
from apps.api.parameters import NamesField, filters_of
from apps.api.row_serializers import records, serializer_of
from apps.goodput import selectors as goodput
from apps.goodput.selectors import GpuReliabilityRow, InterruptionRow, ReliabilityRow
from apps.usage import selectors as usage


class ReliabilityParams(parameters.PageParams):
    """Parameters of `reliability`."""

    cluster = NamesField(help_text="Only these clusters.")


_ROWS: ShortList[ReliabilityRow] = ShortList(
    "reliability", lambda row: f"{row.cluster}\n{row.node}", records
)


_GPUS: ShortList[GpuReliabilityRow] = ShortList(
    "reliability-gpus", lambda row: f"{row.cluster}\n{row.node}\n{row.uuid}", records
)
_SIZES: ShortList[InterruptionRow] = ShortList(
    "interruptions", lambda row: f"{row.cluster}\n{row.least_gpus:06}", records
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


class GpuReliabilityView(PortalView):
    """GPUs on which work fails, and the errors that they show."""

    @documented(
        "reliability-gpus",
        ReliabilityParams,
        serializer_of(GpuReliabilityRow),
        summary="Failures and errors of GPUs over 30 days, for who sees all teams.",
    )
    def get(self, request: Request) -> HttpResponseBase:
        query = ReliabilityParams.read(request.query_params)
        usage.check_names(filters_of(query))
        clusters = query.get("cluster", ())
        rows = goodput.gpu_reliability_rows(visibility=visibility_in(request))
        return _GPUS.response(
            request, query, [row for row in rows if not clusters or row.cluster in clusters]
        )


class InterruptionsView(PortalView):
    """How often workloads are interrupted, by size."""

    @documented(
        "interruptions",
        ReliabilityParams,
        serializer_of(InterruptionRow),
        summary="Mean time between interruptions by size over 30 days, for who sees all teams.",
    )
    def get(self, request: Request) -> HttpResponseBase:
        query = ReliabilityParams.read(request.query_params)
        usage.check_names(filters_of(query))
        clusters = query.get("cluster", ())
        rows = goodput.interruption_rows(visibility=visibility_in(request))
        return _SIZES.response(
            request, query, [row for row in rows if not clusters or row.cluster in clusters]
        )
