"""Reads of prices."""

from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal

from django.db.models import Q

from apps.accounts.permissions import Visibility
from apps.clusters.domain.tiers import model_key
from apps.costs.models import Price


@dataclass(frozen=True, slots=True)
class PriceRow:
    """What one GPU-hour of a model costs; `cluster` empty: wherever no other price is set."""

    cluster: str
    gpu_model: str
    capacity_type: str
    per_gpu_hour: Decimal
    currency: str


class PriceList:
    """The prices of one moment."""

    def __init__(self, rows: list[PriceRow]) -> None:
        self._rows = {
            (row.cluster, model_key(row.gpu_model), row.capacity_type): row for row in rows
        }

    def of(self, cluster: str, gpu_model: str, capacity_type: str) -> PriceRow | None:
        """Return the price of a model on a cluster: its own, else the general one."""
        key = model_key(gpu_model)
        return self._rows.get((cluster, key, capacity_type)) or self._rows.get(
            ("", key, capacity_type)
        )


def price_list(at: datetime, *, visibility: Visibility) -> PriceList:
    """Return the prices that hold at `at`. One query.

    What a GPU-hour costs is for everybody who asks for one: `visibility` narrows nothing. What a
    team has to pay is another matter.
    """
    rows = Price.objects.filter(
        Q(valid_to__isnull=True) | Q(valid_to__gt=at), valid_from__lte=at
    ).order_by("gpu_model", "capacity_type", "pk")
    names = ("cluster__name", "gpu_model", "capacity_type", "per_gpu_hour", "currency")
    return PriceList(
        [PriceRow(cluster or "", *rest) for cluster, *rest in rows.values_list(*names)]
    )
