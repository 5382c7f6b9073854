"""Exports: what a file was asked of, how far it is, and who may still fetch it."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import date, datetime, timedelta
from enum import StrEnum
from typing import Any

from msgspec import Struct
from msgspec.structs import asdict

from apps.clusters.domain.window import Window
from apps.costs.domain.costing import Basis, Policy
from apps.costs.domain.files import FileRow
from apps.usage.domain.usage_query import Filters, Grouping, TimeStep

MOST_ATTEMPTS = 3
"""A file whose writer was lost so often would be lost again."""
_EVERYTHING = Filters()


class ExportSubject(StrEnum):
    """A whole month as it is closed or stands, or the rows of some days."""

    MONTH = "month"
    WINDOW = "window"


class ExportState(StrEnum):
    """`expired`: it was written, and its file is deleted again."""

    QUEUED = "queued"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    EXPIRED = "expired"

    @property
    def moves(self) -> bool:
        """Whether it is going to be another state by itself, soon."""
        return self in (ExportState.QUEUED, ExportState.RUNNING)


class MailState(StrEnum):
    """`failed`: it was tried as often as it is worth. `waiting`: the month is not whole yet."""

    WAITING = "waiting"
    DUE = "due"
    SENT = "sent"
    FAILED = "failed"


class ExportScope(Struct, frozen=True):
    """What a file is to hold: a month (its first day), or a window of whole local days.

    Of a window `groups` are the columns to tell apart, None for all that a month's file has, by
    periods of `interval`. `filters` narrow either.
    """

    basis: Basis
    policy: Policy
    month: date | None = None
    window: Window | None = None
    bom: bool = False
    groups: tuple[Grouping, ...] | None = None
    interval: TimeStep = TimeStep.DAY
    filters: Filters = _EVERYTHING

    @property
    def subject(self) -> ExportSubject:
        return ExportSubject.MONTH if self.month else ExportSubject.WINDOW

    def record(self) -> dict[str, Any]:
        """Return it as JSON knows it."""
        return {
            "basis": self.basis.value,
            "policy": self.policy.value,
            "bom": self.bom,
            "month": self.month.isoformat() if self.month else None,
            "window": [self.window.start.isoformat(), self.window.end.isoformat()]
            if self.window
            else None,
            "groups": None if self.groups is None else [group.value for group in self.groups],
            "interval": self.interval.value,
            "filters": {name: list(of) for name, of in asdict(self.filters).items() if of},
        }

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> "ExportScope":
        """Return what `record` gave, now or before there were groups.

        Raises ValueError and KeyError where it is none.
        """
        month, window, groups = record["month"], record["window"], record.get("groups")
        return cls(
            basis=Basis(record["basis"]),
            policy=Policy(record["policy"]),
            month=date.fromisoformat(month) if month else None,
            window=Window(*map(datetime.fromisoformat, window)) if window else None,
            bom=bool(record["bom"]),
            groups=None if groups is None else tuple(Grouping(name) for name in groups),
            # Records from before there were intervals and filters lack both.
            interval=TimeStep(record.get("interval", TimeStep.DAY)),
            filters=Filters(**{k: tuple(v) for k, v in record.get("filters", {}).items()}),
        )


def counted(
    rows: Iterable[FileRow],
    tell: Callable[[int], None],
    *,
    clock: Callable[[], float],
    every_seconds: float,
    look_after_rows: int = 500,
) -> Iterator[FileRow]:
    """Yield rows; tell how many there were, at most once in a while, and at the end.

    `tell` may raise to stop the writing. The clock is looked at after every so many rows alone.
    """
    count, told = 0, clock()
    for count, row in enumerate(rows, start=1):
        yield row
        if count % look_after_rows == 0 and clock() - told >= every_seconds:
            tell(count)
            told = clock()
    # Also of no rows at all, and of the last few that no look at the clock came after.
    tell(count)


def progress(written: int, expected: int | None) -> float | None:
    """Return how much of a file is written, 0..1; None while its length is unknown.

    What is expected is an estimate: nothing is said to be whole before it is done.
    """
    return None if not expected else min(written / expected, 0.99)


def expires_at(ended: datetime, days: int) -> datetime:
    """Return when a file is deleted that was written at `ended`."""
    return ended + timedelta(days=days)


def covers(now: tuple[bool, Sequence[int]], frozen: tuple[bool, Sequence[int]]) -> bool:
    """Say whether who sees `now` sees all that a file was written of, as (everything, teams)."""
    everything, teams = now
    all_then, teams_then = frozen
    # A file of everything stays with who sees everything, even if one came to be in all teams.
    return everything or (not all_then and set(teams_then) <= set(teams))
