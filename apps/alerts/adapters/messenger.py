"""Messages to the world: e-mail by Django's back end, chats and webhooks by Apprise.

Apprise can be given an address as it is, and then takes its options from the query: a template to
be fetched from anywhere or read from the disk, certificates that are not checked. So nothing of
an address is handed on but what is listed here.
"""

import logging
import re
import smtplib
import socket
from collections.abc import Collection
from typing import Any

import apprise
from apprise.plugins.base import NotifyBase
from apprise.plugins.custom_json import NotifyJSON
from apprise.plugins.slack import NotifySlack
from apprise.plugins.workflows import NotifyWorkflows
from django.conf import settings
from django.core.mail import EmailMessage

from apps.alerts.domain.channels import (
    AddressRefused,
    ChannelKind,
    check_domain,
    check_reachable,
    host_of,
    slack_tokens,
    teams_workflow,
    webhook_parts,
)
from apps.alerts.domain.digests import Message
from apps.alerts.ports import NotDelivered, NotReached

# No redirects: they could lead to where the address itself may not. Seconds to connect and read.
_LIMITS = {"redirect": "no", "cto": "5", "rto": "10"}
_PLAIN = {"include_image": False, "include_footer": False}
_ASSET = apprise.AppriseAsset(app_id="gpuportal", app_desc="gpuportal", app_url="")
_WEB_ADDRESS = re.compile(r"https?://\S+")


class TeamsCard(NotifyWorkflows):  # type: ignore[no-untyped-call]
    """The message of a Teams channel: each line as it is, links as links.

    Blocks of text are Markdown to Teams, and Apprise escapes each full stop for it, also in
    links; runs of text are none.
    """

    notify_format = apprise.NotifyFormat.TEXT

    def gen_payload(
        self, body: str, title: str = "", notify_type: object = None, **_: object
    ) -> dict[str, Any]:
        head = _block({"type": "TextRun", "text": title, "weight": "Bolder", "size": "Large"})
        lines = [_block(_run(line)) for line in body.splitlines() if line.strip()]
        card = {
            "$schema": "http://adaptivecards.io/schemas/adaptive-card.json",
            "type": "AdaptiveCard",
            "version": self.adaptive_card_version,
            "body": [head, *lines],
            "msteams": {"width": "full"},
        }
        content = {"contentType": "application/vnd.microsoft.card.adaptive", "content": card}
        return {"type": "message", "attachments": [content]}


def _block(run: dict[str, Any]) -> dict[str, Any]:
    return {"type": "RichTextBlock", "inlines": [run], "spacing": "Small"}


def _run(line: str) -> dict[str, Any]:
    word = line.strip()
    if word.startswith(("https://", "http://")) and " " not in word:
        opens = {"type": "Action.OpenUrl", "url": word}
        return {"type": "TextRun", "text": word, "selectAction": opens}
    return {"type": "TextRun", "text": line}


def chat_service(kind: ChannelKind, address: str, message_id: str) -> NotifyBase:
    """Return what posts to an address. Raises AddressRefused where it is none of that kind's."""
    made: type[NotifyBase]
    parts: dict[str, object]
    if kind is ChannelKind.SLACK:
        a, b, c = slack_tokens(address)
        made, parts = NotifySlack, {"token_a": a, "token_b": b, "token_c": c, "format": "text"}
    elif kind is ChannelKind.TEAMS:
        made, parts = TeamsCard, {"secure": True, **teams_workflow(address)}
    elif kind is ChannelKind.WEBHOOK:
        # The id is the same for a copy, by which a receiver can know it for one.
        told = {"id": message_id} if message_id else {}
        made, parts = NotifyJSON, {"payload": told, "format": "text", **webhook_parts(address)}
    else:
        raise AddressRefused("This is no address of a chat or a webhook.")
    return made(**parts, **_PLAIN, **_LIMITS, asset=_ASSET)


