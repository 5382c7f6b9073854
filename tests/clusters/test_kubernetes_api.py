"""The Kubernetes adapter against recorded answers of a real API server, and against bad ones."""

import json
import os
import threading
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

from apps.clusters.adapters.kubernetes.api import KubernetesApi
from apps.clusters.adapters.kubernetes.clients import Clients
from apps.clusters.ports import SourceRejected, SourceUnavailable, WatchExpired
from apps.clusters.services.watch.streams import wait_requested
from tests.recorded_api import JSON, Answer, Request, recorded, serving

PODS = "/api/v1/pods"
NODES = "/api/v1/nodes"
HTML = Answer(b"<!DOCTYPE html><title>Sign in</title>", headers={"Content-Type": "text/html"})


def _api(url: str) -> KubernetesApi:
    return KubernetesApi.from_config({"api_server": url})


def _always(answer: Answer) -> Callable[[Request], Answer]:
    return lambda request: answer


def _uids(items: Iterable[Mapping[str, Any]]) -> list[str]:
    return [item["metadata"]["uid"] for item in items]


def _whole_list() -> dict[str, Any]:
    whole: dict[str, Any] = msgspec.json.decode(recorded("lists/pods.json"))
    return whole


# ---------------------------------------------------------------- lists


def test_a_list_has_every_object_and_the_version_to_watch_from() -> None:
    with serving(_always(Answer(recorded("lists/pods.json")))) as server:
        listing = _api(server.url).list(PODS)
    assert _uids(listing.items) == _uids(_whole_list()["items"])
    assert listing.resource_version == "844"
    assert server.asked(PODS) == [{"limit": "500"}]


def test_only_the_fields_that_are_read_are_decoded() -> None:
    with serving(_always(Answer(recorded("lists/pods.json")))) as server:
        pod = _api(server.url).list(PODS).items[0]
    assert "managedFields" not in pod["metadata"]
    assert "terminationGracePeriodSeconds" not in pod["spec"]
    assert {key for volume in pod["spec"]["volumes"] for key in volume} == {"name"}


def _pages(request: Request) -> Answer:
    """Answer the six recorded pages by the token that each of them gave."""
    pages = [msgspec.json.decode(recorded(f"chunked/pods-page-{n}.json")) for n in range(1, 7)]
    tokens = ["", *(page["metadata"].get("continue", "") for page in pages[:-1])]
    page = tokens.index(request.query.get("continue", "")) + 1
    return Answer(recorded(f"chunked/pods-page-{page}.json"))


def test_a_chunked_list_is_the_whole_list() -> None:
    with serving(_pages) as server:
        listing = _api(server.url).list(PODS)
    assert _uids(listing.items) == _uids(_whole_list()["items"])
    assert listing.resource_version == "844"
    assert len(server.asked(PODS)) == 6


def test_a_list_whose_version_expires_in_the_middle_starts_again() -> None:
    expired: list[Request] = []

    def answer(request: Request) -> Answer:
        if "continue" in request.query and not expired:
            expired.append(request)
            return Answer(recorded("errors/410-expired-continue.json"), status=410)
        return _pages(request)

    with serving(answer) as server:
        listing = _api(server.url).list(PODS)
    assert _uids(listing.items) == _uids(_whole_list()["items"])
    assert [q.get("continue", "") for q in server.asked(PODS)].count("") == 2


def test_a_list_that_keeps_expiring_is_read_on_with_the_token_the_server_offers() -> None:
    offered = msgspec.json.decode(recorded("errors/410-expired-continue.json"))["metadata"][
        "continue"
    ]

    def answer(request: Request) -> Answer:
        token = request.query.get("continue")
        if token is None:
            return Answer(recorded("chunked/pods-page-1.json"))
        if token == offered:
            rest = msgspec.json.decode(
                recorded("chunked/pods-after-410-inconsistent-continue.json")
            )
            rest["metadata"].pop("continue", None)
            return Answer(msgspec.json.encode(rest))
        return Answer(recorded("errors/410-expired-continue.json"), status=410)

    with serving(answer) as server:
        listing = _api(server.url).list(PODS)
    assert len(listing.items) == len(set(_uids(listing.items))) == 20
    # The first version: whatever happened while the rest was read comes with the watch.
    assert listing.resource_version == "844"


