"""What is answered to a form of who is signed out by now: what they had typed is given back."""

from http import HTTPStatus
from typing import Any
from urllib.parse import urlsplit

from django.contrib.auth.views import redirect_to_login
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import render
from django.utils.cache import add_never_cache_headers
from django.utils.http import url_has_allowed_host_and_scheme
from django_htmx.http import HttpResponseClientRedirect

# Named one by one: a password or the address of a channel is shown to nobody again.
_TYPED = {
    "before": "From",
    "after": "To",
    "reason": "Why",
    "because": "Because",
    "needed_by": "Needed by",
    "until": "Until",
    "text": "What you said",
    "offer": "Counter-offer",
    "name": "Name",
    "username": "User name",
}
_LONGEST = 20_000


def given_back(request: HttpRequest, address: str, *, aside: bool = False) -> HttpResponseBase:
    """Return what was typed with the way to the sign-in, which leads on to `address`.

    Without text there is nothing to lose: the answer is the sign-in page. `aside`: htmx swaps the
    answer beside the form; else it is put above all, so that no form is swapped away.
    """
    sign_in = redirect_to_login(address)
    is_part = bool(request.headers.get("HX-Request"))
    typed = [(label, request.POST.get(name, "")[:_LONGEST]) for name, label in _TYPED.items()]
    typed = [(label, text) for label, text in typed if text.strip()]
    if not typed:
        return HttpResponseClientRedirect(sign_in.url) if is_part else sign_in
    context: dict[str, Any] = {"typed": typed, "sign_in": sign_in.url}
    # A part of the page is swapped by htmx only if it comes with a good status; the form around
    # it still holds what was typed.
    name, status = ("_part", HTTPStatus.OK) if is_part else ("page", HTTPStatus.FORBIDDEN)
    response = render(request, f"quota_request/signed_out/{name}.html", context, status=status)
    if is_part and not aside:
        _put_above(response)
    add_never_cache_headers(response)
    return response


def _put_above(response: HttpResponse) -> None:
    response["HX-Retarget"] = "#main"
    response["HX-Reswap"] = "afterbegin show:window:top"


def page_of(request: HttpRequest, otherwise: str) -> str:
    """Return the page that a form stood on, as the browser tells it: one of this portal's own."""
    told = request.headers.get("HX-Current-URL") or request.headers.get("Referer") or ""
    host = {request.get_host()}
    if not url_has_allowed_host_and_scheme(told, host, require_https=request.is_secure()):
        return otherwise
    parts = urlsplit(told)
    return parts._replace(scheme="", netloc="", fragment="").geturl() or otherwise
