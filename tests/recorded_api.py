"""An HTTP server on 127.0.0.1 that replays recorded answers of an API server, or bad ones."""

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

RECORDINGS = Path(__file__).parent / "recordings" / "kube-1.36.2"
JSON = "application/json"


def recorded(name: str) -> bytes:
    """Return the body recorded under `name`, as `lists/pods.json`."""
    return (RECORDINGS / name).read_bytes()


@dataclass(frozen=True, slots=True)
class Answer:
    """What the server sends. `cut` ends the body in the middle, as a broken connection does.

    `held` keeps a streamed answer open until that event is set.
    """

    body: bytes = b""
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=lambda: {"Content-Type": JSON})
    cut: bool = False
    stream: bool = False
    held: threading.Event | None = None


@dataclass(frozen=True, slots=True)
class Request:
    """What was asked."""

    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes = b""


@dataclass(slots=True)
class RecordedApi:
    """The server's address and what it was asked so far."""

    url: str
    requests: list[Request] = field(default_factory=list)

    def asked(self, path: str) -> list[Mapping[str, str]]:
        """Return the queries of all requests for a path, in order."""
        return [request.query for request in self.requests if request.path == path]


@contextmanager
def serving(answer: Callable[[Request], Answer]) -> Iterator[RecordedApi]:
    """Serve what `answer` says for each request until the block ends."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True  # head and body would wait for each other

        def do_GET(self) -> None:
            parts = urlsplit(self.path)
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            query = dict(parse_qsl(parts.query))
            request = Request(parts.path, query, dict(self.headers), body)
            api.requests.append(request)
            self._send(answer(request))

        def _send(self, reply: Answer) -> None:
            self.send_response(reply.status)
            for name, value in reply.headers.items():
                self.send_header(name, value)
            if reply.stream:
                self._stream(reply)
                return
            self.send_header("Content-Length", str(len(reply.body) + (100 if reply.cut else 0)))
            self.end_headers()
            self.wfile.write(reply.body)
            self.close_connection = self.close_connection or reply.cut

        def _stream(self, reply: Answer) -> None:
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            # Chunks that end in the middle of lines, as real ones do.
            for start in range(0, len(reply.body), 1000):
                part = reply.body[start : start + 1000]
                self.wfile.write(b"%x\r\n%s\r\n" % (len(part), part))
            self.wfile.flush()
            if reply.held is not None:
                reply.held.wait(30)
            if reply.cut:
                self.close_connection = True
                return
            self.wfile.write(b"0\r\n\r\n")

        def log_message(self, *args: object) -> None:
            """Say nothing: a test's output is for its failures."""

    Handler.do_POST = Handler.do_GET  # type: ignore[attr-defined]
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    api = RecordedApi(url=f"http://127.0.0.1:{server.server_address[1]}")
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield api
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
