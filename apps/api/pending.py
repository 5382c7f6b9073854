"""What waits: parameters, rows and endpoints."""

from dataclasses import fields
from datetime import date
from typing import Any
from zoneinfo import ZoneInfo

from django.http.response import HttpResponseBase
from django.utils import timezone
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from apps.api import endpoints, parameters
from apps.api.endpoints import (
    CSV,
    PortalView,
    documented,
    page_of,
    page_response,
    paging,
    visibility_in,
    walk,
    window_in,
)
from apps.api.parameters import NamesField, choices, filters_of
from apps.api.row_serializers import cells, cells_of, records, serializer_of
from apps.clusters import selectors as clusters
from apps.clusters.domain.window import Window, day_start
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


class PendingParams(parameters.PageParams):
    """Parameters of `pending`: what waits now."""

    format = choices(
        parameters.FORMATS, required=False, help_text="csv streams all rows, without pages."
    )
    cluster = NamesField(help_text="Only these clusters.")
    tier = NamesField(help_text="Only these service tiers.")
    team = NamesField(help_text="Only these teams.")
    namespace = NamesField(help_text="Only namespaces of these names, of teams you see in detail.")
    cause = NamesField(child=choices(_CAUSES))
    kind = NamesField(help_text="Only these kinds, as Kubernetes names them: Pod, Job, Workload.")
    order = choices(
        [order.value for order in PendingOrder],
        required=False,
        help_text="longest: what has waited longest first (unless told); most: what asks for most.",
    )

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        return parameters.whole_file(attrs)


class PendingHistoryParams(parameters.WindowParams):
    """Parameters of `pending/history`."""

    format = choices(
        parameters.FORMATS, required=False, help_text="csv streams all rows, without pages."
    )
    group_by = NamesField(
        child=choices(_GROUPS),
        help_text="Columns to group by, in this order; day,cause unless told.",
    )
    cluster = NamesField(help_text="Only these clusters.")
    tier = NamesField(help_text="Only these service tiers.")
    team = NamesField(help_text="Only these teams.")
    namespace = NamesField(help_text="Only namespaces of these names, of teams you see in detail.")
    cause = NamesField(child=choices(_CAUSES))

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        return parameters.whole_file(attrs)


class PendingHistorySerializer(serializers.Serializer[Any]):
    """What waited of one group; a group's column is there when it was asked for."""

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
        help_text="Of work refused or held back before a pod existed; beside waiting."
    )
    starting_gpu_hours = serializers.FloatField(
        help_text="Bound and not started: a part of the ledger's not_running."
    )
    began = serializers.IntegerField(help_text="Episodes that began.")
    ended = serializers.IntegerField(help_text="Episodes that ended.")


_SUMS = ("waiting_gpu_hours", "suppressed_gpu_hours", "starting_gpu_hours", "began", "ended")


class PendingView(PortalView):
    """What waits now, and why."""

    @documented(
        "pending",
        PendingParams,
        serializer_of(PendingRow),
        summary="What waits now and why, of teams you see in detail.",
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

        if query.get("format") == "csv":
            pages = walk(lambda at: page_at(cursor=at, page_size=endpoints.ROWS_AT_A_TIME))
            return endpoints.csv_now(
                map(cells, pages),
                columns=cells_of(PendingRow),
                name="pending",
                at=now,
            )
        page = page_at(**paging(query))
        return page_response(request, records(page.rows), page.next_cursor)


class PendingHistoryView(PortalView):
    """What waited, by day and cause or other groups."""

    @documented(
        "pending-history",
        PendingHistoryParams,
        PendingHistorySerializer,
        summary="GPU-hours that waited, by day and cause or other groups.",
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
            return endpoints.csv_response(
                [records], columns=columns, name="pending-history", window=window, zone=zone
            )
        return _history_page(request, records, window, query)


def _history_page(
    request: Request, records: list[dict[str, Any]], window: Window, query: dict[str, Any]
) -> Response:
    page = page_of(records, kind="pending-history", name_of=_groups_of, **paging(query))
    return page_response(request, page.rows, page.next_cursor, window=window)


def _groups_of(record: dict[str, Any]) -> str:
    return "\n".join(str(value) for name, value in record.items() if name not in _SUMS)


def _filters(query: dict[str, Any]) -> PendingFilters:
    return PendingFilters(**{f.name: tuple(query.get(f.name, ())) for f in fields(PendingFilters)})


def history_record(row: HistoryRow, zone: ZoneInfo) -> dict[str, Any]:
    """Return what PendingHistorySerializer describes, the groups in the order asked for."""
    period = {} if row.day is None else {"period": _period(row.day, zone)}
    sums = {name: getattr(row.sums, name) for name in _SUMS}
    return {**period, **row.groups, **sums}


def _period(day: date, zone: ZoneInfo) -> str:
    return day_start(day, zone).astimezone(zone).isoformat()
