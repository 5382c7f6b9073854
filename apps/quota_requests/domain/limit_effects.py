"""Effects of a changed limit: on overcommitment, on borrowing and on blocked work."""

from collections.abc import Sequence
from datetime import datetime
from decimal import Decimal
from math import fsum
from typing import Annotated, Final

from msgspec import Struct

from apps.accounts.domain.structs import replace
from apps.clusters.domain.resources import quantity
from apps.quota_requests.domain.quantities import LEFT_OUT, NEVER_STORED, Quantity

EPSILON: Final = 1e-9


class QuotaCommitment(Struct, frozen=True):
    """A quota as observed that can reach a tier; `ours`: the one that is to be changed."""

    owner: str
    units: float
    ours: bool = False


class TierCapacity(Struct, frozen=True):
    """What there is of a tier that the key can reach, for its resource.

    `capacity_units` is None where it is not known, `free_units` too. `weight` is GPU-equivalents
    per unit; `price_per_gpu_hour` None where there is no price.
    """

    tier: str
    capacity_units: float | None
    free_units: float | None
    weight: float
    price_per_gpu_hour: Decimal | None = None
    entitlements: Sequence[QuotaCommitment] = ()


class Overcommitment(Struct, frozen=True):
    """Σ quota before and after, in units, against capacity: of one tier, or of several together.

    A key that reaches several tiers is counted whole in each: any of them may get all of it.
    Together it is counted once, and a sentence says so. Ratios are Σ ÷ capacity; None where that
    is 0 or not known. `over`: more is promised afterwards than there is; `was_over`: already
    before; `crosses`: by this very change.
    """

    tier: Annotated[str, LEFT_OUT] = ""
    before_units: float = 0.0
    after_units: float = 0.0
    capacity_units: float | None = None
    promised_ratio: float | None = None
    before_ratio: float | None = None
    over: bool = False
    was_over: bool = False
    crosses: bool = False
    sentence: Annotated[str, LEFT_OUT] = ""


def overcommitment(tier: TierCapacity, *, before: Quantity, after: Quantity) -> Overcommitment:
    """Return Σ quota of one tier with `after` in the place of `before`."""
    return _committed(tier.tier, tier.entitlements, tier.capacity_units, before, after)


def together(
    tiers: Sequence[TierCapacity],
    entitlements: Sequence[QuotaCommitment],
    *,
    before: Quantity,
    after: Quantity,
    things: str = "units",
) -> Overcommitment | None:
    """Return Σ quota of all tiers that a key reaches against all that there is of them.

    `entitlements` has each quota that reaches any of them once: a unit of it takes a device of one
    tier or of another, never of two. `things` are what units count. None where the key reaches no
    tier.
    """
    if not tiers:
        return None
    known = sum_known([tier.capacity_units for tier in tiers])
    found = _committed("", entitlements, known, before, after)
    return replace(found, sentence=_sentence(found, tiers=len(tiers), things=things))


def _committed(
    tier: str,
    entitlements: Sequence[QuotaCommitment],
    capacity: float | None,
    before: Quantity,
    after: Quantity,
) -> Overcommitment:
    others = fsum(p.units for p in entitlements if not p.ours)
    # From the request's amounts: the observed row may be older than the review.
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
        return f"{after} {things} {of} would be committed; before {before}. {known}"
    return (
        f"{quantity(found.after_units)} of {quantity(found.capacity_units)} {things} {of} would be "
        f"committed{_percent(found.promised_ratio)}; "
        f"before {quantity(found.before_units)}{_percent(found.before_ratio)}."
    )


def _percent(ratio: float | None) -> str:
    return "" if ratio is None else f" ({ratio * 100:,.0f} %)"


class CohortShare(Struct, frozen=True):
    """A queue of a cohort, of one flavor and resource: limits None are none; `held` is used now."""

    name: str
    nominal: float
    held: float
    borrowing_limit: float | None = None
    lending_limit: float | None = None


class BorrowingRoom(Struct, frozen=True):
    """What a queue could borrow at most, before and after, in units.

    While our queue uses nothing (`idle`) its nominal quota can be lent; while it uses all of it
    (`full`) only what the GPUs then leave. `lost` is the larger of the two losses, never negative.
    """

    name: str
    idle_before: float
    idle_after: float
    full_before: float
    full_after: float
    lost: float = 0.0


