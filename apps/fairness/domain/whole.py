"""Measures of a tier's slots as whole nano-GPU-hours, rounded once, so that their sums close."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from apps.fairness.domain.arrays import Array, divided
from apps.fairness.domain.integrate import Measured
from apps.fairness.domain.lending import Lending, borrowed_from
from apps.usage.domain.amounts import NANO

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

    Σ lent = Σ borrowed − from_pool − overdrawn, and the tier's pool and overdraft are the sums of
    its teams', to the last digit.
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

    `totals` are parted in proportion to the parts; of equal remainders the first part takes what
    is left over. Of a column without any part the first takes the total; without parts, nobody.
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
