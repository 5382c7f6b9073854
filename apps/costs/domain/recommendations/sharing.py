"""Rules about having less than a card: a MIG profile, a shared tier, nothing while idle."""

from decimal import Decimal

from apps.clusters.domain.devices.mig import geometry, part_of
from apps.clusters.domain.tiers import GpuSharing, model_key, same_model
from apps.costs.domain.costing import Cause
from apps.costs.domain.recommendations import patches
from apps.costs.domain.recommendations.evidence import (
    CardPart,
    Offers,
    SharedTier,
    WorkloadEvidence,
)
from apps.costs.domain.recommendations.gpus import HEADROOM, tflops
from apps.costs.domain.recommendations.recommendation import (
    Confidence,
    Recommendation,
    RecommendationKind,
    Saving,
    at_most,
    by_evidence,
)

MIG_MEMORY_KEPT = 0.95
"""Which part of its slices' memory a MIG device really has (1g.10gb of 80 GB: 9,728 MiB)."""
BURSTY_FROM_IDLE = 0.5
LOW_ACTIVITY = 0.5
"""Up to this 95th percentile of activity a whole card has more than is needed."""
IDLE_NOW_HOURS = 24.0
LOOKBACK_HOURS = 168.0
"""How far back is looked for when a notebook became idle."""
MIB_PER_GB = 1024.0


def mig_profile(one: WorkloadEvidence, offers: Offers) -> Recommendation | None:
    """A MIG profile holds its peak memory and its 95th percentile of activity, with headroom.

    Of all that fit, the one with the fewest compute slices, then memory slices. One that no tier
    offers yet is recommended with low confidence: somebody has to cut a card first.
    """
    part = part_of(one.gpu_model)
    if one.sharing is not GpuSharing.EXCLUSIVE or one.units != 1 or part is None:
        return None
    if one.memory_peak_mib is None or one.p95_activity is None:
        return None
    fitting = [
        (cut.compute / cut.compute_total, cut.memory, name)
        for name, cut in part.profiles.items()
        if cut.compute < cut.compute_total and _holds(one, name)
    ]
    if not fitting:
        return None
    share, _, profile = min(fitting)
    confidence, reason = _mig_confidence(one, share, offered=_offered(offers, one, profile))
    return Recommendation(
        kind=RecommendationKind.MIG_PROFILE,
        subject=one.subject,
        change=f"Ask for one nvidia.com/mig-{profile} instead of a whole {one.gpu_model}.",
        saved=Saving(one.gpu_hours_per_month * (1 - share), one.price_per_gpu_hour),
        currency=one.currency,
        confidence=confidence,
        reason=reason,
        evidence=one.figures() | {"profile": profile, "profile_share": round(share, 4)},
        patch=patches.limits(f"nvidia.com/mig-{profile}", 1),
        avoids=one.share_of_waste(one.gpu_hours * (1 - share)),
    )


