"""An API server on 127.0.0.1 with one object that can be read and patched, and with troubles.

A JSON patch is taken as the real server takes it: whole or not at all, and a test that does not
hold is a 422 without a cause. What else it answers is recorded from a real server.
"""

import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.client import HTTPConnection, HTTPException
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

from msgspec import Struct, field

from apps.quota_requests.domain.execution.kube_requests import (
    JSON_PATCH,
    KubeRequest,
    NoAnswer,
    ServerAnswer,
    answer_of,
)
from tests.quota_requests.json_patches import PatchFailed, patched

NOT_FOUND = {"kind": "Status", "message": "not found", "reason": "NotFound", "code": 404}
TEST_FAILED = {
    "kind": "Status",
    "apiVersion": "v1",
    "metadata": {},
    "status": "Failure",
    "message": "the server rejected our request due to an error in our request",
    "reason": "Invalid",
    "details": {},
    "code": 422,
}


class Trouble(Struct, frozen=True):
    """What befalls one patch: an answer (`status` 0: the connection breaks), `writes` first."""

    status: int = 0
    body: Any = None
    writes: bool = False


class QuotaApi(Struct):
    """The object (None: gone), the troubles still to come, and what was asked.

    `others` is what can be read beside it, by path, as the versions that discovery tells.
    """

    path: str
    live: dict[str, Any] | None
    troubles: list[Trouble] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)
    writes: int = 0
    port: int = 0
    others: dict[str, Any] = field(default_factory=dict)

    def patch(self, query: Mapping[str, list[str]], body: bytes) -> tuple[int, Any]:
        """Take a patch; the first trouble befalls the first that is no dry run."""
        dry_run = query.get("dryRun") == ["All"]
        if dry_run or not self.troubles:
            return self._write(body, dry_run=dry_run)
        trouble = self.troubles.pop(0)
        if trouble.writes:
            self._write(body, dry_run=False)
        return trouble.status, trouble.body

    def _write(self, body: bytes, *, dry_run: bool) -> tuple[int, Any]:
        if self.live is None:
            return 404, NOT_FOUND
        try:
            after = patched(self.live, json.loads(body))
        except PatchFailed:
            return 422, TEST_FAILED
        if not dry_run:
            self.live = after
            self.writes += 1
        return 200, after


@contextmanager
def serving(path: str, live: dict[str, Any] | None, *troubles: Trouble) -> Iterator[QuotaApi]:
    """Serve the object until the block ends."""
    api = QuotaApi(path, live, list(troubles))

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            other = api.others.get(urlsplit(self.path).path)
            if other is not None:
                self._answer(200, other)
                return
            self._answer(*((200, api.live) if self._found() and api.live else (404, NOT_FOUND)))

        def do_PATCH(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            assert self.headers["Content-Type"] == JSON_PATCH
            query = parse_qs(urlsplit(self.path).query)
            assert query["fieldManager"] == ["gpuportal"]
            self._answer(*(api.patch(query, body) if self._found() else (404, NOT_FOUND)))

        def _found(self) -> bool:
            parts = urlsplit(self.path)
            api.asked.append(self.command + (" dry" if "dryRun" in parts.query else ""))
            return parts.path == api.path

        def _answer(self, status: int, body: Any) -> None:
            if not status:
                self.close_connection = True
                return
            content = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            """Stay silent."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        api.port = server.server_address[1]
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield api
        finally:
            server.shutdown()
            thread.join()


def send(port: int, request: KubeRequest) -> tuple[ServerAnswer, Any]:
    """Send a request and return its answer and body, as the portal's adapter does."""
    connection = HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        try:
            connection.connect()
        except OSError:
            return ServerAnswer(silence=NoAnswer.UNSENT), None
        target = f"{request.path}?{urlencode(request.query)}" if request.query else request.path
        try:
            connection.request(request.method, target, request.body, dict(request.headers))
            response = connection.getresponse()
            body = json.loads(response.read())
        except (OSError, HTTPException, ValueError):
            return ServerAnswer(silence=NoAnswer.LOST), None
        return answer_of(response.status, body, retry_after=response.getheader("Retry-After")), body
    finally:
        connection.close()
