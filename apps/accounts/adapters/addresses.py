"""From where a request comes, for what is counted by address and for the audit."""

import ipaddress

from django.conf import settings
from django.http import HttpRequest


def client_address(request: HttpRequest) -> str | None:
    """Return the address that a request comes from; None when there is none.

    Behind a proxy that is the last one of X-Forwarded-For, which the proxy itself wrote; all
    before it is what the client says of itself.
    """
    if settings.BEHIND_PROXY:
        forwarded = _address(request.headers.get("X-Forwarded-For", "").rpartition(",")[2])
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
