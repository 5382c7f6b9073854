"""Prices: written from the catalog, in force by hour, and the hours due for pricing."""

import hashlib
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from functools import reduce
from operator import or_
from typing import NamedTuple

from django.db.models import Exists, Max, Min, OuterRef, Q
from msgspec import Struct, field

from apps.accounts.domain.rows import DatedRecord, row_from
from apps.accounts.models import Team
from apps.clusters.domain.window import Window, day_of
from apps.clusters.models import Cluster, GpuModel, Tier
from apps.clusters.selectors import report
from apps.clusters.services import cluster_ids, tier_ids, write_valid
from apps.costs.domain.carbon import SiteFactor, hour_key
from apps.costs.domain.costing import units
from apps.costs.domain.prices import PriceEntry, PriceKind
from apps.costs.models import EnergyFactor, Price, PricedHour
from apps.costs.selectors.prices import energy_factors, price_book
from apps.quotas.models import Entitlement
from apps.usage.models import CollectionWindow, Day

_COLUMNS = (
    *("gpu_model", "capacity_type", "per_gpu_hour", "currency", "discount", "kind", "source"),
    *("example", "confirmed_by", "confirmed_on", "per_kwh", "pue"),
)
_MICRO = 1_000_000
_HoursByCluster = dict[int, set[datetime]]


class PriceRecord(DatedRecord, frozen=True):
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
    confirmed_by: str = ""
    confirmed_on: date | None = None
    per_kwh: Decimal | None = None
    pue: Decimal = Decimal(1)


def loaded_prices() -> list[PriceRecord]:
    """Return all prices there ever were. One query."""
    rows = Price.objects.select_related("cluster", "tier")
    return [
        row_from(
            PriceRecord,
            row,
            cluster=row.cluster.name if row.cluster else "",
            tier=row.tier.name if row.tier else "",
        )
        for row in rows.order_by("gpu_model", "capacity_type", "valid_from", "pk")
    ]


def write_prices(records: Sequence[PriceRecord], *, withdrawn: Collection[int]) -> None:
    """Delete the withdrawn, update the records with a pk and insert the others."""
    names = {"cluster": cluster_ids, "tier": tier_ids}
    write_valid(Price, records, columns=_COLUMNS, names=names, withdrawn=withdrawn)


class EnergyFactorRecord(DatedRecord, frozen=True):
    """What a cluster's site adds to measured energy, and the carbon of a kWh, in a span."""

    cluster: str
    pue: Decimal = Decimal(1)
    carbon_g_per_kwh: Decimal | None = None
    carbon_file: str = ""
    carbon_covers: str = ""
    carbon_hours: Mapping[str, str] = field(default_factory=dict)


def loaded_energy_factors() -> list[EnergyFactorRecord]:
    """Return all factors there ever were. One query."""
    rows = EnergyFactor.objects.select_related("cluster").order_by("cluster__name", "valid_from")
    return [row_from(EnergyFactorRecord, row, cluster=row.cluster.name) for row in rows]


def write_energy_factors(
    records: Sequence[EnergyFactorRecord], *, withdrawn: Collection[int]
) -> None:
    """Delete the withdrawn, update the records with a pk and insert the others."""
    columns = ("pue", "carbon_g_per_kwh", "carbon_file", "carbon_covers", "carbon_hours")
    names = {"cluster": cluster_ids}
    write_valid(EnergyFactor, records, columns=columns, names=names, withdrawn=withdrawn)


class PoolKey(NamedTuple):
    """What tells pools apart, as ids."""

    cluster: int
    tier: int
    gpu_model: int
    capacity_type: str


class PoolPrice(NamedTuple):
    """The price of a pool's GPU-hour, after and before the discount, in units of 1e-8.

    `per_kwh` prices the measured energy, times `pue`; None: energy is not billed.
    """

    price: int
    list_price: int
    currency: str
    per_kwh: Decimal | None
    pue: Decimal


class _Entitled(Struct, frozen=True):
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
        """Return the name of an id; a placeholder where the row is gone."""
        if pk not in self._names:
            self._read()
        return self._names.get(pk, f"#{pk}")

    def id(self, name: str) -> int | None:
        """Return the id of a name; None where the row is gone, or goes by another name now."""
        if name not in self._ids:
            self._read()
        # The placeholder of `name`, read back: facts outlive the rows that they name.
        if name.startswith("#") and name not in self._ids:
            return int(name[1:])
        return self._ids.get(name)

    def _read(self) -> None:
        rows = self._table._default_manager.order_by("pk").values_list("pk", "name")
        # Read whole again: the tables are small, and a single name would be a query each.
        self._names = dict(rows)
        self._ids = {name: pk for pk, name in self._names.items()}


