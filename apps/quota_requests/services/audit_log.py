"""Adding to the audit, checking it and handing it out.

The head is a row of its own that is locked and written in the transaction of the entry: a file
beside the database could be behind it after a crash, and each machine would have another one. Who
rules the database could alter both; against that the head is logged with every entry and noted by
whoever exports, and `verify` holds the chain against a noted head.
"""

import json
import logging
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any, Final

from django.db import transaction

from apps.accounts.permissions import Visibility
from apps.accounts.services import JournalEntry
from apps.quota_requests.domain.audit import (
    START,
    AuditRecord,
    ChainCheck,
    Head,
    appended,
    canonical,
)
from apps.quota_requests.domain.audit import verify as verify_chain
from apps.quota_requests.models import AuditCheck, AuditEntry, AuditHead, ChangeRequest
from apps.quota_requests.permissions import Actor

_LOG = logging.getLogger("gpuportal.audit")
_HEAD = 1
_AT_ONCE = 2000
_NOTHING = Head(0, START)

Values = Mapping[str, Any]


def subject_of(request: ChangeRequest) -> str:
    """Return how the audit names a request."""
    return f"quota-request/{request.pk}"


def record(
    actor: Actor,
    action: str,
    subject: str,
    *,
    at: datetime,
    before: Values | None = None,
    after: Values | None = None,
    note: str = "",
) -> AuditRecord:
    """Add an entry in the transaction that is open; it is there if and only if that commits.

    Raises RuntimeError outside of one: what is done and what is said of it must not part.
    """
    if not transaction.get_connection().in_atomic_block:
        raise RuntimeError("an audit entry belongs to the transaction of what it is about")
    head = _locked_head()
    entry = appended(
        Head(head.number, head.digest) if head.number else None,
        at=at,
        actor=_kept(actor.name),
        origin=_kept(actor.origin)[:200],
        action=action,
        subject=subject,
        before=before,
        after=after,
        note=_kept(note),
    )
    AuditEntry.objects.create(**_columns(entry))
    head.number, head.digest = entry.number, entry.digest
    head.save(update_fields=["number", "digest"])
    transaction.on_commit(
        lambda: _LOG.info("audit %d %s %s", entry.number, entry.digest, entry.action)
    )
    return entry


def _locked_head() -> AuditHead:
    locked = AuditHead.objects.select_for_update().filter(pk=_HEAD)
    found = locked.first()
    if found is not None:
        return found
    first = [AuditHead(pk=_HEAD, number=0, digest="")]
    AuditHead.objects.bulk_create(first, ignore_conflicts=True)
    return locked.get()


def _kept(text: str) -> str:
    """Leave out what no database stores in a text."""
    return text.replace("\0", "")


def _columns(entry: AuditRecord) -> dict[str, Any]:
    return {
        "number": entry.number,
        "at": entry.at,
        "actor": entry.actor,
        "origin": entry.origin,
        "action": entry.action,
        "subject": entry.subject,
        "before": "" if entry.before is None else canonical(entry.before).decode(),
        "after": "" if entry.after is None else canonical(entry.after).decode(),
        "note": entry.note,
        "previous": entry.previous,
        "digest": entry.digest,
    }


# ---------------------------------------------------------------- reading it back


def entries() -> Iterator[AuditRecord]:
    """Yield the entries in order, some thousand at a time."""
    after = 0
    while rows := list(AuditEntry.objects.filter(number__gt=after).order_by("number")[:_AT_ONCE]):
        yield from map(entry_of, rows)
        after = rows[-1].number


def entry_of(row: AuditEntry) -> AuditRecord:
    """Return a row as the entry that it was made from, if nobody altered it."""
    return AuditRecord(
        number=row.number,
        at=row.at,
        actor=row.actor,
        origin=row.origin,
        action=row.action,
        subject=row.subject,
        before=_content(row.before),
        after=_content(row.after),
        note=row.note,
        previous=row.previous,
        digest=row.digest,
    )


def _content(text: str) -> Values | None:
    """Return what a text holds; of a text that is not canonical something that no digest fits."""
    if not text:
        return None
    altered = {"altered": text}
    try:
        found = json.loads(text)
        same = isinstance(found, dict) and canonical(found).decode() == text
    except (ValueError, TypeError, RecursionError):
        return altered
    return found if same else altered


def head() -> Head | None:
    """Return the head as it is kept beside the entries; None before the first. One query."""
    row = AuditHead.objects.filter(pk=_HEAD, number__gt=0).first()
    return None if row is None else Head(row.number, row.digest)


