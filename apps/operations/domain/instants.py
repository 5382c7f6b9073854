"""Times as the catalog writes them, and time zones that the report can use."""

import re
from datetime import UTC, date, datetime, time, timedelta
from functools import cache
from zoneinfo import ZoneInfo, available_timezones

# What the first catalog of a portal says is taken to have held always: history that is read in
# later is then classified by it. Nothing that the portal reads is older.
BEGINNING = datetime(2000, 1, 1, tzinfo=UTC)

_EARLIEST = date(2000, 1, 1)
_LATEST = date(2199, 12, 31)
_HALF_HOUR = timedelta(minutes=30)


def instant(text: str, zone: ZoneInfo) -> datetime:
    """Return a date's first moment in `zone`, or the time that RFC 3339 text names; in UTC.

    `text` has the shape of the schema's `Instant`. Raises ValueError, with what is wrong, for a
    day or time that does not exist or lies outside the years 2000 to 2199.
    """
    try:
        day = date.fromisoformat(text[:10])
    except ValueError as error:
        raise ValueError(f"{text[:10]} is no day of the calendar") from error
    if not _EARLIEST <= day <= _LATEST:
        raise ValueError(f"{day} does not lie between {_EARLIEST} and {_LATEST}")
    if len(text) == len("2026-01-01"):
        return datetime.combine(day, time(), zone).astimezone(UTC)
    try:
        return datetime.fromisoformat(text.upper()).astimezone(UTC)
    except ValueError as error:
        raise ValueError(f"{text} is no time of day with an offset") from error


def zone_problem(name: str, year_around: datetime) -> str | None:
    """Return why the report cannot use the time zone `name`; None when it can.

    Facts are half-hour slots in UTC. A zone whose offset is no whole number of half hours, at
    `year_around` or within a year before or after, would cut its days through the middle of one.
    """
    if name not in known_zones():
        return "no time zone of that name"
    zone = ZoneInfo(name)
    days = (year_around.astimezone(UTC) + timedelta(days=day) for day in range(-366, 367))
    odd = {
        offset
        for day in days
        if (offset := day.astimezone(zone).utcoffset()) and offset % _HALF_HOUR
    }
    if not odd:
        return None
    return (
        f"{name} is at UTC{_signed(min(odd))}, not a whole number of half hours: its days would "
        "begin within a half-hour slot, and slots are what facts are made of; choose a zone at "
        ":00 or :30"
    )


@cache
def known_zones() -> frozenset[str]:
    """Return the names of all IANA time zones known here."""
    return frozenset(name for name in available_timezones() if re.match(r"[A-Z]", name))


def _signed(offset: timedelta) -> str:
    seconds = int(offset.total_seconds())
    hours, minutes = divmod(abs(seconds) // 60, 60)
    return f"{'-' if seconds < 0 else '+'}{hours:02}:{minutes:02}"
