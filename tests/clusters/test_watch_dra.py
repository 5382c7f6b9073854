"""Dynamic resource allocation through `watch`: nodes with devices, pods with claims, and claims."""

from itertools import permutations
from typing import Any

import pytest

from apps.clusters.domain.pods.ledger import OfferedDevice
from apps.clusters.domain.window import Window
from apps.clusters.models import (
    ClaimInterval,
    Cluster,
    NodeInterval,
    Pod,
    TierRule,
    WatchCoverage,
    WatchIssue,
)
from apps.clusters.ports import SourceRejected, SourceUnavailable
from apps.clusters.services.pods.ledger_rows import (
    recorded_claims,
    recorded_intervals,
    recorded_pod_rows,
)
from apps.clusters.services.watch.claims import collections_of
from apps.clusters.services.watch.collections import NODES, PODS
from apps.clusters.services.watch.follow import snapshot
from tests.clusters.dra_factories import (
    GPU_UUID,
    GPUS,
    MODEL,
    claim,
    class_of,
    group,
    mig,
    request,
    result,
    slice_of,
    using,
)
from tests.clusters.fakes.fake_cluster import FakeCluster
from tests.clusters.kube_factories import GPU, PRODUCT, T0, at, node, pod, running, status, times
from tests.clusters.watched_claims import (
    CLAIMS,
    CLASSES,
    PATHS,
    SLICES,
    Forbidding,
    apply,
    bare,
    claims,
    dra_cluster,
    dra_pod,
    following,
    listed,
    seen,
    world,
)

pytestmark = pytest.mark.django_db
MIG = "mig.nvidia.com"
WINDOW = Window(at(0), at(3600))


@pytest.fixture
def cluster() -> Cluster:
    return dra_cluster()


# ---------------------------------------------------------------- one look


@pytest.mark.parametrize("version", ["v1", "v1beta2", "v1beta1"])
def test_one_look_writes_devices_claims_and_their_pods(version: str, cluster: Cluster) -> None:
    path = collections_of(version)[2]
    item = claim("one", result(), requests=[request(version=version)])
    found = snapshot(cluster, world(version, (path, item), (PODS, dra_pod())), at(100))
    assert (found.nodes, found.pods) == (1, 1)
    assert claims() == [("one", 5, None, [GPU_UUID.format(0)])]
    (interval,) = recorded_intervals(cluster, WINDOW)
    assert interval.devices == tuple(
        OfferedDevice(GPUS, "node-a", f"gpu-{n}", GPU_UUID.format(n), "", MODEL, (GPUS,))
        for n in range(2)
    )
    (record,) = recorded_claims(cluster, WINDOW)
    assert (record.node, record.devices[0].device_class, record.released) == ("node-a", GPUS, None)
    row = Pod.objects.get(uid="p")
    assert (row.resource, row.units, row.claims, row.runs) == (
        GPUS,
        1,
        ["uid-claim-one"],
        [[T0 + 9, None]],
    )
    assert (row.tier and row.tier.name, row.gpu_equivalents) == ("dra", 1.0)
    assert row.gpu_model is not None
    assert row.gpu_model.name == MODEL
    (pod,) = (row.record for row in recorded_pod_rows(cluster, WINDOW) if row.record.uid == "p")
    assert pod.claims == ("uid-claim-one",)


def test_the_same_look_twice_changes_nothing(cluster: Cluster) -> None:
    source = world("v1", (CLAIMS, claim("one", result())), (PODS, dra_pod()))

    def everything() -> list[list[dict[str, Any]]]:
        models: tuple[Any, ...] = (Pod, NodeInterval, ClaimInterval, WatchIssue)
        return [list(model._default_manager.order_by("pk").values()) for model in models]

    snapshot(cluster, source, at(100))
    before = everything()
    assert snapshot(cluster, source, at(100)).rows == 0
    assert everything() == before


