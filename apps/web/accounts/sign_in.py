"""The sign-in form, and the throttling of wrong passwords that django-axes asks of us."""

import hashlib
import ipaddress
import math
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from typing import Any

from axes.handlers.database import AxesDatabaseHandler
from axes.helpers import get_client_username
from axes.models import AccessAttempt
from django.conf import settings
from django.contrib.auth.forms import AuthenticationForm
from django.core.exceptions import ValidationError
from django.db.models import Sum
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils import timezone

from apps.accounts.adapters.addresses import client_address
from apps.accounts.domain.identity import is_reserved
from apps.clusters import selectors as clusters


class SignInForm(AuthenticationForm):
    """Django's form, with texts that say what can be done."""

    error_messages = {
        "invalid_login": (
            "Wrong user name or password. Both are case-sensitive. "
            "An administrator can set a new password with manage.py changepassword."
        ),
        "inactive": "This account is disabled. Ask an administrator to enable it.",
        "reserved": (
            "This name is, or looks like, a name of the portal itself. No user can sign in with "
            "it: ask an administrator for an account with another name."
        ),
    }

    def __init__(self, request: HttpRequest | None = None, *args: Any, **kwargs: Any) -> None:
        super().__init__(request, *args, **kwargs)
        self.fields["username"].label = "User name"
        for field in self.fields.values():
            field.widget.attrs["class"] = "form-control"

    def confirm_login_allowed(self, user: Any) -> None:
        """Refuse a name of the portal itself, which `createsuperuser` may have given."""
        super().confirm_login_allowed(user)
        if is_reserved(user.get_username()):
            raise ValidationError(self.error_messages["reserved"], code="reserved")


def ways_in() -> dict[str, Any]:
    """Return what the page's template needs to know: which ways to sign in there are."""
    provider = settings.SINGLE_SIGN_ON
    return {
        "provider_name": provider.name if provider else "",
        "local_sign_in": settings.LOCAL_SIGN_IN,
    }


def sign_in_page(request: HttpRequest, problem: str, status: int) -> HttpResponse:
    """Return the page with a problem that is none of the form's; all ways in stay open."""
    context = {"form": SignInForm(request), "problem": problem, **ways_in()}
    return render(request, "sign_in/page.html", context, status=status)


_NETWORK_BITS = 64
_KNOWN_COOKIE = "known_browser"
_KNOWN_FOR = timedelta(days=90)


class LoginThrottling(AxesDatabaseHandler):  # type: ignore[misc]  # axes has no types
    """django-axes with a limit for each of the three counts.

    AXES_LOCKOUT_PARAMETERS stays the pair of both alone: by them a right password forgets the
    wrong ones before it, and one right password must not forget what was tried with other names.
    """

    def get_failures(self, request: HttpRequest, credentials: dict[str, Any] | None = None) -> int:
        """Return how often the pair failed; its limit where another is reached. Three queries."""
        counts = [(_failures(rows), limit) for rows, limit in _counted(request, credentials)]
        reached = any(count >= limit for count, limit in counts)
        pair = counts[0][0]
        return max(pair, settings.AXES_FAILURE_LIMIT) if reached else pair


def remember_browser(response: HttpResponse, name: str) -> None:
    """Let the browser that gets this be known as one in which `name` signed in."""
    response.set_signed_cookie(
        _KNOWN_COOKIE,
        _mark(name),
        salt=_KNOWN_COOKIE,
        max_age=_KNOWN_FOR,
        httponly=True,
        secure=settings.SESSION_COOKIE_SECURE,
        samesite="Lax",
    )


def _is_known(request: HttpRequest, name: str | None) -> bool:
    known = request.get_signed_cookie(
        _KNOWN_COOKIE, default=None, salt=_KNOWN_COOKIE, max_age=_KNOWN_FOR
    )
    return name is not None and known == _mark(name)


def _mark(name: str) -> str:
    """Return what stands for a name in a cookie, which not every letter may be in."""
    return hashlib.sha256(name.encode()).hexdigest()


def client_place(request: HttpRequest) -> str | None:
    """Return the address, or the beginning of the network, by which failures are counted."""
    address = client_address(request)
    if address is None or ":" not in address:
        return address
    # One subscriber has a whole network of addresses to try from.
    network = ipaddress.IPv6Network((address, _NETWORK_BITS), strict=False)
    return str(network.network_address)


def locked_out(
    request: HttpRequest, _response: HttpResponse | None, credentials: dict[str, Any] | None
) -> HttpResponse:
    """Answer 429 to who failed too often, and say when to come back."""
    now = timezone.now()
    until = _locked_until(request, credentials) or now + settings.AXES_COOLOFF_TIME
    seconds = max(1, math.ceil((until - now).total_seconds()))
    context = {
        "minutes": math.ceil(seconds / 60),
        # To the next minute, so that who comes back at that time is let in.
        "until": _next_minute(until),
        "zone": clusters.report().zone,
    }
    response = render(request, "sign_in/locked.html", context, status=429)
    response["Retry-After"] = str(seconds)
    return response


def _next_minute(at: datetime) -> datetime:
    return (at + timedelta(seconds=59, microseconds=999_999)).replace(second=0, microsecond=0)


def _counted(request: HttpRequest, credentials: dict[str, Any] | None) -> Iterator[tuple[Any, int]]:
    """Yield the failures that count against this attempt, each with the limit; the pair first."""
    name = get_client_username(request, credentials)
    place = client_place(request)
    recent = AccessAttempt.objects.filter(attempt_time__gt=_asked_at(request) - _cool_off())
    yield recent.filter(username=name, ip_address=place), settings.AXES_FAILURE_LIMIT
    # Else anybody could lock a person out by trying wrong passwords with their name.
    if not _is_known(request, name):
        yield recent.filter(username=name), settings.SIGN_IN_FAILURES_PER_NAME
    if place is not None:  # else all who come over a socket would be one place
        yield recent.filter(ip_address=place), settings.SIGN_IN_FAILURES_PER_PLACE


def _failures(rows: Any) -> int:
    return int(rows.aggregate(sum=Sum("failures_since_start"))["sum"] or 0)


def _locked_until(request: HttpRequest, credentials: dict[str, Any] | None) -> datetime | None:
    """Return when the last of the limits that are reached is not any more. Three queries."""
    ends = [_ends(rows, limit) for rows, limit in _counted(request, credentials)]
    return max((end for end in ends if end is not None), default=None)


def _ends(rows: Any, limit: int) -> datetime | None:
    """Return when enough of the failures are forgotten; None while the limit is not reached."""
    found: Iterable[tuple[datetime, int]] = rows.order_by("attempt_time", "pk").values_list(
        "attempt_time", "failures_since_start"
    )
    kept = list(found)
    left = sum(count for _, count in kept)
    end = None
    for at, count in kept:
        if left < limit:
            break
        # The oldest failures are forgotten first.
        left, end = left - count, at + _cool_off()
    return end


def _asked_at(request: HttpRequest) -> datetime:
    return getattr(request, "axes_attempt_time", None) or timezone.now()


def _cool_off() -> timedelta:
    cool_off: timedelta = settings.AXES_COOLOFF_TIME
    return cool_off
