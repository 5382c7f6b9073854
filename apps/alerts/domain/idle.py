"""Answering an idle alert: "keep until Friday, because …", and what then follows."""

from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from enum import StrEnum
from typing import Final
from zoneinfo import ZoneInfo

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


class AnswerRefused(ValueError):
    """An answer cannot be taken; the message says what is missing."""


class IdleChoice(StrEnum):
    """What a person answers: keep it for a while, or that it can go."""

    KEEP = "keep"
    RELEASE = "release"


@dataclass(frozen=True, slots=True)
class IdleDecision:
    """What was answered, by whom, when and why; `until` (UTC) is the end of a KEEP."""

    choice: IdleChoice
    person: str
    at: datetime
    reason: str
    until: datetime | None = None

    @property
    def sentence(self) -> str:
        """One line for the page and the log."""
        if self.choice is IdleChoice.RELEASE:
            return f"{self.person}: can go" + (f", because {self.reason}" if self.reason else "")
        day = f"{self.until:%Y-%m-%d %H:%M} UTC" if self.until else "further notice"
        return f"{self.person}: keep until {day}, because {self.reason}"


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


def keep(
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


def release(reason: str, *, person: str, now: datetime) -> IdleDecision:
    """Return the answer that it can go; a reason is welcome and not needed."""
    return IdleDecision(IdleChoice.RELEASE, person, now, " ".join(reason.split())[:LONGEST_REASON])


def is_due(
    *, idle_since: datetime, busy_since: datetime | None, answer: IdleDecision | None, now: datetime
) -> bool:
    """Say whether an idle workload may be spoken of now.

    An answer holds until its day is over, also when the workload worked in between. One that it
    can go holds until the workload has worked again after it (`busy_since`): then it is in use.
    """
    if now < idle_since or answer is None:
        return now >= idle_since
    if answer.choice is IdleChoice.RELEASE:
        return busy_since is not None and busy_since > answer.at
    return answer.until is None or now >= answer.until
