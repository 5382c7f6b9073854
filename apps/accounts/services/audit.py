"""The one writer of the audit: who acts, adding entries, reading them back and checking them.

The head is a row of its own that is locked and written in the transaction of the entry: a file
beside the database could be behind it after a crash, and each machine would have another one. An
administrator of the database could alter both. Against that the head is logged with every entry and
noted by those who export, and `verify_audit` checks the chain against a noted head.
"""

import getpass
import logging
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

from django.db import transaction

from apps.accounts.domain.audit import (
    START,
    AuditRecord,
    ChainCheck,
    Head,
    check_chain,
    next_entry,
)
from apps.accounts.domain.identity import PORTAL, ActingParty
from apps.accounts.models import AuditEntry, AuditHead

logger = logging.getLogger("gpuportal.audit")
_HEAD = 1
_AT_ONCE = 2000
_NOTHING = Head(0, START)

Values = Mapping[str, Any]


def the_portal(origin: str) -> ActingParty:
    """Return the portal itself as the one who acts, as for commands."""
    return ActingParty(PORTAL, origin)


def from_command(name: str) -> ActingParty:
    """Return the portal as `manage.py NAME` acts, with who runs it on this machine."""
    try:
        runs = getpass.getuser()
    except (KeyError, OSError, ImportError):  # a container's user may have no name
        runs = "a user without a name"
    return the_portal(f"manage.py {name}, run by {runs}")


def record(
    by: ActingParty,
    action: str,
    subject: str,
    *,
    at: datetime,
    before: Values | None = None,
    after: Values | None = None,
    note: str = "",
) -> AuditRecord:
    """Add an entry in the transaction that is open; it is there if and only if that commits.

    `before` and `after` hold JSON values without floats, None for nothing. Raises RuntimeError
    outside of a transaction: what is done and what is said of it must not part.
    """
    if not transaction.get_connection().in_atomic_block:
        raise RuntimeError("an audit entry belongs to the transaction of what it is about")
    head = _locked_head()
    entry = next_entry(
        Head(head.number, head.digest) if head.number else None,
        at=at,
        actor=_storable(by.name),
        origin=_storable(by.origin)[:200],
        action=action,
        subject=subject,
        before=before,
        after=after,
        note=_storable(note),
    )
    AuditEntry.objects.create(**entry._asdict())
    head.number, head.digest = entry.number, entry.digest
    head.save(update_fields=["number", "digest"])
    # Only then: the logged head of an entry that was rolled back would read as a loss.
    transaction.on_commit(
        lambda: logger.info("audit %d %s %s", entry.number, entry.digest, entry.action)
    )
    return entry


def note(
    by: ActingParty,
    action: str,
    subject: str,
    *,
    at: datetime,
    before: Values | None = None,
    after: Values | None = None,
) -> None:
    """Add an entry as `record` does, unless before and after are the same."""
    if before is None or before != after:
        record(by, action, subject, at=at, before=before, after=after)


def _locked_head() -> AuditHead:
    locked = AuditHead.objects.select_for_update().filter(pk=_HEAD)
    found = locked.first()
    if found is not None:
        return found
    # Two first writers may both find none: one inserts the head, and both then wait for its lock.
    first = [AuditHead(pk=_HEAD, number=0, digest="")]
    AuditHead.objects.bulk_create(first, ignore_conflicts=True)
    return locked.get()


def _storable(text: str) -> str:
    """Leave out what no database stores in a text."""
    return text.replace("\0", "")


# ---------------------------------------------------------------- reading it back


def entries() -> Iterator[AuditRecord]:
    """Yield the entries in order, some thousand at a time."""
    rows = AuditEntry.objects.order_by("number").values_list(*AuditRecord._fields)
    after = 0
    # In parts, so that memory stays small and no cursor stays open over all of the audit.
    while found := list(rows.filter(number__gt=after)[:_AT_ONCE]):
        yield from map(AuditRecord._make, found)
        after = found[-1][0]


def audit_head() -> Head | None:
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


def verify_audit(noted: Head | None = None, *, witnesses: str = "") -> ChainCheck:
    """Check every entry, the kept head, and a head that was noted earlier.

    `witnesses` name rows that were there before and were made with an entry each: an audit without
    entries was emptied then. Entries added meanwhile are left for the next time: writers are never
    blocked by the check.
    """
    kept = audit_head() or _NOTHING
    seen: dict[int, str] = {0: START}
    verdict = check_chain(_noting(kept, noted, seen), kept)
    if not verdict.holds:
        return verdict
    beyond = AuditEntry.objects.filter(number__gt=kept.number).exists()
    # An entry comes in one transaction with its head, which is read after it here.
    if beyond and (audit_head() or _NOTHING) == kept:
        words = f"Entry {kept.number + 1} is there, but never was the last one recorded."
        return ChainCheck(holds=False, checked=kept.number, number=kept.number + 1, words=words)
    if noted is not None and seen.get(noted.number) != noted.digest:
        return ChainCheck(
            holds=False, checked=kept.number, number=noted.number, words=_not_as_noted(noted, kept)
        )
    return verdict if kept.number or beyond else _empty(noted, witnesses)


def _empty(noted: Head | None, witnesses: str) -> ChainCheck:
    """Judge an audit without entries, which a table that was emptied looks like as well."""
    if witnesses:
        words = f"There is no entry, but {witnesses}: the audit was emptied."
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
