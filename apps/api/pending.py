"""Pending work: parameters, rows and endpoints."""

from collections.abc import Mapping, Sequence
from dataclasses import fields
from functools import partial
from typing import Any

from django.http.response import HttpResponseBase
from django.utils import timezone
from rest_framework.request import Request

from apps.api import parameters
from apps.api.endpoints import (
    CSV,
    CsvFile,
    PortalView,
    ShortList,
    csv_response,
    documented,
    list_response,
    visibility_in,
    window_in,
)
from apps.api.parameters import NamesField, choices, filters_of
from apps.api.row_serializers import (
    RowSerializer,
    cells,
    cells_of,
    record,
    records,
    serializer_of,
)
from apps.clusters import selectors as clusters
from apps.pending import selectors as pending
from apps.pending.domain.diagnosis import Cause, Counts
from apps.pending.selectors import (
    HistoryRow,
    PendingFilters,
    PendingGrouping,
    PendingOrder,
    PendingPage,
    PendingRow,
    QueueTimeSums,
)
from apps.usage import selectors as usage
from apps.usage.domain.usage_query import RowPage

_CAUSES = [cause.value for cause in Cause]
_COUNTS = [counts.value for counts in Counts]
_GROUPS = [by.value for by in PendingGrouping]
_DEFAULT = (PendingGrouping.DAY, PendingGrouping.CAUSE)


class PendingParams(parameters.PageParams, parameters.CsvParams, parameters.PlaceParams):
    """Parameters of `pending`: the work that is pending now."""

    cause = NamesField(child=choices(_CAUSES))
    kind = NamesField(help_text="Only these kinds, as Kubernetes names them: Pod, Job, Workload.")
    order = choices(
        [order.value for order in PendingOrder],
        required=False,
        help_text="longest: longest pending first (default); most: largest request first.",
    )


class PendingHistoryParams(parameters.WindowParams, parameters.CsvParams, parameters.PlaceParams):
    """Parameters of `pending/history`."""

    group_by = NamesField(
        child=choices(_GROUPS),
        help_text="Columns to group by, in this order; day,cause unless told.",
    )
    cause = NamesField(child=choices(_CAUSES))


class PendingHistorySerializer(RowSerializer):
    """Pending GPU-hours of one group; a group's column is there when it was requested."""

    row = HistoryRow
    figures = QueueTimeSums


class PendingView(PortalView):
    """The work that is pending now, and its causes."""

    @documented(
        "pending",
        PendingParams,
        serializer_of(PendingRow),
        summary="Pending workloads and their causes, of teams you see in detail.",
        files=[CSV],
    )
    def get(self, request: Request) -> HttpResponseBase:
        query = PendingParams.read(request.query_params)
        now = timezone.now()
        usage.check_names(filters_of(query))
        order = PendingOrder(query.get("order", PendingOrder.LONGEST.value))

        def page_at(cursor: str | None, page_size: int) -> RowPage[PendingRow]:
            return pending.pending_now(
                now,
                filters=_filters(query),
                visibility=visibility_in(request),
                page=PendingPage(cursor, page_size, order),
            )

        file = CsvFile.of_instant("pending", cells_of(PendingRow), at=now)
        return list_response(request, query, page_at, file, written=(records, cells))


class PendingHistoryView(PortalView):
    """Pending GPU-hours, by day and cause or other groups."""

    @documented(
        "pending-history",
        PendingHistoryParams,
        PendingHistorySerializer,
        summary="Pending GPU-hours, by day and cause or other groups.",
        files=[CSV],
    )
    def get(self, request: Request) -> HttpResponseBase:
        query = PendingHistoryParams.read(request.query_params)
        zone = clusters.report().zone
        window = window_in(query, zone)
        usage.check_names(filters_of(query))
        by = tuple(PendingGrouping(name) for name in query.get("group_by", ())) or _DEFAULT
        rows = pending.pending_history(
            window,
            now=timezone.now(),
            visibility=visibility_in(request),
            by=by,
            filters=_filters(query),
        )
        groups = tuple(one.key for one in by)
        records = [record(row, groups=groups) | record(row.sums) for row in rows]
        if query.get("format") == "csv":
            columns = (*cells_of(HistoryRow, groups), *cells_of(QueueTimeSums))
            file = CsvFile.of_window("pending-history", columns, window=window, zone=zone)
            return csv_response([records], file)
        shown = ShortList("pending-history", partial(_group_name, groups), list)
        return shown.response(request, query, records, window=window)


def _group_name(groups: Sequence[str], record: Mapping[str, Any]) -> str:
    return "\n".join(str(record[key]) for key in groups)


def _filters(query: dict[str, Any]) -> PendingFilters:
    names: dict[str, Any] = {
        f.name: tuple(query.get(f.name, ())) for f in fields(PendingFilters) if f.name != "text"
    }
    return PendingFilters(**names)
