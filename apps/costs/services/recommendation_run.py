"""The daily run: gather a cluster's evidence, apply the rules, store what they find."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import date, datetime
from functools import cache
from typing import Any, NamedTuple

from django.db import transaction
from django.db.models import Q, Sum
from msgspec import Struct, field

from apps.clusters.domain.tiers import TierRule
from apps.clusters.models import Cluster, Tier
from apps.clusters.services import TierHistory
from apps.costs.domain.costing import FREE_WASTE, Cause
from apps.costs.domain.recommendations import Finding, for_workloads
from apps.costs.domain.recommendations.capacity import (
    empty_hours,
    empty_nodes,
    lend_quota,
    mig_layout,
    unused_quota,
)
from apps.costs.domain.recommendations.idle_time import idle_timeout, scale_to_demand
from apps.costs.domain.recommendations.recommendation import (
    LEAST_DAYS,
    OF_QUOTA,
    CoverageGap,
    RecommendationState,
    WasteCell,
    avoided,
    cell_name,
    together,
)
from apps.costs.models import (
    PoolCostDay,
    Recommendation,
    RecommendationRun,
    WasteSum,
    WorkloadCostDay,
)
from apps.costs.services.evidence.capacity import layout_evidence, pool_evidence, quota_evidence
from apps.costs.services.evidence.hours import (
    PendingHours,
    hours_evidence,
    pending_hours,
    timeout_evidence,
)
from apps.costs.services.evidence.offers import OfferBook, PricesInForce, offer_book
from apps.costs.services.evidence.span import EvidenceSpan, collected_until, newest_day, span_of
from apps.costs.services.evidence.workloads import (
    WorkloadOfTeam,
    service_evidence,
    workload_evidence,
)
from apps.costs.services.recommendations import TeamFinding, store

MOST_CELLS = 500
"""Kept of one recommendation are its largest cells: what is left out counts as not covered."""
_HELD_CAUSES = (Cause.IDLE, Cause.UNDERUSED, Cause.NOT_RUNNING)
_ROWS_AT_A_TIME = 2000
_AT_A_TIME = 500
LEAST_SAVING = 1
"""What saves less than this a month (a unit of the currency) is not worth anybody's reading."""
MOST_OF_A_TIER = 2000
"""Only the largest savings of a tier are kept: a list of hundreds would not be read."""


class WasteOwner(NamedTuple):
    """Whose waste it is; no team: the platform's."""

    team: int | None
    tier: int
    currency: str


class Waste(Struct):
    """The waste of one tier in units, by whose it is and cell; and why rules pass cells over."""

    tier: Tier
    cells: dict[WasteOwner, dict[WasteCell, int]] = field(default_factory=lambda: defaultdict(dict))
    gaps: dict[str, CoverageGap] = field(default_factory=dict)

    def covers(self, found: Finding, team: int | None) -> dict[WasteCell, int]:
        """Return what a recommendation avoids; nothing where it saves no cash."""
        if found.kind in OF_QUOTA:
            return {}
        waste = self.cells.get(WasteOwner(team, self.tier.pk, found.currency), {})
        claimed = avoided(found.cells, waste)
        # Stored as JSON in the row: a tier-wide rule could claim thousands of cells.
        largest = sorted(claimed, key=lambda cell: (-claimed[cell], cell))[:MOST_CELLS]
        return {cell: claimed[cell] for cell in largest}

    def sums(
        self, claims: Iterable[tuple[WasteOwner, Mapping[WasteCell, int]]]
    ) -> Iterator[tuple[WasteOwner, str, str, int]]:
        """Yield (whose, cause, reason, units): what is covered, and the rest by why it is not."""
        by_owner: dict[WasteOwner, list[Mapping[WasteCell, int]]] = defaultdict(list)
        for of, claim in claims:
            by_owner[of].append(claim)
        for of, cells in self.cells.items():
            # Two recommendations may claim the same hours, which can be saved once only.
            covered = together(by_owner[of])
            sums: dict[tuple[str, str], int] = defaultdict(int)
            for cell, units in cells.items():
                there = covered.get(cell, 0)
                sums[cell.cause, WasteSum.COVERED] += there
                sums[cell.cause, self._why(cell, there)] += units - there
            for (cause, reason), units in sorted(sums.items()):
                if units:
                    yield of, cause, reason, units

    def _why(self, cell: WasteCell, covered: int) -> str:
        if cell.cause == Cause.UNHEALTHY.value:
            return CoverageGap.UNAVAILABLE.value
        if covered:
            return CoverageGap.REMAINDER.value
        if cell.cause == Cause.UNALLOCATED.value:
            return CoverageGap.NEEDED.value
        return self.gaps.get(cell.name, CoverageGap.NO_RULE).value


