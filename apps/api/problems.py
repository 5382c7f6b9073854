"""Errors as RFC 9457 problem documents, each with a detail that a person can act on."""

import logging
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from math import ceil
from typing import Any

import msgspec
from django.core.exceptions import (
    DisallowedHost,
    PermissionDenied,
    RequestDataTooBig,
    SuspiciousOperation,
    TooManyFieldsSent,
)
from django.db import Error, InterfaceError, OperationalError
from django.http import Http404, HttpRequest, HttpResponse
from django.views import defaults
from msgspec import Struct
from rest_framework import exceptions
from rest_framework.renderers import BaseRenderer
from rest_framework.response import Response

from apps.accounts.permissions import NotAllowed
from apps.usage.selectors import CursorRefused, GroupingRefused, NamesUnknown
from gpuportal.replica import is_reading_replica


def _text(value: object) -> str:
    """Return what JSON has no type for as text; Django's marked strings as the plain ones."""
    return str.__str__(value) if isinstance(value, str) else str(value)


_encode = msgspec.json.Encoder(enc_hook=_text).encode


class ProblemOrJSONRenderer(BaseRenderer):
    """Render JSON with msgspec; a problem document sets its own media type."""

    media_type = "application/json"
    format = "json"
    charset = None
    render_style = "binary"

    def render(
        self,
        data: Any,
        accepted_media_type: str | None = None,
        renderer_context: Mapping[str, Any] | None = None,
    ) -> bytes:
        """Return `data` as UTF-8 bytes; an answer without data is empty."""
        return b"" if data is None else _encode(data)


MEDIA_TYPE = "application/problem+json"
API_ROOT = "/api/"
_RETRY_SECONDS = 10

logger = logging.getLogger("django.request")

_TOO_MANY = "Too many parameters: give several names in one parameter, separated by commas."
_TOO_LARGE = "The body is larger than anything that can be said here."
_ONLY_JSON = "Send JSON, with the header 'Content-Type: application/json'."
_FOREIGN_HOST = (
    "The portal does not answer under the name in this request's Host header: ask under one that "
    "GPUPORTAL_ALLOWED_HOSTS names."
)
_DETAILS = {
    HTTPStatus.BAD_REQUEST: "The request is not one that the portal can read.",
    HTTPStatus.UNAUTHORIZED: (
        "Sign in, or send the header 'Authorization: Token …' with a token that "
        "`manage.py issue_token USER` printed."
    ),
    HTTPStatus.FORBIDDEN: "Your role does not allow this.",
    HTTPStatus.NOT_FOUND: "There is nothing here: /api/v1/ lists the endpoints.",
    HTTPStatus.INTERNAL_SERVER_ERROR: (
        "The portal made a mistake; it is written in the log of the web process. "
        "Trying again may help."
    ),
    HTTPStatus.SERVICE_UNAVAILABLE: (
        f"The database does not answer: try again in {_RETRY_SECONDS} seconds."
    ),
}


class Problem(Struct, frozen=True):
    """What a problem document says; `errors` maps a parameter to what is wrong with it."""

    status: HTTPStatus
    detail: str
    errors: Mapping[str, Sequence[str]] | None = None
    headers: Mapping[str, str] | None = None

    def body(self, instance: str) -> dict[str, Any]:
        """Return the document; `instance` is the address that was asked for."""
        body: dict[str, Any] = {
            "type": "about:blank",
            "title": self.status.phrase,
            "status": int(self.status),
            "detail": self.detail,
            "instance": instance,
        }
        if self.errors:
            body["errors"] = self.errors
        return body

    def response(self, instance: str) -> Response:
        """Return the answer of a view."""
        return Response(
            self.body(instance),
            status=int(self.status),
            headers=self.headers,
            content_type=MEDIA_TYPE,
        )


class InvalidParameters(exceptions.ValidationError):
    """Parameters that cannot be understood or had together; maps each to its texts."""

    def __init__(self, errors: Mapping[str, Sequence[str]]) -> None:
        super().__init__({name: list(texts) for name, texts in errors.items()})


def handle(error: Exception, context: Mapping[str, Any]) -> Response | None:
    """Turn any exception of a view into a problem document (DRF's EXCEPTION_HANDLER).

    None for an error of the replica, which is raised: the primary is asked instead.
    """
    if isinstance(error, Error) and is_reading_replica():
        return None
    request = context["request"]
    problem = problem_of(error)
    # Refusals are for the client; only mistakes of the portal belong in its log.
    if problem.status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        logger.error(
            "%s: %s",
            problem.status.phrase,
            request.path,
            exc_info=error,
            extra={"status_code": int(problem.status), "request": request},
        )
    return problem.response(request.get_full_path())


