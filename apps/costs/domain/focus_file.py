"""Costs as FOCUS 1.0, the FinOps Foundation's columns of a bill (focus.finops.org).

FOCUS's own words live here, and in `bills.focus_charges`, which reads them. All 43 columns of 1.0
are written, among them the 21 mandatory ones, which are those of 1.1 and 1.2 too; what we know
beyond them is in columns prefixed `x_`.
"""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime

from apps.clusters.domain.tiers import CapacityType
from apps.costs.domain.costing import FREE, SCALE_DIGITS, Cause, cost_of
from apps.costs.domain.files import CellType, CellValue, CostFile, FileColumn, FileRow, Notes
from apps.costs.domain.prices import OWNED

FOCUS_VERSION = "1.0"
UNIT = "GPU-Hours"
_NANO_DIGITS = 9

_MONEY = ("BilledCost", "ContractedCost", "EffectiveCost", "ListCost")
_UNIT_PRICES = ("ContractedUnitPrice", "ListUnitPrice")
_QUANTITIES = ("ConsumedQuantity", "PricingQuantity")
_TIMES = ("BillingPeriodEnd", "BillingPeriodStart", "ChargePeriodEnd", "ChargePeriodStart")

MANDATORY = (
    "BilledCost",
    "BillingAccountId",
    "BillingAccountName",
    "BillingCurrency",
    "BillingPeriodEnd",
    "BillingPeriodStart",
    "ChargeCategory",
    "ChargeClass",
    "ChargeDescription",
    "ChargePeriodEnd",
    "ChargePeriodStart",
    "ContractedCost",
    "EffectiveCost",
    "InvoiceIssuerName",
    "ListCost",
    "PricingQuantity",
    "PricingUnit",
    "ProviderName",
    "PublisherName",
    "ServiceCategory",
    "ServiceName",
)
OTHERS = (
    "AvailabilityZone",
    "ChargeFrequency",
    "CommitmentDiscountCategory",
    "CommitmentDiscountId",
    "CommitmentDiscountName",
    "CommitmentDiscountStatus",
    "CommitmentDiscountType",
    "ConsumedQuantity",
    "ConsumedUnit",
    "ContractedUnitPrice",
    "ListUnitPrice",
    "PricingCategory",
    "RegionId",
    "RegionName",
    "ResourceId",
    "ResourceName",
    "ResourceType",
    "SkuId",
    "SkuPriceId",
    "SubAccountId",
    "SubAccountName",
    "Tags",
)
OURS = (
    "x_BasisOfCharge",
    "x_CapacityType",
    "x_Cause",
    "x_Cluster",
    "x_CostCenter",
    "x_CoverageRatio",
    "x_GpuModel",
    "x_PriceBookVersion",
    "x_Team",
    "x_Tier",
    "x_TimeZone",
    "x_UnallocatedPolicy",
    "x_Unpriced",
    "x_WindowEnd",
    "x_WindowStart",
)
EARLIER_NAMES = {
    "ChargeType": "ChargeCategory",
    "InvoiceIssuer": "InvoiceIssuerName",
    "Provider": "ProviderName",
    "Publisher": "PublisherName",
    "ResourceID": "ResourceId",
}
"""Names from before 1.0 that focus-validator 1.0.0 still requires, and their names since.

1.0 renamed these columns; the validator's rules for 1.0 kept asking for the old ones. A file with
both has every column of 1.0 under its right name and passes all rules (docs/definitions.md#focus).
"""

# Spot prices move with the market; what is reserved is paid for in advance; what is owned is
# neither a list price nor a commitment to a provider.
_PRICING = {
    str(CapacityType.SPOT): "Dynamic",
    str(CapacityType.RESERVED): "Committed",
    OWNED: "Other",
}


@dataclass(frozen=True, slots=True)
class Issuer:
    """Who bills: names that FOCUS wants in every row."""

    billing_account_id: str = "gpuportal"
    billing_account_name: str | None = None
    invoice_issuer: str = "gpuportal"
    provider: str = "gpuportal"
    publisher: str = "gpuportal"


