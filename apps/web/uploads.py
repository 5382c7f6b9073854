"""Forms that carry a file: what is too large is refused before anything of it is read."""

from collections.abc import Callable
from functools import wraps
from http import HTTPStatus

from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.views.decorators.csrf import csrf_exempt, csrf_protect

FORM_BYTES = 64 * 1024
"""What a form has beside its file."""
View = Callable[[HttpRequest], HttpResponseBase]


def at_most(most_bytes: int, reason: Callable[[int], str]) -> Callable[[View], View]:
    """Return a decorator of a form's view: larger ones are refused, with the reason of a length.

    The token of the form is checked all the same, after its length.
    """

    def decorate(view: View) -> View:
        # Not by the middleware: to find the token it would read the whole form first.
        protected = csrf_protect(view)

        @csrf_exempt
        @wraps(view)
        def wrapped(request: HttpRequest) -> HttpResponseBase:
            written = request.META.get("CONTENT_LENGTH") or ""
            # Without a length the server gives the view an empty form, so nothing is read of it.
            length = int(written) if written.isdigit() else 0
            if request.method == "POST" and length > most_bytes + FORM_BYTES:
                return HttpResponse(
                    reason(length),
                    status=HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
                    content_type="text/plain; charset=utf-8",
                )
            return protected(request)

        return wrapped

    return decorate
