"""Once a day: gather a cluster's evidence, run the rules, keep what they find."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from functools import cache

from django.db import transaction
from django.db.models import Q

from apps.clusters.domain.tiers import TierRule
from apps.clusters.models import Cluster, Tier
from apps.clusters.services import TierHistory
from apps.costs.domain.recommendations import Recommendation as Found
from apps.costs.domain.recommendations import for_workloads
from apps.costs.domain.recommendations.capacity import empty_nodes, mig_layout, unused_quota
from apps.costs.domain.recommendations.hours import empty_hours, lend_quota
from apps.costs.domain.recommendations.quiet import idle_timeout
from apps.costs.domain.recommendations.recommendation import LEAST_DAYS
from apps.costs.domain.recommendations.scaling import scale_to_demand
from apps.costs.domain.recommendations.states import RecommendationState
from apps.costs.models import Recommendation, RecommendationRun, WasteSum
from apps.costs.services.evidence.capacity import layout_evidence, pool_evidence, quota_evidence
from apps.costs.services.evidence.hours import hours_evidence
from apps.costs.services.evidence.offers import OfferBook, PricesInForce, offer_book
from apps.costs.services.evidence.pending import PendingHours, pending_hours
from apps.costs.services.evidence.quiet import timeout_evidence
from apps.costs.services.evidence.services import service_evidence
from apps.costs.services.evidence.span import EvidenceSpan, collected_until, newest_day, span_of
from apps.costs.services.evidence.workloads import TeamEvidence as OfWorkload
from apps.costs.services.evidence.workloads import workload_evidence
from apps.costs.services.recommendations.coverage import Of, waste_of
from apps.costs.services.recommendations.store import TeamFinding, store

_AT_A_TIME = 500
LEAST_SAVING = 1
"""What saves less than this a month (a unit of the currency) is not worth anybody's reading."""
MOST_OF_A_TIER = 2000
"""Kept of one tier are the largest savings; a list that nobody can read helps nobody."""


@dataclass(slots=True)
class _Run:
    """What the rules found of a cluster, and how much of its waste that covers."""

    found: list[TeamFinding] = field(default_factory=list)
    sums: list[WasteSum] = field(default_factory=list)


def store_recommendations(*, now: datetime) -> int:
    """Look at every cluster that has a new day of facts; return how many recommendations stand.

    A day is looked at when its workload sums are there, and again when more of the days before it
    was collected. With under seven collected days nothing is recommended, and what was before
    stays as it is. Of a cluster that was retired nothing is left to be changed.
    """
    _forget_retired()
    return sum(recommend_for(cluster, now=now) for cluster in Cluster.objects.filter(active=True))


def _forget_retired() -> None:
    """Take back what is open of retired clusters; one that returns is looked at anew."""
    retired = {"cluster__active": False}
    if not RecommendationRun.objects.filter(**retired).exists():
        return
    with transaction.atomic():
        Recommendation.objects.filter(state=RecommendationState.OPEN.value, **retired).update(
            state=RecommendationState.GONE
        )
        WasteSum.objects.filter(**retired).delete()
        RecommendationRun.objects.filter(**retired).delete()


def recommend_for(cluster: Cluster, *, now: datetime) -> int:
    """Look at one cluster's newest thirty days, unless that was done; return what stands."""
    day = newest_day(cluster)
    if day is None:
        return 0
    # Before anything is read that it stands for: what is collected meanwhile is due again.
    collected = collected_until(cluster, day)
    if _is_done(cluster, day, collected):
        return 0
    span = span_of(cluster, day, now=now)
    if span.days(span.first) < LEAST_DAYS:
        return 0
    run = _run(span, now)
    with transaction.atomic():
        # Two workers that looked at the same day follow one another here. Rows that refer to the
        # cluster may be written meanwhile.
        Cluster.objects.select_for_update(no_key=True).get(pk=cluster.pk)
        if _is_done(cluster, day, collected):
            return 0
        store(cluster, run.found, now=now)
        _note(cluster, span, run, collected, now)
    return len(run.found)


def _is_done(cluster: Cluster, day: date, collected: datetime | None) -> bool:
    of_day = Q(day=day)
    if collected is not None:
        of_day &= Q(collected_at__gte=collected)
    runs = RecommendationRun.objects.filter(Q(day__gt=day) | of_day, cluster=cluster)
    return runs.exists()


