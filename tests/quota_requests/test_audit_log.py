"""The audit in the database: every line that is altered, missing or too many shows."""

import re
import subprocess
import sys
from datetime import timedelta
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext
from hypothesis import given
from hypothesis import strategies as st

from apps.accounts.domain.audit import Head
from apps.accounts.models import AuditEntry, AuditHead
from apps.accounts.services import audit_head, written_head
from apps.accounts.services.audit import entries, record
from apps.quota_requests.permissions import portal
from apps.quota_requests.selectors import AuditFilters, audit_rows, audit_since, audit_texts
from apps.quota_requests.services import verify
from tests.quota_requests.portal import NOW, make_portal

pytestmark = pytest.mark.django_db
LINES = 7
DOCS = Path(__file__).resolve().parents[2] / "docs"
COLUMNS = [f.attname for f in AuditEntry._meta.concrete_fields]


def write(count: int = LINES) -> Head:
    for n in range(count):
        with transaction.atomic():
            record(
                *(portal("test"), "edit", f"quota-request/{n % 2}"),
                at=NOW + timedelta(seconds=n),
                before={"to": str(n)},
                after={"to": str(n + 1), "tiers": ["a", "b"]},
                note="für „alle“ 🙂",
            )
    head = audit_head()
    assert head is not None
    return head


def test_a_whole_audit_holds_and_tells_its_head() -> None:
    head = write()
    assert head.number == LINES
    assert verify().words == f"All {LINES} entries hold."
    assert verify(head).holds
    out = StringIO()
    call_command("verify_audit", stdout=out)
    assert out.getvalue().splitlines()[-1] == f"{head.number}:{head.digest}"
    call_command("verify_audit", expect=out.getvalue().splitlines()[-1], stdout=out)


def test_the_head_alone_can_be_asked_for_to_be_kept_elsewhere() -> None:
    for count in (0, LINES):
        head = written_head(write(count) if count else None)
        out = StringIO()
        call_command("verify_audit", "--head", stdout=out)
        assert out.getvalue() == f"{head}\n"
        call_command("verify_audit", expect=head, stdout=out)
    assert head.startswith(f"{LINES}:")


def test_of_an_empty_audit_is_said_what_cannot_be_known() -> None:
    verdict = verify()
    assert verdict.holds
    assert "against a head that was noted elsewhere" in verdict.words


def test_an_audit_that_was_emptied_with_its_head_shows_against_a_noted_one() -> None:
    head = write()
    AuditEntry.objects.all().delete()
    AuditHead.objects.all().delete()
    with pytest.raises(CommandError, match=f"There are 0 entries; {LINES} were there once"):
        call_command("verify_audit", expect=written_head(head))


def test_an_empty_audit_beside_quota_requests_was_emptied() -> None:
    make_portal(None).draft()
    assert verify().holds
    AuditEntry.objects.all().delete()
    AuditHead.objects.all().delete()
    with pytest.raises(CommandError, match="no entry, but 1 quota requests"):
        call_command("verify_audit")


def test_an_entry_outside_of_a_transaction_is_refused(transactional_db: None) -> None:
    with pytest.raises(RuntimeError, match="belongs to the transaction"):
        record(portal("test"), "edit", "x", at=NOW)
    assert not AuditEntry.objects.exists()


def test_an_entry_goes_with_what_it_is_about() -> None:
    write(2)
    with transaction.atomic():
        record(portal("test"), "edit", "x", at=NOW)
        transaction.set_rollback(True)
    assert verify().words == "All 2 entries hold."


def altered(column: str, value: Any) -> Any:
    if isinstance(value, int):
        return value + 100
    if column in {"before", "after"}:
        return value.replace('"to"', ' "to"') if value else "{}"
    return value[:-1] + ("0" if value[-1:] != "0" else "1")


@pytest.mark.parametrize("column", COLUMNS)
@given(number=st.integers(1, LINES))
def test_every_altered_line_is_named(column: str, number: int) -> None:
    with transaction.atomic():
        write()
        row = AuditEntry.objects.get(pk=number)
        value = altered(column, getattr(row, column))
        AuditEntry.objects.filter(pk=number).update(**{column: value})
        verdict = verify()
        assert not verdict.holds
        assert verdict.number in {number, number + 1}
        transaction.set_rollback(True)


