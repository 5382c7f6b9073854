"""What pods hold of GPUs that HAMi or KAI shares, as the watch reads it."""

from typing import Any

import pytest

from apps.clusters.domain.observed.objects import ObservedKind, PodSnapshot
from apps.clusters.domain.window import Window
from apps.clusters.models import Cluster, Pod
from apps.clusters.ports import ObjectChange
from apps.clusters.services.pods.ledger_rows import recorded_pod_rows
from apps.clusters.services.watch.collections import NAMESPACES, NODES, PODS, Relisted, WatchEvent
from apps.clusters.services.watch.follow import snapshot
from apps.clusters.services.watch.informer import Informer
from apps.clusters.services.watch.object_rows import observed_objects
from tests.clusters.fakes.fake_cluster import FakeCluster
from tests.clusters.kube_factories import GPU, T0, at, container, node, run_pod

pytestmark = pytest.mark.django_db


@pytest.fixture
def cluster() -> Cluster:
    return Cluster.objects.create(name="west", kubernetes={"api_server": "http://127.0.0.1:1"})


def test_what_hami_gave_counts_on_its_own_nodes_alone(cluster: Cluster) -> None:
    source = FakeCluster()
    shared = node("node-a")
    register = '[{"devmem":40000,"type":"A100","health":true}]'
    shared["metadata"]["annotations"] = {"hami.io/node-nvidia-register": register}
    source.put(NODES, shared)
    source.put(NODES, node("node-b"))
    for uid, name in (("uid-1", "node-a"), ("uid-2", "node-b")):
        one = run_pod(uid, node=name, containers=[container(units=8)])
        one["metadata"]["annotations"] = {"hami.io/vgpu-devices-allocated": "GPU-1,NVIDIA,10,0:;"}
        source.put(PODS, one)
    snapshot(cluster, source, at(100))
    held = Pod.objects.values_list("uid", "resource", "units", "gpus")
    assert set(held) == {("uid-1", "nvidia.com/gpumem", 10, "GPU-1"), ("uid-2", GPU, 8, "")}


def test_cores_that_hami_gave_count_where_they_are_more_than_the_memory(cluster: Cluster) -> None:
    source = FakeCluster()
    shared = node("node-a")
    register = '[{"devmem":40000,"type":"A100","health":true}]'
    shared["metadata"]["annotations"] = {"hami.io/node-nvidia-register": register}
    source.put(NODES, shared)
    asked = {GPU: "1", "nvidia.com/gpumem": "4000", "nvidia.com/gpucores": "25"}
    given = {"hami.io/vgpu-devices-allocated": "GPU-1,NVIDIA,4000,50:;"}
    for uid, name, annotations in (("uid-1", "node-a", given), ("uid-2", "", {})):
        one = run_pod(uid, node=name, containers=[{"name": "main", "resources": {"limits": asked}}])
        one["metadata"]["annotations"] = annotations
        source.put(PODS, one)
    snapshot(cluster, source, at(100))
    held = Pod.objects.values_list("uid", "units", "gpus")
    # The other has no annotation yet: it counts by what it asks for.
    assert set(held) == {("uid-1", 20_000, "GPU-1"), ("uid-2", 10_000, "")}


def test_cores_of_a_pending_pod_are_of_the_gpus_that_it_may_come_to(cluster: Cluster) -> None:
    source = FakeCluster()
    for name, mib in (("t4", 16_000), ("h200", 140_000), ("gone", 10_000)):
        shared = node(name)
        shared["metadata"]["labels"] = {"model": name}
        register = f'[{{"devmem":{mib},"type":"{name}","health":true}}]'
        shared["metadata"]["annotations"] = {"hami.io/node-nvidia-register": register}
        source.put(NODES, shared)
    asked = {GPU: "1", "nvidia.com/gpumem": "4000", "nvidia.com/gpucores": "50"}
    for uid, wanted in (("any", {}), ("small", {"model": "t4"}), ("large", {"model": "h200"})):
        one = run_pod(uid, containers=[{"name": "main", "resources": {"limits": asked}}])
        one["spec"] = {"containers": one["spec"]["containers"], "nodeSelector": wanted}
        one["status"] = {"phase": "Pending"}
        source.put(PODS, one)
    informer = Informer(cluster.pk, source)
    nodes = source.list(NODES).items
    informer.apply([Relisted(NODES, nodes, T0 + 10)])
    there = [one for one in nodes if one["metadata"]["name"] != "gone"]
    informer.apply([Relisted(NODES, there, T0 + 20)])
    informer.apply(
        [Relisted(path, source.list(path).items, T0 + 21) for path in (PODS, NAMESPACES)]
    )
    informer.write()
    held = dict(Pod.objects.values_list("uid", "units"))
    assert held == {"any": 8_000, "small": 8_000, "large": 70_000}


def hami_node(name: str, mib: int) -> dict[str, Any]:
    found = node(name)
    found["metadata"]["labels"] = {"model": name}
    if mib:
        register = f'[{{"devmem":{mib},"type":"{name}","health":true}}]'
        found["metadata"]["annotations"] = {"hami.io/node-nvidia-register": register}
    return found


def half_of_a_gpu(uid: str, *, node: str = "") -> dict[str, Any]:
    asked = {GPU: "1", "nvidia.com/gpumem": "4000", "nvidia.com/gpucores": "50"}
    one = run_pod(uid, name=uid, containers=[{"name": "main", "resources": {"limits": asked}}])
    one["spec"].pop("nodeName", None)
    if node:
        one["spec"]["nodeName"] = node
        given = {"hami.io/vgpu-devices-allocated": "GPU-1,NVIDIA,4000,50:;"}
        one["metadata"]["annotations"] = given
    else:
        one["status"] = {"phase": "Pending"}
    return one


