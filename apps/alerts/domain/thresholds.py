"""When a measured value is worth an alert: levels, crossed once, with a margin against flutter."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum


class AlertKind(StrEnum):
    """What alerts are about; the unit of the value is beside each."""

    BUDGET = "budget"  # used / allowance
    QUOTA = "quota"  # used / hard
    IDLE = "idle"  # hours without work
    WAIT = "wait"  # hours waited
    DATA_GAP = "data gap"  # hours without data
    DRIFT = "drift"  # 1 while the cluster differs from what was approved
    REQUEST = "request"  # a step of a quota request; no level
    REVERT = "revert"  # a raise is about to end; no level


@dataclass(frozen=True, slots=True)
class Threshold:
    """Levels of a kind, ascending, in the unit of its value.

    A level counts as left only when the value is under level × (1 − `margin`), and one that was
    left and is reached again within `again_after` of what was last said is not said again: of a
    quota of eight GPUs, one that ends and one that begins is more than any margin. While a level
    stands a reminder comes every `repeat_after`; None: it is said once.
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


@dataclass(frozen=True, slots=True)
class AlertLevel:
    """The level that a subject stands at (None: at none), and what was last said of it and when.

    `said_level` None beside a `said_at`: it is not known.
    """

    level: float | None = None
    said_at: datetime | None = None
    said_level: float | None = None


@dataclass(frozen=True, slots=True)
class Judgement:
    """The standing from now on, and whether an alert is to be said."""

    standing: AlertLevel
    alert: bool = False


def judge(
    threshold: Threshold, before: AlertLevel, value: float | None, *, now: datetime
) -> Judgement:
    """Hold a value against its levels.

    A level is said when it is reached for the first time, or again after it was left; a fall to a
    lower level is silent. A value that is not known changes nothing: that data is missing is a
    alert of its own.
    """
    if value is None:
        return Judgement(before)
    level = _level(threshold, before.level, value)
    if level is None:
        recent = before.said_at is not None and now - before.said_at < threshold.again_after
        kept = AlertLevel(None, before.said_at, before.said_level) if recent else AlertLevel()
        return Judgement(kept)
    risen = before.level is None or level > before.level
    if (risen and not _just_said(threshold, before, level, now)) or _reminder(
        threshold, before, now
    ):
        return Judgement(AlertLevel(level, now, level), alert=True)
    return Judgement(AlertLevel(level, before.said_at, before.said_level))


def _just_said(threshold: Threshold, before: AlertLevel, level: float, now: datetime) -> bool:
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
