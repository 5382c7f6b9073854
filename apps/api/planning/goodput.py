"""The goodput ledger: rows and the endpoint."""

from functools import partial

from django.http.response import HttpResponseBase
from rest_framework.request import Request

from apps.api import parameters
from apps.api.endpoints import (
    CSV,
    CsvFile,
    PortalView,
    ShortList,
    documented,
    visibility_in,
    window_in,
)
from apps.api.parameters import NamesField, choices, filters_of
from apps.api.row_serializers import cells_of, records, serializer_of
from apps.clusters import selectors as clusters
from apps.costs import selectors as costs
from apps.costs.selectors import LossCostRow
from apps.goodput import selectors as goodput
from apps.goodput.selectors import GoodputRow
from apps.usage import selectors as usage
from apps.usage.domain.usage_query import Grouping, TimeStep, UsageQuery


class GoodputParams(parameters.FileParams):
    """Parameters of `goodput`."""

    group_by = NamesField(
        child=choices([grouping.value for grouping in Grouping]),
        help_text="Columns to group by, in this order; without it, one row for all.",
    )
    interval = choices(
        [step.value for step in TimeStep],
        required=False,
        help_text="Length of a period; total unless told.",
    )


class LossesParams(parameters.FileParams):
    """Parameters of `goodput/losses`."""


class GoodputView(PortalView):
    """What became of allocated GPU-hours."""

    @documented(
        "goodput",
        GoodputParams,
        serializer_of(GoodputRow),
        summary="Allocated GPU-hours: starting, lost, unused and productive; of teams you see.",
        files=[CSV],
    )
    def get(self, request: Request) -> HttpResponseBase:
        query = GoodputParams.read(request.query_params)
        zone = clusters.report().zone
        window, filters = window_in(query, zone), filters_of(query)
        usage.check_names(filters)
        by = tuple(Grouping(name) for name in query.get("group_by", ()))
        asked = UsageQuery(window, TimeStep(query.get("interval", TimeStep.TOTAL)), by, filters)
        found = goodput.goodput_by_period(asked, visibility=visibility_in(request), zone=zone)
        rows: ShortList[GoodputRow] = ShortList(
            # A cursor of other groups or periods would name a row that this list does not have.
            "-".join(("goodput", asked.interval, *by)),
            lambda row: "\n".join((str(row.period or ""), *row.groups.values())),
            partial(records, groups=by),
        )
        file = CsvFile.of_window("goodput", cells_of(GoodputRow, by), window=window, zone=zone)
        return rows.answer(request, query, found, file, window=window)


_LOSSES: ShortList[LossCostRow] = ShortList("goodput-losses", lambda row: row.reason, records)


class LossesView(PortalView):
    """Why work was lost."""

    @documented(
        "goodput-losses",
        LossesParams,
        serializer_of(LossCostRow),
        summary="Lost GPU-hours and their cost by reason, with XIDs and nodes; of teams you see.",
        files=[CSV],
    )
    def get(self, request: Request) -> HttpResponseBase:
        query = LossesParams.read(request.query_params)
        zone = clusters.report().zone
        window, filters = window_in(query, zone), filters_of(query)
        usage.check_names(filters)
        found = goodput.goodput_ledger(
            window, group_by=(), filters=filters, visibility=visibility_in(request), zone=zone
        )
        file = CsvFile.of_window("goodput-losses", cells_of(LossCostRow), window=window, zone=zone)
        rows = costs.loss_cost_rows(found)
        return _LOSSES.answer(request, query, rows, file, window=window)
