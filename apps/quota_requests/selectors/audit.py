"""The audit as it is read: pages, entries of one request, new entries, and its last check."""

from collections.abc import Iterator
from datetime import UTC, datetime
from functools import reduce
from operator import or_
from typing import Any

from django.db.models import Q, QuerySet
from msgspec import Struct

from apps.accounts.domain.audit import AuditRecord, canonical, content_of, entry_text
from apps.accounts.domain.rows import row_from
from apps.accounts.domain.structs import replace
from apps.accounts.models import AuditEntry, AuditHead
from apps.accounts.permissions import NotAllowed
from apps.quota_requests.models import AuditCheck, ChangeRequest
from apps.quota_requests.permissions import Actor
from apps.quota_requests.selectors.rows import AuditRow
from apps.usage.domain.usage_query import RowPage, decode_cursor, encode_cursor

_KIND = "audit"
_AT_ONCE = 2000
_FROZEN = frozenset({"evidence", "preview", "ruling"})


def check_read(actor: Actor) -> None:
    """The whole audit: administrators. Raises NotAllowed."""
    # No person is the portal itself: exports and commands read all of it.
    if actor.person is not None and not actor.person.admin:
        raise NotAllowed("The audit is for administrators; each request shows its own history.")


class AuditFilters(Struct, frozen=True):
    """Which lines are asked for: empty or None for all.

    `who` and `what` are parts of the actor, and of the action, the subject or what changed,
    whatever their case; `subject` and `action` are exact. From `start` on, before `end`.
    """

    who: str = ""
    what: str = ""
    subject: str = ""
    action: str = ""
    start: datetime | None = None
    end: datetime | None = None


EVERY_LINE = AuditFilters()


def audit_rows(
    actor: Actor,
    filters: AuditFilters = EVERY_LINE,
    *,
    cursor: str | None = None,
    page_size: int = 100,
) -> RowPage[AuditRow]:
    """Return lines of the audit, the newest first. One query.

    Raises NotAllowed for all but administrators, and CursorRefused.
    """
    check_read(actor)
    rows = _filtered(filters).order_by("-number")
    if cursor is not None:
        # By number and not by offset: a new line on top would shift every page.
        rows = rows.filter(number__lt=decode_cursor(_KIND, cursor, (int,))[0])
    found = list(rows[: page_size + 1])
    shown = found[:page_size]
    more = len(found) > page_size
    return RowPage(
        rows=tuple(map(_row, shown)),
        next_cursor=encode_cursor(_KIND, (shown[-1].number,)) if more else None,
    )


def _filtered(filters: AuditFilters) -> QuerySet[AuditEntry]:
    rows = AuditEntry.objects.all()
    exact = {"subject": filters.subject, "action": filters.action}
    rows = rows.filter(**{name: value for name, value in exact.items() if value})
    if filters.who:
        rows = rows.filter(actor__icontains=filters.who)
    if filters.what:
        # People write what they read: the words of an action without its underscores.
        action = Q(action__icontains="_".join(filters.what.split()))
        texts = ("subject", "before", "after")
        rows = rows.filter(
            action | reduce(or_, (Q(**{f"{name}__icontains": filters.what}) for name in texts))
        )
    # Times are texts of one length in UTC, so that they are in order as texts too.
    if filters.start is not None:
        rows = rows.filter(at__gte=_text(filters.start))
    if filters.end is not None:
        rows = rows.filter(at__lt=_text(filters.end))
    return rows


def _text(at: datetime) -> str:
    return at.astimezone(UTC).isoformat(timespec="microseconds")


def history_of(request: ChangeRequest, actor: Actor, *, at_most: int) -> tuple[AuditRow, ...]:
    """Return the lines about a request, the newest first. One query.

    Without what is frozen with the request, which stands beside; where people acted from is for
    who sees how the portal runs.
    """
    rows = AuditEntry.objects.filter(subject=request.audit_subject)
    return tuple(
        _short(_row(row), operations=actor.visibility.operations)
        for row in rows.order_by("-number")[:at_most]
    )


def _short(row: AuditRow, *, operations: bool) -> AuditRow:
    after = row.after
    if after is not None:
        after = {name: value for name, value in after.items() if name not in _FROZEN}
    return replace(row, after=after, origin=row.origin if operations else "")


def audit_since(number: int, *, at_most: int = 500) -> list[AuditRow]:
    """Return the lines after a number, the oldest first, for who tells people of them.

    Numbers have no gaps and are never seen before all lower ones are, so that the last number read
    is where to go on. One query.
    """
    rows = AuditEntry.objects.filter(number__gt=number).order_by("number")[:at_most]
    return [_row(row) for row in rows]


def audit_texts(
    actor: Actor, *, start: datetime | None = None, end: datetime | None = None
) -> Iterator[str]:
    """Return the audit as JSON lines for auditors, each with its newline; the last is the head.

    `before` and `after` stand as they were hashed, so that anybody can work the digests out
    again; what lies outside of start..end is left out. Raises NotAllowed at once, as long as the
    lines are not asked for.
    """
    check_read(actor)
    return _texts(start, end)


def _texts(start: datetime | None, end: datetime | None) -> Iterator[str]:
    """Yield the lines of a time; the database leaves the others out, as there may be millions."""
    within = _filtered(AuditFilters(start=start, end=end)).order_by("number")
    rows = within.values_list(*AuditRecord._fields)
    last = 0
    # In parts, each after the number of the last: memory stays small however long the audit is.
    while found := list(rows.filter(number__gt=last)[:_AT_ONCE]):
        last = found[-1][0]
        for row in found:
            yield entry_text(AuditRecord._make(row)) + "\n"
    head = AuditHead.objects.filter(pk=1, number__gt=0).first()
    if head is not None:
        yield canonical({"head": {"number": head.number, "digest": head.digest}}).decode() + "\n"


def _row(row: AuditEntry) -> AuditRow:
    return row_from(
        AuditRow,
        row,
        at=datetime.fromisoformat(row.at),
        before=_content(row.before),
        after=_content(row.after),
    )


def _content(text: str) -> Any:
    """Return what a text holds; an altered text that is no JSON object is shown as it is."""
    try:
        return content_of(text)
    except ValueError:
        return {"altered": text}


class AuditChecked(Struct, frozen=True):
    """`number` is the last line that a check found whole (0: none yet), `held_at` when.

    `words` say what the check of `at` found.
    """

    at: datetime
    holds: bool
    words: str
    number: int
    held_at: datetime | None


def last_audit_check(actor: Actor) -> AuditChecked | None:
    """Return the last check; None before the first. One query. Raises NotAllowed."""
    check_read(actor)
    row = AuditCheck.objects.order_by("pk").first()
    if row is None:
        return None
    return AuditChecked(row.at, row.holds, row.words, row.number, row.held_at)
