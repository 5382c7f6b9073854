"""Reliability of nodes and GPUs: lists of the last reports."""

from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any, TypeVar

from django.http.response import HttpResponseBase
from rest_framework import serializers
from rest_framework.request import Request

from apps.api import parameters
from apps.api.endpoints import PortalView, ShortList, documented, visibility_in
from apps.api.parameters import filters_of
from apps.api.row_serializers import records, serializer_of
from apps.goodput import selectors as goodput
from apps.goodput.selectors import (
    ClusterReport,
    GpuReliabilityRow,
    InterruptionRow,
    ReliabilityRow,
)
from apps.usage import selectors as usage

_Row = TypeVar("_Row", ReliabilityRow, GpuReliabilityRow, InterruptionRow)


def _report_list(
    name: str,
    serializer: type[serializers.Serializer[Any]],
    rows: Callable[[Sequence[ClusterReport]], list[_Row]],
    *,
    key: tuple[str, ...],
    summary: str,
) -> type[PortalView]:
    """Return the endpoint of a list of reports; the attributes of `key` are unique in it."""
    listed: ShortList[_Row] = ShortList(
        name, lambda one: "\n".join(str(attrgetter(part)(one)) for part in key), records
    )

    class ReportList(PortalView):
        @documented(name, parameters.ClusterParams, serializer, summary=summary)
        def get(self, request: Request) -> HttpResponseBase:
            query = parameters.ClusterParams.read(request.query_params)
            usage.check_names(filters_of(query))
            reports = goodput.reliability_reports(
                visibility=visibility_in(request), clusters=query.get("cluster", ())
            )
            return listed.response(request, query, rows(reports))

    return ReportList


ReliabilityView = _report_list(
    "reliability",
    serializer_of(ReliabilityRow),
    goodput.reliability_rows,
    key=("cluster", "node"),
    summary="Failures of nodes over 30 days, for who sees all teams.",
)
GpuReliabilityView = _report_list(
    "reliability-gpus",
    serializer_of(GpuReliabilityRow),
    goodput.gpu_reliability_rows,
    key=("cluster", "node", "uuid"),
    summary="Failures and errors of GPUs over 30 days, for who sees all teams.",
)
InterruptionsView = _report_list(
    "interruptions",
    serializer_of(InterruptionRow),
    goodput.interruption_rows,
    key=("cluster", "least_gpus"),
    summary="Mean time between interruptions by size over 30 days, for who sees all teams.",
)
