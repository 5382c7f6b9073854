"""Rules for fewer, smaller, cheaper or shared GPUs."""

import re
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

from apps.clusters.domain.devices.mig import geometry, part_of
from apps.clusters.domain.names import JOBS
from apps.clusters.domain.tiers import CapacityType, GpuSharing, model_key, same_model
from apps.costs.domain.costing import Cause
from apps.costs.domain.recommendations import patches
from apps.costs.domain.recommendations.evidence import (
    GpuPart,
    ModelOffer,
    Offers,
    SharedTier,
    SpotPool,
    WorkloadEvidence,
)
from apps.costs.domain.recommendations.recommendation import (
    Confidence,
    Finding,
    PodRequest,
    Rating,
    RecommendationKind,
    Saving,
)

NEVER_ACTIVE_BELOW = 0.01
"""A GPU whose best half-hour is under this did nothing: counters of idle GPUs flicker."""
HEADROOM = 1.2
"""How much more than its peak a workload is left."""
FULL_AT = 0.8
"""A smaller GPU is not recommended if its utilization would be above this."""
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
MIB_PER_GB = 1024.0
MIG_MEMORY_SHARE = 0.95
"""Which part of its slices' memory a MIG device really has (1g.10gb of 80 GB: 9,728 MiB)."""
BURSTY_FROM_IDLE = 0.5
LOW_ACTIVITY = 0.5
"""Up to this 95th percentile of activity a whole GPU has more than is needed."""
IDLE_NOW_HOURS = 24.0
LOOKBACK_HOURS = 168.0
"""How far back is looked for when a notebook became idle."""


def fewer_gpus(one: WorkloadEvidence, _: Offers) -> Finding | None:
    """Some GPUs of each pod never did anything: ask for fewer.

    Only where every GPU of a pod is known by itself, and one at least works.
    """
    # Fewer known devices than requested: the silent one may merely have no metrics.
    if one.units < 2 or len(one.gpus) != one.units:
        return None
    never = sum(highest < NEVER_ACTIVE_BELOW for highest in one.gpus)
    if not 0 < never < one.units:
        return None
    left = one.units - never
    return Finding(
        kind=RecommendationKind.FEWER_GPUS,
        subject=one.subject,
        change=f"Ask for {left} GPU{'s' * (left > 1)} per pod instead of {one.units}: {never} of "
        "them never did anything.",
        saved=Saving(one.gpu_hours_per_month * never / one.units, one.price_per_gpu_hour),
        currency=one.currency,
        rating=one.rating,
        evidence=one.figures() | {"gpus_per_pod": one.units, "gpus_never_active": never},
        patch=patches.limits(one.resource, left),
        avoids=one.share_of_waste(one.gpu_hours * never / one.units),
        change_values=PodRequest(one.subject.tier, one.resource, left, 1.0, {}),
    )


def smaller_model(one: WorkloadEvidence, offers: Offers) -> Finding | None:
    """A cheaper model would hold its memory, with a utilization of at most FULL_AT.

    Which speed two models have to each other is taken from data sheets, so it is never certain.
    """
    price, peak, p95 = one.price_per_gpu_hour, one.memory_peak_mib, one.p95_activity
    speed = tflops(one.gpu_model)
    if one.sharing is not GpuSharing.EXCLUSIVE or None in (price, peak, p95, speed):
        return None
    fitting = _without_needless_spot([model for model in offers.models if _fits_model(one, model)])
    if not fitting or price is None:
        return None
    best = min(
        fitting, key=lambda model: (_price_on_model(one, model), model.gpu_model, model.tier)
    )
    return Finding(
        kind=RecommendationKind.SMALLER_MODEL,
        subject=one.subject,
        change=f"Move from {one.gpu_model} to {best.gpu_model}{_model_place(best)}.",
        saved=Saving(one.gpu_hours_per_month, price - _price_on_model(one, best)),
        **_by_data_sheets(
            one, _expected_on_model(one, best), best.gpu_memory_mib, best.price_per_gpu_hour
        ),
        patch=_patch_for_model(one, best),
        # What is paid less, in hours of the model it leaves.
        avoids=one.share_of_waste(one.gpu_hours * float(1 - _price_on_model(one, best) / price)),
    )


