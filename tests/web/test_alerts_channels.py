"""Channels on their pages: making, changing, trying and muting them."""

import json
import re
from collections.abc import Callable, Iterator
from datetime import time, timedelta
from typing import Any

import pytest
from django.core import mail
from django.core.cache import cache
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from pytest_django import Settings

from apps.accounts.models import AuditEntry, User
from apps.alerts.domain.alerts import PERSONAL_KINDS, AlertKind
from apps.alerts.models import Channel, Mute
from apps.alerts.services import MOST_CHANNELS, add_channel
from tests.factories import Portal, make_portal
from tests.shared_rows import copy_of, shared
from tests.web.alerts import (
    FORM,
    SECRET,
    SLACK,
    Board,
    moment,
    say_many,
    wanted,
)
from tests.web.pages import text_of

pytestmark = pytest.mark.django_db
SignIn = Callable[[User], Client]


@pytest.fixture(autouse=True)
def _clean(settings: Settings) -> Iterator[None]:
    settings.EMAIL_HOST = "mail.example.org"  # of which the test's mailbox takes the place
    cache.clear()
    yield
    cache.clear()


_portal = shared(make_portal)
portal = copy_of("_portal")


def post(client: Client, address: str, form: Any = None) -> tuple[int, str]:
    response = client.post(address, form or {})
    return response.status_code, response.content.decode()


def audited() -> list[tuple[str, str, str]]:
    """Return who did what to what, the oldest first."""
    rows = AuditEntry.objects.order_by("number")
    return list(rows.values_list("actor", "action", "subject"))


# ---------------------------------------------------------------- making and changing


def test_a_new_channel_begins_with_all_kinds(ada: Client) -> None:
    page = text_of(ada, "/alerts/channels/")
    boxes = re.findall(r'<input[^>]*name="kinds"[^>]*>', page)
    # Alerts about one person are there where persons are kept: test_my_workloads.
    assert len(boxes) == len(AlertKind) - len(PERSONAL_KINDS)
    assert all("checked" in box for box in boxes)


def test_a_channel_is_made_as_the_form_says(portal: Portal, ada: Client) -> None:
    form = FORM | {"of": f"team-{portal.vision.pk}", "quiet_from": "20:00", "quiet_to": "07:00"}
    response: Any = ada.post("/alerts/channels/create", form)
    made = Channel.objects.get()
    assert (response.status_code, response["Location"]) == (302, f"/alerts/channels/{made.pk}/")
    assert (made.team, made.owner, made.kinds) == (portal.vision, None, ["budget", "idle"])
    assert (made.cadence, made.at, made.quiet_from) == ("daily", time(9, 15), time(20))
    page = text_of(ada, "/alerts/channels/")
    for words in (
        "my mail",
        "team vision",
        "E-mail: me@example.org",
        "Budgets, Idle GPUs",
        "daily, in one message, at 09:15; quiet from 20:00 to 07:00",
        "never",
    ):
        assert words in page


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"name": ""}, "This field is required."),
        ({"name": "  "}, "This field is required."),
        ({"address": ""}, "Write where the alerts go."),
        ({"address": "nobody"}, "Write one e-mail address"),
        ({"address": "ada%evil.test@example.org"}, "Write one e-mail address"),
        ({"address": "ada\u202e@example.org"}, "Write one e-mail address"),
        ({"kinds": []}, "Choose at least one kind of alert."),
        ({"kinds": ["rumour"]}, "rumour is not one of the available choices."),
        ({"kind": "pigeon"}, "pigeon is not one of the available choices."),
        ({"quiet_from": "20:00"}, "Quiet hours need a beginning and an end."),
        ({"at": "teatime"}, "Enter a valid time."),
        ({"of": "platform"}, "platform is not one of the available choices."),
        ({"of": "team-999999"}, "team-999999 is not one of the available choices."),
        (
            {"kind": "webhook", "address": "https://chat.example.org/h"},
            "GPUPORTAL_ALERTS_HOSTS",
        ),
    ],
)
def test_what_cannot_be_made_says_why_and_keeps_what_was_typed(
    changed: dict[str, Any], says: str, portal: Portal, ada: Client
) -> None:
    form = FORM | {"name": "typed name", "at": "10:45"} | changed
    status, page = post(ada, "/alerts/channels/create", form)
    assert status == 400
    assert says in page
    for field in ("name", "at", "address"):
        value = form[field].strip()
        assert not value or "/" in value or f'value="{value}"' in page
    assert not Channel.objects.exists()
    assert audited() == []


def test_a_webhook_that_was_typed_is_not_repeated(ada: Client) -> None:
    form = FORM | {"kind": "slack", "address": SLACK, "kinds": []}
    status, page = post(ada, "/alerts/channels/create", form)
    assert status == 400
    assert SECRET not in page
    assert "Enter the address again" in page
    assert 'value="my mail"' in page


