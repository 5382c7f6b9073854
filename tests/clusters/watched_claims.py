"""A server with one node of two GPUs, and what the watch wrote of their claims."""

from typing import Any

from apps.clusters.models import ClaimInterval, Cluster, Tier, TierRule
from apps.clusters.ports import Listing, ObjectChange, SourceRejected
from apps.clusters.services.watch.claims import collections_of
from apps.clusters.services.watch.collections import NODES, PODS, Item, Relisted, WatchEvent
from apps.clusters.services.watch.informer import Informer
from tests.clusters.dra_factories import GPUS, class_of, gpu, group, slice_of, using
from tests.clusters.fakes.fake_cluster import FakeCluster
from tests.clusters.kube_factories import T0, at, node, offset, pod, running, status

PATHS = collections_of("v1")
CLASSES, SLICES, CLAIMS = PATHS


def dra_cluster() -> Cluster:
    """Make a cluster whose tier `dra` is of the claims of GPUs."""
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
    """Return a server with a node of two GPUs, their class, and more objects by kind."""
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


class Forbidding(FakeCluster):
    """A server that lets nobody list some collections."""

    def __init__(self, *paths: str) -> None:
        super().__init__(patience=0.02)
        self.forbidden = set(paths)

    def list(self, path: str) -> Listing:
        if path in self.forbidden:
            self.calls.append(("list", path))
            raise SourceRejected(f"list {path}: HTTP 403: forbidden.")
        return super().list(path)
