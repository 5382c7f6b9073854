"""The window of a request: RFC 3339 times or dates, local to the report's time zone."""

import re
from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

from apps.api.base.problems import InvalidParameters
from apps.clusters.domain.window import Window
from apps.usage.domain.periods import day_start, whole_days

DEFAULT_DAYS = 7
_YEARS = range(2000, 2101)
_FIRST = datetime(_YEARS.start, 1, 1, tzinfo=UTC)
_LAST = datetime(_YEARS.stop, 1, 2, tzinfo=UTC)
_DATE = re.compile(r"^\d{4}-\d{2}-\d{2}$")
_FORMS = "give an RFC 3339 time with its offset (2026-03-01T00:00:00Z) or a date (2026-03-01)"


def window_of(start: str | None, end: str | None, *, zone: ZoneInfo, now: datetime) -> Window:
    """Return the window asked for; without either end the last seven whole local days.

    Without `end` it ends at the last local midnight, without `start` it starts seven local days
    before its end. Raises InvalidParameters.
    """
    asked = _ends(start, end, zone)
    until = asked["end"] or day_start(now.astimezone(zone).date(), zone)
    since = asked["start"] or _days_before(until, zone)
    if since >= until:
        raise InvalidParameters({"end": [_order(since, until, given=end is not None)]})
    return Window(since, until)


def open_window(start: str | None, end: str | None, *, zone: ZoneInfo) -> Window | None:
    """Return the window asked for, open where an end is not given; None without either.

    Raises InvalidParameters.
    """
    asked = _ends(start, end, zone)
    if asked["start"] is None and asked["end"] is None:
        return None
    since, until = asked["start"] or _FIRST, asked["end"] or _LAST
    if since >= until:
        raise InvalidParameters({"end": [_order(since, until, given=True)]})
    return Window(since, until)


def _ends(start: str | None, end: str | None, zone: ZoneInfo) -> dict[str, datetime | None]:
    errors = {}
    ends: dict[str, datetime | None] = {}
    for name, text in (("start", start), ("end", end)):
        try:
            ends[name] = None if text is None else moment(text, zone)
        except ValueError as error:
            errors[name] = [str(error)]
    if errors:
        raise InvalidParameters(errors)
    return ends


def moment(text: str, zone: ZoneInfo) -> datetime:
    """Return the UTC time that `text` says; a date is its local midnight. Raises ValueError."""
    try:
        if _DATE.match(text):
            at = day_start(_known(date.fromisoformat(text)), zone)
        else:
            # The + of an offset arrives as a blank where it was not escaped.
            at = datetime.fromisoformat(re.sub(r" (?=\d\d:\d\d$)", "+", text))
            _known(at.date())
    except ValueError as error:
        raise ValueError(f"{text!r} is not a time: {_FORMS}") from error
    if at.tzinfo is None:
        raise ValueError(f"{text!r} has no offset: {_FORMS}")
    return at.astimezone(UTC)


def _known(day: date) -> date:
    if day.year not in _YEARS:
        raise ValueError(f"the year must be {_YEARS.start} to {_YEARS.stop - 1}")
    return day


def _days_before(until: datetime, zone: ZoneInfo) -> datetime:
    last = (until - timedelta(microseconds=1)).astimezone(zone).date()
    return whole_days(last, DEFAULT_DAYS, zone).start


def _order(since: datetime, until: datetime, *, given: bool) -> str:
    if given:
        return "must be after start"
    return (
        f"is missing: without it the window ends at the last midnight, {until.isoformat()}, "
        f"which is not after start {since.isoformat()}"
    )