def shared_tier(one: WorkloadEvidence, offers: Offers) -> Recommendation | None:
    """A notebook has a card of its own and is idle half of the time or more: share one.

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
    confidence, reason = at_most(limit, why, by_evidence(days=one.days_seen, coverage=one.coverage))
    freed = one.gpu_hours_per_month * (1 - best.share)
    return Recommendation(
        kind=RecommendationKind.SHARED_TIER,
        subject=one.subject,
        change=f"Move to the shared tier {best.tier} (1/{round(1 / best.share)} of a card).",
        saved=Saving(freed, one.price_per_gpu_hour),
        currency=one.currency,
        confidence=confidence,
        reason=reason,
        evidence=one.figures() | {"idle_ratio": round(one.idle_ratio, 4)},
        patch=patches.limits(best.resource, 1, best.node_selector),
        avoids=one.share_of_waste(one.gpu_hours * (1 - best.share)),
    )


def other_model(one: WorkloadEvidence, offers: Offers) -> Recommendation | None:
    """Low activity and little memory: a part of a card of another model holds both, and is cheaper.

    Speeds are those of data sheets. Memory must be known: it is what a smaller part cannot give.
    """
    price = one.price_per_gpu_hour
    if one.sharing is not GpuSharing.EXCLUSIVE or one.units != 1 or price is None:
        return None
    fitting = [part for part in offers.parts if _fits_on(one, part, price)]
    if not fitting:
        return None
    best = min(fitting, key=lambda part: (_paid(part), part.tier))
    paid = _paid(best)
    confidence, reason = at_most(
        Confidence.MEDIUM,
        "speeds are those of data sheets, not of this work",
        by_evidence(days=one.days_seen, coverage=one.coverage),
    )
    return Recommendation(
        kind=RecommendationKind.MIG_PROFILE if best.is_mig else RecommendationKind.SHARED_TIER,
        subject=one.subject,
        change=f"Move from a whole {one.gpu_model} to {100 * best.share:.0f} % of a "
        f"{best.gpu_model} (tier {best.tier}).",
        saved=Saving(one.gpu_hours_per_month, price - paid),
        currency=one.currency,
        confidence=confidence,
        reason=reason,
        evidence=one.figures()
        | {
            "expected_p95_activity": round(_expected_on(one, best), 4),
            "memory_there_mib": best.memory_mib,
            "price_there": best.price_per_gpu_hour,
        },
        patch=patches.limits(best.resource, 1, best.node_selector),
        avoids=one.share_of_waste(one.gpu_hours * float(1 - paid / price)),
    )


def _fits_on(one: WorkloadEvidence, part: CardPart, price: Decimal) -> bool:
    if one.memory_peak_mib is None or one.p95_activity is None or part.currency != one.currency:
        return False
    if one.p95_activity > LOW_ACTIVITY:
        return False
    if model_key(part.gpu_model) == model_key(one.gpu_model) or not 0 < part.share < 1:
        return False
    if tflops(one.gpu_model) is None or tflops(part.gpu_model) is None:
        return False
    return (
        _paid(part) < price
        and one.memory_peak_mib * HEADROOM <= part.memory_mib
        and _expected_on(one, part) * HEADROOM <= 1.0
    )


def _paid(part: CardPart) -> Decimal:
    """Return what an hour of the part costs."""
    return part.price_per_gpu_hour * Decimal(repr(part.share))


def _expected_on(one: WorkloadEvidence, part: CardPart) -> float:
    """Return the 95th percentile of activity to be expected on a part of another card."""
    ratio = (tflops(one.gpu_model) or 0.0) / (tflops(part.gpu_model) or 1.0)
    return (one.p95_activity or 0.0) * ratio / part.share


def idle_notebook(one: WorkloadEvidence, _: Offers) -> Recommendation | None:
    """A notebook that has done nothing for a day: stop it, and have idle ones stopped.

    It saves what it held while idle, no more: while it is used it would run as before.
    """
    if not one.is_notebook or one.idle_hours_now < IDLE_NOW_HOURS:
        return None
    confidence, reason = by_evidence(days=one.days_seen, coverage=one.coverage)
    return Recommendation(
        kind=RecommendationKind.STOP_IDLE_NOTEBOOK,
        subject=one.subject,
        change=f"Stop it: it has been idle for {_how_long(one.idle_hours_now)}. Stopping "
        "notebooks after some idle hours would do so by itself.",
        saved=Saving(one.gpu_hours_per_month * one.idle_ratio, one.price_per_gpu_hour),
        currency=one.currency,
        confidence=confidence,
        reason=reason,
        evidence=one.figures()
        | {
            "idle_ratio": round(one.idle_ratio, 4),
            "idle_hours_now": round(one.idle_hours_now, 1),
        },
        patch=patches.stop(one.subject),
        avoids={Cause.IDLE.value: 1.0},
    )


def _how_long(hours: float) -> str:
    return f"{hours:.0f} hours" if hours < LOOKBACK_HOURS else "a week or longer"


def _holds(one: WorkloadEvidence, profile: str) -> bool:
    """Say whether a profile of its card holds a workload, headroom included."""
    cut, part = geometry(profile, one.gpu_model), part_of(one.gpu_model)
    if cut is None or part is None:
        return False
    card = one.card_memory_mib or part.board_gb * MIB_PER_GB
    memory = card * cut.memory / cut.memory_total * MIG_MEMORY_KEPT
    share = cut.compute / cut.compute_total
    return (one.memory_peak_mib or 0.0) * HEADROOM <= memory and (
        one.p95_activity or 0.0
    ) * HEADROOM <= share


def _offered(offers: Offers, one: WorkloadEvidence, profile: str) -> bool:
    return any(
        profile in profiles and same_model(model, one.gpu_model)
        for model, profiles in offers.mig_profiles.items()
    )


def _mig_confidence(
    one: WorkloadEvidence, share: float, *, offered: bool
) -> tuple[Confidence, str]:
    found = by_evidence(days=one.days_seen, coverage=one.coverage)
    if not offered:
        return at_most(Confidence.LOW, "no tier offers this profile yet", found)
    if (one.p95_activity or 0.0) > share / 2:
        return at_most(Confidence.MEDIUM, "it would use more than half of the profile", found)
    return found


def _has_room(one: WorkloadEvidence, tier: SharedTier) -> bool:
    if not 0 < tier.share < 1 or not same_model(tier.gpu_model, one.gpu_model):
        return False
    if one.memory_peak_mib is None or one.card_memory_mib is None:
        return one.memory_peak_mib is None
    return one.memory_peak_mib * HEADROOM <= one.card_memory_mib * tier.share
