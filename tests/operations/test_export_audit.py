"""`export_audit`: a file for auditors."""

import json
from datetime import timedelta
from io import StringIO
from pathlib import Path

import pytest
from django.core.management import CommandError, call_command
from django.db import transaction

from apps.accounts.services.audit import record
from apps.quota_requests.permissions import portal
from tests.quota_requests.portal import NOW

pytestmark = pytest.mark.django_db


def export(*words: str) -> list[str]:
    out = StringIO()
    call_command("export_audit", *words, stdout=out)
    return out.getvalue().splitlines()


def write(count: int) -> None:
    for n in range(count):
        with transaction.atomic():
            record(portal("test"), "edit", f"x/{n}", at=NOW + timedelta(days=n))


def test_all_lines_and_the_head_are_in_the_file(tmp_path: Path) -> None:
    write(3)
    file = tmp_path / "audit.jsonl"
    told, head = export(str(file))
    assert told.startswith("3 entries are in ")
    *lines, last = (json.loads(line) for line in file.read_text().splitlines())
    assert [line["number"] for line in lines] == [1, 2, 3]
    assert head == f"{last['head']['number']}:{last['head']['digest']}"
    call_command("verify_audit", expect=head, stdout=StringIO())


def test_a_part_is_from_its_start_to_before_its_end(tmp_path: Path) -> None:
    write(3)
    days = [(NOW + timedelta(days=n)).date().isoformat() for n in (1, 2)]
    told, _ = export(str(tmp_path / "x"), "--start", days[0], "--end", days[1])
    assert told.startswith("1 entries")


def test_an_empty_audit_is_an_empty_file(tmp_path: Path) -> None:
    file = tmp_path / "x"
    assert export(str(file))[0].startswith("0 entries")
    assert file.read_text() == ""


@pytest.mark.parametrize(
    ("words", "says"),
    [(["{}/x", "--start", "soon"], "is no time"), (["{}/there/is/none"], "cannot write")],
)
def test_what_cannot_be_is_said(words: list[str], says: str, tmp_path: Path) -> None:
    with pytest.raises(CommandError, match=says):
        export(*(word.format(tmp_path) for word in words))
