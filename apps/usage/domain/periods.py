"""Periods of the report: hours, local days, weeks from Monday and months in its time zone.

A period is known by the UTC time at which it starts, so that the hour which a clock change
repeats is two periods, and sorting needs no zone.
"""

from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo

from apps.clusters.domain import calendar
from apps.clusters.domain.window import Window
from apps.usage.domain.rows import TimeStep

BEGINNING = datetime(1, 1, 1, tzinfo=UTC)
"""The start of the one period that a total has."""


day_start = lru_cache(maxsize=4096)(calendar.day_start)


def whole_days(last: date, count: int, zone: ZoneInfo) -> Window:
    """Return the window of the `count` local days up to, and with, `last`."""
    return Window(day_start(last - timedelta(days=count - 1), zone), day_end(last, zone))


def day_end(day: date, zone: ZoneInfo) -> datetime:
    """Return the UTC time at which a local day ends."""
    return day_start(day + timedelta(days=1), zone)


def is_day_start(at: datetime, zone: ZoneInfo) -> bool:
    """Say whether a local day starts at `at`."""
    return day_start(at.astimezone(zone).date(), zone) == at


@dataclass(frozen=True, slots=True)
class Periods:
    """The periods of one interval in one zone."""

    interval: TimeStep
    zone: ZoneInfo

    def start_of(self, at: datetime) -> datetime:
        """Return when the period that holds `at` starts; a fact's hour is a period by itself."""
        match self.interval:
            case TimeStep.TOTAL:
                return BEGINNING
            case TimeStep.HOUR:
                return at.astimezone(UTC)
            case _:
                return self.of_day(at.astimezone(self.zone).date())

    def of_day(self, day: date) -> datetime:
        """Return when the period that holds a local day starts; not for hours."""
        if self.interval is TimeStep.TOTAL:
            return BEGINNING
        return day_start(self._first_day(day), self.zone)

    def after(self, at: datetime, count: int) -> datetime | None:
        """Return the start of the period `count` periods after that of `at`; None for a total."""
        if self.interval is TimeStep.TOTAL:
            return None
        if self.interval is TimeStep.HOUR:
            return at.astimezone(UTC) + timedelta(hours=count)
        first = self._first_day(at.astimezone(self.zone).date())
        return day_start(self._days_on(first, count), self.zone)

    def label(self, start: datetime) -> datetime | None:
        """Return a period's start with the zone's offset, as it is shown; None for a total."""
        return None if self.interval is TimeStep.TOTAL else start.astimezone(self.zone)

    def _first_day(self, day: date) -> date:
        match self.interval:
            case TimeStep.WEEK:
                return day - timedelta(days=day.weekday())
            case TimeStep.MONTH:
                return day.replace(day=1)
            case _:
                return day

    def _days_on(self, first: date, count: int) -> date:
        match self.interval:
            case TimeStep.WEEK:
                return first + timedelta(days=7 * count)
            case TimeStep.MONTH:
                months = first.year * 12 + first.month - 1 + count
                return date(months // 12, months % 12 + 1, 1)
            case _:
                return first + timedelta(days=count)
