"""Reads a trace of one row per team and minute, and lays it over time by whole weeks."""

import csv
import gzip
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from operator import itemgetter
from pathlib import Path
from typing import NamedTuple, TextIO

from msgspec import Struct, field

MINUTE = 60
_WEEK_MINUTES = 7 * 24 * 60
_DAY_MINUTES = 24 * 60
_TIME_FORMAT = "%Y-%m-%d %H:%M:%S"
_NEEDED = ("time", "vc", "total_gpu_num", "running_gpu_num", "pending_gpu_num")
_JOBS = "running_gpujob_num"
_PENDING_JOBS = "pending_gpujob_num"


class TraceError(Exception):
    """A trace file that cannot be used; the text says where and why."""


class Level(NamedTuple):
    """What a team had allocated and pending from a minute on (minutes count from the trace's
    start).

    `jobs` and `pending_jobs` say by how many jobs: a hint for the sizes of pods.
    """

    minute: int
    quota: int
    running: int
    pending: int
    jobs: int
    pending_jobs: int


class Trace(Struct, frozen=True):
    """Levels of each team, each entry a change; `minutes` is how long the trace is."""

    minutes: int
    teams: dict[str, list[Level]]
    _quotas: dict[str, int] = field(default_factory=dict)

    @property
    def repeat_minutes(self) -> int:
        """How much of it repeats: whole weeks, or whole days of a trace under a week."""
        for unit in (_WEEK_MINUTES, _DAY_MINUTES):
            if self.minutes >= unit:
                return self.minutes // unit * unit
        return self.minutes

    def quota(self, team: str) -> int:
        """Return the most that a team may hold or holds at any time."""
        if team not in self._quotas:
            most = max(max(level.quota, level.running) for level in self.teams[team])
            self._quotas[team] = most
        return self._quotas[team]

    def part(self, team: str, start: int, end: int) -> Iterator[Level]:
        """Yield a team's levels in minutes start..end, the first one at `start`."""
        current: Level | None = None
        for level in self.teams[team]:
            if level.minute <= start:
                current = level
                continue
            if current is not None:
                yield current._replace(minute=start)
                current = None
            if level.minute >= end:
                return
            yield level
        if current is not None:
            yield current._replace(minute=start)


def read_trace(path: Path) -> Trace:
    """Read a trace from a CSV file, gzipped or not.

    Raises TraceError when it cannot be read, has a gap, or holds what cannot be.
    """
    try:
        with _opened(path) as file:
            return _read(path, csv.reader(file))
    except (OSError, EOFError, UnicodeDecodeError, csv.Error) as error:
        raise TraceError(f"{path}: {error}") from error


def _opened(path: Path) -> TextIO:
    if path.suffix == ".gz":
        return gzip.open(path, "rt", encoding="utf-8", newline="")
    return path.open(encoding="utf-8", newline="")


def _read(path: Path, rows: "Iterator[list[str]]") -> Trace:
    header = next(rows, [])
    missing = [name for name in _NEEDED if name not in header]
    if missing:
        raise TraceError(f"{path}, line 1: no column {', '.join(missing)}")
    columns = [header.index(name) for name in _NEEDED]
    hints = [header.index(name) if name in header else -1 for name in (_JOBS, _PENDING_JOBS)]
    reader = _Reader(columns, hints)
    for line, row in enumerate(rows, start=2):
        try:
            reader.add(row)
        except (ValueError, IndexError) as error:
            raise TraceError(f"{path}, line {line}: {error}") from error
    return reader.finished(path)


class _Reader:
    """Turns rows into changes, and sees to it that no minute of a team is missing."""

    def __init__(self, columns: Sequence[int], hints: Sequence[int]) -> None:
        self._needed = itemgetter(*columns)
        self._hints = hints
        self._start: datetime | None = None
        self._minute = 0
        self._text = ""
        self._teams: dict[str, list[Level]] = {}
        self._next: dict[str, int] = {}
        self._last: dict[str, tuple[str, str, str]] = {}

    def add(self, row: Sequence[str]) -> None:
        time, team, quota, running, pending = self._needed(row)
        minute = self._minute if time == self._text else self._minute_of(time)
        due = self._next.get(team, 0)
        if due != minute:
            raise ValueError(f"{team} at {time}: minute {due} was due")
        self._next[team] = minute + 1
        if self._last.get(team) == (quota, running, pending):
            return
        self._last[team] = (quota, running, pending)
        numbers = [int(float(value)) for value in (quota, running, pending)]
        if min(numbers) < 0:
            raise ValueError(f"{team} at {time}: negative number of GPUs")
        levels = self._teams.setdefault(team, [])
        jobs = [int(float(row[hint])) if hint >= 0 else 0 for hint in self._hints]
        levels.append(Level(minute, *numbers, *jobs))

    def finished(self, path: Path) -> Trace:
        lengths = set(self._next.values())
        if len(lengths) != 1:
            raise TraceError(f"{path}: the teams do not all have the same number of minutes")
        names = {team.lower() for team in self._teams}
        if len(names) != len(self._teams):
            raise TraceError(f"{path}: two teams differ only in upper and lower case")
        return Trace(lengths.pop(), self._teams)

    def _minute_of(self, text: str) -> int:
        """Return the minutes since the first row; rows of one minute follow one another."""
        at = _time_of(text).replace(tzinfo=UTC)
        self._start = self._start or at
        self._minute, rest = divmod(at - self._start, timedelta(minutes=1))
        if rest:
            raise ValueError(f"{text} is not a whole minute after the first row")
        self._text = text
        return self._minute


def _time_of(text: str) -> datetime:
    with suppress(ValueError):
        at = datetime.fromisoformat(text)
        if at.isoformat(" ") == text:
            return at
    # Ten times as slow; it takes numbers without their zeros, too.
    return datetime.strptime(text, _TIME_FORMAT)  # noqa: DTZ007 - the caller says which zone
