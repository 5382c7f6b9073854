"""Channels: who makes them, what addresses are taken, what stays secret; mutes and answers."""

from datetime import UTC, datetime, time, timedelta
from io import StringIO
from typing import Any

import pytest
from django.core import mail
from django.core.management import call_command
from django.db import connection
from django.test.utils import CaptureQueriesContext
from pytest_django import Settings

from apps.accounts.domain.identity import Role
from apps.accounts.domain.structs import replace
from apps.accounts.models import AuditEntry, Membership, Team, User
from apps.accounts.permissions import EVERYTHING, NotAllowed, visibility_of
from apps.alerts.adapters.sealed import Seal
from apps.alerts.domain.alerts import AlertKind, AnswerRefused
from apps.alerts.domain.channels import AddressRefused, ChannelKind, checked, shown
from apps.alerts.models import Alert, Channel, Delivery, IdleAnswer
from apps.alerts.permissions import Answerer
from apps.alerts.ports import NotDelivered
from apps.alerts.selectors import (
    alert_page,
    answers_to,
    channel_of,
    channel_rows,
    delivery_page,
    mute_rows,
)
from apps.alerts.services import (
    ChannelInput,
    ChannelRefused,
    MuteInput,
    add_channel,
    answer_idle,
    change_channel,
    deliver,
    mute,
    notify,
    prune,
    remove_channel,
    try_channel,
    unmute,
)
from tests.alerts.board import NOW, ZONE, Box, channel, person, said

pytestmark = pytest.mark.django_db
SLACK = "https://hooks.slack.com/services/T0/B0/verysecret"
MAIL = ChannelInput("mail", ChannelKind.EMAIL, "gpu@example.org", [AlertKind.IDLE])


@pytest.fixture
def vision() -> Team:
    return Team.objects.create(name="vision")


# ---------------------------------------------------------------- addresses


@pytest.mark.parametrize(
    ("domains", "address", "taken"),
    [
        ([], "me@elsewhere.com", True),
        (["example.org"], "me@example.org", True),
        (["example.org"], "me@Example.ORG", True),
        (["example.org"], "me@elsewhere.com", False),
        (["example.org"], "me@notexample.org", False),
        (["example.org"], "me@ml.example.org", False),
        (["*.example.org"], "me@ml.example.org", True),
        (["*.example.org", "other.net"], "me@example.org", True),
    ],
)
def test_mail_goes_to_allowed_domains_whoever_makes_the_channel(
    settings: Settings, domains: list[str], address: str, taken: bool
) -> None:
    settings.ALERTS_EMAIL_DOMAINS = domains
    wanted = replace(MAIL, address=address)
    for own in (person("ada"), person("root", Role.ADMIN)):
        if taken:
            assert add_channel(own, wanted, now=NOW, own=True).pk
            continue
        with pytest.raises(ChannelRefused, match=r"not an allowed domain.*example\.org"):
            add_channel(own, wanted, now=NOW, own=True)


def test_a_channel_made_before_is_held_to_the_domains_too(settings: Settings) -> None:
    settings.ALERTS_EMAIL_DOMAINS = []
    made = add_channel(person("ada"), MAIL, now=NOW, own=True)
    settings.ALERTS_EMAIL_DOMAINS, settings.EMAIL_HOST = ["other.net"], "localhost"
    with pytest.raises(NotDelivered, match=r"example\.org is not an allowed domain"):
        try_channel(made)
    assert mail.outbox == []


@pytest.mark.parametrize(
    ("kind", "written"),
    [
        (ChannelKind.EMAIL, "gpu-team"),
        (ChannelKind.EMAIL, "a@example.org, b@example.org"),
        (ChannelKind.EMAIL, "a@example.org\nBcc: b@example.org"),
        (ChannelKind.SLACK, "https://example.org/services/a/b/c"),
        (ChannelKind.SLACK, "http://hooks.slack.com/services/a/b/c"),
        (ChannelKind.TEAMS, "https://example.org/workflows/a"),
        (ChannelKind.WEBHOOK, "example.org/hook"),
        (ChannelKind.WEBHOOK, "http://example.org/hook"),
        (ChannelKind.WEBHOOK, "file:///etc/passwd"),
        (ChannelKind.WEBHOOK, "https://user:word@example.org/"),
        (ChannelKind.WEBHOOK, "https://[::1"),
        (ChannelKind.WEBHOOK, "https://example.org:99999/"),
    ],
)
def test_an_address_that_cannot_work_is_refused(kind: ChannelKind, written: str) -> None:
    with pytest.raises(AddressRefused):
        checked(kind, written)


@pytest.mark.parametrize(
    ("kind", "written", "read"),
    [
        (ChannelKind.EMAIL, "GPU@Example.ORG", "GPU@example.org"),
        (ChannelKind.SLACK, SLACK, "hooks.slack.com"),
        (ChannelKind.WEBHOOK, "https://chat.example.org/h/secret", "chat.example.org"),
        (
            ChannelKind.TEAMS,
            "https://prod-01.westus.logic.azure.com:443/workflows/a/triggers/manual/paths/invoke"
            "?sig=secret",
            "prod-01.westus.logic.azure.com",
        ),
    ],
)
def test_of_an_address_no_secret_is_shown(kind: ChannelKind, written: str, read: str) -> None:
    assert shown(kind, checked(kind, written)) == read


