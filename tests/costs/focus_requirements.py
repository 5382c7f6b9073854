"""What FOCUS 1.2 and 1.3 require of a file, as their published texts have it, checked by row.

The validator for 1.0 (`focus_validator`) knows no later version, and no package that checks these
without network is published. The facts are those of the repository FOCUS_Spec of the FinOps
Foundation: its columns, and the model of requirements of 1.2.
"""

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from decimal import Decimal
from typing import NamedTuple

Row = Mapping[str, str]
"""A row of the CSV: an empty text is null."""


class Requirement(NamedTuple):
    """`level`: M mandatory, C conditional, R recommended. `since` is a version, as a text."""

    since: str
    level: str
    nullable: bool
    kind: str


# name: since, feature level, whether it may be null, type
_TABLE = """
AllocatedMethodDetails             1.3 R null json
AllocatedMethodId                  1.3 C null string
AllocatedResourceId                1.3 C null string
AllocatedResourceName              1.3 C null string
AllocatedTags                      1.3 C null json
AvailabilityZone                   0.5 R null string
BilledCost                         0.5 M -    decimal
BillingAccountId                   0.5 M -    string
BillingAccountName                 0.5 M null string
BillingAccountType                 1.2 C null string
BillingCurrency                    0.5 M -    currency
BillingPeriodEnd                   0.5 M -    time
BillingPeriodStart                 0.5 M -    time
CapacityReservationId              1.1 C null string
CapacityReservationStatus          1.1 C null string
ChargeCategory                     1.0 M -    string
ChargeClass                        1.0 M null string
ChargeDescription                  1.0 M null string
ChargeFrequency                    1.0 R -    string
ChargePeriodEnd                    0.5 M -    time
ChargePeriodStart                  0.5 M -    time
CommitmentDiscountCategory         1.0 C null string
CommitmentDiscountId               1.0 C null string
CommitmentDiscountName             1.0 C null string
CommitmentDiscountQuantity         1.1 C null decimal
CommitmentDiscountStatus           1.0 C null string
CommitmentDiscountType             1.0 C null string
CommitmentDiscountUnit             1.1 C null string
ConsumedQuantity                   1.0 C null decimal
ConsumedUnit                       1.0 C null string
ContractApplied                    1.3 C null json
ContractedCost                     1.0 M -    decimal
ContractedUnitPrice                1.0 C null decimal
EffectiveCost                      0.5 M -    decimal
HostProviderName                   1.3 M -    string
InvoiceId                          1.2 R null string
InvoiceIssuerName                  0.5 M -    string
ListCost                           1.0 M -    decimal
ListUnitPrice                      1.0 C null decimal
PricingCategory                    1.0 C null string
PricingCurrency                    1.2 C -    currency
PricingCurrencyContractedUnitPrice 1.2 C null decimal
PricingCurrencyEffectiveCost       1.2 C -    decimal
PricingCurrencyListUnitPrice       1.2 C null decimal
PricingQuantity                    1.0 M null decimal
PricingUnit                        1.0 M null string
ProviderName                       0.5 M -    string
PublisherName                      0.5 M -    string
RegionId                           1.0 C null string
RegionName                         1.0 C null string
ResourceId                         0.5 C null string
ResourceName                       0.5 C null string
ResourceType                       1.0 C null string
ServiceCategory                    0.5 M -    string
ServiceName                        0.5 M -    string
ServiceProviderName                1.3 M -    string
ServiceSubcategory                 1.1 R -    string
SkuId                              1.0 C null string
SkuMeter                           1.1 C null string
SkuPriceDetails                    1.1 C null json
SkuPriceId                         1.0 C null string
SubAccountId                       0.5 C null string
SubAccountName                     0.5 C null string
SubAccountType                     1.2 C null string
Tags                               1.0 C null json
"""
REQUIREMENTS = {
    name: Requirement(since, level, nullable == "null", kind)
    for name, since, level, nullable, kind in map(str.split, _TABLE.strip().splitlines())
}
_ALLOWED = {
    "CapacityReservationStatus": {"Used", "Unused"},
    "ChargeCategory": {"Usage", "Purchase", "Tax", "Credit", "Adjustment"},
    "ChargeClass": {"Correction"},
    "ChargeFrequency": {"One-Time", "Recurring", "Usage-Based"},
    "CommitmentDiscountCategory": {"Spend", "Usage"},
    "CommitmentDiscountStatus": {"Used", "Unused"},
    "PricingCategory": {"Standard", "Dynamic", "Committed", "Other"},
    # Of the category Compute, which is all that the portal bills.
    "ServiceCategory": {"Compute"},
    "ServiceSubcategory": {
        *("Containers", "End User Computing", "Quantum Compute", "Serverless Compute"),
        *("Virtual Machines", "Other (Compute)"),
    },
}
_SHAPES = {
    "decimal": re.compile(r"-?\d+(\.\d+)?([eE][+-]?\d+)?"),
    "currency": re.compile(r"[A-Z]{3}"),
    "time": re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ"),
    "string": re.compile(r"\S(.*\S)?", re.DOTALL),
}
# Each of these is null exactly where the other is.
_TOGETHER = (
    ("AllocatedResourceName", "AllocatedResourceId"),
    ("BillingAccountType", "BillingAccountId"),
    ("CapacityReservationStatus", "CapacityReservationId"),
    ("CommitmentDiscountCategory", "CommitmentDiscountId"),
    ("CommitmentDiscountStatus", "CommitmentDiscountId"),
    ("CommitmentDiscountType", "CommitmentDiscountId"),
    ("CommitmentDiscountUnit", "CommitmentDiscountQuantity"),
    ("ConsumedUnit", "ConsumedQuantity"),
    ("PricingUnit", "PricingQuantity"),
    ("RegionName", "RegionId"),
    ("ResourceType", "ResourceId"),
    ("SubAccountName", "SubAccountId"),
    ("SubAccountType", "SubAccountId"),
)
# Never null in a charge of usage that is no correction; prices only of what has one.
_OF_USAGE = ("PricingCategory", "PricingQuantity", "SkuId", "SkuMeter", "SkuPriceId")
_PRICES = (
    *("ContractedUnitPrice", "ListUnitPrice", "PricingCurrencyContractedUnitPrice"),
    "PricingCurrencyListUnitPrice",
)
_PRODUCTS = (
    ("ContractedCost", "ContractedUnitPrice"),
    ("ListCost", "ListUnitPrice"),
    ("PricingCurrencyEffectiveCost", "PricingCurrencyContractedUnitPrice"),
)
_ALLOCATED = tuple(name for name in REQUIREMENTS if name.startswith("Allocated"))
_SUMMABLE = tuple(n for n in REQUIREMENTS if n.endswith(("Cost", "Quantity")))
_OWN = re.compile(r"x_[A-Z][A-Za-z0-9]*")