def bad_request(request: HttpRequest, exception: Exception) -> HttpResponse:
    """Answer a request that was refused before any view saw it (Django's `handler400`).

    Under /api/ with a problem document, elsewhere with the page.
    """
    # By path: the host is refused before addresses are resolved.
    if not request.path_info.startswith(API_ROOT):
        return defaults.bad_request(request, exception)
    problem = _plain(HTTPStatus.BAD_REQUEST)
    if isinstance(exception, DisallowedHost):
        problem = Problem(HTTPStatus.BAD_REQUEST, _FOREIGN_HOST)
    body = ProblemOrJSONRenderer().render(problem.body(request.get_full_path()))
    return HttpResponse(body, status=int(problem.status), content_type=MEDIA_TYPE)


def problem_of(error: Exception) -> Problem:
    """Return the problem that an exception stands for; an unknown one is a mistake of ours."""
    match error:
        case exceptions.APIException():
            return _of_api(error)
        case CursorRefused():
            return Problem(HTTPStatus.BAD_REQUEST, str(error), errors={"cursor": [str(error)]})
        case GroupingRefused():
            return Problem(HTTPStatus.BAD_REQUEST, str(error))
        case NamesUnknown():
            errors = {name: [text] for name, text in error.texts().items()}
            return Problem(HTTPStatus.BAD_REQUEST, str(error), errors=errors)
        case SuspiciousOperation():
            return _suspicious(error)
        case Http404():
            return _plain(HTTPStatus.NOT_FOUND)
        case PermissionDenied():
            return _forbidden(error)
        case OperationalError() | InterfaceError():
            return _plain(
                HTTPStatus.SERVICE_UNAVAILABLE, headers={"Retry-After": str(_RETRY_SECONDS)}
            )
        case _:
            return _plain(HTTPStatus.INTERNAL_SERVER_ERROR)


def _suspicious(error: SuspiciousOperation) -> Problem:
    """Return what was too much, where that is why Django did not read the request."""
    if isinstance(error, TooManyFieldsSent):
        return Problem(HTTPStatus.BAD_REQUEST, _TOO_MANY)
    if isinstance(error, RequestDataTooBig):
        return Problem(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, _TOO_LARGE)
    return _plain(HTTPStatus.BAD_REQUEST)


def _forbidden(error: PermissionDenied) -> Problem:
    """Return why, where our own rules said so."""
    if isinstance(error, NotAllowed):
        return Problem(HTTPStatus.FORBIDDEN, str(error))
    return _plain(HTTPStatus.FORBIDDEN)


def _plain(status: HTTPStatus, headers: Mapping[str, str] | None = None) -> Problem:
    return Problem(status, _DETAILS[status], headers=headers)


def _of_api(error: exceptions.APIException) -> Problem:
    status = HTTPStatus(error.status_code)
    headers = {}
    if challenge := getattr(error, "auth_header", None):
        headers["WWW-Authenticate"] = challenge
    if isinstance(error, exceptions.ValidationError):
        errors = _by_parameter(error.detail)
        texts = [f"{name}: {text}" for name, found in errors.items() for text in found]
        return Problem(status, " ".join(texts), errors=errors)
    if isinstance(error, exceptions.Throttled):
        # Rounded up: a client that is a moment early would be refused again.
        seconds = max(1, ceil(getattr(error, "wait", None) or 1))
        headers["Retry-After"] = str(seconds)
        return Problem(status, f"Too many requests: try again in {seconds} s.", headers=headers)
    if isinstance(error, exceptions.MethodNotAllowed):
        return Problem(status, f"{error.detail} Read with GET.", headers=headers)
    if isinstance(error, exceptions.UnsupportedMediaType):
        return Problem(status, f"{error.detail} {_ONLY_JSON}", headers=headers)
    own = _DETAILS.get(status)
    said = str(error.detail)
    # DRF's own words say nothing to do; what a view said itself stays.
    if own and said == str(error.default_detail):
        said = own
    return Problem(status, said, headers=headers)


def _by_parameter(detail: Any) -> dict[str, list[str]]:
    if not isinstance(detail, Mapping):
        detail = {"request": detail}
    return {
        str(name): [str(text) for text in (found if isinstance(found, list) else [found])]
        for name, found in detail.items()
    }
