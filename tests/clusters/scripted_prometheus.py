"""An HTTP server on 127.0.0.1 that answers what a test tells it to, and notes what it was asked."""

import ssl
import threading
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qsl, urlencode

from msgspec import Struct, field

EMPTY = b'{"status":"success","data":{"resultType":"vector","result":[]}}'


class Asked(Struct, frozen=True):
    """A request as it came in."""

    method: str
    path: str
    headers: Mapping[str, str]
    form: Mapping[str, str]
    client: tuple[str, int]
    certificate: str = ""
    """The name in the client's certificate, of a server over TLS that asks for one."""


class Answer(Struct, frozen=True):
    """What to answer; `announced` is the Content-Length where it lies."""

    body: bytes = EMPTY
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    announced: int | None = None


Script = Callable[[Asked], Answer]


class ScriptedPrometheus(Struct):
    """A running server; `asked` grows with every request."""

    url: str
    asked: list[Asked] = field(default_factory=list)

    @property
    def connections(self) -> int:
        """From how many connections the requests came."""
        return len({one.client for one in self.asked})


def in_turn(*answers: Answer) -> Script:
    """Return the script that gives one answer after the other, the last one for ever."""
    left = list(answers)
    lock = threading.Lock()

    def script(_asked: Asked) -> Answer:
        with lock:
            return left.pop(0) if len(left) > 1 else left[0]

    return script


def forwarded(url: str, asked: Asked) -> bytes:
    """Return what a real server at `url` answers to the same request."""
    form = urlencode(asked.form).encode() if asked.method == "POST" else None
    request = urllib.request.Request(url + asked.path, form)  # noqa: S310 - a server of ours
    with urllib.request.urlopen(request) as response:  # noqa: S310 - a server of ours
        body: bytes = response.read()
    return body


@contextmanager
def scripted(script: Script, tls: ssl.SSLContext | None = None) -> Iterator[ScriptedPrometheus]:
    """Serve `script` until the context ends, over TLS where a context for it is given."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True  # head and body would wait for each other

        def do_POST(self) -> None:
            length = int(self.headers.get("Content-Length", 0))
            self._answer(dict(parse_qsl(self.rfile.read(length).decode())))

        def do_GET(self) -> None:
            self._answer({})

        def _answer(self, form: dict[str, str]) -> None:
            address = (str(self.client_address[0]), int(self.client_address[1]))
            headers = dict(self.headers.items())
            asked = Asked(self.command, self.path, headers, form, address, self._certificate())
            state.asked.append(asked)
            answer = script(asked)
            announced = len(answer.body) if answer.announced is None else answer.announced
            try:
                self.send_response_only(answer.status)
                for name, value in answer.headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(announced))
                self.end_headers()
                self.wfile.write(answer.body)
            except ConnectionError:
                self.close_connection = True
                return
            self.close_connection = announced != len(answer.body)

        def _certificate(self) -> str:
            shown = self.connection.getpeercert() if tls is not None else None
            return str(shown["subject"][0][0][1]) if shown else ""

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    scheme = "http" if tls is None else "https"
    state = ScriptedPrometheus(f"{scheme}://127.0.0.1:{server.server_port}")
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield state
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
