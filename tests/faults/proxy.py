"""A loopback proxy that spoils, by a script, what passes between the portal and a cluster."""

import json
import socket
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from enum import StrEnum
from hashlib import sha256
from http.client import HTTPConnection, HTTPException, HTTPResponse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from random import Random
from typing import Any
from urllib.parse import urlsplit

from msgspec import Struct, field

_TIMEOUT_SECONDS = 60.0
_PASSED_ON = ("Content-Type", "Authorization", "Accept")


class Fault(StrEnum):
    """What may happen to one request; the last four change what an answer of Prometheus says."""

    REFUSED = "the connection is cut before any answer"
    HELD = "no answer comes until the client goes away"
    CUT_OFF = "half of the announced body, and the end of the connection"
    HALF = "half of the body, counted as if it were all of it"
    EMPTY = "200 without a body"
    HTML = "a page of a proxy with status 200"
    ERROR_PAGE = "a page of a proxy with status 502"
    STATUS_500 = "500 and a text"
    STATUS_429 = "429 with a time to wait"
    OTHER_JSON = "JSON of another API"
    DROPPED = "half of the series, with the warning of a store that is away"
    DROPPED_SILENTLY = "half of the series, and nothing said of it"
    DOUBLED = "every series twice"
    REORDERED = "the series in another order"


BODY_FAULTS = (
    *(Fault.REFUSED, Fault.CUT_OFF, Fault.HALF, Fault.EMPTY, Fault.HTML, Fault.ERROR_PAGE),
    *(Fault.STATUS_500, Fault.STATUS_429, Fault.OTHER_JSON),
)
HARMLESS = (Fault.DOUBLED, Fault.REORDERED)
"""Answers that say the same. No Prometheus sends a series twice; what merges several may."""

_PAGES: Mapping[Fault, tuple[int, str, bytes]] = {
    Fault.EMPTY: (200, "application/json", b""),
    Fault.HTML: (200, "text/html", b"<!doctype html><html><title>Sign in</title></html>"),
    Fault.ERROR_PAGE: (502, "text/html", b"<html><h1>502 Bad Gateway</h1></html>"),
    Fault.STATUS_500: (500, "text/plain", b"context deadline exceeded"),
    Fault.STATUS_429: (429, "text/plain", b"too many requests"),
    Fault.OTHER_JSON: (200, "application/json", b'{"databases": [], "message": "welcome"}'),
}


class Request(Struct, frozen=True):
    """A request as it came; `count` is how often this very request came before."""

    method: str
    path: str
    body: bytes
    count: int

    @property
    def is_query(self) -> bool:
        """Whether it asks Prometheus for series."""
        return urlsplit(self.path).path in {"/api/v1/query", "/api/v1/query_range"}


Script = Callable[[Request], Fault | None]
"""Says what happens to a request."""


def undisturbed(_: Request) -> Fault | None:
    """Let everything pass."""
    return None


Rewrite = Callable[[str, bytes, bytes], bytes]
"""Takes path and body of a request, and the body of the answer."""


class Spoiled(Struct, frozen=True):
    """A script of a seed: of the first `times` tries of each request, a `share` gets a fault.

    What happens to a request follows from the seed, its words and how often it came, so that it
    is the same however threads take turns.
    """

    seed: int
    faults: Sequence[Fault]
    share: float = 0.3
    times: int = 2
    only: Callable[[Request], bool] = lambda _: True

    def __call__(self, request: Request) -> Fault | None:
        if request.count >= self.times or not self.only(request):
            return None
        random = Random(_seed(self.seed, request))  # noqa: S311 - no secret
        return random.choice(self.faults) if random.random() < self.share else None


def _seed(seed: int, request: Request) -> bytes:
    words = f"{seed} {request.method} {request.path} {request.count} ".encode() + request.body
    return sha256(words).digest()


class Proxy(Struct):
    """What passes to `target`; `faults` counts what happened to it.

    `at` has what is done just before the n-th request is passed on, counted from 1; a fault that
    it returns happens to that one. `answered` has what is done once the target has answered the
    n-th, before its answer is passed back. `passed` has method and path of what the target got.
    `rewrite` returns the body to be passed back in place of a whole answer's own.
    """

    target: str
    url: str = ""
    script: Script = undisturbed
    at: dict[int, Callable[[], Fault | None]] = field(default_factory=dict)
    answered: dict[int, Callable[[], None]] = field(default_factory=dict)
    passed: list[tuple[str, str]] = field(default_factory=list)
    requests: int = 0
    faults: Counter[Fault] = field(default_factory=Counter)
    rewrite: Rewrite | None = None
    _seen: Counter[tuple[str, str, bytes]] = field(default_factory=Counter)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def begin(self, script: Script = undisturbed) -> None:
        """Forget what came, and follow a script from now on."""
        with self._lock:
            self.script, self.requests, self.rewrite = script, 0, None
            self.at.clear()
            self.answered.clear()
            self.passed.clear()
            self.faults.clear()
            self._seen.clear()

    def decide(
        self, method: str, path: str, body: bytes
    ) -> tuple[Fault | None, Callable[[], None] | None]:
        """Count a request; return what happens to it, and what is done once it is answered."""
        with self._lock:
            self.requests += 1
            act = self.at.pop(self.requests, None)
            then = self.answered.pop(self.requests, None)
            key = (method, path, body)
            request = Request(method, path, body, self._seen[key])
            self._seen[key] += 1
            fault = self.script(request)
            if fault in _OF_SERIES and not request.is_query:
                fault = None
            if fault is not None:
                self.faults[fault] += 1
        if act is not None:
            fault = act() or fault
        return fault, then


