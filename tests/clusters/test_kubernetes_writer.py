"""The clients through which quotas are changed: each request once, and its fate told exactly."""

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from apps.clusters.adapters.kubernetes.writer import KubernetesWriter
from apps.clusters.gateways import quota_writer
from apps.clusters.models import Cluster
from apps.clusters.ports import Reply, SourceRejected, Unanswered

PATH = "/api/v1/namespaces/vision/resourcequotas/gpu"
PATCH = b'[{"op":"test","path":"/a","value":1}]'
Talk = Callable[[socket.socket, bytes], None]


@contextmanager
def server(talk: Talk) -> Iterator[tuple[int, list[bytes]]]:
    """Take connections one after the other and hand what came first on each to `talk`."""
    asked: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as listening:
        stopping = threading.Event()

        def serve() -> None:
            while True:
                connection, _ = listening.accept()
                with connection:
                    if stopping.is_set():
                        return
                    connection.settimeout(10)
                    request = _read(connection)
                    if request:
                        asked.append(request)
                        talk(connection, request)

        thread = threading.Thread(target=serve)
        thread.start()
        port = listening.getsockname()[1]
        try:
            yield port, asked
        finally:
            stopping.set()
            socket.create_connection(("127.0.0.1", port)).close()
            thread.join(20)


def _read(connection: socket.socket) -> bytes:
    """Read a request: its head, and as much of a body as the head says."""
    content = b""
    while b"\r\n\r\n" not in content:
        part = connection.recv(65536)
        if not part:
            return content
        content += part
    head, _, body = content.partition(b"\r\n\r\n")
    length = next(
        (int(line.split(b":")[1]) for line in head.split(b"\r\n") if b"ength:" in line), 0
    )
    while len(body) < length:
        body += connection.recv(65536)
    return head + b"\r\n\r\n" + body


def answering(status: str, body: bytes, *headers: str) -> Talk:
    def talk(connection: socket.socket, request: bytes) -> None:
        lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", "Connection: close"]
        connection.sendall("\r\n".join([*lines, *headers, "", ""]).encode() + body)

    return talk


def send(port: int, *, scheme: str = "http", read_seconds: float = 5.0) -> Reply:
    entry = {"api_server": f"{scheme}://127.0.0.1:{port}"}
    writer = KubernetesWriter.from_config(entry)
    quick = KubernetesWriter(writer._clients, connect_seconds=2.0, read_seconds=read_seconds)
    try:
        return quick.send(
            "PATCH",
            PATH,
            query={"fieldManager": "gpuportal", "dryRun": "All"},
            headers={"Content-Type": "application/json-patch+json", "Accept": "application/json"},
            body=PATCH,
        )
    finally:
        quick.close()


def test_a_patch_leaves_as_it_was_made() -> None:
    with server(answering("200 OK", b'{"kind":"ResourceQuota"}')) as (port, asked):
        assert send(port) == Reply(200, {"kind": "ResourceQuota"})
    (request,) = asked
    head, _, body = request.partition(b"\r\n\r\n")
    assert head.startswith(f"PATCH {PATH}?fieldManager=gpuportal&dryRun=All HTTP".encode())
    assert b"Content-Type: application/json-patch+json" in head
    assert body == PATCH


@pytest.mark.parametrize(
    ("status", "body", "headers", "reply"),
    [
        pytest.param("409 Conflict", b'{"code":409}', (), Reply(409, {"code": 409}), id="409"),
        pytest.param(
            "429 Too Many Requests", b"{}", ("Retry-After: 7",), Reply(429, {}, "7"), id="429"
        ),
        pytest.param(
            "200 OK",
            b"{}",
            ('Warning: 299 - "old"', 'Warning: 299 - "above the nodes"'),
            Reply(200, {}, warnings=('299 - "old"', '299 - "above the nodes"')),
            id="warnings",
        ),
        pytest.param("502 Bad Gateway", b"<html>", (), Reply(502, None), id="a proxy's page"),
        pytest.param("200 OK", b"[" * 100_000, (), Reply(200, None), id="endless depth"),
        pytest.param("200 OK", b"\xff\xfe", (), Reply(200, None), id="no text"),
        pytest.param(
            "307 Moved", b"", ("Location: http://127.0.0.1:9/",), Reply(307, None), id="redirect"
        ),
    ],
)
def test_every_answer_is_handed_on_and_nothing_is_sent_again(
    status: str, body: bytes, headers: tuple[str, ...], reply: Reply
) -> None:
    with server(answering(status, body, *headers)) as (port, asked):
        assert send(port) == reply
    assert len(asked) == 1


def hang_up(connection: socket.socket, request: bytes) -> None:
    """End the connection without an answer."""


def half(connection: socket.socket, request: bytes) -> None:
    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{")


@pytest.mark.parametrize("talk", [hang_up, half])
def test_a_broken_answer_is_a_lost_one_and_is_not_sent_again(talk: Talk) -> None:
    with server(talk) as (port, asked):
        assert send(port) == Reply(unanswered=Unanswered.LOST)
    assert len(asked) == 1


def test_a_server_that_stays_silent_is_a_lost_answer() -> None:
    heard = threading.Event()

    def wait(connection: socket.socket, request: bytes) -> None:
        assert heard.wait(20)

    with server(wait) as (port, asked):
        assert send(port, read_seconds=0.2) == Reply(unanswered=Unanswered.LOST)
        heard.set()
    assert len(asked) == 1


def test_nobody_who_listens_means_that_nothing_was_sent() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
    assert send(port) == Reply(unanswered=Unanswered.UNSENT)


def test_a_credential_that_cannot_be_had_means_that_nothing_was_sent() -> None:
    writer = KubernetesWriter.from_config({"api_server": "http://127.0.0.1:9"})

    def refresh(configuration: object) -> None:
        raise OSError("no token file")

    writer._clients.current().configuration.refresh_api_key_hook = refresh
    writer._clients.current().configuration.api_key["BearerToken"] = "old"
    reply = writer.send("GET", PATH, query={}, headers={})
    assert reply == Reply(unanswered=Unanswered.UNSENT)


def test_a_token_that_no_header_can_carry_is_not_raised() -> None:
    with server(answering("200 OK", b"{}")) as (port, asked):
        writer = KubernetesWriter.from_config({"api_server": f"http://127.0.0.1:{port}"})
        writer._clients.current().configuration.api_key["BearerToken"] = "one\nline: more"
        reply = writer.send("PATCH", PATH, query={}, headers={}, body=PATCH)
    assert reply == Reply(unanswered=Unanswered.UNSENT)
    assert asked == []


def test_what_a_cluster_has_no_writer_for_is_not_written_with_the_readers_account() -> None:
    entry = {"api_server": "http://127.0.0.1:9"}
    assert quota_writer(Cluster(name="a", kubernetes=entry)) is None
    assert quota_writer(Cluster(name="a")) is None
    found = quota_writer(Cluster(name="a", kubernetes={**entry, "writer": entry}))
    assert isinstance(found, KubernetesWriter)
    with pytest.raises(SourceRejected, match="must have kubeconfig"):
        quota_writer(Cluster(name="a", kubernetes={"writer": {"context": "x"}}))
