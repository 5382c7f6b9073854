"""What would start at once if a limit were raised: which of the work that waits for it."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime

from apps.quota_requests.domain.frozen import NEVER_STORED
from apps.quota_requests.domain.overcommitment import EPSILON
from apps.quota_requests.domain.quantities import Quantity


@dataclass(frozen=True, slots=True)
class BlockedWork:
    """Work that this very key holds back: `pods` not made for it, `units` each of its resource.

    A `whole` one is let through with all its pods or not at all. `other_headroom` is the least
    headroom, in units of the same resource, of the other quotas that also count it; None: there is
    no other. `since` is when it began to wait; what has a higher `priority` is let through first.
    """

    uid: str
    name: str
    units: float
    pods: int
    since: datetime
    other_headroom: float | None = None
    whole: bool = False
    priority: int = 0


@dataclass(frozen=True, slots=True)
class Start:
    """How many pods of a workload would be made at once, and how many of these find a free GPU.

    `free` is None where it is not known what is free. `left` pods would still be refused.
    """

    name: str
    admitted: int
    free: int | None
    left: int
    uid: str = field(default="", metadata=NEVER_STORED)


def would_start(
    held: Sequence[BlockedWork],
    *,
    used: Quantity,
    after: Quantity,
    free_units: float | None,
    strict: bool = False,
) -> list[Start]:
    """Return what the new limit lets through: by priority, then longest waiting first.

    Quota refuses pod by pod and keeps no queue: what is too large is passed over and smaller work
    behind it goes through, but in a `strict` queue, where nothing passes what waits in front. Which
    of several is first in truth depends on whose controller tries again first. A pod that is let
    through still waits where no GPU is free; each free one is given out once.
    """
    headroom, free, is_closed = float((after - used).units), free_units, False
    starts = []
    for work in sorted(held, key=lambda work: (-work.priority, work.since, work.uid)):
        if work.units <= 0:
            continue
        room = headroom if work.other_headroom is None else min(headroom, work.other_headroom)
        admitted = 0 if is_closed else _let_through(work, room)
        is_closed = is_closed or (strict and admitted < work.pods)
        headroom -= admitted * work.units
        placed = None
        if free is not None:
            placed = min(admitted, _pods(free, work.units))
            free -= placed * work.units
        starts.append(Start(work.name, admitted, placed, work.pods - admitted, work.uid))
    return starts


def _let_through(work: BlockedWork, room: float) -> int:
    pods = min(work.pods, _pods(room, work.units))
    return pods if pods == work.pods or not work.whole else 0


def _pods(room: float, units: float) -> int:
    return max(0, int((room + EPSILON) / units))
