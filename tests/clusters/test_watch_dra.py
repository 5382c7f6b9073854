"""Dynamic resource allocation through `watch`: nodes with devices, pods with claims, and claims."""

import logging
from itertools import count, permutations
from typing import Any

import orjson
import pytest

from apps.clusters.adapters.kubernetes.api import KubernetesApi
from apps.clusters.domain.pods.ledger import OfferedDevice
from apps.clusters.domain.window import Window
from apps.clusters.models import Cluster, NodeInterval, Pod, Tier, TierRule, WatchCoverage
from apps.clusters.models.claims import ClaimInterval
from apps.clusters.models.ledger import WatchIssue
from apps.clusters.ports import Listing, ObjectChange, SourceRejected, SourceUnavailable
from apps.clusters.services.claims.claim_watch import GROUP, collections_of
from apps.clusters.services.pods.ledger_reader import (
    recorded_claims,
    recorded_intervals,
    recorded_pod_rows,
)
from apps.clusters.services.retention import forget_ledger
from apps.clusters.services.watch.follow import DISCOVER_SECONDS, snapshot
from apps.clusters.services.watch.informer import NODES, PODS, Informer
from apps.clusters.services.watch.watch_events import (
    Item,
    Relisted,
    WatchClosed,
    WatchEvent,
    WatchForbidden,
)
from tests.clusters.dra_factories import (
    CARD,
    GPUS,
    MODEL,
    claim,
    class_of,
    gpu,
    group,
    mig,
    request,
    result,
    slice_of,
    using,
)
from tests.clusters.fakes.fake_cluster import FakeCluster
from tests.clusters.kube_factories import (
    GPU,
    PRODUCT,
    T0,
    at,
    node,
    offset,
    pod,
    rfc3339,
    running,
    status,
    terminated,
    times,
)
from tests.clusters.test_watch_follow import DEADLINE_SECONDS, Driver
from tests.recorded_api import Answer, Request, recorded, serving

pytestmark = pytest.mark.django_db
PATHS = collections_of("v1")
CLASSES, SLICES, CLAIMS = PATHS
MIG = "mig.nvidia.com"
WINDOW = Window(at(0), at(3600))


@pytest.fixture
def cluster() -> Cluster:
    for name in ("unmatched", "undetermined"):
        Tier.objects.get_or_create(name=name, defaults={"builtin": True})
    TierRule.objects.create(
        tier=Tier.objects.create(name="dra"),
        position=0,
        sharing="dra",
        device_classes=[GPUS],
        valid_from=at(-1_000_000),
    )
    return Cluster.objects.create(name="west")


def bare(name: str = "node-a", **fields: Any) -> dict[str, Any]:
    """Return a node that tells of no GPU itself."""
    return node(name, gpus=None, **fields)


def dra_pod(uid: str = "p", *, names: tuple[str, ...] = ("one",), **fields: Any) -> dict[str, Any]:
    ran = {"bound": 5, "phase": "Running", "statuses": [status(state=running(9))]}
    return pod(uid, **{**ran, **using(*names), **fields})


def world(version: str = "v1", *objects: tuple[str, dict[str, Any]]) -> FakeCluster:
    """Return a server with a node of two cards, their class, and more objects by kind."""
    source = FakeCluster()
    source.put("/apis", group(version))
    classes, slices, _ = collections_of(version)
    source.put(NODES, bare())
    source.put(slices, slice_of(gpu(0), gpu(1), version=version))
    source.put(classes, class_of())
    for path, item in objects:
        source.put(path, item)
    return source


def listed(when: float = 0, **kinds: list[dict[str, Any]]) -> list[Item]:
    """Return lists of everything at one time; what is not named is as `world` has it."""
    there = {
        SLICES: kinds.get("slices", [slice_of(gpu(0), gpu(1))]),
        CLASSES: kinds.get("classes", [class_of()]),
        CLAIMS: kinds.get("claims", []),
        NODES: kinds.get("nodes", [bare()]),
        PODS: kinds.get("pods", []),
    }
    return [Relisted(path, items, T0 + when) for path, items in there.items()]


def following(cluster: Cluster, *batches: list[Item]) -> Informer:
    informer = Informer(cluster.pk, FakeCluster(), PATHS)
    for batch in batches:
        apply(informer, batch)
    return informer


def apply(informer: Informer, batch: list[Item]) -> None:
    informer.apply(batch)
    informer.write()


def seen(path: str, item: dict[str, Any], when: float, kind: str = "MODIFIED") -> Item:
    return WatchEvent(path, ObjectChange(kind, item), T0 + when, T0 + 1)


