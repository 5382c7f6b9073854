"""Quotas as they are, and how budgets burn: parameters, rows and endpoints."""

from collections.abc import Iterator, Sequence
from dataclasses import fields
from datetime import datetime
from functools import partial
from typing import Any

from django.http.response import HttpResponseBase
from django.utils import timezone
from rest_framework import serializers
from rest_framework.request import Request

from apps.api.base import files, parameters
from apps.api.base.documents import documented
from apps.api.base.paging import page_of, page_response, walk
from apps.api.base.parameters import NamesField, choices, filters_of
from apps.api.base.portal import PortalView, paging, visibility_in
from apps.api.quota_request_records import SOURCES
from apps.costs import selectors as costs
from apps.costs.selectors import MoneyBudgetRow
from apps.quotas import selectors as quotas
from apps.quotas.selectors import BudgetRow, QuotaFilters, QuotaOrder, QuotaRow
from apps.usage import selectors as usage
from apps.usage.domain.columns import utc_text

_FORMAT_HELP = "csv streams all rows, without pages."


class QuotasParams(parameters.PageParams):
    """Parameters of `quotas`."""

    format = choices(parameters.FORMATS, required=False, help_text=_FORMAT_HELP)
    cluster = NamesField(help_text="Only these clusters.")
    tier = NamesField(help_text="Only keys that can reach these service tiers.")
    team = NamesField(help_text="Only these teams.")
    namespace = NamesField(help_text="Only namespaces of these names, of teams you see in detail.")
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

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        return parameters.whole_file(attrs)


class BudgetsParams(parameters.PageParams):
    """Parameters of `budgets`."""

    team = NamesField(help_text="Only these teams.")


def _amount(help_text: str = "") -> serializers.FloatField:
    return serializers.FloatField(allow_null=True, help_text=help_text)


class QuotaSerializer(serializers.Serializer[Any]):
    """One GPU key of a quota."""

    cluster = serializers.CharField()
    namespace = serializers.CharField(help_text="Empty for queues of a whole cluster.")
    source = serializers.ChoiceField(SOURCES)  # type: ignore[assignment]
    name = serializers.CharField()
    key = serializers.CharField(help_text="Of queues flavor/resource.")
    tiers = serializers.ListField(
        child=serializers.CharField(), help_text="Every tier that the key can reach."
    )
    team = serializers.CharField(
        allow_null=True, help_text="Null where several share it or none uses it."
    )
    unit = serializers.CharField(help_text="What the amounts count.")
    hard = _amount("The limit; of Kueue the nominal quota.")
    used = _amount("What the quota counts: waiting pods too. Null where it counts nothing.")
    held = _amount("Of pods that are bound.")
    pending = _amount("Of pods that are not bound.")
    suppressed = _amount("Refused before a pod existed; beside used.")
    saturation_ratio = _amount("used / hard; null where hard is 0 or nothing is counted.")
    effective = serializers.BooleanField(help_text="False: the key is accepted and limits nothing.")
    exhausted_at = serializers.DateTimeField(
        allow_null=True, help_text="Where the trend of seven days reaches hard within 30 days."
    )
    scopes = serializers.ListField(child=serializers.CharField())
    finding = serializers.CharField(help_text="What is wrong with the key; empty where nothing is.")
    fix = serializers.CharField(help_text="What to write instead.")
    headroom = _amount("What all quotas of the namespace leave together.")
    borrowed = _amount()
    ceiling = _amount("The most that a queue can hold; null for no limit.")
    cohort = serializers.CharField()
    as_of = serializers.DateTimeField(
        allow_null=True, help_text="Until when somebody vouches for the row."
    )
    stale = serializers.BooleanField(
        help_text="True: nobody watches it now; the row says what was so at as_of."
    )
    from_series = serializers.BooleanField(
        help_text="True: no watch; amounts are means of the hour that ended at as_of, from "
        "kube-state-metrics."
    )


class BudgetSerializer(serializers.Serializer[Any]):
    """A budget in the period that runs."""

    team = serializers.CharField()
    period_start = serializers.DateTimeField()
    period_end = serializers.DateTimeField()
    unit = serializers.CharField(help_text="gpu_hours, or a currency.")
    allowance = serializers.FloatField()
    used = serializers.FloatField()
    burn_rate = _amount("1.0 lands exactly on the allowance; null before the first closed hour.")
    burn_rate_1d = _amount("Of the last 24 hours.")
    burn_rate_7d = _amount("Of the last seven days.")
    exhausted_at = serializers.DateTimeField(allow_null=True)
    exhausted_at_early = serializers.DateTimeField(allow_null=True)
    exhausted_at_late = serializers.DateTimeField(allow_null=True)
    as_of = serializers.DateTimeField(allow_null=True, help_text="End of the last closed hour.")
    known_until = serializers.DateTimeField(
        allow_null=True,
        help_text="The same of the cluster that lags most; null where nothing is known of one.",
    )
    coverage_ratio = _amount(
        "Known hours of all clusters ÷ the hours so far in which they were there; of money: priced "
        "hours. Below 1 used is a lower bound and exhausted_at too late; the rates are of the "
        "known hours."
    )
    data_start = serializers.DateTimeField(
        allow_null=True,
        help_text="When data starts, where that is after the period's start; else null.",
    )
    unpriced_gpu_hours = _amount("Used and without a price; null of budgets in GPU-hours.")


