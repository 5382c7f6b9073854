"""Costs as FOCUS, the FinOps Foundation's columns of a bill (focus.finops.org).

FOCUS's own words live here, in `focus_columns`, and in `bills.focus_charges`, which reads them.
All columns of a version are written (`focus_columns`); what we know beyond them is in columns
prefixed `x_`.
"""

import json
from collections.abc import Iterable, Iterator
from datetime import datetime
from decimal import Decimal
from functools import lru_cache
from operator import itemgetter

from msgspec import Struct

from apps.clusters.domain.tiers import CapacityType, GpuSharing
from apps.costs.domain.costing import FREE, Cause, cost_of
from apps.costs.domain.exchange_rates import converted, rate_text
from apps.costs.domain.files import CellValue, CostFile, FileRow, FocusVersion, Notes
from apps.costs.domain.focus_columns import file_column, focus_columns, own_columns
from apps.costs.domain.prices import OWNED
from apps.costs.domain.split_charges import method_details, method_id
from apps.usage.domain.amounts import NANO

UNIT = "GPU-Hours"
ENERGY_UNIT = "Kilowatt-Hours"
_MWH_PER_KWH = 1_000_000
# A month has a hundred thousand rows and more, of few teams, tiers and models.
_CACHED = 10_000
_Record = dict[str, CellValue]

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

_BILLED = (
    *("BilledCost", "ContractedCost", "EffectiveCost", "ListCost"),
    *("ContractedUnitPrice", "ListUnitPrice"),
)
# Spot prices move with the market; what is reserved is paid for in advance; what is owned is
# neither a list price nor a commitment to a provider.
_PRICING = {
    str(CapacityType.SPOT): "Dynamic",
    str(CapacityType.RESERVED): "Committed",
    OWNED: "Other",
}


class Issuer(Struct, frozen=True):
    """Who bills: names that FOCUS wants in every row."""

    billing_account_id: str = "gpuportal"
    billing_account_name: str | None = None
    invoice_issuer: str = "gpuportal"
    provider: str = "gpuportal"
    publisher: str = "gpuportal"
    host: str = "gpuportal"


