"""Streams of claims: followed, refused, and served in another version."""

import logging
from itertools import count

import msgspec
import pytest

from apps.clusters.adapters.kubernetes.api import KubernetesApi
from apps.clusters.models import (
    ClaimInterval,
    Cluster,
    NodeInterval,
    Pod,
    WatchCoverage,
    WatchIssue,
)
from apps.clusters.ports import SourceUnavailable
from apps.clusters.services.watch.claims import GROUP, collections_of
from apps.clusters.services.watch.collections import NODES, PODS
from apps.clusters.services.watch.follow import DISCOVER_SECONDS, snapshot
from tests.clusters.dra_factories import (
    GPU_UUID,
    GPUS,
    claim,
    class_of,
    gpu,
    group,
    result,
    slice_of,
)
from tests.clusters.kube_factories import T0, at, node, pod
from tests.clusters.test_watch_follow import DEADLINE_SECONDS, Driver
from tests.clusters.watched_claims import (
    CLAIMS,
    CLASSES,
    PATHS,
    SLICES,
    Forbidding,
    bare,
    claims,
    dra_cluster,
    dra_pod,
    world,
)
from tests.recorded_api import Answer, Request, recorded, serving

pytestmark = pytest.mark.django_db


@pytest.fixture
def cluster() -> Cluster:
    return dra_cluster()


# ---------------------------------------------------------------- streams


def test_streams_of_claims_are_followed(cluster: Cluster) -> None:
    source = Forbidding()
    source.put("/apis", group("v1"))
    source.put(NODES, bare())

    def play(driver: Driver) -> None:
        driver.delivered(PODS)
        source.put(SLICES, slice_of(gpu(0)))
        source.put(CLASSES, class_of())
        source.put(CLAIMS, claim("one", result()))
        source.put(PODS, dra_pod())
        for path in (*PATHS, PODS):
            driver.delivered(path)

    Driver(source).follow(cluster, play)
    assert claims() == [("one", 5, None, [GPU_UUID.format(0)])]
    assert Pod.objects.get(uid="p").claims == ["uid-claim-one"]
    assert WatchCoverage.objects.count() == 1


def test_a_refusal_of_claims_is_logged_once_and_stops_nothing(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    source = Forbidding(*PATHS)
    source.put("/apis", group("v1"))
    source.put(NODES, node())
    source.put(PODS, pod(bound=5))

    def play(driver: Driver) -> None:
        driver.until(lambda: source.calls.count(("list", CLAIMS)) >= 4)
        driver.delivered(PODS)
        driver.delivered(NODES)

    with caplog.at_level(logging.WARNING):
        Driver(source).follow(cluster, play)
    assert caplog.text.count(f"list {CLAIMS}: HTTP 403") == 1
    assert Pod.objects.count() == 1
    assert WatchCoverage.objects.count() == 1
    assert WatchIssue.objects.count() == 3


def test_a_refusal_that_ends_is_forgotten(cluster: Cluster) -> None:
    source = Forbidding(CLAIMS)
    source.put("/apis", group("v1"))
    source.put(CLAIMS, claim("one", result()))

    def play(driver: Driver) -> None:
        driver.until(lambda: source.calls.count(("list", CLAIMS)) >= 2)
        source.forbidden.clear()
        driver.delivered(CLAIMS)

    Driver(source).follow(cluster, play)
    assert ClaimInterval.objects.count() == 1
    assert not WatchIssue.objects.exists()


def test_a_watch_ends_when_the_server_serves_another_version(cluster: Cluster) -> None:
    source = Forbidding()
    source.put("/apis", group("v1beta1"))

    def play(driver: Driver) -> None:
        driver.delivered(PODS)
        source.put("/apis", group("v1beta1", "v1"))
        driver._seconds = count(T0 + 200 + DISCOVER_SECONDS, 0.01)
        assert driver.stop.wait(DEADLINE_SECONDS)

    Driver(source).follow(cluster, play)
    assert ("list", collections_of("v1beta1")[2]) in source.calls
    assert ("list", CLAIMS) not in source.calls


def test_a_watch_goes_on_when_nobody_tells_what_is_served(cluster: Cluster) -> None:
    source = Forbidding()
    source.put("/apis", group("v1"))

    def play(driver: Driver) -> None:
        driver.delivered(PODS)
        source.fail("get", SourceUnavailable("connection refused"))
        driver._seconds = count(T0 + 200 + DISCOVER_SECONDS, 0.01)
        driver.until(lambda: source.calls.count(("get", GROUP)) == 2)
        driver.delivered(PODS)
        assert not driver.stop.is_set()

    Driver(source).follow(cluster, play)


def test_an_api_that_is_down_is_asked_again_what_it_serves(cluster: Cluster) -> None:
    source = world("v1", (CLAIMS, claim("one", result())))
    source._patience = 0.02
    for _ in range(3):
        source.fail("get", SourceUnavailable("connection refused"))
    driver = Driver(source)
    driver.follow(cluster, lambda d: d.delivered(CLAIMS))
    assert ClaimInterval.objects.count() == 1
    assert {1.0, 2.0, 4.0} <= set(driver.waits)


# ---------------------------------------------------------------- the recorded server


def test_recorded_claims_become_the_ledger(cluster: Cluster) -> None:
    lists = ("nodes", "pods", "namespaces", "resourceslices", "deviceclasses", "resourceclaims")
    groups = msgspec.json.decode(recorded("lists/apis.json"))["groups"]
    served = next(g for g in groups if g["name"] == "resource.k8s.io")

    def answer(request: Request) -> Answer:
        plural = request.path.rpartition("/")[2]
        if request.path == GROUP:
            return Answer(msgspec.json.encode(served))
        if plural in lists and request.path.count("/") in {3, 4}:
            return Answer(recorded(f"lists/{plural}.json"))
        return Answer(b"404 page not found", 404)

    with serving(answer) as server:
        source = KubernetesApi.from_config({"api_server": server.url})
        snapshot(cluster, source, at(30_000_000))
        source.close()
    interval = NodeInterval.objects.get(node__name="gb200-dra")
    assert [device["card"] for device in interval.devices] == [GPU_UUID.format(n) for n in range(4)]
    (record,) = ClaimInterval.objects.all()
    assert (record.name, record.node_name) == ("dra-one", "gb200-dra")
    holds = Pod.objects.get(name="dra-ok")
    assert (holds.requests, holds.claims, holds.node_name) == (
        {GPUS: 1.0},
        [record.uid],
        "gb200-dra",
    )
    assert [start for start, _ in holds.runs]
    waits = Pod.objects.get(name="dra-unsat")
    assert (waits.requests, waits.bound_at) == ({GPUS: 1.0}, None)
    # Their claims do not exist: what they would ask for is not known.
    assert not Pod.objects.filter(name__in=["dra-missing", "dra-tmpl-over"]).exists()
    expected = msgspec.json.decode(recorded("expected.json"))
    held = {node["node"]: node["heldByNonTerminalPods"] for node in expected["nodes"]}
    assert held["gb200-dra"] == {}
    assert Pod.objects.filter(node_name="gb200-dra").exclude(workload__kind="ResourceClaim").count()
