"""Alerts: when a value is worth one, mutes, quiet hours, and answers to idle alerts."""

import json
from collections.abc import Iterable, Sequence
from datetime import UTC, date, datetime, time, timedelta
from enum import StrEnum
from typing import Final
from zoneinfo import ZoneInfo

from msgspec import Struct

WEEKDAYS: Final = (
    "monday",
    "tuesday",
    "wednesday",
    "thursday",
    "friday",
    "saturday",
    "sunday",
)
SHORTEST_REASON: Final = 3
LONGEST_REASON: Final = 500


class AlertKind(StrEnum):
    """What alerts are about; the unit of the value is beside each."""

    BUDGET = "budget"  # used / budget
    QUOTA = "quota"  # used / hard
    IDLE = "idle"  # hours without work
    WAIT = "wait"  # hours pending
    DATA_GAP = "data gap"  # hours without data
    DRIFT = "drift"  # 1 while the cluster differs from what was approved
    REQUEST = "request"  # a step of a quota request; no level
    REVERT = "revert"  # a raise is about to end; no level
    QUEUE_TIME = "queue"  # 1: the error budget burns, 2: fast; or how many times as long
    DIGEST = "digest"  # the week of one person, for that person alone; no level
    CAP = "cap"  # 1 while one person holds more GPUs than one may, for that person alone


PERSONAL_KINDS = frozenset({AlertKind.DIGEST, AlertKind.CAP})
"""Kinds that speak of one person: on channels of their own alone, and in no list."""
LASTING_KINDS = (
    *(AlertKind.BUDGET, AlertKind.QUOTA, AlertKind.IDLE, AlertKind.WAIT, AlertKind.QUEUE_TIME),
)
"""Kinds about a state that may have begun before the portal first looked."""


WorkloadPlace = tuple[str, str, str]
"""Cluster, namespace and `Kind/name`."""
_WORKLOAD = "workload:"


def workload_subject(place: WorkloadPlace) -> str:
    """Return the subject of alerts about a workload."""
    return f"{_WORKLOAD}{'/'.join(place)}"


def workload_place(subject: str) -> WorkloadPlace | None:
    """Return the workload that a subject is about; None where it is about something else."""
    parts = subject.removeprefix(_WORKLOAD).split("/", 2)
    return (parts[0], parts[1], parts[2]) if subject.startswith(_WORKLOAD) and parts[2:] else None


class Threshold(Struct, frozen=True):
    """Levels of a kind, ascending, in the unit of its value.

    A level counts as left only when the value is under level × (1 − `margin`). One that is left and
    reached again within `again_after` of its last alert is not said again: a single GPU of a quota
    of eight, given back and taken, exceeds any margin. While a level stands a reminder comes every
    `repeat_after`; None: it is said once.
    """

    kind: AlertKind
    levels: tuple[float, ...]
    margin: float = 0.05
    repeat_after: timedelta | None = None
    again_after: timedelta = timedelta(0)

    def __post_init__(self) -> None:
        if not self.levels or list(self.levels) != sorted(set(self.levels)):
            raise ValueError(f"levels must ascend and differ: {self.levels}")
        if self.levels[0] <= 0:
            raise ValueError(f"levels must be above zero: {self.levels}")
        if not 0.0 <= self.margin < 1.0:
            raise ValueError(f"margin must be a fraction 0..1, got {self.margin}")


class AlertLevel(Struct, frozen=True):
    """The level that a subject stands at (None: at none), and what was last said of it and when.

    `said_level` None beside a `said_at`: it is not known.
    """

    level: float | None = None
    said_at: datetime | None = None
    said_level: float | None = None


class Judgement(Struct, frozen=True):
    """The level from now on, and whether an alert is due."""

    level: AlertLevel
    alert: bool = False


def judge(
    threshold: Threshold, before: AlertLevel, value: float | None, *, now: datetime
) -> Judgement:
    """Hold a value against its levels.

    A level is said when it is reached for the first time, or again after it was left; a fall to a
    lower level is silent. A value that is not known changes nothing: missing data is an alert of
    its own.
    """
    if value is None:
        return Judgement(before)
    level = _level(threshold, before.level, value)
    if level is None:
        recent = before.said_at is not None and now - before.said_at < threshold.again_after
        # What was said is remembered after the end: a value that flaps alerts once.
        kept = AlertLevel(None, before.said_at, before.said_level) if recent else AlertLevel()
        return Judgement(kept)
    risen = before.level is None or level > before.level
    if (risen and not _just_notified(threshold, before, level, now)) or _reminder(
        threshold, before, now
    ):
        return Judgement(AlertLevel(level, now, level), alert=True)
    return Judgement(AlertLevel(level, before.said_at, before.said_level))


def _just_notified(threshold: Threshold, before: AlertLevel, level: float, now: datetime) -> bool:
    if before.said_at is None or before.said_level is None or level > before.said_level:
        return False
    return now - before.said_at < threshold.again_after