def _changed(body: bytes, fault: Fault) -> bytes:
    """Return an answer of Prometheus that says something else, or the same in another way."""
    answer: dict[str, Any] = json.loads(body)
    series = (answer.get("data") or {}).get("result")
    if not isinstance(series, list):
        return body
    if fault in {Fault.DROPPED, Fault.DROPPED_SILENTLY}:
        del series[1::2]
    elif fault is Fault.DOUBLED:
        series += series[::-1]
    else:
        series.reverse()
    if fault is Fault.DROPPED:
        answer["warnings"] = ["No StoreAPIs matched for this query"]
    return json.dumps(answer).encode()


_OF_SERIES = (Fault.DROPPED, Fault.DROPPED_SILENTLY, Fault.DOUBLED, Fault.REORDERED)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1
    proxy: Proxy

    def do_GET(self) -> None:
        self._pass()

    def do_POST(self) -> None:
        self._pass()

    def do_PATCH(self) -> None:
        self._pass()

    def _pass(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        fault, then = self.proxy.decide(self.command, self.path, body)
        if fault is Fault.REFUSED:
            self._cut()
        elif fault is Fault.HELD:
            self.connection.recv(1)  # returns once the client gave up
            self._cut()
        elif fault is not None and fault in _PAGES:
            self._send(*_PAGES[fault])
        else:
            self._forward(body, fault, then)

    def _forward(
        self, body: bytes, fault: Fault | None, then: Callable[[], None] | None = None
    ) -> None:
        connection = HTTPConnection(urlsplit(self.proxy.target).netloc, timeout=_TIMEOUT_SECONDS)
        headers = {name: self.headers[name] for name in _PASSED_ON if name in self.headers}
        try:
            connection.request(self.command, self.path, body=body or None, headers=headers)
            answer = connection.getresponse()
            self.proxy.passed.append((self.command, self.path))
            if then is not None:
                then()
            if answer.getheader("Transfer-Encoding") == "chunked":
                self._stream(answer, fault)
                return
            kind = answer.getheader("Content-Type") or ""
            found = answer.read()
            if self.proxy.rewrite is not None and answer.status == 200:
                found = self.proxy.rewrite(self.path, body, found)
            self._spoil(answer.status, kind, found, fault)
        except (OSError, HTTPException):
            self._cut()
        finally:
            connection.close()

    def _spoil(self, status: int, kind: str, body: bytes, fault: Fault | None) -> None:
        if fault in _OF_SERIES and fault is not None and status == 200:
            self._send(status, kind, _changed(body, fault))
        elif fault is Fault.HALF:
            self._send(status, kind, body[: len(body) // 2])
        elif fault is Fault.CUT_OFF:
            self._send(status, kind, body[: len(body) // 2], announced=len(body) + 1)
            self._cut()
        else:
            self._send(status, kind, body)

    def _stream(self, answer: HTTPResponse, fault: Fault | None) -> None:
        """Pass on a stream line by line; one that is spoiled ends in the middle of its first."""
        self.send_response(answer.status)
        self.send_header("Content-Type", answer.getheader("Content-Type") or "")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self.wfile.flush()
        while line := answer.readline():
            if fault is not None:
                self.wfile.write(b"%x\r\n%b" % (len(line), line[: len(line) // 2]))
                self._cut()
                return
            self.wfile.write(b"%x\r\n%b\r\n" % (len(line), line))
            self.wfile.flush()
        self.wfile.write(b"0\r\n\r\n")
        self.wfile.flush()

    def _send(self, status: int, kind: str, body: bytes, announced: int | None = None) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body) if announced is None else announced))
        if status == 429:
            self.send_header("Retry-After", "0")
        self.end_headers()
        self.wfile.write(body)
        self.wfile.flush()

    def _cut(self) -> None:
        """End the connection at once."""
        self.close_connection = True
        with suppress(OSError):
            self.wfile.flush()
            self.connection.shutdown(socket.SHUT_RDWR)

    def log_message(self, format: str, *args: object) -> None:
        """Stay quiet."""


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Stay quiet: clients that go away are what this is for."""


@contextmanager
def proxy(target: str) -> Iterator[Proxy]:
    """Yield a proxy before `target` (scheme, host and port) on a free port of 127.0.0.1."""
    made = Proxy(target)
    handler = type("_OfThisProxy", (_Handler,), {"proxy": made})
    server = _Server(("127.0.0.1", 0), handler)
    made.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(
        target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True
    )
    thread.start()
    try:
        yield made
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
