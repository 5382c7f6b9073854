"""Credentials of Kubernetes that change while the portal runs: files, kubeconfigs and programs."""

import base64
import logging
import queue
import sys
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from apps.clusters.adapters.kubernetes.api import KubernetesApi
from apps.clusters.adapters.kubernetes.clients import Clients
from apps.clusters.adapters.kubernetes.writer import KubernetesWriter
from apps.clusters.domain.credentials import Credential
from apps.clusters.ports import Reply, SourceRejected, Unanswered
from apps.clusters.services.watch.collections import Item, Relisted
from apps.clusters.services.watch.streams import Stream
from tests.recorded_api import Answer, Request, recorded, serving

PODS = "/api/v1/pods"
NOW = datetime(2026, 11, 23, 8, tzinfo=UTC)
WATCH_MAY_PAUSE_SECONDS = 30.0


def bearer(request: Request) -> str:
    """Return what follows `Bearer` in a request."""
    headers = {name.lower(): value for name, value in request.headers.items()}
    return headers.get("authorization", "").rpartition(" ")[2]


def accepting(token: Callable[[], str]) -> Callable[[Request], Answer]:
    """Answer as a server that knows one token at a time."""

    def answer(request: Request) -> Answer:
        if bearer(request) != token():
            return Answer(recorded("errors/401-bad-token.json"), 401)
        return Answer(recorded("lists/pods.json"))

    return answer


