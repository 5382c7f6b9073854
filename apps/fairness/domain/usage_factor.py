"""How much a team used lately against its share, as Slurm's fair-share factor has it."""

import numpy as np
import numpy.typing as npt

from apps.fairness.domain.arrays import Array, amounts, divided

HALF_LIFE_SECONDS = 7 * 86400.0


def decayed(
    gpu_hours: npt.ArrayLike,
    age_seconds: npt.ArrayLike,
    *,
    half_life_seconds: float = HALF_LIFE_SECONDS,
) -> Array:
    """Return each team's GPU-hours, each row counted half for every half-life of its age.

    `gpu_hours` is (rows, teams), allocated per hour or day; `age_seconds` (rows,), counted from
    the end of each row. Sums of this kind can be carried on: what was decayed at one time, with
    an age of the time since, is a row like any other.
    """
    ages = amounts("age_seconds", age_seconds)
    return np.exp2(-ages / half_life_seconds) @ amounts("gpu_hours", gpu_hours)


def usage_factors(decayed_gpu_hours: npt.ArrayLike, entitlement: npt.ArrayLike) -> Array | None:
    """Return 2^(−usage ÷ share) of each team, 0..1: 1 used nothing, 0.5 exactly its share.

    Usage is the team's part of all decayed GPU-hours, share its entitlement ÷ Σ entitlements. A
    team without a share has factor 0 (https://slurm.schedmd.com/priority_multifactor.html), and
    where nobody has one there is no factor: None.
    """
    used = amounts("decayed_gpu_hours", decayed_gpu_hours)
    entitled = amounts("entitlement", entitlement)
    if not entitled.sum():
        return None
    usage = divided(used, used.sum())
    share = entitled / entitled.sum()
    return np.where(share > 0, np.exp2(-divided(usage, share)), 0.0)