@dataclass(frozen=True, slots=True)
class Charge:
    """One row of costs as it becomes a row of FOCUS.

    `gpu_hours` are nano-GPU-hours, `cost` units of 1e-8 (None: unpriced), the two prices units per
    GPU-hour, before and after the discount. Unallocated capacity has no `namespace` and no
    `workload`; its `team` is who pays for it by the policy, empty for the platform. A `correction`
    is an adjustment line of a month that is closed; its amounts are differences.
    """

    start: datetime
    end: datetime
    billing_start: datetime
    billing_end: datetime
    cluster: str
    team: str
    tier: str
    gpu_model: str
    capacity_type: str
    cause: Cause
    gpu_hours: int
    cost: int | None
    currency: str
    list_price: int | None = None
    price: int | None = None
    namespace: str = ""
    workload: str = ""
    cost_center: str = ""
    region: str = ""
    correction: bool = False


def order(charge: Charge) -> tuple[object, ...]:
    """Return what rows are sorted by: the same charges give the same file."""
    return (
        charge.start,
        charge.end,
        charge.cluster,
        charge.team,
        charge.namespace,
        charge.workload,
        charge.tier,
        charge.gpu_model,
        charge.capacity_type,
        charge.cause,
        charge.correction,
    )


def focus_file(
    charges: Iterable[Charge], *, issuer: Issuer, notes: Notes, earlier_names: bool = True
) -> CostFile:
    """Return charges (in `order`, read once) as a file of FOCUS 1.0.

    Columns are sorted by name, FOCUS's before ours. Between them are those of EARLIER_NAMES, or
    without `earlier_names` none: then it keeps to the letter of 1.0, where what it does not define
    begins with `x_`, and the validator misses five columns.
    """
    earlier = sorted(EARLIER_NAMES) if earlier_names else ()
    columns = [_column(name) for name in (*sorted((*MANDATORY, *OTHERS)), *earlier, *OURS)]
    return CostFile(
        f"FOCUS {FOCUS_VERSION}", columns, _rows(charges, columns, issuer, notes), notes
    )


def _rows(
    charges: Iterable[Charge], columns: list[FileColumn], issuer: Issuer, notes: Notes
) -> Iterator[FileRow]:
    names = [EARLIER_NAMES.get(column.name, column.name) for column in columns]
    same = {**_of_issuer(issuer), **_of_notes(notes)}
    for charge in charges:
        record = same | _of_money(charge) | _of_charge(charge) | _of_resource(charge)
        # A new price book is a new price of the same SKU, so its version belongs in here.
        record["SkuPriceId"] = f"{record['SkuPriceId']}/{notes.price_book}"
        yield [record.get(name) for name in names]


def _column(name: str) -> FileColumn:
    if name in _MONEY or name in _UNIT_PRICES:
        return FileColumn(name, CellType.SCALED, SCALE_DIGITS)
    if name in _QUANTITIES:
        return FileColumn(name, CellType.SCALED, _NANO_DIGITS)
    if name in _TIMES or name in ("x_WindowStart", "x_WindowEnd"):
        return FileColumn(name, CellType.INSTANT)
    if name == "x_Unpriced":
        return FileColumn(name, CellType.FLAG)
    return FileColumn(name, CellType.RATIO if name == "x_CoverageRatio" else CellType.TEXT)


def _of_issuer(issuer: Issuer) -> dict[str, CellValue]:
    return {
        "BillingAccountId": issuer.billing_account_id,
        "BillingAccountName": issuer.billing_account_name,
        "InvoiceIssuerName": issuer.invoice_issuer,
        "ProviderName": issuer.provider,
        "PublisherName": issuer.publisher,
        "ServiceCategory": "Compute",
        "ChargeFrequency": "Usage-Based",
        "PricingUnit": UNIT,
        "ConsumedUnit": UNIT,
    }