class NoHead(ValueError):
    """A text is not a head as `verify_audit` prints it."""


def read_head(text: str) -> Head:
    """Return the head in `NUMBER:DIGEST`. Raises NoHead."""
    number, _, digest = text.strip().lower().partition(":")
    if not number.isdecimal() or len(digest) != 64:
        raise NoHead(f"{text!r} is not NUMBER:DIGEST as verify_audit prints it")
    return Head(int(number), digest)


def written_head(head: Head | None) -> str:
    """Return a head as NUMBER:DIGEST, which `read_head` reads; that of no entry as well."""
    head = head or _NOTHING
    return f"{head.number}:{head.digest}"


def verify(noted: Head | None = None) -> ChainCheck:
    """Check every entry, the kept head, and a head that somebody noted earlier.

    Entries added meanwhile are left for the next time: nobody waits for the audit to be checked.
    """
    kept = head() or _NOTHING
    seen: dict[int, str] = {0: START}
    verdict = verify_chain(_noting(kept, noted, seen), kept)
    if not verdict.holds:
        return verdict
    beyond = AuditEntry.objects.filter(number__gt=kept.number).exists()
    # An entry comes in one transaction with its head, which is read after it here.
    if beyond and (head() or _NOTHING) == kept:
        words = f"Entry {kept.number + 1} is there, but never was the last one recorded."
        return ChainCheck(holds=False, checked=kept.number, number=kept.number + 1, words=words)
    if noted is not None and seen.get(noted.number) != noted.digest:
        return ChainCheck(
            holds=False, checked=kept.number, number=noted.number, words=_not_as_noted(noted, kept)
        )
    return verdict if kept.number or beyond else _empty(noted)


def _empty(noted: Head | None) -> ChainCheck:
    """Judge an audit without entries, which a table that was emptied looks like as well.

    Each quota request was made with an entry: where there are requests, there were entries.
    """
    requests = ChangeRequest.objects.count()
    if requests:
        words = f"There is no entry, but {requests} quota requests: the audit was emptied."
        return ChainCheck(holds=False, checked=0, number=1, words=words)
    words = "There is no entry yet."
    if noted is None:
        words += " Whether there ever was one shows against a head that was noted elsewhere alone."
    return ChainCheck(holds=True, checked=0, number=None, words=words)


def _noting(kept: Head, noted: Head | None, seen: dict[int, str]) -> Iterator[AuditRecord]:
    for entry in entries():
        if entry.number > kept.number:
            return
        if noted is not None and entry.number == noted.number:
            seen[entry.number] = entry.digest
        yield entry


def _not_as_noted(noted: Head, kept: Head) -> str:
    if noted.number > kept.number:
        return f"There are {kept.number} entries; {noted.number} were there once."
    return f"Entry {noted.number} is not the one that was noted: all was written anew."


_CHECK_ROW = 1
CHECK_EVERY: Final = timedelta(days=1)
"""How long a check is enough: it reads all of the audit."""


def check_audit_when_due(*, now: datetime) -> bool | None:
    """Check the audit where that was not done for a day; None where it was."""
    last = AuditCheck.objects.filter(pk=_CHECK_ROW).first()
    if last is not None and last.at > now - CHECK_EVERY:
        return None
    return check_audit(now=now)


def check_audit(*, now: datetime) -> bool:
    """Check every entry, and that what held the last time is still there; keep the finding.

    Returns whether it holds. What was written while it ran is left for the next time.
    """
    last = AuditCheck.objects.filter(pk=_CHECK_ROW).first()
    noted = Head(last.number, last.digest) if last is not None and last.number else None
    upto = head()  # read first: nothing behind it is claimed to be checked
    verdict = verify(noted)
    values: dict[str, object] = {"at": now, "holds": verdict.holds, "words": verdict.words}
    if verdict.holds:
        values |= {"held_at": now}
        if upto is not None:
            values |= {"number": upto.number, "digest": upto.digest}
    else:
        _LOG.error("the audit does not hold: %s", verdict.words)
    AuditCheck.objects.update_or_create(pk=_CHECK_ROW, defaults=values)
    return verdict.holds


def hear(line: JournalEntry) -> None:
    """Add a line in the transaction that it was sent in. Raises RuntimeError outside of one."""
    by = Actor(line.by.name, line.by.origin, None, Visibility(everything=False))
    record(by, line.action, line.subject, at=line.at, before=line.before, after=line.after)
