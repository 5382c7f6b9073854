"""Capacity and quota that lie idle at some hours: at night, at weekends, while others wait."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from math import floor

from apps.clusters.domain.quantities import gpus, quantity
from apps.clusters.domain.tiers import CapacityType
from apps.costs.domain.costing import Cause
from apps.costs.domain.recommendations import patches
from apps.costs.domain.recommendations.gpus import HEADROOM
from apps.costs.domain.recommendations.recommendation import (
    HOURS_PER_MONTH,
    LEAST_COVERAGE,
    LEAST_DAYS,
    Confidence,
    Recommendation,
    RecommendationKind,
    Saving,
    Subject,
    at_most,
    by_evidence,
    enough,
)

USUAL = 0.2
"""What is empty in four of five alike hours is usual."""
LEAST_ALIKE = 4
"""An hour of the day is told from this many days, weekdays and weekends apart."""
WANTED_FROM = 0.1
"""From this part on it is doubtful that what stands empty is not needed."""
LEAST_HOURS = 24 * LEAST_DAYS * LEAST_COVERAGE
"""From so many hours on it is told what stood empty in all of them."""
_HOURS = 24
_HAIR = 1e-9


@dataclass(frozen=True, slots=True)
class HoursEvidence:
    """How many GPUs of a pool stood empty, by (weekend, local hour): one number for each day.

    `owned`: it is hardware that is paid for whether it runs or not. `stranded_gpu_hours` are
    unallocated too, and in none of `empty`. `pending_gpu_hours` waited for the tier in the same
    hours, at most what stood empty.
    """

    subject: Subject
    gpu_model: str
    capacity_type: str
    cell: str
    empty: Mapping[tuple[bool, int], Sequence[float]]
    days: float
    coverage: float | None
    owned: bool = False
    price_per_gpu_hour: Decimal | None = None
    currency: str = ""
    stranded_gpu_hours: float = 0.0
    pending_gpu_hours: float = 0.0


def empty_hours(one: HoursEvidence) -> Recommendation | None:
    """Whole GPUs of a pool stand empty at the same hours of nearly every day, or at all hours."""
    if not enough(days=one.days, coverage=one.coverage) or len(one.empty) < 2 * _HOURS:
        return None
    hours = sum(len(amounts) for amounts in one.empty.values())
    if hours < LEAST_HOURS:
        return None
    always = floor(min(map(min, one.empty.values())) + _HAIR)
    usual = {at: _usual(amounts, always) for at, amounts in one.empty.items()}
    freed = sum(min(each, usual[at]) for at, amounts in one.empty.items() for each in amounts)
    whole = sum(sum(amounts) for amounts in one.empty.values())
    if freed <= 0 or whole <= 0:
        return None
    confidence, reason = _confidence(one)
    return Recommendation(
        kind=RecommendationKind.EMPTY_HOURS,
        subject=one.subject,
        change=f"Scale down or lend {one.gpu_model} ({one.capacity_type}) that stands empty: "
        f"{_listed(usual)}.{_wanted(one)}",
        saved=Saving(freed / hours * HOURS_PER_MONTH, one.price_per_gpu_hour),
        currency=one.currency,
        confidence=confidence,
        reason=reason,
        evidence={
            "days": round(one.days, 1),
            "empty_gpu_hours": round(whole, 3),
            "usual_gpu_hours": round(freed, 3),
            "always_empty_gpus": always,
            "pending_gpu_hours_at_most": round(one.pending_gpu_hours, 3),
        },
        patch=patches.off_hours(one.subject.tier, _day(usual), _night(usual)),
        cells={one.cell: {Cause.UNALLOCATED.value: freed / (whole + one.stranded_gpu_hours)}},
    )


def _confidence(one: HoursEvidence) -> tuple[Confidence, str]:
    found = by_evidence(days=one.days, coverage=one.coverage)
    if one.pending_gpu_hours >= WANTED_FROM * sum(map(sum, one.empty.values())):
        return at_most(Confidence.LOW, "work of the tier was pending in the same hours", found)
    if one.owned:
        return at_most(Confidence.LOW, "owned GPUs save money only when lent or sold", found)
    if one.capacity_type == CapacityType.RESERVED:
        return at_most(Confidence.LOW, "reserved GPUs are paid for until the term ends", found)
    return at_most(Confidence.MEDIUM, "in one of five such hours more is needed", found)


def _wanted(one: HoursEvidence) -> str:
    """Return what is to be done first where work waited beside empty GPUs."""
    if not one.pending_gpu_hours:
        return ""
    return (
        f" First let pending work in: up to {one.pending_gpu_hours:.0f} GPU-hours of it were "
        "pending in hours with empty GPUs."
    )


def _usual(amounts: Sequence[float], always: int) -> int:
    """Return how many whole GPUs are empty in four of five alike hours.

    `always` is how many were empty in every hour of the evidence: all that few days tell.
    """
    if len(amounts) < LEAST_ALIKE:
        return always
    ordered = sorted(amounts)
    return floor(ordered[int(len(ordered) * USUAL)] + _HAIR)


def _day(usual: Mapping[tuple[bool, int], int]) -> int:
    return min(usual[False, hour] for hour in range(_HOURS))


def _night(usual: Mapping[tuple[bool, int], int]) -> int:
    return max(usual[False, hour] for hour in range(_HOURS))


def _listed(usual: Mapping[tuple[bool, int], int]) -> str:
    parts = []
    for weekend, days in ((False, "weekdays"), (True, "weekends")):
        counts = [usual[weekend, hour] for hour in range(_HOURS)]
        low, high = min(counts), max(counts)
        if low == high:
            parts.append(f"{gpus(low)} on {days}")
        else:
            hours = [hour for hour in range(_HOURS) if counts[hour] == high]
            parts.append(f"{low} to {gpus(high)} on {days}, most at {hours[0]:02d}:00")
    return "; ".join(parts)


@dataclass(frozen=True, slots=True)
class LendingEvidence:
    """A quota key that was not used up while other teams waited for GPUs of its tier.

    `free_unit_hours` is what was free of it in hours in which others waited, `waited_unit_hours`
    what they waited for then; `usual_used` is what nine of ten hours did not exceed.
    """

    subject: Subject
    key: str
    hard: float
    usual_used: float
    free_unit_hours: float
    waited_unit_hours: float
    days: float
    coverage: float | None
    weight: float = 1.0
    price_per_gpu_hour: Decimal | None = None
    currency: str = ""


def lend_quota(one: LendingEvidence) -> Recommendation | None:
    """Quota is held while others wait: lend what is usually free.

    Its saving is no cash: it is the price of the waiting work that could have run.
    """
    if not enough(days=one.days, coverage=one.coverage):
        return None
    usable = min(one.free_unit_hours, one.waited_unit_hours)
    lent = floor(one.hard - one.usual_used * HEADROOM + _HAIR)
    if lent < 1 or usable <= 0:
        return None
    monthly = usable * one.weight * HOURS_PER_MONTH / (one.days * 24)
    confidence, reason = at_most(
        Confidence.LOW,
        "what waited may have waited for something else",
        by_evidence(days=one.days, coverage=one.coverage),
    )
    return Recommendation(
        kind=RecommendationKind.LEND_QUOTA,
        subject=one.subject,
        change=f"Lend {lent} of {quantity(one.hard)} {one.key}: nine of ten hours used at most "
        f"{quantity(one.usual_used)}, while others waited.",
        saved=Saving(monthly, one.price_per_gpu_hour),
        currency=one.currency,
        confidence=confidence,
        reason=reason,
        evidence={
            "days": round(one.days, 1),
            "hard": one.hard,
            "usual_used": round(one.usual_used, 3),
            "free_unit_hours": round(one.free_unit_hours, 1),
            "waited_unit_hours": round(one.waited_unit_hours, 1),
        },
        patch=patches.lending(one.key, one.hard, lent),
    )