def test_a_claim_has_a_row_of_its_own_by_which_it_holds(cluster: Cluster) -> None:
    snapshot(cluster, world("v1", (CLAIMS, claim("idle", result()))), at(100))
    (row,) = recorded_pod_rows(cluster, WINDOW)
    assert (row.record.uid, row.record.owner.kind, row.record.owner.name) == (
        "uid-claim-idle",
        "ResourceClaim",
        "idle",
    )
    assert (row.record.requests, row.gpu_equivalents) == ({GPUS: 1.0}, 1.0)
    assert (row.tier, row.gpu_model) == ("dra", MODEL)
    assert times(Pod.objects.get()) == [5, 5, None, None, None, None]


def test_a_server_without_dra_is_looked_at_as_ever(cluster: Cluster) -> None:
    source = FakeCluster()
    source.put(NODES, node())
    source.put(PODS, dra_pod(names=()))
    found = snapshot(cluster, source, at(100))
    assert (found.nodes, found.pods) == (1, 0)
    assert not any("resource.k8s.io/" in path for _, path in source.calls)
    assert WatchCoverage.objects.count() == 1
    assert not WatchIssue.objects.exists()


def test_what_may_not_be_read_is_noted_and_the_rest_is_written(cluster: Cluster) -> None:
    source = Forbidding(*PATHS)
    source.put("/apis", group("v1"))
    source.put(NODES, node())
    source.put(PODS, pod(bound=5))
    found = snapshot(cluster, source, at(100))
    assert (found.nodes, found.pods) == (1, 1)
    assert WatchCoverage.objects.count() == 1
    notes = dict(WatchIssue.objects.values_list("subject", "text"))
    assert set(notes) == {"resourceslices", "deviceclasses", "resourceclaims"}
    assert "HTTP 403" in notes["resourceclaims"]
    first = WatchIssue.objects.get(subject="resourceclaims").since
    source.forbidden = {CLAIMS}
    snapshot(cluster, source, at(200))
    assert [(n.subject, n.since) for n in WatchIssue.objects.all()] == [("resourceclaims", first)]
    source.forbidden.clear()
    snapshot(cluster, source, at(300))
    assert not WatchIssue.objects.exists()


def test_a_refused_discovery_is_noted_too(cluster: Cluster) -> None:
    source = world()
    source.fail("get", SourceRejected("get /apis/resource.k8s.io: HTTP 403: forbidden."))
    snapshot(cluster, source, at(100))
    assert WatchIssue.objects.get().subject == "resource.k8s.io"
    snapshot(cluster, source, at(200))
    assert not WatchIssue.objects.exists()


def test_an_outage_of_discovery_writes_nothing(cluster: Cluster) -> None:
    source = world()
    source.fail("get", SourceUnavailable("refused"))
    with pytest.raises(SourceUnavailable):
        snapshot(cluster, source, at(100))
    assert not WatchCoverage.objects.exists()


# ---------------------------------------------------------------- in whatever order


ORDERS = list(permutations((SLICES, CLASSES, CLAIMS, NODES, PODS)))


@pytest.mark.parametrize("order", ORDERS[::7], ids=lambda o: "-".join(p.split("/")[-1] for p in o))
def test_the_order_in_which_streams_begin_does_not_matter(
    order: tuple[str, ...], cluster: Cluster
) -> None:
    items = listed(claims=[claim("one", result())], pods=[dra_pod()])
    by_path = {item.path: item for item in items}
    following(cluster, *([by_path[path]] for path in order))
    assert claims() == [("one", 5, None, [GPU_UUID.format(0)])]
    row = Pod.objects.get(uid="p")
    assert (row.requests, row.claims) == ({GPUS: 1.0}, ["uid-claim-one"])
    assert (row.gpu_model and row.gpu_model.name, row.gpu_equivalents) == (MODEL, 1.0)
    last = NodeInterval.objects.get(end__isnull=True)
    assert len(last.devices) == 2


