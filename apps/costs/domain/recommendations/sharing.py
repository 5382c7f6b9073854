"""Rules about having less than a card: a MIG profile, a shared tier, nothing while idle."""

from apps.clusters.domain.mig import geometry, part_of
from apps.clusters.domain.tiers import Sharing, same_model
from apps.costs.domain.recommendations import patches
from apps.costs.domain.recommendations.evidence import Offers, SharedTier, WorkloadEvidence
from apps.costs.domain.recommendations.gpus import HEADROOM
from apps.costs.domain.recommendations.recommendation import (
    Confidence,
    Kind,
    Recommendation,
    at_most,
    by_evidence,
    saving,
)

MIG_MEMORY_KEPT = 0.95
"""Which part of its slices' memory a MIG device really has (1g.10gb of 80 GB: 9,728 MiB)."""
BURSTY_FROM_IDLE = 0.5
IDLE_NOW_HOURS = 24.0
LOOKED_BACK_HOURS = 168.0
"""How far back is looked for when a notebook became idle."""
MIB_PER_GB = 1024.0


def mig_profile(one: WorkloadEvidence, offers: Offers) -> Recommendation | None:
    """A MIG profile holds its peak memory and its 95th percentile of activity, with headroom.

    Of all that fit, the one with the fewest compute slices, then memory slices. One that no tier
    offers yet is recommended with low confidence: somebody has to cut a card first.
    """
    part = part_of(one.gpu_model)
    if one.sharing is not Sharing.EXCLUSIVE or one.units != 1 or part is None:
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
        kind=Kind.MIG_PROFILE,
        subject=one.subject,
        change=f"Ask for one nvidia.com/mig-{profile} instead of a whole {one.gpu_model}.",
        saving_per_month=saving(one.gpu_hours_per_month * (1 - share), one.price_per_gpu_hour),
        currency=one.currency,
        confidence=confidence,
        reason=reason,
        evidence=one.figures() | {"profile": profile, "profile_share": round(share, 4)},
        patch=patches.limits(f"nvidia.com/mig-{profile}", 1),
    )


def shared_tier(one: WorkloadEvidence, offers: Offers) -> Recommendation | None:
    """A notebook has a card of its own and is idle half of the time or more: share one.

    The smallest share that holds its peak memory, which no sharer is kept from exceeding.
    """
    if one.sharing is not Sharing.EXCLUSIVE or one.units != 1 or not one.is_notebook:
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
        kind=Kind.SHARED_TIER,
        subject=one.subject,
        change=f"Move to the shared tier {best.tier} (1/{round(1 / best.share)} of a card).",
        saving_per_month=saving(freed, one.price_per_gpu_hour),
        currency=one.currency,
        confidence=confidence,
        reason=reason,
        evidence=one.figures() | {"idle_ratio": round(one.idle_ratio, 4)},
        patch=patches.limits(best.resource, 1, best.node_selector),
    )


def idle_notebook(one: WorkloadEvidence, _: Offers) -> Recommendation | None:
    """A notebook that has done nothing for a day: stop it, and have idle ones stopped.

    It saves what it held while idle, no more: while it is used it would run as before.
    """
    if not one.is_notebook or one.idle_hours_now < IDLE_NOW_HOURS:
        return None
    confidence, reason = by_evidence(days=one.days_seen, coverage=one.coverage)
    return Recommendation(
        kind=Kind.STOP_IDLE_NOTEBOOK,
        subject=one.subject,
        change=f"Stop it: it has been idle for {_how_long(one.idle_hours_now)}. Stopping "
        "notebooks after some idle hours would do so by itself.",
        saving_per_month=saving(one.gpu_hours_per_month * one.idle_ratio, one.price_per_gpu_hour),
        currency=one.currency,
        confidence=confidence,
        reason=reason,
        evidence=one.figures()
        | {
            "idle_ratio": round(one.idle_ratio, 4),
            "idle_hours_now": round(one.idle_hours_now, 1),
        },
        patch=patches.stop(one.subject),
    )


def _how_long(hours: float) -> str:
    return f"{hours:.0f} hours" if hours < LOOKED_BACK_HOURS else "a week or longer"


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
