"""What a team waited for though its fair share had room for it (docs/definitions.md#fairness)."""

import numpy as np
import numpy.typing as npt

from apps.fairness.domain.arrays import Array, amounts


def denied(*, pending: npt.ArrayLike, fair_share: npt.ArrayLike, held: npt.ArrayLike) -> Array:
    """Return min(pending, max(0, fair share − held)) of each slot and team.

    `pending` is demand that is not held. Waiting above the fair share is
    no denial: it waits for what others may rightly hold.
    """
    short = np.maximum(0.0, amounts("fair_share", fair_share) - amounts("held", held))
    return np.minimum(amounts("pending", pending), short)
