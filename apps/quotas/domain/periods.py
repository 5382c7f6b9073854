"""The running period of a budget: local weeks (from Monday), months, quarters and years."""

from datetime import date, datetime, timedelta
from zoneinfo import ZoneInfo

from apps.clusters.domain.calendar import day_of, day_start
from apps.clusters.domain.window import Window

_MONTHS = {"month": 1, "quarter": 3, "year": 12}


def period_at(period: str, at: datetime, zone: ZoneInfo) -> Window:
    """Return the week, month, quarter or year that holds `at`, in the report's time zone.

    Raises ValueError for any other period.
    """
    day = day_of(at, zone)
    if period == "week":
        first = day - timedelta(days=day.weekday())
        return Window(day_start(first, zone), day_start(first + timedelta(days=7), zone))
    if period not in _MONTHS:
        raise ValueError(f"no period of a budget: {period!r}")
    months = _MONTHS[period]
    first = date(day.year, (day.month - 1) // months * months + 1, 1)
    number = first.year * 12 + first.month - 1 + months
    after = date(number // 12, number % 12 + 1, 1)
    return Window(day_start(first, zone), day_start(after, zone))
