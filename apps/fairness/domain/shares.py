"""Fair shares, lending, unmet share and indices of teams (docs/definitions.md#fairness)."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from msgspec import Struct

Array = npt.NDArray[np.float64]
"""Floats. The last axis is teams, in the caller's order; the axes before it are slots (or tiers
and slots). What belongs to a whole tier, as its capacity, lacks the last axis."""
# One weight may be 1e300 times another: both would not fit into one running sum.
_SMALLEST_WEIGHT = 1e-12
"""Of the largest: below it, levels run out of a float's digits."""
_NOTHING = 1e-9
"""GPU-hours: what rounding may leave of a share of 0, and the last digit that is stored."""
# The default of Slurm, whose fair-share factor this is (PriorityDecayHalfLife).
HALF_LIFE_SECONDS = 7 * 86400.0


def amounts(name: str, values: npt.ArrayLike) -> Array:
    """Return values as an array. Raises ValueError when one is negative or not finite."""
    array = np.asarray(values, dtype=np.float64)
    if not np.isfinite(array).all() or (array < 0).any():
        raise ValueError(f"{name} must be finite and not negative")
    return array


def divided(above: npt.ArrayLike, below: npt.ArrayLike) -> Array:
    """Return above ÷ below, and 0 where below is 0."""
    above, below = np.broadcast_arrays(
        np.asarray(above, dtype=np.float64), np.asarray(below, dtype=np.float64)
    )
    out = np.zeros(above.shape)
    # A quotient past the largest float is as good as without end.
    with np.errstate(over="ignore"):
        np.divide(above, below, out=out, where=below > 0)
    return out


def fair_shares(
    *,
    demand: npt.ArrayLike,
    entitlement: npt.ArrayLike,
    capacity: npt.ArrayLike,
    weight: npt.ArrayLike | None = None,
) -> Array:
    """Return the fair share of each team, in the unit of `capacity`; shape of `demand`.

    First each team gets min(demand, entitlement), scaled by one factor where the sum exceeds the
    capacity. The rest goes by weighted water-filling to the remaining demand. `weight` is by
    default the entitlement; teams of weight 0 get what the others leave, in equal parts. A demand
    counts up to the capacity, so work that could never run raises no fair share.

    `demand` has shape (..., teams), the others broadcast to it; `capacity` is (...).
    Raises ValueError for amounts that are negative or not finite.
    """
    room = amounts("capacity", capacity)[..., np.newaxis]
    # Work that can never run would otherwise take the rest of the tier from teams that can use it.
    asked = np.minimum(amounts("demand", demand), room)
    entitled = amounts("entitlement", entitlement)
    weights = _relative(entitled if weight is None else amounts("weight", weight))
    asked, entitled, weights = np.broadcast_arrays(asked, entitled, weights)
    if not asked.shape[-1]:
        return np.zeros(asked.shape)
    shares = entitled_part(asked, entitled, room)
    left = np.maximum(0.0, room - shares.sum(axis=-1, keepdims=True))
    shares = shares + fill(asked - shares, weights, left)
    # A second filling, because a weight of 0 has no level: its brim would lie at infinity.
    if (weights == 0).any():
        left = np.maximum(0.0, room - shares.sum(axis=-1, keepdims=True))
        shares = shares + fill(asked - shares, np.where(weights > 0, 0.0, 1.0), left)
    # Two fillings, each rounded, may together exceed a demand in the last digit.
    return np.minimum(shares, asked)


def _relative(weights: Array) -> Array:
    """Return weights as parts of the largest; what would not show beside it is none."""
    parts = divided(weights, weights.max(axis=-1, keepdims=True, initial=0.0))
    return np.where(parts < _SMALLEST_WEIGHT, 0.0, parts)


def entitled_part(asked: Array, entitled: Array, room: Array) -> Array:
    """Return min(asked, entitled), scaled by one factor to fit into `room` (shape (..., 1))."""
    first = np.minimum(asked, entitled)
    total, there = np.broadcast_arrays(first.sum(axis=-1, keepdims=True), room)
    factor = np.ones_like(total)
    # The factor never exceeds 1: room that is left goes by weight, not by entitlement.
    np.divide(there, total, out=factor, where=total > there)
    scaled: Array = first * factor
    return scaled


