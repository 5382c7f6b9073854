"""The shape all measures of fairness share: amounts of teams, one row a slot."""

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]
"""Floats. The last axis is teams, in the caller's order; the axes before it are slots (or tiers
and slots). What belongs to a whole tier, as its capacity, lacks the last axis."""


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