@given(number=st.integers(1, LINES))
def test_every_missing_line_is_named_also_the_last(number: int) -> None:
    with transaction.atomic():
        write()
        AuditEntry.objects.filter(pk=number).delete()
        verdict = verify()
        assert (verdict.holds, verdict.number) == (False, number)
        with pytest.raises(CommandError, match=f"{number} (is|are) missing|after {number - 1}"):
            call_command("verify_audit", stdout=StringIO())
        transaction.set_rollback(True)


@given(first=st.integers(1, LINES - 1))
def test_a_cut_off_end_shows_even_where_the_head_was_set_back(first: int) -> None:
    with transaction.atomic():
        head = write()
        AuditEntry.objects.filter(pk__gt=first).delete()
        assert verify().number == first + 1
        last = AuditEntry.objects.get(pk=first)
        AuditHead.objects.update(number=first, digest=last.digest)
        assert verify().holds
        verdict = verify(head)
        assert (verdict.holds, verdict.number) == (False, LINES)
        assert f"{LINES} were there once" in verdict.words
        transaction.set_rollback(True)


def test_an_audit_that_was_written_anew_shows_against_a_noted_head() -> None:
    head = write()
    AuditEntry.objects.all().delete()
    AuditHead.objects.all().delete()
    for n in range(LINES + 1):
        with transaction.atomic():
            record(portal("other"), "edit", f"x/{n}", at=NOW)
    assert verify().holds
    assert "all was written anew" in verify(head).words


@pytest.mark.parametrize("kept", [0, 3])
def test_lines_beyond_the_head_show(kept: int) -> None:
    write()
    digest = AuditEntry.objects.get(pk=kept).digest if kept else ""
    AuditHead.objects.update(number=kept, digest=digest)
    verdict = verify()
    assert (verdict.holds, verdict.number) == (False, kept + 1)


def test_what_cannot_be_a_head_is_refused() -> None:
    with pytest.raises(CommandError, match="is not NUMBER:DIGEST"):
        call_command("verify_audit", expect="12")


def test_the_export_is_what_was_hashed() -> None:
    head = write()
    lines = list(audit_texts(portal("test")))
    assert len(lines) == LINES + 1
    assert f'"digest":"{head.digest}"' in lines[-1]
    assert [entry.number for entry in entries()] == list(range(1, LINES + 1))
    part = audit_texts(
        portal("test"), start=NOW + timedelta(seconds=2), end=NOW + timedelta(days=1)
    )
    assert len(list(part)) == LINES - 2 + 1


def test_an_export_of_some_days_reads_no_others() -> None:
    """Of a million lines those of a day must not take as long as all of them."""
    write()
    beyond = NOW + timedelta(days=300)
    with CaptureQueriesContext(connection) as queries:
        lines = list(audit_texts(portal("test"), start=beyond, end=beyond + timedelta(days=1)))
    assert len(lines) == 1  # the head
    assert len(queries) == 2
    assert all('"at" >= ' in query["sql"] for query in queries.captured_queries[:1])


def checked_outside(folder: Path, lines: list[str]) -> subprocess.CompletedProcess[str]:
    """Run the program of the documentation over an export, without anything of the portal."""
    page = (DOCS / "how-to" / "platform-admin.md").read_text(encoding="utf-8")
    (program,) = (
        block for block in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if "sha256" in block
    )
    (folder / "check.py").write_text(program, encoding="utf-8")
    (folder / "audit.jsonl").write_text("".join(lines), encoding="ascii")
    return subprocess.run(
        [sys.executable, "-I", "check.py", "audit.jsonl"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )


def test_an_export_can_be_checked_outside_of_the_portal(tmp_path: Path) -> None:
    head = write()
    lines = list(audit_texts(portal("test")))
    whole = checked_outside(tmp_path, lines)
    assert (whole.returncode, whole.stderr) == (0, "")
    assert f"{head.number}:{head.digest}" in whole.stdout
    altered = [line.replace("quota-request/1", "quota-request/9") for line in lines]
    for wrong in (lines[1:], lines[:3] + lines[4:], lines[:-2] + lines[-1:], altered):
        assert checked_outside(tmp_path, wrong).returncode == 1


def test_pages_of_the_audit_go_back_in_time() -> None:
    write()
    first = audit_rows(portal("test"), page_size=4)
    rest = audit_rows(portal("test"), page_size=4, cursor=first.next_cursor)
    assert [row.number for row in (*first.rows, *rest.rows)] == list(range(LINES, 0, -1))
    assert rest.next_cursor is None
    only = audit_rows(portal("test"), AuditFilters(subject="quota-request/1"))
    assert {row.subject for row in only.rows} == {"quota-request/1"}
    assert [row.number for row in audit_since(5)] == [6, 7]