def test_there_is_room_for_so_many_channels(portal: Portal, ada: Client) -> None:
    for n in range(MOST_CHANNELS):
        add_channel(portal.ada, wanted(f"mail {n}"), now=moment(), own=True)
    status, page = post(ada, "/alerts/channels/create", FORM)
    assert status == 400
    assert f"There are {MOST_CHANNELS} channels already" in page
    of_team = FORM | {"of": f"team-{portal.vision.pk}"}
    assert post(ada, "/alerts/channels/create", of_team)[0] == 302


def test_a_change_keeps_the_address_unless_another_is_written(board: Board, ada: Client) -> None:
    address, before = f"/alerts/channels/{board.team.pk}/change", board.team.sealed
    form = {**FORM, "kind": "slack", "address": "", "name": "renamed"}
    assert post(ada, address, form)[0] == 302
    kept = Channel.objects.get(pk=board.team.pk)
    assert (kept.name, kept.sealed, kept.shown) == ("renamed", before, "hooks.slack.com")
    status, page = post(ada, address, {**form, "kind": "email", "name": "typed"})
    assert status == 400
    assert "Another kind of channel needs another address" in page
    assert 'value="typed"' in page
    assert Channel.objects.get(pk=board.team.pk).name == "renamed"
    assert post(ada, address, {**form, "kind": "email", "address": "a@example.org"})[0] == 302
    assert Channel.objects.get(pk=board.team.pk).shown == "a@example.org"


def test_the_form_begins_with_what_the_channel_has(board: Board, ada: Client) -> None:
    Channel.objects.filter(pk=board.team.pk).update(
        cadence="weekly",
        weekday=2,
        at=time(7, 30),
        kinds=["idle"],
        quiet_from=time(1),
        quiet_to=time(2),
    )
    page = text_of(ada, f"/alerts/channels/{board.team.pk}/")
    assert '<option value="slack" selected>' in page
    assert '<option value="weekly" selected>' in page
    assert '<option value="2" selected>Wednesday' in page
    for value in ("07:30", "01:00", "02:00"):
        assert f'value="{value}"' in page
    assert re.findall(r'name="kinds" value="([^"]+)"[^>]* checked', page) == ["idle"]
    assert "Empty keeps hooks.slack.com" in page


def test_a_channel_is_switched_off_and_on_and_kept_so_by_a_change(
    board: Board, ada: Client
) -> None:
    here = f"/alerts/channels/{board.team.pk}/"
    assert post(ada, f"{here}switch", {"on": "no"})[0] == 302
    assert "This channel is disabled" in text_of(ada, here)
    assert "disabled" in text_of(ada, "/alerts/channels/")
    post(ada, f"{here}change", {**FORM, "kind": "slack", "address": ""})
    assert not Channel.objects.get(pk=board.team.pk).active
    post(ada, f"{here}switch", {"on": "yes"})
    assert "This channel is disabled" not in text_of(ada, here)


def test_the_audit_tells_who_made_changed_and_removed_a_channel_and_no_address(
    ada: Client,
) -> None:
    post(ada, "/alerts/channels/create", FORM | {"kind": "slack", "address": SLACK})
    pk = Channel.objects.get().pk
    here = f"/alerts/channels/{pk}/"
    post(ada, f"{here}change", FORM | {"kind": "slack", "address": SLACK + "er"})
    post(ada, f"{here}change", FORM | {"kind": "slack", "address": ""})  # changes nothing
    post(ada, f"{here}switch", {"on": "no"})
    until = moment() + timedelta(days=1)
    post(ada, f"{here}mute", {"until": f"{until:%Y-%m-%dT%H:%M}", "why": "a holiday"})
    post(ada, f"{here}remove")
    subject = f"channel/{pk}"
    assert audited() == [
        ("ada", action, subject)
        for action in (
            *("make_channel", "change_channel", "change_channel"),
            *("mute_channel", "remove_channel"),
        )
    ]
    rows = AuditEntry.objects.order_by("number")
    assert {row.origin for row in rows} == {"127.0.0.1"}
    before = [json.loads(row.before) if row.before else {} for row in rows]
    after = [json.loads(row.after) if row.after else {} for row in rows]
    assert after[0]["of"] == "ada"
    assert after[1]["address"] == "written anew"
    assert (before[2]["active"], after[2]["active"]) == (True, False)
    assert after[3]["why"] == "a holiday"
    text = json.dumps([before, after, [row.note for row in rows]])
    assert SECRET not in text
    assert "hooks.slack.com" not in text


def test_an_address_of_e_mail_is_not_in_the_audit_either(ada: Client) -> None:
    post(ada, "/alerts/channels/create", FORM)
    entry = AuditEntry.objects.get()
    assert "me@example.org" not in json.dumps([entry.before, entry.after, entry.note])


# ---------------------------------------------------------------- trying


