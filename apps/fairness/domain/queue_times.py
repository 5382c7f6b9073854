"""Queue times of a team in a tier."""

from collections import Counter

from msgspec import Struct, field

from apps.pending.domain.day_sums import nearest_rank


class QueueTimes(Struct):
    """Queue times of a team: seconds → how many queue times of that length ended by a start.

    `waiting_now` counts work that is pending at the end, `gave_up` work canceled before its start.
    """

    ended: Counter[float] = field(default_factory=Counter)
    waiting_now: int = 0
    gave_up: int = 0

    def percentiles(self) -> tuple[float | None, float | None]:
        """Return the median and the 95th percentile, by nearest rank; None where none ended."""
        if not self.ended:
            return None, None
        p50, p95 = nearest_rank(self.ended, (0.5, 0.95))
        return p50, p95
