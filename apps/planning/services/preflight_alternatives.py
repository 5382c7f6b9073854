"""Other requests of planned pods: those that start now, and cheaper ones that hold what is used."""

from collections.abc import Iterator, Mapping
from decimal import Decimal
from functools import cached_property

from apps.accounts.domain.structs import replace
from apps.accounts.permissions import EVERYTHING
from apps.clusters.domain.tiers import (
    capacity_type,
    gpu_model,
    is_shared,
    mig_profile,
    tier_of,
    unit_weight,
)
from apps.clusters.selectors import TierRow, tier_rows
from apps.pending.domain.planned_pods import PlannedPods
from apps.pending.domain.pods import selector
from apps.pending.domain.submission import PlannedWork
from apps.planning.domain.measured_use import GpuOffer, MeasuredUse, holds, unit_memory_mib
from apps.planning.domain.planned import with_gpus
from apps.planning.domain.verdicts import Verdict, quotas_touched, verdict_of
from apps.planning.services.preflight_rows import AlternativeBasis, AlternativeRow
from apps.planning.services.preflight_sizes import PodSize, SubmissionSizes, cost_of

_MOST = 5


class AlternativeRequests:
    """Other requests on one cluster, for work of a team."""

    def __init__(self, sizes: SubmissionSizes, team: str) -> None:
        self._sizes = sizes
        self._team = team

    def starting(self, work: PlannedWork, at: int, size: PodSize) -> Iterator[AlternativeRow]:
        """Yield requests of the same pods that start now: fewer GPUs, other resources."""
        found = 0
        for resource, units in self._smaller(work.pods[at], size):
            other = with_gpus(work, at, [(size.resource, resource, units)])
            if self._sizes.diagnoser.starts(other)[at].why is not None:
                continue
            yield self._row(other, at, Verdict.STARTS, AlternativeBasis.STARTS_NOW)
            found += 1
            if found >= _MOST:
                return

    def _smaller(self, part: PlannedPods, size: PodSize) -> Iterator[tuple[str, float]]:
        if len(self._sizes.gpus(part)) != 1 or part.pod.claims:
            return
        # By halves: GPUs are mostly asked for in powers of two, and each try is a diagnosis.
        units = int(size.units) // 2
        while units >= 1:
            yield size.resource, float(units)
            units //= 2
        # Two MIG devices or replicas are no two GPUs: work for several cannot be moved to them.
        if size.units == 1:
            for resource in self._sizes.diagnoser.index.nodes.gpu_resources:
                if resource != size.resource:
                    yield resource, 1.0

    def holding(
        self, work: PlannedWork, at: int, size: PodSize, use: MeasuredUse | None
    ) -> list[AlternativeRow]:
        """Return requests that cost less and hold what was measured, the cheapest first."""
        part = work.pods[at]
        now, currency = self._sizes.price(size, part)
        if use is None or now is None or len(self._sizes.gpus(part)) != 1 or part.pod.claims:
            return []
        found: list[AlternativeRow] = []
        # By the digits shown: a float given directly would bring its binary tail along.
        limit = now * Decimal(repr(size.each))
        for offer in self._offers:
            # Two MIG devices or replicas are no two GPUs.
            if offer.tier == size.tier or (offer.is_part and size.units != 1):
                continue
            if not holds(offer, use):
                continue
            other = self._moved(work, at, size, offer)
            new = self._sizes.size(other.pods[at])
            price, paid_in = self._sizes.price(new, other.pods[at])
            # Prices in two currencies cannot be compared: the portal knows no exchange rate.
            if price is None or paid_in != currency or price * Decimal(repr(new.each)) >= limit:
                continue
            verdict = self._verdict(other, at)
            if verdict is not Verdict.NEVER:
                found.append(self._row(other, at, verdict, AlternativeBasis.MEASURED_USE))
        return sorted(found, key=lambda one: (one.cost_per_hour or 0, one.tier))[:_MOST]

    def _moved(self, work: PlannedWork, at: int, size: PodSize, offer: GpuOffer) -> PlannedWork:
        """Return the work as it would ask for another tier."""
        other = with_gpus(work, at, [(size.resource, offer.resource, size.units)])
        before = self._tiers.get(size.tier)
        pods, part = list(other.pods), other.pods[at]
        placement = part.pod.placement
        kept = {
            key: value
            for key, value in placement.node_selector.items()
            # Labels that chose the old tier would contradict the new one.
            if before is None or before.node_selector.get(key) != value
        }
        placement = replace(placement, node_selector={**kept, **offer.node_selector})
        pods[at] = replace(part, pod=replace(part.pod, placement=placement))
        return replace(other, pods=tuple(pods))

    def _verdict(self, work: PlannedWork, at: int) -> Verdict:
        why = self._sizes.diagnoser.starts(work)[at].why
        quotas = quotas_touched(self._sizes.state, work) if why is not None else []
        return verdict_of(why, work.pods[at], work, self._sizes.flavor_nodes, quotas)

    def _row(
        self, work: PlannedWork, at: int, verdict: Verdict, basis: AlternativeBasis
    ) -> AlternativeRow:
        part = work.pods[at]
        size = self._sizes.size(part)
        price, currency = self._sizes.price(size, part)
        total = size.each * part.least
        return AlternativeRow(
            tier=size.tier,
            resource=size.resource,
            units=size.units,
            gpu_equivalents=total,
            expected_wait=self._sizes.wait(work, size, part.least, verdict),
            cost_per_hour=cost_of(price, total),
            currency=currency,
            verdict=verdict.value,
            basis=basis,
            node_selector=selector(part.pod.placement),
        )

    @cached_property
    def _tiers(self) -> dict[str, TierRow]:
        return {row.name: row for row in tier_rows(visibility=EVERYTHING) if not row.builtin}

    @cached_property
    def _offers(self) -> list[GpuOffer]:
        """What the tiers offer that let the team in, and whose nodes offer all the same."""
        by_tier: dict[str, dict[tuple[object, ...], GpuOffer]] = {}
        for node in self._sizes.nodes:
            for resource, units in node.allocatable.items():
                if units > 0 and self._sizes.state.is_gpu(resource):
                    tier = tier_of(resource, node.labels, self._sizes.rules)
                    offer = _offer(tier, resource, node.labels, self._tiers.get(tier))
                    kind = (resource, offer.gpu_model, offer.capacity_type, offer.share)
                    by_tier.setdefault(tier, {})[kind] = offer
        return [
            next(iter(offers.values()))
            for tier, offers in sorted(by_tier.items())
            # A tier of unlike nodes promises nothing about the one that the pod would get.
            if len(offers) == 1 and self._lets_in(tier)
        ]

    def _lets_in(self, tier: str) -> bool:
        row = self._tiers.get(tier)
        return row is not None and (not row.allowed_teams or self._team in row.allowed_teams)


def _offer(tier: str, resource: str, labels: Mapping[str, str], row: TierRow | None) -> GpuOffer:
    share = unit_weight(resource, labels)
    return GpuOffer(
        tier=tier,
        resource=resource,
        gpu_model=gpu_model(labels),
        capacity_type=capacity_type(labels).value,
        share=share,
        memory_mib=unit_memory_mib(resource, labels, share),
        is_part=bool(mig_profile(resource, labels)) or is_shared(resource, labels),
        node_selector={} if row is None else row.node_selector,
    )
