"""Beat, broker or workers that stand still: administrators read so from the heartbeat."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest
from django.test import Client

from apps.accounts.models import ProcessLease, User
from apps.accounts.services.process_leases import ProcessLeases
from apps.operations.models import DoctorCheck
from apps.operations.services import note_heartbeat
from tests.factories import Portal
from tests.web.conftest import DAILY
from tests.web.pages import text_of

HOME, QUALITY = f"/?{DAILY}", f"/admin/data-quality/?{DAILY}"
STOPPED, LATE = "Beat does not run", "Scheduled tasks are not carried out"


def beat_was_heard(ago: timedelta) -> None:
    """Let the last heartbeat be so old, by the clock of the database."""
    at = datetime.now(UTC) - ago
    note_heartbeat(at, now=at)


def test_nothing_is_said_of_a_beat_that_is_heard_or_never_was(
    portal: Portal, admin: Client
) -> None:
    assert not {STOPPED, LATE} & said(admin)
    beat_was_heard(timedelta(minutes=4))
    assert not {STOPPED, LATE} & said(admin)


def said(client: Client) -> set[str]:
    """Return which of the two both pages say."""
    pages = [text_of(client, address) for address in (HOME, QUALITY)]
    found = [{words for words in (STOPPED, LATE) if words in page} for page in pages]
    assert found[0] == found[1]
    return found[0]


def test_a_beat_that_ended_is_the_first_issue_with_cause_effect_action_and_owner(
    portal: Portal, admin: Client
) -> None:
    DoctorCheck.objects.update(at=datetime.now(UTC) - timedelta(hours=2))
    beat_was_heard(timedelta(hours=2))
    assert said(admin) == {STOPPED}
    page = text_of(admin, QUALITY)
    issue = page[page.index('<li class="finding') :].partition("</li>")[0]
    assert "No beat holds its lease" in issue
    assert "Nothing is collected, checked or sent." in issue
    assert "celery -A gpuportal beat" in issue
    assert "Platform admin" in issue
    assert "No issues" not in page


def test_a_beat_that_runs_is_not_said_to_have_ended(portal: Portal, admin: Client) -> None:
    assert ProcessLeases().take("beat")
    beat_was_heard(timedelta(minutes=6))
    assert said(admin) == {LATE}
    ProcessLease.objects.update(lease_until=datetime.now(UTC) - timedelta(minutes=1))
    assert said(admin) == {STOPPED}


def test_a_web_process_whose_clock_is_ahead_does_not_take_beat_for_ended(
    portal: Portal, admin: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert ProcessLeases().take("beat")
    beat_was_heard(timedelta(seconds=30))
    ahead = datetime.now(UTC) + timedelta(minutes=10)
    monkeypatch.setattr("django.utils.timezone.now", lambda: ahead)
    assert said(admin) == set()


def test_how_the_portal_runs_is_for_administrators(
    portal: Portal, signed_in: Callable[[User], Client]
) -> None:
    beat_was_heard(timedelta(hours=2))
    assert STOPPED not in text_of(signed_in(portal.ada), HOME)
    assert STOPPED not in text_of(signed_in(portal.ada), QUALITY)