def columns_of(version: str) -> set[str]:
    """Return the names of the columns that a version defines."""
    return {name for name, one in REQUIREMENTS.items() if one.since <= version}


def violations(rows: Iterable[Row], columns: Iterable[str], version: str) -> list[str]:
    """Return what a file has against the requirements of a version; each once."""
    kept, names = list(rows), set(columns)
    found = {f"{name} is missing" for name in columns_of(version) - names if _is_due(name)}
    others = names - columns_of(version)
    found |= {f"{name} is no column of {version}" for name in others if not _OWN.fullmatch(name)}
    for row in kept:
        found.update(_of_cells(row, columns_of(version) & names))
        found.update((*_of_nulls(row), *_of_sku(row), *_of_amounts(row)))
    if version >= "1.3":
        found.update(_of_splits(kept))
    return sorted(found)


def _is_due(name: str) -> bool:
    return REQUIREMENTS[name].level in "MR" or name in _ALLOCATED


def _of_cells(row: Row, names: Iterable[str]) -> Iterator[str]:
    for name in names:
        text, required = row[name], REQUIREMENTS[name]
        if not text:
            if not required.nullable:
                yield f"{name} is null"
        elif required.kind == "json":
            if not isinstance(json.loads(text), dict):
                yield f"{name} is no JSON object"
        elif not _SHAPES[required.kind].fullmatch(text):
            yield f"{name} is no {required.kind}: {text}"
        elif name in _ALLOWED and text not in _ALLOWED[name]:
            yield f"{name} has a value that is not allowed: {text}"


