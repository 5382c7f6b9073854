"""What decides the money of an hour beside its facts: prices, and who is entitled to what."""

import hashlib
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import NamedTuple

from apps.accounts.models import Team
from apps.clusters.models import Cluster, GpuModel, Tier
from apps.costs.domain.money import units
from apps.costs.domain.prices import PriceEntry
from apps.costs.selectors.prices import price_book
from apps.quotas.models import Entitlement

_MICRO = 1_000_000


class PoolKey(NamedTuple):
    """What tells pools apart, as ids."""

    cluster: int
    tier: int
    gpu_model: int
    capacity_type: str


class Rate(NamedTuple):
    """The price of a pool's GPU-hour, after and before the discount, in units of 1e-8.

    `per_kwh` prices the measured energy, times `pue`; None: energy is not billed.
    """

    price: int
    list_price: int
    currency: str
    per_kwh: Decimal | None
    pue: Decimal


@dataclass(frozen=True, slots=True)
class _Entitled:
    start: datetime
    end: datetime | None
    tier: int
    team: str
    micro_gpus: int

    def holds(self, at: datetime) -> bool:
        return self.start <= at and (self.end is None or at < self.end)


class RateNames:
    """Names of a table's rows by id, and back; what came to be since is looked up when met."""

    def __init__(self, table: type[Cluster | Tier | GpuModel | Team]) -> None:
        self._table = table
        self._names: dict[int, str] = {}
        self._ids: dict[str, int] = {}
        self._read()

    def name(self, pk: int) -> str:
        """Return the name of an id; a text that is nobody's name where the row is gone."""
        if pk not in self._names:
            self._read()
        return self._names.get(pk, f"#{pk}")

    def id(self, name: str) -> int | None:
        """Return the id of a name; None where the row is gone, or goes by another name now."""
        if name not in self._ids:
            self._read()
        if name.startswith("#") and name not in self._ids:
            return int(name[1:])
        return self._ids.get(name)

    def _read(self) -> None:
        rows = self._table._default_manager.order_by("pk").values_list("pk", "name")
        self._names = dict(rows)
        self._ids = {name: pk for pk, name in self._names.items()}


class PriceInterval(NamedTuple):
    """A stretch of time of one digest; None where it has no start or no end."""

    start: datetime | None
    end: datetime | None
    digest: str


class Rates:
    """Prices and entitlements of all times, read once. Five queries."""

    def __init__(self) -> None:
        self._book = price_book()
        self.version = self._book.version
        self._clusters, self._tiers = RateNames(Cluster), RateNames(Tier)
        self._models = RateNames(GpuModel)
        self._entitled = _entitlements()
        self._turns = sorted({*_turns(self._book.entries), *_ends(self._entitled)})
        self._digests: dict[int, str] = {}

    def rate(self, kind: PoolKey, at: datetime) -> Rate | None:
        """Return the rate of a pool in the hour that begins at `at`; None: unpriced."""
        entry = self._book.price(
            cluster=self._clusters.name(kind.cluster),
            tier=self._tiers.name(kind.tier),
            gpu_model=self._models.name(kind.gpu_model),
            capacity_type=kind.capacity_type,
            at=at,
        )
        if entry is None:
            return None
        price, list_price = entry.contracted_units, units(entry.per_gpu_hour)
        return Rate(price, list_price, entry.currency, entry.per_kwh, entry.pue)

    def entitlements(self, tier: int, at: datetime) -> dict[str, int]:
        """Return micro-GPUs by team name that a tier's teams are entitled to at `at`."""
        return {e.team: e.micro_gpus for e in self._entitled if e.tier == tier and e.holds(at)}

    def digest(self, at: datetime) -> str:
        """Return a digest of all prices and entitlements that hold at `at`."""
        place = bisect_right(self._turns, at)
        if place not in self._digests:
            holding = [
                *(self._text(entry) for entry in self._book.entries if entry.holds(at)),
                *(repr((e.tier, e.team, e.micro_gpus)) for e in self._entitled if e.holds(at)),
            ]
            text = "\n".join(sorted(holding))
            self._digests[place] = hashlib.sha256(text.encode()).hexdigest()[:16]
        return self._digests[place]

    def stretches(self, first: datetime, last: datetime) -> Iterator[PriceInterval]:
        """Yield the stretches that hold a time from `first` up to, and with, `last`."""
        for place in range(bisect_right(self._turns, first), bisect_right(self._turns, last) + 1):
            start = self._turns[place - 1] if place else None
            end = self._turns[place] if place < len(self._turns) else None
            yield PriceInterval(start, end, self.digest(start or first))

    def _text(self, entry: PriceEntry) -> str:
        """Return what of an entry decides an amount: a source that is put right changes none."""
        tariff = () if entry.per_kwh is None else (units(entry.per_kwh), units(entry.pue))
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