def _note(
    cluster: Cluster, span: EvidenceSpan, found: _Run, collected: datetime | None, now: datetime
) -> None:
    RecommendationRun.objects.update_or_create(
        cluster=cluster,
        defaults={
            "first": max(span.first, min(span.hours, default=span.first)),
            "day": span.last,
            "at": now,
            "collected_at": collected,
            "found": len(found.found),
        },
    )
    WasteSum.objects.filter(cluster=cluster).delete()
    WasteSum.objects.bulk_create(found.sums, batch_size=_AT_A_TIME)


def _run(span: EvidenceSpan, now: datetime) -> _Run:
    history, prices = TierHistory.load(), PricesInForce(now)
    rules = history.at(now.timestamp())
    book = offer_book(span.cluster, span.last, rules, prices)
    pending = pending_hours(span, book)
    of_pools: dict[str, list[TeamFinding]] = defaultdict(list)
    for one in _of_capacity(span, book, history, rules, prices, pending):
        of_pools[one.found.subject.tier].append(one)
    run = _Run()
    for tier in Tier.objects.filter(active=True).order_by("position", "pk"):
        evidence = _workloads(span, tier, book, prices)
        found = [
            *_of_tier(span, tier, book, evidence, pending.get(tier.name)),
            *of_pools.pop(tier.name, ()),
        ]
        waste = waste_of(span, tier, evidence)
        kept = [one._replace(covers=waste.covers(one.found, one.team_id)) for one in found]
        claims = [(Of(one.team_id, tier.pk, one.found.currency), one.covers) for one in kept]
        run.found += kept
        run.sums += [
            WasteSum(
                cluster=span.cluster,
                tier=tier,
                team_id=of.team,
                cause=cause,
                reason=reason,
                currency=of.currency,
                cost=units,
            )
            for of, cause, reason, units in waste.sums(claims)
        ]
    run.found += [one for rest in of_pools.values() for one in rest]
    return run


def _workloads(
    span: EvidenceSpan, tier: Tier, book: OfferBook, prices: PricesInForce
) -> list[OfWorkload]:
    sharing = book.sharing(tier.name)
    return [] if sharing is None else list(workload_evidence(span, tier, sharing, prices))


def _of_tier(
    span: EvidenceSpan,
    tier: Tier,
    book: OfferBook,
    evidence: Sequence[OfWorkload],
    pending: PendingHours | None,
) -> list[TeamFinding]:
    """Return what is found of a tier's workloads: the largest savings."""
    offers = cache(book.offers)
    found = [
        one_found
        for one in evidence
        if one.main
        for each in for_workloads([one.evidence], offers(one.team))
        for one_found in _worth_it(each, one.team_id)
    ]
    for service, of in service_evidence(span, tier, evidence):
        found += _worth_it(scale_to_demand(service), of.team_id)
    for team in timeout_evidence(span, tier, pending, evidence):
        found += _worth_it(idle_timeout(team.evidence), team.team_id)
    return _largest(found)


def _of_capacity(
    span: EvidenceSpan,
    book: OfferBook,
    history: TierHistory,
    rules: Sequence[TierRule],
    prices: PricesInForce,
    pending: Mapping[str, PendingHours],
) -> Iterator[TeamFinding]:
    for quota in quota_evidence(span, book, history, pending):
        yield from _worth_it(unused_quota(quota.evidence), quota.team_id)
        if quota.lending is not None:
            yield from _worth_it(lend_quota(quota.lending), quota.team_id)
    for pool in pool_evidence(span, book):
        yield from _worth_it(empty_nodes(pool), None)
    for hours in hours_evidence(span, book, prices, pending):
        yield from _worth_it(empty_hours(hours), None)
    for layout in layout_evidence(span, book, rules):
        yield from _worth_it(mig_layout(layout), None)


def _worth_it(found: Found | None, team_id: int | None) -> Iterator[TeamFinding]:
    if found is None:
        return
    if found.saving_per_month is None or found.saving_per_month >= LEAST_SAVING:
        yield TeamFinding(found, team_id)


def _largest(found: Iterable[TeamFinding]) -> list[TeamFinding]:
    return sorted(found, key=lambda one: one.found.order)[:MOST_OF_A_TIER]