def _of_nulls(row: Row) -> Iterator[str]:
    for one, other in _TOGETHER:
        if bool(row.get(one)) != bool(row.get(other)):
            yield f"{one} and {other} are not null together"
    if row["ChargeCategory"] == "Usage" and not row["ChargeClass"]:
        # The one exception that is documented: what has no price cannot tell it.
        due = (*_OF_USAGE, *(_PRICES if row["x_Unpriced"] == "false" else ()))
        yield from (f"{name} of usage is null" for name in due if not row[name])


def _of_sku(row: Row) -> Iterator[str]:
    if bool(row["PricingCategory"] == "Committed") != bool(row["CommitmentDiscountId"]):
        yield "a charge is committed without a commitment, or the other way round"
    if row["SkuPriceDetails"] and not row["SkuPriceId"]:
        yield "SkuPriceDetails without SkuPriceId"
    keys = json.loads(row["SkuPriceDetails"]).keys() - {"GpuCount"}
    if not all(_OWN.fullmatch(key) for key in keys):
        yield "SkuPriceDetails has a key that FOCUS does not define and that lacks its prefix"


def _of_amounts(row: Row) -> Iterator[str]:
    for cost, price in _PRODUCTS:
        if row[price] and row["PricingQuantity"]:
            product = Decimal(row[price]) * Decimal(row["PricingQuantity"])
            # Costs are kept to 1e-8, one rounding for each hour of a holder.
            if abs(product - Decimal(row[cost])) > Decimal("1e-5"):
                yield f"{cost} is not {price} × PricingQuantity"
    same = row["BillingCurrency"] == row["PricingCurrency"]
    if same and row["PricingCurrencyEffectiveCost"] != row["EffectiveCost"]:
        yield "PricingCurrencyEffectiveCost differs from EffectiveCost in the same currency"


def _of_splits(rows: Iterable[Row]) -> Iterator[str]:
    """Yield what allocated charges have against the charge that they are split from."""
    origins: dict[tuple[str, ...], list[Row]] = defaultdict(list)
    apart = (*_ALLOCATED, *_SUMMABLE)
    same = [name for name in REQUIREMENTS if name not in apart]
    of = ("ChargePeriodStart", "ResourceId", "SkuPriceId", "ContractedUnitPrice", "ChargeClass")
    for row in rows:
        if not row["AllocatedMethodId"]:
            yield from (f"{name} without a method" for name in _ALLOCATED if row[name])
            continue
        origins[tuple(row[name] for name in (*of, "x_Unpriced"))].append(row)
        tags = json.loads(row["AllocatedTags"] or "{}").keys() & json.loads(row["Tags"] or "{}")
        if tags:
            yield f"AllocatedTags repeat those of the charge: {sorted(tags)}"
    for parts in origins.values():
        yield from (
            f"{name} is not the same in all parts of a charge"
            for name in same
            if len({row[name] for row in parts}) > 1
        )
        if not parts[0]["ChargeClass"]:
            whole = sum((_ratio(row) for row in parts), Decimal(0))
            if abs(whole - 1) > Decimal("1e-9"):
                yield f"the ratios of a charge sum to {whole}"


def _ratio(row: Row) -> Decimal:
    (element,) = json.loads(row["AllocatedMethodDetails"])["Elements"]
    assert element.keys() == {"AllocatedRatio", "UsageUnit", "UsageQuantity"}
    assert element["UsageUnit"] == row["PricingUnit"]
    return Decimal(str(element["AllocatedRatio"]))