def test_an_empty_list_of_a_server_that_writes_null_has_no_objects() -> None:
    body = b'{"kind":"PodList","metadata":{"resourceVersion":"7"},"items":null}'
    with serving(_always(Answer(body))) as server:
        listing = _api(server.url).list(PODS)
    assert list(listing.items) == []
    assert listing.resource_version == "7"


# ---------------------------------------------------------------- what goes wrong


def _error(name: str, status: int, **headers: str) -> Answer:
    return Answer(recorded(f"errors/{name}"), status, {"Content-Type": JSON, **headers})


REJECTED = {
    "bad token": (_error("401-bad-token.json", 401), PODS, "token or certificate is not accepted"),
    "no right on pods": (
        _error("403-sa-pods-cluster.json", 403),
        PODS,
        "list on pods (cluster-wide)",
    ),
    "no right on nodes": (_error("403-sa-nodes.json", 403), NODES, "list on nodes (cluster-wide)"),
    "no right on a custom kind": (
        _error("403-sa-unknown-crd.json", 403),
        "/apis/kueue.x-k8s.io/v1beta1/workloads",
        "verb list on workloads.kueue.x-k8s.io (cluster-wide)",
    ),
    "no right in a namespace": (
        _error("403-sa-pods-cluster.json", 403),
        "/apis/batch/v1/namespaces/vision/jobs",
        "verb list on jobs.batch (in namespace vision)",
    ),
    "unknown group": (_error("404-unknown-group.txt", 404), "/apis/x/v1/ys", "does not know ys.x"),
    "unknown resource": (
        _error("404-unknown-resource-in-known-group.txt", 404),
        "/api/v1/pots",
        "does not know pots",
    ),
    "not acceptable": (_error("406-not-acceptable.json", 406), PODS, "no Kubernetes API server"),
    "sign-in page": (HTML, PODS, "sign-in page"),
    "sign-in page with a refusal": (
        Answer(HTML.body, 403, {"Content-Type": "text/html"}),
        PODS,
        "not JSON",
    ),
    "redirect": (
        Answer(b"", 302, {"Location": "https://login.example/"}),
        PODS,
        "redirected to https://login.example/",
    ),
    "a table": (Answer(recorded("variants/pods-table.json")), PODS, "answered Table"),
    "other JSON": (Answer(b'{"status":"success","data":{}}'), PODS, "answered no kind"),
    "objects of another shape": (
        Answer(b'{"kind":"PodList","items":["x"]}'),
        PODS,
        "not what Kubernetes answers",
    ),
    "no credentials": (
        Answer(
            b'{"message":"pods is forbidden: User \\"system:anonymous\\" cannot list resource"}',
            403,
        ),
        PODS,
        "the token file or the token is empty",
    ),
    "nested": (
        Answer(b'{"kind":"PodList","x":' + b"[" * 50_000 + b"]" * 50_000 + b"}"),
        PODS,
        "nested deeper",
    ),
    "a bad request": (Answer(b'{"message":"what?"}', 400), PODS, "HTTP 400: what?"),
}


@pytest.mark.parametrize(("answer", "path", "text"), REJECTED.values(), ids=REJECTED)
def test_a_refusal_says_what_a_person_has_to_fix(answer: Answer, path: str, text: str) -> None:
    with (
        serving(_always(answer)) as server,
        pytest.raises(SourceRejected) as caught,
    ):
        _api(server.url).list(path)
    assert text in str(caught.value)


