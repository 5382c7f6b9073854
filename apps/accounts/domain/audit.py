"""The audit: entries that are only ever added, each holding the hash of the one before it."""

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime
from typing import Any, Final

START: Final = "0" * 64
"""What the first entry names as the hash of the one before it."""

Content = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class AuditRecord:
    """One line: who did what to what, when and from where, and what it was before and after.

    `number` counts from 1 without gaps. `at` is RFC 3339 in UTC with microseconds. `origin` is an
    address or the name of a process. `before` and `after` hold JSON values without floats or None
    for nothing. `digest` is the SHA-256 over everything else, `previous` included.
    """

    number: int
    at: str
    actor: str
    origin: str
    action: str
    subject: str
    before: Content | None
    after: Content | None
    note: str
    previous: str
    digest: str = ""


@dataclass(frozen=True, slots=True)
class Head:
    """The last entry as it is kept outside the table: without it a cut-off end cannot show."""

    number: int
    digest: str


@dataclass(frozen=True, slots=True)
class ChainCheck:
    """Whether the chain holds. Else `number` is the first entry that does not, and `words` why."""

    holds: bool
    checked: int
    number: int | None
    words: str


def canonical(value: object) -> bytes:
    """Return the one JSON text of a value: sorted keys, no blanks, ASCII.

    Raises ValueError for floats, whose text is not certain to be the same everywhere, and
    TypeError for what JSON does not have.
    """
    _check_exact(value)
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return text.encode("ascii")


def _check_exact(value: object) -> None:
    if isinstance(value, float):
        raise ValueError(f"the audit holds no floats: {value!r}")  # noqa: TRY004 - a value of no use, not a wrong type
    if isinstance(value, Mapping):
        for key, item in value.items():
            if not isinstance(key, str):
                raise TypeError(f"the audit holds names as text only: {key!r}")
            _check_exact(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            _check_exact(item)


_DIGESTED: Final = tuple(one.name for one in fields(AuditRecord) if one.name != "digest")


def digest_of(entry: AuditRecord) -> str:
    """Return the SHA-256 of an entry over everything but its own digest, as hex."""
    content = {name: getattr(entry, name) for name in _DIGESTED}
    return hashlib.sha256(canonical(content)).hexdigest()


def next_entry(
    last: Head | None,
    *,
    at: datetime,
    actor: str,
    origin: str,
    action: str,
    subject: str,
    before: Content | None = None,
    after: Content | None = None,
    note: str = "",
) -> AuditRecord:
    """Return the entry that follows `last` (None: the first), with its digest.

    Raises ValueError for a time without an offset.
    """
    if at.tzinfo is None:
        raise ValueError("an audit entry needs a time with its offset")
    entry = AuditRecord(
        number=last.number + 1 if last else 1,
        at=at.astimezone(UTC).isoformat(timespec="microseconds"),
        actor=actor,
        origin=origin,
        action=action,
        subject=subject,
        before=before,
        after=after,
        note=note,
        previous=last.digest if last else START,
    )
    return replace(entry, digest=digest_of(entry))


def check_chain(entries: Iterable[AuditRecord], head: Head | None = None) -> ChainCheck:
    """Check entries in order of number, from the first. Constant memory.

    The first that was altered, is missing or stands in the wrong place is named. With `head` a
    missing end shows too.
    """
    number, previous = 0, START
    for entry in entries:
        number += 1
        words = _fault(entry, number, previous)
        if words:
            return ChainCheck(holds=False, checked=number - 1, number=number, words=words)
        previous = entry.digest
    if head is not None and (number, previous) != (head.number, head.digest):
        return _wrong_end(number, head)
    return ChainCheck(holds=True, checked=number, number=None, words=f"All {number} entries hold.")


def _fault(entry: AuditRecord, number: int, previous: str) -> str:
    if entry.number > number:
        return f"Entry {number} is missing: entry {entry.number} comes in its place."
    if entry.number < number:
        return f"Entry {entry.number} is there twice or in the wrong place."
    if entry.previous != previous:
        return f"Entry {number} does not follow from the entry before it: one was exchanged."
    try:
        holds = digest_of(entry) == entry.digest
    except (TypeError, ValueError):
        holds = False
    return "" if holds else f"Entry {number} was altered after it was written."


def _wrong_end(number: int, head: Head) -> ChainCheck:
    if number < head.number:
        words = f"The entries after {number} are missing: there were {head.number}."
        return ChainCheck(holds=False, checked=number, number=number + 1, words=words)
    words = f"Entry {head.number} is not the last one that was recorded."
    return ChainCheck(holds=False, checked=number, number=head.number, words=words)
