"""The days of the evidence, and the offers: tiers, profiles, models and spot capacity."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import NamedTuple, TypedDict
from zoneinfo import ZoneInfo

from django.db.models import Exists, Max, OuterRef, Q

from apps.accounts.permissions import EVERYTHING
from apps.clusters.domain.tiers import (
    CapacityType,
    GpuSharing,
    TierRule,
    mig_profile,
    tier_of,
    unit_weight,
)
from apps.clusters.domain.window import Window, day_of, day_start
from apps.clusters.models import Cluster, NodeInterval
from apps.clusters.selectors import TierRow, report, tier_rows
from apps.costs.domain.prices import OWNED, PriceEntry, PriceKind
from apps.costs.domain.recommendations.capacity import POOL
from apps.costs.domain.recommendations.evidence import CardPart, Model, Offers, SharedTier, SpotPool
from apps.costs.domain.recommendations.recommendation import Subject
from apps.costs.domain.recommendations.rightsizing import MIG_MEMORY_KEPT, card_memory_mib
from apps.costs.selectors.prices import price_book
from apps.usage.models import HAS_FACTS, CollectionWindow, Day, TierDay

EVIDENCE_DAYS = 30
FRESH = timedelta(hours=6)
"""What is older says nothing of now."""


@dataclass(frozen=True, slots=True)
class EvidenceSpan:
    """Some days of a cluster up to and with `last`, and the hours collected on each of them.

    `newest_hour` is the newest collected one; None where it is too old to say anything of now.
    `now` is when it is gathered, after the last day.
    """

    cluster: Cluster
    first: date
    last: date
    zone: ZoneInfo
    hours: Mapping[date, int]
    newest_hour: datetime | None
    now: datetime

    @property
    def window(self) -> Window:
        end = day_start(self.last + timedelta(days=1), self.zone)
        return Window(day_start(self.first, self.zone), end)

    @property
    def until_now(self) -> Window:
        """The window and what came after it: a change must not harm what is there now."""
        return Window(self.window.start, max(self.window.end, self.now))

    @property
    def in_hours(self) -> Q:
        """The condition on rows of the cluster by hour."""
        window = self.window
        return Q(cluster=self.cluster, hour__gte=window.start, hour__lt=window.end)

    @property
    def in_days(self) -> Q:
        """The condition on rows of the cluster by day."""
        return Q(cluster=self.cluster, day__gte=self.first, day__lte=self.last)

    def days(self, since: date) -> float:
        """Return how many days were collected from the day `since` on."""
        return sum(count for day, count in self.hours.items() if day >= since) / 24

    def coverage(self, since: date) -> float:
        """Return which part of all hours from the day `since` on was collected.

        Days before the first collected one are not counted: how many there are says `days`.
        """
        began = max(since, min(self.hours, default=self.first))
        hours = (self.window.end - day_start(began, self.zone)) / timedelta(hours=1)
        return min(1.0, self.days(since) * 24 / hours) if hours > 0 else 0.0


def newest_day(cluster: Cluster) -> date | None:
    """Return the newest day whose workload sums are there. One query."""
    newest: date | None = Day.objects.filter(cluster=cluster, rolled=True).aggregate(
        newest=Max("day")
    )["newest"]
    return newest


def collected_until(cluster: Cluster, last: date, days: int = EVIDENCE_DAYS) -> datetime | None:
    """Return when the newest of the hours was collected that the sums of these days hold.

    One query.
    """
    rolled = Day.objects.filter(
        cluster=OuterRef("cluster"), start__lte=OuterRef("hour"), end__gt=OuterRef("hour")
    ).filter(rolled=True, day__gt=last - timedelta(days=days), day__lte=last)
    hours = CollectionWindow.objects.filter(HAS_FACTS, Exists(rolled), cluster=cluster)
    newest: datetime | None = hours.aggregate(newest=Max("collected_at"))["newest"]
    return newest


def span_of(
    cluster: Cluster, last: date, *, now: datetime, days: int = EVIDENCE_DAYS
) -> EvidenceSpan:
    """Return the `days` days up to `last`. Two queries."""
    zone = report().zone
    first = last - timedelta(days=days - 1)
    since = day_start(first, zone)
    collected = list(
        CollectionWindow.objects.filter(HAS_FACTS, cluster=cluster, hour__gte=since)
        .order_by("hour")
        .values_list("hour", flat=True)
    )
    by_day = Counter(day_of(hour, zone) for hour in collected)
    newest = collected[-1] if collected else None
    return EvidenceSpan(
        cluster=cluster,
        first=first,
        last=last,
        zone=zone,
        hours={day: count for day, count in sorted(by_day.items()) if day <= last},
        newest_hour=newest if newest is not None and newest >= now - FRESH else None,
        now=now,
    )


class Pool(NamedTuple):
    """GPUs of one model that a cluster had recently."""

    tier: str
    gpu_model: str
    capacity_type: str


class PricesInForce:
    """The prices of one moment, read once. One query."""

    def __init__(self, at: datetime) -> None:
        self._book = price_book(at)
        self._at = at

    def of(self, cluster: str, pool: Pool) -> tuple[Decimal | None, str]:
        """Return (price per GPU-hour after discounts, currency); None and empty: unpriced."""
        entry = self._entry(cluster, pool)
        return (None, "") if entry is None else (entry.contracted, entry.currency)

    def is_owned(self, cluster: str, pool: Pool) -> bool:
        """Say whether a pool is priced as owned; what has no price is not known to be."""
        entry = self._entry(cluster, pool)
        return entry is not None and (entry.kind is PriceKind.OWNED or entry.capacity_type == OWNED)

    def _entry(self, cluster: str, pool: Pool) -> PriceEntry | None:
        return self._book.price(cluster=cluster, **pool._asdict(), at=self._at)


class PoolBasis(TypedDict):
    """What all evidence of a pool has."""

    subject: Subject
    gpu_model: str
    capacity_type: str
    days: float
    coverage: float
    price_per_gpu_hour: Decimal | None
    currency: str


def pool_basis(span: EvidenceSpan, pool: Pool, since: datetime, prices: PricesInForce) -> PoolBasis:
    """Return what is known of a pool from the day of `since` on."""
    name = f"{POOL}/{pool.capacity_type}/{pool.gpu_model}"
    price, currency = prices.of(span.cluster.name, pool)
    first = day_of(since, span.zone)
    return {
        "subject": Subject(span.cluster.name, workload=name, tier=pool.tier),
        "gpu_model": pool.gpu_model,
        "capacity_type": pool.capacity_type,
        "days": span.days(first),
        "coverage": span.coverage(first),
        "price_per_gpu_hour": price,
        "currency": currency,
    }


_SHARED = (GpuSharing.TIME_SLICED.value, GpuSharing.MPS.value)
_RECENT = timedelta(days=7)
_MIG_RESOURCE = "nvidia.com/mig-"


@dataclass(frozen=True, slots=True)
class Unit:
    """What one unit of a tier is: how it is asked for, and its GPU-equivalents."""

    resource: str
    weight: float


@dataclass(frozen=True, slots=True)
class OfferBook:
    """Everything that a cluster offers; each team may be let into some of its tiers."""

    cluster: str
    tiers: Mapping[str, TierRow]
    units: Mapping[str, Unit]
    pools: Sequence[Pool]
    prices: PricesInForce

    def sharing(self, tier: str) -> GpuSharing | None:
        """Return how a tier shares its GPUs; None for one without a rule."""
        row = self.tiers.get(tier)
        return GpuSharing(row.sharing) if row is not None and row.sharing else None

    def offers(self, team: str) -> Offers:
        """Return what a team's workloads could be moved to."""
        pools = [pool for pool in self.pools if self._lets_in(pool.tier, team)]
        return Offers(
            mig_profiles=_profiles(pools, self.tiers),
            shared_tiers=tuple(self._shared(pools)),
            parts=tuple(self._parts(pools)),
            models=tuple(self._models(pools)),
            spot=tuple(self._spot(pools)),
        )

    def _lets_in(self, tier: str, team: str) -> bool:
        row = self.tiers.get(tier)
        return row is not None and (not row.allowed_teams or team in row.allowed_teams)

    def _shared(self, pools: Iterable[Pool]) -> Iterator[SharedTier]:
        for tier, model in sorted({(pool.tier, pool.gpu_model) for pool in pools}):
            row, unit = self.tiers[tier], self.units.get(tier)
            if row.sharing in _SHARED and unit is not None:
                yield SharedTier(tier, model, unit.weight, unit.resource, row.node_selector)

    def _parts(self, pools: Iterable[Pool]) -> Iterator[CardPart]:
        """Yield MIG devices and replicas whose units are all alike and have a price."""
        for pool in pools:
            row, unit = self.tiers[pool.tier], self.units.get(pool.tier)
            memory = card_memory_mib(pool.gpu_model)
            price, currency = self.prices.of(self.cluster, pool)
            is_mig = row.sharing == GpuSharing.MIG.value
            if unit is None or memory is None or price is None:
                continue
            if is_mig or row.sharing in _SHARED:
                kept = MIG_MEMORY_KEPT if is_mig else 1.0
                yield CardPart(
                    tier=pool.tier,
                    gpu_model=pool.gpu_model,
                    share=unit.weight,
                    memory_mib=memory * unit.weight * kept,
                    price_per_gpu_hour=price,
                    currency=currency,
                    is_mig=is_mig,
                    resource=unit.resource,
                    node_selector=row.node_selector,
                )

    def _models(self, pools: Iterable[Pool]) -> Iterator[Model]:
        for pool in pools:
            row, memory = self.tiers[pool.tier], card_memory_mib(pool.gpu_model)
            price, currency = self.prices.of(self.cluster, pool)
            if row.sharing != GpuSharing.EXCLUSIVE.value or memory is None or price is None:
                continue
            resource = row.resources[0] if len(row.resources) == 1 else ""
            yield Model(
                pool.gpu_model,
                memory,
                price,
                currency,
                pool.capacity_type,
                pool.tier,
                resource,
                row.node_selector,
            )

    def _spot(self, pools: Iterable[Pool]) -> Iterator[SpotPool]:
        """Yield the pools on spot: a spot price alone does not say that the cluster has any."""
        for pool in pools:
            sharing = self.sharing(pool.tier)
            price, currency = self.prices.of(self.cluster, pool)
            if pool.capacity_type != CapacityType.SPOT or sharing is None or price is None:
                continue
            yield SpotPool(pool.gpu_model, sharing, price, currency, pool.tier)


