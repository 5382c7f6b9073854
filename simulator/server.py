"""Serves both APIs of the lab on one loopback port.

Prometheus' `/api/v1/query...` and Kubernetes' `/api/v1/...` share a prefix and nothing else: what
is not exactly a path of Prometheus is asked of Kubernetes.
"""

import email.utils
import sys
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from simulator.clock import Clock
from simulator.kubernetes.api import KubernetesApi
from simulator.kubernetes.status import not_allowed
from simulator.prometheus.api import PrometheusApi
from simulator.prometheus.signals import Signals
from simulator.responses import Response, Stream, text_response
from simulator.scenarios.base import Scenario

HOST = "127.0.0.1"
_MOST_BODY = 1_000_000


class LabServer(ThreadingHTTPServer):
    """Serves one scenario; `port` 0 takes a free one."""

    daemon_threads = True

    def __init__(self, scenario: Scenario, clock: Clock, *, port: int = 0) -> None:
        super().__init__((HOST, port), _Handler)
        self.clock = clock
        self.prometheus = PrometheusApi(Signals(scenario), clock)
        self.kubernetes = KubernetesApi(scenario, clock)

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.server_address[1]}"

    def stop(self) -> None:
        """End `serve_forever` and every open watch; call from another thread."""
        self.clock.close()
        self.shutdown()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of clients that went away; let everything else be seen."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    server: LabServer
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1

    def do_GET(self) -> None:
        self._respond({})

    def do_POST(self) -> None:
        body = self._body()
        if body is None:
            return
        kind = self.headers.get("Content-Type", "").partition(";")[0]
        if kind == "application/json":
            self._write(body)
            return
        form = body.decode("utf-8", "replace")
        self._respond(parse_qs(form, keep_blank_values=True))

    def do_PUT(self) -> None:
        self._change()

    def do_PATCH(self) -> None:
        self._change()

    def do_DELETE(self) -> None:
        self._change()

    def _change(self) -> None:
        body = self._body()
        if body is not None:
            self._write(body)

    def _body(self) -> bytes | None:
        """Return what was sent; None when it is too much, which has been answered then."""
        length = self.headers.get("Content-Length", "0")
        if not length.isdecimal() or int(length) > _MOST_BODY:
            self.close_connection = True
            self._send(text_response("request body too large or of unknown length\n", 413))
            return None
        return self.rfile.read(int(length))

    def _write(self, body: bytes) -> None:
        parts = urlsplit(self.path)
        query = parse_qs(parts.query, keep_blank_values=True)
        kind = self.headers.get("Content-Type", "")
        path = unquote(parts.path)
        self._send(self.server.kubernetes.write(self.command, path, query, kind, body))

    def _respond(self, form: Mapping[str, list[str]]) -> None:
        parts = urlsplit(self.path)
        path = unquote(parts.path)
        query = parse_qs(parts.query, keep_blank_values=True)
        found = self.server.prometheus.answer(path, {**query, **form})
        if found is None and self.command == "POST":
            found = not_allowed()
        answer = found or self.server.kubernetes.answer(path, query)
        if isinstance(answer, Stream):
            self._send_stream(answer)
        else:
            self._send(answer)

    def _send(self, answer: Response) -> None:
        self.send_response(answer.status)
        self.send_header("Content-Type", answer.content_type)
        self.send_header("Content-Length", str(len(answer.body)))
        self.end_headers()
        self.wfile.write(answer.body)
        self.wfile.flush()

    def _send_stream(self, stream: Stream) -> None:
        self.send_response(200)
        self.send_header("Content-Type", stream.content_type)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self.wfile.flush()
        for line in stream.chunks:
            self.wfile.write(b"%x\r\n%b\r\n" % (len(line), line))
            self.wfile.flush()
        self.wfile.write(b"0\r\n\r\n")
        self.wfile.flush()

    def date_time_string(self, timestamp: float | None = None) -> str:
        """Date answers by the lab's clock, so that a pinned lab always sends the same bytes."""
        seconds = self.server.clock.now_ms() / 1000 if timestamp is None else timestamp
        return email.utils.formatdate(seconds, usegmt=True)

    def version_string(self) -> str:
        return "gpuportal-lab"

    def log_message(self, format: str, *args: object) -> None:
        """Keep quiet: a portal asks many times a minute."""
