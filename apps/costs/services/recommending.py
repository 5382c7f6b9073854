"""Once a day: gather a cluster's evidence, run the rules, keep what they find."""

from collections.abc import Iterable, Iterator
from datetime import date, datetime
from functools import cache

from django.db import transaction

from apps.clusters.models import Cluster, Tier
from apps.clusters.services.tier_history import TierHistory
from apps.costs.domain.recommendations import Recommendation as Found
from apps.costs.domain.recommendations import for_workloads
from apps.costs.domain.recommendations.capacity import empty_nodes, mig_layout, unused_quota
from apps.costs.domain.recommendations.recommendation import LEAST_DAYS
from apps.costs.models import RecommendationRun
from apps.costs.services.evidence_capacity import layout_evidence, pool_evidence, quota_evidence
from apps.costs.services.evidence_offers import OfferBook, PricesInForce, offer_book
from apps.costs.services.evidence_span import EvidenceSpan, newest_day, span_of
from apps.costs.services.evidence_workloads import workload_evidence
from apps.costs.services.recommending_store import OfTeam, store

LEAST_SAVING = 1
"""What saves less than this a month (a unit of the currency) is not worth anybody's reading."""
MOST_OF_A_TIER = 2000
"""Kept of one tier are the largest savings; a list that nobody can read helps nobody."""


def recommend(*, now: datetime) -> int:
    """Look at every cluster that has a new day of facts; return how many recommendations stand.

    A day is looked at once, when its workload sums are there. With under seven collected days
    nothing is recommended, and what was before stays as it is.
    """
    return sum(recommend_for(cluster, now=now) for cluster in Cluster.objects.filter(active=True))


def recommend_for(cluster: Cluster, *, now: datetime) -> int:
    """Look at one cluster's newest thirty days, unless that was done; return what stands."""
    day = newest_day(cluster)
    if day is None or _is_done(cluster, day):
        return 0
    span = span_of(cluster, day, now=now)
    if span.days(span.first) < LEAST_DAYS:
        return 0
    found = list(_found(span, now))
    with transaction.atomic():
        # Two workers that looked at the same day follow one another here. Rows that refer to the
        # cluster may be written meanwhile.
        Cluster.objects.select_for_update(no_key=True).get(pk=cluster.pk)
        if _is_done(cluster, day):
            return 0
        store(cluster, found, now=now)
        _note(cluster, day, len(found), now)
    return len(found)


def _is_done(cluster: Cluster, day: date) -> bool:
    return RecommendationRun.objects.filter(cluster=cluster, day__gte=day).exists()


def _note(cluster: Cluster, day: date, found: int, now: datetime) -> None:
    RecommendationRun.objects.update_or_create(
        cluster=cluster, defaults={"day": day, "at": now, "found": found}
    )


def _found(span: EvidenceSpan, now: datetime) -> Iterator[OfTeam]:
    history, prices = TierHistory.load(), PricesInForce(now)
    rules = history.at(now.timestamp())
    book = offer_book(span.cluster, span.last, rules, prices)
    for tier in Tier.objects.filter(active=True, builtin=False).order_by("position", "pk"):
        yield from _largest(_of_workloads(span, tier, book, prices))
    for quota in quota_evidence(span, book, history):
        yield from _worth_it(unused_quota(quota.evidence), quota.team_id)
    for pool in pool_evidence(span, book):
        yield from _worth_it(empty_nodes(pool), None)
    for layout in layout_evidence(span, book, rules):
        yield from _worth_it(mig_layout(layout), None)


def _of_workloads(
    span: EvidenceSpan, tier: Tier, book: OfferBook, prices: PricesInForce
) -> Iterator[OfTeam]:
    sharing = book.sharing(tier.name)
    if sharing is None:
        return
    offers = cache(book.offers)
    for one in workload_evidence(span, tier, sharing, prices):
        for found in for_workloads([one.evidence], offers(one.team)):
            yield from _worth_it(found, one.team_id)


def _worth_it(found: Found | None, team_id: int | None) -> Iterator[OfTeam]:
    if found is None:
        return
    if found.saving_per_month is None or found.saving_per_month >= LEAST_SAVING:
        yield OfTeam(found, team_id)


def _largest(found: Iterable[OfTeam]) -> list[OfTeam]:
    return sorted(found, key=lambda one: one.found.order)[:MOST_OF_A_TIER]
