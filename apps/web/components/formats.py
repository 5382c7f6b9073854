"""How a value is written: short for the screen, exact for files and hover titles."""

from datetime import UTC, datetime
from decimal import Decimal
from enum import StrEnum
from zoneinfo import ZoneInfo

from apps.clusters.domain.window import duration as duration
from apps.usage.domain.amounts import NANO

NOTHING = "–"
Value = str | int | float | datetime | None


class Format(StrEnum):
    """What kind of value a column holds, hence how it is written.

    GPU_HOURS columns hold whole nano-GPU-hours, RATIO columns fractions, SECONDS seconds; NUMBER
    is as short as it can be, DECIMAL has two decimals, so that a column lines up; TIME is an
    instant to the second, HOUR and DAY the start of a period.
    """

    TEXT = "text"
    GPU_HOURS = "gpu_hours"
    NUMBER = "number"
    DECIMAL = "decimal"
    COUNT = "count"
    RATIO = "ratio"
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
    Format.SECONDS,
}

FALLING = NUMERIC | {Format.TIME, Format.HOUR, Format.DAY}
"""Kinds of which the largest or latest come first when a table is sorted by them."""


def shown(value: Value, kind: Format, zone: ZoneInfo) -> str:
    """Write `value` as a page shows it, times in `zone`; None is a dash, never a zero."""
    if value is None or value == "":
        return NOTHING
    if isinstance(value, datetime):
        return _shown_time(value.astimezone(zone), kind)
    if isinstance(value, str):
        return value
    if kind is Format.GPU_HOURS:
        return _short(value / NANO, 1)
    if kind is Format.RATIO:
        return _percent(value)
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
        return plain(Decimal(repr(value))) if abs(value) < 1e15 else repr(value)
    return str(value)


def plain(number: Decimal) -> str:
    """Write a decimal in full without an exponent and without trailing zeros."""
    text = format(number, "f")
    return text.rstrip("0").rstrip(".") if "." in text else text


def _short(number: float, digits: int) -> str:
    least = 10.0**-digits
    if 0 < abs(number) < least / 2:
        return f"{'>' if number < 0 else '<'}{'-' if number < 0 else ''}{least:.{digits}f}"
    return f"{number:,.{digits}f}"


def _percent(fraction: float) -> str:
    """Write a fraction in percent; 100.0 % and 0.0 % only where it is exactly that."""
    text = f"{fraction * 100:,.1f}"
    if text == "100.0" and fraction < 1:
        return "99.9 %"
    if text == "0.0" and fraction > 0:
        return "<0.1 %"
    return f"{text} %"


def _shown_time(local: datetime, kind: Format) -> str:
    if kind is Format.DAY:
        return f"{local:%a} {local.day} {local:%b %Y}"
    if kind is Format.HOUR:
        return f"{local:%a} {local.day} {local:%b %H:%M %Z}"
    return f"{local:%Y-%m-%d %H:%M:%S}"


def clock_text(at: datetime, zone: ZoneInfo) -> str:
    """Return an instant as `Wed 18 Nov 2026 10:00`, local to the zone."""
    local = at.astimezone(zone)
    return f"{local:%a} {local.day} {local:%b %Y %H:%M}"