def test_a_test_message_is_sent_at_once(board: Board, portal: Portal, signed_in: SignIn) -> None:
    status, page = post(signed_in(portal.ben), f"/alerts/channels/{board.bens.pk}/test")
    assert status == 200
    assert "Test message sent to ben@example.org" in page
    assert [(each.to, each.subject) for each in mail.outbox] == [
        (["ben@example.org"], "gpuportal: this channel works")
    ]


def test_a_test_message_that_fails_says_why(
    board: Board, portal: Portal, signed_in: SignIn, settings: Settings
) -> None:
    settings.EMAIL_HOST = ""
    _, page = post(signed_in(portal.ben), f"/alerts/channels/{board.bens.pk}/test")
    assert "The test message failed." in page
    assert "GPUPORTAL_MAIL_HOST" in page


def test_a_channel_whose_key_is_lost_says_what_to_do(board: Board, ada: Client) -> None:
    Channel.objects.filter(pk=board.team.pk).update(sealed="broken")
    _, page = post(ada, f"/alerts/channels/{board.team.pk}/test")
    assert "write the address anew" in page


def test_test_messages_cannot_flood_anybody(
    board: Board, portal: Portal, signed_in: SignIn
) -> None:
    ben = signed_in(portal.ben)
    for _ in range(3):
        _, page = post(ben, f"/alerts/channels/{board.bens.pk}/test")
    assert "try again in ten seconds" in page
    assert len(mail.outbox) == 1
    _, page = post(signed_in(portal.cleo), f"/alerts/channels/{board.bens.pk}/test")
    assert "Test message sent to" in page


# ---------------------------------------------------------------- silences


def test_a_channel_is_muted_until_a_time_on_the_reports_clock(
    board: Board, portal: Portal, ada: Client
) -> None:
    until = (moment() + timedelta(days=1)).astimezone(portal.zone).replace(second=0)
    form = {"kind": "idle", "subject": " workload:a ", "until": f"{until:%Y-%m-%dT%H:%M}"}
    assert post(ada, f"/alerts/channels/{board.team.pk}/mute", form | {"why": "a test"})[0] == 302
    made = Mute.objects.get(why="a test")
    assert (made.end, made.kind, made.subject, made.by) == (until, "idle", "workload:a", "ada")
    for address in (f"/alerts/channels/{board.team.pk}/", "/alerts/channels/"):
        page = text_of(ada, address)
        assert "Idle GPUs about workload:a" in page
        assert "a test" in page
    assert post(ada, f"/alerts/mutes/{made.pk}/end")[0] == 302
    assert "about workload:a" not in text_of(ada, "/alerts/channels/")


@pytest.mark.parametrize(
    ("form", "says"),
    [
        ({"until": ""}, "This field is required."),
        ({"until": "tomorrow"}, "Enter a valid date/time."),
        ({"until": "2020-01-01T10:00"}, "The end of the silence is past"),
        ({"until": "2999-01-01T10:00"}, "Mute for 90 days at most"),
        ({"until": "2999-01-01T10:00", "kind": "rumour"}, "rumour is not one of the"),
    ],
)
def test_a_silence_that_is_not_taken_keeps_what_was_typed(
    form: dict[str, str], says: str, board: Board, ada: Client
) -> None:
    status, page = post(
        ada, f"/alerts/channels/{board.team.pk}/mute", {"subject": "a thing"} | form
    )
    assert status == 400
    assert says in page
    assert 'value="a thing"' in page
    assert not form["until"] or f'value="{form["until"]}"' in page
    assert Mute.objects.count() == 1


def test_the_log_leads_to_muting_what_it_tells(board: Board, ada: Client) -> None:
    page = text_of(ada, "/alerts/deliveries/")
    link = re.search(r'href="(/alerts/channels/\d+/\?kind=budget[^"]+)"', page)
    assert link is not None
    form = text_of(ada, link.group(1).replace("&amp;", "&"))
    assert '<option value="budget" selected>' in form
    assert 'value="budget:vision/gpu_hours"' in form


# ---------------------------------------------------------------- queries


@pytest.mark.parametrize(
    "address", ["/alerts/channels/", "/alerts/deliveries/", "/alerts/channels/{}/"]
)
def test_more_channels_silences_and_deliveries_need_no_more_queries(
    address: str, board: Board, portal: Portal, ada: Client
) -> None:
    here = address.format(board.team.pk)
    text_of(ada, here)
    with CaptureQueriesContext(connection) as few:
        text_of(ada, here)
    for n in range(6):
        made = add_channel(
            portal.ada,
            wanted(f"mail {n}"),
            now=moment(),
            own=n % 2 == 0,
            team_id=None if n % 2 == 0 else portal.vision.pk,
        )
        Mute.objects.create(
            channel=made, start=moment(), end=moment() + timedelta(days=1), by="ada"
        )
    say_many(portal, 8)
    with CaptureQueriesContext(connection) as many:
        text_of(ada, here)
    assert len(many) == len(few) <= 16
