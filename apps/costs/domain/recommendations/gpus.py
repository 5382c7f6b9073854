"""Rules about which GPUs a workload has: how many, of which model, and how they are paid for."""

import re
from collections.abc import Sequence
from decimal import Decimal

from apps.clusters.domain.devices.mig import part_of
from apps.clusters.domain.tiers import CapacityType, GpuSharing, model_key
from apps.clusters.domain.workload_families import JOBS
from apps.costs.domain.recommendations import patches
from apps.costs.domain.recommendations.evidence import Model, Offers, SpotPool, WorkloadEvidence
from apps.costs.domain.recommendations.recommendation import (
    Confidence,
    Recommendation,
    RecommendationKind,
    Saving,
    at_most,
    by_evidence,
)

NEVER_ACTIVE_BELOW = 0.01
"""A GPU whose best half-hour is under this did nothing: counters of idle cards flicker."""
HEADROOM = 1.2
"""How much more than its peak a workload is left."""
FULL_AT = 0.8
"""A smaller card is not recommended if it would be busier than this."""
SPOT_REDO = Decimal("1.1")
"""What is interrupted is done again: a tenth more hours on spot."""
RESTARTABLE = JOBS | {"CronJob"}

# Dense 16-bit tensor TFLOPS of NVIDIA's and AMD's data sheets; the first word that fits.
_TFLOPS: tuple[tuple[str, float], ...] = (
    ("gb200", 2500.0),
    ("b200", 2250.0),
    ("mi300x", 1307.0),
    ("gh200", 989.0),
    ("h200", 989.0),
    ("h100", 989.0),
    ("l40s", 362.0),
    ("a100", 312.0),
    ("l40", 181.0),
    ("a30", 165.0),
    ("a40", 150.0),
    ("v100", 125.0),
    ("a10g", 125.0),
    ("a10", 125.0),
    ("l4", 121.0),
    ("t4", 65.0),
)


# Memory in GB of models whose names do not say it, by their makers' data sheets.
_MEMORY_GB: tuple[tuple[str, int], ...] = (
    ("mi300x", 192),
    ("l40", 48),
    ("a40", 48),
    ("a10", 24),
    ("l4", 24),
    ("t4", 16),
)
_NAMED_GB = re.compile(r"(\d+)gb")
_MIB_PER_GB = 1024.0


def fewer_gpus(one: WorkloadEvidence, _: Offers) -> Recommendation | None:
    """Some GPUs of each pod never did anything: ask for fewer.

    Only where every GPU of a pod is known by itself, and one at least works.
    """
    if one.units < 2 or len(one.gpus) != one.units:
        return None
    never = sum(highest < NEVER_ACTIVE_BELOW for highest in one.gpus)
    if not 0 < never < one.units:
        return None
    left = one.units - never
    confidence, reason = by_evidence(days=one.days_seen, coverage=one.coverage)
    return Recommendation(
        kind=RecommendationKind.FEWER_GPUS,
        subject=one.subject,
        change=f"Ask for {left} GPU{'s' * (left > 1)} per pod instead of {one.units}: {never} of "
        "them never did anything.",
        saved=Saving(one.gpu_hours_per_month * never / one.units, one.price_per_gpu_hour),
        currency=one.currency,
        confidence=confidence,
        reason=reason,
        evidence=one.figures() | {"gpus_per_pod": one.units, "gpus_never_active": never},
        patch=patches.limits(one.resource, left),
        avoids=one.share_of_waste(one.gpu_hours * never / one.units),
    )


def smaller_model(one: WorkloadEvidence, offers: Offers) -> Recommendation | None:
    """A cheaper model would hold its memory and be no more than FULL_AT busy.

    Which speed two models have to each other is taken from data sheets, so it is never certain.
    """
    price, peak, p95 = one.price_per_gpu_hour, one.memory_peak_mib, one.p95_activity
    speed = tflops(one.gpu_model)
    if one.sharing is not GpuSharing.EXCLUSIVE or None in (price, peak, p95, speed):
        return None
    fitting = _without_needless_spot([model for model in offers.models if _fits(one, model)])
    if not fitting or price is None:
        return None
    best = min(fitting, key=lambda model: (_paid(one, model), model.gpu_model, model.tier))
    confidence, reason = at_most(
        Confidence.MEDIUM,
        "speeds are those of data sheets, not of this work",
        by_evidence(days=one.days_seen, coverage=one.coverage),
    )
    return Recommendation(
        kind=RecommendationKind.SMALLER_MODEL,
        subject=one.subject,
        change=f"Move from {one.gpu_model} to {best.gpu_model}{_where(best)}.",
        saved=Saving(one.gpu_hours_per_month, price - _paid(one, best)),
        currency=one.currency,
        confidence=confidence,
        reason=reason,
        evidence=one.figures()
        | {
            "expected_p95_activity": round(_expected(one, best), 4),
            "memory_there_mib": best.card_memory_mib,
            "price_there": best.price_per_gpu_hour,
        },
        patch=_moved(one, best),
        # What is paid less, in hours of the model it leaves.
        avoids=one.share_of_waste(one.gpu_hours * float(1 - _paid(one, best) / price)),
    )