def test_the_database_does_not_tell_a_webhook(vision: Team) -> None:
    wanted = ChannelInput("chat", ChannelKind.SLACK, SLACK, [AlertKind.IDLE])
    made = add_channel(person("lea", leads=[vision]), wanted, now=NOW, team_id=vision.pk)
    row = Channel.objects.filter(pk=made.pk).values().get()
    assert "verysecret" not in str(row)
    assert row["shown"] == "hooks.slack.com"


# ---------------------------------------------------------------- who


def test_leads_make_channels_of_their_team_and_nobody_of_another(vision: Team) -> None:
    other = Team.objects.create(name="speech")
    lea = person("lea", leads=[vision])
    Membership.objects.create(team=other, username="lea")
    assert add_channel(lea, MAIL, now=NOW, team_id=vision.pk).team == vision
    assert add_channel(lea, MAIL, now=NOW, own=True).owner == lea
    for team_id in (other.pk, None):
        with pytest.raises(NotAllowed):
            add_channel(lea, MAIL, now=NOW, team_id=team_id)
    assert add_channel(person("ada", "admin"), MAIL, now=NOW).team is None


def test_a_channel_of_others_is_not_there(vision: Team) -> None:
    lea, eve = person("lea", leads=[vision]), person("eve")
    own, teams = channel(lea, own=True), channel(lea, vision)
    notify([said(vision)], now=NOW, zone=ZONE)
    assert [row.id for row in channel_rows(lea)] == [own.pk, teams.pk]
    assert len(delivery_page(lea)[0]) == 2
    assert channel_rows(eve) == []
    assert delivery_page(eve) == ([], None)
    assert channel_of(eve, teams.pk) is None
    with pytest.raises(NotAllowed):
        remove_channel(eve, teams, now=NOW)
    with pytest.raises(NotAllowed):
        change_channel(eve, teams, MAIL, now=NOW)
    with pytest.raises(NotAllowed):
        mute(eve, teams, MuteInput(until=NOW + timedelta(hours=1), why=""), now=NOW)


def test_webhooks_anywhere_are_for_administrators(vision: Team, settings: Settings) -> None:
    lea = person("lea", leads=[vision])
    hook = ChannelInput("hook", ChannelKind.WEBHOOK, "https://chat.example.org/h", [AlertKind.IDLE])
    with pytest.raises(NotAllowed, match="GPUPORTAL_ALERTS_HOSTS"):
        add_channel(lea, hook, now=NOW, team_id=vision.pk)
    assert add_channel(person("ada", "admin"), hook, now=NOW, team_id=vision.pk)
    settings.ALERTS_HOSTS = ["chat.example.org"]
    assert add_channel(lea, hook, now=NOW, team_id=vision.pk)


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"name": " "}, "a name"),
        ({"kinds": []}, "at least one kind"),
        ({"address": ""}, "where the alerts go"),
        ({"address": "nobody"}, "one e-mail address"),
        ({"quiet_from": time(20)}, "beginning and an end"),
        ({"quiet_from": time(20), "quiet_to": time(20)}, "another time"),
        ({"weekday": 7}, "day of the week"),
    ],
)
def test_a_channel_that_cannot_work_is_refused(
    vision: Team, changed: dict[str, Any], says: str
) -> None:
    with pytest.raises(ChannelRefused, match=says):
        add_channel(
            person("lea", leads=[vision]), replace(MAIL, **changed), now=NOW, team_id=vision.pk
        )
    assert not Channel.objects.exists()


def test_a_change_without_an_address_keeps_the_known_one(vision: Team) -> None:
    lea = person("lea", leads=[vision])
    made = add_channel(lea, MAIL, now=NOW, team_id=vision.pk)
    before = made.sealed
    other = replace(MAIL, name="other", address="")
    assert change_channel(lea, made, other, now=NOW).sealed == before
    with pytest.raises(ChannelRefused, match="another address"):
        change_channel(lea, made, replace(other, kind=ChannelKind.SLACK), now=NOW)


# ---------------------------------------------------------------- mutes, answers, pages


def test_a_silence_has_an_end_and_can_be_ended(vision: Team) -> None:
    lea = person("lea", leads=[vision])
    own = channel(lea, vision)
    for until in (NOW, NOW + timedelta(days=91)):
        with pytest.raises(ChannelRefused):
            mute(lea, own, MuteInput(until=until, why=""), now=NOW)
    muted = mute(lea, own, MuteInput(until=NOW + timedelta(days=1), why="known"), now=NOW)
    assert [row.why for row in mute_rows(lea, NOW)] == ["known"]
    unmute(lea, muted, now=NOW + timedelta(hours=1))
    assert mute_rows(lea, NOW + timedelta(hours=1)) == []


