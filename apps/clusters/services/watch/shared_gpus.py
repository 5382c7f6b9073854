"""What a cluster tells of the GPUs that HAMi and KAI Scheduler share, beside the pods on them."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from apps.clusters.domain.accelerators import registered_memory
from apps.clusters.domain.gpu_shares import given_gpus, reserved_gpu, shared_gpus
from apps.clusters.domain.pods.ledger import PodRecord
from apps.clusters.services.watch.collections import (
    CHANGE_TYPES,
    NODES,
    PODS,
    Item,
    Relisted,
    WatchClosed,
    WatchEvent,
    WatchForbidden,
    WatchSilent,
)


class SharedGpus:
    """The memory of the GPUs that HAMi registered of nodes, and the GPUs that KAI reserves."""

    def __init__(self) -> None:
        self._registered: dict[str, float] = {}
        self._reserved: dict[str, str] = {}

    def apply(self, batch: Sequence[Item]) -> None:
        """Note what nodes and pods of a batch tell, before its pods are read."""
        self._registered.update(_registered(batch))
        # A list tells all that there are.
        if any(isinstance(item, Relisted) and item.path == PODS for item in batch):
            self._reserved.clear()
        self._reserved.update(_reserved(batch))

    def memory(self, node: str) -> float:
        """Return the MiB of one GPU that HAMi registered of a node; without a node of any."""
        # A pending pod may come to any node.
        known = self._registered
        return known.get(node, 0.0) if node else max(known.values(), default=0.0)

    def of_pod(self, metadata: Mapping[str, Any], record: PodRecord) -> tuple[str, ...]:
        """Return the UUIDs of the GPUs of which a pod has parts; empty unless all are known."""
        if self._registered.get(record.node):
            return given_gpus(metadata, record.requests)
        return shared_gpus(metadata, record.requests, self._reserved)


def pods_of(item: Item) -> Iterator[tuple[Mapping[str, Any], float | None]]:
    """Yield each pod of an item, and when it was seen to go if it was."""
    if isinstance(item, WatchClosed | WatchForbidden | WatchSilent) or item.path != PODS:
        return
    if isinstance(item, Relisted):
        yield from ((pod, None) for pod in item.items)
    elif item.change.type in CHANGE_TYPES:
        yield item.change.object, item.at if item.change.type == "DELETED" else None


def _registered(batch: Iterable[Item]) -> Iterator[tuple[str, float]]:
    """Yield each node of a batch, with the MiB of one GPU that HAMi registered of it."""
    for item in batch:
        nodes: Sequence[Mapping[str, Any]] = ()
        if item.path == NODES and isinstance(item, Relisted):
            nodes = item.items
        elif item.path == NODES and isinstance(item, WatchEvent):
            # A node that went stays known: its pods may be told of after it.
            nodes = [item.change.object] if item.change.type in CHANGE_TYPES - {"DELETED"} else []
        yield from ((str(node["metadata"]["name"]), registered_memory(node)) for node in nodes)


def _reserved(batch: Iterable[Item]) -> Iterator[tuple[str, str]]:
    """Yield each group of pods for which KAI reserves a GPU in a batch, and the GPU's UUID."""
    for item in batch:
        for pod, _ in pods_of(item):
            if found := reserved_gpu(pod["metadata"]):
                yield found
