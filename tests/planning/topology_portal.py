"""A portal with five nodes of eight H100 in two racks of a hall, and one of L4 that are shared."""

from datetime import UTC, datetime, timedelta
from typing import Any

from apps.clusters.domain.window import Window
from apps.clusters.models import Cluster, Node, NodeInterval, Pod
from tests.factories import (
    BEGINNING,
    H100,
    Portal,
    make_gpus,
    make_pod,
    make_portal,
    make_workload,
    note_collection,
)

NOW = datetime(2026, 11, 5, 10, 30, tzinfo=UTC)
HOUR = timedelta(hours=1)
GPU = "nvidia.com/gpu"


def make_node(cluster: Cluster, name: str, **values: Any) -> NodeInterval:
    node = Node.objects.get_or_create(cluster=cluster, name=name)[0]
    given = {"ready": True, "schedulable": True, "start": BEGINNING, "allocatable": {GPU: 8.0}}
    labels = {"nvidia.com/gpu.product": H100} | values.pop("labels", {})
    given |= values
    given.setdefault("capacity", given["allocatable"])
    return NodeInterval.objects.create(node=node, labels=labels, **given)


def hold(portal: Portal, node: str, gpus: float, since: datetime, **values: Any) -> Pod:
    """Let a pod of vision hold GPUs of a node since then."""
    name = values.pop("owner", "train")
    workload = make_workload(portal.clusters[0], "vision", name, values.pop("kind", "Job"))
    node_gpus = make_gpus(portal.clusters[0], node, portal.tiers[0])
    called = values.pop("name", f"{name}-{Pod.objects.count()}")
    values.setdefault("requests", {values.get("resource", GPU): gpus})
    return make_pod(workload, called, created_at=since, node_gpus=node_gpus, units=gpus, **values)


def place(rack: str) -> dict[str, str]:
    return {"topology.kubernetes.io/zone": "hall-1", "topology.kubernetes.io/rack": rack}


def make_topology() -> Portal:
    """Make it: r1 has n1 to n3, r2 has n4 and n5, which takes no pods."""
    portal = make_portal()
    Pod.objects.all().delete()
    NodeInterval.objects.all().delete()
    west = portal.clusters[0]
    for number, rack in enumerate(("r1", "r1", "r1", "r2"), start=1):
        make_node(west, f"n{number}", labels=place(rack))
    make_node(west, "n5", labels=place("r2"), schedulable=False)
    shared = {"nvidia.com/gpu.replicas": "4", "nvidia.com/gpu.sharing-strategy": "time-slicing"}
    make_node(west, "l4-1", labels=shared, allocatable={GPU: 32.0})
    since = NOW - 5 * HOUR
    for node, gpus in (("n1", 6.0), ("n2", 3.0), ("n2", 1.0), ("n4", 5.0)):
        hold(portal, node, gpus, since)
    return portal


def collect(portal: Portal, window: Window) -> None:
    """Note the hours of a window as collected, so that their slots are due; they have no facts."""
    at = window.start.replace(minute=0, second=0, microsecond=0)
    while at < window.end:
        note_collection(portal.clusters[0], at, collected_at=at + HOUR)
        at += HOUR
