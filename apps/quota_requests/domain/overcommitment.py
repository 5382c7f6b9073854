"""What quotas promise against what there is: of each tier, and of all that a key reaches."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from math import fsum
from typing import Final

from apps.clusters.domain.quantities import quantity
from apps.quota_requests.domain.frozen import LEFT_OUT
from apps.quota_requests.domain.quantities import Quantity

EPSILON: Final = 1e-9


@dataclass(frozen=True, slots=True)
class QuotaCommitment:
    """A quota as observed that can reach a tier; `ours`: the one that is to be changed."""

    owner: str
    units: float
    ours: bool = False


@dataclass(frozen=True, slots=True)
class TierCapacity:
    """What there is of a tier that the key can reach, for its resource.

    `capacity_units` is None where it is not known, `free_units` too. `weight` is GPU-equivalents
    per unit; `price_per_gpu_hour` None where there is no price.
    """

    tier: str
    capacity_units: float | None
    free_units: float | None
    weight: float
    price_per_gpu_hour: Decimal | None = None
    promises: Sequence[QuotaCommitment] = ()


@dataclass(frozen=True, slots=True)
class Overcommitment:
    """Σ quota before and after, in units, against capacity: of one tier, or of several together.

    A key that reaches several tiers is counted whole in each: any of them may get all of it.
    Together it is counted once, and a sentence says so. Ratios are Σ ÷ capacity; None where that
    is 0 or not known. `over`: more is promised afterwards than there is; `was_over`: already
    before; `crosses`: by this very change.
    """

    tier: str = field(default="", metadata=LEFT_OUT)
    before_units: float = 0.0
    after_units: float = 0.0
    capacity_units: float | None = None
    promised_ratio: float | None = None
    before_ratio: float | None = None
    over: bool = False
    was_over: bool = False
    crosses: bool = False
    sentence: str = field(default="", metadata=LEFT_OUT)


def overcommitment(tier: TierCapacity, *, before: Quantity, after: Quantity) -> Overcommitment:
    """Return Σ quota of one tier with `after` in the place of `before`."""
    return _promised(tier.tier, tier.promises, tier.capacity_units, before, after)


def together(
    tiers: Sequence[TierCapacity],
    promises: Sequence[QuotaCommitment],
    *,
    before: Quantity,
    after: Quantity,
    things: str = "units",
) -> Overcommitment | None:
    """Return Σ quota of all tiers that a key reaches against all that there is of them.

    `promises` has each quota that reaches any of them once: a unit of it takes a device of one
    tier or of another, never of two. `things` are what units count. None where the key reaches no
    tier.
    """
    if not tiers:
        return None
    known = sum_known([tier.capacity_units for tier in tiers])
    found = _promised("", promises, known, before, after)
    return replace(found, sentence=_sentence(found, tiers=len(tiers), things=things))


def _promised(
    tier: str,
    promises: Sequence[QuotaCommitment],
    capacity: float | None,
    before: Quantity,
    after: Quantity,
) -> Overcommitment:
    others = fsum(p.units for p in promises if not p.ours)
    then, now = others + float(before.units), others + float(after.units)
    was_over, over = _is_over(then, capacity), _is_over(now, capacity)
    return Overcommitment(
        tier=tier,
        before_units=then,
        after_units=now,
        capacity_units=capacity,
        promised_ratio=now / capacity if capacity else None,
        before_ratio=then / capacity if capacity else None,
        over=over,
        was_over=was_over,
        crosses=over and not was_over,
    )


def _is_over(units: float, capacity: float | None) -> bool:
    return capacity is not None and units > capacity + EPSILON


def sum_known(values: Sequence[float | None]) -> float | None:
    """Return the sum; None where one is not known, for the rest alone would be too little."""
    known = [value for value in values if value is not None]
    return fsum(known) if values and len(known) == len(values) else None


def _sentence(found: Overcommitment, *, tiers: int, things: str) -> str:
    of = "that this key reaches" if tiers == 1 else f"of all {tiers} tiers that this key reaches"
    if found.capacity_units is None:
        after, before = quantity(found.after_units), quantity(found.before_units)
        known = "How many there are is not known."
        return f"{after} {things} {of} would be promised; before {before}. {known}"
    return (
        f"{quantity(found.after_units)} of {quantity(found.capacity_units)} {things} {of} would be "
        f"promised{_percent(found.promised_ratio)}; "
        f"before {quantity(found.before_units)}{_percent(found.before_ratio)}."
    )


def _percent(ratio: float | None) -> str:
    return "" if ratio is None else f" ({ratio * 100:,.0f} %)"
