"""A loopback proxy that holds requests back until it is opened, or spoils what comes back."""

import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

_TIMEOUT_SECONDS = 60.0

Answer = tuple[int, str, bytes]
"""Status, content type, body."""


class Gate:
    """Forwards requests to `target` while open; `knocked` is set once one had to wait.

    `spoil` gets the form that was posted and the target's answer, and gives the answer to send.
    """

    def __init__(self, target: str) -> None:
        self.target = target
        self.opened = threading.Event()
        self.knocked = threading.Event()
        self.url = ""
        self.spoil: Callable[[bytes, Answer], Answer] = lambda _, answer: answer

    def forward(self, method: str, path: str, body: bytes, content_type: str) -> Answer:
        """Return the target's answer, spoilt."""
        return self.spoil(body, self._answer(method, path, body, content_type))

    def _answer(self, method: str, path: str, body: bytes, content_type: str) -> Answer:
        url = self.target + path
        request = urllib.request.Request(url, data=body or None, method=method)  # noqa: S310 - loopback
        if content_type:
            request.add_header("Content-Type", content_type)
        try:
            with urllib.request.urlopen(request, timeout=_TIMEOUT_SECONDS) as answer:  # noqa: S310
                return answer.status, "application/json", answer.read()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, "application/json", error.read()
        except urllib.error.URLError as error:
            return 502, "text/plain", str(error.reason).encode()


@contextmanager
def gate(target: str, *, opened: bool = False) -> Iterator[Gate]:
    """Yield a gate before `target` (scheme, host and port) on a free port of 127.0.0.1."""
    made = Gate(target)
    if opened:
        made.opened.set()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True  # head and body would wait for each other

        def do_GET(self) -> None:
            self._pass()

        def do_POST(self) -> None:
            self._pass()

        def _pass(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            if not made.opened.is_set():
                made.knocked.set()
                made.opened.wait(_TIMEOUT_SECONDS)
            kind = self.headers.get("Content-Type") or ""
            status, kind, answer = made.forward(self.command, self.path, body, kind)
            try:
                self.send_response(status)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)
            except (BrokenPipeError, ConnectionResetError):
                self.close_connection = True

        def log_message(self, format: str, *args: object) -> None:
            """Stay quiet."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    made.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield made
    finally:
        made.opened.set()
        server.shutdown()
        server.server_close()
        thread.join()
