"""When the GPUs of each pool stand empty, and how much quota is free while others wait."""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import datetime

from django.db.models import Min, Sum

from apps.clusters.domain.calendar import day_of
from apps.costs.domain.recommendations.capacity import POOL
from apps.costs.domain.recommendations.coverage import cell_name
from apps.costs.domain.recommendations.hours import HoursEvidence
from apps.costs.domain.recommendations.recommendation import Subject
from apps.costs.services.evidence.offers import OfferBook, Pool, PricesInForce
from apps.costs.services.evidence.pending import PendingHours
from apps.costs.services.evidence.span import EvidenceSpan
from apps.usage.domain.amounts import hours
from apps.usage.models import TierHour

_ROWS_AT_A_TIME = 2000
_SATURDAY = 5


def hours_evidence(
    span: EvidenceSpan,
    book: OfferBook,
    prices: PricesInForce,
    pending: Mapping[str, PendingHours],
) -> Iterator[HoursEvidence]:
    """Yield how many GPUs of each pool stood empty by hour of the day. One query.

    What a MIG layout strands is not among it: no one can have it, nor give it up alone. `pending`
    is what waited for each tier.
    """
    empty: dict[Pool, dict[datetime, float]] = defaultdict(dict)
    stranded: dict[Pool, float] = defaultdict(float)
    wanted: dict[Pool, float] = defaultdict(float)
    rows = TierHour.objects.filter(
        cluster=span.cluster, hour__gte=span.window.start, hour__lt=span.window.end
    ).order_by("hour")
    names = ("tier__name", "gpu_model__name", "capacity_type")
    sums = rows.values_list("hour", *names).annotate(
        free=Sum("unallocated"), lost=Sum("stranded"), first=Min("pk")
    )
    for hour, tier, model, kind, free, lost, _ in sums.iterator(_ROWS_AT_A_TIME):
        of = Pool(tier, model, kind)
        empty[of][hour] = max(0.0, hours(int(free) - int(lost)))
        stranded[of] += hours(int(lost))
        if tier in pending:
            wanted[of] += min(empty[of][hour], pending[tier].of_all(int(hour.timestamp())))
    for pool in book.pools:
        if pool in empty:
            found = _evidence(span, pool, empty[pool], prices)
            yield replace(found, stranded_gpu_hours=stranded[pool], pending_gpu_hours=wanted[pool])


def _evidence(
    span: EvidenceSpan, pool: Pool, empty: Mapping[datetime, float], prices: PricesInForce
) -> HoursEvidence:
    by_hour: dict[tuple[bool, int], list[float]] = defaultdict(list)
    for hour, gpus in empty.items():
        local = hour.astimezone(span.zone)
        by_hour[local.weekday() >= _SATURDAY, local.hour].append(gpus)
    since = day_of(min(empty), span.zone)
    price, currency = prices.of(span.cluster.name, *pool)
    name = f"{POOL}/{pool.capacity_type}/{pool.gpu_model}"
    return HoursEvidence(
        subject=Subject(span.cluster.name, workload=name, tier=pool.tier),
        gpu_model=pool.gpu_model,
        capacity_type=pool.capacity_type,
        cell=cell_name("", "", pool.gpu_model, pool.capacity_type),
        empty=by_hour,
        days=span.days(since),
        coverage=span.coverage(since),
        owned=prices.is_owned(span.cluster.name, pool),
        price_per_gpu_hour=price,
        currency=currency,
    )
