"""Rules about idle time: while loading, after the work, until a timeout, and between peaks."""

from collections.abc import Mapping, Sequence
from decimal import Decimal
from math import ceil, fsum

from msgspec import Struct, field

from apps.costs.domain.recommendations import patches
from apps.costs.domain.recommendations.evidence import Evidence, Offers, WorkloadEvidence
from apps.costs.domain.recommendations.recommendation import (
    Confidence,
    Finding,
    Fractions,
    RecommendationKind,
    Saving,
    per_month,
)
from apps.costs.domain.recommendations.rightsizing import HEADROOM

LEAST_EDGE_SHARE = 0.02
"""Quiet starts and ends are worth a word from this part of what is held on."""
TIMEOUT_MINUTES = 60
TEAM = "Team"
"""What the subject of a policy for all work of a team begins with: `Team/<name>`."""
_NAMED = 5
SERVICES = frozenset({"Deployment", "StatefulSet", "ReplicaSet", "InferenceService", "RayService"})
LEAST_FREED_SHARE = 0.1
"""Replicas are to be changed only where a tenth of what is held becomes free."""
HOURS = 24
_HAIR = 1e-9


def idle_start(one: WorkloadEvidence, _: Offers) -> Finding | None:
    """Pods hold their GPUs while they pull images and load: do that before they ask for any."""
    return _edge(
        one,
        RecommendationKind.IDLE_START,
        one.head_gpu_hours,
        "Load data and images before GPUs are held: {hours:.0f} GPU-hours passed before pods "
        "were first active.",
        "the time to load may not shrink to nothing",
        patches.loading(one.resource),
    )


def idle_end(one: WorkloadEvidence, _: Offers) -> Finding | None:
    """Pods hold their GPUs after the work is done: end them, or do what is left without GPUs."""
    return _edge(
        one,
        RecommendationKind.IDLE_END,
        one.tail_gpu_hours,
        "End pods when the work is done: {hours:.0f} GPU-hours passed after pods were last active.",
        "what runs at the end may need the GPU's memory",
        patches.deadline(one.owner_kind, one.mean_run_hours),
    )


def _edge(
    one: WorkloadEvidence,
    kind: RecommendationKind,
    gpu_hours: float,
    change: str,
    why: str,
    patch: str,
) -> Finding | None:
    # The second for work that held nothing: 0 is no less than a fiftieth of 0.
    if gpu_hours < LEAST_EDGE_SHARE * one.gpu_hours or gpu_hours <= 0:
        return None
    return Finding(
        kind=kind,
        subject=one.subject,
        change=change.format(hours=gpu_hours),
        saved=Saving(per_month(gpu_hours, one.days), one.price_per_gpu_hour),
        currency=one.currency,
        rating=one.rating.at_most(Confidence.MEDIUM, why),
        evidence=one.figures() | {"quiet_gpu_hours": round(gpu_hours, 3)},
        patch=patch,
        avoids=one.share_of_waste(gpu_hours),
    )


class TimeoutEvidence(Evidence, frozen=True, kw_only=True):
    """What a stop after sixty idle minutes would have freed of a team's work on one tier.

    `freed` and `waste` are GPU-hours by the name of a family's cell: what would have been freed,
    and its idle and underutilized time. `worth` is the money of what is freed in the `days` days.
    `hit` are the pods that would have been stopped, by workload. `could_have_run` is how many
    pending GPU-hours of the tier fell into hours with something freed, at most what was freed: an
    upper bound.
    """

    freed: Mapping[str, float] = field(default_factory=dict)
    waste: Mapping[str, float] = field(default_factory=dict)
    hit: Mapping[str, int] = field(default_factory=dict)
    could_have_run: float | None = None
    worth: Decimal | None = None