def fill(asked: Array, weights: Array, room: Array) -> Array:
    """Return min(asked, level × weight), the level such that `room` is used up or all are served.

    Teams of weight 0 get nothing. `room` has shape (..., 1).
    """
    asked = np.where(weights > 0, np.maximum(asked, 0.0), 0.0)
    filled = np.minimum(asked, _level(asked, weights, room) * weights)
    # Running sums of many teams lose some digits: what they lost goes to who still asks.
    open_weights = np.where(filled < asked, weights, 0.0)
    lost = room - filled.sum(axis=-1, keepdims=True)
    more = open_weights * divided(lost, open_weights.sum(axis=-1, keepdims=True))
    return np.clip(filled + more, 0.0, asked)


def _level(asked: Array, weights: Array, room: Array) -> Array:
    """Return the water's level, the highest brim where there is room for all (shape (..., 1)).

    Teams are full in the order of asked ÷ weight, so the level lies behind the last one that is
    full when the water reaches the brim of the next.
    """
    brim = divided(asked, weights)
    # Sorting replaces the loop that raises the level team by team: thousands of slots go at once.
    order = np.argsort(brim, axis=-1, kind="stable")
    asked, weights, brim = (np.take_along_axis(a, order, -1) for a in (asked, weights, brim))
    open_weight = np.cumsum(weights[..., ::-1], axis=-1)[..., ::-1]
    before = np.cumsum(asked, axis=-1) - asked
    # Brims ascend, so these do: what all hold together when the water is at a team's brim.
    held_at_brim = before + brim * open_weight
    full = (held_at_brim <= room).sum(axis=-1, keepdims=True)
    # Where all are full there is no next team; the last brim is chosen below.
    next_open = np.minimum(full, asked.shape[-1] - 1)
    rest = room - np.take_along_axis(before, next_open, -1)
    level = divided(rest, np.take_along_axis(open_weight, next_open, -1))
    bounded: Array = np.where(
        full < asked.shape[-1], np.minimum(level, brim[..., -1:]), brim[..., -1:]
    )
    return bounded


class Lending(Struct, frozen=True):
    """GPU-equivalents per slot and team; `from_pool` and `overdrawn` per slot.

    Σ lent = Σ borrowed − `from_pool` − `overdrawn`, in every slot. A team that borrows lends
    nothing.
    """

    borrowed: Array
    lendable: Array
    lent: Array
    from_pool: Array
    """Taken from capacity without entitlement."""
    overdrawn: Array
    """Taken from what its owners asked for themselves."""


