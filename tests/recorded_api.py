"""An HTTP server on 127.0.0.1 that replays recorded answers of an API server, or bad ones."""

import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

import msgspec
from msgspec import Struct, field

RECORDED = Path(__file__).parent / "recordings"
RECORDINGS = RECORDED / "kube-1.36.2"
KUEUE, VOLCANO = RECORDED / "kueue-v0.19", RECORDED / "volcano"
JSON = "application/json"

# Where the lists of a recording belong, by the name of their file.
_BASES = {
    "/api/v1": ("pods", "nodes", "namespaces", "events", "resourcequotas"),
    "/apis/apps/v1": ("replicasets", "statefulsets", "deployments"),
    "/apis/batch/v1": ("jobs",),
    "/apis/resource.k8s.io/v1": (
        *("deviceclasses", "resourceslices", "resourceclaims", "resourceclaimtemplates"),
    ),
}
_KUEUE_PLURALS = ("workloads", "clusterqueues", "localqueues", "cohorts", "resourceflavors")


def recorded(name: str) -> bytes:
    """Return the body recorded under `name`, as `lists/pods.json`."""
    return (RECORDINGS / name).read_bytes()


def group_document(name: str, *versions: str) -> bytes:
    """Return an API group's document as a server gives it."""
    served = [{"groupVersion": f"{name}/{v}", "version": v} for v in versions]
    return msgspec.json.encode({"kind": "APIGroup", "name": name, "versions": served})


def list_bodies(
    recording: Path = RECORDINGS, *, kueue: Sequence[str] = ("v1beta2", "v1beta1")
) -> dict[str, bytes]:
    """Return the bodies of a recording's lists by path, with the groups that these are of.

    `kueue` are the versions that are served of its group.
    """
    files = {
        f"{base}/{plural}": f"{plural}.json" for base, names in _BASES.items() for plural in names
    }
    groups = {"resource.k8s.io": ("v1",), "kueue.x-k8s.io": tuple(kueue)}
    for version in kueue:
        for plural in _KUEUE_PLURALS:
            files[f"/apis/kueue.x-k8s.io/{version}/{plural}"] = f"kueue-{version}-{plural}.json"
    groups["scheduling.volcano.sh"] = ("v1beta1",)
    for plural in ("podgroups", "queues"):
        files[f"/apis/scheduling.volcano.sh/v1beta1/{plural}"] = f"volcano-{plural}.json"
    lists = recording / "lists"
    if (lists / "volcano-pods.json").exists():
        files["/api/v1/pods"] = "volcano-pods.json"
    found = {p: (lists / f).read_bytes() for p, f in files.items() if (lists / f).exists()}
    for name, versions in groups.items():
        for version in versions:
            base = f"/apis/{name}/{version}"
            plurals = [path.rpartition("/")[2] for path in found if path.startswith(f"{base}/")]
            if plurals:
                found[base] = msgspec.json.encode({"resources": [{"name": one} for one in plurals]})
                found[f"/apis/{name}"] = group_document(name, *versions)
    # Every server has these, whether the recording kept them or not.
    for path in ("/api/v1/nodes", "/api/v1/namespaces", "/api/v1/pods"):
        found.setdefault(path, b'{"kind":"List","metadata":{"resourceVersion":"1"},"items":[]}')
    return found


def list_answers(
    bodies: Mapping[str, bytes], *, denied: Collection[str] = ()
) -> Callable[["Request"], "Answer"]:
    """Return who answers with these bodies; `denied` are plurals that nobody may list."""

    def answer(request: "Request") -> "Answer":
        if request.path.rpartition("/")[2] in denied:
            return Answer(_forbidden(request.path), 403)
        body = bodies.get(request.path)
        return Answer(b"404 page not found", 404) if body is None else Answer(body)

    return answer


def _forbidden(path: str) -> bytes:
    plural = path.rpartition("/")[2]
    return recorded("errors/403-sa-nodes.json").replace(b"nodes", plural.encode())


class Answer(Struct, frozen=True):
    """What the server sends. `cut` ends the body in the middle, as a broken connection does.

    `held` keeps a streamed answer open until that event is set.
    """

    body: bytes = b""
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=lambda: {"Content-Type": JSON})
    cut: bool = False
    stream: bool = False
    held: threading.Event | None = None


class Request(Struct, frozen=True):
    """What was asked."""

    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes = b""


class RecordedApi(Struct):
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