def spot(one: WorkloadEvidence, offers: Offers) -> Finding | None:
    """Work that can be started again runs on demand: run it on spot, where there is any.

    Owned GPUs are paid for with or without this work: leaving them saves nothing.
    """
    price, pool = one.price_per_gpu_hour, _spot_pool(one, offers)
    # Nodes that say nothing of how they are paid for are priced on demand unless they are owned.
    paid = (CapacityType.ON_DEMAND, CapacityType.UNKNOWN)
    if one.owned or one.owner_kind not in RESTARTABLE or one.capacity_type not in paid:
        return None
    if price is None or pool is None or pool.price_per_gpu_hour * SPOT_REDO >= price:
        return None
    there = pool.price_per_gpu_hour
    where = f" (tier {pool.tier})" if pool.tier not in ("", one.subject.tier) else ""
    return Finding(
        kind=RecommendationKind.SPOT,
        subject=one.subject,
        change=f"Run this {one.owner_kind} on spot capacity{where}, with checkpoints.",
        # After an interruption a part of the work is done again, and paid again.
        saved=Saving(one.gpu_hours_per_month, price - there * SPOT_REDO),
        currency=one.currency,
        rating=_restartable(one),
        evidence=one.figures()
        | {
            "spot_price_per_gpu_hour": there,
            "restarts": one.restarts,
            "finished_after_restart": one.finished_after_restart,
        },
    )


def _patch_for_model(one: WorkloadEvidence, model: ModelOffer) -> str:
    if not model.resource or model.resource == one.resource:
        return patches.selector(model.node_selector)
    return patches.limits(model.resource, one.units, model.node_selector)


def tflops(gpu_model: str) -> float | None:
    """Return a model's speed by its data sheet; None for one that is not known here."""
    key = model_key(gpu_model)
    # In the table's order: longer words stand first, as l40s before l4.
    return next((speed for word, speed in _TFLOPS if word in key), None)


def gpu_memory_mib(gpu_model: str) -> float | None:
    """Return the memory of a GPU model; None where it is unknown."""
    part, key = part_of(gpu_model), model_key(gpu_model)
    if part is not None:
        return part.board_gb * MIB_PER_GB
    # Before the table: boards of one model come in several sizes, and such a name tells which.
    named = _NAMED_GB.search(key)
    if named is not None:
        return int(named[1]) * MIB_PER_GB
    known = next((size for word, size in _MEMORY_GB if word in key), None)
    return None if known is None else known * MIB_PER_GB


def _fits_model(one: WorkloadEvidence, model: ModelOffer) -> bool:
    price, peak = one.price_per_gpu_hour, one.memory_peak_mib
    if price is None or peak is None or tflops(model.gpu_model) is None:
        return False
    return (
        model_key(model.gpu_model) != model_key(one.gpu_model)
        # Prices in two currencies cannot be compared: the portal knows no exchange rate.
        and model.currency == one.currency
        and (model.capacity_type != CapacityType.SPOT or one.owner_kind in RESTARTABLE)
        and _price_on_model(one, model) < price
        and model.gpu_memory_mib >= peak * HEADROOM
        and _expected_on_model(one, model) <= FULL_AT
    )


def _expected_on_model(one: WorkloadEvidence, model: ModelOffer) -> float:
    """Return the 95th percentile of activity to be expected on another model."""
    return (
        (one.p95_activity or 0.0)
        * (tflops(one.gpu_model) or 0.0)
        / (tflops(model.gpu_model) or 1.0)
    )


def _price_on_model(one: WorkloadEvidence, model: ModelOffer) -> Decimal:
    """Return what an hour of its work now costs there: on spot a part of it is done again."""
    on_spot = str(CapacityType.SPOT)
    if model.capacity_type == on_spot and one.capacity_type != on_spot:
        return model.price_per_gpu_hour * SPOT_REDO
    return model.price_per_gpu_hour


def _without_needless_spot(models: Sequence[ModelOffer]) -> list[ModelOffer]:
    """Return models without those on spot that can be had otherwise: spot is another matter."""
    lasting = {
        model_key(model.gpu_model) for model in models if model.capacity_type != CapacityType.SPOT
    }
    return [
        model
        for model in models
        if model.capacity_type != CapacityType.SPOT or model_key(model.gpu_model) not in lasting
    ]


def _model_place(model: ModelOffer) -> str:
    on_spot = "on spot capacity, with checkpoints" * (model.capacity_type == CapacityType.SPOT)
    named = ", ".join(filter(None, (f"tier {model.tier}" if model.tier else "", on_spot)))
    return f" ({named})" if named else ""


def _spot_pool(one: WorkloadEvidence, offers: Offers) -> SpotPool | None:
    """Return the cheapest spot pool with GPUs like its own, priced in the same currency."""
    alike = [
        pool
        for pool in offers.spot
        if model_key(pool.gpu_model) == model_key(one.gpu_model)
        # A share on spot says nothing of a whole GPU on spot.
        and pool.sharing is one.sharing
        and pool.currency == one.currency
    ]
    return min(alike, key=lambda pool: (pool.price_per_gpu_hour, pool.tier), default=None)


def _restartable(one: WorkloadEvidence) -> Rating:
    found = one.rating
    if one.finished_after_restart:
        return found.at_most(Confidence.MEDIUM, "it has finished after restarts before")
    if one.mean_run_hours is not None and one.mean_run_hours <= 2:
        return found.at_most(Confidence.MEDIUM, "its runs are short")
    return found.at_most(Confidence.LOW, "whether it can go on after a restart is not known")


