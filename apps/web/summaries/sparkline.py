"""Thirty days of a tier in a few square centimetres: bars as paths of an inline SVG."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

from apps.clusters.domain.calendar import day_start
from apps.clusters.domain.window import Window
from apps.usage.domain.amounts import Amounts
from apps.usage.domain.rows import UsageRow
from apps.web.components.formats import Format, shown

DAYS = 30
_STEP, _BAR, HEIGHT = 10, 8, 40
WIDTH = DAYS * _STEP - (_STEP - _BAR)


@dataclass(frozen=True, slots=True)
class Sparkline:
    """Paths of one bar per day: the full height is the capacity of that day.

    `text` says the same in words. The days are those from `first` to `last`; one without facts
    has no bar.
    """

    capacity: str
    allocated: str
    busy: str
    text: str
    first: date
    last: date
    width: int = WIDTH
    height: int = HEIGHT


def days_until(last: date, zone: ZoneInfo, end: datetime) -> Window:
    """Return the window of the last DAYS local days up to `last`, at most until `end`."""
    return Window(day_start(last - timedelta(days=DAYS - 1), zone), end)


def sparkline(rows: Sequence[UsageRow], last: date, zone: ZoneInfo) -> Sparkline | None:
    """Return the bars of a tier's rows by day; None when no day has capacity."""
    by_day = {
        row.period.astimezone(UTC): row.amounts
        for row in rows
        if row.period is not None and row.amounts.capacity
    }
    days = [last - timedelta(days=DAYS - 1 - n) for n in range(DAYS)]
    found = {
        n: by_day[start] for n, day in enumerate(days) if (start := day_start(day, zone)) in by_day
    }
    if not found:
        return None
    allocated = {n: _share(a.allocated, a) for n, a in found.items()}
    busy = {n: _share(a.busy, a) for n, a in found.items()}
    return Sparkline(
        capacity=_path(dict.fromkeys(found, 1.0)),
        allocated=_path(allocated),
        busy=_path(busy),
        text=(
            f"By day, {len(found)} of the {DAYS} days until {last.day} {last:%b %Y}. "
            f"Allocated: {_words(allocated)}. Busy: {_words(busy)}. Percentages of capacity."
        ),
        first=days[0],
        last=last,
    )


def _share(amount: int, amounts: Amounts) -> float:
    return min(1.0, amount / amounts.capacity) if amounts.capacity else 0.0


def _path(heights: Mapping[int, float]) -> str:
    return "".join(
        f"M{n * _STEP} {HEIGHT}v-{height * HEIGHT:.1f}h{_BAR}V{HEIGHT}z"
        for n, height in heights.items()
        if height > 0
    )


def _words(shares: Mapping[int, float]) -> str:
    low, high, newest = min(shares.values()), max(shares.values()), shares[max(shares)]
    low_text, high_text, newest_text = (
        shown(value, Format.RATIO, ZoneInfo("UTC")) for value in (low, high, newest)
    )
    return f"between {low_text} and {high_text}, on the newest day {newest_text}"