UNAVAILABLE = {
    "too large version": (_error("504-too-large-resourceversion.json", 504), "Too large resource"),
    "overloaded": (Answer(b'{"message":"slow"}', 429, {"Retry-After": "7"}), "asks to wait 7 s"),
    "broken": (Answer(b"upstream connect error", 503, {}), "HTTP 503: upstream connect error"),
    "a proxy's error page": (Answer(HTML.body, 502, {"Content-Type": "text/html"}), "HTTP 502"),
    "cut in the middle": (Answer(recorded("lists/pods.json")[:5000], cut=True), "did not answer"),
    "half a body": (Answer(recorded("lists/pods.json")[:5000]), "cut short"),
    "nothing": (Answer(b""), "cut short"),
}


@pytest.mark.parametrize(("answer", "text"), UNAVAILABLE.values(), ids=UNAVAILABLE)
def test_what_may_pass_is_to_be_tried_again(answer: Answer, text: str) -> None:
    with (
        serving(_always(answer)) as server,
        pytest.raises(SourceUnavailable) as caught,
    ):
        _api(server.url).list(PODS)
    assert text in str(caught.value)


def test_how_long_a_server_asks_to_wait_is_told() -> None:
    busy = Answer(b'{"message":"slow"}', 429, {"Retry-After": "32"})
    with serving(_always(busy)) as server, pytest.raises(SourceUnavailable) as caught:
        _api(server.url).list(PODS)
    assert caught.value.retry_after_seconds == 32.0
    assert wait_requested(caught.value) == 32.0
    assert wait_requested(SourceUnavailable("down")) == 0.0


def test_how_long_a_server_asks_to_wait_is_told_within_a_stream_too() -> None:
    status = {"message": "busy", "code": 429, "details": {"retryAfterSeconds": 9}}
    line = json.dumps({"type": "ERROR", "object": status}).encode() + b"\n"
    with serving(_always(Answer(line))) as server, pytest.raises(SourceUnavailable) as caught:
        list(_api(server.url).watch(PODS, resource_version="860"))
    assert wait_requested(caught.value) == 9.0


def test_the_version_of_a_collection_takes_one_object() -> None:
    body = json.dumps(
        {"kind": "EventList", "metadata": {"resourceVersion": "912", "continue": "x"}, "items": []}
    )
    with serving(_always(Answer(body.encode()))) as server:
        assert _api(server.url).version("/api/v1/events") == "912"
        assert server.asked("/api/v1/events") == [{"limit": "1"}]


def test_a_server_that_is_down_is_to_be_tried_again() -> None:
    with serving(_always(Answer())) as server:
        pass
    with pytest.raises(SourceUnavailable, match="did not answer GET /api/v1/pods"):
        _api(server.url).list(PODS)


# ---------------------------------------------------------------- watch


def _watched(answer: Answer, path: str = PODS) -> list[tuple[str, str]]:
    with serving(_always(answer)) as server:
        changes = list(_api(server.url).watch(path, resource_version="860"))
    assert server.asked(path) == [
        {
            "watch": "1",
            "allowWatchBookmarks": "true",
            "timeoutSeconds": "60",
            "resourceVersion": "860",
        }
    ]
    return [(change.type, change.resource_version) for change in changes]


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("watch/pods-watch-bookmarks.jsonl", PODS),
        ("watch/pods-watchlist-initial-events.jsonl", PODS),
        ("watch/nodes-watch.jsonl", NODES),
    ],
)
def test_a_watch_gives_every_line_in_order(name: str, path: str) -> None:
    lines = [msgspec.json.decode(line) for line in recorded(name).splitlines()]
    expected = [(e["type"], e["object"]["metadata"]["resourceVersion"]) for e in lines]
    assert _watched(Answer(recorded(name), stream=True), path) == expected


def test_a_watch_shows_a_change_as_soon_as_it_arrives() -> None:
    held = threading.Event()
    answer = Answer(recorded("watch/pods-watch-bookmarks.jsonl"), stream=True, held=held)
    with serving(_always(answer)) as server:
        stream = _api(server.url).watch(PODS, resource_version="860")
        assert next(stream).type == "ADDED"
        held.set()
        assert len(list(stream)) == 40