def claims() -> list[tuple[str, float | None, float | None, list[str]]]:
    return [
        (
            row.name,
            offset(row.allocated_at),
            offset(row.released_at),
            [device["card"] for device in row.devices],
        )
        for row in ClaimInterval.objects.order_by("allocated_at", "name")
    ]


def intervals() -> list[tuple[float | None, float | None, int]]:
    rows = NodeInterval.objects.order_by("node__name", "start")
    return [(offset(row.start), offset(row.end), len(row.devices)) for row in rows]


# ---------------------------------------------------------------- one look


@pytest.mark.parametrize("version", ["v1", "v1beta2", "v1beta1"])
def test_one_look_writes_devices_claims_and_their_pods(version: str, cluster: Cluster) -> None:
    path = collections_of(version)[2]
    item = claim("one", result(), requests=[request(version=version)])
    found = snapshot(cluster, world(version, (path, item), (PODS, dra_pod())), at(100))
    assert (found.nodes, found.pods) == (1, 1)
    assert claims() == [("one", 5, None, [CARD.format(0)])]
    (interval,) = recorded_intervals(cluster, WINDOW)
    assert interval.devices == tuple(
        OfferedDevice(GPUS, "node-a", f"gpu-{n}", CARD.format(n), "", MODEL, (GPUS,))
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


class _Forbidding(FakeCluster):
    """A server that lets nobody list some collections."""

    def __init__(self, *paths: str) -> None:
        super().__init__(patience=0.02)
        self.forbidden = set(paths)

    def list(self, path: str) -> Listing:
        if path in self.forbidden:
            self.calls.append(("list", path))
            raise SourceRejected(f"list {path}: HTTP 403: forbidden.")
        return super().list(path)


def test_what_may_not_be_read_is_noted_and_the_rest_is_written(cluster: Cluster) -> None:
    source = _Forbidding(*PATHS)
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
    assert claims() == [("one", 5, None, [CARD.format(0)])]
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
    assert claims() == [("one", -50, None, [CARD.format(0)])]
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


# ---------------------------------------------------------------- over time


def test_a_claim_freed_and_allocated_again_has_two_intervals_and_one_row(cluster: Cluster) -> None:
    informer = following(cluster, listed(claims=[claim("one", result())]))
    apply(informer, [seen(CLAIMS, claim("one"), 40)])
    assert claims() == [("one", 5, 40, [CARD.format(0)])]
    assert times(Pod.objects.get()) == [5, 5, None, None, 40, 40]
    again = claim("one", result("gpu-1"), at=60)
    apply(informer, [seen(CLAIMS, again, 61)])
    assert claims() == [("one", 5, 40, [CARD.format(0)]), ("one", 60, None, [CARD.format(1)])]
    assert times(Pod.objects.get()) == [5, 5, None, None, None, None]
    apply(informer, [seen(CLAIMS, again, 90, "DELETED")])
    assert claims()[1][2] == 90
    assert times(Pod.objects.get())[-1] == 90
    assert [r.released for r in recorded_claims(cluster, Window(at(50), at(100)))] == [T0 + 90]


def test_what_came_and_went_within_one_batch_is_kept(cluster: Cluster) -> None:
    informer = following(cluster, listed())
    short = claim("one", result(), at=20)
    batch = [
        seen(CLAIMS, short, 21, "ADDED"),
        seen(CLAIMS, claim("one"), 22),
        seen(CLAIMS, claim("one"), 23, "DELETED"),
    ]
    informer.apply(batch)
    informer.apply(batch)
    informer.write()
    assert claims() == [("one", 20, 22, [CARD.format(0)])]


def test_a_pod_outlives_its_claim_in_the_ledger(cluster: Cluster) -> None:
    informer = following(cluster, listed(claims=[claim("one", result())], pods=[dra_pod()]))
    ended: dict[str, Any] = {"phase": "Succeeded", "statuses": [status(state=terminated(9, 50))]}
    apply(informer, [seen(CLAIMS, claim("one"), 51, "DELETED")])
    apply(informer, [seen(PODS, dra_pod(**ended), 52)])
    apply(informer, [seen(PODS, dra_pod(**ended), 70, "DELETED")])
    row = Pod.objects.get(uid="p")
    assert (row.requests, row.claims) == ({GPUS: 1.0}, ["uid-claim-one"])
    assert times(row) == [0, 5, 9, 50, 70, 50]
    assert row.runs == [[T0 + 9, T0 + 50]]


def test_after_a_restart_a_pod_whose_claim_has_gone_is_known(cluster: Cluster) -> None:
    following(cluster, listed(claims=[claim("one", result())], pods=[dra_pod()]))
    ended: dict[str, Any] = {"phase": "Succeeded", "statuses": [status(state=terminated(9, 50))]}
    following(cluster, listed(300, pods=[dra_pod(**ended)]))
    row = Pod.objects.get(uid="p")
    assert (row.finished_at, row.claims) == (at(50), ["uid-claim-one"])
    # Nobody saw when it was freed: when last anybody watched.
    assert claims() == [("one", 5, 5, [CARD.format(0)])]


def test_a_relist_neither_loses_nor_doubles_a_claim(cluster: Cluster) -> None:
    one = claim("one", result())
    informer = following(cluster, listed(claims=[one], pods=[dra_pod()]))
    ends: list[Item] = [WatchClosed(path, T0 + 60, T0 + 1) for path in (*PATHS, NODES, PODS)]
    apply(informer, ends)
    apply(informer, listed(200, claims=[one], pods=[dra_pod()]))
    assert claims() == [("one", 5, None, [CARD.format(0)])]
    apply(informer, ends)
    apply(informer, [Relisted(CLAIMS, [], T0 + 400)])
    assert claims() == [("one", 5, 200, [CARD.format(0)])]
    assert Pod.objects.get(uid="p").ended_at is None


def test_a_claims_row_is_no_pod_that_a_list_of_pods_could_lose(cluster: Cluster) -> None:
    following(cluster, listed(claims=[claim("one", result())]))
    following(cluster, listed(50, claims=[claim("one", result())]))
    row = Pod.objects.get()
    assert (row.ended_at, row.lost) == (None, False)


def test_two_processes_agree_on_a_claim(cluster: Cluster) -> None:
    one = following(cluster, listed(claims=[claim("one", result())]))
    other = following(cluster, listed(10, claims=[claim("one", result())]))
    apply(one, [seen(CLAIMS, claim("one"), 40)])
    apply(other, [seen(CLAIMS, claim("one"), 41)])
    apply(one, [seen(CLAIMS, claim("one", result(), at=60), 61)])
    apply(other, [seen(CLAIMS, claim("one", result(), at=60), 62)])
    assert [row[1:3] for row in claims()] == [(5, 41), (60, None)]


def test_a_process_that_is_behind_does_not_reach_into_the_next_allocation(
    cluster: Cluster,
) -> None:
    behind = following(cluster, listed(claims=[claim("one", result())]))
    ahead = following(cluster, listed(claims=[claim("one", result())]))
    apply(ahead, [seen(CLAIMS, claim("one", result("gpu-1"), at=30), 31)])
    apply(behind, [seen(CLAIMS, claim("one"), 40)])
    assert claims() == [("one", 5, 30, [CARD.format(0)]), ("one", 30, None, [CARD.format(1)])]
    assert Pod.objects.get().ended_at is None


def test_a_change_of_slices_begins_a_new_interval(cluster: Cluster) -> None:
    informer = following(cluster, listed())
    cut = slice_of(gpu(0), mig(1, 0), mig(1, 1), generation=2)
    apply(informer, [seen(SLICES, cut, 60)])
    apply(informer, [seen(SLICES, cut, 70)])
    apply(informer, [seen(SLICES, cut, 80, "DELETED")])
    assert intervals() == [(0, 60, 2), (60, 80, 3)]


def test_a_node_keeps_its_devices_while_no_slice_was_seen(cluster: Cluster) -> None:
    following(cluster, listed())
    informer = Informer(cluster.pk, FakeCluster(), PATHS)
    apply(informer, [Relisted(NODES, [bare()], T0 + 30)])
    apply(informer, [WatchForbidden(SLICES, T0 + 31, "forbidden")])
    apply(informer, [seen(NODES, bare(cordoned=True), 40)])
    assert intervals() == [(0, 40, 2), (40, None, 2)]
    apply(informer, [Relisted(SLICES, [slice_of(gpu(0))], T0 + 50)])
    assert intervals()[1:] == [(40, 50, 2), (50, None, 1)]


def test_a_node_that_goes_takes_its_devices_along(cluster: Cluster) -> None:
    informer = following(cluster, listed())
    apply(informer, [seen(NODES, bare(), 30, "DELETED"), seen(SLICES, slice_of(gpu(0)), 31)])
    assert intervals() == [(0, 30, 2)]


# ---------------------------------------------------------------- what can be observed for


def _spans() -> list[tuple[float | None, float | None]]:
    return [(offset(s.start), offset(s.end)) for s in WatchCoverage.objects.order_by("start")]


def test_claims_that_are_not_followed_are_not_observed_for(cluster: Cluster) -> None:
    informer = following(cluster, listed())
    apply(informer, [WatchClosed(path, T0 + 60, T0 + 1) for path in (NODES, PODS)])
    assert _spans() == [(0, 0)]
    apply(informer, [WatchClosed(path, T0 + 60, T0 + 1) for path in PATHS])
    assert _spans() == [(0, 60)]


def test_claims_that_may_not_be_read_are_not_waited_for(cluster: Cluster) -> None:
    informer = following(cluster, [item for item in listed() if item.path in {NODES, PODS}])
    assert _spans() == []
    apply(informer, [WatchForbidden(path, T0 + 1, "forbidden") for path in PATHS])
    apply(informer, [WatchClosed(path, T0 + 60, T0 + 1) for path in (NODES, PODS)])
    assert _spans() == [(0, 60)]
    # Allowed meanwhile: from now on they vouch too.
    apply(informer, listed(70))
    apply(informer, [WatchClosed(path, T0 + 90, T0 + 71) for path in (NODES, PODS)])
    assert _spans() == [(0, 60), (70, 70)]


def test_a_change_of_claims_after_a_pause_is_late(cluster: Cluster) -> None:
    informer = following(cluster, listed(claims=[claim("one", result())]))
    apply(informer, [WatchClosed(path, T0 + 60, T0 + 11) for path in PATHS])
    last = claim("one", result())
    last["metadata"]["deletionTimestamp"] = rfc3339(T0 + 100)
    apply(informer, [WatchEvent(CLAIMS, ObjectChange("DELETED", last), T0 + 661, T0 + 660)])
    assert claims() == [("one", 5, 100, [CARD.format(0)])]


def test_an_older_look_at_a_claim_changes_nothing(cluster: Cluster) -> None:
    def version(item: dict[str, Any], number: int) -> dict[str, Any]:
        item["metadata"]["resourceVersion"] = str(number)
        return item

    informer = following(cluster, listed(claims=[version(claim("one", result()), 7)]))
    bookmark = {"metadata": {"resourceVersion": "9"}}
    apply(
        informer,
        [seen(CLAIMS, version(claim("one"), 5), 40), seen(CLAIMS, bookmark, 41, "BOOKMARK")],
    )
    assert claims() == [("one", 5, None, [CARD.format(0)])]


def test_odd_objects_are_passed_over(cluster: Cluster) -> None:
    odd = {"metadata": {"uid": "odd"}}
    informer = following(cluster, listed(slices=[odd], classes=[odd], claims=[odd]))
    apply(informer, [seen(path, odd, 20) for path in PATHS])
    apply(informer, [seen(path, odd, 21, "DELETED") for path in PATHS])
    assert (claims(), intervals()) == ([], [])


def test_old_claims_are_forgotten(cluster: Cluster) -> None:
    informer = following(cluster, listed(claims=[claim("one", result())]))
    apply(informer, [seen(CLAIMS, claim("one"), 40)])
    forget_ledger(before=at(30))
    assert ClaimInterval.objects.count() == 1
    forget_ledger(before=at(50))
    assert not ClaimInterval.objects.exists()


# ---------------------------------------------------------------- streams


def test_streams_of_claims_are_followed(cluster: Cluster) -> None:
    source = _Forbidding()
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
    assert claims() == [("one", 5, None, [CARD.format(0)])]
    assert Pod.objects.get(uid="p").claims == ["uid-claim-one"]
    assert WatchCoverage.objects.count() == 1


def test_a_refusal_of_claims_is_logged_once_and_stops_nothing(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    source = _Forbidding(*PATHS)
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
    source = _Forbidding(CLAIMS)
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
    source = _Forbidding()
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
    source = _Forbidding()
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
    groups = orjson.loads(recorded("lists/apis.json"))["groups"]
    served = next(g for g in groups if g["name"] == "resource.k8s.io")

    def answer(request: Request) -> Answer:
        plural = request.path.rpartition("/")[2]
        if request.path == GROUP:
            return Answer(orjson.dumps(served))
        if plural in lists and request.path.count("/") in {3, 4}:
            return Answer(recorded(f"lists/{plural}.json"))
        return Answer(b"404 page not found", 404)

    with serving(answer) as server:
        source = KubernetesApi.from_config({"api_server": server.url})
        snapshot(cluster, source, at(30_000_000))
        source.close()
    interval = NodeInterval.objects.get(node__name="gb200-dra")
    assert [device["card"] for device in interval.devices] == [CARD.format(n) for n in range(4)]
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
    expected = orjson.loads(recorded("expected.json"))
    held = {node["node"]: node["heldByNonTerminalPods"] for node in expected["nodes"]}
    assert held["gb200-dra"] == {}
    assert Pod.objects.filter(node_name="gb200-dra").exclude(workload__kind="ResourceClaim").count()