def mig_profile(one: WorkloadEvidence, offers: Offers) -> Finding | None:
    """A MIG profile holds its peak memory and its 95th percentile of activity, with headroom.

    Of all profiles that fit, the one with the fewest compute slices, then memory slices. A profile
    that no tier offers yet is recommended with low confidence: an administrator has to partition a
    GPU first.
    """
    part = part_of(one.gpu_model)
    if one.sharing is not GpuSharing.EXCLUSIVE or one.units != 1 or part is None:
        return None
    if one.memory_peak_mib is None or one.p95_activity is None:
        return None
    fitting = [
        (cut.compute / cut.compute_total, cut.memory, name)
        for name, cut in part.profiles.items()
        if cut.compute < cut.compute_total and _fits_profile(one, name)
    ]
    if not fitting:
        return None
    share, _, profile = min(fitting)
    resource, tier = f"nvidia.com/mig-{profile}", _offering(offers, one, profile)
    return Finding(
        kind=RecommendationKind.MIG_PROFILE,
        subject=one.subject,
        change=f"Ask for one {resource} instead of a whole {one.gpu_model}.",
        saved=Saving(one.gpu_hours_per_month * (1 - share), one.price_per_gpu_hour),
        currency=one.currency,
        rating=_mig_confidence(one, share, offered=bool(tier)),
        evidence=one.figures() | {"profile": profile, "profile_share": round(share, 4)},
        patch=patches.limits(resource, 1),
        avoids=one.share_of_waste(one.gpu_hours * (1 - share)),
        change_values=PodRequest(tier, resource, 1, share, {}),
    )


def shared_tier(one: WorkloadEvidence, offers: Offers) -> Finding | None:
    """A notebook that has a GPU of its own and is idle half of the time or more: share one.

    The smallest share that holds its peak memory, which no sharer is kept from exceeding.
    """
    if one.sharing is not GpuSharing.EXCLUSIVE or one.units != 1 or not one.is_notebook:
        return None
    if one.idle_ratio < BURSTY_FROM_IDLE:
        return None
    fitting = [tier for tier in offers.shared_tiers if _has_room(one, tier)]
    if not fitting:
        return None
    best = min(fitting, key=lambda tier: (tier.share, tier.tier))
    why = (
        "its memory is not known"
        if one.memory_peak_mib is None
        else "sharers can be in each other's way"
    )
    limit = Confidence.LOW if one.memory_peak_mib is None else Confidence.MEDIUM
    freed = one.gpu_hours_per_month * (1 - best.share)
    return Finding(
        kind=RecommendationKind.SHARED_TIER,
        subject=one.subject,
        change=f"Move to the shared tier {best.tier} (1/{round(1 / best.share)} of a GPU).",
        saved=Saving(freed, one.price_per_gpu_hour),
        currency=one.currency,
        rating=one.rating.at_most(limit, why),
        evidence=one.figures() | {"idle_ratio": round(one.idle_ratio, 4)},
        patch=patches.limits(best.resource, 1, best.node_selector),
        avoids=one.share_of_waste(one.gpu_hours * (1 - best.share)),
        change_values=_one_unit(best),
    )


def _one_unit(of: SharedTier | GpuPart) -> PodRequest:
    return PodRequest(of.tier, of.resource, 1, of.share, dict(of.node_selector))


def _by_data_sheets(
    one: WorkloadEvidence, p95_activity: float, memory_mib: float | None, price: Decimal
) -> dict[str, Any]:
    """Return the parts of a finding that are alike for whatever other GPU work would move to."""
    there = {
        "expected_p95_activity": round(p95_activity, 4),
        "memory_there_mib": memory_mib,
        "price_there": price,
    }
    unsure = "speeds are those of data sheets, not of this work"
    return {
        "currency": one.currency,
        "rating": one.rating.at_most(Confidence.MEDIUM, unsure),
        "evidence": one.figures() | there,
    }


def other_model(one: WorkloadEvidence, offers: Offers) -> Finding | None:
    """Low activity and little memory: a part of a GPU of another model holds both, and is cheaper.

    Speeds are those of data sheets. Memory must be known: it is what a smaller part cannot give.
    """
    price = one.price_per_gpu_hour
    if one.sharing is not GpuSharing.EXCLUSIVE or one.units != 1 or price is None:
        return None
    fitting = [part for part in offers.parts if _fits_part(one, part, price)]
    if not fitting:
        return None
    best = min(fitting, key=lambda part: (_price_of_part(part), part.tier))
    paid = _price_of_part(best)
    return Finding(
        kind=RecommendationKind.MIG_PROFILE if best.is_mig else RecommendationKind.SHARED_TIER,
        subject=one.subject,
        change=f"Move from a whole {one.gpu_model} to {100 * best.share:.0f} % of a "
        f"{best.gpu_model} (tier {best.tier}).",
        saved=Saving(one.gpu_hours_per_month, price - paid),
        **_by_data_sheets(
            one, _expected_on_part(one, best), best.memory_mib, best.price_per_gpu_hour
        ),
        patch=patches.limits(best.resource, 1, best.node_selector),
        avoids=one.share_of_waste(one.gpu_hours * float(1 - paid / price)),
        change_values=_one_unit(best),
    )