class PriceInterval(NamedTuple):
    """A stretch of time of one digest; None where it has no start or no end."""

    start: datetime | None
    end: datetime | None
    digest: str


class PoolPrices:
    """Prices, entitlements and energy factors of all times, read once. Six queries."""

    def __init__(self) -> None:
        self._book = price_book()
        self.version = self._book.version
        self._clusters, self._tiers = RateNames(Cluster), RateNames(Tier)
        self._models = RateNames(GpuModel)
        self._entitled = _entitlements()
        self._factors = energy_factors()
        self._turns = sorted(
            {
                *_price_changes(self._book.entries),
                *_entitlement_changes(self._entitled),
                *_factor_changes(self._factors),
            }
        )
        self._digests: dict[int, str] = {}

    def rate(self, kind: PoolKey, at: datetime) -> PoolPrice | None:
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
        return PoolPrice(price, list_price, entry.currency, entry.per_kwh, entry.pue)

    def grams(self, cluster: int, hour: datetime) -> Decimal | None:
        """Return the grams of CO2e a measured kWh, PUE included; None: no factor."""
        for factor in self._factors:
            if factor.cluster == cluster and factor.holds(hour):
                return factor.grams(hour)
        return None

    def entitlements(self, tier: int, at: datetime) -> dict[str, int]:
        """Return micro-GPUs by team name that a tier's teams are entitled to at `at`."""
        return {e.team: e.micro_gpus for e in self._entitled if e.tier == tier and e.holds(at)}

    def digest(self, at: datetime) -> str:
        """Return a digest of all prices, entitlements and factors that hold at `at`."""
        # Between two turns nothing changes: a digest for each stretch, not for each hour.
        place = bisect_right(self._turns, at)
        if place not in self._digests:
            holding = [
                *(self._text(entry) for entry in self._book.entries if entry.holds(at)),
                *(repr((e.tier, e.team, e.micro_gpus)) for e in self._entitled if e.holds(at)),
                *(_factor_text(factor, at) for factor in self._factors if factor.holds(at)),
            ]
            text = "\n".join(sorted(filter(None, holding)))
            self._digests[place] = hashlib.sha256(text.encode()).hexdigest()[:16]
        return self._digests[place]

    def stretches(self, first: datetime, last: datetime) -> Iterator[PriceInterval]:
        """Yield the stretches that hold a time from `first` up to, and with, `last`."""
        # Stretch n lies before turn n: the first has no start, the last no end.
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
    # Whole micro-GPUs: shares are divided as integers, so that their sum is exact.
    rows = Entitlement.objects.filter(gpus__gt=0).order_by("tier", "team__name", "pk")
    return [
        _Entitled(start, end, tier, team, round(gpus * _MICRO))
        for start, end, tier, team, gpus in rows.values_list(
            "valid_from", "valid_to", "tier_id", "team__name", "gpus"
        )
    ]


def _price_changes(entries: Iterable[PriceEntry]) -> set[datetime]:
    """Return when prices begin and end."""
    both = ((entry.valid_from, entry.valid_to) for entry in entries)
    return {at for span in both for at in span if at is not None}


def _factor_changes(factors: Iterable[SiteFactor]) -> Iterator[datetime]:
    """Yield when factors begin and end, and the days of those that have them by the hour."""
    for factor in factors:
        yield factor.valid_from
        if factor.valid_to is not None:
            yield factor.valid_to
        # By day: an hour that a file gains is to price its day again, and not its year.
        days = {hour[:10] for hour in factor.by_hour}
        for day in days:
            starts = datetime.fromisoformat(day).replace(tzinfo=UTC)
            yield from (starts, starts + timedelta(days=1))


def _factor_text(factor: SiteFactor, at: datetime) -> str:
    """Return what of a factor decides an amount of the day of `at`."""
    if factor.carbon_g_per_kwh is not None:
        return repr((factor.cluster, str((factor.carbon_g_per_kwh * factor.pue).normalize())))
    day = hour_key(at)[:10]
    # The hours of a file are in their order only by their names.
    of_day = [(f"{day}T{n:02}", factor.by_hour.get(f"{day}T{n:02}")) for n in range(24)]
    known = [one for one in of_day if one[1] is not None]
    return repr((factor.cluster, str(factor.pue.normalize()), known)) if known else ""


