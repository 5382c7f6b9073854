"""What could be had instead: tiers, profiles, models and spot capacity, at the prices in force."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import NamedTuple, TypedDict

from msgspec import Struct

from apps.accounts.permissions import EVERYTHING
from apps.clusters.domain.tiers import (
    CapacityType,
    GpuSharing,
    TierRule,
    mig_profile,
    tier_of,
    unit_weight,
)
from apps.clusters.domain.window import day_of
from apps.clusters.models import Cluster, NodeInterval
from apps.clusters.selectors import TierRow, tier_rows
from apps.costs.domain.prices import OWNED, PriceEntry, PriceKind
from apps.costs.domain.recommendations.capacity import POOL
from apps.costs.domain.recommendations.evidence import (
    GpuPart,
    ModelOffer,
    Offers,
    SharedTier,
    SpotPool,
)
from apps.costs.domain.recommendations.recommendation import Subject
from apps.costs.domain.recommendations.rightsizing import MIG_MEMORY_SHARE, gpu_memory_mib
from apps.costs.selectors.prices import price_book
from apps.costs.services.evidence.span import EvidenceSpan
from apps.usage.models import TierDay

_SHARED = (GpuSharing.TIME_SLICED.value, GpuSharing.MPS.value)
_RECENT = timedelta(days=7)
_MIG_RESOURCE = "nvidia.com/mig-"


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


class TierUnit(Struct, frozen=True):
    """What one unit of a tier is: how it is asked for, and its GPU-equivalents."""

    resource: str
    weight: float


class OfferBook(Struct, frozen=True):
    """Everything that a cluster offers; each team may be let into some of its tiers."""

    cluster: str
    tiers: Mapping[str, TierRow]
    units: Mapping[str, TierUnit]
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
            # Without one unit for all nodes it is not known what a replica would be.
            if row.sharing in _SHARED and unit is not None:
                yield SharedTier(tier, model, unit.weight, unit.resource, row.node_selector)

    def _parts(self, pools: Iterable[Pool]) -> Iterator[GpuPart]:
        """Yield MIG devices and replicas whose units are all alike and have a price."""
        for pool in pools:
            row, unit = self.tiers[pool.tier], self.units.get(pool.tier)
            memory = gpu_memory_mib(pool.gpu_model)
            price, currency = self.prices.of(self.cluster, pool)
            is_mig = row.sharing == GpuSharing.MIG.value
            # An offer without its size or its price could not be compared with what there is.
            if unit is None or memory is None or price is None:
                continue
            if is_mig or row.sharing in _SHARED:
                # Of its slices' memory a MIG device keeps some back; replicas keep back none.
                kept = MIG_MEMORY_SHARE if is_mig else 1.0
                yield GpuPart(
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

    def _models(self, pools: Iterable[Pool]) -> Iterator[ModelOffer]:
        for pool in pools:
            row, memory = self.tiers[pool.tier], gpu_memory_mib(pool.gpu_model)
            price, currency = self.prices.of(self.cluster, pool)
            if row.sharing != GpuSharing.EXCLUSIVE.value or memory is None or price is None:
                continue
            # Which of several resources the nodes of this model offer is not known here.
            resource = row.resources[0] if len(row.resources) == 1 else ""
            yield ModelOffer(
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
        # A week: nodes come and go, and what is away for a day is still offered.
        cluster=cluster,
        day__gt=last - _RECENT,
        day__lte=last,
        capacity__gt=0,
    )
    pools = recent.order_by().values_list("tier__name", "gpu_model__name", "capacity_type")
    return OfferBook(
        cluster=cluster.name,
        tiers=tiers,
        units=_units(cluster, rules),
        pools=[Pool(*row) for row in sorted(pools.distinct()) if row[0] in tiers],
        prices=prices,
    )


def _units(cluster: Cluster, rules: Sequence[TierRule]) -> dict[str, TierUnit]:
    """Return what a unit of each tier is, where all its nodes offer it alike."""
    found: dict[str, set[TierUnit]] = {}
    intervals = NodeInterval.objects.filter(node__cluster=cluster, end__isnull=True).order_by("pk")
    for labels, capacity in intervals.values_list("labels", "capacity"):
        for resource in capacity:
            tier = tier_of(resource, labels, rules)
            found.setdefault(tier, set()).add(TierUnit(resource, unit_weight(resource, labels)))
    return {tier: units.pop() for tier, units in found.items() if len(units) == 1}


def _profiles(pools: Iterable[Pool], tiers: Mapping[str, TierRow]) -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = {}
    for pool in pools:
        row = tiers[pool.tier]
        if row.sharing == GpuSharing.MIG.value:
            named = (r for r in row.resources if r.startswith(_MIG_RESOURCE))
            own = found.setdefault(pool.gpu_model, {})
            for resource in named:
                own.setdefault(mig_profile(resource, {}), pool.tier)
    return found
