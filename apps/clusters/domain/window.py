"""Windows of UTC time, half-hour slots, local days, and sets of half-open time spans."""

from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, date, datetime, time, timedelta
from zoneinfo import ZoneInfo

from msgspec import Struct
from msgspec.structs import force_setattr

TimeSpan = tuple[float, float]

# Half an hour divides the hours of every zone, those of India as well.
SLOT_SECONDS = 1800
HOUR_SECONDS = 3600
_SLOT = timedelta(minutes=30)


def union(spans: Iterable[TimeSpan]) -> tuple[TimeSpan, ...]:
    """Return disjoint spans in order that cover exactly what `spans` cover."""
    ordered = sorted(spans)
    if len(ordered) == 1:  # nearly always
        ((start, end),) = ordered
        return ((start, end),) if end > start else ()
    merged: list[TimeSpan] = []
    for start, end in ordered:
        if end <= start:
            continue
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return tuple(merged)


def clip(spans: Iterable[TimeSpan], start: float, end: float) -> tuple[TimeSpan, ...]:
    """Return the parts of `spans` that lie within start..end."""
    parts = []
    for a, b in spans:
        first, last = max(a, start), min(b, end)
        if last > first:
            parts.append((first, last))
    return tuple(parts)


def seconds(spans: Iterable[TimeSpan]) -> float:
    """Return the summed length; `spans` must be disjoint."""
    return sum([end - start for start, end in spans])


def overlap(spans: Sequence[TimeSpan], start: float, end: float) -> float:
    """Return for how many seconds of start..end the disjoint `spans` hold."""
    if len(spans) == 1:  # nearly always; this runs several times for every pod and slot
        ((a, b),) = spans
        return max(0.0, min(b, end) - max(a, start))
    return sum(max(0.0, min(b, end) - max(a, start)) for a, b in spans)


class Window(Struct, frozen=True, order=True):
    """The time from `start` up to, not including, `end`; both aware, kept in UTC."""

    start: datetime
    end: datetime

    def __post_init__(self) -> None:
        if self.start.tzinfo is None or self.end.tzinfo is None:
            raise ValueError("a window needs times with a time zone")
        if self.end <= self.start:
            raise ValueError(f"a window must end after it starts: {self.start} .. {self.end}")
        force_setattr(self, "start", self.start.astimezone(UTC))
        force_setattr(self, "end", self.end.astimezone(UTC))

    @classmethod
    def hour(cls, start: datetime) -> "Window":
        """Return the hour that begins at `start`, which must lie on :00 or :30."""
        window = cls(start, start + timedelta(hours=1))
        if window.start_seconds % SLOT_SECONDS:
            raise ValueError(f"an hour of facts starts at :00 or :30, not at {start}")
        return window

    @property
    def seconds(self) -> float:
        return (self.end - self.start).total_seconds()

    @property
    def start_seconds(self) -> float:
        """Unix time of the start."""
        return self.start.timestamp()

    @property
    def end_seconds(self) -> float:
        """Unix time of the (excluded) end."""
        return self.end.timestamp()

    def hours(self) -> Iterator["Window"]:
        """Yield the whole hours in it, oldest first, counted from its start."""
        at = self.start
        while at + timedelta(hours=1) <= self.end:
            yield Window(at, at + timedelta(hours=1))
            at += timedelta(hours=1)

    def slots(self) -> list[int]:
        """Return the Unix times at which its half-hour slots start."""
        first = int(self.start_seconds)
        if first % SLOT_SECONDS or int(self.end_seconds) % SLOT_SECONDS:
            raise ValueError(f"not on slot boundaries: {self.start} .. {self.end}")
        return list(range(first, int(self.end_seconds), SLOT_SECONDS))


def from_seconds(seconds: float) -> datetime:
    """Return the UTC time of a Unix time."""
    return datetime.fromtimestamp(seconds, UTC)


def utc_midnight(now: datetime) -> datetime:
    """Return the start of the day, in UTC, in which `now` (UTC) lies."""
    return now.replace(hour=0, minute=0, second=0, microsecond=0)


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


def local_moment(written: datetime, zone: ZoneInfo) -> datetime | None:
    """Return the moment of a local time without a zone; None for one that clocks skip in spring."""
    at = written.replace(tzinfo=zone)
    there = at.astimezone(UTC).astimezone(zone).replace(tzinfo=None, fold=written.fold)
    return at if there == written.replace(tzinfo=None) else None


def day_window(day: date, zone: ZoneInfo) -> Window:
    """Return the 23, 24 or 25 hours of a local day as a UTC window."""
    return Window(day_start(day, zone), day_start(day + timedelta(days=1), zone))


def day_of(at: datetime, zone: ZoneInfo) -> date:
    """Return the local day in which an instant lies."""
    return at.astimezone(zone).date()


def last_day_before(end: datetime, zone: ZoneInfo) -> date:
    """Return the last local day of a span that ends then: at midnight not the day that begins."""
    return day_of(end - timedelta(microseconds=1), zone)


def month_before(day: date) -> date:
    """Return the first day of the month before that of a day."""
    return (day.replace(day=1) - timedelta(days=1)).replace(day=1)


def month_after(day: date) -> date:
    """Return the first day of the month after that of a day."""
    # Day 1 plus 32 days is always in the next month, whatever its length.
    return (day.replace(day=1) + timedelta(days=32)).replace(day=1)


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
