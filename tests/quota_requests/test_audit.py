"""The chain of the audit shows what was altered, exchanged, doubled or taken away."""

import hashlib
import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apps.accounts.domain.audit import (
    START,
    AuditRecord,
    Head,
    canonical,
    check_chain,
    content_of,
    digest_of,
    entry_text,
    next_entry,
)

NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)


def chain(length: int) -> list[AuditRecord]:
    entries: list[AuditRecord] = []
    for i in range(length):
        last = Head(entries[-1].number, entries[-1].digest) if entries else None
        entries.append(
            next_entry(
                last,
                at=NOON + timedelta(minutes=i),
                actor="ada",
                origin="192.0.2.7",
                action="submit",
                subject="quota-request:7",
                before={"state": "draft"},
                after={"state": "submitted", "to": "8", "tiers": ["a100"]},
                note="für den Kurs",
            )
        )
    return entries


def test_a_chain_that_nobody_touched_holds() -> None:
    entries = chain(5)
    found = check_chain(entries, Head(5, entries[-1].digest))
    assert (found.holds, found.checked, found.number) == (True, 5, None)
    assert found.words == "All 5 entries hold."
    assert (entries[0].previous, entries[1].previous) == (START, entries[0].digest)


def test_an_empty_audit_holds() -> None:
    assert check_chain([]).holds


ALTERED: dict[str, Any] = {
    "at": "2026-11-20T12:00:00.000001+00:00",
    "actor": "eve",
    "origin": "",
    "action": "approve",
    "subject": "quota-request:8",
    "before": "",
    "after": '{"state":"submitted","tiers":["a100"],"to":"80"}',
    "note": "",
}


@pytest.mark.parametrize("column", ALTERED)
def test_an_altered_column_shows(column: str) -> None:
    entries = chain(5)
    entries[2] = entries[2]._replace(**{column: ALTERED[column]})
    found = check_chain(entries)
    assert (found.holds, found.checked, found.number) == (False, 2, 3)
    assert found.words == "Entry 3 was altered after it was written."


def rehashed(entries: list[AuditRecord]) -> list[AuditRecord]:
    """Alter an entry and give it the digest that fits, as somebody with the table could."""
    altered = entries[2]._replace(actor="eve")
    entries[2] = altered._replace(digest=digest_of(altered))
    return entries


def cut(at: slice) -> Callable[[list[AuditRecord]], list[AuditRecord]]:
    def without(entries: list[AuditRecord]) -> list[AuditRecord]:
        del entries[at]
        return entries

    return without


def swapped(entries: list[AuditRecord]) -> list[AuditRecord]:
    entries[1], entries[2] = entries[2], entries[1]
    return entries


def floating(entries: list[AuditRecord]) -> list[AuditRecord]:
    entries[2] = entries[2]._replace(after='{"to":8.0}')
    return entries


@pytest.mark.parametrize(
    ("spoil", "number", "words"),
    [
        pytest.param(rehashed, 4, "one was exchanged", id="rewritten with its hash"),
        pytest.param(cut(slice(2, 3)), 3, "Entry 3 is missing", id="one taken away"),
        pytest.param(cut(slice(0, 1)), 1, "Entry 1 is missing", id="the first taken away"),
        pytest.param(cut(slice(3, 5)), 4, "after 3 are missing", id="the end taken away"),
        pytest.param(cut(slice(0, 5)), 1, "after 0 are missing", id="all taken away"),
        pytest.param(swapped, 2, "Entry 2 is missing", id="two in the wrong order"),
        pytest.param(lambda e: [*e[:2], e[1], *e[2:]], 3, "there twice", id="one doubled"),
        pytest.param(floating, 3, "altered", id="what an audit cannot hold"),
    ],
)
def test_what_is_not_in_its_place_shows(
    spoil: Callable[[list[AuditRecord]], list[AuditRecord]], number: int, words: str
) -> None:
    entries = chain(5)
    head = Head(5, entries[-1].digest)
    found = check_chain(spoil(entries), head)
    assert (found.holds, found.number) == (False, number)
    assert words in found.words