QUOTA_COLUMNS = [str(name) for name in QuotaSerializer().get_fields()]
BUDGET_COLUMNS = [str(name) for name in BudgetSerializer().get_fields()]
_LISTS = ("tiers", "scopes")


class QuotasView(PortalView):
    """Quotas as they are."""

    @documented(
        "quotas",
        QuotasParams,
        QuotaSerializer,
        summary="GPU keys of quotas and queues, of teams you see in detail.",
        file=True,
    )
    def get(self, request: Request) -> HttpResponseBase:
        query = QuotasParams.read(request.query_params)
        now = timezone.now()
        usage.check_names(filters_of(query))
        page_at = partial(
            quotas.quota_rows,
            now,
            filters=_filters(query),
            visibility=visibility_in(request),
            order=QuotaOrder(query.get("order", QuotaOrder.NAME.value)),
        )
        if query.get("format") == "csv":
            pages = walk(lambda at: page_at(cursor=at, page_size=files.ROWS_AT_A_TIME))
            parts = ([_cells(quota_record(row)) for row in rows] for rows in pages)
            return files.csv_now(parts, columns=QUOTA_COLUMNS, name="quotas", at=now)
        page = page_at(**paging(query))
        return page_response(request, [quota_record(row) for row in page.rows], page.next_cursor)


class BudgetsView(PortalView):
    """How budgets burn."""

    @documented(
        "budgets",
        BudgetsParams,
        BudgetSerializer,
        summary="Budgets in the period that runs; those in money of teams you see.",
    )
    def get(self, request: Request) -> HttpResponseBase:
        query = BudgetsParams.read(request.query_params)
        usage.check_names(filters_of(query))
        now, visibility = timezone.now(), visibility_in(request)
        teams = query.get("team", ())
        team = teams[0] if len(teams) == 1 else None
        found: list[BudgetRow | MoneyBudgetRow] = [
            *quotas.budget_rows(now, visibility=visibility, team=team, points=False, ranges=False),
            *costs.money_budget_rows(now, visibility=visibility, team=team),
        ]
        rows = sorted((r for r in found if not teams or r.team in teams), key=_budget_name)
        page = page_of(rows, kind="budgets", name_of=_budget_name, **paging(query))
        records = [budget_record(row) for row in _in_full(page.rows, now)]
        return page_response(request, records, page.next_cursor)


def _in_full(
    rows: Sequence[BudgetRow | MoneyBudgetRow], now: datetime
) -> Iterator[BudgetRow | MoneyBudgetRow]:
    """Yield the rows of a page with when each may end at the earliest and latest.

    For that the days of some weeks are read, which of a thousand teams takes long.
    """
    of_hours = [row for row in rows if isinstance(row, BudgetRow)]
    whole = iter(quotas.in_full(of_hours, now, points=False))
    for row in rows:
        yield next(whole) if isinstance(row, BudgetRow) else row


def _filters(query: dict[str, Any]) -> QuotaFilters:
    alone = {"effective", "text", "key"}
    names = [f.name for f in fields(QuotaFilters) if f.name not in alone]
    lists: dict[str, Any] = {name: tuple(query.get(name, ())) for name in names}
    return QuotaFilters(**lists, effective=query.get("effective"))


def _budget_name(row: BudgetRow | MoneyBudgetRow) -> str:
    return f"{row.team}\n{row.period_start.isoformat()}\n{row.period}\n{row.unit}"


def quota_record(row: QuotaRow) -> dict[str, Any]:
    """Return what QuotaSerializer describes."""
    record = {name: getattr(row, name) for name in QUOTA_COLUMNS}
    for name in ("exhausted_at", "as_of"):
        record[name] = utc_text(record[name])
    return record | {name: list(record[name]) for name in _LISTS}


def budget_record(row: BudgetRow | MoneyBudgetRow) -> dict[str, Any]:
    """Return what BudgetSerializer describes."""
    times = (
        *("period_start", "period_end", "as_of", "known_until", "data_start"),
        *("exhausted_at", "exhausted_at_early", "exhausted_at_late"),
    )
    record = {name: getattr(row, name, None) for name in BUDGET_COLUMNS}
    amounts = {"allowance": float(row.allowance), "used": float(row.used)}
    return record | amounts | {name: utc_text(record[name]) for name in times}


def _cells(record: dict[str, Any]) -> dict[str, Any]:
    return record | {name: " ".join(record[name]) for name in _LISTS}
