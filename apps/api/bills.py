"""The endpoints of bills and of what months differ by: for finance and administrators."""

from datetime import date
from typing import Any

from django.http.response import HttpResponseBase
from rest_framework import serializers

from apps.api import parameters
from apps.api.endpoints import ListRequest, ShortList, caller_of, list_endpoint, listed
from apps.api.row_serializers import records, serializer_of
from apps.clusters.domain.window import month_before
from apps.costs import selectors as costs
from apps.costs.domain.costing import money
from apps.costs.permissions import check_bills
from apps.costs.selectors import BillRow, ReconciledDay, Reconciliation

_REFUSALS = {403: "Bills are for finance and administrators."}
_DAYS: ShortList[ReconciledDay] = ShortList(
    "reconciliation", lambda row: f"{row.day} {row.gpu_model}", records
)


class BillsParams(parameters.PageParams):
    """Parameters of `bills`."""

    refusals = _REFUSALS


@listed("bills", BillRow, BillsParams, key=lambda row: row.id)
def bills(of: ListRequest) -> list[BillRow]:
    """Imported bills, the newest month first; for finance and administrators.

    Bills that were imported.
    """
    check_bills(caller_of(of.request))
    return costs.bill_rows(visibility=of.visibility)


class ReconciliationParams(parameters.PageParams):
    """Parameters of `reconciliation`."""

    refusals = _REFUSALS

    month = serializers.RegexField(
        r"^20\d\d-(0[1-9]|1[0-2])$",
        required=False,
        help_text="A month of the report's time zone, as 2026-10; unless told the newest that has "
        "a bill, else the last that is over.",
        error_messages={"invalid": "is not a month: write it as 2026-10"},
    )


class ReconciliationSummarySerializer(serializers.Serializer[Any]):
    """What a month was billed with, how that divides, and what it differs by."""

    month = serializers.CharField()
    currency = serializers.CharField()
    billed_cost = serializers.FloatField(help_text="Usage of SKUs that map to a GPU model.")
    portal_cost = serializers.FloatField(help_text="Cost of all capacity, not apportioned.")
    difference = serializers.FloatField(help_text="billed_cost − portal_cost.")
    difference_ratio = serializers.FloatField(
        allow_null=True, help_text="difference ÷ portal_cost; null without a cost."
    )
    not_gpu_cost = serializers.FloatField(help_text="Usage of SKUs that are no GPU.")
    not_mapped_cost = serializers.FloatField(help_text="Usage of SKUs without a mapping.")
    apart_costs = serializers.DictField(
        child=serializers.FloatField(),
        help_text="Taxes, credits, refunds and corrections by kind. With the three other parts of "
        "the bill they sum to total_cost.",
    )
    total_cost = serializers.FloatField(help_text="All that the bill has on days of the month.")
    incomplete = serializers.ListField(
        child=serializers.CharField(), help_text="What the portal's cost lacks, in words."
    )


@list_endpoint(
    "reconciliation",
    ReconciliationParams,
    serializer_of(ReconciledDay),
    beside={"summary": ReconciliationSummarySerializer()},
)
def reconciliation(of: ListRequest) -> HttpResponseBase:
    """Billed and portal cost by day and GPU model; for finance and administrators.

    A month's bills against the portal's cost.
    """
    check_bills(caller_of(of.request))
    found = costs.reconcile(_month(of), visibility=of.visibility, now=of.now)
    # A month without bills is no error: its page is empty, and has no summary.
    rows = found.days if found else ()
    response = of.page(_DAYS, rows)
    response.data["summary"] = _summary(found) if found else None
    return response


def _month(of: ListRequest) -> date:
    if "month" in of.query:
        return date.fromisoformat(f"{of.query['month']}-01")
    today = of.now.astimezone(of.zone).date()
    # Bills come weeks after their month: the last one that is over seldom has one yet.
    return next(iter(costs.bill_months(visibility=of.visibility)), month_before(today))


def _summary(found: Reconciliation) -> dict[str, Any]:
    parts, whole = found.parts, found.whole
    amounts = {
        "billed_cost": whole.billed,
        "portal_cost": whole.portal,
        "difference": whole.difference,
        "not_gpu_cost": parts.not_gpu,
        "not_mapped_cost": parts.not_mapped,
        "total_cost": parts.total,
    }
    return {
        "month": f"{found.month:%Y-%m}",
        "currency": found.currency,
        **{name: float(money(amount)) for name, amount in amounts.items()},
        "difference_ratio": whole.ratio,
        "apart_costs": {
            kind.value: float(money(amount)) for kind, amount in sorted(parts.apart.items())
        },
        "incomplete": [*found.gaps.texts(), *(f"costs in {name}" for name in found.others)],
    }
