"""The columns of each version of FOCUS that files are written in, each declared once."""

from apps.costs.domain.costing import SCALE_DIGITS
from apps.costs.domain.files import CellType, FileColumn, FocusVersion

QUANTITY_DIGITS = 9

_ADDED = {
    FocusVersion.V1_0: (
        *("AvailabilityZone", "BilledCost", "BillingAccountId", "BillingAccountName"),
        *("BillingCurrency", "BillingPeriodEnd", "BillingPeriodStart", "ChargeCategory"),
        *("ChargeClass", "ChargeDescription", "ChargeFrequency", "ChargePeriodEnd"),
        *("ChargePeriodStart", "CommitmentDiscountCategory", "CommitmentDiscountId"),
        *("CommitmentDiscountName", "CommitmentDiscountStatus", "CommitmentDiscountType"),
        *("ConsumedQuantity", "ConsumedUnit", "ContractedCost", "ContractedUnitPrice"),
        *("EffectiveCost", "InvoiceIssuerName", "ListCost", "ListUnitPrice", "PricingCategory"),
        *("PricingQuantity", "PricingUnit", "ProviderName", "PublisherName", "RegionId"),
        *("RegionName", "ResourceId", "ResourceName", "ResourceType", "ServiceCategory"),
        *("ServiceName", "SkuId", "SkuPriceId", "SubAccountId", "SubAccountName", "Tags"),
    ),
    # Seven of these came with 1.1 already.
    FocusVersion.V1_2: (
        *("BillingAccountType", "CapacityReservationId", "CapacityReservationStatus"),
        *("CommitmentDiscountQuantity", "CommitmentDiscountUnit", "InvoiceId", "PricingCurrency"),
        *("PricingCurrencyContractedUnitPrice", "PricingCurrencyEffectiveCost"),
        *("PricingCurrencyListUnitPrice", "ServiceSubcategory", "SkuMeter", "SkuPriceDetails"),
        "SubAccountType",
    ),
    # ProviderName and PublisherName are deprecated since, and mandatory still.
    FocusVersion.V1_3: (
        *("AllocatedMethodDetails", "AllocatedMethodId", "AllocatedResourceId"),
        *("AllocatedResourceName", "AllocatedTags", "ContractApplied", "HostProviderName"),
        "ServiceProviderName",
    ),
}
_OURS = (
    *("x_BasisOfCharge", "x_CapacityType", "x_Cause", "x_Cluster", "x_CostCenter"),
    *("x_CoverageRatio", "x_GpuModel", "x_PriceBookVersion", "x_Team", "x_Tier", "x_TimeZone"),
    *("x_UnallocatedPolicy", "x_Unpriced", "x_WindowEnd", "x_WindowStart"),
)
# Not in files of 1.0: those of closed months are made anew byte for byte.
_OF_ENERGY = ("x_CarbonEnergyKwh", "x_CarbonGrams", "x_EnergyKwh")
_OURS_SINCE_1_2 = (*_OF_ENERGY, "x_PriceSource")

_MONEY = (
    *("BilledCost", "ContractedCost", "EffectiveCost", "ListCost", "ContractedUnitPrice"),
    *("ListUnitPrice", "PricingCurrencyContractedUnitPrice", "PricingCurrencyEffectiveCost"),
    "PricingCurrencyListUnitPrice",
)
_QUANTITIES = ("CommitmentDiscountQuantity", "ConsumedQuantity", "PricingQuantity")
_TYPES = {
    **dict.fromkeys(_MONEY, (CellType.SCALED, SCALE_DIGITS)),
    **dict.fromkeys(_QUANTITIES, (CellType.SCALED, QUANTITY_DIGITS)),
    **dict.fromkeys(
        (
            *("BillingPeriodEnd", "BillingPeriodStart", "ChargePeriodEnd", "ChargePeriodStart"),
            *("x_WindowEnd", "x_WindowStart"),
        ),
        (CellType.INSTANT, 0),
    ),
    **dict.fromkeys(_OF_ENERGY, (CellType.SCALED, 6)),
    "x_Unpriced": (CellType.FLAG, 0),
    "x_CoverageRatio": (CellType.RATIO, 0),
}


def focus_columns(version: FocusVersion) -> list[str]:
    """Return the names of all columns that a version defines, sorted."""
    return sorted(
        name for since, names in _ADDED.items() if version.is_since(since) for name in names
    )


def own_columns(version: FocusVersion, *, exchanged: bool = False) -> list[str]:
    """Return the names of the portal's own columns in a file of a version; they begin with x_.

    `exchanged`: with that of the exchange rate.
    """
    added = _OURS_SINCE_1_2 if version.is_since(FocusVersion.V1_2) else ()
    # Without rates no column: files of months that are closed stay what they are, to the byte.
    return sorted((*_OURS, *added, *(("x_ExchangeRate",) if exchanged else ())))


def file_column(name: str) -> FileColumn:
    """Return a column with its type."""
    return FileColumn(name, *_TYPES.get(name, (CellType.TEXT, 0)))