def _level(threshold: Threshold, stood: float | None, value: float) -> float | None:
    reached = max((level for level in threshold.levels if value >= level), default=None)
    if stood is None or (reached is not None and reached >= stood):
        return reached
    kept = [
        level
        for level in threshold.levels
        # Hysteresis: a level is left only clearly below it, else noise would toggle it.
        if level <= stood and value >= level * (1.0 - threshold.margin)
    ]
    return max(kept, default=None)


def _reminder(threshold: Threshold, before: AlertLevel, now: datetime) -> bool:
    if threshold.repeat_after is None or before.said_at is None:
        return False
    return now - before.said_at >= threshold.repeat_after


def alert_key(kind: AlertKind, subject: str, recipient: str, occasion: Sequence[str]) -> str:
    """Return what tells one alert from another, for a unique column: said once, delivered once.

    `subject` is what it is about (`team:3`, `quota:west/vision/gpu/requests.nvidia.com/gpu`),
    `occasion` what makes this time another one, such as the level and the instant it was reached.
    """
    return json.dumps([kind.value, subject, recipient, *occasion], separators=(",", ":"))


class MuteWindow(Struct, frozen=True):
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


class QuietHours(Struct, frozen=True):
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


class AnswerRefused(ValueError):
    """An answer cannot be taken; the message says what is missing."""


class IdleChoice(StrEnum):
    """What a person answers: keep it for a while, that it can go, or not to be asked again.

    SILENCE ends the alerts of this idle time alone, and keeps nothing: what could be saved is still
    counted and recommended.
    """

    KEEP = "keep"
    RELEASE = "release"
    SILENCE = "silence"


_MOMENT = timedelta(microseconds=1)


class IdleDecision(Struct, frozen=True):
    """What was answered, by whom, when and why; `until` (UTC) is the end of a KEEP."""

    choice: IdleChoice
    person: str
    at: datetime
    reason: str
    until: datetime | None = None

    @property
    def last_moment(self) -> datetime | None:
        """The last moment of a KEEP, which lies in the day that pages name."""
        return None if self.until is None else self.until - _MOMENT


def last_day(written: str, *, today: date) -> date:
    """Return the day that `2026-11-27`, `friday`, `fri`, `today` or `tomorrow` means.

    A weekday is the next one; on a Friday, `friday` is that in a week's time. Raises AnswerRefused.
    """
    word = written.strip().lower()
    if word in ("today", "tomorrow"):
        return today + timedelta(days=int(word == "tomorrow"))
    found = [i for i, name in enumerate(WEEKDAYS) if len(word) >= 3 and name.startswith(word)]
    if found:
        return today + timedelta(days=(found[0] - today.weekday() - 1) % 7 + 1)
    try:
        return date.fromisoformat(word)
    except ValueError:
        raise AnswerRefused(f"{written!r} is no day: write 2026-11-27 or a weekday.") from None


def keep_idle(
    written: str, reason: str, *, person: str, now: datetime, zone: ZoneInfo, most_days: int
) -> IdleDecision:
    """Return the answer "keep until … because …"; the day counts to its end in `zone`.

    Raises AnswerRefused without a reason, for a day that is past or too far off.
    """
    today = now.astimezone(zone).date()
    day = last_day(written, today=today)
    if day < today:
        raise AnswerRefused(f"{day} is past.")
    if day > today + timedelta(days=most_days):
        raise AnswerRefused(f"It can be kept for {most_days} days at most; answer again then.")
    because = " ".join(reason.split())
    if len(because) < SHORTEST_REASON:
        raise AnswerRefused("Say why it is to be kept.")
    if len(because) > LONGEST_REASON:
        raise AnswerRefused(f"Say it in {LONGEST_REASON} characters.")
    end = datetime.combine(day + timedelta(days=1), time(0), zone).astimezone(UTC)
    return IdleDecision(IdleChoice.KEEP, person, now, because, end)


def release_idle(reason: str, *, person: str, now: datetime) -> IdleDecision:
    """Return the answer that it can go; a reason is welcome and not needed."""
    return IdleDecision(IdleChoice.RELEASE, person, now, " ".join(reason.split())[:LONGEST_REASON])


def silence_idle(*, person: str, now: datetime) -> IdleDecision:
    """Return the answer not to ask again until it has worked and is idle anew."""
    return IdleDecision(IdleChoice.SILENCE, person, now, "")


def is_idle_due(
    *, idle_since: datetime, busy_since: datetime | None, answer: IdleDecision | None, now: datetime
) -> bool:
    """Say whether an idle workload may be spoken of now.

    An answer to keep it holds until the end of its day, even if the workload worked in between.
    Other answers hold until it has worked again (`busy_since`): then it is in use.
    """
    if now < idle_since or answer is None:
        return now >= idle_since
    if answer.choice is not IdleChoice.KEEP:
        return busy_since is not None and busy_since > answer.at
    return answer.until is None or now >= answer.until