def units(cluster: Cluster, informer: Informer) -> tuple[dict[str, float], dict[str, float]]:
    """Return what the ledger and, of pending pods, the observed objects say that pods request."""
    informer.write()
    seen = observed_objects(cluster.pk, [ObservedKind.POD])
    bodies = {one.name: one.body for one in seen}
    return (
        dict(Pod.objects.values_list("uid", "units")),
        {
            name: body.requests["nvidia.com/gpumem"]
            for name, body in bodies.items()
            if isinstance(body, PodSnapshot)
        },
    )


def told(kind: str, item: dict[str, Any], seconds: float) -> WatchEvent:
    return WatchEvent(NODES, ObjectChange(kind, item), T0 + seconds)


def test_pending_pods_are_weighed_anew_when_nodes_come_and_go(cluster: Cluster) -> None:
    informer = Informer(cluster.pk, FakeCluster())
    informer.apply(
        [
            Relisted(NODES, [hami_node("h200", 140_000)], T0 + 10),
            Relisted(PODS, [half_of_a_gpu("waits"), half_of_a_gpu("runs", node="h200")], T0 + 10),
            Relisted(NAMESPACES, [], T0 + 10),
        ]
    )
    assert units(cluster, informer) == ({"waits": 70_000, "runs": 70_000}, {"waits": 70_000})
    informer.apply([told("ADDED", hami_node("t4", 16_000), 60)])
    assert units(cluster, informer) == ({"waits": 8_000, "runs": 70_000}, {"waits": 8_000})
    informer.apply([told("DELETED", hami_node("t4", 16_000), 120)])
    assert units(cluster, informer) == ({"waits": 70_000, "runs": 70_000}, {"waits": 70_000})
    # Nothing of memory changed: no pod is read again.
    informer.apply([told("MODIFIED", hami_node("h200", 140_000), 180)])
    assert informer.write() == 0


def test_a_node_that_registers_late_tells_what_its_pods_were_given(cluster: Cluster) -> None:
    informer = Informer(cluster.pk, FakeCluster())
    informer.apply(
        [
            Relisted(NODES, [hami_node("a100", 0)], T0 + 10),
            Relisted(
                PODS,
                [half_of_a_gpu("runs", node="a100"), half_of_a_gpu("over", node="a100")],
                T0 + 10,
            ),
            Relisted(NAMESPACES, [], T0 + 10),
        ]
    )
    informer.apply(
        [WatchEvent(PODS, ObjectChange("DELETED", half_of_a_gpu("over", node="a100")), T0 + 20)]
    )
    informer.write()
    before = Pod.objects.get(uid="over").units
    informer.apply([told("MODIFIED", hami_node("a100", 40_000), 60)])
    informer.write()
    held = dict(Pod.objects.values_list("uid", "units"))
    assert held == {"runs": 20_000, "over": before}
    assert Pod.objects.get(uid="runs").gpus == "GPU-1"
    # Another GPU of another size took its place.
    informer.apply([told("MODIFIED", hami_node("a100", 80_000), 120)])
    informer.write()
    assert Pod.objects.get(uid="runs").units == 40_000


def test_the_gpu_that_pods_share_by_kai_is_told_by_who_reserves_it(cluster: Cluster) -> None:
    source = FakeCluster()
    source.put(NODES, node())

    def reserved(namespace: str, group: str, uuid: str) -> None:
        one = run_pod(f"uid-of-{group}", name=f"gpu-reservation-{group}")
        one["metadata"]["namespace"] = namespace
        one["metadata"]["labels"] = {"runai-gpu-group": group}
        one["metadata"]["annotations"] = {"run.ai/reserve_for_gpu_index": uuid}
        source.put(PODS, one)

    def sharing(uid: str, *groups: str) -> None:
        one = run_pod(uid, name=uid, containers=[container(units=0)])
        labels = {f"runai-gpu-group/{group}": group for group in groups}
        one["metadata"]["labels"] = labels if len(groups) > 1 else {"runai-gpu-group": groups[0]}
        asked = {"gpu-fraction": "0.5", "gpu-fraction-num-devices": str(len(groups))}
        one["metadata"]["annotations"] = asked
        source.put(PODS, one)

    sharing("early", "g-1")
    reserved("kai-resource-reservation", "g-1", "GPU-1")
    reserved("kai-resource-reservation", "g-2", "GPU-2")
    # Whoever may write pods elsewhere takes no GPU's activity for itself.
    reserved("vision", "g-3", "GPU-1")
    sharing("both", "g-2", "g-1")
    sharing("unknown", "g-1", "g-3")
    snapshot(cluster, source, at(100))
    found = dict(Pod.objects.exclude(gpus="").values_list("uid", "gpus"))
    assert found == {"early": "GPU-1", "both": "GPU-1 GPU-2"}
    # The pod that reserves goes with the last that shares: what is known of these stays.
    source.remove(PODS, "uid-of-g-1")
    snapshot(cluster, source, at(200))
    assert Pod.objects.get(uid="early").gpus == "GPU-1"
    (early, *_) = recorded_pod_rows(cluster, Window(at(0), at(300)))
    assert "GPU-1" in early.record.gpus
