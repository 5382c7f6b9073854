"""Inference services: rows, replicas and load by hour, and the endpoints."""

from django.http.response import HttpResponseBase

from apps.api import parameters
from apps.api.endpoints import ListRequest, ShortList, list_endpoint, listed
from apps.api.parameters import NamesField, choices
from apps.api.row_serializers import cells_of, records, serializer_of
from apps.costs import selectors as costs
from apps.costs.selectors import SERVING_GROUPS, ServingRow
from apps.usage import selectors as usage
from apps.usage.selectors import ServingTime


class ServingParams(parameters.FileParams):
    """Parameters of `serving`."""

    group_by = NamesField(
        child=choices([column.key for column in SERVING_GROUPS]),
        help_text="Columns to group by, in this order; without it, one row for all.",
    )


@list_endpoint("serving", ServingParams, serializer_of(ServingRow))
def serving(of: ListRequest) -> HttpResponseBase:
    """Tokens, requests, tokens per GPU-hour and cost of inference services you see.

    What inference services did.
    """
    by = of.names("group_by")
    found = costs.serving_rows(
        of.window,
        group_by=by,
        filters=of.filters(),
        visibility=of.visibility,
        now=of.now,
        zone=of.zone,
    )
    rows: ShortList[ServingRow] = ShortList(
        # A cursor of other groups would name a row that this list does not have.
        "-".join(("serving", *by)),
        lambda row: "\n".join(row.groups.values()),
        lambda rows: records(rows, groups=by),
    )
    return of.answer(rows, found, cells_of(ServingRow, by))


@listed("serving-hours", ServingTime, parameters.FileParams, key=lambda row: row.hour.isoformat())
def serving_hours(of: ListRequest) -> list[ServingTime]:
    """Replicas, requests and tokens of inference services by hour; of teams you see.

    Replicas of inference services against their load.
    """
    return usage.serving_times(of.window, filters=of.filters(), visibility=of.visibility)