class PortalMessenger:
    """Sends from `sender`; `allowed` are hosts that are called whatever they resolve to.

    `domains` are those that mail may go to, none: any.
    """

    def __init__(
        self, *, sender: str, allowed: Collection[str] = (), domains: Collection[str] = ()
    ) -> None:
        self._sender = sender
        self._domains = tuple(domains)
        self._allowed = frozenset(allowed)

    def send(self, kind: ChannelKind, address: str, message: Message) -> None:
        if kind is ChannelKind.EMAIL:
            self._mail(address, message)
        else:
            self._post(kind, address, message)

    def _mail(self, address: str, message: Message) -> None:
        try:
            check_domain(address, self._domains)
        except AddressRefused as refused:
            raise NotDelivered(str(refused)) from refused
        if not settings.EMAIL_HOST:
            raise NotDelivered("No mail server is set: an administrator sets GPUPORTAL_MAIL_HOST.")
        mail = EmailMessage(
            message.subject,
            _with_footer(message),
            self._sender,
            [address],
            headers=_headers(message),
        )
        try:
            mail.send()
        except (smtplib.SMTPResponseException, smtplib.SMTPRecipientsRefused, ValueError) as error:
            raise NotDelivered(f"The mail server did not take it: {_words(error)}") from error
        except OSError as error:
            raise NotReached(f"The mail server did not take it: {error}") from error

    def _post(self, kind: ChannelKind, address: str, message: Message) -> None:
        host, port = host_of(address)
        check_host(host, port, self._allowed)
        try:
            plugin = chat_service(kind, address, message.message_id)
        except (AddressRefused, TypeError) as error:
            # Apprise says with a TypeError that it cannot use what it was given.
            raise NotDelivered(
                f"{host}: the address is none of {kind}'s: write it anew."
            ) from error
        with apprise.LogCapture(level=logging.WARNING) as log:  # type: ignore[no-untyped-call]
            taken = plugin.notify(
                body=message.text, title=message.subject, body_format=apprise.NotifyFormat.TEXT
            )
            said = log.getvalue() if log is not None else ""
        if not taken:
            raise NotDelivered(f"{host}: {_reason(said)}")


def _with_footer(message: Message) -> str:
    if not message.manage:
        return message.text
    return f"{message.text}\n-- \nChange, mute or remove this channel: {message.manage}\n"


def _headers(message: Message) -> dict[str, str]:
    # By the first, programs that answer for absent people do not (RFC 3834).
    headers = {"Auto-Submitted": "auto-generated"}
    if message.message_id:
        headers["Message-ID"] = message.message_id
    if message.manage:
        headers["List-Unsubscribe"] = f"<{message.manage}>"
    return headers


def _words(error: Exception) -> str:
    """Return what a mail server answered, as words rather than as bytes."""
    found = error
    if isinstance(error, smtplib.SMTPRecipientsRefused):
        answers = list(error.recipients.values())
        found = smtplib.SMTPResponseException(*answers[0]) if answers else error
    if not isinstance(found, smtplib.SMTPResponseException):
        return str(found)
    told = found.smtp_error
    text = told.decode(errors="replace") if isinstance(told, bytes) else str(told)
    return f"{found.smtp_code} {text}"


def check_host(host: str, port: int, allowed: Collection[str]) -> None:
    """Raise NotDelivered for a host that is not found, or is none to be posted to.

    What is allowed is not looked up: behind a proxy names of the world outside are not known here.
    """
    if host in allowed:
        return
    try:
        found = {str(info[4][0]) for info in socket.getaddrinfo(host, port)}
    except OSError as error:
        raise NotDelivered(f"{host} was not found: {error.strerror or error}.") from error
    except UnicodeError as error:
        raise NotDelivered(f"{host[:80]} is no host's name: write the address anew.") from error
    try:
        check_reachable(host, found)
    except AddressRefused as refused:
        raise NotDelivered(str(refused)) from refused


def _reason(log: str) -> str:
    """Return the last line of what Apprise logged, without times and without addresses."""
    lines = [line for line in log.splitlines() if line.strip()]
    if not lines:
        return "it was not taken."
    last = lines[-1].rpartition(" - ")[2]
    return _WEB_ADDRESS.sub("(address)", last)[:400]
