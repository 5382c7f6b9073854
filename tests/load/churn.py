"""An API server whose pods come and go, in a process of its own.

    python -m tests.load.churn PODS

Prints its port and serves so many pods. Each line `RATE SECONDS` of its input begins so many new
pods a second for so long; each of them goes after LIVED seconds.
"""

import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

import msgspec

from apps.accounts.domain.structs import replace
from tests.bench.api_server import PODS, pages
from tests.bench.fleet import GPUS_PER_NODE, Fleet
from tests.bench.kube_json import pod_object

LIVED_SECONDS = 10
UID = "churn-"
_FIRST_VERSION = 4_200_000
"""That of the bench's list."""
_BOOKMARK_SECONDS = 5.0


class Changes:
    """Lines of a watch in their order; readers wait for those that are not there yet."""

    def __init__(self, pods: int) -> None:
        fleet = Fleet(-(-pods // GPUS_PER_NODE) * GPUS_PER_NODE)
        self._pods = [(pod, node) for node in fleet.nodes for pod in node.pods if not pod.ended]
        self._lines: list[bytes] = []
        self._changed = threading.Condition()
        self._made = 0

    def run(self, rate: int, seconds: int, *, lived_seconds: int = LIVED_SECONDS) -> None:
        """Begin so many pods each second, and end each after it has lived."""
        began, alive = time.monotonic(), []
        for second in range(seconds + lived_seconds):
            time.sleep(max(0.0, began + second - time.monotonic()))
            if second < seconds:
                new = [self._pod() for _ in range(rate)]
                alive.append(new)
                self._add("ADDED", new)
            if second >= lived_seconds:
                self._add("DELETED", alive.pop(0))

    def after(self, version: int, seconds: float) -> Iterator[bytes]:
        """Yield the lines after a version, for so long."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            lines = self._lines_after(version, min(left, _BOOKMARK_SECONDS))
            version += len(lines)
            yield b"".join(lines) or bookmark(version)

    def _lines_after(self, version: int, seconds: float) -> list[bytes]:
        number = version - _FIRST_VERSION
        with self._changed:
            self._changed.wait_for(lambda: len(self._lines) > number, timeout=seconds)
            return self._lines[number:]

    def _pod(self) -> dict[str, Any]:
        pod, node = self._pods[self._made % len(self._pods)]
        self._made += 1
        now, uid = int(time.time()), f"{UID}{self._made}"
        fresh = replace(pod, uid=uid, name=uid, created=now, bound=now, started=now)
        return pod_object(fresh, node, 0)

    def _add(self, kind: str, pods: list[dict[str, Any]]) -> None:
        with self._changed:
            for pod in pods:
                version = _FIRST_VERSION + len(self._lines) + 1
                pod["metadata"]["resourceVersion"] = str(version)
                self._lines.append(msgspec.json.encode({"type": kind, "object": pod}) + b"\n")
            self._changed.notify_all()


def bookmark(version: int) -> bytes:
    """Return the line that says up to which version everything was told."""
    about = {"kind": "Pod", "apiVersion": "v1", "metadata": {"resourceVersion": str(version)}}
    return msgspec.json.encode({"type": "BOOKMARK", "object": about}) + b"\n"


def serve(pods: int) -> None:
    """Serve on a free port of 127.0.0.1 until standard input ends."""
    found, changes = pages(pods), Changes(pods)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def do_GET(self) -> None:
            parts = urlsplit(self.path)
            query = {key: values[0] for key, values in parse_qs(parts.query).items()}
            answers = found.get(parts.path)
            if answers is not None and "watch" in query:
                self._stream(parts.path, query)
                return
            body = b"{}" if answers is None else answers[int(query.get("continue", "0"))]
            self._head(404 if answers is None else 200, "Content-Length", str(len(body)))
            self.wfile.write(body)

        def _stream(self, path: str, query: dict[str, str]) -> None:
            self._head(200, "Transfer-Encoding", "chunked")
            seconds, version = float(query["timeoutSeconds"]), int(query["resourceVersion"])
            lines = changes.after(version, seconds) if path == PODS else _quiet(version, seconds)
            for part in lines:
                self.wfile.write(b"%x\r\n%s\r\n" % (len(part), part))
            self.wfile.write(b"0\r\n\r\n")

        def _head(self, status: int, name: str, value: str) -> None:
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header(name, value)
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    sys.stdout.write(f"{server.server_address[1]}\n")
    sys.stdout.flush()
    for line in sys.stdin:
        rate, seconds = map(int, line.split())
        changes.run(rate, seconds)
        sys.stdout.write("done\n")
        sys.stdout.flush()


def _quiet(version: int, seconds: float) -> Iterator[bytes]:
    until = time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0:
        time.sleep(min(left, _BOOKMARK_SECONDS))
        yield bookmark(version)


if __name__ == "__main__":
    serve(int(sys.argv[1]))
