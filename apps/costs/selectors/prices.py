"""Reads of prices: those of one moment, and the book of all times."""

from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import NamedTuple

from django.db.models import Q, QuerySet

from apps.accounts.permissions import Visibility
from apps.clusters.domain.tiers import model_key
from apps.costs.domain.prices import PriceBook, PriceEntry, PriceKind
from apps.costs.models import Price


@dataclass(frozen=True, slots=True)
class PriceRow:
    """What one GPU-hour of a model costs; `cluster` empty: wherever no other price is set.

    `per_gpu_hour` is after `discount`: it is what costs are made of.
    """

    cluster: str
    gpu_model: str
    capacity_type: str
    per_gpu_hour: Decimal
    currency: str
    tier: str = ""
    list_per_gpu_hour: Decimal | None = None
    discount: Decimal = Decimal(0)
    kind: str = PriceKind.LIST.value
    source: str = ""
    example: bool = False
    valid_from: datetime | None = None
    valid_to: datetime | None = None


class PriceList:
    """The prices of one moment."""

    def __init__(self, rows: list[PriceRow]) -> None:
        self.rows = rows
        self._rows = {
            (row.cluster, row.tier, model_key(row.gpu_model), row.capacity_type): row
            for row in rows
        }

    def of(
        self, cluster: str, gpu_model: str, capacity_type: str, *, tier: str = ""
    ) -> PriceRow | None:
        """Return the price of a model on a cluster: the most specific one, as `PriceBook` does."""
        key = model_key(gpu_model)
        places = ((cluster, tier), (cluster, ""), ("", tier), ("", ""))
        found = (self._rows.get((*place, key, capacity_type)) for place in places)
        return next((row for row in found if row is not None), None)


class EnergyPrice(NamedTuple):
    """What a measured kWh costs and by how much the site adds to it."""

    per_kwh: Decimal
    pue: Decimal


@dataclass(frozen=True, slots=True)
class Book:
    """All prices of all times, with the prices of energy of those entries that have one."""

    prices: PriceBook
    energy: dict[PriceEntry, EnergyPrice]


def price_list(at: datetime, *, visibility: Visibility) -> PriceList:
    """Return the prices that hold at `at`. One query.

    What a GPU-hour costs is for everybody who asks for one: `visibility` narrows nothing. What a
    team has to pay is another matter.
    """
    return PriceList([_row(entry) for entry, _ in _entries(_holding(at))])


def price_book(at: datetime | None = None) -> PriceBook:
    """Return the price book with its `version`; with `at` only the entries that hold then.

    One query.
    """
    rows = Price.objects.all() if at is None else _holding(at)
    return PriceBook(entry for entry, _ in _entries(rows))


def whole_book() -> Book:
    """Return all prices of all times. One query."""
    found = _entries(Price.objects.all())
    return Book(
        PriceBook(entry for entry, _ in found),
        {entry: energy for entry, energy in found if energy is not None},
    )


def _holding(at: datetime) -> QuerySet[Price, Price]:
    return Price.objects.filter(Q(valid_to__isnull=True) | Q(valid_to__gt=at), valid_from__lte=at)


def _entries(rows: QuerySet[Price, Price]) -> list[tuple[PriceEntry, EnergyPrice | None]]:
    rows = rows.select_related("cluster", "tier")
    return [
        (_entry(row), None if row.per_kwh is None else EnergyPrice(row.per_kwh, row.pue))
        for row in rows.order_by("gpu_model", "capacity_type", "valid_from", "pk")
    ]


def _entry(row: Price) -> PriceEntry:
    return PriceEntry(
        gpu_model=row.gpu_model,
        capacity_type=row.capacity_type,
        per_gpu_hour=row.per_gpu_hour,
        currency=row.currency,
        valid_from=row.valid_from,
        valid_to=row.valid_to,
        cluster=row.cluster.name if row.cluster else "",
        tier=row.tier.name if row.tier else "",
        discount=row.discount,
        kind=PriceKind(row.kind),
        source=row.source,
        example=row.example,
    )


def _row(entry: PriceEntry) -> PriceRow:
    return PriceRow(
        cluster=entry.cluster,
        gpu_model=entry.gpu_model,
        capacity_type=entry.capacity_type,
        per_gpu_hour=entry.contracted,
        currency=entry.currency,
        tier=entry.tier,
        list_per_gpu_hour=entry.per_gpu_hour,
        discount=entry.discount,
        kind=entry.kind.value,
        source=entry.source,
        example=entry.example,
        valid_from=entry.valid_from,
        valid_to=entry.valid_to,
    )