@pytest.mark.parametrize("last", [SLICES, PODS], ids=["slices", "pods"])
def test_a_mig_device_weighs_its_slices_whatever_comes_last(last: str, cluster: Cluster) -> None:
    TierRule.objects.update(device_classes=[MIG])
    asks = [request(device_class=MIG)]
    items = listed(
        slices=[slice_of(mig())],
        classes=[class_of(MIG, kind="mig")],
        nodes=[bare(labels={PRODUCT: "NVIDIA-GB200"})],
        claims=[
            claim("one", result("gpu-0-mig-1g.23gb-0"), requests=asks),
            claim("two", requests=asks),
        ],
        pods=[dra_pod(), pod("pending", **using("two"))],
    )
    items.sort(key=lambda item: item.path == last)
    following(cluster, *([item] for item in items))
    weights = dict(Pod.objects.values_list("uid", "gpu_equivalents"))
    assert weights == pytest.approx(dict.fromkeys(("p", "uid-claim-one", "pending"), 1 / 7))


def test_a_claim_allocated_before_its_pod_was_made(cluster: Cluster) -> None:
    informer = following(cluster, listed(claims=[claim("one", result(), at=-50)]))
    apply(informer, [seen(PODS, dra_pod(), 20, "ADDED")])
    assert claims() == [("one", -50, None, [GPU_UUID.format(0)])]
    assert Pod.objects.get(uid="p").claims == ["uid-claim-one"]


def test_a_pod_that_came_before_its_claim_is_looked_at_again(cluster: Cluster) -> None:
    waiting = pod("p", **using("one", template=True))
    informer = following(cluster, listed(pods=[waiting]))
    assert not Pod.objects.exists()
    made = pod("p", **using("one", template=True))
    made["status"]["resourceClaimStatuses"] = [{"name": "one", "resourceClaimName": "p-one"}]
    apply(informer, [seen(PODS, made, 10)])
    assert not Pod.objects.exists()
    apply(informer, [seen(CLAIMS, claim("p-one"), 11, "ADDED")])
    row = Pod.objects.get()
    assert (row.requests, row.claims, row.bound_at) == ({GPUS: 1.0}, ["uid-claim-p-one"], None)


def test_a_pod_that_came_in_one_batch_with_the_list_is_looked_at_again(cluster: Cluster) -> None:
    both = [*listed(), seen(PODS, dra_pod(), 10, "ADDED")]
    informer = following(cluster, both)
    assert not Pod.objects.exists()
    apply(informer, [seen(CLAIMS, claim("one", result()), 11, "ADDED")])
    assert Pod.objects.get(uid="p").claims == ["uid-claim-one"]


def test_an_extended_resource_becomes_its_claim_also_when_that_comes_late(
    cluster: Cluster,
) -> None:
    item = pod(bound=5, phase="Running", statuses=[status(state=running(9))])
    item["status"]["extendedResourceClaimStatus"] = {
        "resourceClaimName": "ext",
        "requestMappings": [{"containerName": "main", "resourceName": GPU, "requestName": "r"}],
    }
    informer = following(cluster, listed(pods=[item]))
    assert Pod.objects.get().requests == {GPU: 1.0}
    apply(informer, [seen(CLAIMS, claim("ext", result(), uid="u"), 11, "ADDED")])
    row = Pod.objects.get(workload__kind="Pod")
    assert (row.resource, row.requests, row.claims) == (GPUS, {GPUS: 1.0}, ["u"])
    assert row.gpu_model is not None
    assert row.gpu_model.name == MODEL


def test_a_class_that_comes_late_makes_its_pods_ask_for_gpus(cluster: Cluster) -> None:
    asks = [request(device_class="fast")]
    informer = following(cluster, listed(claims=[claim(requests=asks)], pods=[pod(**using("one"))]))
    assert not Pod.objects.exists()
    apply(informer, [seen(CLASSES, class_of("fast"), 9, "ADDED")])
    assert Pod.objects.get().requests == {"fast": 1.0}
