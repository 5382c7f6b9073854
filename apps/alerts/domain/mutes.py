"""What a person does not want to hear now: mutes, which drop, and quiet hours, which hold back."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta
from zoneinfo import ZoneInfo

from apps.alerts.domain.thresholds import AlertKind


@dataclass(frozen=True, slots=True)
class MuteWindow:
    """Nothing of `kind` (None: any) about `subject` (empty: anything) from `start` to `end`."""

    start: datetime
    end: datetime
    kind: AlertKind | None = None
    subject: str = ""

    def covers(self, kind: AlertKind, subject: str, at: datetime) -> bool:
        """Say whether it silences such an alert at that instant; the window is half-open."""
        return (
            self.start <= at < self.end
            and self.kind in (None, kind)
            and self.subject in ("", subject)
        )


@dataclass(frozen=True, slots=True)
class QuietHours:
    """Daily hours without messages, in the recipient's zone; may run over midnight.

    `weekdays` (Monday is 0) are the days on which they begin.
    """

    start: time
    end: time
    zone: ZoneInfo
    weekdays: frozenset[int] = frozenset(range(7))

    def until(self, at: datetime) -> datetime | None:
        """Return when the quiet hours that `at` is in end, in UTC; None when it is in none."""
        today = at.astimezone(self.zone).date()
        for day in (today - timedelta(days=1), today):
            if day.weekday() not in self.weekdays:
                continue
            start = datetime.combine(day, self.start, self.zone)
            last = day if self.end > self.start else day + timedelta(days=1)
            end = datetime.combine(last, self.end, self.zone)
            # In UTC, since two times of one zone are compared by the clock on the wall.
            if start.astimezone(UTC) <= at.astimezone(UTC) < end.astimezone(UTC):
                return end.astimezone(UTC)
        return None


def is_muted(mutes: Iterable[MuteWindow], kind: AlertKind, subject: str, at: datetime) -> bool:
    """Say whether any mute silences the alert. A muted alert is logged and never delivered."""
    return any(mute.covers(kind, subject, at) for mute in mutes)


def deliverable_at(at: datetime, quiet: Iterable[QuietHours]) -> datetime:
    """Return the first instant from `at` on that is in no quiet hours.

    Hours that follow one on the other are passed through; where they leave no gap within a week
    the alert goes out at once, rather than never.
    """
    spans = list(quiet)
    found, last = at, at + timedelta(days=7)
    while found < last:
        ends = [end for span in spans if (end := span.until(found)) is not None]
        if not ends:
            return found
        found = max(ends)
    return at