def test_closing_ends_a_watch_that_waits_in_another_thread() -> None:
    asked, held, ended = threading.Event(), threading.Event(), threading.Event()

    def answer(request: Request) -> Answer:
        asked.set()
        return Answer(stream=True, held=held)

    with serving(answer) as server:
        api = _api(server.url)

        def read() -> None:
            with pytest.raises(SourceUnavailable):
                list(api.watch(PODS, resource_version="860"))
            ended.set()

        reader = threading.Thread(target=read)
        reader.start()
        assert asked.wait(10)
        api.close()
        assert ended.wait(10)
        reader.join()
        held.set()


def test_a_version_too_old_is_said_by_an_event_in_the_stream() -> None:
    answer = Answer(recorded("errors/410-watch-too-old.jsonl"), stream=True)
    with pytest.raises(WatchExpired, match="too old resource version"):
        _watched(answer)


def test_a_version_too_old_is_said_by_the_status() -> None:
    with pytest.raises(WatchExpired):
        _watched(Answer(recorded("errors/410-exact-resourceversion.json"), 410))


STREAMS = {
    "between two lines": recorded("watch/nodes-watch.jsonl"),
    "in the middle of a line": recorded("watch/nodes-watch.jsonl")[:9000],
}


@pytest.mark.parametrize("body", STREAMS.values(), ids=STREAMS)
def test_a_cut_watch_is_no_end_in_order(body: bytes) -> None:
    with pytest.raises(SourceUnavailable):
        _watched(Answer(body, stream=True, cut=True), NODES)


def test_a_watch_that_ends_within_a_line_was_cut_by_a_proxy() -> None:
    body = recorded("watch/nodes-watch.jsonl")[:9000]
    with pytest.raises(SourceUnavailable, match="middle of a line"):
        _watched(Answer(body, stream=True), NODES)


def test_an_error_event_of_the_server_is_to_be_tried_again() -> None:
    body = b'{"type":"ERROR","object":{"kind":"Status","message":"etcd is away","code":500}}\n'
    with pytest.raises(SourceUnavailable, match="etcd is away"):
        _watched(Answer(body, stream=True))


def test_an_account_that_may_list_and_not_watch_is_told_so() -> None:
    with pytest.raises(SourceRejected, match="verb watch on pods"):
        _watched(_error("403-sa-watch-pods.json", 403))


def test_a_silent_stream_is_taken_for_broken() -> None:
    held = threading.Event()
    with serving(_always(Answer(stream=True, held=held))) as server:
        clients = Clients({"api_server": server.url})
        api = KubernetesApi(clients, watch_seconds=0, silence_seconds=0.05)
        with pytest.raises(SourceUnavailable, match=r"[Tt]imed out"):
            list(api.watch(PODS, resource_version="1"))
        held.set()


# ---------------------------------------------------------------- one object, health, credentials


def test_an_object_that_is_not_there_is_none() -> None:
    with serving(_always(_error("404-pod.json", 404))) as server:
        assert _api(server.url).get("/api/v1/namespaces/team-vision/pods/no-such-pod") is None


def test_one_object_is_read() -> None:
    one = msgspec.json.encode(msgspec.json.decode(recorded("lists/jobs.json"))["items"][0])
    with serving(_always(Answer(one))) as server:
        job = _api(server.url).get("/apis/batch/v1/namespaces/platform/jobs/nightly-report")
    assert job is not None
    assert job["metadata"]["name"] == msgspec.json.decode(one)["metadata"]["name"]


def test_health_names_the_version() -> None:
    with serving(_always(Answer(recorded("lists/version.json")))) as server:
        assert _api(server.url).health().version == "v1.36.2"


def test_the_token_of_the_named_variable_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(os.environ, "WEST_TOKEN", "s3cret")
    with serving(_always(Answer(recorded("lists/version.json")))) as server:
        config = {"api_server": server.url, "bearer_token_env": "WEST_TOKEN"}
        KubernetesApi.from_config(config).health()
    headers = {name.lower(): value for name, value in server.requests[0].headers.items()}
    assert headers["authorization"] == "Bearer s3cret"
    assert headers["accept"] == "application/json"


