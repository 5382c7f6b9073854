"""What a price of the catalog comes to per GPU-hour, as written or by amortisation."""

from decimal import Decimal

from apps.clusters.domain.quantities import gpus
from apps.costs.domain.prices import PriceKind, amortised
from apps.operations.domain.schema import Price


def per_gpu_hour(price: Price) -> Decimal:
    """Return the price of a GPU-hour before the discount; of owned hardware its amortisation.

    Raises ValueError where hardware cannot be written off so.
    """
    if price.owned is None:
        return Decimal(price.per_gpu_hour or "0")
    return amortised(
        Decimal(price.owned.price),
        gpus=price.owned.gpus,
        years=Decimal(str(price.owned.years)),
        residual=Decimal(price.owned.residual),
    )


def kind_of(price: Price) -> PriceKind:
    """Return what kind of price it is: as said, else owned where it is, else a list price."""
    if price.kind is not None:
        return price.kind
    return PriceKind.OWNED if price.owned is not None else PriceKind.LIST


def written_off(price: Price) -> str:
    """Return how the price of owned hardware came about, in words; empty for others."""
    owned = price.owned
    if owned is None:
        return ""
    residual = "" if Decimal(owned.residual) == 0 else f" less {owned.residual}"
    return (
        f"{owned.price} {price.currency}{residual} for {gpus(owned.gpus)} over "
        f"{owned.years:g} years of 8,760 hours"
    )
