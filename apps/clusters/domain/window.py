"""Half-open stretches of UTC time, and the half-hour slots that facts are made of."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

SLOT_SECONDS = 1800
HOUR_SECONDS = 3600


@dataclass(frozen=True, slots=True, order=True)
class Window:
    """The time from `start` up to, not including, `end`; both aware, kept in UTC."""

    start: datetime
    end: datetime

    def __post_init__(self) -> None:
        if self.start.tzinfo is None or self.end.tzinfo is None:
            raise ValueError("a window needs times with a time zone")
        if self.end <= self.start:
            raise ValueError(f"a window must end after it starts: {self.start} .. {self.end}")
        object.__setattr__(self, "start", self.start.astimezone(UTC))
        object.__setattr__(self, "end", self.end.astimezone(UTC))

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
