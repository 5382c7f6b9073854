"""Pending work: parameters, rows and endpoints."""

from dataclasses import fields
from typing import Any
from zoneinfo import ZoneInfo

from django.http.response import HttpResponseBase
from django.utils import timezone
from rest_framework import serializers
from rest_framework.request import Request

from apps.api import parameters
from apps.api.endpoints import (
    CSV,
    CsvFile,
    PortalView,
    csv_response,
    documented,
    list_response,
    page_of,
    page_response,
    paging,
    visibility_in,
    window_in,
)
from apps.api.parameters import NamesField, choices, filters_of
from apps.api.row_serializers import cells, cells_of, records, serializer_of
from apps.clusters import selectors as clusters
from apps.clusters.domain.window import day_start
from apps.pending import selectors as pending
from apps.pending.domain.diagnosis import Cause, Counts
from apps.pending.selectors import (
    HistoryRow,
    PendingFilters,
    PendingGrouping,
    PendingOrder,
    PendingPage,
    PendingRow,
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


class PendingHistorySerializer(serializers.Serializer[Any]):
    """Pending GPU-hours of one group; a group's column is there when it was requested."""

    period = serializers.DateTimeField(
        required=False, help_text="Start of the local day, with the report zone's offset."
    )
    cause = serializers.ChoiceField(_CAUSES, required=False)
    tier = serializers.CharField(required=False)
    team = serializers.CharField(required=False)
    cluster = serializers.CharField(required=False)
    namespace = serializers.CharField(required=False)
    waiting_gpu_hours = serializers.FloatField(help_text="Of pods that were not bound.")
    suppressed_gpu_hours = serializers.FloatField(
        help_text="Work blocked at admission; beside the pending GPU-hours."
    )
    starting_gpu_hours = serializers.FloatField(
        help_text="Bound and not started: a part of the ledger's not_running."
    )
    began = serializers.IntegerField(help_text="Episodes that began.")
    ended = serializers.IntegerField(help_text="Episodes that ended.")


_SUMS = ("waiting_gpu_hours", "suppressed_gpu_hours", "starting_gpu_hours", "began", "ended")


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
        records = [history_record(row, zone) for row in rows]
        if query.get("format") == "csv":
            columns = (
                *("period" if one is PendingGrouping.DAY else one.value for one in by),
                *_SUMS,
            )
            file = CsvFile.of_window("pending-history", columns, window=window, zone=zone)
            return csv_response([records], file)
        page = page_of(records, kind="pending-history", name_of=_groups_of, **paging(query))
        return page_response(request, page.rows, page.next_cursor, window=window)


def _groups_of(record: dict[str, Any]) -> str:
    return "\n".join(str(value) for name, value in record.items() if name not in _SUMS)


def _filters(query: dict[str, Any]) -> PendingFilters:
    names: dict[str, Any] = {
        f.name: tuple(query.get(f.name, ())) for f in fields(PendingFilters) if f.name != "text"
    }
    return PendingFilters(**names)


def history_record(row: HistoryRow, zone: ZoneInfo) -> dict[str, Any]:
    """Return what PendingHistorySerializer describes, the groups in the order asked for."""
    period = (
        {} if row.day is None else {"period": day_start(row.day, zone).astimezone(zone).isoformat()}
    )
    sums = {name: getattr(row.sums, name) for name in _SUMS}
    return {**period, **row.groups, **sums}
