"""When a quota key will be full, if its use goes on as in the last week."""

from datetime import datetime, timedelta
from typing import NamedTuple

DAYS_BACK = 7
HORIZON = timedelta(days=30)
_LEAST_HOURS = 24
_FLAT = 1e-9


class TrendSums(NamedTuple):
    """Sums over the hours of the last seven days: x hours before now (0 and less), y units used."""

    hours: int
    x: float
    y: float
    xy: float
    xx: float


def full_at(at: datetime, *, hard: float, used: float, sums: TrendSums | None) -> datetime | None:
    """Return when `used` reaches `hard` along the trend of the last seven days.

    The trend is the straight line of least squares through the hourly means of what was used,
    its slope put to what is used now; seven whole days, so that nights and week-ends weigh
    alike at every time. None where it does not get there within 30 days, where the use does not
    grow, or with fewer than 24 hours to go by. What is full already is so at `at`.
    """
    if used >= hard and used > 0:
        return at
    if sums is None or sums.hours < _LEAST_HOURS:
        return None
    spread = sums.hours * sums.xx - sums.x * sums.x
    if spread <= 0:
        return None
    slope = (sums.hours * sums.xy - sums.x * sums.y) / spread
    if slope <= _FLAT:
        return None
    hours = (hard - used) / slope
    return at + timedelta(hours=hours) if hours * 3600 <= HORIZON.total_seconds() else None
