"""The windows beside the one that is shown: earlier, later, and the one to compare with."""

from calendar import monthrange
from datetime import date, datetime, timedelta
from enum import Enum
from zoneinfo import ZoneInfo

from apps.clusters.domain.calendar import day_start, hour_floor
from apps.clusters.domain.window import Window
from apps.web.components.links import Query
from apps.web.forms import DAY, EARLIEST, PRESETS, WindowChoice, preset_choice

_OF_DAYS = tuple(name for name in PRESETS if name != "24h")


class WindowUnit(Enum):
    """What a window is made of, hence by how much its neighbours lie apart."""

    HOURS = "hours"
    DAYS = "days"
    MONTH = "month"


def kind_of(choice: WindowChoice) -> WindowUnit:
    """Say what the window is: a calendar month, whole local days (the last may run), or hours."""
    if not _by_days(choice):
        return WindowUnit.HOURS
    whole = choice.last.day == _days_of_month(choice.last)
    same_month = (choice.first.year, choice.first.month) == (choice.last.year, choice.last.month)
    if choice.first.day == 1 and same_month and (whole or choice.preset == "month"):
        return WindowUnit.MONTH
    return WindowUnit.DAYS


def before(choice: WindowChoice) -> Window:
    """Return the window to compare with: as long, and cut at the same time of its last day.

    So a week whose last day has run until noon is held against a week until noon.
    """
    match kind_of(choice):
        case WindowUnit.HOURS:
            length = choice.window.end - choice.window.start
            return Window(choice.window.start - length, choice.window.start)
        case WindowUnit.DAYS:
            days = _days(choice) * DAY
            return Window(*(_moved(at, days, choice.zone) for at in _ends(choice)))
        case WindowUnit.MONTH:
            return _month_before(choice)


def before_words(choice: WindowChoice) -> str:
    """Name the window to compare with: `the 7 days before`."""
    match kind_of(choice):
        case WindowUnit.HOURS:
            hours = round((choice.window.end - choice.window.start) / timedelta(hours=1))
            return "the hour before" if hours == 1 else f"the {hours} hours before"
        case WindowUnit.DAYS:
            days = _days(choice)
            return "the day before" if days == 1 else f"the {days} days before"
        case WindowUnit.MONTH:
            return "the month before"


def earlier(choice: WindowChoice, now: datetime) -> Query | None:
    """Return the query of the window before; None where windows cannot reach back further."""
    if kind_of(choice) is WindowUnit.HOURS:
        length = choice.window.end - choice.window.start
        start = choice.window.start - length
        too_early = start.astimezone(choice.zone).date() < EARLIEST
        return None if too_early else _times(start, choice.window.start)
    first = _first_of_earlier(choice)
    if first < EARLIEST:
        return None
    return _days_query(first, choice.first - DAY, choice.zone, now)


def later(choice: WindowChoice, now: datetime) -> Query | None:
    """Return the query of the window after; None where it lies in the future."""
    if kind_of(choice) is WindowUnit.HOURS:
        if choice.window.end >= hour_floor(now, choice.zone):
            return None
        length = choice.window.end - choice.window.start
        return _times(choice.window.end, choice.window.end + length)
    first = choice.last + DAY
    if first > now.astimezone(choice.zone).date():
        return None
    return _days_query(first, _last_of_later(choice), choice.zone, now)


def _by_days(choice: WindowChoice) -> bool:
    if choice.preset:
        return choice.preset != "24h"
    if choice.query[0][0] in {"first", "last"}:
        return True
    return all(
        day_start(at.astimezone(choice.zone).date(), choice.zone) == at for at in _ends(choice)
    )


def _ends(choice: WindowChoice) -> tuple[datetime, datetime]:
    return choice.window.start, choice.window.end


def _days(choice: WindowChoice) -> int:
    return (choice.last - choice.first).days + 1


def _moved(at: datetime, back: timedelta, zone: ZoneInfo) -> datetime:
    """Return the same time of day some local days earlier, on the hours of that day."""
    day = at.astimezone(zone).date()
    return day_start(day - back, zone) + (at - day_start(day, zone))


def _month_before(choice: WindowChoice) -> Window:
    first = (choice.first - DAY).replace(day=1)
    start, end = day_start(first, choice.zone), choice.window.start
    if choice.window.end == choice.last_day_end and choice.last.day == _days_of_month(choice.last):
        return Window(start, end)
    return Window(start, min(end, start + (choice.window.end - choice.window.start)))


def _days_of_month(day: date) -> int:
    return monthrange(day.year, day.month)[1]


def _first_of_earlier(choice: WindowChoice) -> date:
    if kind_of(choice) is WindowUnit.MONTH:
        return (choice.first - DAY).replace(day=1)
    return choice.first - _days(choice) * DAY


def _last_of_later(choice: WindowChoice) -> date:
    first = choice.last + DAY
    if kind_of(choice) is WindowUnit.MONTH:
        return first.replace(day=_days_of_month(first))
    return choice.last + _days(choice) * DAY


def _days_query(first: date, last: date, zone: ZoneInfo, now: datetime) -> Query:
    """Return the preset that means these days, so that a step back to today goes on with time."""
    today = now.astimezone(zone).date()
    for name in _OF_DAYS:
        preset = preset_choice(name, zone, now)
        if preset.first == first and preset.last == min(last, today):
            return (("window", name),)
    return (("first", str(first)), ("last", str(last)))


def _times(start: datetime, end: datetime) -> Query:
    return tuple(
        (name, f"{at:%Y-%m-%dT%H:%M:%SZ}") for name, at in (("start", start), ("end", end))
    )
