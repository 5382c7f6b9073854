"""Where a message may go: addresses as people write them, held against what is safe to call."""

import ipaddress
from collections.abc import Collection, Iterable
from enum import StrEnum
from urllib.parse import urlsplit

from apps.notices.domain.addresses import e_mail_address


class ChannelKind(StrEnum):
    EMAIL = "email"
    SLACK = "slack"
    TEAMS = "teams"
    WEBHOOK = "webhook"


class AddressRefused(ValueError):
    """An address cannot be used; the message says what to write instead."""


_SLACK = "hooks.slack.com"
_TEAMS = (".logic.azure.com", ".webhook.office.com", ".powerplatform.com")


def checked(kind: ChannelKind, written: str, *, plain: Collection[str] = ()) -> str:
    """Return an address in the form in which it is kept.

    Webhooks are called by HTTPS; `plain` are the hosts that may be called by HTTP as well. Raises
    AddressRefused.
    """
    written = written.strip()
    if kind is ChannelKind.EMAIL:
        return _mail(written)
    try:
        url = urlsplit(written)
        host, _ = url.hostname or "", url.port
    except ValueError:
        raise AddressRefused("This is no web address.") from None
    secure = url.scheme == "https" or (url.scheme == "http" and host in plain)
    if not secure or not host:
        raise AddressRefused("Write the whole address of the webhook, beginning with https://.")
    if url.username or url.password:
        raise AddressRefused("Leave name and password out of the address: they would be logged.")
    if kind is ChannelKind.SLACK and not (
        host == _SLACK and url.path.count("/") == 4 and url.path.startswith("/services/")
    ):
        raise AddressRefused(
            f"An incoming webhook of Slack begins with https://{_SLACK}/services/."
        )
    if kind is ChannelKind.TEAMS and not host.endswith(_TEAMS):
        raise AddressRefused(
            "A Teams webhook is the address that the workflow “Post to a channel when a webhook "
            "request is received” shows."
        )
    return written


def _mail(written: str) -> str:
    address = e_mail_address(written)
    if address is None:
        raise AddressRefused("Write one e-mail address, such as gpu-team@example.org.")
    return address


def shown(kind: ChannelKind, address: str) -> str:
    """Return what of an address may be read by who sees the channel: of a webhook, its host."""
    return address if kind is ChannelKind.EMAIL else (urlsplit(address).hostname or "")


def host_of(address: str) -> tuple[str, int]:
    """Return host and port that a webhook is called at."""
    url = urlsplit(address)
    return url.hostname or "", url.port or (443 if url.scheme == "https" else 80)


def check_reachable(host: str, found: Iterable[str], *, allowed: Collection[str] = ()) -> None:
    """Refuse a host that resolves to this machine or to a metadata service.

    `found` are the addresses its name resolves to, `allowed` hosts that are called whatever they
    are. Private networks are allowed: a chat server of the house is there. Raises AddressRefused.
    """
    if host in allowed:
        return
    for text in found:
        ip = ipaddress.ip_address(text.partition("%")[0])
        mapped = getattr(ip, "ipv4_mapped", None) or ip
        if (
            mapped.is_loopback
            or mapped.is_link_local
            or mapped.is_multicast
            or mapped.is_unspecified
            or str(mapped) in _METADATA
        ):
            raise AddressRefused(
                f"{host} is this machine or a cloud's metadata service; the portal does not post "
                "there. GPUPORTAL_NOTICES_HOSTS names hosts that it may post to nevertheless."
            )


_METADATA = frozenset({"100.100.100.200", "fd00:ec2::254", "168.63.129.16"})
