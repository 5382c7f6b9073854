"""Writes of prices, as the catalog lists them."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal

from apps.clusters.services.catalog import cluster_ids, span, write_valid
from apps.costs.models import Price


@dataclass(frozen=True, slots=True)
class PriceRecord:
    """What one GPU-hour of a model costs in a span; `cluster` empty: on every cluster."""

    cluster: str
    gpu_model: str
    capacity_type: str
    per_gpu_hour: Decimal
    currency: str
    valid_from: datetime | None = None
    valid_to: datetime | None = None
    pk: int | None = None


def loaded_prices() -> list[PriceRecord]:
    """Return all prices there ever were. One query."""
    rows = Price.objects.select_related("cluster")
    return [
        PriceRecord(
            cluster=r.cluster.name if r.cluster else "",
            gpu_model=r.gpu_model,
            capacity_type=r.capacity_type,
            per_gpu_hour=r.per_gpu_hour,
            currency=r.currency,
            valid_from=r.valid_from,
            valid_to=r.valid_to,
            pk=r.pk,
        )
        for r in rows.order_by("gpu_model", "capacity_type", "valid_from", "pk")
    ]


def write_prices(records: Sequence[PriceRecord], *, withdrawn: Collection[int]) -> None:
    """Delete the withdrawn, update the records with a pk and insert the others."""
    if not records and not withdrawn:
        return
    clusters = cluster_ids()
    rows = [
        Price(
            pk=r.pk,
            cluster_id=clusters[r.cluster] if r.cluster else None,
            gpu_model=r.gpu_model,
            capacity_type=r.capacity_type,
            per_gpu_hour=r.per_gpu_hour,
            currency=r.currency,
            **span(r),
        )
        for r in records
    ]
    columns = ["gpu_model", "per_gpu_hour", "currency"]
    write_valid(Price, rows, columns=columns, withdrawn=withdrawn)
