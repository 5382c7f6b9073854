"""The audit is checked by itself, and against what held the last time."""

from datetime import UTC, datetime, timedelta

import pytest
from django.db import transaction

from apps.accounts.models import AuditEntry, AuditHead
from apps.accounts.permissions import NotAllowed
from apps.accounts.services.audit import record
from apps.quota_requests import services
from apps.quota_requests.models import AuditCheck
from apps.quota_requests.permissions import portal
from apps.quota_requests.selectors import last_audit_check
from tests.quota_requests.portal import make_portal

pytestmark = pytest.mark.django_db
NOON = datetime(2026, 10, 1, 12, tzinfo=UTC)
LATER = NOON + timedelta(days=1)


def write(count: int) -> None:
    for n in range(count):
        with transaction.atomic():
            record(portal("beat"), "edit", f"quota-request/{n}", at=NOON, after={"to": "8"})


def test_what_a_check_found_whole_is_kept_with_its_time() -> None:
    assert last_audit_check(portal()) is None
    write(3)
    assert services.check_audit(now=NOON)
    write(2)
    found = last_audit_check(portal())
    assert found is not None
    assert (found.holds, found.number, found.held_at) == (True, 3, NOON)
    assert services.check_audit(now=LATER)
    found = last_audit_check(portal())
    assert found is not None
    assert (found.number, found.at) == (5, LATER)
    assert AuditCheck.objects.count() == 1


def test_it_is_checked_at_once_and_then_again_after_a_day() -> None:
    write(1)
    found = [
        services.check_audit_when_due(now=NOON + timedelta(hours=hours)) for hours in (0, 1, 23, 24)
    ]
    assert found == [True, None, None, True]


def test_an_altered_line_is_found_and_what_held_before_is_still_known() -> None:
    write(3)
    services.check_audit(now=NOON)
    AuditEntry.objects.filter(number=2).update(note="never said")
    assert not services.check_audit(now=LATER)
    found = last_audit_check(portal())
    assert found is not None
    assert not found.holds
    assert found.words == "Entry 2 was altered after it was written."
    assert (found.number, found.held_at, found.at) == (3, NOON, LATER)


def test_an_audit_that_was_written_anew_as_a_whole_is_found_by_what_held_before() -> None:
    write(3)
    services.check_audit(now=NOON)
    AuditEntry.objects.all().delete()
    AuditHead.objects.all().delete()
    with transaction.atomic():
        record(portal("beat"), "create", "quota-request/1", at=LATER, after={"to": "9"})
    assert services.verify().holds, "by itself it looks whole"
    assert not services.check_audit(now=LATER)


def test_only_administrators_read_it() -> None:
    people = make_portal(None)
    services.check_audit(now=NOON)
    assert last_audit_check(people.actor("cleo")) is not None
    with pytest.raises(NotAllowed):
        last_audit_check(people.actor("ada"))
