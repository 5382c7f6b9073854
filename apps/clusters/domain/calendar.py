"""Local days of the report's time zone, and the grid of hours that fits into them."""

from collections.abc import Iterator
from datetime import UTC, date, datetime, time, timedelta
from zoneinfo import ZoneInfo

from apps.clusters.domain.window import Window

_SLOT = timedelta(minutes=30)


def day_start(day: date, zone: ZoneInfo) -> datetime:
    """Return the UTC instant at which a local day begins.

    Where midnight does not exist (a zone that springs forward at 0:00) it is the first instant
    of the day.
    """
    local = datetime.combine(day, time(), zone)
    utc = local.astimezone(UTC)
    while utc.astimezone(zone).date() < day:
        utc += _SLOT
    return utc


def day_window(day: date, zone: ZoneInfo) -> Window:
    """Return the 23, 24 or 25 hours of a local day as a UTC window."""
    return Window(day_start(day, zone), day_start(day + timedelta(days=1), zone))


def day_of(at: datetime, zone: ZoneInfo) -> date:
    """Return the local day in which an instant lies."""
    return at.astimezone(zone).date()


def days_in(window: Window, zone: ZoneInfo) -> Iterator[date]:
    """Yield every local day that the window touches, oldest first."""
    day = day_of(window.start, zone)
    while day_start(day, zone) < window.end:
        yield day
        day += timedelta(days=1)


def hour_floor(at: datetime, zone: ZoneInfo) -> datetime:
    """Return the start of the fact hour in which `at` lies.

    Fact hours are counted from local midnight, so that a day is a whole number of them; in a
    zone at :30 they begin at half past in UTC (docs/definitions.md#time).
    """
    start = day_start(day_of(at, zone), zone)
    return start + timedelta(hours=(at - start) // timedelta(hours=1))


def last_closed_hour(now: datetime, zone: ZoneInfo, settling: timedelta) -> datetime:
    """Return the start of the newest hour that ended at least `settling` before `now`."""
    return hour_floor(now - settling, zone) - timedelta(hours=1)