def offer_book(
    cluster: Cluster, last: date, rules: Sequence[TierRule], prices: PricesInForce
) -> OfferBook:
    """Return what a cluster offered in the week up to `last`. Four queries."""
    tiers = {row.name: row for row in tier_rows(visibility=EVERYTHING) if not row.builtin}
    recent = TierDay.objects.filter(
        cluster=cluster, day__gt=last - _RECENT, day__lte=last, capacity__gt=0
    )
    pools = recent.order_by().values_list("tier__name", "gpu_model__name", "capacity_type")
    return OfferBook(
        cluster=cluster.name,
        tiers=tiers,
        units=_units(cluster, rules),
        pools=[Pool(*row) for row in sorted(pools.distinct()) if row[0] in tiers],
        prices=prices,
    )


def _units(cluster: Cluster, rules: Sequence[TierRule]) -> dict[str, Unit]:
    """Return what a unit of each tier is, where all its nodes offer it alike."""
    found: dict[str, set[Unit]] = {}
    intervals = NodeInterval.objects.filter(node__cluster=cluster, end__isnull=True).order_by("pk")
    for labels, capacity in intervals.values_list("labels", "capacity"):
        for resource in capacity:
            tier = tier_of(resource, labels, rules)
            found.setdefault(tier, set()).add(Unit(resource, unit_weight(resource, labels)))
    return {tier: units.pop() for tier, units in found.items() if len(units) == 1}


def _profiles(pools: Iterable[Pool], tiers: Mapping[str, TierRow]) -> dict[str, tuple[str, ...]]:
    found: dict[str, set[str]] = {}
    for pool in pools:
        row = tiers[pool.tier]
        if row.sharing == GpuSharing.MIG.value:
            named = (r for r in row.resources if r.startswith(_MIG_RESOURCE))
            found.setdefault(pool.gpu_model, set()).update(mig_profile(r, {}) for r in named)
    return {model: tuple(sorted(profiles)) for model, profiles in found.items()}