def _fits_part(one: WorkloadEvidence, part: GpuPart, price: Decimal) -> bool:
    if one.memory_peak_mib is None or one.p95_activity is None or part.currency != one.currency:
        return False
    if one.p95_activity > LOW_ACTIVITY:
        return False
    if model_key(part.gpu_model) == model_key(one.gpu_model) or not 0 < part.share < 1:
        return False
    if tflops(one.gpu_model) is None or tflops(part.gpu_model) is None:
        return False
    return (
        _price_of_part(part) < price
        and one.memory_peak_mib * HEADROOM <= part.memory_mib
        and _expected_on_part(one, part) * HEADROOM <= 1.0
    )


def _price_of_part(part: GpuPart) -> Decimal:
    """Return what an hour of the part costs."""
    return part.price_per_gpu_hour * Decimal(repr(part.share))


def _expected_on_part(one: WorkloadEvidence, part: GpuPart) -> float:
    """Return the 95th percentile of activity to be expected on a part of another GPU."""
    ratio = (tflops(one.gpu_model) or 0.0) / (tflops(part.gpu_model) or 1.0)
    return (one.p95_activity or 0.0) * ratio / part.share


def idle_notebook(one: WorkloadEvidence, _: Offers) -> Finding | None:
    """A notebook that has done nothing for a day: stop it, and have idle ones stopped.

    It saves what it held while idle, no more: while it is used it would run as before.
    """
    hours = one.idle_hours_now
    if not one.is_notebook or hours < IDLE_NOW_HOURS:
        return None
    # Hours further back are not read, so it may have been idle for longer.
    lasted = f"{hours:.0f} hours" if hours < LOOKBACK_HOURS else "a week or longer"
    return Finding(
        kind=RecommendationKind.STOP_IDLE_NOTEBOOK,
        subject=one.subject,
        change=f"Stop it: it has been idle for {lasted}. Stopping "
        "notebooks after some idle hours would do so by itself.",
        saved=Saving(one.gpu_hours_per_month * one.idle_ratio, one.price_per_gpu_hour),
        currency=one.currency,
        rating=one.rating,
        evidence=one.figures()
        | {
            "idle_ratio": round(one.idle_ratio, 4),
            "idle_hours_now": round(hours, 1),
        },
        patch=patches.stop(one.subject),
        avoids={Cause.IDLE.value: 1.0},
    )


def _fits_profile(one: WorkloadEvidence, profile: str) -> bool:
    """Say whether a profile of its GPU holds a workload, headroom included."""
    cut, part = geometry(profile, one.gpu_model), part_of(one.gpu_model)
    if cut is None or part is None:
        return False
    gpu_memory = one.gpu_memory_mib or part.board_gb * MIB_PER_GB
    memory = gpu_memory * cut.memory / cut.memory_total * MIG_MEMORY_SHARE
    share = cut.compute / cut.compute_total
    return (one.memory_peak_mib or 0.0) * HEADROOM <= memory and (
        one.p95_activity or 0.0
    ) * HEADROOM <= share


def _offering(offers: Offers, one: WorkloadEvidence, profile: str) -> str:
    """Return the tier that has the profile on its GPU model; empty where none does."""
    own = (
        tiers for model, tiers in offers.mig_profiles.items() if same_model(model, one.gpu_model)
    )
    return next((tiers[profile] for tiers in own if profile in tiers), "")


def _mig_confidence(one: WorkloadEvidence, share: float, *, offered: bool) -> Rating:
    found = one.rating
    if not offered:
        return found.at_most(Confidence.LOW, "no tier offers this profile yet")
    if (one.p95_activity or 0.0) > share / 2:
        return found.at_most(Confidence.MEDIUM, "it would use more than half of the profile")
    return found


def _has_room(one: WorkloadEvidence, tier: SharedTier) -> bool:
    if not 0 < tier.share < 1 or not same_model(tier.gpu_model, one.gpu_model):
        return False
    if one.memory_peak_mib is None or one.gpu_memory_mib is None:
        # An unknown peak is offered with low confidence; a known one needs a known GPU to fit into.
        return one.memory_peak_mib is None
    return one.memory_peak_mib * HEADROOM <= one.gpu_memory_mib * tier.share
