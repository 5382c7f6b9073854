"""The window control: presets, earlier and later windows, comparison, and filters in effect."""

from calendar import monthrange
from collections.abc import Collection, Sequence
from datetime import date, datetime, timedelta
from enum import Enum
from urllib.parse import urlencode
from zoneinfo import ZoneInfo

from django.http import HttpRequest
from msgspec import Struct

from apps.clusters.domain.window import Window, day_start, hour_floor, month_before
from apps.web.components.page_query import (
    DAY,
    EARLIEST,
    EVERY,
    LABELS,
    PRESETS,
    Query,
    WindowChoice,
    path_of,
    preset_choice,
    with_query,
)
from apps.web.query_session import COMPARE, NOT_COMPARED, QuerySession

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
    """Name the window to compare with: `the previous 7 days`."""
    match kind_of(choice):
        case WindowUnit.HOURS:
            hours = round((choice.window.end - choice.window.start) / timedelta(hours=1))
            return "the previous hour" if hours == 1 else f"the previous {hours} hours"
        case WindowUnit.DAYS:
            days = _days(choice)
            return "the previous day" if days == 1 else f"the previous {days} days"
        case WindowUnit.MONTH:
            return "the previous month"


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
    # By the time since midnight: on the day of a clock change the same clock may be missing.
    return day_start(day - back, zone) + (at - day_start(day, zone))


def _month_before(choice: WindowChoice) -> Window:
    start, end = day_start(month_before(choice.first), choice.zone), choice.window.start
    if choice.window.end == choice.last_day_end and choice.last.day == _days_of_month(choice.last):
        return Window(start, end)
    # A running month of 31 days may be longer than the whole month before it.
    return Window(start, min(end, start + (choice.window.end - choice.window.start)))


def _days_of_month(day: date) -> int:
    return monthrange(day.year, day.month)[1]


def _first_of_earlier(choice: WindowChoice) -> date:
    if kind_of(choice) is WindowUnit.MONTH:
        return month_before(choice.first)
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
        # A preset moves on with time; days that are written out stay what they were.
        if preset.first == first and preset.last == min(last, today):
            return (("window", name),)
    return (("first", str(first)), ("last", str(last)))


def _times(start: datetime, end: datetime) -> Query:
    return tuple(
        (name, f"{at:%Y-%m-%dT%H:%M:%SZ}") for name, at in (("start", start), ("end", end))
    )


WINDOW_KEYS = ("window", "first", "last", "start", "end")
# Places within a list make no sense in another window.
PLACE_KEYS = ("page", "pods", "cursor", "format", "table", "part", "card")
# Names of one kind that are chosen from; where there are more, a name is written.
_MOST_CHOICES = 200


class Preset(Struct, frozen=True):
    label: str
    href: str
    chosen: bool


class FilterChoice(Struct, frozen=True):
    """A filter that can be added: `names` to choose from; without any, one is written."""

    key: str
    label: str
    names: Sequence[str]


class Chip(Struct, frozen=True):
    """A filter of the address; the link leads to the page without it, where there is one.

    `applies`: whether it narrows this page. Others are only kept for the pages that take them.
    """

    label: str
    value: str
    href: str
    applies: bool = True


class Picker(Struct, frozen=True):
    """`hidden` are the fields that the form of the days carries along unseen, `every` those of
    the form that adds one of the filters `choices`.

    `earlier_href` and `later_href` are None where there is nothing to step to. `compare_href`
    turns the comparison with `before` (`the previous 7 days`) on or off. `address` is that of the
    page as it can be saved, and `query` what its links to other pages carry.
    """

    presets: Sequence[Preset]
    hidden: Sequence[tuple[str, str]]
    first: date
    last: date
    every: Sequence[tuple[str, str]]
    choices: Sequence[FilterChoice]
    chips: Sequence[Chip]
    path: str
    address: str
    query: str
    earlier_href: str | None
    later_href: str | None
    before: str
    compare_href: str


def picker_of(request: HttpRequest, reading: QuerySession) -> Picker:
    """Return the picker as this address leaves it."""
    others = remaining_query(request, drop=(*WINDOW_KEYS, *PLACE_KEYS))
    choice, path = reading.choice, path_of(request)

    def step(query: Query | None) -> str | None:
        return None if query is None else with_query(path, [*query, *others])

    return Picker(
        presets=[
            Preset(label, with_query(path, [("window", name), *others]), name == choice.preset)
            for name, label in PRESETS.items()
        ],
        hidden=others,
        every=remaining_query(request, drop=PLACE_KEYS),
        first=choice.first,
        last=choice.last,
        choices=_choices(reading),
        chips=_chips(request, reading),
        path=path,
        query=urlencode(list(reading.query)),
        address=with_query(path, remaining_query(request, drop=PLACE_KEYS)),
        earlier_href=step(earlier(choice, reading.now)),
        later_href=step(later(choice, reading.now)),
        before=before_words(choice),
        compare_href=_compare_href(request, reading),
    )


def remaining_query(request: HttpRequest, *, drop: Collection[str]) -> list[tuple[str, str]]:
    """Return the query of this address without the keys in `drop`.

    Without empty filters, which a form sends for fields without a choice.
    """
    return [
        (key, value)
        for key, values in request.GET.lists()
        if key not in drop
        for value in values
        if isinstance(value, str) and (value or key not in EVERY)
    ]


def _chips(request: HttpRequest, reading: QuerySession) -> list[Chip]:
    """Return the filters of the address, in its order.

    What was asked for and is not there has none: that is told elsewhere.
    """
    every = remaining_query(request, drop=PLACE_KEYS)
    applied = {
        (key, name)
        for key in EVERY
        for name in getattr(reading.filters, key)
        if (key, name) not in reading.asides
    }
    return [
        Chip(
            label=_capital(LABELS[pair[0]]),
            value=pair[1],
            href=""
            if pair[0] in reading.subject
            else with_query(path_of(request), [p for p in every if p != pair]),
            applies=pair in applied,
        )
        for pair in dict.fromkeys(every)
        if pair in applied or pair in reading.asides
    ]


def _choices(reading: QuerySession) -> list[FilterChoice]:
    """Return the filters that can be added, without the names that are in force.

    A kind of which there is one name alone narrows nothing.
    """
    found = []
    for key, names in reading.choices.items():
        if key in reading.subject:
            continue
        if names is None or len(names) > _MOST_CHOICES:
            found.append(FilterChoice(key, _capital(LABELS[key]), ()))
            continue
        new = [name for name in names if name not in getattr(reading.filters, key)]
        if new and len(names) > 1:
            found.append(FilterChoice(key, _capital(LABELS[key]), new))
    return found


def _capital(label: str) -> str:
    return label[0].upper() + label[1:]


def _compare_href(request: HttpRequest, reading: QuerySession) -> str:
    query = remaining_query(request, drop=(COMPARE, *PLACE_KEYS))
    if reading.compares:
        query.append((COMPARE, NOT_COMPARED))
    return with_query(path_of(request), query)
