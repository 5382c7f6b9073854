"""Services that are scaled for their peak all day, held against the pattern of their days."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil

from apps.costs.domain.recommendations import patches
from apps.costs.domain.recommendations.evidence import WorkloadEvidence
from apps.costs.domain.recommendations.gpus import HEADROOM
from apps.costs.domain.recommendations.recommendation import (
    Confidence,
    Recommendation,
    RecommendationKind,
    Saving,
    at_most,
    by_evidence,
    per_month,
)

SERVICES = frozenset({"Deployment", "StatefulSet", "ReplicaSet", "InferenceService", "RayService"})
LEAST_SHARE = 0.1
"""Replicas are to be changed only where a tenth of what is held becomes free."""
HOURS = 24
_HAIR = 1e-9


@dataclass(frozen=True, slots=True)
class ServiceEvidence:
    """A service by local hour of the day, over several days.

    `held` and `active` have GPU-equivalents for each hour (0..23), one for each day; `per_replica`
    is what one replica holds.
    """

    of: WorkloadEvidence
    per_replica: float
    held: Mapping[int, Sequence[float]]
    active: Mapping[int, Sequence[float]]


def scale_to_demand(one: ServiceEvidence) -> Recommendation | None:
    """Fewer replicas would have done the work at some hours of every day.

    Needed at an hour is the most that was active at it on any day, with headroom, in whole
    replicas and at least one.
    """
    if one.of.owner_kind not in SERVICES or not one.of.is_enough or one.per_replica <= 0:
        return None
    if set(one.held) != set(range(HOURS)):
        return None
    needed = [_needed(one, hour) for hour in range(HOURS)]
    freed = sum(
        max(0.0, amount - needed[hour] * one.per_replica)
        for hour in range(HOURS)
        for amount in one.held[hour]
    )
    whole = sum(map(sum, one.held.values()))
    if freed < LEAST_SHARE * whole:
        return None
    confidence, reason = at_most(
        Confidence.MEDIUM,
        "a mean of an hour hides short peaks",
        by_evidence(days=one.of.days_seen, coverage=one.of.coverage),
    )
    # The pattern is of fewer days than the workload's evidence: its waste is put to that.
    scaled = freed * one.of.gpu_hours / whole
    return Recommendation(
        kind=RecommendationKind.SCALE_TO_DEMAND,
        subject=one.of.subject,
        change=f"Run no more replicas than the work of the hour needs: {_spans(needed)}.",
        saved=Saving(per_month(scaled, one.of.days), one.of.price_per_gpu_hour),
        currency=one.of.currency,
        confidence=confidence,
        reason=reason,
        evidence=one.of.figures()
        | {
            "most_replicas_held": round(max(map(max, one.held.values())) / one.per_replica, 2),
            "most_replicas_needed": max(needed),
            "freed_gpu_hours": round(scaled, 3),
        },
        patch=patches.scaled_object(one.of.subject, needed),
        avoids=one.of.share_of_waste(scaled),
    ).against(one.of.cell)


def _needed(one: ServiceEvidence, hour: int) -> int:
    most = max(one.active.get(hour, ()), default=0.0)
    return max(1, ceil(most * HEADROOM / one.per_replica - _HAIR))


def _spans(needed: Sequence[int]) -> str:
    """Write replicas by hour of the day: `1 from 20:00 to 08:00; 4 from 08:00 to 20:00`."""
    if len(set(needed)) == 1:
        return f"at most {needed[0]} all day"
    starts = [hour for hour in range(HOURS) if needed[hour] != needed[hour - 1]]
    ends = [*starts[1:], starts[0]]
    return "; ".join(
        f"{needed[start]} from {start:02d}:00 to {end:02d}:00"
        for start, end in zip(starts, ends, strict=True)
    )