def test_an_idle_alert_is_answered_by_people_of_its_team(vision: Team) -> None:
    lea, eve = person("lea", leads=[vision]), person("eve")
    notify([said(vision, "workload:a", kind=AlertKind.IDLE)], now=NOW, zone=ZONE)
    (alert,) = Alert.objects.all()
    with pytest.raises(NotAllowed):
        answer_idle(Answerer(eve), alert, until="friday", reason="I like it", now=NOW, zone=ZONE)
    with pytest.raises(AnswerRefused, match="why"):
        answer_idle(Answerer(lea), alert, until="friday", reason="", now=NOW, zone=ZONE)
    with pytest.raises(AnswerRefused, match="14 days"):
        answer_idle(Answerer(lea), alert, until="2026-12-24", reason="later", now=NOW, zone=ZONE)
    answer_idle(Answerer(lea), alert, until="friday", reason="the demo is then", now=NOW, zone=ZONE)
    assert answers_to(["workload:a"])["workload:a"].until == datetime(2026, 10, 10, tzinfo=UTC)
    (row,), _ = alert_page(visibility=visibility_of(lea))
    assert row.answer is not None
    assert (row.answer.person, row.answer.reason) == ("lea", "the demo is then")


def test_the_list_goes_on_page_by_page_in_two_queries(vision: Team) -> None:
    other = Team.objects.create(name="speech")
    lea = person("lea", leads=[vision])
    many = [said(other, "theirs"), said(None, "platform")]
    many += [said(vision, f"s{n}", kind=AlertKind.IDLE) for n in range(7)]
    notify(many, now=NOW, zone=ZONE)
    seen = visibility_of(lea)
    found, before = [], None
    while True:
        with CaptureQueriesContext(
            connection,
        ) as asked:
            rows, before = alert_page(visibility=seen, before=before, page_size=3)
        assert len(asked) <= 2
        found += rows
        if before is None:
            break
    assert [row.subject for row in found] == [f"s{n}" for n in reversed(range(7))]
    assert len(alert_page(visibility=EVERYTHING)[0]) == 9


def test_lists_of_channels_and_deliveries_need_two_queries(vision: Team) -> None:
    lea = person("lea", leads=[vision])
    for n in range(4):
        channel(lea, vision, name=f"m{n}")
    notify([said(vision, f"s{n}") for n in range(5)], now=NOW, zone=ZONE)
    for ask in (channel_rows, delivery_page):
        with CaptureQueriesContext(connection) as asked:
            ask(lea)
        assert len(asked) <= 2


def test_what_is_long_past_is_forgotten_but_for_pending_work(vision: Team) -> None:
    lea = person("lea", leads=[vision])
    channel(lea, vision)
    notify([said(vision, "old"), said(vision, "waits")], now=NOW, zone=ZONE)
    Delivery.objects.filter(alert__subject="old").update(state="given up")
    prune(now=NOW + timedelta(days=181))
    assert list(Alert.objects.values_list("subject", flat=True)) == ["waits"]


# ---------------------------------------------------------------- keys


def test_addresses_are_sealed_under_the_new_key_before_the_old_one_goes(
    vision: Team, settings: Settings
) -> None:
    channel(person("lea", leads=[vision]), vision)
    lost = channel(User.objects.get(username="lea"), vision, name="lost")
    Channel.objects.filter(pk=lost.pk).update(sealed=Seal(["nobody's key"]).sealed("a@b.org"))
    old, settings.SECRET_KEY = settings.SECRET_KEY, "the key of tomorrow"
    notify([said(vision)], now=NOW, zone=ZONE)
    settings.SECRET_KEY_FALLBACKS = [old]
    for count in (1, 0):
        out = StringIO()
        call_command("renew_seals", stdout=out)
        assert out.getvalue() == f"{count} addresses sealed under the present key.\n"
    settings.SECRET_KEY_FALLBACKS = []
    box = Box()
    assert deliver(now=NOW, post=box) == 1
    assert [address for address, _ in box.sent] == ["mail@example.org"]
    assert "write the address anew" in Delivery.objects.get(channel=lost).error


def test_an_answer_that_still_holds_is_not_forgotten(vision: Team) -> None:
    for until in (NOW - timedelta(days=1), NOW + timedelta(days=1)):
        IdleAnswer.objects.create(
            subject="workload:a",
            team=vision,
            choice="keep",
            person="lea",
            at=NOW - timedelta(days=200),
            until=until,
        )
    assert prune(now=NOW) == 1
    assert IdleAnswer.objects.get().until == NOW + timedelta(days=1)


def test_who_ends_a_silence_is_in_the_audit(vision: Team) -> None:
    lea = person("lea", leads=[vision])
    muted = mute(
        lea, channel(lea, vision), MuteInput(until=NOW + timedelta(days=1), why="known"), now=NOW
    )
    unmute(lea, muted, now=NOW + timedelta(hours=1), origin="192.0.2.1")
    line = AuditEntry.objects.latest("number")
    assert (line.actor, line.action, line.origin) == ("lea", "unmute_channel", "192.0.2.1")
    unmute(lea, muted, now=NOW + timedelta(hours=2))
    assert AuditEntry.objects.latest("number") == line
