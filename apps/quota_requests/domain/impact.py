"""What a change would do: promises against capacity, borrowing, cost, and what would start.

Units are those of the quota key (GPUs, MIG devices, shares); GPU-equivalents are per tier.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Final

from apps.quota_requests.domain.borrowing import CohortShare, borrowing
from apps.quota_requests.domain.overcommitment import (
    QuotaCommitment,
    TierCapacity,
    overcommitment,
    sum_known,
    together,
)
from apps.quota_requests.domain.quantities import Quantity
from apps.quota_requests.domain.snapshots import Preview
from apps.quota_requests.domain.unblocked_workloads import BlockedWork, would_start

HOURS_PER_MONTH: Final = 730
_NOTHING: Final = Quantity(0)


@dataclass(frozen=True, slots=True)
class Ceiling:
    """What the change costs a month at most, if all of it were held all the time.

    Between tiers of different price there is a range. None where a tier has no price; `missing`
    names such tiers. Negative for a decrease.
    """

    least: Decimal | None
    most: Decimal | None
    missing: tuple[str, ...] = ()


def cost_ceiling(tiers: Sequence[TierCapacity], *, before: Quantity, after: Quantity) -> Ceiling:
    """Return (after − before) × weight × price × 730 hours over the tiers that are reached."""
    missing = tuple(t.tier for t in tiers if t.price_per_gpu_hour is None)
    units = (after - before).units
    costs = sorted(
        units * Decimal(str(t.weight)) * t.price_per_gpu_hour * HOURS_PER_MONTH
        for t in tiers
        if t.price_per_gpu_hour is not None
    )
    if not costs or missing:
        return Ceiling(None, None, missing)
    return Ceiling(costs[0], costs[-1])


@dataclass(frozen=True, slots=True)
class TimeBox:
    """When a raise with an end goes back, and when that is announced."""

    reverts_at: datetime
    announcements: tuple[datetime, ...]


ANNOUNCED_BEFORE: Final = (timedelta(days=7), timedelta(days=1))


def time_box(until: datetime | None, *, applied_at: datetime) -> TimeBox | None:
    """Return when a raise that holds until `until` reverts; None for one without end.

    Announcements that would lie before the start are left out, yet there is always one: a raise
    of a few hours is announced when it starts.
    """
    if until is None:
        return None
    if until <= applied_at:
        raise ValueError("the end of a raise must be after its start")
    times = tuple(sorted(until - ahead for ahead in ANNOUNCED_BEFORE if until - ahead > applied_at))
    return TimeBox(until, times or (applied_at,))


@dataclass(frozen=True, slots=True)
class KeyState:
    """What is known of a key, whatever its change; `things` are what its units count.

    `promises` are of all its tiers, each quota once. `waiting` is the work that it holds back, in
    a `strict` queue one after the other. `shares` are the queues of its cohort, of which `ours` is
    the one that changes. `priced` names the tiers whose cost is shown, which are those that the
    key's pods really use; none: all.
    """

    tiers: Sequence[TierCapacity] = ()
    used: Quantity = _NOTHING
    promises: Sequence[QuotaCommitment] = ()
    waiting: Sequence[BlockedWork] = ()
    strict: bool = False
    shares: Sequence[CohortShare] = ()
    ours: str = ""
    things: str = "units"
    priced: Collection[str] = ()


def preview(key: KeyState, *, before: Quantity, after: Quantity) -> Preview:
    """Return what a change would do by what is known; what the cluster says of it is left empty.

    With no tier that the key reaches, `unreached` says so.
    """
    tiers, names = key.tiers, tuple(tier.tier for tier in key.tiers)
    costing = [t for t in tiers if not key.priced or t.tier in key.priced]
    capacity = sum_known([t.capacity_units for t in tiers])
    free = sum_known([t.free_units for t in tiers])
    starts = would_start(
        key.waiting, used=key.used, after=after, free_units=free, strict=key.strict
    )
    cost = cost_ceiling(costing, before=before, after=after)
    return Preview(
        promised=tuple(overcommitment(t, before=before, after=after) for t in tiers),
        together=together(tiers, key.promises, before=before, after=after, things=key.things),
        borrowing=tuple(
            borrowing(key.shares, key.ours, after=float(after.units), capacity=capacity)
        ),
        cost_per_month_least=cost.least,
        cost_per_month_most=cost.most,
        without_price=cost.missing,
        cost_tiers=tuple(t.tier for t in costing),
        starts=tuple(starts),
        unreached="" if tiers else "No tier has GPUs that this key counts.",
        tiers=names,
    )