def waste_of(span: EvidenceSpan, tier: Tier, found: Iterable[WorkloadOfTeam]) -> Waste:
    """Return the priced waste of a tier over the days of the evidence. Two queries."""
    waste = Waste(tier)
    names: dict[tuple[int, str, str], str] = {}
    for one in found:
        evidence = one.evidence
        if evidence.gap is not None:
            waste.gaps[evidence.cell] = evidence.gap
        for member in one.members:
            names[member, evidence.gpu_model, evidence.capacity_type] = evidence.cell
    days = {"cluster": span.cluster, "tier": tier, "day__gte": span.first, "day__lte": span.last}
    held = WorkloadCostDay.objects.filter(**days).order_by()
    keys = ("team_id", "currency", "workload_id", "gpu_model__name", "capacity_type")
    for team, currency, workload, model, kind, *costs in _waste_sums(held, keys, _HELD_CAUSES):
        place = (workload, model, kind)
        # Priced, but without evidence: it stays visible as waste that no rule covers.
        name = names.get(place) or cell_name("", str(workload), model, kind)
        _add_waste(waste.cells[WasteOwner(team, tier.pk, currency)], name, _HELD_CAUSES, costs)
    pools = PoolCostDay.objects.filter(**days).order_by()
    for currency, model, kind, *costs in _waste_sums(
        pools, ("currency", "gpu_model__name", "capacity_type"), FREE_WASTE
    ):
        name = cell_name("", "", model, kind)
        _add_waste(waste.cells[WasteOwner(None, tier.pk, currency)], name, FREE_WASTE, costs)
    return waste


def _waste_sums(
    rows: Any, keys: tuple[str, ...], causes: tuple[Cause, ...]
) -> Iterator[tuple[Any, ...]]:
    sums = {f"sum_{cause.value}": Sum(f"cost_{cause.value}") for cause in causes}
    priced = rows.exclude(currency="").values_list(*keys).annotate(**sums)
    yield from priced.iterator(_ROWS_AT_A_TIME)


def _add_waste(
    cells: dict[WasteCell, int], name: str, causes: tuple[Cause, ...], costs: Iterable[Any]
) -> None:
    for cause, cost in zip(causes, costs, strict=True):
        if cost:
            cell = WasteCell(name, cause.value)
            cells[cell] = cells.get(cell, 0) + int(cost)


class _Run(Struct):
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
    run = _run_rules(span, now)
    with transaction.atomic():
        # Two workers that looked at the same day follow one another here. Rows that refer to the
        # cluster may be written meanwhile.
        Cluster.objects.select_for_update(no_key=True).get(pk=cluster.pk)
        if _is_done(cluster, day, collected):
            return 0
        store(cluster, run.found, now=now)
        _note_run(cluster, span, run, collected, now)
    return len(run.found)


def _is_done(cluster: Cluster, day: date, collected: datetime | None) -> bool:
    of_day = Q(day=day)
    if collected is not None:
        of_day &= Q(collected_at__gte=collected)
    runs = RecommendationRun.objects.filter(Q(day__gt=day) | of_day, cluster=cluster)
    return runs.exists()


def _note_run(
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


def _run_rules(span: EvidenceSpan, now: datetime) -> _Run:
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
        claims = [
            (WasteOwner(one.team_id, tier.pk, one.found.currency), one.covers) for one in kept
        ]
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
    # What is found of tiers that are not active any more.
    run.found += [one for rest in of_pools.values() for one in rest]
    return run


def _workloads(
    span: EvidenceSpan, tier: Tier, book: OfferBook, prices: PricesInForce
) -> list[WorkloadOfTeam]:
    sharing = book.sharing(tier.name)
    return [] if sharing is None else list(workload_evidence(span, tier, sharing, prices))


def _of_tier(
    span: EvidenceSpan,
    tier: Tier,
    book: OfferBook,
    evidence: Sequence[WorkloadOfTeam],
    pending: PendingHours | None,
) -> list[TeamFinding]:
    """Return what is found of a tier's workloads: the largest savings."""
    offers = cache(book.offers)
    found = [
        one_found
        for one in evidence
        # Else a workload on two pools would be judged twice, and its saving counted twice.
        if one.main
        for each in for_workloads([one.evidence], offers(one.team))
        for one_found in _worth_it(each, one.team_id)
    ]
    for service, of in service_evidence(span, tier, evidence):
        found += _worth_it(scale_to_demand(service), of.team_id)
    for team in timeout_evidence(span, tier, pending, evidence):
        found += _worth_it(idle_timeout(team.evidence), team.team_id)
    return sorted(found, key=lambda one: one.found.order)[:MOST_OF_A_TIER]


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


def _worth_it(found: Finding | None, team_id: int | None) -> Iterator[TeamFinding]:
    if found is None:
        return
    if found.saving_per_month is None or found.saving_per_month >= LEAST_SAVING:
        yield TeamFinding(found, team_id)
