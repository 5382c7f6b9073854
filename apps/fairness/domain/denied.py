"""What a team waited for though its fair share had room for it (docs/definitions.md#fairness)."""

import numpy as np
import numpy.typing as npt

from apps.fairness.domain.arrays import Array, amounts, divided


def denied(*, pending: npt.ArrayLike, fair_share: npt.ArrayLike, held: npt.ArrayLike) -> Array:
    """Return min(pending, max(0, fair share − held)) of each slot and team.

    `pending` is what counts for fairness (`counted_pending`). Waiting above the fair share is
    no denial: it waits for what others may rightly hold.
    """
    short = np.maximum(0.0, amounts("fair_share", fair_share) - amounts("held", held))
    return np.minimum(amounts("pending", pending), short)


def idle_while_denied(*, idle: npt.ArrayLike, denied: npt.ArrayLike, hours: npt.ArrayLike) -> Array:
    """Return the mean GPUs each team held idle while another was denied: (denied, holders).

    `idle` and `denied` are (slots, teams) of one tier, idle as the ledger counts it. The mean is
    over the time in which the team of the row was denied anything; 0 where it never was. What a
    team held idle while it was itself denied stands on the diagonal.
    """
    during = (amounts("denied", denied) > 0) * amounts("hours", hours)[:, np.newaxis]
    return divided(during.T @ amounts("idle", idle), during.sum(axis=0)[:, np.newaxis])
