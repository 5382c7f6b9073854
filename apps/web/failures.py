"""The page that takes the place of one that failed (Django's `handler500`)."""

import sys
from http import HTTPStatus

from django.db import InterfaceError, OperationalError
from django.http import HttpRequest, HttpResponse
from django.template.loader import render_to_string
from django.views import defaults

_RETRY_SECONDS = 10


def server_error(request: HttpRequest) -> HttpResponse:
    """Answer 503 where the database is away or too slow, 500 for a mistake of ours.

    Django calls it while it handles the exception.
    """
    # Only these are of the database itself: a wrong query is a mistake of ours.
    if not isinstance(sys.exc_info()[1], OperationalError | InterfaceError):
        return defaults.server_error(request)
    return HttpResponse(
        render_to_string("503.html"),
        status=HTTPStatus.SERVICE_UNAVAILABLE,
        headers={"Retry-After": str(_RETRY_SECONDS)},
    )