def _of_notes(notes: Notes) -> dict[str, CellValue]:
    return {
        "x_BasisOfCharge": notes.basis,
        "x_CoverageRatio": notes.coverage_ratio,
        "x_PriceBookVersion": notes.price_book,
        "x_TimeZone": notes.time_zone,
        "x_UnallocatedPolicy": notes.policy,
        "x_WindowStart": notes.window_start,
        "x_WindowEnd": notes.window_end,
    }


def _of_money(charge: Charge) -> dict[str, CellValue]:
    """Return amounts. FOCUS allows no cost to be null, so what is unpriced says so beside its 0."""
    cost = charge.cost or 0
    list_price = charge.list_price if charge.list_price is not None else charge.price
    at_list = charge.cost is not None and list_price is not None and list_price != charge.price
    return {
        "BilledCost": cost,
        "EffectiveCost": cost,
        "ContractedCost": cost,
        # Not quantity × price at equal prices: that rounds anew and differs from BilledCost.
        "ListCost": cost_of(charge.gpu_hours, list_price or 0) if at_list else cost,
        "ContractedUnitPrice": charge.price,
        "ListUnitPrice": list_price,
        "BillingCurrency": charge.currency,
        "PricingQuantity": charge.gpu_hours,
        "ConsumedQuantity": charge.gpu_hours,
        "x_Unpriced": charge.cost is None,
    }


def _of_charge(charge: Charge) -> dict[str, CellValue]:
    return {
        "BillingPeriodStart": charge.billing_start,
        "BillingPeriodEnd": charge.billing_end,
        "ChargePeriodStart": charge.start,
        "ChargePeriodEnd": charge.end,
        "ChargeCategory": "Usage",
        # FOCUS 1.0 allows one value only; an ordinary charge has null.
        "ChargeClass": "Correction" if charge.correction else None,
        "ChargeDescription": _description(charge),
        "PricingCategory": _PRICING.get(charge.capacity_type, "Standard"),
        "ServiceName": f"GPU ({charge.tier})",
        "SkuId": f"{charge.gpu_model}/{charge.capacity_type}",
        "SkuPriceId": f"{charge.gpu_model}/{charge.capacity_type}/{charge.tier}",
        "Tags": _tags(charge),
        "x_CapacityType": charge.capacity_type,
        "x_Cause": charge.cause.value,
        "x_GpuModel": charge.gpu_model,
        "x_Tier": charge.tier,
    }


def _of_resource(charge: Charge) -> dict[str, CellValue]:
    cluster, namespace = charge.cluster, charge.namespace
    free = charge.cause in FREE
    name = f"{charge.tier}/{charge.gpu_model}" if free else charge.workload or None
    kind = "GPU capacity" if free else "Workload"
    place = "/".join(filter(None, (cluster, namespace, name)))
    return {
        "RegionId": charge.region or None,
        "RegionName": charge.region or None,
        "ResourceId": place if name else None,
        "ResourceName": name,
        "ResourceType": kind if name else None,
        "SubAccountId": f"{cluster}/{namespace}" if namespace else None,
        "SubAccountName": namespace or None,
        "x_Cluster": cluster,
        "x_CostCenter": charge.cost_center or None,
        "x_Team": charge.team or None,
    }


def _description(charge: Charge) -> str:
    said = f"{charge.gpu_model} GPU-hours, {charge.cause.value.replace('_', ' ')}"
    if charge.cost is None:
        said += "; unpriced: the price book has no price for them"
    return f"Correction of a closed month: {said}" if charge.correction else said


def _tags(charge: Charge) -> str:
    """Return the tags as a JSON object; keys of ours have a prefix, as FOCUS asks of providers."""
    tags = {
        "gpuportal/cost_center": charge.cost_center,
        "gpuportal/team": charge.team,
        "gpuportal/tier": charge.tier,
    }
    # An empty tag would be a value of its own in a FinOps tool; it is left out.
    return json.dumps({key: value for key, value in tags.items() if value}, ensure_ascii=False)