def spot(one: WorkloadEvidence, offers: Offers) -> Recommendation | None:
    """Work that can be started again runs on demand: run it on spot, where there is any.

    Owned cards are paid for whether this work uses them or not: leaving them saves nothing.
    """
    price, pool = one.price_per_gpu_hour, _spot_pool(one, offers)
    paid = (CapacityType.ON_DEMAND, CapacityType.UNKNOWN)
    if one.owned or one.owner_kind not in RESTARTABLE or one.capacity_type not in paid:
        return None
    if price is None or pool is None or pool.price_per_gpu_hour * SPOT_REDO >= price:
        return None
    there = pool.price_per_gpu_hour
    where = f" (tier {pool.tier})" if pool.tier not in ("", one.subject.tier) else ""
    confidence, reason = _restartable(one)
    return Recommendation(
        kind=RecommendationKind.SPOT,
        subject=one.subject,
        change=f"Run this {one.owner_kind} on spot capacity{where}, with checkpoints.",
        saved=Saving(one.gpu_hours_per_month, price - there * SPOT_REDO),
        currency=one.currency,
        confidence=confidence,
        reason=reason,
        evidence=one.figures()
        | {
            "spot_price_per_gpu_hour": there,
            "restarts": one.restarts,
            "finished_after_restart": one.finished_after_restart,
        },
    )


def _moved(one: WorkloadEvidence, model: Model) -> str:
    if not model.resource or model.resource == one.resource:
        return patches.selector(model.node_selector)
    return patches.limits(model.resource, one.units, model.node_selector)


def tflops(gpu_model: str) -> float | None:
    """Return a model's speed by its data sheet; None for one that is not known here."""
    key = model_key(gpu_model)
    return next((speed for word, speed in _TFLOPS if word in key), None)


def card_memory_mib(gpu_model: str) -> float | None:
    """Return the memory of a model's card; None for one whose memory nobody tells."""
    part, key = part_of(gpu_model), model_key(gpu_model)
    if part is not None:
        return part.board_gb * _MIB_PER_GB
    named = _NAMED_GB.search(key)
    if named is not None:
        return int(named[1]) * _MIB_PER_GB
    known = next((size for word, size in _MEMORY_GB if word in key), None)
    return None if known is None else known * _MIB_PER_GB


def _fits(one: WorkloadEvidence, model: Model) -> bool:
    price, peak = one.price_per_gpu_hour, one.memory_peak_mib
    if price is None or peak is None or tflops(model.gpu_model) is None:
        return False
    return (
        model_key(model.gpu_model) != model_key(one.gpu_model)
        and model.currency == one.currency
        and (model.capacity_type != CapacityType.SPOT or one.owner_kind in RESTARTABLE)
        and _paid(one, model) < price
        and model.card_memory_mib >= peak * HEADROOM
        and _expected(one, model) <= FULL_AT
    )


def _expected(one: WorkloadEvidence, model: Model) -> float:
    """Return the 95th percentile of activity to be expected on another model."""
    return (
        (one.p95_activity or 0.0)
        * (tflops(one.gpu_model) or 0.0)
        / (tflops(model.gpu_model) or 1.0)
    )


def _paid(one: WorkloadEvidence, model: Model) -> Decimal:
    """Return what an hour of its work now costs there: on spot a part of it is done again."""
    on_spot = str(CapacityType.SPOT)
    if model.capacity_type == on_spot and one.capacity_type != on_spot:
        return model.price_per_gpu_hour * SPOT_REDO
    return model.price_per_gpu_hour


def _without_needless_spot(models: Sequence[Model]) -> list[Model]:
    """Return models without those on spot that can be had otherwise: spot is another matter."""
    lasting = {
        model_key(model.gpu_model) for model in models if model.capacity_type != CapacityType.SPOT
    }
    return [
        model
        for model in models
        if model.capacity_type != CapacityType.SPOT or model_key(model.gpu_model) not in lasting
    ]


def _where(model: Model) -> str:
    on_spot = "on spot capacity, with checkpoints" * (model.capacity_type == CapacityType.SPOT)
    named = ", ".join(filter(None, (f"tier {model.tier}" if model.tier else "", on_spot)))
    return f" ({named})" if named else ""


def _spot_pool(one: WorkloadEvidence, offers: Offers) -> SpotPool | None:
    """Return the cheapest spot pool with cards like its own, priced in the same currency."""
    alike = [
        pool
        for pool in offers.spot
        if model_key(pool.gpu_model) == model_key(one.gpu_model)
        and pool.sharing is one.sharing
        and pool.currency == one.currency
    ]
    return min(alike, key=lambda pool: (pool.price_per_gpu_hour, pool.tier), default=None)


def _restartable(one: WorkloadEvidence) -> tuple[Confidence, str]:
    found = by_evidence(days=one.days_seen, coverage=one.coverage)
    if one.finished_after_restart:
        return at_most(Confidence.MEDIUM, "it has finished after restarts before", found)
    if one.mean_run_hours is not None and one.mean_run_hours <= 2:
        return at_most(Confidence.MEDIUM, "its runs are short", found)
    return at_most(Confidence.LOW, "whether it can go on after a restart is not known", found)
