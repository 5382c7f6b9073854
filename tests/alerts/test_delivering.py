"""Delivering: once, again after a failure, given up with why, by real mail and real HTTP."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

import pytest
from django.core import mail
from pytest_django import Settings

from apps.accounts.models import Team, User
from apps.alerts.adapters.messenger import PortalMessenger
from apps.alerts.domain.alerts import AlertKind
from apps.alerts.domain.channels import ChannelKind
from apps.alerts.domain.digests import RETRY_DELAYS, Cadence, Message
from apps.alerts.models import Alert, Channel, Delivery
from apps.alerts.ports import NotDelivered
from apps.alerts.services import deliver, notify, send_again, try_channel
from tests.alerts.board import NOW, ZONE, Box, channel, person, said
from tests.alerts.servers import WebServer, running

pytestmark = pytest.mark.django_db
WORDS = Message("2 alerts", "Something is full.\n", "<abc@example.org>")


@pytest.fixture
def vision() -> Team:
    return Team.objects.create(name="vision")


@pytest.fixture
def own(vision: Team) -> Channel:
    return channel(person("lea", leads=[vision]), vision)


def test_each_alert_arrives_once(own: Channel, vision: Team) -> None:
    notify([said(vision, "a"), said(vision, "b")], now=NOW, zone=ZONE)
    box = Box()
    assert deliver(now=NOW, post=box) == 2
    assert deliver(now=NOW + timedelta(hours=1), post=box) == 0
    ((address, message),) = box.sent
    assert address == "mail@example.org"
    assert message.subject == "2 alerts: budgets 2"
    assert "* a is full\n  a used 100 %." in message.text
    assert set(own.deliveries.values_list("state", "sent_at")) == {("sent", NOW)}


def test_a_alert_alone_is_its_own_subject_and_says_where_to_look(
    own: Channel, vision: Team, settings: Settings
) -> None:
    settings.PORTAL_URL = "https://gpu.example.org"
    notify([said(vision)], now=NOW, zone=ZONE)
    box = Box()
    deliver(now=NOW, post=box)
    ((_, message),) = box.sent
    assert (message.subject, message.text) == (
        "it is full",
        "it used 100 %.\nNoted 7 Oct 09:30 UTC.\nhttps://gpu.example.org/quotas/\n",
    )
    assert message.message_id.endswith("@gpu.example.org>")


def test_an_idle_alert_leads_to_where_it_is_answered(
    own: Channel, vision: Team, settings: Settings
) -> None:
    assert own.active
    settings.PORTAL_URL = "https://gpu.example.org"
    notify([said(vision, "workload:a", kind=AlertKind.IDLE)], now=NOW, zone=ZONE)
    box, alert = Box(), Alert.objects.get()
    deliver(now=NOW, post=box)
    ((_, message),) = box.sent
    place = f"/alerts/?kind=idle&before={alert.pk + 1}#alert-{alert.pk}"
    assert message.text.splitlines()[-1] == f"https://gpu.example.org{place}"


def test_what_failed_is_tried_again_later_and_each_time_later(own: Channel, vision: Team) -> None:
    notify([said(vision)], now=NOW, zone=ZONE)
    box, now = Box(failures=2), NOW
    for wait in RETRY_DELAYS[:2]:
        assert deliver(now=now, post=box) == 0
        assert deliver(now=now + wait / 2, post=box) == 0
        (delivery,) = own.deliveries.all()
        assert (delivery.state, delivery.due_at) == ("queued", now + wait)
        assert delivery.error == "mail.example.org: it was not taken."
        now += wait
    assert deliver(now=now, post=box) == 1
    (delivery,) = own.deliveries.all()
    assert (delivery.state, delivery.error, delivery.failures) == ("sent", "", 2)


def test_a_failure_of_one_channel_does_not_hold_up_the_others(
    own: Channel, vision: Team, caplog: pytest.LogCaptureFixture
) -> None:
    notify([said(vision)], now=NOW, zone=ZONE)
    other = channel(person("mia", leads=[vision]), vision, kinds=[AlertKind.IDLE], name="other")
    notify([said(vision, "gpus", kind=AlertKind.IDLE)], now=NOW, zone=ZONE)
    own.deliveries.exclude(alert__kind=AlertKind.BUDGET.value).delete()
    # Of a newer version, which was rolled back meanwhile.
    Channel.objects.filter(pk=own.pk).update(kinds=["forecast"])
    Alert.objects.filter(kind=AlertKind.BUDGET.value).update(kind="forecast")
    box = Box()
    assert deliver(now=NOW, post=box) == 1
    assert [address for address, _ in box.sent] == ["other@example.org"]
    assert other.deliveries.get().state == Delivery.State.SENT
    (failed,) = own.deliveries.all()
    assert (failed.state, failed.failures) == (Delivery.State.QUEUED, 1)
    assert failed.error == "The portal failed (ValueError); its log tells more."
    assert "forecast" in caplog.text


def test_it_is_given_up_in_the_end_and_can_be_sent_by_hand(own: Channel, vision: Team) -> None:
    notify([said(vision)], now=NOW, zone=ZONE)
    box, now = Box(failures=len(RETRY_DELAYS) + 1), NOW
    for _ in range(len(RETRY_DELAYS) + 1):
        deliver(now=now, post=box)
        now += timedelta(days=1)
    (delivery,) = own.deliveries.all()
    assert delivery.state == Delivery.State.GIVEN_UP
    assert deliver(now=now, post=box) == 0
    lea = User.objects.get(username="lea")
    assert not send_again(person("eve"), delivery.pk, now=now)
    assert send_again(lea, delivery.pk, now=now)
    assert deliver(now=now, post=box) == 1
    assert not send_again(lea, delivery.pk, now=now)


def test_what_another_process_holds_is_left_to_it_until_its_lease_ends(
    own: Channel, vision: Team
) -> None:
    notify([said(vision)], now=NOW, zone=ZONE)

    class Killed(Box):
        def send(self, kind: ChannelKind, address: str, message: Message) -> None:
            super().send(kind, address, message)
            raise KeyboardInterrupt

    killed, box = Killed(), Box()
    with pytest.raises(KeyboardInterrupt):
        deliver(now=NOW, post=killed)
    assert deliver(now=NOW + timedelta(minutes=4), post=box) == 0
    assert deliver(now=NOW + timedelta(minutes=5), post=box) == 1
    # What arrives twice can be told from something new.
    assert killed.sent[0][1].message_id == box.sent[0][1].message_id


def test_one_channel_that_fails_does_not_hold_up_the_others(vision: Team) -> None:
    lea = person("lea", leads=[vision])
    channel(lea, vision, name="first")
    channel(lea, vision, name="second")
    notify([said(vision)], now=NOW, zone=ZONE)
    box = Box(failures=1)
    assert deliver(now=NOW, post=box) == 1
    assert [address for address, _ in box.sent] == ["second@example.org"]


def test_nothing_goes_to_a_channel_that_was_switched_off(own: Channel, vision: Team) -> None:
    notify([said(vision)], now=NOW, zone=ZONE)
    Channel.objects.update(active=False)
    box = Box()
    assert deliver(now=NOW, post=box) == 0
    assert (box.sent, own.deliveries.get().state) == ([], Delivery.State.MUTED)


def test_a_bundle_that_is_too_long_counts_the_rest(vision: Team) -> None:
    own = channel(person("lea", leads=[vision]), vision, cadence=Cadence.HOURLY)
    notify([said(vision, f"key {n:02}") for n in range(60)], now=NOW, zone=ZONE)
    box = Box()
    assert deliver(now=NOW + timedelta(hours=1), post=box) == 60
    ((_, message),) = box.sent
    assert message.subject.startswith("60 alerts")
    assert "10 older alerts are in the portal's list alone." in message.text
    assert set(own.deliveries.values_list("state", flat=True)) == {"sent"}


def test_an_address_that_cannot_be_read_any_more_says_what_to_do(
    own: Channel, vision: Team, settings: Settings
) -> None:
    notify([said(vision)], now=NOW, zone=ZONE)
    settings.SECRET_KEY = "another key than that under which the address was sealed"
    assert deliver(now=NOW, post=Box()) == 0
    assert "write the address anew" in own.deliveries.get().error


# ---------------------------------------------------------------- mail


def test_mail_carries_its_subject_text_sender_and_identity(settings: Settings) -> None:
    settings.EMAIL_HOST = "127.0.0.1"
    PortalMessenger(sender="gpu@example.org").send(ChannelKind.EMAIL, "lea@example.org", WORDS)
    (sent,) = mail.outbox
    assert (sent.subject, sent.body) == (WORDS.subject, WORDS.text)
    assert (sent.from_email, sent.to) == ("gpu@example.org", ["lea@example.org"])
    assert sent.extra_headers == {
        "Auto-Submitted": "auto-generated",
        "Message-ID": "<abc@example.org>",
    }


def test_without_a_mail_server_it_is_said_what_to_set(settings: Settings) -> None:
    settings.EMAIL_HOST = ""
    with pytest.raises(NotDelivered, match="GPUPORTAL_MAIL_HOST"):
        PortalMessenger(sender="a@b.org").send(ChannelKind.EMAIL, "lea@example.org", WORDS)


def test_a_mail_server_that_is_away_is_no_success(settings: Settings) -> None:
    settings.EMAIL_BACKEND = "django.core.mail.backends.smtp.EmailBackend"
    with _port_of_nobody() as port:
        settings.EMAIL_HOST, settings.EMAIL_PORT = "127.0.0.1", port
        with pytest.raises(NotDelivered, match="mail server did not take it"):
            PortalMessenger(sender="a@b.org").send(ChannelKind.EMAIL, "lea@example.org", WORDS)


# ---------------------------------------------------------------- webhooks


@contextmanager
def _port_of_nobody() -> Iterator[int]:
    server = WebServer()
    port = server.server_port
    server.server_close()
    yield port


HERE = PortalMessenger(sender="a@b.org", allowed=["127.0.0.1"])


def test_a_webhook_gets_json_and_its_own_parameters() -> None:
    with running(WebServer()) as server:
        HERE.send(ChannelKind.WEBHOOK, server.url("/hooks/a?room=gpu"), WORDS)
    ((path, body),) = server.got
    assert path.startswith("/hooks/a")
    assert "room=gpu" in path
    assert "cto" not in path
    assert (body["title"], body["message"].strip()) == (WORDS.subject, WORDS.text.strip())


@pytest.mark.parametrize("status", [400, 403, 404, 500, 503])
def test_a_webhook_that_refuses_is_no_success_and_its_secret_is_not_told(status: int) -> None:
    with running(WebServer()) as server:
        server.status = status
        with pytest.raises(NotDelivered) as failed:
            HERE.send(ChannelKind.WEBHOOK, server.url(), WORDS)
    assert str(status) in str(failed.value)
    assert "secret-part" not in str(failed.value)


def test_a_webhook_that_nobody_answers_is_no_success() -> None:
    with _port_of_nobody() as port, pytest.raises(NotDelivered) as failed:
        HERE.send(ChannelKind.WEBHOOK, f"http://127.0.0.1:{port}/secret-part", WORDS)
    assert "secret-part" not in str(failed.value)


def test_a_redirect_is_not_followed() -> None:
    with running(WebServer()) as other, running(WebServer()) as server:
        server.status, server.location = 307, other.url()
        with pytest.raises(NotDelivered):
            HERE.send(ChannelKind.WEBHOOK, server.url(), WORDS)
    assert other.got == []


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "169.254.169.254", "[::1]"])
def test_this_machine_and_metadata_are_not_posted_to(host: str) -> None:
    with pytest.raises(NotDelivered, match="GPUPORTAL_ALERTS_HOSTS"):
        PortalMessenger(sender="a@b.org").send(
            ChannelKind.WEBHOOK, f"https://{host}:6443/api", WORDS
        )


def test_a_channel_is_tried_with_a_message_that_requests_nothing(own: Channel) -> None:
    box = Box()
    try_channel(own, post=box)
    ((_, message),) = box.sent
    assert message.subject == "gpuportal: this channel works"
    assert AlertKind.IDLE.value not in message.text
