"""Channels: addresses as people write them, held against what is safe to call."""

import ipaddress
import re
from collections.abc import Collection, Iterable
from enum import StrEnum
from urllib.parse import parse_qs, urlsplit

_ADDRESS = re.compile(r"[^\s@,;<>\"()\[\]\\%!]+@[^\s@,;<>\"()\[\]\\]+\.[^\s@,;<>\"()\[\]\\.]+")
# RFC 5321 allows a path of 256 characters; two are its angle brackets.
_LONGEST = 254
_SLACK = "hooks.slack.com"
_SLACK_PATH = re.compile(r"/services/([A-Za-z0-9]+)/([A-Za-z0-9]+)/([A-Za-z0-9]+)/?")
_TEAMS = (".logic.azure.com", ".powerplatform.com")
_TEAMS_PATH = re.compile(
    r"(?P<power>/powerautomate/automations/direct(?:/cu/(?P<route>[0-9]+))?)?"
    r"/workflows/(?P<workflow>[A-Za-z0-9_-]+)/triggers/manual/paths/invoke/?"
)
_WORD = re.compile(r"[A-Za-z0-9_-]+")
# Names of hosts as DNS takes them: labels of up to 63 characters, 253 in all.
_HOST = re.compile(r"(?=.{1,253}$)[a-z0-9_]([a-z0-9_-]{0,62})(\.[a-z0-9_]([a-z0-9_-]{0,62}))*\.?")
# Services of clouds that hand out credentials to who can reach them: Alibaba, AWS, Azure.
_METADATA = frozenset({"100.100.100.200", "fd00:ec2::254", "168.63.129.16"})


def e_mail_address(written: str) -> str | None:
    """Return one plain address, its domain in lower case; None where that is none.

    A name with a % or ! may be a route: some mail servers send that on to another domain.
    """
    if len(written) > _LONGEST or not written.isprintable() or not _ADDRESS.fullmatch(written):
        return None
    name, _, domain = written.rpartition("@")
    return f"{name}@{domain.lower()}"


class ChannelKind(StrEnum):
    EMAIL = "email"
    SLACK = "slack"
    TEAMS = "teams"
    WEBHOOK = "webhook"


class AddressRefused(ValueError):
    """An address cannot be used; the message says what to write instead."""


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
    if not _is_host(host) or any(sign.isspace() or not sign.isprintable() for sign in written):
        raise AddressRefused("The name of the host in this address is none that can be called.")
    if kind is ChannelKind.SLACK:
        slack_tokens(written)
    elif kind is ChannelKind.TEAMS:
        teams_workflow(written)
    return written


def _is_host(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return _HOST.fullmatch(host) is not None
    return True


def slack_tokens(address: str) -> tuple[str, str, str]:
    """Return the three parts of an incoming webhook's address. Raises AddressRefused."""
    url = urlsplit(address)
    found = _SLACK_PATH.fullmatch(url.path)
    if found is None or (url.scheme, url.netloc) != ("https", _SLACK) or url.query:
        raise AddressRefused(
            f"An incoming webhook of Slack is https://{_SLACK}/services/ and three words of "
            "letters and digits, with a / between them."
        )
    return found[1], found[2], found[3]


def teams_workflow(address: str) -> dict[str, object]:
    """Return host, port, workflow, signature and kind of a Teams workflow.

    As `apprise` names them. Of its query the signature and the version alone are read. Raises
    AddressRefused.
    """
    url = urlsplit(address)
    found = _TEAMS_PATH.fullmatch(url.path)
    asked = parse_qs(url.query)
    signature, version = asked.get("sig", [""])[0], asked.get("api-version", [""])[0]
    host = url.hostname or ""
    if (
        found is None
        or url.scheme != "https"
        or not host.endswith(_TEAMS)
        or _WORD.fullmatch(signature) is None
    ):
        raise AddressRefused(
            "A Teams webhook is the whole address that the workflow “Post to a channel when a "
            "webhook request is received” shows, with its sig at the end."
        )
    return {
        "host": host,
        "port": url.port,
        "workflow": found["workflow"],
        "signature": signature,
        "power_automate": found["power"] is not None,
        "routing_id": found["route"],
        "version": version if _WORD.fullmatch(version) else None,
    }


def webhook_parts(address: str) -> dict[str, object]:
    """Return where a webhook is: its path with its query, as it was written."""
    url = urlsplit(address)
    host = url.hostname or ""
    return {
        "secure": url.scheme == "https",
        "host": f"[{host}]" if ":" in host else host,
        "port": url.port,
        "fullpath": (url.path or "/") + (f"?{url.query}" if url.query else ""),
    }


def _mail(written: str) -> str:
    address = e_mail_address(written)
    if address is None:
        raise AddressRefused("Write one e-mail address, such as gpu-team@example.org.")
    return address


def check_domain(address: str, domains: Collection[str]) -> None:
    """Refuse an e-mail address outside the allowed domains; no domains: any will do.

    `*.example.org` allows example.org and its subdomains. Raises AddressRefused.
    """
    domain = address.rpartition("@")[2].lower()
    if domains and not any(_is_in(domain, one.lower()) for one in domains):
        raise AddressRefused(
            f"{domain} is not an allowed domain for alerts. Allowed: {', '.join(domains)}."
        )


def _is_in(domain: str, allowed: str) -> bool:
    parent = allowed.removeprefix("*.")
    return domain == parent or (parent != allowed and domain.endswith(f".{parent}"))


def shown(kind: ChannelKind, address: str) -> str:
    """Return the part of an address that may be read: of a webhook only its host."""
    return address if kind is ChannelKind.EMAIL else (urlsplit(address).hostname or "")


def host_of(address: str) -> tuple[str, int]:
    """Return host and port that a webhook is called at."""
    url = urlsplit(address)
    return url.hostname or "", url.port or (443 if url.scheme == "https" else 80)


def check_reachable(host: str, found: Iterable[str]) -> None:
    """Refuse a host that resolves to this machine or to a metadata service.

    `found` are the addresses its name resolves to. Private networks are allowed: a chat server of
    the house is there. Raises AddressRefused.
    """
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
                "there. GPUPORTAL_ALERTS_HOSTS names hosts that it may post to nevertheless."
            )
