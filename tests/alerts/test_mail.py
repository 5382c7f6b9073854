"""Mail as a mail server gets it: readable, known for a copy, and never answered by a machine."""

from collections.abc import Iterator
from email.utils import parsedate_to_datetime

import pytest
from pytest_django import Settings

from apps.accounts.models import Team
from apps.alerts.adapters.messenger import PortalMessenger
from apps.alerts.domain.channels import ChannelKind
from apps.alerts.domain.digests import Message
from apps.alerts.models import Delivery
from apps.alerts.ports import NotDelivered, NotReached
from apps.alerts.services import deliver, notify
from tests.alerts.board import NOW, ZONE, channel, person, said
from tests.alerts.servers import MailServer, running


@pytest.fixture
def server(settings: Settings) -> Iterator[MailServer]:
    with running(MailServer()) as server:
        settings.EMAIL_BACKEND = "django.core.mail.backends.smtp.EmailBackend"
        settings.EMAIL_HOST, settings.EMAIL_PORT = "127.0.0.1", server.port
        settings.PORTAL_URL = "https://gpu.example.org"
        yield server


HERE = PortalMessenger(sender="GPU portal <gpu@example.org>")


@pytest.mark.django_db
def test_a_alert_is_a_mail_that_a_person_can_act_on(server: MailServer) -> None:
    vision = Team.objects.create(name="Büro für Bilder")
    own = channel(person("lea", leads=[vision]), vision)
    notify([said(vision, "Büro für Bilder → 80 %")], now=NOW, zone=ZONE)
    assert deliver(now=NOW) == 1
    ((readers, mail),) = server.got
    manage = f"https://gpu.example.org/alerts/channels/{own.pk}/"
    assert (readers, mail["To"]) == (["mail@example.org"], "mail@example.org")
    assert mail["Subject"] == "Büro für Bilder → 80 % is full"
    assert mail.get_content_type() == "text/plain"
    assert mail.get_content().replace("\r\n", "\n") == (
        "Büro für Bilder → 80 % used 100 %.\nNoted 7 Oct 09:30 UTC.\n"
        "https://gpu.example.org/quotas/\n\n"
        f"-- \nChange, mute or remove this channel: {manage}\n"
    )
    assert mail["List-Unsubscribe"] == f"<{manage}>"
    assert mail["Auto-Submitted"] == "auto-generated"
    assert mail["Message-ID"].endswith("@gpu.example.org>")
    assert parsedate_to_datetime(mail["Date"])


def test_a_subject_is_one_header_whatever_is_in_it(server: MailServer) -> None:
    words = Message("größer " * 20 + "ns/a", ".\n..two dots\n" + "long " * 400, "<a@b.org>")
    HERE.send(ChannelKind.EMAIL, "lea@example.org", words)
    ((_, mail),) = server.got
    # A long one begins on a line of its own.
    assert mail["Subject"].strip() == words.subject
    assert mail["From"] == "GPU portal <gpu@example.org>"
    assert mail.get_content().split() == words.text.split()


@pytest.mark.parametrize("subject", ["a\nBcc: b@example.org", "a\r\nX: y", "a\rb"])
def test_a_header_cannot_be_smuggled_in(server: MailServer, subject: str) -> None:
    with pytest.raises(NotDelivered):
        HERE.send(ChannelKind.EMAIL, "lea@example.org", Message(subject, "text"))
    assert server.got == []


def test_what_a_mail_server_answers_is_told_in_words(server: MailServer) -> None:
    server.refuses = "550 5.1.1 no such mailbox"
    with pytest.raises(NotDelivered) as refused:
        HERE.send(ChannelKind.EMAIL, "lea@example.org", Message("a", "b"))
    assert str(refused.value) == "The mail server did not take it: 550 5.1.1 no such mailbox"
    assert not isinstance(refused.value, NotReached)


@pytest.mark.django_db
def test_one_mailbox_that_is_gone_holds_up_no_other(server: MailServer) -> None:
    vision = Team.objects.create(name="vision")
    lea = person("lea", leads=[vision])
    for name in ("first", "second"):
        channel(lea, vision, name=name)
    notify([said(vision)], now=NOW, zone=ZONE)
    server.refuses = "550 no such mailbox"
    deliver(now=NOW)
    found = list(Delivery.objects.values_list("failures", "error"))
    assert found == 2 * [(1, "The mail server did not take it: 550 no such mailbox")]
