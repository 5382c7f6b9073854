"""Bills that were imported, and what their SKUs stand for."""

from collections.abc import Iterator
from datetime import date, datetime
from typing import Annotated

from django.db.models import F, Max, QuerySet
from msgspec import Struct

from apps.accounts.domain.rows import row_from
from apps.accounts.permissions import Visibility
from apps.clusters.domain.columns import Column
from apps.clusters.models import GpuModel
from apps.costs.domain.bills.charges import ChargeKind
from apps.costs.domain.bills.reconciliation import BilledDay
from apps.costs.domain.bills.sku_mapping import SkuMapper, SkuTarget
from apps.costs.domain.costing import SCALE_DIGITS
from apps.costs.models import Bill, BillAmount, SkuMapping
from gpuportal.database_functions import LargeSum


class BillRow(Struct, frozen=True):
    """An imported bill; `ended_at` None: it is in force. `total` in units of 1e-8."""

    id: Annotated[int, Column(help="Number of the bill.")]
    month: Annotated[str, Column("Month")]
    provider: Annotated[str, Column("Provider", help="Empty for the only bill of its month.")]
    file_name: Annotated[str, Column("File", wraps=True)]
    file_format: Annotated[str, Column("Format")]
    cost_column: Annotated[str, Column("Cost column")]
    total: Annotated[int, Column("Total", digits=SCALE_DIGITS)]
    currency: Annotated[str, Column("Currency")]
    line_count: Annotated[int, Column("Lines")]
    imported_at: Annotated[datetime, Column("Imported")]
    imported_by: Annotated[str, Column("By")]
    ended_at: Annotated[
        datetime | None, Column("Ended", help="When it was replaced or deleted; else in force.")
    ]
    sha256: Annotated[str, Column("SHA-256", off_page=True)]


def bill_rows(*, visibility: Visibility, month: date | None = None) -> list[BillRow]:
    """Return all bills there were, the newest month first; for who sees everything. One query.

    In a month those in force come first, then what ended, the oldest end first.
    """
    if not visibility.everything:
        return []
    # PostgreSQL sorts null last and SQLite first, unless they are told.
    in_force_first = F("ended_at").asc(nulls_first=True)
    found = Bill.objects.filter(**({} if month is None else {"month": month}))
    return [
        row_from(
            BillRow,
            bill,
            id=bill.pk,
            month=f"{bill.month:%Y-%m}",
        )
        for bill in found.order_by("-month", in_force_first, "provider", "-imported_at", "pk")
    ]


def bill_months(*, visibility: Visibility) -> list[date]:
    """Return the months that have a bill, newest first; for who sees everything. One query."""
    if not visibility.everything:
        return []
    months = Bill.objects.filter(ended_at__isnull=True).values_list("month", flat=True)
    return list(months.order_by("-month").distinct())


def mapped_skus() -> dict[str, SkuTarget]:
    """Return what SKUs were mapped to by users. One query."""
    rows = SkuMapping.objects.order_by("sku").values_list("sku", "gpu_model__name", "capacity_type")
    # A row without a model is a decision: this SKU is no GPU.
    return {sku: SkuTarget(model or "", kind) for sku, model, kind in rows}


def gpu_model_names() -> list[str]:
    """Return the GPU models that the portal has met. One query."""
    return list(GpuModel.objects.order_by("name").values_list("name", flat=True))


def sku_mapper() -> SkuMapper:
    """Return the mapping of SKUs as it is now. Two queries."""
    return SkuMapper(mapped_skus(), gpu_model_names())


def amounts_of_month(month: date) -> QuerySet[BillAmount, BillAmount]:
    """Return what bills in force have on the days of a month.

    A bill in UTC may hold hours of a day of the next month: they are compared in that month.
    """
    return BillAmount.objects.filter(
        sku__bill__ended_at__isnull=True, day__year=month.year, day__month=month.month
    )


def billed_days(month: date) -> Iterator[BilledDay]:
    """Yield the sums of a month by SKU, kind and day. One query."""
    rows = amounts_of_month(month).order_by().values_list("sku__sku", "kind", "day")
    for sku, kind, day, amount in rows.annotate(sum=LargeSum("amount")):
        yield BilledDay(sku, ChargeKind(kind), day, int(amount))


class SkuRow(Struct, frozen=True):
    """A SKU of a month's bills; `target` None: not mapped, `suggestion` what it may be.

    `amount` is its usage in units of 1e-8.
    """

    sku: str
    description: str
    amount: int
    target: SkuTarget | None
    suggestion: str


def sku_rows(month: date, *, visibility: Visibility) -> list[SkuRow]:
    """Return the SKUs of a month's usage, not mapped ones first, then by amount.

    For who sees everything. Three queries.
    """
    if not visibility.everything:
        return []
    mapper = sku_mapper()
    # Usage alone is mapped to GPU models: other kinds stand apart whatever their SKU is.
    usage = amounts_of_month(month).filter(kind=ChargeKind.USAGE.value).order_by()
    found = usage.values_list("sku__sku").annotate(
        # Bills of two providers may describe one SKU differently; one of the texts is enough.
        description=Max("sku__description"),
        sum=LargeSum("amount"),
    )
    rows = [
        SkuRow(
            sku=sku,
            description=description,
            amount=int(amount),
            target=(target := mapper.target(sku)),
            suggestion=mapper.suggestion(sku, description) if target is None else "",
        )
        for sku, description, amount in found
    ]
    return sorted(rows, key=lambda row: (row.target is not None, -row.amount, row.sku))