def test_a_whole_chain_that_was_made_anew_shows_by_its_end() -> None:
    head = Head(5, chain(5)[-1].digest)
    anew = [entry._replace(actor="eve") for entry in chain(5)]
    previous = START
    for i, entry in enumerate(anew):
        linked = entry._replace(previous=previous)
        anew[i] = linked._replace(digest=digest_of(linked))
        previous = anew[i].digest
    assert check_chain(anew).holds
    assert check_chain(anew, head).words == "Entry 5 is not the last one that was recorded."


def test_times_are_kept_in_utc() -> None:
    there = NOON.astimezone(timezone(timedelta(hours=5, minutes=30)))
    entry = next_entry(None, at=there, actor="a", origin="", action="a", subject="s")
    assert entry.at == "2026-11-20T12:00:00.000000+00:00"


def test_a_time_without_an_offset_is_refused() -> None:
    with pytest.raises(ValueError, match="offset"):
        next_entry(
            None, at=NOON.replace(tzinfo=None), actor="a", origin="", action="a", subject="s"
        )


@pytest.mark.parametrize(
    ("value", "error"),
    [
        pytest.param({"to": 8.0}, ValueError, id="float"),
        pytest.param({"to": [1, {"x": float("nan")}]}, ValueError, id="not a number, within"),
        pytest.param({8: "to"}, TypeError, id="name that is no text"),
        pytest.param({"to": Decimal(8)}, TypeError, id="decimal"),
    ],
)
def test_what_has_no_certain_text_is_refused(value: object, error: type[Exception]) -> None:
    with pytest.raises(error):
        canonical(value)


NAMES = st.text(max_size=6)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | NAMES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=5,
)


@given(st.dictionaries(NAMES, JSON, max_size=3))
def test_a_trip_through_the_database_changes_no_hash(content: dict[str, Any]) -> None:
    entry = next_entry(None, at=NOON, actor="a", origin="", action="a", subject="s", after=content)
    assert content_of(entry.after) == content
    assert canonical(json.loads(json.dumps(content))).decode() == entry.after


@given(
    before=st.none() | st.dictionaries(NAMES, JSON, max_size=3),
    after=st.none() | st.dictionaries(NAMES, JSON, max_size=3),
    note=st.text(max_size=9),
)
def test_a_digest_is_that_of_the_canonical_text_of_a_whole_entry(
    before: dict[str, Any] | None, after: dict[str, Any] | None, note: str
) -> None:
    """So that an auditor can work it out from the export, with nothing of ours."""
    words = {"actor": "ä", "origin": "", "action": "a", "subject": "s", "note": note}
    entry = next_entry(None, at=NOON, before=before, after=after, **words)
    content = {"number": 1, "at": entry.at, "previous": START, **words}
    whole = canonical({**content, "before": before, "after": after})
    assert entry.digest == hashlib.sha256(whole).hexdigest()
    shown = canonical({**json.loads(whole), "digest": entry.digest}).decode()
    assert entry_text(entry) == shown


def moved(entries: list[AuditRecord]) -> list[AuditRecord]:
    """Move the end of one field into the next, so that the text of the whole stays the same."""
    one = next_entry(None, at=NOON, actor="a", origin="", action="a", subject="s", after=_NESTED)
    inner = one.after.partition(',"at":"x","before":')
    rest = f'{inner[2]},"at":"{one.at}","before":null'
    return [one._replace(after=inner[0], at="x", before=rest), *entries[1:]]


_NESTED = {"a": {"a": 1, "at": "x", "before": {"y": 1}}}


def test_no_part_of_a_field_can_be_moved_into_another() -> None:
    (spoilt, *_) = moved(chain(1))
    assert digest_of(spoilt) == spoilt.digest
    assert check_chain([spoilt]).words == "Entry 1 was altered after it was written."
