"""What is told of each request: its id, its time by route, and an access line."""

import logging
import re
import secrets
import time
from collections.abc import Callable
from urllib.parse import quote

from django.conf import settings
from django.http import HttpRequest
from django.http.response import HttpResponseBase

from gpuportal.telemetry.logs import PROBES, REQUEST_ID
from gpuportal.telemetry.metrics import REQUEST_SECONDS, REQUESTS

access = logging.getLogger("gpuportal.access")
_METHODS = frozenset(("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"))
_ID = re.compile(r"[A-Za-z0-9._-]{8,64}")
_UNMEASURED = PROBES | {"/metrics"}


class RequestMiddleware:
    """Measure each request, give it an id, and write a line to the log where that is asked for.

    An id that a proxy gave (`X-Request-ID`) is kept; the answer has it too.
    """

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self._get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        given = request.headers.get("X-Request-ID", "")
        request_id = given if _ID.fullmatch(given) else secrets.token_hex(8)
        began = time.perf_counter()
        known = REQUEST_ID.set(request_id)
        try:
            response = self._get_response(request)
            self._note(request, response, time.perf_counter() - began)
        finally:
            REQUEST_ID.reset(known)
        response.headers["X-Request-ID"] = request_id
        return response

    def _note(self, request: HttpRequest, response: HttpResponseBase, seconds: float) -> None:
        if request.path_info in _UNMEASURED:
            return
        method = request.method if request.method in _METHODS else "other"
        match = request.resolver_match
        route = match.route if match else "none"
        REQUEST_SECONDS.labels(method, route).observe(seconds)
        REQUESTS.labels(method, route, response.status_code).inc()
        if settings.ACCESS_LOG:
            # The path alone: what is asked for may hold names. Quoted, or an end of line in it
            # would begin a line of the log that anybody may write.
            access.info(
                "%s %s %d",
                method,
                quote(request.path_info, safe="/:@!$&'()*+,;=~", errors="replace"),
                response.status_code,
                extra={
                    "method": method,
                    "path": request.path_info,
                    "route": route,
                    "status": response.status_code,
                    "seconds": round(seconds, 4),
                    "user": _user(request),
                },
            )


def _user(request: HttpRequest) -> int | None:
    """Return the id of who asked, where the session was read anyway."""
    user = getattr(request, "_cached_user", None)
    return getattr(user, "pk", None)
