"""From where a request comes, for what is counted by address and for the audit."""

import ipaddress

from django.conf import settings
from django.http import HttpRequest


def client_address(request: HttpRequest) -> str | None:
    """Return the address that a request comes from; None when there is none.

    Each proxy adds the address that it sees to X-Forwarded-For. Behind N trusted ones that of the
    client is the Nth from the end; all before it is what the client says of itself. A shorter list
    came past some of them: its first address is then the nearest that a trusted proxy wrote.
    """
    if settings.TRUSTED_PROXIES:
        hops = request.headers.get("X-Forwarded-For", "").split(",")
        forwarded = _address(hops[-min(settings.TRUSTED_PROXIES, len(hops))])
        if forwarded is not None:
            return forwarded
    return _address(request.META.get("REMOTE_ADDR", ""))


def _address(text: str) -> str | None:
    """Return an address without port and brackets as the database takes it; None for none.

    One of version 4 that was written as one of version 6 is one of version 4.
    """
    text = text.strip()
    if text.startswith("["):
        text = text[1:].partition("]")[0]
    elif text.count(":") == 1:
        text = text.partition(":")[0]
    try:
        address = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return None
    mapped = getattr(address, "ipv4_mapped", None)
    return str(mapped or address)
