"""The same cases against the cluster in memory and the real adapter that speaks to it by HTTP."""

from collections.abc import Callable, Iterator

import msgspec
import pytest
from msgspec import Struct

from apps.clusters.adapters.kubernetes.api import KubernetesApi
from apps.clusters.ports import ClusterSource, SourceRejected, SourceUnavailable, WatchExpired
from tests.clusters.fakes.fake_cluster import FakeCluster
from tests.clusters.kube_factories import controller, node, pod
from tests.recorded_api import Answer, Request, serving

PODS, NODES, JOBS = "/api/v1/pods", "/api/v1/nodes", "/apis/batch/v1/jobs"


class World(Struct):
    """A source under test, and the cluster in memory that is behind it."""

    source: ClusterSource
    cluster: FakeCluster


def _status(code: int, message: str) -> Answer:
    return Answer(msgspec.json.encode({"kind": "Status", "code": code, "message": message}), code)


def _answer(cluster: FakeCluster, request: Request) -> Answer:
    """Answer as an API server that has these objects would."""
    try:
        return _found(cluster, request)
    except WatchExpired as error:
        return _status(410, str(error))
    except SourceUnavailable as error:
        return _status(503, str(error))
    except SourceRejected as error:
        return _status(403, str(error))


def _found(cluster: FakeCluster, request: Request) -> Answer:
    if "watch" in request.query:
        version = request.query["resourceVersion"]
        changes = list(cluster.watch(request.path, resource_version=version))
        lines = [msgspec.json.encode({"type": c.type, "object": c.object}) + b"\n" for c in changes]
        return Answer(b"".join(lines), stream=True)
    if request.path == "/version":
        return Answer(msgspec.json.encode({"gitVersion": cluster.health().version}))
    if request.path in {PODS, NODES, JOBS}:
        listing = cluster.list(request.path)
        metadata = {"resourceVersion": listing.resource_version}
        body = {"kind": "List", "metadata": metadata, "items": list(listing.items)}
        return Answer(msgspec.json.encode(body))
    one = cluster.get(request.path)
    return _status(404, "not found") if one is None else Answer(msgspec.json.encode(one))


@pytest.fixture(params=["in memory", "by HTTP"])
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    cluster = FakeCluster()
    if request.param == "in memory":
        yield World(cluster, cluster)
        return
    with serving(lambda asked: _answer(cluster, asked)) as server:
        yield World(KubernetesApi.from_config({"api_server": server.url}), cluster)


def _names(world: World, path: str) -> list[str]:
    return [item["metadata"]["name"] for item in world.source.list(path).items]


def test_a_list_shows_what_is_there(world: World) -> None:
    assert _names(world, PODS) == []
    world.cluster.put(PODS, pod("a", name="one"))
    world.cluster.put(PODS, pod("b", name="two"))
    world.cluster.put(NODES, node("node-a"))
    world.cluster.remove(PODS, "a")
    assert _names(world, PODS) == ["two"]
    assert _names(world, NODES) == ["node-a"]


def test_a_watch_from_a_lists_version_shows_all_that_came_after(world: World) -> None:
    world.cluster.put(PODS, pod("a"))
    version = world.source.list(PODS).resource_version
    world.cluster.put(PODS, pod("b"))
    world.cluster.put(PODS, pod("a", bound=5))
    world.cluster.remove(PODS, "b")
    world.cluster.bookmark(PODS)
    world.cluster.put(NODES, node())
    changes = list(world.source.watch(PODS, resource_version=version))
    shown = [(c.type, c.object["metadata"].get("uid")) for c in changes]
    assert shown == [("ADDED", "b"), ("MODIFIED", "a"), ("DELETED", "b"), ("BOOKMARK", None)]
    assert changes[1].object["spec"]["nodeName"] == "node-a"
    versions = [int(change.resource_version) for change in changes]
    assert versions == sorted(versions)
    assert list(world.source.watch(PODS, resource_version=changes[-1].resource_version)) == []


def test_a_forgotten_version_is_expired(world: World) -> None:
    version = world.source.list(PODS).resource_version
    world.cluster.expire()
    with pytest.raises(WatchExpired):
        list(world.source.watch(PODS, resource_version=version))


def test_one_object_is_found_by_namespace_and_name_or_is_none(world: World) -> None:
    world.cluster.put(JOBS, controller("Job", "train"))
    found = world.source.get("/apis/batch/v1/namespaces/vision/jobs/train")
    assert found is not None
    assert found["metadata"]["uid"] == "uid-Job-train"
    assert world.source.get("/apis/batch/v1/namespaces/vision/jobs/other") is None


CALLS: dict[str, Callable[[ClusterSource], object]] = {
    "list": lambda source: source.list(PODS),
    "watch": lambda source: list(source.watch(PODS, resource_version="1000")),
    "get": lambda source: source.get("/api/v1/namespaces/vision/pods/x"),
}


@pytest.mark.parametrize("error", [SourceUnavailable, SourceRejected])
@pytest.mark.parametrize("verb", CALLS)
def test_failures_are_of_the_two_kinds(
    world: World, verb: str, error: type[SourceUnavailable | SourceRejected]
) -> None:
    world.cluster.fail(verb, error("on purpose"))
    with pytest.raises(error, match="on purpose"):
        CALLS[verb](world.source)


def test_health_names_a_version(world: World) -> None:
    assert world.source.health().version == "v0.0.0-fake"
