"""How near a replay with nothing changed comes to what happened, tier by tier."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from apps.pending.domain.day_sums import nearest_rank

ALL_TIERS = ""
"""The key of the sums over all tiers."""
_SECONDS = 3600.0


class WorkTimes(NamedTuple):
    """When a work was asked for, started and ended or was canceled, as it was or in a replay.

    `running`: it held GPUs before the window; it has no queue time in it.
    """

    tier: str
    gpus: float
    asked_at: float
    started_at: float | None
    ended_at: float | None
    running: bool = False


@dataclass(slots=True)
class TierTimes:
    """Queue times of what started in the window, and GPU-hours pending and allocated in it."""

    waits: Counter[float] = field(default_factory=Counter)
    unmet_gpu_hours: float = 0.0
    allocated_gpu_hours: float = 0.0

    def percentiles(self) -> tuple[float | None, float | None]:
        """Return the median and the 95th percentile of queue times; None where none started."""
        if not self.waits:
            return None, None
        p50, p95 = nearest_rank(self.waits, (0.5, 0.95))
        return p50, p95


def tier_times(works: Iterable[WorkTimes], *, start: float, end: float) -> Mapping[str, TierTimes]:
    """Return the sums of each tier from `start` to `end`, and of ALL_TIERS."""
    found: dict[str, TierTimes] = defaultdict(TierTimes)
    for work in works:
        began = end if work.started_at is None else work.started_at
        over = end if work.ended_at is None else work.ended_at
        pending = max(0.0, min(began, over, end) - max(work.asked_at, start))
        held = max(0.0, min(over, end) - max(began, start))
        # What ran before has its queue time in the weeks before.
        for own in (found[work.tier], found[ALL_TIERS]):
            own.allocated_gpu_hours += work.gpus * held / _SECONDS
            if not work.running:
                own.unmet_gpu_hours += work.gpus * pending / _SECONDS
                if work.started_at is not None and work.started_at < end:
                    own.waits[work.started_at - work.asked_at] += 1
    return dict(found)
