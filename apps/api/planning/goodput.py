"""The goodput ledger: rows and the endpoint."""

from functools import partial

from django.http.response import HttpResponseBase
from rest_framework.request import Request

from apps.api import parameters
from apps.api.endpoints import CSV, PortalView, ShortList, WindowRequest, documented
from apps.api.parameters import NamesField, choices
from apps.api.row_serializers import cells_of, records, serializer_of
from apps.costs import selectors as costs
from apps.costs.selectors import LossCostRow
from apps.goodput import selectors as goodput
from apps.goodput.selectors import GoodputRow
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
        of = WindowRequest.read(request, GoodputParams)
        by = tuple(Grouping(name) for name in of.query.get("group_by", ()))
        step = TimeStep(of.query.get("interval", TimeStep.TOTAL))
        asked = UsageQuery(of.window, step, by, of.filters())
        found = goodput.goodput_by_period(asked, visibility=of.visibility, zone=of.zone)
        rows: ShortList[GoodputRow] = ShortList(
            # A cursor of other groups or periods would name a row that this list does not have.
            "-".join(("goodput", asked.interval, *by)),
            lambda row: "\n".join((str(row.period or ""), *row.groups.values())),
            partial(records, groups=by),
        )
        return of.answer(rows, found, of.file("goodput", cells_of(GoodputRow, by)))


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
        of = WindowRequest.read(request, LossesParams)
        found = goodput.goodput_ledger(
            of.window, group_by=(), filters=of.filters(), visibility=of.visibility, zone=of.zone
        )
        file = of.file("goodput-losses", cells_of(LossCostRow))
        return of.answer(_LOSSES, costs.loss_cost_rows(found), file)
