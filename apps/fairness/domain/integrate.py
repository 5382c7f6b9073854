"""All measures of one tier over its slots, and their sums over a window in GPU-hours."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from apps.fairness.domain.arrays import Array, amounts
from apps.fairness.domain.indices import borrowable, jain_allocation_ratio, jain_index
from apps.fairness.domain.lending import BorrowedFrom, Lending, borrowed_from, lend
from apps.fairness.domain.shares import fair_shares
from apps.fairness.domain.unmet import denied


@dataclass(frozen=True)
class TierSlots:
    """What is known of one tier: GPU-equivalents, means over each slot.

    `hours` and `capacity` are (slots,), the others (slots, teams). A slot is as long as nothing
    that is promised changes in it, half an hour at most: an entitlement that changes in mid-slot
    makes two of it. `pending` is what counts for fairness (`counted_pending`).
    """

    hours: Array
    capacity: Array
    entitlement: Array
    weight: Array
    held: Array
    pending: Array

    def __post_init__(self) -> None:
        for name in ("hours", "capacity", "entitlement", "weight", "held", "pending"):
            amounts(name, getattr(self, name))
        slots = self.hours.shape
        if len(slots) != 1 or self.capacity.shape != slots:
            raise ValueError("hours and capacity are one of each slot")
        shapes = {a.shape for a in (self.entitlement, self.weight, self.held, self.pending)}
        if len(shapes) != 1 or self.held.ndim != 2 or self.held.shape[:1] != slots:
            raise ValueError("entitlement, weight, held and pending are one of each slot and team")


@dataclass(frozen=True)
class Measured:
    """The measures of a tier per slot, in GPU-equivalents."""

    slots: TierSlots
    demand: Array
    fair_share: Array
    lending: Lending
    denied: Array
    borrowable: Array

    @cached_property
    def borrowed_from(self) -> BorrowedFrom:
        """Who borrowed from whom, in GPU-hours over all slots."""
        return borrowed_from(self.lending, self.slots.hours)


@dataclass(frozen=True)
class FairnessSums:
    """GPU-hours over a window: one of each team, then those of the tier.

    They can be added up: windows that follow one another sum to the longer one's.
    """

    entitlement: Array
    demand: Array
    fair_share: Array
    allocated: Array
    borrowed: Array
    lent: Array
    denied: Array
    capacity: float
    from_pool: float
    overdrawn: float
    borrowable: float

    @property
    def jain_index(self) -> float | None:
        """Evenness of allocated ÷ fair share among the teams with demand."""
        return jain_index(allocated=self.allocated, fair_share=self.fair_share, demand=self.demand)

    @property
    def jain_allocation_ratio(self) -> float | None:
        """Evenness of allocated ÷ entitlement."""
        return jain_allocation_ratio(allocated=self.allocated, entitlement=self.entitlement)


def measure(slots: TierSlots) -> Measured:
    """Return the fair share, what is borrowed, lent and denied, slot by slot.

    Demand is held + pending, at most the tier's capacity, and never less than what is held: a
    tier that lost cards keeps its pods.
    """
    room = slots.capacity[:, np.newaxis]
    demand = np.maximum(slots.held, np.minimum(slots.held + slots.pending, room))
    share = fair_shares(
        demand=demand,
        entitlement=slots.entitlement,
        weight=slots.weight,
        capacity=slots.capacity,
    )
    lending = lend(
        held=slots.held, demand=demand, entitlement=slots.entitlement, capacity=slots.capacity
    )
    return Measured(
        slots=slots,
        demand=demand,
        fair_share=share,
        lending=lending,
        denied=denied(pending=slots.pending, fair_share=share, held=slots.held),
        borrowable=borrowable(
            held=slots.held, entitlement=slots.entitlement, pending=slots.pending
        ),
    )


def integrate(measured: Measured) -> FairnessSums:
    """Return the GPU-hours of all slots together."""
    slots, lending = measured.slots, measured.lending
    hours = slots.hours
    return FairnessSums(
        entitlement=hours @ slots.entitlement,
        demand=hours @ measured.demand,
        fair_share=hours @ measured.fair_share,
        allocated=hours @ slots.held,
        borrowed=hours @ lending.borrowed,
        lent=hours @ lending.lent,
        denied=hours @ measured.denied,
        capacity=float(hours @ slots.capacity),
        from_pool=float(hours @ lending.from_pool),
        overdrawn=float(hours @ lending.overdrawn),
        borrowable=float(hours @ measured.borrowable),
    )