class Charge(Struct, frozen=True):
    """One row of costs as it becomes a row of FOCUS.

    `gpu_hours` are nano-GPU-hours, `cost` units of 1e-8 (None: unpriced), the two prices units per
    GPU-hour, before and after the discount. Unallocated capacity has no `namespace` and no
    `workload`; its `team` is who pays for it by the policy, empty for the platform. A `correction`
    is an adjustment line of a month that is closed; its amounts are differences.

    Files of 1.2 and later have the rest, too: `energy_mwh` of a line of energy, whose prices are
    per kilowatt-hour then; of it `carbon_mwh` with a factor, and their `carbon_ug` (None: none);
    `price_source`, which price of the book a line has, empty where that is not known. Of 1.3:
    `sharing` of the tier, and `origin` of a shared GPU, the GPU-hours (of energy the
    milliwatt-hours) of the charge that it is split from; None where that is not known.

    Amounts are in `currency`, that of the price. With an `exchange_rate` they are billed in
    `billing_currency`: units of it for one of `currency`, fixed for the month.
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
    energy_mwh: int | None = None
    carbon_mwh: int | None = None
    carbon_ug: int | None = None
    price_source: str = ""
    sharing: GpuSharing | None = None
    origin: int | None = None
    billing_currency: str = ""
    exchange_rate: Decimal | None = None

    @property
    def is_energy(self) -> bool:
        """Whether it is of measured energy, not of GPU-hours."""
        return self.cause is Cause.ENERGY


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
    charges: Iterable[Charge],
    *,
    issuer: Issuer,
    notes: Notes,
    version: FocusVersion = FocusVersion.V1_0,
    earlier_names: bool = True,
    exchanged: bool = False,
) -> CostFile:
    """Return charges (in `order`, read once) as a file of a version of FOCUS.

    Columns are sorted by name, FOCUS's before ours. Between them, in 1.0, are those of
    EARLIER_NAMES, or without `earlier_names` none: then it keeps to the letter of 1.0, where what
    it does not define begins with `x_`, and the validator misses five columns. `exchanged`: charges
    may have an exchange rate, which gets a column.
    """
    with_earlier = earlier_names and version is FocusVersion.V1_0
    earlier = sorted(EARLIER_NAMES) if with_earlier else ()
    names = [*focus_columns(version), *earlier, *own_columns(version, exchanged=exchanged)]
    rows = _rows(charges, names, version, issuer, notes)
    return CostFile(f"FOCUS {version}", [file_column(name) for name in names], rows, notes)


def _rows(
    charges: Iterable[Charge],
    columns: list[str],
    version: FocusVersion,
    issuer: Issuer,
    notes: Notes,
) -> Iterator[FileRow]:
    names = [EARLIER_NAMES.get(name, name) for name in columns]
    # All names from the start: what no charge has is picked as the rest is, a cell at a time.
    same: _Record = {**dict.fromkeys(names), **_of_issuer(issuer), **_of_notes(notes)}
    cells = itemgetter(*names)
    since_1_2, since_1_3 = (
        version.is_since(other) for other in (FocusVersion.V1_2, FocusVersion.V1_3)
    )
    for charge in charges:
        record = same | _of_money(charge) | _of_charge(charge) | _of_resource(charge)
        if version is FocusVersion.V1_0:
            # A new price book is a new price of the same SKU, so its version belongs in here.
            record["SkuPriceId"] = f"{record['SkuPriceId']}/{notes.price_book}"
        if since_1_2:
            record |= _since_1_2(charge, record)
        if since_1_3:
            record |= _of_split(charge)
        if charge.exchange_rate is not None:
            record |= _billed(charge, record, charge.exchange_rate)
        yield cells(record)


def _of_issuer(issuer: Issuer) -> _Record:
    return {
        "BillingAccountId": issuer.billing_account_id,
        "BillingAccountName": issuer.billing_account_name,
        "BillingAccountType": "Portal",
        "HostProviderName": issuer.host,
        "InvoiceIssuerName": issuer.invoice_issuer,
        "ProviderName": issuer.provider,
        "PublisherName": issuer.publisher,
        "ServiceCategory": "Compute",
        "ServiceProviderName": issuer.provider,
        "ServiceSubcategory": "Containers",
        "ChargeFrequency": "Usage-Based",
        "PricingUnit": UNIT,
        "ConsumedUnit": UNIT,
    }


def _of_notes(notes: Notes) -> _Record:
    return {
        "x_BasisOfCharge": notes.basis,
        "x_CoverageRatio": notes.coverage_ratio,
        "x_PriceBookVersion": notes.price_book,
        "x_TimeZone": notes.time_zone,
        "x_UnallocatedPolicy": notes.policy,
        "x_WindowStart": notes.window_start,
        "x_WindowEnd": notes.window_end,
    }


def _of_money(charge: Charge) -> _Record:
    """Return amounts. FOCUS allows no cost to be null, so what is unpriced says so beside its 0."""
    cost = charge.cost or 0
    # Energy without a tariff is not billed: its unit costs nothing, which is known.
    price = 0 if charge.is_energy and charge.cost == 0 and charge.price is None else charge.price
    list_price = charge.list_price if charge.list_price is not None else price
    at_list = charge.cost is not None and list_price is not None and list_price != price
    return {
        "BilledCost": cost,
        "EffectiveCost": cost,
        "ContractedCost": cost,
        # Not quantity × price at equal prices: that rounds anew and differs from BilledCost.
        "ListCost": cost_of(charge.gpu_hours, list_price or 0) if at_list else cost,
        "ContractedUnitPrice": price,
        "ListUnitPrice": list_price,
        "BillingCurrency": charge.currency,
        "PricingQuantity": charge.gpu_hours,
        "ConsumedQuantity": charge.gpu_hours,
        "x_Unpriced": charge.cost is None,
    }


def _billed(charge: Charge, record: _Record, rate: Decimal) -> _Record:
    """Return the amounts in the currency of the bill; those of PricingCurrency stay."""
    amounts = {name: record[name] for name in _BILLED}
    return {
        **{
            name: converted(amount, rate) if isinstance(amount, int) else amount
            for name, amount in amounts.items()
        },
        "BillingCurrency": charge.billing_currency,
        "x_ExchangeRate": rate_text(rate),
    }


def _of_charge(charge: Charge) -> _Record:
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
        "Tags": _tags(cost_center=charge.cost_center, team=charge.team, tier=charge.tier),
        "x_CapacityType": charge.capacity_type,
        "x_Cause": charge.cause.value,
        "x_GpuModel": charge.gpu_model,
        "x_Tier": charge.tier,
    }


def _of_resource(charge: Charge) -> _Record:
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


def _since_1_2(charge: Charge, record: _Record) -> _Record:
    """Return what 1.2 has beyond 1.0, or otherwise.

    The portal issues no invoices, so InvoiceId stays empty, and a bill of the provider is of other
    charges. Reserved capacity is no commitment discount that had an id, as "Committed" asks.
    """
    sku = f"{charge.gpu_model}/{charge.capacity_type}"
    found: _Record = {}
    if charge.is_energy:
        sku = f"{sku}/energy"
        found = _of_energy(charge)
    priced = record | found
    return found | {
        "PricingCategory": (
            "Other" if charge.capacity_type == CapacityType.RESERVED else record["PricingCategory"]
        ),
        "PricingCurrency": charge.currency,
        "PricingCurrencyContractedUnitPrice": priced["ContractedUnitPrice"],
        "PricingCurrencyEffectiveCost": record["EffectiveCost"],
        "PricingCurrencyListUnitPrice": priced["ListUnitPrice"],
        "SkuId": sku,
        "SkuMeter": "Energy" if charge.is_energy else "GPU usage",
        "SkuPriceDetails": _sku_details(
            *(charge.gpu_model, charge.capacity_type, charge.tier), is_energy=charge.is_energy
        ),
        "SkuPriceId": f"{sku}/{charge.tier}",
        "SubAccountType": "Namespace" if charge.namespace else None,
        "x_CarbonEnergyKwh": charge.carbon_mwh,
        "x_CarbonGrams": charge.carbon_ug,
        "x_EnergyKwh": charge.energy_mwh,
        "x_PriceSource": charge.price_source or None,
    }


def _of_energy(charge: Charge) -> _Record:
    """Return the quantity of energy, which 1.0 has as no GPU-hours."""
    # A milliwatt-hour is 1e-6 kWh, and quantities are written with nine digits, as GPU-hours are.
    measured = None if charge.energy_mwh is None else charge.energy_mwh * (NANO // _MWH_PER_KWH)
    return {
        "ConsumedQuantity": measured,
        "ConsumedUnit": ENERGY_UNIT,
        "PricingQuantity": measured,
        "PricingUnit": ENERGY_UNIT,
    }


@lru_cache(_CACHED)
def _sku_details(gpu_model: str, capacity_type: str, tier: str, *, is_energy: bool) -> str:
    """Return the properties of a SKU; a number is that of one pricing unit."""
    details: dict[str, str | int] = {} if is_energy else {"GpuCount": 1}
    named = {"x_CapacityType": capacity_type, "x_GpuModel": gpu_model, "x_Tier": tier}
    return json.dumps(details | named)


def _of_split(charge: Charge) -> _Record:
    """Return the columns that say of which charge a line of shared GPUs is a part, and of whom.

    All other columns of FOCUS are those of the charge that is split: the pool's, which is in no
    namespace. A line of whole GPUs has none of them.
    """
    method = method_id(charge.sharing, is_energy=charge.is_energy)
    if method is None:
        return {}
    pool = f"{charge.tier}/{charge.gpu_model}"
    # Unallocated capacity is allocated to no resource: it stays the pool's own portion.
    held = charge.workload if charge.cause not in FREE else ""
    quantity, scale = charge.gpu_hours, NANO
    if charge.is_energy:
        quantity, scale = charge.energy_mwh or 0, _MWH_PER_KWH
    unit = ENERGY_UNIT if charge.is_energy else UNIT
    # A correction is a difference, and no share of what its day was charged.
    of = None if charge.correction else charge.origin
    return {
        "AllocatedMethodDetails": method_details(quantity, of, unit=unit, scale=scale),
        "AllocatedMethodId": method,
        "AllocatedResourceId": (
            "/".join(filter(None, (charge.cluster, charge.namespace, held))) if held else None
        ),
        "AllocatedResourceName": held or None,
        "AllocatedTags": _tags(
            cost_center=charge.cost_center, namespace=charge.namespace, team=charge.team
        ),
        "ChargeDescription": _pool_description(charge),
        "ResourceId": f"{charge.cluster}/{pool}",
        "ResourceName": pool,
        "ResourceType": "GPU capacity",
        "SubAccountId": None,
        "SubAccountName": None,
        "SubAccountType": None,
        "Tags": _tags(tier=charge.tier),
    }


def _pool_description(charge: Charge) -> str:
    what = "Energy" if charge.is_energy else "GPU-hours"
    said = f"{what} of a pool of shared {charge.gpu_model} ({charge.sharing})"
    return f"Correction of a closed month: {said}" if charge.correction else said


@lru_cache(_CACHED)
def _tags(**tags: str) -> str | None:
    """Return the tags that have a value as a JSON object; None where none has.

    Keys of ours have a prefix, as FOCUS asks of providers. They are named in order.
    """
    # An empty tag would be a value of its own in a FinOps tool; it is left out.
    kept = {f"gpuportal/{key}": value for key, value in tags.items() if value}
    return json.dumps(kept, ensure_ascii=False) if kept else None


def _description(charge: Charge) -> str:
    said = f"{charge.gpu_model} GPU-hours, {charge.cause.value.replace('_', ' ')}"
    if charge.is_energy and charge.cost == 0 and charge.energy_mwh:
        said = f"Energy of {charge.gpu_model}, measured; not billed: its price has no tariff"
    if charge.cost is None:
        said += "; unpriced: the price book has no price for them"
    return f"Correction of a closed month: {said}" if charge.correction else said
