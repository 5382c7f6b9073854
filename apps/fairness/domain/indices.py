"""One number for a tier: how even it was, and how much waited beside free entitlement."""

import numpy as np
import numpy.typing as npt

from apps.fairness.domain.arrays import Array, amounts, divided

_NOTHING = 1e-9
"""GPU-hours: what rounding may leave of a share of 0, and the last digit that is stored."""


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

    All three are sums over the same window, one of each team. None where nobody asked, or nobody
    got anything. A team whose fair share is 0 to the ninth decimal (there was no capacity, or
    all of it others' entitlement) is left out: a quotient by such would drown all others.
    """
    shares = amounts("fair_share", fair_share)
    asked = (amounts("demand", demand) > 0) & (shares > _NOTHING)
    return jain(divided(amounts("allocated", allocated), shares)[asked])


def jain_allocation_ratio(*, allocated: npt.ArrayLike, entitlement: npt.ArrayLike) -> float | None:
    """Return Jain's index over allocated ÷ entitlement of the teams that are entitled to any.

    It calls a team that asks for little unfairly treated; `jain_index` does not. It is here to
    compare with what others publish.
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