def kubeconfig(folder: Path, server: str, user: dict[str, Any]) -> dict[str, str]:
    """Write a kubeconfig and return the entry that names it."""
    path, new = folder / "kubeconfig", folder / "kubeconfig.new"
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": {"server": server}}],
        "users": [{"name": "u", "user": user}],
        "contexts": [{"name": "west", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "west",
    }
    new.write_bytes(msgspec.json.encode(content))
    new.rename(path)
    return {"kubeconfig": str(path)}


def write(path: Path, text: str) -> None:
    """Replace a file in one step, as the kubelet and most tools do."""
    new = path.with_suffix(".new")
    new.write_text(text, encoding="ascii")
    new.rename(path)


def program(path: Path) -> dict[str, Any]:
    """Return a user whose token a program gives: that in a file, with a line for each run."""
    script = (
        "import json, pathlib, sys; p = pathlib.Path(sys.argv[1]);"
        "open(sys.argv[1] + '.runs', 'a').write('run\\n');"
        "print(json.dumps({'apiVersion': 'client.authentication.k8s.io/v1', 'kind':"
        " 'ExecCredential', 'status': {'token': p.read_text()}}))"
    )
    return {
        "exec": {
            "apiVersion": "client.authentication.k8s.io/v1",
            "command": sys.executable,
            "args": ["-c", script, str(path)],
            "interactiveMode": "Never",
        }
    }


def test_a_rotated_token_file_of_a_kubeconfig_is_read_again(tmp_path: Path) -> None:
    token = tmp_path / "token"
    write(token, "first")
    with serving(accepting(lambda: token.read_text(encoding="ascii"))) as server:
        api = KubernetesApi.from_config(kubeconfig(tmp_path, server.url, {"tokenFile": str(token)}))
        api.list(PODS)
        write(token, "second")
        api.list(PODS)
    assert [bearer(request) for request in server.requests] == ["first", "second"]


def test_a_replaced_kubeconfig_is_read_again_by_reader_and_writer(tmp_path: Path) -> None:
    with serving(lambda _: Answer(recorded("lists/version.json"))) as server:
        entry = kubeconfig(tmp_path, server.url, {"token": "first"})
        api, writer = KubernetesApi.from_config(entry), KubernetesWriter.from_config(entry)
        for token in ("first", "second"):
            kubeconfig(tmp_path, server.url, {"token": token})
            api.health()
            writer.send("GET", "/version", query={}, headers={})
    assert [bearer(request) for request in server.requests] == [
        *("first", "first", "second", "second"),
    ]


def test_a_token_of_a_variables_file_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = tmp_path / "token"
    monkeypatch.setenv("WEST_FILE", str(token))
    with serving(accepting(lambda: token.read_text(encoding="ascii"))) as server:
        write(token, "first")
        entry = {"api_server": server.url, "bearer_token_env": "WEST"}
        api = KubernetesApi.from_config(entry)
        api.list(PODS)
        write(token, "second")
        api.list(PODS)
    assert len(server.requests) == 2


def test_the_token_of_a_service_account_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from kubernetes.config import incluster_config

    token, authority = tmp_path / "token", tmp_path / "ca.crt"
    write(token, "first")
    write(authority, "not read without a connection")
    monkeypatch.setattr(incluster_config, "SERVICE_TOKEN_FILENAME", str(token))
    monkeypatch.setattr(incluster_config, "SERVICE_CERT_FILENAME", str(authority))
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    clients = Clients({"in_cluster": True})
    before = clients.current()
    assert clients.current() is before
    write(token, "second")
    held = clients.current().configuration.api_key["BearerToken"]
    assert held.split() == ["bearer", "second"]


def test_a_refused_token_of_a_program_is_fetched_anew_and_not_for_every_refusal(
    tmp_path: Path,
) -> None:
    token = tmp_path / "token"
    write(token, "first")
    known = ["first"]
    seconds = [0.0]
    with serving(accepting(lambda: known[0])) as server:
        entry = kubeconfig(tmp_path, server.url, program(token))
        clients = Clients(entry, clock=lambda: seconds[0])
        api = KubernetesApi(clients)
        api.list(PODS)
        known[0] = "second"
        write(token, "second")
        seconds[0] = 60.0
        # The answer is 401, the program runs, and the request is sent again.
        api.list(PODS)
        known[0] = "third"
        for _ in range(3):
            with pytest.raises(SourceRejected, match="HTTP 401") as refused:
                api.list(PODS)
            assert refused.value.credentials
    runs = (tmp_path / "token.runs").read_text(encoding="ascii").splitlines()
    assert len(runs) == 2
    tokens = [bearer(request) for request in server.requests]
    assert tokens == ["first", "first", *["second"] * 4]


@pytest.mark.parametrize(
    ("user", "text"),
    [
        ({"token": "top\nsecret"}, "holds no token"),
        ({"tokenFile": ""}, "has no credentials"),
        ({"exec": program(Path("/nowhere"))["exec"] | {"command": "/bin/false"}}, "no credentials"),
    ],
    ids=["two lines", "an empty file", "a failing program"],
)
def test_credentials_that_cannot_be_used_send_nothing_and_tell_no_secret(
    tmp_path: Path, user: Any, text: str
) -> None:
    write(tmp_path / "empty", "")
    if isinstance(user, dict) and "tokenFile" in user:
        user = {"tokenFile": str(tmp_path / "empty")}
    entry = kubeconfig(tmp_path, "http://127.0.0.1:1", user)
    with pytest.raises(SourceRejected, match=text) as refused:
        KubernetesApi.from_config(entry)
    assert "secret" not in str(refused.value)
    assert refused.value.credentials


@pytest.mark.parametrize("content", ["[]", "5", "users: 5", "clusters: {}", "[" * 5000])
def test_a_file_of_another_shape_is_no_kubeconfig(tmp_path: Path, content: str) -> None:
    write(tmp_path / "kubeconfig", content)
    with pytest.raises(SourceRejected):
        KubernetesApi.from_config({"kubeconfig": str(tmp_path / "kubeconfig")})


def test_a_token_may_end_with_its_line(tmp_path: Path) -> None:
    write(tmp_path / "token", "first\n")
    with serving(accepting(lambda: "first")) as server:
        entry = kubeconfig(tmp_path, server.url, {"tokenFile": str(tmp_path / "token")})
        KubernetesApi.from_config(entry).list(PODS)
        KubernetesWriter.from_config(entry).send("GET", PODS, query={}, headers={})
    assert [bearer(request) for request in server.requests] == ["first", "first"]


def test_the_file_of_a_token_may_be_away_for_a_moment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = tmp_path / "token"
    write(token, "first")
    monkeypatch.setenv("WEST_FILE", str(token))
    with serving(accepting(lambda: "first")) as server:
        api = KubernetesApi.from_config({"api_server": server.url, "bearer_token_env": "WEST"})
        token.unlink()
        with pytest.raises(SourceRejected, match="cannot be read"):
            api.list(PODS)
        write(token, "first")
        api.list(PODS)


def test_a_certificate_that_cannot_be_used_is_told_and_tried_again_soon(tmp_path: Path) -> None:
    for name in ("client.pem", "key.pem"):
        write(tmp_path / name, "half a certificate")
    files = {"client-certificate": "client.pem", "client-key": "key.pem"}
    with serving(lambda _: Answer(b"")) as server:
        address = server.url.replace("http:", "https:")
        entry = kubeconfig(tmp_path, address, files)
        with pytest.raises(SourceRejected, match="client certificate fits its key") as refused:
            KubernetesApi.from_config(entry).list(PODS)
        sent = KubernetesWriter.from_config(entry).send("GET", PODS, query={}, headers={})
    assert refused.value.credentials
    assert sent == Reply(unanswered=Unanswered.UNSENT)


def test_a_watch_goes_on_soon_after_its_token_was_rotated(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    token = tmp_path / "token"
    write(token, "0ld-s3cret")
    events: queue.Queue[Item] = queue.Queue()
    stop = threading.Event()
    paused = []

    def wait(seconds: float) -> None:
        # The server knows the new token at once, the kubelet writes it two pauses later.
        paused.append(seconds)
        if len(paused) == 2:
            write(token, "new")
        if len(paused) > 20:
            stop.set()

    with (
        caplog.at_level(logging.WARNING),
        serving(accepting(lambda: "new")) as server,
    ):
        entry = kubeconfig(tmp_path, server.url, {"tokenFile": str(token)})
        stream = Stream(
            "west",
            PODS,
            KubernetesApi.from_config(entry),
            events,
            clock=lambda: NOW,
            stopped=lambda: stop.is_set() or not events.empty(),
            wait=wait,
        )
        stream.run()
    assert isinstance(events.get_nowait(), Relisted)
    assert len(paused) == 2
    assert paused[-1] < WATCH_MAY_PAUSE_SECONDS
    assert "401" in caplog.text
    assert "0ld-s3cret" not in caplog.text


# ---------------------------------------------------------------- what is told of them


def jwt(**claims: float) -> str:
    body = base64.urlsafe_b64encode(msgspec.json.encode(claims)).decode().rstrip("=")
    return f"head.{body}.signature"


def test_the_end_of_a_token_is_told_and_of_one_that_does_not_say_nothing(tmp_path: Path) -> None:
    given, ends = NOW - timedelta(hours=1), NOW + timedelta(hours=1)
    token = jwt(iat=given.timestamp(), exp=ends.timestamp())
    with serving(lambda _: Answer()) as server:
        api = KubernetesApi.from_config(kubeconfig(tmp_path, server.url, {"token": token}))
        (found,) = api.credentials()
        assert (found.given_at, found.expires_at) == (given, ends)
        assert found.what == f"the token of the kubeconfig {tmp_path / 'kubeconfig'}"
        for text in ("opaque", "a.b.c", jwt(iat=1.0), "a..c", jwt(exp=1e300), f"a.{'W10'}.c"):
            kubeconfig(tmp_path, server.url, {"token": text})
            assert list(api.credentials()) == []


@pytest.mark.parametrize(
    ("given", "ends", "soon"),
    [
        pytest.param(timedelta(days=-80), timedelta(days=8), True, id="last tenth"),
        pytest.param(timedelta(days=-80), timedelta(days=10), False, id="before"),
        pytest.param(timedelta(days=-3650), timedelta(days=13), True, id="two weeks"),
        pytest.param(timedelta(minutes=-48), timedelta(minutes=12), False, id="kubelet's turn"),
        pytest.param(timedelta(days=-2), timedelta(days=-1), True, id="over"),
        pytest.param(None, timedelta(minutes=59), True, id="of unknown age"),
        pytest.param(None, timedelta(minutes=61), False, id="of unknown age, before"),
    ],
)
def test_the_last_tenth_of_a_life_is_soon(
    given: timedelta | None, ends: timedelta, *, soon: bool
) -> None:
    begun = None if given is None else NOW + given
    assert Credential("it", begun, NOW + ends).ends_soon(NOW) is soon
