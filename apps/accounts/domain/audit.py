"""The audit: entries that are only ever added, each holding the hash of the one before it."""

import hashlib
import json
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from json.encoder import encode_basestring_ascii as quoted
from typing import Any, Final, NamedTuple

from msgspec import Struct

START: Final = "0" * 64
"""What the first entry names as the hash of the one before it."""

Content = Mapping[str, Any]


class AuditRecord(NamedTuple):
    """One line: who did what to what, when and from where, and what it was before and after.

    `number` counts from 1 without gaps. `at` is RFC 3339 in UTC with microseconds. `origin` is an
    address or the name of a process. `before` and `after` are the canonical JSON of an object, or
    empty for nothing. `digest` is the SHA-256 over everything else, `previous` included.
    """

    number: int
    at: str
    actor: str
    origin: str
    action: str
    subject: str
    before: str
    after: str
    note: str
    previous: str
    digest: str = ""


class Head(Struct, frozen=True):
    """The last entry as it is kept outside the table: without it a cut-off end cannot show."""

    number: int
    digest: str


class ChainCheck(Struct, frozen=True):
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
    # ASCII has the same bytes in every encoding that a database or an export may use.
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


def digest_of(entry: AuditRecord) -> str:
    """Return the SHA-256 of an entry over everything but its own digest, as hex."""
    return hashlib.sha256(_text(entry, digest="").encode("ascii")).hexdigest()


def entry_text(entry: AuditRecord) -> str:
    """Return an entry as one line of JSON, from which anybody can work its digest out again.

    Contents that were altered into what is no JSON object stand under the name `altered`.
    """
    readable = entry._replace(before=_readable(entry.before), after=_readable(entry.after))
    return _text(readable, digest=f'"digest":{quoted(entry.digest)},')


def _text(entry: AuditRecord, *, digest: str) -> str:
    """Return the canonical JSON of an entry.

    Its contents are put in as they stand: to decode and encode each of a million would take ten
    times as long.
    """
    return (
        f'{{"action":{quoted(entry.action)},"actor":{quoted(entry.actor)},'
        f'"after":{entry.after or "null"},"at":{quoted(entry.at)},'
        f'"before":{entry.before or "null"},{digest}"note":{quoted(entry.note)},'
        f'"number":{entry.number},"origin":{quoted(entry.origin)},'
        f'"previous":{quoted(entry.previous)},"subject":{quoted(entry.subject)}}}'
    )


def content_of(text: str) -> Content | None:
    """Return what `before` or `after` holds. Raises ValueError where it is no JSON object."""
    if not text:
        return None
    try:
        found = json.loads(text)
    except RecursionError as deep:
        raise ValueError("nested too deeply") from deep
    if not isinstance(found, dict):
        raise ValueError("not an object")  # noqa: TRY004 - a text of no use, not a wrong type
    return found


def _readable(text: str) -> str:
    try:
        content_of(text)
    except ValueError:
        return canonical({"altered": text}).decode()
    return text


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
        # Without the word, whole seconds are written without a fraction: one time, two texts.
        at=at.astimezone(UTC).isoformat(timespec="microseconds"),
        actor=actor,
        origin=origin,
        action=action,
        subject=subject,
        before="" if before is None else canonical(before).decode(),
        after="" if after is None else canonical(after).decode(),
        note=note,
        previous=last.digest if last else START,
    )
    return entry._replace(digest=digest_of(entry))


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
        # Only of whole objects can no part be moved from one field into the next unseen.
        content_of(entry.before)
        content_of(entry.after)
        holds = digest_of(entry) == entry.digest
    except ValueError:
        holds = False
    return "" if holds else f"Entry {number} was altered after it was written."


def _wrong_end(number: int, head: Head) -> ChainCheck:
    if number < head.number:
        words = f"The entries after {number} are missing: there were {head.number}."
        return ChainCheck(holds=False, checked=number, number=number + 1, words=words)
    words = f"Entry {head.number} is not the last one that was recorded."
    return ChainCheck(holds=False, checked=number, number=head.number, words=words)
