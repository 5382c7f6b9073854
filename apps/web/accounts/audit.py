"""The audit log: a page of it, and the file for auditors."""

from collections.abc import Collection, Mapping
from datetime import date, datetime, time, timedelta
from http import HTTPStatus
from typing import Any
from zoneinfo import ZoneInfo

from django.http import Http404, HttpResponse, HttpResponseBase, QueryDict, StreamingHttpResponse
from msgspec import Struct

from apps.accounts.adapters.addresses import client_address
from apps.accounts.permissions import can_administer
from apps.accounts.services import audit_head, written_head
from apps.quota_requests.permissions import Actor, actor_of
from apps.quota_requests.selectors import (
    AuditFilters,
    AuditRow,
    audit_rows,
    audit_texts,
    last_audit_check,
)
from apps.usage.domain.usage_query import RowPage
from apps.web.components.formats import Format, shown
from apps.web.components.page_query import FEW_ROWS, Query, href, path_of
from apps.web.components.tables import (
    Column,
    Table,
    TableRow,
    declared_columns,
    declared_values,
)
from apps.web.pages import page, respond
from apps.web.query_session import PageRequest, by_cursor, query_session

_LONGEST = 200
_NOTHING = "nothing"
# Frozen with a request, long, and shown there.
_ELSEWHERE = frozenset({"evidence", "preview", "ruling"})
_DAYS = frozenset({"needed_by"})
_TIMES = frozenset({"until", "expires", "expires_at", "reverts_at", "start", "end"})
_NAMES: Mapping[str, str] = {
    "authors": "written by",
    "approvals": "approved by",
    "wanted": "amount",
    "mode": "way",
    "confirmed": "taken over from",
    "cluster_before": "the cluster had",
    "cluster_after": "the cluster has",
    "server_said": "the cluster said",
    "offer": "offered",
    "live": "the cluster shows",
    "execution": "order",
    "drifted": "differed meanwhile",
    "written": "written by the portal",
}
"""Names of what changes that are no words as they stand."""
_WAYS: Mapping[str, str] = {"direct": "the portal writes it", "gitops": "people commit it"}


class AuditPageQuery(Struct, frozen=True):
    """The query of the address; `query` reproduces it, `problems` say what was not understood."""

    filters: AuditFilters
    first: str
    last: str
    query: Query
    problems: tuple[str, ...]


class ChangedField(Struct, frozen=True):
    """One thing that changed, before and after in words; empty where there was none."""

    name: str
    before: str
    after: str
    field: str = ""


def audit_query(given: QueryDict, *, zone: ZoneInfo) -> AuditPageQuery:
    """Read who, what, and the days from first to last, both included, in the report's zone."""
    who, what = _text(given.get("who")), _text(given.get("what"))
    problems: list[str] = []
    first = _day(given.get("since"), problems)
    last = _day(given.get("until"), problems)
    if first and last and last < first:
        problems.append("The last day is before the first.")
    filters = AuditFilters(
        who=who,
        what=what,
        start=_midnight(first, zone) if first else None,
        end=_midnight(last + timedelta(days=1), zone) if last else None,
    )
    texts = {"who": who, "what": what, "since": _iso(first), "until": _iso(last)}
    query = tuple((name, value) for name, value in texts.items() if value)
    return AuditPageQuery(filters, texts["since"], texts["until"], query, tuple(problems))


_CHANGE = Column("change", "Change", wraps=True)


def audit_table(zone: ZoneInfo, *, empty: str) -> Table:
    """Return the table for lines of the audit, with what they changed."""
    return Table(
        id="audit-entries",
        title="Audit lines",
        columns=declared_columns(AuditRow, after={"subject": [_CHANGE]}),
        rows=(),
        zone=zone,
        empty=empty,
        page_length=FEW_ROWS,
    )


def _audit_line(row: AuditRow, zone: ZoneInfo) -> TableRow:
    changes = [_change_words(one, row) for one in differences_of(row, zone)]
    action = row.action.replace("_", " ")
    return TableRow(
        {
            **declared_values(row),
            "action": action,
            _CHANGE.key: "; ".join(changes),
            "origin": row.origin or "unknown",
        },
        short={_CHANGE.key: "\n".join(changes)},
        details={"action": row.subject, _CHANGE.key: f"“{row.note}”" if row.note else ""},
    )


def _change_words(one: ChangedField, row: AuditRow) -> str:
    if not one.before:
        return f"{one.name}: {one.after}"
    if row.after is None:
        return f"{one.name}: {one.before} (removed)"
    return f"{one.name}: {one.before} → {one.after or 'none'}"