def test_a_kubeconfig_is_followed(tmp_path: Path) -> None:
    path = tmp_path / "kubeconfig"
    with serving(_always(Answer(recorded("lists/version.json")))) as server:
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "c", "cluster": {"server": server.url}}],
            "users": [{"name": "u", "user": {"token": "t0ken"}}],
            "contexts": [{"name": "west", "context": {"cluster": "c", "user": "u"}}],
        }
        path.write_bytes(msgspec.json.encode(config))
        KubernetesApi.from_config({"kubeconfig": str(path), "context": "west"}).health()
    headers = {name.lower(): value for name, value in server.requests[0].headers.items()}
    assert headers["authorization"] == "Bearer t0ken"


CONFIGS = {
    "nothing said": ({}, "kubeconfig, in_cluster or api_server"),
    "no such file": ({"kubeconfig": "/no/such/file"}, "/no/such/file is not there"),
    "not in a cluster": ({"in_cluster": True}, "cannot be reached as configured"),
    "no token of the writer": (
        {"in_cluster": True, "token_folder": "/no/such/folder"},
        "cannot be reached as configured",
    ),
    "no address": ({"api_server": "ftp://x"}, "http://HOST:PORT"),
    "variable not set": (
        {"api_server": "http://127.0.0.1:1", "bearer_token_env": "NOT_SET_ANYWHERE"},
        "NOT_SET_ANYWHERE",
    ),
}


@pytest.mark.parametrize(("config", "text"), CONFIGS.values(), ids=CONFIGS)
def test_an_unusable_entry_says_what_is_missing(config: dict[str, object], text: str) -> None:
    with pytest.raises(SourceRejected) as caught:
        KubernetesApi.from_config(config)
    assert text in str(caught.value)


# ---------------------------------------------------------------- rights


@pytest.mark.parametrize(("name", "allowed"), [("allowed", True), ("denied", False)])
def test_what_the_account_may_do_is_asked_by_a_review(name: str, *, allowed: bool) -> None:
    answer = Answer(recorded(f"variants/sa-selfsubjectaccessreview-{name}.json"), status=201)
    with serving(_always(answer)) as server:
        assert _api(server.url).may("list", "", "pods") is allowed
    (request,) = server.requests
    assert request.path == "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
    assert msgspec.json.decode(request.body)["spec"] == {
        "resourceAttributes": {"verb": "list", "group": "", "resource": "pods"}
    }


def test_a_right_to_one_object_is_asked_by_its_name() -> None:
    answer = Answer(recorded("variants/sa-selfsubjectaccessreview-allowed.json"), status=201)
    with serving(_always(answer)) as server:
        assert _api(server.url).may("list", "", "configmaps", "kube-system", "status")
    asked = msgspec.json.decode(server.requests[0].body)["spec"]["resourceAttributes"]
    assert (asked["namespace"], asked["name"]) == ("kube-system", "status")


def test_a_collection_of_one_object_is_asked_for_by_its_name() -> None:
    path = f"{PODS}?fieldSelector=metadata.name=one"
    with serving(_always(Answer(recorded("lists/pods.json")))) as server:
        assert _api(server.url).list(path).items
    with serving(_always(Answer(recorded("watch/pods-watch-bookmarks.jsonl")))) as watched:
        list(_api(watched.url).watch(path, resource_version="1"))
    asked = [*server.requests, *watched.requests]
    assert [(one.path, one.query["fieldSelector"]) for one in asked] == [
        (PODS, "metadata.name=one")
    ] * 2
    assert ("limit" in asked[0].query, asked[1].query["watch"]) == (True, "1")


def test_a_server_that_refuses_reviews_says_so() -> None:
    refused = Answer(recorded("errors/403-sa-nodes.json"), status=403)
    with serving(_always(refused)) as server, pytest.raises(SourceRejected):
        _api(server.url).may("list", "", "pods")
