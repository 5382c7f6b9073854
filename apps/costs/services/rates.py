"""What decides the money of an hour beside its facts: prices, and who is entitled to what."""

import hashlib
from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from apps.clusters.models import Cluster, GpuModel, Tier
from apps.costs.domain.money import units
from apps.costs.domain.prices import PriceEntry
from apps.costs.selectors.prices import Book, EnergyPrice, whole_book
from apps.quotas.models import Entitlement

_MICRO = 1_000_000


class Kind(NamedTuple):
    """What tells pools apart, as ids."""

    cluster: int
    tier: int
    gpu_model: int
    capacity_type: str


class Rate(NamedTuple):
    """The price of a pool's GPU-hour, after and before the discount, in units of 1e-8."""

    price: int
    list_price: int
    currency: str
    energy: EnergyPrice | None


@dataclass(frozen=True, slots=True)
class _Entitled:
    start: datetime
    end: datetime | None
    tier: int
    team: str
    micro_gpus: int

    def holds(self, at: datetime) -> bool:
        return self.start <= at and (self.end is None or at < self.end)


class Rates:
    """Prices and entitlements of all times, read once. Five queries."""

    def __init__(self) -> None:
        self._book: Book = whole_book()
        self.version = self._book.prices.version
        self._clusters = dict(Cluster.objects.order_by("pk").values_list("pk", "name"))
        self._tiers = dict(Tier.objects.order_by("pk").values_list("pk", "name"))
        self._models = dict(GpuModel.objects.order_by("pk").values_list("pk", "name"))
        self._entitled = _entitlements()
        self._turns = sorted({*_turns(self._book.prices.entries), *_ends(self._entitled)})
        self._digests: dict[int, str] = {}

    def rate(self, kind: Kind, at: datetime) -> Rate | None:
        """Return the rate of a pool in the hour that begins at `at`; None: unpriced."""
        entry = self._book.prices.price(
            cluster=self._clusters[kind.cluster],
            tier=self._tiers[kind.tier],
            gpu_model=self._models[kind.gpu_model],
            capacity_type=kind.capacity_type,
            at=at,
        )
        if entry is None:
            return None
        energy = self._book.energy.get(entry)
        return Rate(entry.contracted_units, units(entry.per_gpu_hour), entry.currency, energy)

    def entitlements(self, tier: int, at: datetime) -> dict[str, int]:
        """Return micro-GPUs by team name that a tier's teams are entitled to at `at`."""
        return {e.team: e.micro_gpus for e in self._entitled if e.tier == tier and e.holds(at)}

    def digest(self, at: datetime) -> str:
        """Return a digest of all prices and entitlements that hold at `at`."""
        stretch = bisect_right(self._turns, at)
        if stretch not in self._digests:
            holding = [
                *(self._text(entry) for entry in self._book.prices.entries if entry.holds(at)),
                *(repr((e.tier, e.team, e.micro_gpus)) for e in self._entitled if e.holds(at)),
            ]
            text = "\n".join(sorted(holding))
            self._digests[stretch] = hashlib.sha256(text.encode()).hexdigest()[:16]
        return self._digests[stretch]

    def _text(self, entry: PriceEntry) -> str:
        """Return what of an entry decides an amount: a source that is put right changes none."""
        energy = self._book.energy.get(entry)
        tariff = () if energy is None else (units(energy.per_kwh), units(energy.pue))
        place = (entry.cluster, entry.tier, entry.gpu_model, entry.capacity_type)
        # Of two that hold, the later wins: so when it began is part of what it says.
        prices = (entry.contracted_units, units(entry.per_gpu_hour), entry.currency)
        return repr((place, entry.valid_from.timestamp(), prices, tariff))


def _entitlements() -> list[_Entitled]:
    rows = Entitlement.objects.filter(gpus__gt=0).order_by("tier", "team__name", "pk")
    return [
        _Entitled(start, end, tier, team, round(gpus * _MICRO))
        for start, end, tier, team, gpus in rows.values_list(
            "valid_from", "valid_to", "tier_id", "team__name", "gpus"
        )
    ]


def _turns(entries: Iterable[PriceEntry]) -> set[datetime]:
    """Return when prices begin and end."""
    both = ((entry.valid_from, entry.valid_to) for entry in entries)
    return {at for span in both for at in span if at is not None}


def _ends(entitled: Iterable[_Entitled]) -> set[datetime]:
    return {at for e in entitled for at in (e.start, e.end) if at is not None}
