"""Changes of who is signed out by now: what they had typed is given back, not thrown away."""

from collections.abc import Callable
from functools import wraps
from http import HTTPStatus
from typing import Any, Concatenate, ParamSpec, cast

from django.contrib.auth.views import redirect_to_login
from django.http import HttpRequest, HttpResponseBase
from django.shortcuts import render
from django.utils.cache import add_never_cache_headers

from apps.web.changes.asked import Place
from apps.web.links import href
from apps.web.pages import change
from apps.web.reading import PageRequest

Parts = ParamSpec("Parts")
_TYPED = {
    "before": "From",
    "after": "To",
    "reason": "Why",
    "needed_by": "Needed by",
    "until": "Until",
    "text": "What you said",
    "offer": "Counter-offer",
}
_LONGEST = 20_000


def change_kept(
    view: Callable[Concatenate[PageRequest, Parts], HttpResponseBase],
) -> Callable[Concatenate[HttpRequest, Parts], HttpResponseBase]:
    """Make a view that changes something, as `change` does, for a form that takes long to write.

    A session may end meanwhile: then nothing is done, and all that was typed is shown.
    """
    changing = change(view)

    @wraps(changing)
    def wrapped(
        request: HttpRequest, *args: Parts.args, **kwargs: Parts.kwargs
    ) -> HttpResponseBase:
        if request.method != "POST" or request.user.is_authenticated:
            return changing(request, *args, **kwargs)
        return _given_back(request, kwargs.get("pk"))

    return cast("Callable[Concatenate[HttpRequest, Parts], HttpResponseBase]", wrapped)


def _given_back(request: HttpRequest, pk: object) -> HttpResponseBase:
    sign_in = redirect_to_login(_form_of(request, pk))
    typed = [(label, request.POST.get(name, "")[:_LONGEST]) for name, label in _TYPED.items()]
    typed = [(label, text) for label, text in typed if text.strip()]
    if not typed:
        return sign_in
    context: dict[str, Any] = {"typed": typed, "sign_in": sign_in.url}
    # A part of the page is swapped by htmx only if it comes with a good status; the form around
    # it still holds what was typed.
    is_part = bool(request.headers.get("HX-Request"))
    name, status = ("_part", HTTPStatus.OK) if is_part else ("page", HTTPStatus.FORBIDDEN)
    response = render(request, f"request/signed_out/{name}.html", context, status=status)
    add_never_cache_headers(response)
    return response


def _form_of(request: HttpRequest, pk: object) -> str:
    """Return the page where it goes on after the sign-in."""
    if pk is not None:
        return href("request", pk=str(pk)) or "/"
    place = Place.of(request.POST.get("key", ""))
    found = href("new-request", [("key", place.text)]) if place else href("requests")
    return found or "/"
