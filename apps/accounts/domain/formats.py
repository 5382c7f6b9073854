"""How times, durations, shares and money are written for people: on pages, in mails and in alerts.

It is in the lowest room, since alerts, requests and pages write by the same rules.
"""

from datetime import UTC, date, datetime
from decimal import Decimal
from zoneinfo import ZoneInfo

_UTC = ZoneInfo("UTC")


def duration(seconds: float) -> str:
    """Write seconds as the two largest units that matter: `45s`, `3m 5s`, `8h 13m`, `2d 4h`."""
    # Rounded before the units are chosen: 59.7 s is a minute, never `60s`.
    whole = round(seconds)
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m {whole % 60}s"
    if whole < 86400:
        return f"{whole // 3600}h {whole % 3600 // 60}m"
    return f"{whole // 86400}d {whole % 86400 // 3600}h"


UNIT_SECONDS = {"d": 86_400, "h": 3_600, "m": 60, "s": 1}


def whole_duration(seconds: int) -> str:
    """Write whole seconds in the largest unit that fits them exactly: `30m`, `90m`, `2h`."""
    # From the largest unit down, in the order of the mapping.
    unit, size = next(one for one in UNIT_SECONDS.items() if seconds % one[1] == 0)
    return f"{seconds // size}{unit}"


def day_words(at: datetime | date, zone: ZoneInfo, *, now: datetime) -> str:
    """Write a local day as `22 Nov`, with its year where that is not the one of `now`."""
    local = at.astimezone(zone) if isinstance(at, datetime) else at
    year = "" if local.year == now.astimezone(zone).year else f" {local.year}"
    return f"{local.day} {local:%b}{year}"


def clock_words(at: datetime, zone: ZoneInfo, *, now: datetime) -> str:
    """Write an instant as `22 Nov 07:41`, local to the zone."""
    return f"{day_words(at, zone, now=now)} {hour_text(at.astimezone(zone))}"


def utc_words(at: datetime, *, now: datetime) -> str:
    """Write an instant as `22 Nov 07:41 UTC`, for texts that are read away from the portal."""
    return f"{clock_words(at.astimezone(UTC), _UTC, now=now)} UTC"


def hour_text(local: datetime) -> str:
    """Write the clock of a local time, with its zone in the hour that a clock shows twice."""
    # `fold` tells apart the two hours that a clock shows alike when it is set back.
    twice = local.replace(fold=0).utcoffset() != local.replace(fold=1).utcoffset()
    return f"{local:%H:%M %Z}" if twice else f"{local:%H:%M}"


_SIGNS = {"USD": "$", "EUR": "€", "GBP": "£", "JPY": "¥", "INR": "₹"}


def money(amount: Decimal | float, currency: str, *, cents: bool = False) -> str:
    """Write money as figures give it: `$13,770`, `CHF 13,770`; `<$1` for what is less.

    `cents` are for line items alone; files carry every digit.
    """
    sign = _SIGNS.get(currency, f"{currency} " if currency else "")
    minus = "−" if amount < 0 else ""
    size = abs(Decimal(amount))
    if not cents and 0 < size < 1:
        return f"{minus}<{sign}1"
    return f"{minus}{sign}{size:,.{2 if cents else 0}f}"


WHOLE_PERCENT_FROM = 0.0995
"""From 10 % up the decimals of a single figure say nothing."""


def percent(fraction: float, *, digits: int | None = None) -> str:
    """Write a fraction in percent: `96 %`, `9.6 %`; tables give each one decimal by `digits`.

    It is 100 % and 0 % only where it is exactly that.
    """
    if digits is None:
        if fraction in {0, 1}:
            return f"{fraction * 100:.0f} %"
        text = percent(fraction, digits=0 if abs(fraction) >= WHOLE_PERCENT_FROM else 1)
        # 99.6 % would round to what is said of all: a decimal shows that something is left.
        return percent(fraction, digits=1) if text == "100 %" else text
    text = f"{fraction * 100:,.{digits}f}"
    if digits and text == "100.0" and fraction != 1:
        return "99.9 %" if fraction < 1 else ">100 %"
    if text == "0.0" and fraction > 0:
        return "<0.1 %"
    return f"{text} %"
