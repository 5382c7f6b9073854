"""A catalog's text as a tree that remembers its lines, its times, and all that is wrong with it."""

import difflib
import re
from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, date, datetime, time, timedelta
from functools import cache
from itertools import pairwise
from zoneinfo import ZoneInfo, available_timezones

from msgspec import Struct

Path = tuple[str | int, ...]
Scalar = str | int | float | bool | None

_PLAIN_KEY = re.compile(r"\A[A-Za-z0-9_-]{1,80}\Z")
_USER_IN_URL = re.compile(r"://[^/\s]*@")
_LONGEST = 60


class SourceNode(Struct, frozen=True):
    """One value of the text. `line` is that of its key where it has one, counted from 1.

    `size` counts the values in it, itself included, as often as aliases repeat them.
    """

    value: "Scalar | tuple[SourceNode, ...] | Mapping[str, SourceNode]"
    line: int
    size: int = 1


class Problem(Struct, frozen=True, order=True):
    """One thing that is wrong; `path` reads `teams[2].entitlements.gold`, empty: the file."""

    line: int
    path: str
    text: str


class CatalogError(Exception):
    """The catalog cannot be loaded; `problems` holds everything that is wrong, by line."""

    def __init__(self, filename: str, problems: Sequence[Problem]) -> None:
        self.filename = filename
        self.problems = tuple(sorted(set(problems)))
        super().__init__("\n".join(self._sentence(problem) for problem in self.problems))

    def _sentence(self, problem: Problem) -> str:
        parts = (f"{self.filename}:{problem.line}", problem.path, problem.text)
        return printable(": ".join(part for part in parts if part))


class Problems:
    """Collects what is wrong with one tree, finding the line of each path by itself."""

    def __init__(self, root: SourceNode, found: Sequence[Problem] = ()) -> None:
        self.root = root
        self.found = list(found)
        self._paths: set[Path] = set()
        # Every path that leads to one of them.
        self._above: set[Path] = set()

    def add(self, path: Path, text: str) -> None:
        """Note that the value at `path` is wrong; a missing one has the line of its holder."""
        self._paths.add(path)
        self._above.update(path[:steps] for steps in range(len(path) + 1))
        self.found.append(Problem(line_of(self.root, path), shown_path(path), text))

    def clean(self, *paths: Path) -> bool:
        """Say whether nothing is wrong at these paths, inside them or with what holds them."""
        return not any(
            path in self._above or any(path[:steps] in self._paths for steps in range(len(path)))
            for path in paths
        )


def line_of(root: SourceNode, path: Path) -> int:
    """Return the line of the deepest part of `path` that is there."""
    node = root
    for step in path:
        inner = child(node, step)
        if inner is None:
            break
        node = inner
    return node.line


def child(node: SourceNode | None, step: str | int) -> SourceNode | None:
    """Return the value under a key or index; None when there is none."""
    if node is None:
        return None
    if isinstance(node.value, Mapping) and isinstance(step, str):
        return node.value.get(step)
    if isinstance(node.value, tuple) and isinstance(step, int) and step < len(node.value):
        return node.value[step]
    return None


def shown_path(path: Path) -> str:
    """Return `teams[2].entitlements.gold`; keys with dots or blanks stand in brackets."""
    text = ""
    for step in path:
        if isinstance(step, int):
            text += f"[{step}]"
        elif _PLAIN_KEY.match(step):
            text += f".{step}" if text else step
        else:
            text += f"[{shown(step)}]"
    return text


def shown(value: object) -> str:
    """Return a value as an error shows it: short, on one line, without the password of a URL."""
    match value:
        case None:
            return "nothing"
        case bool():
            return "true" if value else "false"
        case str():
            value = _USER_IN_URL.sub("://…@", value)
            text = value if len(value) <= _LONGEST else f"{value[: _LONGEST - 1]}…"
            return '"' + printable(text).replace('"', '\\"') + '"'
        case int() | float():
            return str(value)
        case Mapping():
            return "a mapping"
        case _:
            return "a list"


def printable(text: str) -> str:
    """Return text with whatever a terminal cannot show, or would obey, written as an escape."""
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode("ascii")
        for character in text
    )


def near(word: str, known: Collection[str]) -> str:
    """Return `; did you mean X?` where a known word is close, else `;`."""
    close = difflib.get_close_matches(word[:80], known, n=1)
    return f"; did you mean {close[0]}?" if close and close[0] != word else ";"


# What the first catalog of a portal says is taken to have held always: history that is read in
# later is then classified by it. Nothing that the portal reads is older.
BEGINNING = datetime(2000, 1, 1, tzinfo=UTC)

_EARLIEST = date(2000, 1, 1)
_LATEST = date(2199, 12, 31)
_HALF_HOUR, _HOUR = timedelta(minutes=30), timedelta(hours=1)


def instant(text: str, zone: ZoneInfo) -> datetime:
    """Return a date's first moment in `zone`, or the time that RFC 3339 text names; in UTC.

    `text` has the shape of the schema's `Instant`. Raises ValueError, with what is wrong, for a
    day or time that does not exist or lies outside the years 2000 to 2199.
    """
    try:
        day = date.fromisoformat(text[:10])
    except ValueError as error:
        raise ValueError(f"{text[:10]} is no day of the calendar") from error
    far = f"{day} does not lie between {_EARLIEST} and {_LATEST}"
    if not _EARLIEST - timedelta(days=1) <= day <= _LATEST:
        raise ValueError(far)
    first = datetime.combine(_EARLIEST, time(), zone)
    at = datetime.combine(day, time(), zone)
    if len(text) > len("2026-01-01"):
        try:
            at = datetime.fromisoformat(text.upper())
        except ValueError as error:
            raise ValueError(f"{text} is no time of day with an offset") from error
    # East of Greenwich the first day begins on the day before: a file that was exported says so.
    if day < _EARLIEST and at < first:
        raise ValueError(far)
    return at.astimezone(UTC)


def zone_problem(name: str, year_around: datetime) -> str | None:
    """Return why the report cannot use the time zone `name`; None when it can.

    Facts are half-hour slots in UTC, and days whole hours of them. A zone whose offset is no whole
    number of half hours, at `year_around` or within a year before or after, would cut its days
    through the middle of a slot. One that shifts its clocks by half an hour would have a day with
    half an hour that is in no hour.
    """
    if name not in known_zones():
        return "no time zone of that name"
    zone = ZoneInfo(name)
    days = (year_around.astimezone(UTC) + timedelta(days=day) for day in range(-366, 367))
    offsets = [day.astimezone(zone).utcoffset() or timedelta() for day in days]
    odd = {offset for offset in offsets if offset % _HALF_HOUR}
    if odd:
        return (
            f"{name} is at UTC{_signed(min(odd))}, not a whole number of half hours: its days "
            "would begin within a half-hour slot, and slots are what facts are made of; choose a "
            "zone at :00 or :30"
        )
    if any((after - before) % _HOUR for before, after in pairwise(offsets)):
        return (
            f"{name} shifts its clocks by half an hour: a day then has half an hour that is in no "
            "whole hour, and facts are whole hours; choose a zone that shifts by an hour or never"
        )
    return None


@cache
def known_zones() -> frozenset[str]:
    """Return the names of all IANA time zones known here."""
    return frozenset(name for name in available_timezones() if re.match(r"[A-Z]", name))


def _signed(offset: timedelta) -> str:
    seconds = int(offset.total_seconds())
    hours, minutes = divmod(abs(seconds) // 60, 60)
    return f"{'-' if seconds < 0 else '+'}{hours:02}:{minutes:02}"
