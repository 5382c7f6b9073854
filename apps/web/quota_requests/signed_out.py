"""Changes of who is signed out by now: what they had typed is given back, not thrown away."""

from collections.abc import Callable
from functools import wraps
from typing import Concatenate, ParamSpec, cast

from django.http import HttpRequest, HttpResponseBase

from apps.web.accounts.signed_out import given_back
from apps.web.components.links import href
from apps.web.pages import change
from apps.web.query_session import PageRequest
from apps.web.quota_requests.request_input import ask_href
from apps.web.quotas.keys import ref_in

Parts = ParamSpec("Parts")


def change_kept(
    view: Callable[Concatenate[PageRequest, Parts], HttpResponseBase],
) -> Callable[Concatenate[HttpRequest, Parts], HttpResponseBase]:
    """Make a view that changes something of a request, as `change` does.

    Who is signed out meanwhile comes back to the request, or to the form of its quota key; what
    htmx shows of it stands where the outlook would, beside the form.
    """
    changing = change(view)

    @wraps(changing)
    def wrapped(
        request: HttpRequest, *args: Parts.args, **kwargs: Parts.kwargs
    ) -> HttpResponseBase:
        if request.method != "POST" or request.user.is_authenticated:
            return changing(request, *args, **kwargs)
        return given_back(request, _form_of(request, kwargs.get("pk")), aside=True)

    return cast("Callable[Concatenate[HttpRequest, Parts], HttpResponseBase]", wrapped)


def _form_of(request: HttpRequest, pk: object) -> str:
    """Return the page where it goes on after the sign-in."""
    if pk is not None:
        return href("request", pk=str(pk)) or "/"
    ref = ref_in(request.POST.get("key", ""))
    return (ask_href(ref) if ref else href("requests")) or "/"