def idle_timeout(one: TimeoutEvidence) -> Finding | None:
    """Stop what has been idle for sixty minutes, for all work of a team on a tier."""
    gpu_hours = fsum(one.freed.values())
    if gpu_hours <= 0 or not one.is_enough:
        return None
    hit = sorted(one.hit, key=lambda name: (-one.hit[name], name))
    evidence: dict[str, float | int | str | Decimal] = {
        "days": round(one.days, 1),
        "freed_gpu_hours": round(gpu_hours, 3),
        "workloads_hit": len(hit),
        "pods_hit": sum(one.hit.values()),
        "most_hit": ", ".join(hit[:_NAMED]),
    }
    if one.could_have_run is not None:
        evidence["pending_gpu_hours_at_most"] = round(one.could_have_run, 3)
    # A mean price: the freed hours may be of several GPU models.
    each = None if one.worth is None else one.worth / Decimal(repr(gpu_hours))
    return Finding(
        kind=RecommendationKind.IDLE_TIMEOUT,
        subject=one.subject,
        change=f"Stop pods after {TIMEOUT_MINUTES} idle minutes: frees {gpu_hours:,.0f} GPU-hours "
        f"in {one.days:.0f} days, and affects {len(hit)} workload{'s' * (len(hit) != 1)}.",
        saved=Saving(per_month(gpu_hours, one.days), each),
        currency=one.currency,
        rating=one.rating.at_most(
            Confidence.MEDIUM,
            "idle work may expect input from a user, and loses its memory when stopped",
        ),
        evidence=evidence,
        patch=patches.idle_timeout(hit, TIMEOUT_MINUTES),
        cells=_freed_fractions(one),
    )


def _freed_fractions(one: TimeoutEvidence) -> Fractions:
    """Return the part of each family's idle and underutilized time that is freed."""
    parts = {
        name: min(1.0, freed / one.waste[name])
        for name, freed in one.freed.items()
        if one.waste.get(name, 0.0) > 0
    }
    return {name: {"idle": part, "underused": part} for name, part in parts.items() if part > 0}


class ServiceEvidence(Struct, frozen=True):
    """A service by local hour of the day, over several days.

    `held` and `active` have GPU-equivalents for each hour (0..23), one for each day; `per_replica`
    is what one replica holds.
    """

    of: WorkloadEvidence
    per_replica: float
    held: Mapping[int, Sequence[float]]
    active: Mapping[int, Sequence[float]]


def scale_to_demand(one: ServiceEvidence) -> Finding | None:
    """Fewer replicas would have done the work at some hours of every day.

    Needed at an hour is the most that was active at it on any day, with headroom, in whole
    replicas and at least one.
    """
    if one.of.owner_kind not in SERVICES or not one.of.is_enough or one.per_replica <= 0:
        return None
    # An hour of the day that was never seen may be the one with the peak.
    if set(one.held) != set(range(HOURS)):
        return None
    needed = [_replicas_needed(one, hour) for hour in range(HOURS)]
    freed = sum(
        max(0.0, amount - needed[hour] * one.per_replica)
        for hour in range(HOURS)
        for amount in one.held[hour]
    )
    whole = sum(map(sum, one.held.values()))
    if freed < LEAST_FREED_SHARE * whole:
        return None
    # The pattern is of fewer days than the workload's evidence: its waste is put to that.
    scaled = freed * one.of.gpu_hours / whole
    return Finding(
        kind=RecommendationKind.SCALE_TO_DEMAND,
        subject=one.of.subject,
        change=f"Run no more replicas than the work of the hour needs: {_replica_spans(needed)}.",
        saved=Saving(per_month(scaled, one.of.days), one.of.price_per_gpu_hour),
        currency=one.of.currency,
        rating=one.of.rating.at_most(Confidence.MEDIUM, "a mean of an hour hides short peaks"),
        evidence=one.of.figures()
        | {
            "most_replicas_held": round(max(map(max, one.held.values())) / one.per_replica, 2),
            "most_replicas_needed": max(needed),
            "freed_gpu_hours": round(scaled, 3),
        },
        patch=patches.scaled_object(one.of.subject, needed),
        avoids=one.of.share_of_waste(scaled),
    ).against(one.of.cell)


def _replicas_needed(one: ServiceEvidence, hour: int) -> int:
    most = max(one.active.get(hour, ()), default=0.0)
    # Products of floats end just above a whole number: that is not worth another replica.
    return max(1, ceil(most * HEADROOM / one.per_replica - _HAIR))


def _replica_spans(needed: Sequence[int]) -> str:
    """Write replicas by hour of the day: `1 from 20:00 to 08:00; 4 from 08:00 to 20:00`."""
    if len(set(needed)) == 1:
        return f"at most {needed[0]} all day"
    # Hour 0 is compared with hour 23: a span may go on over midnight.
    starts = [hour for hour in range(HOURS) if needed[hour] != needed[hour - 1]]
    ends = [*starts[1:], starts[0]]
    return "; ".join(
        f"{needed[start]} from {start:02d}:00 to {end:02d}:00"
        for start, end in zip(starts, ends, strict=True)
    )
