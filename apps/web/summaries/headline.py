"""The overview's first sentence: what there was, what was held, and what was held for nothing."""

from collections.abc import Sequence
from dataclasses import dataclass

from apps.usage.domain.amounts import NANO
from apps.web.data_quality.quality import Quality
from apps.web.summaries.averages import Difference, WindowSums, gpu_hours_text, gpus_text
from apps.web.summaries.cards import TierCard
from apps.web.summaries.comparison import Comparison, Differences

_COVERED = 0.995


@dataclass(frozen=True, slots=True)
class Extreme:
    """A tier that stands out, and its ratio as a fraction."""

    tier: str
    href: str | None
    ratio: float


@dataclass(frozen=True, slots=True)
class Headline:
    """The words are in the template. The ratios are set for one tier alone.

    Tiers are never blended into one ratio: with several, `fullest` and `least_busy` name those
    that stand out. `not_used` is in nano-GPU-hours. `limits` are sentences on what the figures
    lack.
    """

    sums: WindowSums
    tiers: int
    capacity_gpus: str
    allocated_gpus: str
    not_used_gpus: str
    allocation_ratio: float | None
    utilization_ratio: float | None
    not_used: int
    not_used_gpu_hours: str
    not_used_change: Difference | None
    fullest: Extreme | None
    least_busy: Extreme | None
    limits: Sequence[str]


def headline(
    cards: Sequence[TierCard], comparison: Comparison, quality: Quality
) -> Headline | None:
    """Return the headline over all tiers; None where the window has no capacity."""
    total = comparison.sums()
    if total is None or not total.gpus.capacity:
        return None
    changes = comparison.changes()
    there = [card for card in cards if card.sums is not None and card.sums.gpus.capacity]
    alone = len(there) == 1
    return Headline(
        sums=total,
        tiers=len(there),
        capacity_gpus=gpus_text(total.gpus.capacity),
        allocated_gpus=gpus_text(total.gpus.allocated),
        not_used_gpus=gpus_text(total.gpus.not_used),
        allocation_ratio=total.amounts.allocation_ratio if alone else None,
        utilization_ratio=total.amounts.utilization_ratio if alone else None,
        not_used=total.amounts.not_used,
        not_used_gpu_hours=gpu_hours_text(total.amounts.not_used),
        not_used_change=changes.not_used if changes else None,
        fullest=None if alone else _extreme(there, "allocation_ratio", largest=True),
        least_busy=None if alone else _extreme(there, "utilization_ratio", largest=False),
        limits=[
            text
            for text in (_gaps(quality), _per_hour(comparison, changes), _unmeasured(total))
            if text
        ],
    )


def _extreme(cards: Sequence[TierCard], name: str, *, largest: bool) -> Extreme | None:
    ratios = [
        (ratio, card)
        for card in cards
        if card.sums is not None and (ratio := getattr(card.sums.amounts, name)) is not None
    ]
    if not ratios:
        return None
    ratio, card = (max if largest else min)(ratios, key=lambda found: found[0])
    return Extreme(card.name, card.href, ratio)


def _gaps(quality: Quality) -> str:
    lost = (quality.missing.count if quality.missing else 0) + (
        quality.failed.count if quality.failed else 0
    )
    begins = f"The facts begin {quality.begins}. " if quality.begins else ""
    if not lost:
        return begins.strip()
    return f"{begins}{lost} hour{'' if lost == 1 else 's'} of the window could not be counted."


def _per_hour(comparison: Comparison, changes: Differences | None) -> str:
    if changes is None or dict(comparison.hours) == dict(comparison.hours_before):
        return ""
    return "The comparison is by the hour, since the two periods do not have equally many."


def _unmeasured(total: WindowSums) -> str:
    coverage = total.amounts.coverage_ratio
    if coverage is None or coverage >= _COVERED:
        return ""
    hours = total.amounts.unmeasured / NANO
    return f"{hours:,.0f} more GPU-hours ran unmeasured and count neither as busy nor as not used."
