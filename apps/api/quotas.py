"""Quotas as they are, and how budgets burn: parameters, rows and endpoints."""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, cast

from django.http.response import HttpResponseBase
from rest_framework import serializers

from apps.api import parameters
from apps.api.endpoints import ListRequest, list_endpoint, listed
from apps.api.parameters import NamesField, choices
from apps.api.quota_requests import SOURCES
from apps.api.row_serializers import cells, cells_of, records, serializer_of
from apps.costs import selectors as costs
from apps.quotas import selectors as quotas
from apps.quotas.selectors import BudgetRow, BurnRow, QuotaFilters, QuotaOrder, QuotaRow


class QuotasParams(parameters.PageParams, parameters.CsvParams, parameters.PlaceParams):
    """Parameters of `quotas`."""

    tier = NamesField(help_text="Only keys that can reach these service tiers.")
    # The contract's name; a field has an attribute of that name of its own, which this is not.
    source = NamesField(child=choices(SOURCES))  # type: ignore[assignment]
    effective = serializers.BooleanField(
        required=False,
        allow_null=True,
        default=None,
        help_text="true: only keys that limit something; false: only those that limit nothing.",
    )
    order = choices(
        [order.value for order in QuotaOrder],
        required=False,
        help_text="name (unless told), or fullest: the most saturated first.",
    )


class BudgetsParams(parameters.PageParams):
    """Parameters of `budgets`."""

    team = NamesField(help_text="Only these teams.")


@list_endpoint("quotas", QuotasParams, serializer_of(QuotaRow))
def quota_list(of: ListRequest) -> HttpResponseBase:
    """GPU keys of quotas and queues, of teams you see in detail.

    Quotas as they are.
    """
    of.filters()
    page_at = partial(
        quotas.quota_rows,
        of.now,
        filters=_filters(of.query),
        visibility=of.visibility,
        order=QuotaOrder(of.query.get("order", QuotaOrder.NAME.value)),
    )
    written = (records, cells)
    return of.answer_by_page("quotas", page_at, cells_of(QuotaRow), written=written)


def _in_full(of: ListRequest, rows: Sequence[BurnRow]) -> Iterator[BurnRow]:
    """Yield the rows of a page with when each may end at the earliest and latest.

    For that the days of some weeks are read, which of a thousand teams takes long.
    """
    of_hours = [row for row in rows if isinstance(row, BudgetRow)]
    # It keeps the order of its rows, so they can be put back between those in money.
    whole = iter(quotas.with_ranges(of_hours, of.now, points=False))
    for row in rows:
        yield next(whole) if isinstance(row, BudgetRow) else row


def _budget_name(row: BurnRow) -> str:
    return f"{row.team}\n{row.period_start.isoformat()}\n{row.period}\n{row.unit}"


@listed(
    "budgets",
    # Those in money have the same columns.
    cast("type[BurnRow]", BudgetRow),
    BudgetsParams,
    key=_budget_name,
    completed=_in_full,
)
def budgets(of: ListRequest) -> list[BurnRow]:
    """Budgets in the period that runs; those in money of teams you see.

    How budgets burn.
    """
    teams = of.filters().team
    # The selectors narrow to one team or to none: several are picked from all.
    asked: Any = {"visibility": of.visibility, "team": teams[0] if len(teams) == 1 else None}
    found: list[BurnRow] = [
        *quotas.budget_rows(of.now, **asked, points=False, ranges=False),
        *costs.money_budget_rows(of.now, **asked),
    ]
    # By the name that cursors carry, so that both sorts of budgets make one list.
    return sorted((r for r in found if not teams or r.team in teams), key=_budget_name)


def _filters(query: dict[str, Any]) -> QuotaFilters:
    # These are no lists of names; the last two are of pages alone.
    alone = {"effective", "text", "key"}
    names = [name for name in QuotaFilters.__struct_fields__ if name not in alone]
    lists: dict[str, Any] = {name: tuple(query.get(name, ())) for name in names}
    return QuotaFilters(**lists, effective=query.get("effective"))
