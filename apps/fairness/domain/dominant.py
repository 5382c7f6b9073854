"""Dominant share: the largest part of any one tier that a team holds, to compare across tiers."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from apps.fairness.domain.arrays import amounts, divided


class Dominant(NamedTuple):
    """A team's dominant share, 0..1, and the position of the tier; None for who holds nothing."""

    share: float
    tier: int | None


def dominant_shares(held: npt.ArrayLike, capacity: npt.ArrayLike) -> list[Dominant]:
    """Return each team's dominant share; `held` is (tiers, teams), `capacity` (tiers,).

    The share of a tier is held ÷ its capacity (dominant resource fairness, Ghodsi et al., NSDI
    2011). Of equal shares the first tier counts; a tier without capacity has none.
    """
    holding = amounts("held", held)
    room = amounts("capacity", capacity)
    if not holding.shape[0]:
        return [Dominant(0.0, None)] * holding.shape[1]
    shares = divided(holding, room[:, np.newaxis])
    tiers = shares.argmax(axis=0)
    return [
        Dominant(float(share), int(tier) if share > 0 else None)
        for share, tier in zip(shares.max(axis=0), tiers, strict=True)
    ]
