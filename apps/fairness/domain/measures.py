"""Measures of a tier over its slots, their sums, and the packed amounts of its teams.

Packed amounts are eight-byte little-endian integers: the teams' ids in ascending order, then each
column in turn. A thousand rows take longer to read than to add.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

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


class HourState(StrEnum):
    """`missing`: a cluster that has the tier lacks facts, or its demand, so nothing is judged.

    Demand is known where the cluster was watched, or estimated from series; what was held is never
    taken for it.

    What teams are entitled to holds in all clusters together: with one of them left out, those
    who hold much there would seem to hold nothing.
    """

    COMPLETE = "complete"
    PARTIAL = "partial"
    MISSING = "missing"


@dataclass(frozen=True)
class TierSlots:
    """What is known of one tier: GPU-equivalents, means over each slot.

    `hours` and `capacity` are (slots,), the others (slots, teams). A slot is as long as nothing
    that is promised changes in it, half an hour at most: an entitlement that changes in mid-slot
    makes two of it. `pending` is the pending work that counts for fairness.
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


Whole = npt.NDArray[np.int64]
"""Nano-GPU-hours (1e-9 GPU-hours)."""


class PairAmount(NamedTuple):
    """Nano-GPU-hours that the team at `borrower` held of the entitlement of that at `lender`."""

    lender: int
    borrower: int
    amount: int


@dataclass(frozen=True)
class WholeSums:
    """Sums over slots, one of each team, then those of the tier.

    Σ lent = Σ borrowed − `from_pool` − `overdrawn`, and the tier's `from_pool` and `overdrawn` are
    the sums of its teams', to the last digit.
    """

    entitlement: Whole
    weight: Whole
    demand: Whole
    fair_share: Whole
    borrowed: Whole
    lent: Whole
    denied: Whole
    from_pool: Whole
    overdrawn: Whole
    borrowable: int


def whole_sums(measured: Measured) -> WholeSums:
    """Return the sums of all slots; what is borrowed is parted, and what is lent follows from it.

    A part is rounded so that the parts of each borrower sum to what it borrowed.
    """
    slots, lending = measured.slots, measured.lending
    hours = slots.hours
    borrowed = _nano(hours @ lending.borrowed)
    # Of a borrower's parts the lenders' are taken together: who lent what is parted below.
    sources = borrowed_from(_joined(lending), hours)
    pool, overdrawn, from_lenders = apportion(
        np.stack([sources.pool, sources.overdrawn, sources.lender[0]]), borrowed
    )
    lent_in_all = np.array([from_lenders.sum()])
    lent = apportion((hours @ lending.lent)[:, np.newaxis], lent_in_all)[:, 0]
    return WholeSums(
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


def apportion(parts: Array, totals: Whole) -> Whole:
    """Return whole parts that sum to each total: (parts, columns), by largest remainder.

    `totals` are divided in proportion to the parts; of equal remainders the first part takes what
    is left over. The total of a column without any part goes to the first row; without rows, to
    none.
    """
    if not len(parts):
        return np.zeros(parts.shape, dtype=np.int64)
    shares = divided(parts, parts.sum(axis=0))
    shares[0] += shares.sum(axis=0) == 0
    exact = shares * totals
    floors = np.floor(exact).astype(np.int64)
    left = totals - floors.sum(axis=0)
    rank = np.argsort(np.argsort(floors - exact, axis=0, kind="stable"), axis=0, kind="stable")
    parted: Whole = floors + (rank < left)
    return parted


def largest_loans(measured: Measured, *, at_most: int) -> Sequence[PairAmount]:
    """Return who borrowed how much from whom, the largest first; at most so many."""
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
    amounts = _nano(borrowed_from(part, hours).lender)
    flat = amounts.ravel()
    if flat.size > at_most:
        chosen = np.argpartition(flat, -at_most)[-at_most:]
    else:
        chosen = np.arange(flat.size)
    chosen = chosen[flat[chosen] > 0]
    chosen = chosen[np.lexsort((chosen, -flat[chosen]))]
    row, column = np.divmod(chosen, borrowers.size)
    found = zip(
        lenders[row].tolist(), borrowers[column].tolist(), flat[chosen].tolist(), strict=True
    )
    return [PairAmount(*pair) for pair in found]


def _joined(lending: Lending) -> Lending:
    """Return the lending as if all lenders were one."""
    return Lending(
        borrowed=lending.borrowed,
        lendable=lending.lendable,
        lent=lending.lent.sum(axis=-1, keepdims=True),
        from_pool=lending.from_pool,
        overdrawn=lending.overdrawn,
    )


def _nano(gpu_hours: npt.ArrayLike) -> Whole:
    whole: Whole = np.rint(np.asarray(gpu_hours, dtype=np.float64) * NANO).astype(np.int64)
    return whole


PACKED = ("entitlement", "demand", "fair_share", "allocated", "borrowed", "denied")
"""What is packed of a team, in this order."""

_STORED = np.dtype("<i8")
_Whole = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class TeamTable:
    """Nano-GPU-hours: `teams` are ids in ascending order, `amounts` is (columns, teams)."""

    teams: _Whole
    amounts: _Whole

    def column(self, name: str) -> _Whole:
        """Return the amounts of one of PACKED, one of each team."""
        found: _Whole = self.amounts[PACKED.index(name)]
        return found

    def only(self, teams: Iterable[int]) -> "TeamTable":
        """Return the same of these teams alone."""
        kept = np.isin(self.teams, np.array(list(teams), dtype=np.int64))
        return TeamTable(self.teams[kept], self.amounts[:, kept])


def table_of(rows: Sequence[Sequence[int]]) -> TeamTable:
    """Return rows of (team, *PACKED), of each team one, as a table."""
    ordered = np.array(sorted(rows, key=lambda row: row[0]), dtype=np.int64).reshape(
        len(rows), 1 + len(PACKED)
    )
    return TeamTable(ordered[:, 0], ordered[:, 1:].T)


def pack_table(table: TeamTable) -> bytes:
    """Return a table as the value that is stored."""
    return np.vstack([table.teams, table.amounts]).astype(_STORED).tobytes()


def unpack_table(stored: bytes | memoryview) -> TeamTable:
    """Return the table that was packed. Raises ValueError for what is none."""
    found = np.frombuffer(stored, dtype=_STORED).reshape(1 + len(PACKED), -1).astype(np.int64)
    return TeamTable(found[0], found[1:])


def sum_tables(tables: Sequence[TeamTable]) -> TeamTable:
    """Return the sums by team, exactly."""
    if not tables:
        return table_of(())
    teams = np.unique(np.concatenate([table.teams for table in tables]))
    amounts = np.zeros((len(PACKED), teams.size), dtype=np.int64)
    for table in tables:
        if table.teams.size == teams.size:
            amounts += table.amounts
        else:
            amounts[:, np.searchsorted(teams, table.teams)] += table.amounts
    return TeamTable(teams, amounts)