def _entitlement_changes(entitled: Iterable[_Entitled]) -> set[datetime]:
    return {at for e in entitled for at in (e.start, e.end) if at is not None}


def due_days(rates: PoolPrices) -> list[tuple[int, list[datetime]]]:
    """Return (day's pk, its hours that are due), newest days first.

    However old they are: the facts by team and by tier, and those by workload and day, are kept.
    Three queries, one more where prices changed, and one for each cluster with due hours.
    """
    found: list[tuple[Day, list[datetime]]] = []
    for cluster, hours in _hours_due(rates).items():
        found += days_of(cluster, hours)
    found.sort(key=lambda item: (-item[0].start.timestamp(), item[0].cluster_id, item[0].pk))
    return [(day.pk, hours) for day, hours in found]


def due_in(window: Window) -> int:
    """Return how many hours of a window are due."""
    return sum(map(len, _hours_due(PoolPrices(), window).values()))


def days_of(cluster: int, hours: Iterable[datetime]) -> Iterator[tuple[Day, list[datetime]]]:
    """Yield the days of a cluster that these hours lie in, with them. One query.

    An hour lies in the day whose span holds it, whatever the report's zone was when that began;
    only where none does, in that of its date.
    """
    zone = report().zone
    ordered = sorted(hours)
    if not ordered:
        return
    near = Q(start__lte=ordered[-1], end__gt=ordered[0])
    dates = Q(day__gte=day_of(ordered[0], zone), day__lte=day_of(ordered[-1], zone))
    days = list(Day.objects.filter(near | dates, cluster_id=cluster).order_by("start", "pk"))
    # A report zone that was changed leaves days of two zones: dates alone would place hours twice.
    starts = [day.start for day in days]
    by_date = {day.day: place for place, day in enumerate(days)}
    grouped: dict[int, list[datetime]] = defaultdict(list)
    for hour in ordered:
        place: int | None = bisect_right(starts, hour) - 1
        if place is None or place < 0 or days[place].end <= hour:
            place = by_date.get(day_of(hour, zone))
        if place is not None:
            grouped[place].append(hour)
    for place, own in grouped.items():
        yield days[place], own


def _hours_due(rates: PoolPrices, window: Window | None = None) -> _HoursByCluster:
    within = Q() if window is None else Q(hour__gte=window.start, hour__lt=window.end)
    found: _HoursByCluster = defaultdict(set)
    for cluster, hour in (*_of_new_facts(within), *_of_new_rates(rates, within)):
        found[cluster].add(hour)
    return dict(sorted(found.items()))


def _of_new_facts(within: Q) -> Iterable[tuple[int, datetime]]:
    """Return hours whose facts were not priced as they are. One query."""
    as_they_are = PricedHour.objects.filter(
        cluster=OuterRef("cluster"), hour=OuterRef("hour"), facts_at=OuterRef("collected_at")
    )
    # Equal, not later: clocks of two machines differ, and the newer facts may have the older time.
    collected = CollectionWindow.objects.filter(within, collected_at__isnull=False)
    return collected.exclude(Exists(as_they_are)).order_by().values_list("cluster_id", "hour")


def _of_new_rates(rates: PoolPrices, within: Q) -> Iterable[tuple[int, datetime]]:
    """Return hours that were priced by other rates than now hold. One query, or two.

    Digests are few and hours are many, so only those of a digest that does not hold everywhere it
    was used are looked at one by one.
    """
    priced = PricedHour.objects.filter(within).order_by()
    used = priced.values_list("rates").annotate(first=Min("hour"), last=Max("hour"))
    other = [
        Q(rates=digest, **_hour_range(stretch.start, stretch.end))
        for digest, first, last in used
        for stretch in rates.stretches(first, last)
        if stretch.digest != digest
    ]
    if not other:
        return ()
    return priced.filter(reduce(or_, other)).values_list("cluster_id", "hour")


def _hour_range(start: datetime | None, end: datetime | None) -> dict[str, datetime]:
    return {
        **({"hour__gte": start} if start is not None else {}),
        **({"hour__lt": end} if end is not None else {}),
    }
