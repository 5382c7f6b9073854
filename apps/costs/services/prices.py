"""Writes of prices, as the catalog lists them."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal

from apps.clusters.services import cluster_ids, span, tier_ids, write_valid
from apps.costs.domain.prices import PriceKind
from apps.costs.models import Price

_COLUMNS = (
    *("gpu_model", "per_gpu_hour", "currency", "discount", "kind", "source", "example"),
    *("per_kwh", "pue"),
)


@dataclass(frozen=True, slots=True)
class PriceRecord:
    """What one GPU-hour of a model costs in a span; no `cluster` or `tier`: of any.

    `per_gpu_hour` is before `discount` (0..1); of owned hardware it is what amortisation gives.
    `per_kwh` None: energy is not billed.
    """

    cluster: str
    gpu_model: str
    capacity_type: str
    per_gpu_hour: Decimal
    currency: str
    tier: str = ""
    discount: Decimal = Decimal(0)
    kind: str = PriceKind.LIST.value
    source: str = ""
    example: bool = False
    per_kwh: Decimal | None = None
    pue: Decimal = Decimal(1)
    valid_from: datetime | None = None
    valid_to: datetime | None = None
    pk: int | None = None


def loaded_prices() -> list[PriceRecord]:
    """Return all prices there ever were. One query."""
    rows = Price.objects.select_related("cluster", "tier")
    return [
        PriceRecord(
            cluster=row.cluster.name if row.cluster else "",
            tier=row.tier.name if row.tier else "",
            capacity_type=row.capacity_type,
            valid_from=row.valid_from,
            valid_to=row.valid_to,
            pk=row.pk,
            **{name: getattr(row, name) for name in _COLUMNS},
        )
        for row in rows.order_by("gpu_model", "capacity_type", "valid_from", "pk")
    ]


def write_prices(records: Sequence[PriceRecord], *, withdrawn: Collection[int]) -> None:
    """Delete the withdrawn, update the records with a pk and insert the others."""
    if not records and not withdrawn:
        return
    clusters, tiers = cluster_ids(), tier_ids()
    rows = [
        Price(
            pk=r.pk,
            cluster_id=clusters[r.cluster] if r.cluster else None,
            tier_id=tiers[r.tier] if r.tier else None,
            capacity_type=r.capacity_type,
            **{name: getattr(r, name) for name in _COLUMNS},
            **span(r),
        )
        for r in records
    ]
    write_valid(Price, rows, columns=_COLUMNS, withdrawn=withdrawn)
