"""Fair share: who should have how much of one tier in one slot (docs/definitions.md#fairness)."""

import numpy as np
import numpy.typing as npt

from apps.fairness.domain.arrays import Array, amounts, divided

_SMALLEST_WEIGHT = 1e-12
"""Of the largest: below it, levels run out of a float's digits."""


def fair_shares(
    *,
    demand: npt.ArrayLike,
    entitlement: npt.ArrayLike,
    capacity: npt.ArrayLike,
    weight: npt.ArrayLike | None = None,
) -> Array:
    """Return the fair share of each team, in the unit of `capacity`; shape of `demand`.

    First everybody gets min(demand, entitlement), scaled by one factor where these exceed the
    capacity. The rest goes by weighted water-filling to what is still asked for. `weight` is by
    default the entitlement; teams of weight 0 get what the others leave, in equal parts. A demand
    counts up to the capacity, so what could never run raises nobody's share.

    `demand` has shape (..., teams), the others broadcast to it; `capacity` is (...).
    Raises ValueError for amounts that are negative or not finite.
    """
    room = amounts("capacity", capacity)[..., np.newaxis]
    asked = np.minimum(amounts("demand", demand), room)
    entitled = amounts("entitlement", entitlement)
    weights = _relative(entitled if weight is None else amounts("weight", weight))
    asked, entitled, weights = np.broadcast_arrays(asked, entitled, weights)
    if not asked.shape[-1]:
        return np.zeros(asked.shape)
    shares = promised(asked, entitled, room)
    left = np.maximum(0.0, room - shares.sum(axis=-1, keepdims=True))
    shares = shares + fill(asked - shares, weights, left)
    if (weights == 0).any():
        left = np.maximum(0.0, room - shares.sum(axis=-1, keepdims=True))
        shares = shares + fill(asked - shares, np.where(weights > 0, 0.0, 1.0), left)
    return np.minimum(shares, asked)


def _relative(weights: Array) -> Array:
    """Return weights as parts of the largest; what would not show beside it is none."""
    parts = divided(weights, weights.max(axis=-1, keepdims=True, initial=0.0))
    return np.where(parts < _SMALLEST_WEIGHT, 0.0, parts)


def promised(asked: Array, entitled: Array, room: Array) -> Array:
    """Return min(asked, entitled), scaled by one factor to fit into `room` (shape (..., 1))."""
    first = np.minimum(asked, entitled)
    total, there = np.broadcast_arrays(first.sum(axis=-1, keepdims=True), room)
    factor = np.ones_like(total)
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
    order = np.argsort(brim, axis=-1, kind="stable")
    asked, weights, brim = (np.take_along_axis(a, order, -1) for a in (asked, weights, brim))
    open_weight = np.cumsum(weights[..., ::-1], axis=-1)[..., ::-1]
    before = np.cumsum(asked, axis=-1) - asked
    # Brims ascend, so these do: what all hold together when the water is at a team's brim.
    held_at_brim = before + brim * open_weight
    full = (held_at_brim <= room).sum(axis=-1, keepdims=True)
    next_open = np.minimum(full, asked.shape[-1] - 1)
    rest = room - np.take_along_axis(before, next_open, -1)
    level = divided(rest, np.take_along_axis(open_weight, next_open, -1))
    bounded: Array = np.where(
        full < asked.shape[-1], np.minimum(level, brim[..., -1:]), brim[..., -1:]
    )
    return bounded
