"""The list of what was said: what an address asks for, and the lines of the page."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

from django.conf import settings
from django.http import QueryDict

from apps.alerts.domain.alerts import AlertKind
from apps.alerts.selectors import AlertRow
from apps.web.alerts.words import kind_label
from apps.web.components.links import Query, href

_LONGEST = 200


@dataclass(frozen=True, slots=True)
class AlertQuery:
    """What an address asks for; `query` reproduces it but for `before`, the id to go on at."""

    kinds: tuple[AlertKind, ...]
    team: str
    before: int | None
    query: Query
    problems: tuple[str, ...]

    @property
    def whole_query(self) -> Query:
        return (*self.query, *before_query(self.before))


@dataclass(frozen=True, slots=True)
class Attempt:
    """An answer as it was typed, and why it was not taken."""

    alert: int
    keeps: bool
    until: str
    because: str
    problem: str = ""


@dataclass(frozen=True, slots=True)
class AlertLine:
    """One line of the list; `may_answer`: of an idle alert that the reader answers for.

    Of several alerts about one thing only the latest on the page is answered.
    """

    row: AlertRow
    kind: str
    href: str
    team_href: str
    may_answer: bool
    attempt: Attempt | None


@dataclass(frozen=True, slots=True)
class Days:
    """The first and last day that something can be kept until, as a date field takes them."""

    first: str
    last: str


def alert_query(given: QueryDict) -> AlertQuery:
    """Read kinds, team and where to go on; what is not understood is said and left out."""
    problems: list[str] = []
    known = {kind.value: kind for kind in AlertKind}
    asked = dict.fromkeys(given.getlist("kind"))
    kinds = tuple(known[name] for name in asked if name in known)
    problems += [f"“{name[:40]}” is no kind of alert." for name in asked if name not in known]
    team = "".join(sign for sign in given.get("team", "").strip() if sign.isprintable())[:_LONGEST]
    before = number_of(given, "before", problems)
    query = [("kind", kind.value) for kind in kinds] + ([("team", team)] if team else [])
    return AlertQuery(kinds, team, before, tuple(query), tuple(problems))


def number_of(given: QueryDict, name: str, problems: list[str]) -> int | None:
    """Return a row's id of an address; None where there is none, with why in `problems`."""
    written = given.get(name, "")
    if not written:
        return None
    # Up to 18 digits: more than that is no id of any database.
    if written.isascii() and written.isdecimal() and len(written) <= 18:
        return int(written)
    problems.append("This address points to no place in the list: here is its beginning.")
    return None


def before_query(before: int | None) -> Query:
    return () if before is None else (("before", str(before)),)


def lines_of(
    rows: Iterable[AlertRow],
    *,
    query: Query,
    answered_for: Collection[int] | None,
    attempt: Attempt | None = None,
) -> list[AlertLine]:
    """Return the lines of rows, the latest first; `answered_for` None: of all teams."""
    lines, seen = [], set()
    for row in rows:
        own = answered_for is None or row.team_id in answered_for
        idle = row.kind == AlertKind.IDLE.value and row.team_id is not None and own
        tried = attempt if attempt is not None and attempt.alert == row.id else None
        lines.append(
            AlertLine(
                row=row,
                kind=kind_label(row.kind),
                href=row.path if _is_own(row.path) else "",
                team_href=(href("team", query, name=row.team) or "") if row.team else "",
                may_answer=idle and (row.subject not in seen or tried is not None),
                attempt=tried,
            )
        )
        seen.add(row.subject)
    return lines


def _is_own(path: str) -> bool:
    """Say whether a path is of this portal: `//host` would lead elsewhere."""
    return path.startswith("/") and not path.startswith(("//", "/\\"))


def days_of(now: datetime, zone: ZoneInfo) -> Days:
    """Return the days that idle GPUs can be kept until."""
    today = now.astimezone(zone).date()
    return Days(f"{today}", f"{today + timedelta(days=settings.ALERTS_KEEP_DAYS)}")
