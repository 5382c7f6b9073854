"""Sending: e-mail by Django's back end, chats and webhooks by Apprise."""

import logging
import re
import socket
from collections.abc import Collection, Mapping
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

import apprise
from apprise.plugins.base import NotifyBase
from apprise.plugins.custom_json import NotifyJSON
from apprise.plugins.slack import NotifySlack
from apprise.plugins.workflows import NotifyWorkflows
from django.conf import settings
from django.core.mail import EmailMessage

from apps.notices.domain.channels import AddressRefused, ChannelKind, check_reachable, host_of
from apps.notices.domain.message import Message
from apps.notices.ports import NotDelivered

# No redirects: they could lead to where the address itself may not. Seconds to connect and read.
_LIMITS = {"redirect": "no", "cto": "5", "rto": "10"}
_SERVICES: Mapping[ChannelKind, type[NotifyBase]] = {
    ChannelKind.SLACK: NotifySlack,
    ChannelKind.TEAMS: NotifyWorkflows,
    ChannelKind.WEBHOOK: NotifyJSON,
}
_SCHEMES = {"https": "jsons", "http": "json"}
_WEB_ADDRESS = re.compile(r"https?://\S+")


class PortalMessenger:
    """Sends from `sender`; `allowed` are hosts that are called whatever they resolve to."""

    def __init__(self, *, sender: str, allowed: Collection[str] = ()) -> None:
        self._sender = sender
        self._allowed = frozenset(allowed)

    def send(self, kind: ChannelKind, address: str, message: Message) -> None:
        if kind is ChannelKind.EMAIL:
            self._mail(address, message)
        else:
            self._post(kind, address, message)

    def _mail(self, address: str, message: Message) -> None:
        if not settings.EMAIL_HOST:
            raise NotDelivered("No mail server is set: an administrator sets GPUPORTAL_MAIL_HOST.")
        headers = {"Message-ID": message.message_id} if message.message_id else {}
        mail = EmailMessage(message.subject, message.text, self._sender, [address], headers=headers)
        try:
            mail.send()
        except (OSError, ValueError) as error:
            # SMTP's errors are kinds of OSError.
            raise NotDelivered(f"The mail server did not take it: {error}") from error

    def _post(self, kind: ChannelKind, address: str, message: Message) -> None:
        host, port = host_of(address)
        check_host(host, port, self._allowed)
        plugin = _plugin(kind, address)
        if plugin is None:
            raise NotDelivered(f"{host}: the address is not one of {kind}.")
        with apprise.LogCapture(level=logging.WARNING) as log:  # type: ignore[no-untyped-call]
            taken = plugin.notify(body=message.text, title=message.subject)
            said = log.getvalue() if log is not None else ""
        if not taken:
            raise NotDelivered(f"{host}: {_reason(said)}")


def check_host(host: str, port: int, allowed: Collection[str]) -> None:
    """Raise NotDelivered for a host that is not found, or is none to be posted to."""
    try:
        found = {str(info[4][0]) for info in socket.getaddrinfo(host, port)}
    except OSError as error:
        raise NotDelivered(f"{host} was not found: {error.strerror or error}.") from error
    try:
        check_reachable(host, found, allowed=allowed)
    except AddressRefused as refused:
        raise NotDelivered(str(refused)) from refused


def _plugin(kind: ChannelKind, address: str) -> NotifyBase | None:
    """Return what posts to an address; None where it is none of that service's."""
    # Asked by name: Apprise would else load its hundred services to find the one.
    service = _SERVICES[kind]
    own = kind is ChannelKind.WEBHOOK
    parts = service.parse_url(_json_url(address)) if own else service.parse_native_url(address)
    return service(**{**parts, **_LIMITS}) if parts else None


def _json_url(address: str) -> str:
    url = urlsplit(address)
    # A parameter of the address itself is sent on only with this sign before it.
    own = urlencode([(f"-{k}", v) for k, v in parse_qsl(url.query, keep_blank_values=True)])
    return urlunsplit((_SCHEMES[url.scheme], url.netloc, url.path, own, ""))


def _reason(log: str) -> str:
    """Return the last line of what Apprise logged, without times and without addresses."""
    lines = [line for line in log.splitlines() if line.strip()]
    if not lines:
        return "it was not taken."
    last = lines[-1].rpartition(" - ")[2]
    return _WEB_ADDRESS.sub("(address)", last)[:400]
