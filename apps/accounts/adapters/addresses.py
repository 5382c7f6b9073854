"""From where a request comes, for what is counted by address and for the audit."""

import ipaddress

from django.conf import settings
from django.http import HttpRequest


def client_address(request: HttpRequest) -> str | None:
    """Return the address that a request comes from; None when there is none.

    Each proxy adds the address that it sees to X-Forwarded-For. Behind N trusted proxies the
    client's address is the Nth from the end; the client itself may have written everything before
    it. A shorter list passed fewer of them: then a trusted proxy wrote its first address.
    """
    if settings.TRUSTED_PROXIES:
        hops = request.headers.get("X-Forwarded-For", "").split(",")
        forwarded = _address(hops[-min(settings.TRUSTED_PROXIES, len(hops))])
        if forwarded is not None:
            return forwarded
    return _address(request.META.get("REMOTE_ADDR", ""))


def _address(text: str) -> str | None:
    """Return an address without port and brackets as the database takes it; None for none.

    An IPv4 address that is written as IPv6 is returned as IPv4.
    """
    text = text.strip()
    if text.startswith("["):
        text = text[1:].partition("]")[0]
    # Before a port stands one colon; an address of version 6 has several.
    elif text.count(":") == 1:
        text = text.partition(":")[0]
    try:
        # A zone, as in fe80::1%eth0, names an interface of the machine that wrote it.
        address = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return None
    mapped = getattr(address, "ipv4_mapped", None)
    return str(mapped or address)
