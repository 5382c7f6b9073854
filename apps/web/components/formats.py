"""How a value is written: short for the screen, exact for files and hover titles.

The one formatter of all pages: `8h 13m`, `22 Nov 07:41`, `$13,770`, `96 %`.
"""

import re
from datetime import UTC, date, datetime
from decimal import Decimal
from enum import StrEnum
from zoneinfo import ZoneInfo

from django.utils import timezone

from apps.accounts.domain.formats import WHOLE_PERCENT_FROM, clock_words, day_words
from apps.accounts.domain.formats import duration as duration
from apps.accounts.domain.formats import hour_text as hour_text
from apps.accounts.domain.formats import money as money
from apps.accounts.domain.formats import percent as percent
from apps.usage.domain.amounts import NANO

NOTHING = "–"
MINUS = "\u2212"
Value = str | int | float | datetime | None


class Format(StrEnum):
    """What kind of value a column holds, hence how it is written.

    GPU_HOURS columns hold whole nano-GPU-hours, RATIO columns fractions, CHANGE columns the part by
    which something grew, SECONDS seconds; NUMBER is as short as it can be, DECIMAL has two
    decimals, so that a column lines up; TIME is an instant, HOUR and DAY the start of a period.
    """

    TEXT = "text"
    GPU_HOURS = "gpu_hours"
    NUMBER = "number"
    DECIMAL = "decimal"
    COUNT = "count"
    RATIO = "ratio"
    CHANGE = "change"
    SECONDS = "seconds"
    TIME = "time"
    HOUR = "hour"
    DAY = "day"


NUMERIC = {
    Format.GPU_HOURS,
    Format.NUMBER,
    Format.DECIMAL,
    Format.COUNT,
    Format.RATIO,
    Format.CHANGE,
    Format.SECONDS,
}

FALLING = NUMERIC | {Format.TIME, Format.HOUR, Format.DAY}
"""Kinds of which the largest or latest come first when a table is sorted by them."""


def shown(value: Value, kind: Format, zone: ZoneInfo) -> str:
    """Write `value` as a page shows it, times in `zone`; None is a dash, never a zero."""
    if value is None or value == "":
        return NOTHING
    if isinstance(value, datetime):
        return day_text(value, zone) if kind is Format.DAY else clock_text(value, zone)
    if isinstance(value, str):
        return value
    # Files and attributes have the hyphen of programs; what people read has the sign of numbers.
    return _number(value, kind).replace("-", MINUS)


def _number(value: float, kind: Format) -> str:
    if kind is Format.GPU_HOURS:
        return _short(value / NANO, 1)
    if kind is Format.RATIO:
        return percent(value, digits=1)
    if kind is Format.CHANGE:
        return _signed(value, 1)
    if kind is Format.SECONDS:
        return duration(value)
    if kind is Format.COUNT:
        return f"{value:,.0f}"
    if kind is Format.DECIMAL:
        return _short(value, 2)
    return _short(value, 2).rstrip("0").rstrip(".") if value else "0"


def exact(value: Value, kind: Format, zone: ZoneInfo) -> str:
    """Write `value` in full, as files carry it; None is empty.

    Instants are RFC 3339 in UTC; the start of a period carries the offset of `zone`.
    """
    if value is None:
        return ""
    if isinstance(value, datetime):
        if kind is Format.TIME:
            return value.astimezone(UTC).isoformat().replace("+00:00", "Z")
        return value.astimezone(zone).isoformat()
    if kind is Format.GPU_HOURS and isinstance(value, int):
        return plain(Decimal(value).scaleb(-9))
    if isinstance(value, float):
        # A larger one has hardly a digit behind the point, and in full would be mostly zeros.
        return plain(Decimal(repr(value))) if abs(value) < 1e15 else repr(value)
    return str(value)


def mebibytes(value: float | None) -> str:
    """Write an amount of memory, given in MiB, as GiB from one GiB up."""
    if value is None:
        return NOTHING
    return f"{value / 1024:,.1f} GiB" if value >= 1024 else f"{value:,.0f} MiB"


def plain(number: Decimal) -> str:
    """Write a decimal in full without an exponent and without trailing zeros."""
    text = format(number, "f")
    return text.rstrip("0").rstrip(".") if "." in text else text


