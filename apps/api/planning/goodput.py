"""The goodput ledger: rows, the queue time before, and the endpoints."""

from functools import partial
from typing import Any

from django.http.response import HttpResponseBase
from rest_framework.response import Response

from apps.api import parameters
from apps.api.endpoints import ListRequest, ShortList, list_endpoint, listed
from apps.api.parameters import NamesField, choices
from apps.api.row_serializers import cells_of, record, records, serializer_of
from apps.costs import selectors as costs
from apps.costs.selectors import LossCostRow
from apps.goodput import selectors as goodput
from apps.goodput.selectors import GoodputRow
from apps.pending.selectors import PendingFilters, StartTimes, own_queue_times
from apps.usage.domain.usage_query import Filters, Grouping, TimeStep, UsageQuery


class GoodputParams(parameters.FileParams):
    """Parameters of `goodput`."""

    group_by = NamesField(
        child=choices([grouping.value for grouping in Grouping]),
        help_text="Columns to group by, in this order; without it, one row for all.",
    )
    interval = parameters.interval_field(TimeStep.TOTAL)


class LossesParams(parameters.FileParams):
    """Parameters of `goodput/losses`."""


@list_endpoint(
    "goodput",
    GoodputParams,
    serializer_of(GoodputRow),
    beside={
        "queue_time": serializer_of(StartTimes)(
            allow_null=True,
            help_text="Queue time of pods that started in the window, over all rows. Null "
            "where none started, and with a filter that pending work does not have.",
        )
    },
)
def goodput_list(of: ListRequest) -> HttpResponseBase:
    """Allocated GPU-hours: starting, lost, unused and productive; of teams you see.

    What became of allocated GPU-hours.
    """
    filters = of.filters()
    by = tuple(Grouping(name) for name in of.query.get("group_by", ()))
    step = TimeStep(of.query.get("interval", TimeStep.TOTAL))
    asked = UsageQuery(of.window, step, by, filters)
    found = goodput.goodput_by_period(asked, visibility=of.visibility, zone=of.zone)
    rows: ShortList[GoodputRow] = ShortList(
        # A cursor of other groups or periods would name a row that this list does not have.
        "-".join(("goodput", asked.interval, *by)),
        lambda row: "\n".join((str(row.period or ""), *row.groups.values())),
        partial(records, groups=by),
    )
    response = of.answer(rows, found, cells_of(GoodputRow, by))
    if isinstance(response, Response):
        response.data["queue_time"] = _queue_time(of, filters)
    return response


def _queue_time(of: ListRequest, filters: Filters) -> dict[str, Any] | None:
    """Return the queue time before what was allocated; None where it is not known."""
    own = filters.of_kind(PendingFilters)
    # Of what else it is filtered by, a queue time of all would be one of other work.
    if filters != own.of_kind(Filters):
        return None
    found = own_queue_times(of.window, visibility=of.visibility, filters=own)
    return None if found is None else record(found)


@listed("goodput-losses", LossCostRow, LossesParams, key=lambda row: row.reason)
def losses(of: ListRequest) -> list[LossCostRow]:
    """Lost GPU-hours and their cost by reason, with XIDs and nodes; of teams you see.

    Why work was lost.
    """
    found = goodput.goodput_ledger(
        of.window, group_by=(), filters=of.filters(), visibility=of.visibility, zone=of.zone
    )
    return costs.loss_cost_rows(found)
