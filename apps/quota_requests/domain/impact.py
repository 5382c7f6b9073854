"""What a change would do: promises against capacity, borrowing, cost, and what would start.

Units are those of the quota key (GPUs, MIG devices, shares); GPU-equivalents are per tier.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from math import fsum
from typing import Final

from apps.quota_requests.domain.frozen import figure
from apps.quota_requests.domain.overcommitment import (
    Overcommitment,
    QuotaCommitment,
    TierCapacity,
    frozen_together,
    overcommitment,
    sum_known,
    together,
)
from apps.quota_requests.domain.quantities import Quantity
from apps.quota_requests.domain.unblocked_workloads import BlockedWork, Start, would_start

HOURS_PER_MONTH: Final = 730


@dataclass(frozen=True, slots=True)
class CohortShare:
    """A queue of a cohort, of one flavor and resource: limits None are none; `held` is used now."""

    name: str
    nominal: float
    held: float
    borrowing_limit: float | None = None
    lending_limit: float | None = None


@dataclass(frozen=True, slots=True)
class BorrowingRoom:
    """What a queue could borrow at most, before and after, in units.

    While our queue uses nothing (`idle`) its nominal quota can be lent; while it uses all of it
    (`full`) only what the cards then leave. `lost` is the larger of the two losses.
    """

    name: str
    idle_before: float
    idle_after: float
    full_before: float
    full_after: float

    @property
    def lost(self) -> float:
        """Units of borrowing room that the change takes from it; never negative."""
        return max(0.0, self.idle_before - self.idle_after, self.full_before - self.full_after)


def borrowing(
    shares: Sequence[CohortShare], ours: str, *, after: float, capacity: float | None
) -> list[BorrowingRoom]:
    """Return the rooms of all other queues of the cohort, who loses most first.

    Room = min(borrowing limit, Σ of what the others can lend, cards that neither the queue's own
    nominal quota nor the others' use takes). `capacity` None: the cards set no limit.
    """
    rooms = []
    for share in shares:
        if share.name == ours:
            continue
        found = [
            _room(share, _with(shares, ours, nominal=nominal, held=held), capacity)
            for nominal, held in _scenes(shares, ours, after)
        ]
        rooms.append(BorrowingRoom(share.name, *found))
    return sorted(rooms, key=lambda room: (-room.lost, room.name))


def _scenes(shares: Sequence[CohortShare], ours: str, after: float) -> list[tuple[float, float]]:
    before = next((s.nominal for s in shares if s.name == ours), 0.0)
    return [(before, 0.0), (after, 0.0), (before, before), (after, after)]


def _with(
    shares: Sequence[CohortShare], ours: str, *, nominal: float, held: float
) -> list[CohortShare]:
    return [
        CohortShare(s.name, nominal, held, s.borrowing_limit, s.lending_limit)
        if s.name == ours
        else s
        for s in shares
    ]


def _room(share: CohortShare, shares: Sequence[CohortShare], capacity: float | None) -> float:
    others = [s for s in shares if s.name != share.name]
    room = fsum(_lendable(s) for s in others)
    if capacity is not None:
        room = min(room, capacity - share.nominal - fsum(min(s.held, s.nominal) for s in others))
    if share.borrowing_limit is not None:
        room = min(room, share.borrowing_limit)
    return max(0.0, room)


def _lendable(share: CohortShare) -> float:
    left = max(0.0, share.nominal - share.held)
    return left if share.lending_limit is None else min(left, share.lending_limit)


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
class Preview:
    """All that the form, the review page and the audit show of a change before it is made.

    `together` is what all tiers that the key reaches promise; `things` are what units count.
    `ceiling` is of the `cost_tiers`.
    """

    promised: tuple[Overcommitment, ...]
    together: Overcommitment | None
    borrowing: tuple[BorrowingRoom, ...]
    ceiling: Ceiling
    starts: tuple[Start, ...]
    unreached: str = ""
    things: str = "units"
    cost_tiers: tuple[str, ...] = ()


def preview(
    tiers: Sequence[TierCapacity],
    *,
    before: Quantity,
    after: Quantity,
    used: Quantity,
    promises: Sequence[QuotaCommitment] = (),
    held: Sequence[BlockedWork] = (),
    strict: bool = False,
    shares: Sequence[CohortShare] = (),
    ours: str = "",
    things: str = "units",
    priced: Collection[str] = (),
) -> Preview:
    """Return the whole preview. With no tier that the key reaches, `unreached` says so.

    `promises` are of all its tiers, each quota once. `priced` names the tiers whose cost is shown,
    which are those that the key's pods really use; none: all.
    """
    costing = [t for t in tiers if not priced or t.tier in priced]
    capacity = sum_known([t.capacity_units for t in tiers])
    free = sum_known([t.free_units for t in tiers])
    return Preview(
        promised=tuple(overcommitment(t, before=before, after=after) for t in tiers),
        together=together(tiers, promises, before=before, after=after),
        borrowing=tuple(borrowing(shares, ours, after=float(after.units), capacity=capacity))
        if shares
        else (),
        ceiling=cost_ceiling(costing, before=before, after=after),
        cost_tiers=tuple(t.tier for t in costing),
        starts=tuple(would_start(held, used=used, after=after, free_units=free, strict=strict)),
        unreached="" if tiers else "No tier has GPUs that this key counts.",
        things=things,
    )


def frozen(preview_rows: Preview) -> Mapping[str, object]:
    """Return the preview as JSON values without floats, to be kept with the request."""
    return {
        "promised": [{"tier": p.tier, **_promise(p)} for p in preview_rows.promised],
        "together": _together(preview_rows),
        "borrowing": [
            {
                "name": r.name,
                "idle_before": figure(r.idle_before),
                "idle_after": figure(r.idle_after),
                "full_before": figure(r.full_before),
                "full_after": figure(r.full_after),
                "lost": figure(r.lost),
            }
            for r in preview_rows.borrowing
        ],
        "cost_per_month_least": figure(preview_rows.ceiling.least),
        "cost_per_month_most": figure(preview_rows.ceiling.most),
        "without_price": list(preview_rows.ceiling.missing),
        "cost_tiers": list(preview_rows.cost_tiers),
        "starts": [
            {"name": s.name, "admitted": s.admitted, "free": s.free, "left": s.left}
            for s in preview_rows.starts
        ],
        "unreached": preview_rows.unreached,
    }


def _together(preview_rows: Preview) -> dict[str, object] | None:
    found = preview_rows.together
    if found is None:
        return None
    sentence = frozen_together(found, tiers=len(preview_rows.promised), things=preview_rows.things)
    return {**_promise(found), "sentence": sentence}


def _promise(found: Overcommitment) -> dict[str, object]:
    return {
        "before_units": figure(found.before_units),
        "after_units": figure(found.after_units),
        "capacity_units": figure(found.capacity_units),
        "promised_ratio": figure(found.promised_ratio),
        "before_ratio": figure(found.before_ratio),
        "over": found.over,
        "was_over": found.was_over,
        "crosses": found.crosses,
    }
