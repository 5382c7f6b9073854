"""Measures of a tier over its slots, and their sums."""

from collections.abc import Sequence
from functools import cached_property
from math import isqrt
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from apps.accounts.domain.structs import replace
from apps.fairness.domain.shares import (
    Array,
    BorrowedFrom,
    Lending,
    amounts,
    borrowable,
    borrowed_from,
    denied,
    divided,
    fair_shares,
    jain_allocation_ratio,
    jain_index,
    lend,
)
from apps.usage.domain.amounts import NANO

NanoGpuHours = npt.NDArray[np.int64]
"""Nano-GPU-hours (1e-9 GPU-hours)."""


class TierSlots(Struct, frozen=True):
    """One tier by slot: mean GPU-equivalents.

    `hours` and `capacity` have shape (slots,), the others (slots, teams). A slot lasts half an hour
    or less: an entitlement that changes within one splits it. `pending` is the work that counts for
    fairness.
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


class Measured(Struct, frozen=True, dict=True):
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


class FairnessSums(Struct, frozen=True):
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
        """Fairness index of allocated ÷ fair share among the teams with demand."""
        return jain_index(allocated=self.allocated, fair_share=self.fair_share, demand=self.demand)

    @property
    def jain_allocation_ratio(self) -> float | None:
        """Fairness index of allocated ÷ entitlement."""
        return jain_allocation_ratio(allocated=self.allocated, entitlement=self.entitlement)


def measure(slots: TierSlots) -> Measured:
    """Return the fair share, and the borrowed, lent and unmet amounts, slot by slot.

    Demand is held + pending, at most the tier's capacity, and never less than what is held: a tier
    that lost GPUs keeps its pods.
    """
    # A tier that lost nodes keeps its pods, so demand may exceed the capacity by what is held.
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


class LoanAmount(NamedTuple):
    """Nano-GPU-hours that the team at `borrower` held of the entitlement of that at `lender`."""

    lender: int
    borrower: int
    amount: int


class NanoSums(Struct, frozen=True):
    """Sums over slots, one of each team, then those of the tier.

    Σ lent = Σ borrowed − `from_pool` − `overdrawn`, and the tier's `from_pool` and `overdrawn` are
    the sums of its teams', to the last digit.
    """

    entitlement: NanoGpuHours
    weight: NanoGpuHours
    demand: NanoGpuHours
    fair_share: NanoGpuHours
    borrowed: NanoGpuHours
    lent: NanoGpuHours
    denied: NanoGpuHours
    from_pool: NanoGpuHours
    overdrawn: NanoGpuHours
    borrowable: int


def nano_sums(measured: Measured) -> NanoSums:
    """Return the sums of all slots.

    What each team borrowed is split by its sources, and the parts are rounded so that they sum to
    it. What is lent follows from these parts.
    """
    slots, lending = measured.slots, measured.lending
    hours = slots.hours
    borrowed = _nano(hours @ lending.borrowed)
    # All lenders count as one source here; the lines below split that among them.
    sources = borrowed_from(_joined(lending), hours)
    pool, overdrawn, from_lenders = apportion(
        np.stack([sources.pool, sources.overdrawn, sources.lender[0]]), borrowed
    )
    # Lenders follow from borrowers, so that both sides stay equal to the last nano-GPU-hour.
    lent_in_all = np.array([from_lenders.sum()])
    lent = apportion((hours @ lending.lent)[:, np.newaxis], lent_in_all)[:, 0]
    return NanoSums(
        entitlement=_nano(hours @ slots.entitlement),
        weight=_nano(hours @ slots.weight),
        demand=_nano(hours @ measured.demand),
        fair_share=_nano(hours @ measured.fair_share),
        borrowed=borrowed,
        lent=lent,
        denied=_nano(hours @ measured.denied),
        from_pool=pool,
        overdrawn=overdrawn,
        borrowable=int(_nano(hours @ measured.borrowable)),
    )


def apportion(parts: Array, totals: NanoGpuHours) -> NanoGpuHours:
    """Return whole numbers in proportion to `parts` (parts, columns) that sum to each total.

    By largest remainder; of equal remainders the first part gets what is left over. A column whose
    parts are all 0 gives its total to the first row. Without rows the result is empty.
    """
    if not len(parts):
        return np.zeros(parts.shape, dtype=np.int64)
    shares = divided(parts, parts.sum(axis=0))
    # Rounding may leave a total without any part: it must land somewhere, for totals are kept.
    shares[0] += shares.sum(axis=0) == 0
    exact = shares * totals
    floors = np.floor(exact).astype(np.int64)
    left = totals - floors.sum(axis=0)
    # Sorted twice gives ranks. Stable, so that a recomputed hour gives the same rows.
    rank = np.argsort(np.argsort(floors - exact, axis=0, kind="stable"), axis=0, kind="stable")
    parted: NanoGpuHours = floors + (rank < left)
    return parted


def largest_loans(measured: Measured, *, at_most: int) -> Sequence[LoanAmount]:
    """Return the loans between teams, the largest first; at most `at_most`."""
    lending, hours = measured.lending, measured.slots.hours
    lenders = np.flatnonzero(lending.lent.any(axis=0))
    borrowers = np.flatnonzero(lending.borrowed.any(axis=0))
    if not lenders.size:
        return []
    part = Lending(
        borrowed=lending.borrowed[:, borrowers],
        lendable=lending.lendable[:, lenders],
        lent=lending.lent[:, lenders],
        from_pool=lending.from_pool,
        overdrawn=lending.overdrawn,
    )
    exact = borrowed_from(part, hours).lender
    chosen = _perhaps_largest(exact, at_most)
    flat = _nano(exact.ravel()[chosen])
    if flat.size > at_most:
        kept = np.argpartition(flat, -at_most)[-at_most:]
        chosen, flat = chosen[kept], flat[kept]
    chosen, flat = chosen[flat > 0], flat[flat > 0]
    # By amount, then position: `argpartition` alone leaves equal loans in any order.
    order = np.lexsort((chosen, -flat))
    chosen, flat = chosen[order], flat[order]
    row, column = np.divmod(chosen, borrowers.size)
    found = zip(lenders[row].tolist(), borrowers[column].tolist(), flat.tolist(), strict=True)
    return [LoanAmount(*pair) for pair in found]


def _perhaps_largest(loans: Array, at_most: int) -> npt.NDArray[np.intp]:
    """Return places within the flat matrix, those of the `at_most` largest loans among them.

    A thousand teams of a tier lend each other a quarter of a million amounts. Those of its largest
    lenders and borrowers are enough to tell how large a loan has to be.
    """
    flat = loans.ravel()
    side = isqrt(at_most) + 1
    if flat.size <= 2 * side * side:
        return np.arange(flat.size)
    some = loans
    for axis in (0, 1):
        sums = some.sum(axis=1 - axis)
        largest = np.argsort(sums)[-side:] if sums.size > side else np.arange(sums.size)
        some = np.take(some, largest, axis=axis)
    if some.size < at_most:
        return np.arange(flat.size)
    least = np.partition(some.ravel(), -at_most)[-at_most]
    # Rounding may make a loan as large as one that is greater by less than a unit.
    return np.flatnonzero(flat >= least - 1 / NANO)


def _joined(lending: Lending) -> Lending:
    """Return the lending as if all lenders were one."""
    return replace(lending, lent=lending.lent.sum(axis=-1, keepdims=True))


def _nano(gpu_hours: npt.ArrayLike) -> NanoGpuHours:
    # Casting cuts towards 0: without `rint` each sum would lose half a unit on average.
    whole: NanoGpuHours = np.rint(np.asarray(gpu_hours, dtype=np.float64) * NANO).astype(np.int64)
    return whole