def borrowing(
    shares: Sequence[CohortShare], ours: str, *, after: float, capacity: float | None
) -> list[BorrowingRoom]:
    """Return the rooms of all other queues of the cohort, who loses most first.

    Room = min(borrowing limit, Σ of what the others can lend, GPUs that neither the queue's own
    nominal quota nor the others' use takes). `capacity` None: the GPUs set no limit.
    """
    rooms = []
    for share in shares:
        if share.name == ours:
            continue
        idle_before, idle_after, full_before, full_after = (
            _room(share, _with(shares, ours, nominal=nominal, held=held), capacity)
            for nominal, held in _scenes(shares, ours, after)
        )
        lost = max(0.0, idle_before - idle_after, full_before - full_after)
        rooms.append(
            BorrowingRoom(share.name, idle_before, idle_after, full_before, full_after, lost)
        )
    return sorted(rooms, key=lambda room: (-room.lost, room.name))


def _scenes(shares: Sequence[CohortShare], ours: str, after: float) -> list[tuple[float, float]]:
    before = next((s.nominal for s in shares if s.name == ours), 0.0)
    # In the order in which `borrowing` unpacks them: idle before and after, full before and after.
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
        # Kueue counts quota and not GPUs: it admits work that finds none.
        room = min(room, capacity - share.nominal - fsum(min(s.held, s.nominal) for s in others))
    if share.borrowing_limit is not None:
        room = min(room, share.borrowing_limit)
    return max(0.0, room)


def _lendable(share: CohortShare) -> float:
    left = max(0.0, share.nominal - share.held)
    # Kueue: without a lending limit all unused nominal quota is lent, with 0 none of it.
    return left if share.lending_limit is None else min(left, share.lending_limit)


class BlockedWork(Struct, frozen=True):
    """Work that this very key holds back: `pods` not made for it, `units` each of its resource.

    A `whole` one is let through with all its pods or not at all. `other_headroom` is the least
    headroom, in units of the same resource, of the other quotas that also count it; None: there is
    no other. `since` is when it began to wait; what has a higher `priority` is let through first.
    """

    uid: str
    name: str
    units: float
    pods: int
    since: datetime
    other_headroom: float | None = None
    whole: bool = False
    priority: int = 0


class UnblockedStart(Struct, frozen=True):
    """How many pods of a workload would be made at once, and how many of these find a free GPU.

    `free` is None where it is not known what is free. `left` pods would still be refused.
    """

    name: str
    admitted: int
    free: int | None
    left: int
    uid: Annotated[str, NEVER_STORED] = ""


def would_start(
    held: Sequence[BlockedWork],
    *,
    used: Quantity,
    after: Quantity,
    free_units: float | None,
    strict: bool = False,
) -> list[UnblockedStart]:
    """Return what the new limit admits: by priority, then longest pending first.

    A ResourceQuota decides pod by pod and keeps no queue: work that is too large is passed over and
    smaller work behind it is admitted. In a `strict` queue nothing passes the work ahead of it.
    Which of several is really first depends on whose controller tries again first. An admitted pod
    stays pending where no GPU is free; each free one is given out once.
    """
    headroom, free, is_closed = float((after - used).units), free_units, False
    starts = []
    for work in sorted(held, key=lambda work: (-work.priority, work.since, work.uid)):
        if work.units <= 0:
            continue
        room = headroom if work.other_headroom is None else min(headroom, work.other_headroom)
        admitted = 0 if is_closed else _let_through(work, room)
        # StrictFIFO: the head of the queue blocks all behind it, even what would fit.
        is_closed = is_closed or (strict and admitted < work.pods)
        headroom -= admitted * work.units
        # None and not 0 where free GPUs are not known: 0 would claim that all of it stays pending.
        placed = None
        if free is not None:
            placed = min(admitted, _pods(free, work.units))
            free -= placed * work.units
        starts.append(UnblockedStart(work.name, admitted, placed, work.pods - admitted, work.uid))
    return starts


def _let_through(work: BlockedWork, room: float) -> int:
    pods = min(work.pods, _pods(room, work.units))
    # A part of a gang would hold its GPUs and wait for the rest.
    return pods if pods == work.pods or not work.whole else 0


def _pods(room: float, units: float) -> int:
    # Without it 0.3 / 0.1 floors to 2.
    return max(0, int((room + EPSILON) / units))