def _short(number: float, digits: int) -> str:
    least = 10.0**-digits
    if 0 < abs(number) < least / 2:
        # What is there is not written as 0.0.
        return f"{'>' if number < 0 else '<'}{'-' if number < 0 else ''}{least:.{digits}f}"
    return f"{number:,.{digits}f}"


_MANY = 10.0  # from ten times on, percent say less than the factor


def growth(ratio: float) -> str:
    """Write by which part a single figure grew: `+5.2 %`, `−12 %`, `22×`, `no change`."""
    if ratio + 1 >= _MANY:
        return f"{ratio + 1:,.0f}×"
    return _signed(ratio, 0 if abs(ratio) >= WHOLE_PERCENT_FROM else 1)


def points(difference: float) -> str:
    """Write by how much a ratio differs from another: `+3.1 pp`, `−40 pp`, `no change`."""
    return _signed(difference, 0 if abs(difference) >= WHOLE_PERCENT_FROM else 1, "pp")


def _signed(ratio: float, digits: int, unit: str = "%") -> str:
    text = f"{abs(ratio) * 100:,.{digits}f}"
    # By the text and not by the number: what is printed as 0.0 is no change.
    if not float(text.replace(",", "")):
        return "no change"
    return f"{'+' if ratio > 0 else MINUS}{text} {unit}"


def gpus_text(number: float | None) -> str:
    """Write a number of GPUs with about three digits: `1,204`, `39.3`, `2.1`, `0.25`."""
    if number is None:
        return NOTHING
    if number >= 100 or number == round(number):
        return f"{number:,.0f}"
    if number < 0.005:
        return "<0.01"
    return f"{number:.{1 if number >= 1 else 2}f}".rstrip("0").rstrip(".")


def gpus_words(number: float) -> str:
    """Write a number of GPUs with its noun: `1 GPU`, `39.3 GPUs`."""
    text = gpus_text(number)
    return f"{text} GPU{'' if text == '1' else 's'}"


def days_words(number: int) -> str:
    """Write a number of days with its noun: `1 day`, `14 days`."""
    return f"{number} day{'' if number == 1 else 's'}"


def unit_words(amount: str, units: str) -> str:
    """Return the unit of an amount as it is written: `GPUs`, of `1` it is `GPU`."""
    return _PLURAL.sub("", units, count=1) if amount == "1" else units


_PLURAL = re.compile(r"s\b")


def tick_text(day: date) -> str:
    """Return a local day as `22 Nov`, as axes and calendars give it: their titles have the year."""
    return f"{day.day} {day:%b}"


def day_text(at: datetime | date, zone: ZoneInfo) -> str:
    """Return a local day as `22 Nov`, with its year where that is not this one."""
    return day_words(at, zone, now=timezone.now())


def days_text(first: date, last: date, zone: ZoneInfo) -> str:
    """Return local days from the first to the last as `16 Nov – 22 Nov`, one day as itself.

    A year that both have is there once.
    """
    end = day_text(last, zone)
    if first == last:
        return end
    # The end has the year where one is needed.
    begin = tick_text(first) if first.year == last.year else day_text(first, zone)
    return f"{begin} – {end}"


def clock_text(at: datetime, zone: ZoneInfo) -> str:
    """Return an instant as `22 Nov 07:41`, local to the zone.

    The zone is named in the hour that a clock shows twice when summer time ends.
    """
    return clock_words(at, zone, now=timezone.now())


def span_text(start: datetime, end: datetime, zone: ZoneInfo) -> str:
    """Return a stretch of time as `22 Nov 02:00 – 05:00`, the day of its end where it is another.

    Across the end or begin of summer time the clock alone would hide an hour: both are named.
    """
    first, last = start.astimezone(zone), end.astimezone(zone)
    same_day = first.date() == last.date()
    if first.utcoffset() == last.utcoffset():
        until = hour_text(last) if same_day else clock_text(end, zone)
        return f"{clock_text(start, zone)} – {until}"
    until = "" if same_day else f"{day_text(last, zone)} "
    return f"{day_text(first, zone)} {first:%H:%M %Z} – {until}{last:%H:%M %Z}"
