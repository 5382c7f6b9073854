"""Where series are read: on a port of their own, and as `/metrics` on the web port with a token.

The port answers `/livez` too, from threads of its own: those that answer pages may all be blocked
by a slow database, and a blocked process must not be taken for dead.
"""

import hmac
import logging
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from http import HTTPStatus
from socketserver import ThreadingMixIn
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from django.conf import settings
from django.db import connections
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from gpuportal.telemetry.metrics import process_registry

logger = logging.getLogger(__name__)

Source = Callable[[], Iterable[Metric]]
_sources: list[Source] = []


def add_source(source: Source) -> None:
    """Add series that are read at each scrape of a web process."""
    if source not in _sources:
        _sources.append(source)


class _Sources(Collector):
    def collect(self) -> Iterator[Metric]:
        for source in _sources:
            yield from source()


def rendered(*, sources: bool) -> bytes:
    """Return the series of the process as text; with `sources` those of the whole portal too."""
    registry = CollectorRegistry()
    registry.register(process_registry())
    if sources:
        registry.register(_Sources())
    return generate_latest(registry)


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True


class _SharedServer(_Server):
    """One of several processes of a web server: any of them answers for all."""

    allow_reuse_port = True


class _Quiet(WSGIRequestHandler):
    # A silent client holds a thread and an open file.
    timeout = 10

    def handle(self) -> None:
        """Answer one request; who is too slow or gone is let go without a word."""
        with suppress(TimeoutError, ConnectionError):
            super().handle()

    def log_message(self, format: str, *args: Any) -> None:
        """Leave scrapes out of the log."""


def _may_read(authorization: str) -> bool:
    """Say whether the header of a request has the token."""
    wanted = f"Bearer {settings.METRICS_TOKEN}".encode()
    return hmac.compare_digest(authorization.encode(errors="replace"), wanted)


def serve(*, web: bool = False) -> None:
    """Answer on `GPUPORTAL_METRICS_PORT` from a thread; nothing where it is not set.

    Of web servers each process listens there, and the kernel picks one; they alone tell the series
    of the whole portal. With `GPUPORTAL_METRICS_TOKEN` they need the token here too. A port that is
    taken ends nothing: the log says so.
    """
    port = settings.METRICS_PORT
    if not port:
        return

    def answer(environ: dict[str, Any], start_response: Any) -> list[bytes]:
        if environ.get("PATH_INFO") == "/livez":
            start_response("200 OK", [("Content-Type", "text/plain; charset=utf-8")])
            return [b"ok\n"]
        if environ.get("PATH_INFO") not in {"/", "/metrics"}:
            start_response("404 Not Found", [])
            return [b""]
        if settings.METRICS_TOKEN and not _may_read(environ.get("HTTP_AUTHORIZATION", "")):
            start_response("401 Unauthorized", [("WWW-Authenticate", "Bearer")])
            return [b""]
        try:
            body = rendered(sources=web)
        finally:
            # Django closes the connections of requests, not those of this scrape's own thread.
            connections.close_all()
        start_response("200 OK", [("Content-Type", CONTENT_TYPE_LATEST)])
        return [body]

    kind = _SharedServer if web else _Server
    try:
        server = make_server(settings.METRICS_ADDRESS, port, answer, kind, _Quiet)
    except OSError as error:
        logger.error("metrics are not served on port %d: %s", port, error)  # noqa: TRY400
        return
    threading.Thread(target=server.serve_forever, name="metrics", daemon=True).start()


class MetricsMiddleware:
    """Answer `/metrics` to who has the token, before anything looks at the host or at TLS.

    Without `GPUPORTAL_METRICS_TOKEN` there is no such address.
    """

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self._get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        if request.path_info != "/metrics" or not settings.METRICS_TOKEN:
            return self._get_response(request)
        if not _may_read(request.headers.get("Authorization", "")):
            refused = HttpResponse("A token is needed.\n", status=HTTPStatus.UNAUTHORIZED)
            refused.headers["WWW-Authenticate"] = "Bearer"
            return refused
        response = HttpResponse(rendered(sources=True), content_type=CONTENT_TYPE_LATEST)
        response.headers["Cache-Control"] = "no-store"
        return response
