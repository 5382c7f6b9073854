"""Inference services: rows and the endpoint."""

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
from apps.costs.selectors import SERVING_GROUPS, ServingRow
from apps.usage import selectors as usage


class ServingParams(parameters.FileParams):
    """Parameters of `serving`."""

    group_by = NamesField(
        child=choices([column.key for column in SERVING_GROUPS]),
        help_text="Columns to group by, in this order; without it, one row for all.",
    )


class ServingView(PortalView):
    """What inference services did."""

    @documented(
        "serving",
        ServingParams,
        serializer_of(ServingRow),
        summary="Tokens, requests, tokens per GPU-hour and cost of inference services you see.",
        files=[CSV],
    )
    def get(self, request: Request) -> HttpResponseBase:
        query = ServingParams.read(request.query_params)
        zone = clusters.report().zone
        window, filters = window_in(query, zone), filters_of(query)
        usage.check_names(filters)
        by = tuple(query.get("group_by", ()))
        found = costs.serving_rows(
            window, group_by=by, filters=filters, visibility=visibility_in(request), zone=zone
        )
        rows: ShortList[ServingRow] = ShortList(
            # A cursor of other groups would name a row that this list does not have.
            "-".join(("serving", *by)),
            lambda row: "\n".join(row.groups.values()),
            lambda rows: records(rows, groups=by),
        )
        file = CsvFile.of_window("serving", cells_of(ServingRow, by), window=window, zone=zone)
        return rows.answer(request, query, found, file, window=window)
