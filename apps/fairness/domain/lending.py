"""Borrowing above an entitlement, and who lent it (docs/definitions.md#fairness)."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from apps.fairness.domain.arrays import Array, amounts, divided


@dataclass(frozen=True, slots=True)
class Lending:
    """GPU-equivalents per slot and team; `from_pool` and `overdrawn` per slot.

    Σ lent = Σ borrowed − from_pool − overdrawn, in every slot. Who borrows lends nothing.
    """

    borrowed: Array
    lendable: Array
    lent: Array
    from_pool: Array
    """Taken from capacity that nobody is entitled to."""
    overdrawn: Array
    """Taken from what its owners asked for themselves."""


@dataclass(frozen=True, slots=True)
class BorrowedFrom:
    """GPU-hours of each borrower by where they came from; `lender` is (lenders, borrowers).

    A column of `lender`, with `pool` and `overdrawn`, sums to what the borrower borrowed; a row
    to what the lender lent.
    """

    lender: Array
    pool: Array
    overdrawn: Array


def lend(
    *,
    held: npt.ArrayLike,
    demand: npt.ArrayLike,
    entitlement: npt.ArrayLike,
    capacity: npt.ArrayLike,
) -> Lending:
    """Say what is borrowed in each slot and what each team lends.

    Shapes as in `fair_shares`. What is borrowed is taken first from capacity that nobody is
    entitled to, then from the lenders in proportion to what each can lend, and where that does
    not suffice it is overdrawn. Raises ValueError for amounts that are negative or not finite.
    """
    holding, asked, entitled = np.broadcast_arrays(
        amounts("held", held), amounts("demand", demand), amounts("entitlement", entitlement)
    )
    pool = np.maximum(0.0, amounts("capacity", capacity) - entitled.sum(axis=-1))
    borrowed = np.maximum(0.0, holding - entitled)
    lendable = np.maximum(0.0, entitled - np.maximum(holding, asked))
    wanted = borrowed.sum(axis=-1)
    from_pool = np.minimum(wanted, pool)
    offered = lendable.sum(axis=-1)
    taken = np.minimum(wanted - from_pool, offered)
    lent = lendable * divided(taken, offered)[..., np.newaxis]
    return Lending(borrowed, lendable, lent, from_pool, wanted - from_pool - taken)


def borrowed_from(lending: Lending, hours: npt.ArrayLike) -> BorrowedFrom:
    """Return who borrowed from whom over slots of `hours` each (shape (slots,)).

    GPUs have no names: in every slot each borrower takes part in every source in proportion to
    what it borrowed.
    """
    part = divided(lending.borrowed, lending.borrowed.sum(axis=-1, keepdims=True))
    part = part * amounts("hours", hours)[:, np.newaxis]
    return BorrowedFrom(
        lender=lending.lent.T @ part,
        pool=lending.from_pool @ part,
        overdrawn=lending.overdrawn @ part,
    )