class BorrowedFrom(Struct, frozen=True):
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

    Shapes as in `fair_shares`. Borrowing takes first from capacity without entitlement, then from
    the lenders in proportion to what each can lend; the rest is over-borrowed. Raises ValueError
    for amounts that are negative or not finite.
    """
    holding, asked, entitled = np.broadcast_arrays(
        amounts("held", held), amounts("demand", demand), amounts("entitlement", entitlement)
    )
    pool = np.maximum(0.0, amounts("capacity", capacity) - entitled.sum(axis=-1))
    # Entitlement comes first even when the team requests nothing: it cannot borrow from itself.
    borrowed = np.maximum(0.0, holding - entitled)
    # What a team requests itself is not lent: who holds it is over-borrowed.
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
    # Slot by slot: over the whole window a team could seem to borrow from its own loans.
    part = divided(lending.borrowed, lending.borrowed.sum(axis=-1, keepdims=True))
    part = part * amounts("hours", hours)[:, np.newaxis]
    return BorrowedFrom(
        lender=lending.lent.T @ part,
        pool=lending.from_pool @ part,
        overdrawn=lending.overdrawn @ part,
    )


def denied(*, pending: npt.ArrayLike, fair_share: npt.ArrayLike, held: npt.ArrayLike) -> Array:
    """Return min(pending, max(0, fair share − held)) of each slot and team.

    `pending` is demand that is not held. Demand above the fair share is not unmet: others may
    rightly hold those GPUs.
    """
    short = np.maximum(0.0, amounts("fair_share", fair_share) - amounts("held", held))
    return np.minimum(amounts("pending", pending), short)


def jain(values: npt.ArrayLike) -> float | None:
    """Return (Σ x)² ÷ (n × Σ x²), 1/n..1: 1 where all are alike (Jain, Chiu, Hawe 1984).

    None for no values, or where all are 0.
    """
    x = amounts("values", values)
    largest = x.max(initial=0.0)
    if not largest:
        return None
    x = x / largest  # keeps the squares in range
    return float(x.sum() ** 2 / (x.size * (x * x).sum()))


def jain_index(
    *, allocated: npt.ArrayLike, fair_share: npt.ArrayLike, demand: npt.ArrayLike
) -> float | None:
    """Return Jain's index over allocated ÷ fair share of the teams with demand.

    All three are sums over the same window, one of each team. None where no team had demand, or
    none got anything. A team whose fair share is 0 to the ninth decimal (there was no capacity, or
    all of it was others' entitlement) is left out: a quotient by almost 0 would hide all others.
    """
    shares = amounts("fair_share", fair_share)
    asked = (amounts("demand", demand) > 0) & (shares > _NOTHING)
    return jain(divided(amounts("allocated", allocated), shares)[asked])


def jain_allocation_ratio(*, allocated: npt.ArrayLike, entitlement: npt.ArrayLike) -> float | None:
    """Return Jain's index over allocated ÷ entitlement of the teams that are entitled to any.

    It calls a team with little demand unfairly treated; `jain_index` does not. It is here to
    compare with published figures.
    """
    entitled = amounts("entitlement", entitlement)
    return jain(divided(amounts("allocated", allocated), entitled)[entitled > 0])


def borrowable(*, held: npt.ArrayLike, entitlement: npt.ArrayLike, pending: npt.ArrayLike) -> Array:
    """Return, per slot, the pending GPUs that entitlements lying idle could have served.

    min(Σ (entitlement − held) of the teams with nothing pending, Σ pending of all): shape (...).
    """
    asked = amounts("pending", pending)
    unheld = np.maximum(0.0, amounts("entitlement", entitlement) - amounts("held", held))
    offered = np.where(asked > 0, 0.0, unheld).sum(axis=-1)
    counted: Array = np.minimum(offered, asked.sum(axis=-1))
    return counted


class DominantTier(NamedTuple):
    """A team's dominant share, 0..1, and the position of the tier; None for who holds nothing."""

    share: float
    tier: int | None


def dominant_shares(held: npt.ArrayLike, capacity: npt.ArrayLike) -> list[DominantTier]:
    """Return each team's dominant share; `held` is (tiers, teams), `capacity` (tiers,).

    The share of a tier is held ÷ its capacity (dominant resource fairness, Ghodsi et al., NSDI
    2011). Of equal shares the first tier counts; a tier without capacity has none.
    """
    holding = amounts("held", held)
    room = amounts("capacity", capacity)
    if not holding.shape[0]:
        return [DominantTier(0.0, None)] * holding.shape[1]
    shares = divided(holding, room[:, np.newaxis])
    tiers = shares.argmax(axis=0)
    return [
        DominantTier(float(share), int(tier) if share > 0 else None)
        for share, tier in zip(shares.max(axis=0), tiers, strict=True)
    ]


def decayed(gpu_hours: npt.ArrayLike, age_seconds: npt.ArrayLike) -> Array:
    """Return each team's GPU-hours, each row counted half for every half-life of its age.

    `gpu_hours` is (rows, teams), allocated per hour or day; `age_seconds` (rows,), counted from
    the end of each row. Sums of this kind can be carried on: what was decayed at one time, with
    an age of the time since, is a row like any other.
    """
    ages = amounts("age_seconds", age_seconds)
    # A half-life has no edge: a fixed window would forgive all use at once on its last day.
    return np.exp2(-ages / HALF_LIFE_SECONDS) @ amounts("gpu_hours", gpu_hours)


def usage_factors(decayed_gpu_hours: npt.ArrayLike, entitlement: npt.ArrayLike) -> Array | None:
    """Return 2^(−usage ÷ share) of each team, 0..1: 1 used nothing, 0.5 exactly its share.

    Usage is the team's part of all decayed GPU-hours, share its entitlement ÷ Σ entitlements. A
    team without a share has factor 0 (https://slurm.schedmd.com/priority_multifactor.html); without
    any entitlement there is no factor: None.
    """
    used = amounts("decayed_gpu_hours", decayed_gpu_hours)
    entitled = amounts("entitlement", entitlement)
    if not entitled.sum():
        return None
    usage = divided(used, used.sum())
    share = entitled / entitled.sum()
    return np.where(share > 0, np.exp2(-divided(usage, share)), 0.0)
