"""The GPU-hours of inference servers: of which of them series tell what was served."""

from collections import defaultdict
from collections.abc import Hashable, Mapping, Sequence
from enum import StrEnum
from itertools import pairwise
from typing import NamedTuple, TypeVar

GANG_KINDS = frozenset({"LeaderWorkerSet", "RayCluster", "RayService"})
"""Of their pods one answers for all: the GPUs of the others serve the same model."""
_Key = TypeVar("_Key", bound=Hashable)


class ServingState(StrEnum):
    """Whether an hour's series of inference servers were read; hours not asked for have none."""

    ABSENT = "absent"
    READ = "read"
    REFUSED = "refused"


class Holding(NamedTuple):
    """What a pod held in an hour: nano-GPU-hours, for how many seconds, and for which workload."""

    allocated: int
    seconds: float
    workload: int
    is_of_gang: bool = False


def measured_amounts(
    holdings: Mapping[_Key, Holding], measured: Mapping[_Key, float]
) -> dict[_Key, int]:
    """Return the nano-GPU-hours of each pod for as long as its series are there.

    `measured` has their seconds. In a gang the pods without series of their own count evenly for
    those with some: a model that spans nodes is served by one of its pods. Elsewhere a pod without
    series has no data.
    """
    silent: defaultdict[int, int] = defaultdict(int)
    serving: defaultdict[int, int] = defaultdict(int)
    for key, one in holdings.items():
        if key in measured:
            serving[one.workload] += 1
        elif one.is_of_gang:
            silent[one.workload] += one.allocated
    found = {}
    for key, seconds in measured.items():
        one = holdings[key]
        whole = one.allocated + silent[one.workload] // serving[one.workload]
        # The last sample before the hour begins it: there may be a scrape more than was held.
        found[key] = min(whole, round(whole * seconds / one.seconds)) if one.seconds else 0
    return found


def divided(amount: int, weights: Sequence[float]) -> list[int]:
    """Return whole parts of an amount by weight, evenly without any; they sum to it exactly."""
    total = sum(weights)
    own = list(weights) if total > 0 else [1.0] * len(weights)
    bounds, reached = [0], 0.0
    for weight in own:
        reached += weight
        # Bounds and not parts are rounded, so that what one part loses the next one has.
        bounds.append(round(amount * (reached / sum(own))))
    # Sums of floats may end just below 1, and the last part would lose a unit.
    bounds[-1] = amount
    return [end - start for start, end in pairwise(bounds)]