def differences_of(
    row: AuditRow, zone: ZoneInfo, *, but: Collection[str] = (), times: Format = Format.TIME
) -> tuple[ChangedField, ...]:
    """Return what changed; of what was made or taken away whole, what it had.

    Without the fields `but`; times written as `times`. One moment written in two ways is no change.
    """
    before: Mapping[str, Any] = row.before or {}
    after: Mapping[str, Any] = row.after or {}
    names = [*before, *(name for name in after if name not in before)]
    told = [
        ChangedField(
            _NAMES.get(name, name.replace("_", " ")),
            _word(name, before, zone, times),
            _word(name, after, zone, times),
            name,
        )
        for name in names
        if name not in but and (name not in before or name not in after or _differs(name, row))
    ]
    return tuple(each for each in told if each.before or each.after)


def _differs(name: str, row: AuditRow) -> bool:
    one, other = (row.before or {})[name], (row.after or {})[name]
    if one == other:
        return False
    times = [_moment(name, one), _moment(name, other)]
    # Texts that are no instants differ as texts.
    return None in times or times[0] != times[1]


def _moment(name: str, value: Any) -> datetime | None:
    """Return a value as an instant if it is one; the audit holds them as texts."""
    if name not in _DAYS | _TIMES or not isinstance(value, str):
        return None
    try:
        at = datetime.fromisoformat(value)
    except ValueError:
        return None
    # Without a zone it is no instant: such a text is shown as it stands.
    return at if at.tzinfo else None


def _word(name: str, values: Mapping[str, Any], zone: ZoneInfo, times: Format) -> str:
    """Return a value in words; empty for none."""
    value = values.get(name)
    if name in _ELSEWHERE and value:
        return "kept with the request"
    at = _moment(name, value)
    if at is not None:
        return shown(at, Format.DAY if name in _DAYS else times, zone)
    text = _WAYS.get(str(value), str(value)) if name == "mode" and value else _shown(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


def _shown(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Mapping):
        return ", ".join(f"{name}: {_shown(each) or _NOTHING}" for name, each in value.items())
    if isinstance(value, list):
        return ", ".join(_shown(each) or _NOTHING for each in value)
    return str(value)


def _text(value: str | None) -> str:
    """Return what can be printed of a text; a database refuses some of the rest."""
    return "".join(sign for sign in (value or "").strip() if sign.isprintable())[:_LONGEST]


def _day(value: str | None, problems: list[str]) -> date | None:
    if not value:
        return None
    try:
        day = date.fromisoformat(value)
    except ValueError:
        problems.append(f"“{value[:40]}” is no day: write it as 2026-10-31.")
        return None
    if not 2000 <= day.year < 9000:
        problems.append("The audit has lines of the years 2000 to 8999 alone.")
        return None
    return day


def _midnight(day: date, zone: ZoneInfo) -> datetime:
    return datetime.combine(day, time(), tzinfo=zone)


def _iso(day: date | None) -> str:
    return day.isoformat() if day else ""


_OLD = timedelta(days=2)
"""After so long without a check it is said that none came: they are daily."""


@page
def audit(request: PageRequest) -> HttpResponseBase:
    actor = _actor(request)
    reading = query_session(request)
    asked = audit_query(request.GET, zone=reading.choice.zone)

    def page_at(cursor: str | None, size: int) -> RowPage[AuditRow]:
        return audit_rows(actor, asked.filters, cursor=cursor, page_size=size)

    check, zone = last_audit_check(actor), reading.choice.zone
    empty = "No lines match these filters." if asked.query else "No lines yet."
    table = by_cursor(
        audit_table(zone, empty=empty),
        (path_of(request), asked.query),
        request.GET.get("cursor") or None,
        page_at,
        lambda row: _audit_line(row, zone),
    )
    return respond(
        request,
        reading,
        "audit",
        tables=[table],
        asked=asked,
        file=href("audit-file", [pair for pair in asked.query if pair[0] in {"since", "until"}]),
        head=written_head(audit_head()),
        check=check,
        check_is_old=check is not None and reading.now - check.at > _OLD,
    )


@page
def audit_file(request: PageRequest) -> HttpResponseBase:
    """Stream the lines of some days, of all users, and the head of the whole."""
    actor = _actor(request)
    asked = audit_query(request.GET, zone=query_session(request).choice.zone)
    # A page can show other lines and say so; a file for auditors must be what was asked for.
    if asked.problems:
        return HttpResponse(
            " ".join(asked.problems),
            status=HTTPStatus.BAD_REQUEST,
            content_type="text/plain; charset=utf-8",
        )
    lines = audit_texts(actor, start=asked.filters.start, end=asked.filters.end)
    response = StreamingHttpResponse(lines, content_type="application/x-ndjson")
    days = "_".join(day for day in (asked.first, asked.last) if day) or "all"
    response["Content-Disposition"] = f'attachment; filename="gpuportal_audit_{days}.jsonl"'
    return response


def _actor(request: PageRequest) -> Actor:
    """Return the reader as the one who acts. Raises Http404 for all but administrators."""
    if not can_administer(request.user):
        raise Http404("This page is for administrators.")
    return actor_of(request.user, origin=client_address(request) or "")
