"""The database itself refuses to change what the audit holds, whoever asks."""

from collections.abc import Callable, Iterator

import pytest
from django.db import IntegrityError, connection, transaction

from apps.accounts.adapters.audit_triggers import backwards, forwards
from apps.accounts.models import AuditEntry, AuditHead
from apps.accounts.services.audit import record
from apps.quota_requests.permissions import portal
from apps.quota_requests.services import verify
from tests.quota_requests.portal import NOW

pytestmark = pytest.mark.django_db
LINES = 3


def write(count: int = LINES) -> None:
    for _ in range(count):
        with transaction.atomic():
            record(portal("test"), "edit", "x", at=NOW)


@pytest.fixture(autouse=True)
def _triggers(db: None) -> Iterator[None]:
    """Put the triggers there for a test, whether or not migrations were run."""
    editor = connection.SchemaEditorClass(connection)
    forwards(None, editor)
    yield
    backwards(None, editor)


def run(sql: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(sql)


def again(entry: AuditEntry) -> None:
    AuditEntry.objects.bulk_create([entry])


WRONGS: dict[str, Callable[[], object]] = {
    "an entry is changed": lambda: AuditEntry.objects.filter(pk=2).update(note="x"),
    "an entry is deleted": lambda: AuditEntry.objects.filter(pk=2).delete(),
    "all are deleted": lambda: run("DELETE FROM accounts_auditentry"),
    "an entry is written again": lambda: again(AuditEntry.objects.get(pk=2)),
    "the head is set back": lambda: AuditHead.objects.update(number=2),
    "the head is set on": lambda: AuditHead.objects.update(number=9),
    "another digest for the head": lambda: AuditHead.objects.update(digest="0" * 64),
    "the head is deleted": lambda: AuditHead.objects.all().delete(),
    "the head is deleted by hand": lambda: run("DELETE FROM accounts_audithead"),
}
OF_SQLITE: dict[str, Callable[[], object]] = {
    "an entry is put in place of one": lambda: run(
        "INSERT OR REPLACE INTO accounts_auditentry SELECT number, at, 'eve', origin, "
        "action, "
        "subject, before, after, note, previous, digest FROM accounts_auditentry WHERE "
        "number = 2"
    ),
    "a head is put in place of it": lambda: run(
        "INSERT OR REPLACE INTO accounts_audithead (id, number, digest) VALUES (1, 0, '')"
    ),
}
OF_POSTGRESQL: dict[str, Callable[[], object]] = {
    "entries are truncated": lambda: run("TRUNCATE accounts_auditentry"),
    "the head is truncated": lambda: run("TRUNCATE accounts_audithead"),
}


@pytest.mark.parametrize("wrong", [*WRONGS, *OF_SQLITE, *OF_POSTGRESQL])
def test_what_was_written_stays(wrong: str) -> None:
    others = OF_POSTGRESQL if connection.vendor == "sqlite" else OF_SQLITE
    if wrong in others:
        pytest.skip("this database has no such statement")
    write()
    with pytest.raises(IntegrityError), transaction.atomic():
        (WRONGS | OF_SQLITE | OF_POSTGRESQL)[wrong]()
    assert verify().words == f"All {LINES} entries hold."


def test_entries_are_added_as_before() -> None:
    write()
    write()
    assert verify().words == f"All {2 * LINES} entries hold."


def test_triggers_can_be_put_and_taken_twice() -> None:
    editor = connection.SchemaEditorClass(connection)
    forwards(None, editor)
    backwards(None, editor)
    backwards(None, editor)
    write()
    AuditEntry.objects.all().delete()
    assert not AuditEntry.objects.exists()
