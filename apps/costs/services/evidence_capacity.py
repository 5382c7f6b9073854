"""Evidence of quotas that are not used, nodes that stand empty, and how MIG cards are cut."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from math import ceil
from typing import Any

from django.db.models import F, FloatField, Max, Min, Q, QuerySet, Sum

from apps.clusters.domain.calendar import day_of
from apps.clusters.domain.mig import mig_part
from apps.clusters.domain.tiers import (
    TierRule,
    capacity_type,
    gpu_model,
    is_shared,
    mig_profile,
    tier_of,
)
from apps.clusters.models import NodeSpell
from apps.clusters.services.tier_history import TierHistory
from apps.costs.domain.recommendations.evidence import LayoutEvidence, PoolEvidence, QuotaEvidence
from apps.costs.domain.recommendations.recommendation import LEAST_DAYS, Subject
from apps.costs.services.evidence_offers import OfferBook, Pool
from apps.costs.services.evidence_span import EvidenceSpan
from apps.quotas.domain.keys import Counting, Source, meaning_of, reachable_tiers
from apps.quotas.models import QuotaKeyHour
from apps.quotas.selectors.settings import named_by_tiers
from apps.usage.domain.amounts import NANO, hours
from apps.usage.models import NodeHour, TierDay

_FLOAT = FloatField()
_DAY_SECONDS = 86_400
_COUNT_LABEL = "nvidia.com/gpu.count"
_MIG_RESOURCE = "nvidia.com/mig-"
_HAIR = 1e-6
_ROWS_AT_A_TIME = 2000


@dataclass(frozen=True, slots=True)
class QuotaOfTeam:
    """Evidence of a quota key, and whose it is."""

    evidence: QuotaEvidence
    team_id: int | None


# ---------------------------------------------------------------- quotas


def quota_evidence(
    span: EvidenceSpan, book: OfferBook, history: TierHistory
) -> Iterator[QuotaOfTeam]:
    """Yield what ResourceQuotas that are there now allow, and the most that was used of them.

    Most is the largest mean of an hour. Only keys that count GPUs of one tier alone: of others it
    is not known what a unit is worth. Four queries.
    """
    window, rules = span.window, history.at(span.window.end_seconds - 1)
    rows = QuotaKeyHour.objects.filter(
        cluster=span.cluster,
        hour__gte=window.start,
        hour__lt=window.end,
        seconds__gt=0,
        key__source=Source.RESOURCE_QUOTA,
    )
    now_hard = _hard_now(rows)
    free = _unallocated(span)
    named = named_by_tiers(history)
    for (pk, team, namespace, name, key), (peak, known, there) in _used(rows):
        means = meaning_of(key, named=named)
        tiers = reachable_tiers(means.resource, rules)
        hard = now_hard.get((pk, team))
        counts = means.of_gpus and means.effective and means.counting is Counting.REQUESTS
        if hard is None or peak is None or not counts or len(tiers) != 1:
            continue
        unit, pool = book.units.get(tiers[0]), _largest(book, tiers[0])
        if unit is None or unit.resource != means.resource or pool is None:
            continue
        price, currency = book.prices.of(span.cluster.name, *pool)
        yield QuotaOfTeam(
            QuotaEvidence(
                subject=Subject(span.cluster.name, namespace, f"ResourceQuota/{name}", tiers[0]),
                key=key,
                days=known / _DAY_SECONDS,
                coverage=known / there,
                hard=hard,
                peak_used=peak,
                weight=unit.weight,
                unallocated_gpus=free.get(tiers[0], 0.0),
                price_per_gpu_hour=price,
                currency=currency,
            ),
            team,
        )


def _used(
    rows: QuerySet[QuotaKeyHour, QuotaKeyHour],
) -> Iterator[tuple[tuple[Any, ...], tuple[Any, ...]]]:
    """Yield (key id, team id, namespace, name, key) and (peak, known seconds, all seconds)."""
    columns = ("key_id", "team_id", "key__namespace", "key__name", "key__key")
    sums = (
        rows.order_by()
        .values_list(*columns)
        .annotate(
            peak=Max(F("used") * 3600.0 / F("seconds"), output_field=_FLOAT),
            known=Sum("seconds", filter=Q(used__isnull=False), default=0.0),
            there=Sum("seconds"),
        )
    )
    for row in sums.order_by("key_id", "team_id").iterator(_ROWS_AT_A_TIME):
        yield row[: len(columns)], row[len(columns) :]


def _hard_now(
    rows: QuerySet[QuotaKeyHour, QuotaKeyHour],
) -> dict[tuple[int, int | None], float]:
    """Return what each key of the newest hour allows in it."""
    newest = rows.aggregate(newest=Max("hour"))["newest"]
    if newest is None:
        return {}
    there = rows.filter(hour=newest).order_by("pk")
    return {
        (key, team): hard * 3600.0 / seconds
        for key, team, hard, seconds in there.values_list("key_id", "team_id", "hard", "seconds")
    }


def _unallocated(span: EvidenceSpan) -> dict[str, float]:
    """Return the GPUs of each tier that stood empty, on the mean of the collected hours."""
    rows = TierDay.objects.filter(
        cluster=span.cluster, day__gte=span.first, day__lte=span.last
    ).order_by()
    collected = sum(span.hours.values())
    sums = rows.values_list("tier__name").annotate(free=Sum("unallocated"))
    return {tier: hours(int(free)) / collected for tier, free in sums} if collected else {}


def _largest(book: OfferBook, tier: str) -> Pool | None:
    """Return the kind of cards that a tier has; None where it has several."""
    pools = [pool for pool in book.pools if pool.tier == tier]
    return pools[0] if len(pools) == 1 else None


# ---------------------------------------------------------------- empty nodes


def pool_evidence(span: EvidenceSpan, book: OfferBook) -> Iterator[PoolEvidence]:
    """Yield for each pool how many of its nodes were wholly empty in each hour of the week.

    A node counts where it was of one pool alone, healthy, and nobody held anything of it. Two
    queries.
    """
    window = span.window
    rows = NodeHour.objects.filter(
        cluster=span.cluster, hour__gte=window.start, hour__lt=window.end
    ).order_by()
    names = ("tier__name", "gpu_model__name", "capacity_type")
    first_hour = {
        Pool(*row[:3]): row[3] for row in rows.values_list(*names).annotate(first=Min("hour"))
    }
    empty: dict[Pool, dict[datetime, list[float]]] = defaultdict(lambda: defaultdict(list))
    for hour, capacity, pool in _empty(rows):
        empty[pool][hour].append(hours(int(capacity)))
    collected = _collected_hours(rows)
    for pool, at in sorted(empty.items()):
        gpus = min(min(of_hour) for of_hour in at.values())
        price, currency = book.prices.of(span.cluster.name, *pool)
        since = day_of(first_hour[pool], span.zone)
        yield PoolEvidence(
            subject=Subject(span.cluster.name, tier=pool.tier),
            gpus_per_node=int(gpus + _HAIR),
            empty_nodes=_by_hour_of_week(span, at, [h for h in collected if h >= first_hour[pool]]),
            days=span.days(since),
            coverage=span.coverage(since),
            price_per_gpu_hour=price,
            currency=currency,
        )


def _empty(rows: QuerySet[NodeHour, NodeHour]) -> Iterator[tuple[datetime, int, Pool]]:
    """Yield the hours in which a node was empty, with its capacity and pool."""
    whole = rows.values_list("hour", "node_id").annotate(
        held=Sum("allocated"),
        there=Sum("capacity"),
        sick=Sum("unhealthy"),
        first_tier=Min("tier__name"),
        last_tier=Max("tier__name"),
        first_model=Min("gpu_model__name"),
        last_model=Max("gpu_model__name"),
        paid_as=Min("capacity_type"),
    )
    found = whole.filter(held=0, there__gt=0, sick=0)
    for hour, _, _, there, _, tier, other, model, other_model, kind in found.iterator(
        _ROWS_AT_A_TIME
    ):
        if tier == other and model == other_model:
            yield hour, there, Pool(tier, model, kind)


def _collected_hours(rows: QuerySet[NodeHour, NodeHour]) -> list[datetime]:
    return list(rows.values_list("hour", flat=True).distinct().order_by("hour"))


def _by_hour_of_week(
    span: EvidenceSpan, empty: Mapping[datetime, Sequence[float]], collected: Sequence[datetime]
) -> dict[int, list[int]]:
    """Return how many nodes were empty by local hour of the week, one number a week."""
    found: dict[int, list[int]] = defaultdict(list)
    for hour in collected:
        local = hour.astimezone(span.zone)
        found[local.weekday() * 24 + local.hour].append(len(empty.get(hour, ())))
    return found


# ---------------------------------------------------------------- MIG layouts


def layout_evidence(
    span: EvidenceSpan, book: OfferBook, rules: Sequence[TierRule]
) -> Iterator[LayoutEvidence]:
    """Yield how each node's cards are cut and the most that was held of every profile.

    Only nodes whose cards are all cut alike, for a week or longer, and whose profiles are of
    different tiers: what is held is known by the tier. Two queries.
    """
    end = span.window.end
    spells = NodeSpell.objects.filter(
        node__cluster=span.cluster, end__isnull=True, start__lte=end - timedelta(days=LEAST_DAYS)
    ).order_by("node__name", "pk")
    held = _most_held(span)
    for name, start, labels, capacity in spells.values_list(
        "node__name", "start", "labels", "capacity"
    ):
        cut = _cut(labels, capacity, rules)
        since = max(span.first, day_of(start, span.zone) + timedelta(days=1))
        if cut is None or since > span.last:
            continue
        cards, layout, tier_by_profile = cut
        model = gpu_model(labels)
        most = {
            profile: ceil(held.get((name, tier), 0.0) / mig_part(profile, model) / cards - _HAIR)
            for profile, tier in tier_by_profile.items()
        }
        first = tier_by_profile[min(tier_by_profile)]
        price, currency = book.prices.of(
            span.cluster.name, first, model, capacity_type(labels).value
        )
        yield LayoutEvidence(
            subject=Subject(span.cluster.name, node=name),
            gpu_model=model,
            cards=cards,
            layout=layout,
            most_held=most,
            days=span.days(since),
            coverage=span.coverage(since),
            price_per_gpu_hour=price,
            currency=currency,
        )


def _cut(
    labels: Mapping[str, str], capacity: Mapping[str, float], rules: Sequence[TierRule]
) -> tuple[int, dict[str, int], dict[str, str]] | None:
    """Return a node's cards, the layout of each, and the tier of each profile; None: not told."""
    resources = [r for r, units in capacity.items() if units > 0]
    if not resources or not all(r.startswith(_MIG_RESOURCE) for r in resources):
        return None
    if any(is_shared(resource, labels) for resource in resources):
        return None
    try:
        cards = int(labels.get(_COUNT_LABEL, ""))
    except ValueError:
        return None
    tiers = {mig_profile(r, labels): tier_of(r, labels, rules) for r in resources}
    counts = {mig_profile(r, labels): capacity[r] for r in resources}
    if cards < 1 or len(set(tiers.values())) < len(resources):
        return None
    if any(count % cards for count in counts.values()):
        return None
    return cards, {profile: int(count // cards) for profile, count in counts.items()}, tiers


def _most_held(span: EvidenceSpan) -> dict[tuple[str, str], float]:
    """Return the most GPU-equivalents that were held of each node and tier in any hour."""
    window = span.window
    rows = NodeHour.objects.filter(
        cluster=span.cluster, hour__gte=window.start, hour__lt=window.end
    ).order_by()
    sums = rows.values_list("node__name", "tier__name").annotate(most=Max("allocated"))
    return {(node, tier): most / NANO for node, tier, most in sums}
