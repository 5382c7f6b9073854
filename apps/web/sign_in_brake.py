"""Slowing down who guesses passwords: what django-axes asks of us."""

import ipaddress
from typing import Any

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render


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


def locked_out(
    request: HttpRequest, _response: HttpResponse | None, _credentials: Any
) -> HttpResponse:
    """Answer 429 to who failed too often, and say when to come back."""
    seconds = int(settings.AXES_COOLOFF_TIME.total_seconds())
    response = render(request, "sign_in/locked.html", {"minutes": seconds // 60}, status=429)
    response["Retry-After"] = str(seconds)
    return response


def _address(text: str) -> str | None:
    """Return an address without port and brackets as the database takes it; None for none."""
    text = text.strip()
    if text.startswith("["):
        text = text[1:].partition("]")[0]
    elif text.count(":") == 1:
        text = text.partition(":")[0]
    try:
        return str(ipaddress.ip_address(text.partition("%")[0]))
    except ValueError:
        return None
