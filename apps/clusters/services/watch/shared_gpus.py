"""What a cluster tells of the GPUs that HAMi and KAI Scheduler share, beside the pods on them."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from apps.clusters.domain.accelerators import least_memory, registered_memory
from apps.clusters.domain.gpu_shares import (
    given_gpus,
    may_have_hami_parts,
    reserved_gpu,
    shared_gpus,
)
from apps.clusters.domain.kube_json import KubePod, required_labels, words
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
    uid_of,
)


class _WeighedPod(NamedTuple):
    """A pod that may have parts of GPUs, and the MiB of one GPU with which it was read."""

    pod: KubePod
    mib: float


class SharedGpus:
    """The memory of the GPUs that HAMi registered of nodes, and the GPUs that KAI reserves.

    Pods that are there are kept, of those that HAMi may give parts: nodes may register later than
    their pods are read, and pending pods may come to other nodes than before.
    """

    def __init__(self) -> None:
        self._registered: dict[str, float] = {}
        self._labels: dict[str, Mapping[str, str]] = {}
        self._pending: dict[tuple[tuple[str, str], ...], float] = {}
        self._reserved: dict[str, str] = {}
        self._weighed: dict[str, _WeighedPod] = {}
        self._other_memory = False

    def apply(self, batch: Sequence[Item]) -> None:
        """Note what nodes and pods of a batch tell, before its pods are read."""
        for item in batch:
            if item.path == NODES:
                self._note_nodes(item)
        # A list tells all that there are.
        if any(isinstance(item, Relisted) and item.path == PODS for item in batch):
            self._reserved.clear()
        self._reserved.update(_reserved(batch))

    def keep(self, pod: Mapping[str, Any]) -> None:
        """Keep a pod as it was read now, to read it again when its nodes register other GPUs."""
        read, uid = KubePod.of(pod), uid_of(pod)
        self.forget(uid)
        if not read.is_terminal and may_have_hami_parts(read.metadata, read.spec):
            self._weighed[uid] = _WeighedPod(read, self.memory(read))

    def keep_only(self, pods: Iterable[Mapping[str, Any]]) -> None:
        """Keep these of a list that has all pods."""
        self._weighed.clear()
        for pod in pods:
            self.keep(pod)

    def forget(self, uid: str) -> None:
        """Drop a pod that is gone."""
        self._weighed.pop(uid, None)

    def is_there(self, uid: str) -> bool:
        return uid in self._weighed

    def pods_to_see(self) -> list[KubePod]:
        """Return the pods whose GPUs have another memory than they were read with."""
        # Nodes tell every few seconds that they live, and nothing of them is other than before.
        if not self._other_memory:
            return []
        return [one.pod for one in self._weighed.values() if self.memory(one.pod) != one.mib]

    def pods_seen(self) -> None:
        """Note that these were looked at."""
        for pod in self.pods_to_see():
            self.keep(pod)
        self._other_memory = False

    def memory(self, pod: KubePod) -> float:
        """Return the MiB of one GPU that HAMi registered of a pod's node.

        Of a pending pod, the smallest of the nodes there are that have the labels it wants.
        """
        if pod.node or not self._labels:
            return self._registered.get(pod.node, 0.0)
        wanted = required_labels(pod.spec)
        key = tuple(sorted(wanted.items()))
        if key not in self._pending:
            nodes = ((self._registered[name], labels) for name, labels in self._labels.items())
            self._pending[key] = least_memory(nodes, wanted)
        return self._pending[key]

    def of_pod(self, metadata: Mapping[str, Any], record: PodRecord) -> tuple[str, ...]:
        """Return the UUIDs of the GPUs of which a pod has parts; empty unless all are known."""
        if self._registered.get(record.node):
            return given_gpus(metadata, record.requests)
        return shared_gpus(metadata, record.requests, self._reserved)

    def _note_nodes(self, item: Item) -> None:
        nodes: Sequence[Mapping[str, Any]] = ()
        gone = False
        before = dict(self._registered), dict(self._labels)
        if isinstance(item, Relisted):
            self._labels.clear()
            nodes = item.items
        elif isinstance(item, WatchEvent) and item.change.type in CHANGE_TYPES:
            nodes, gone = [item.change.object], item.change.type == "DELETED"
        for node in nodes:
            name = str(node["metadata"]["name"])
            self._labels.pop(name, None)
            if gone:
                # What it registered stays known: its pods may be told of after it.
                continue
            self._registered[name] = registered_memory(node)
            if self._registered[name]:
                self._labels[name] = words(node["metadata"].get("labels"))
        if before != (self._registered, self._labels):
            self._pending.clear()
            self._other_memory = True


def pods_of(item: Item) -> Iterator[tuple[Mapping[str, Any], float | None]]:
    """Yield each pod of an item, and when it was seen to go if it was."""
    if isinstance(item, WatchClosed | WatchForbidden | WatchSilent) or item.path != PODS:
        return
    if isinstance(item, Relisted):
        yield from ((pod, None) for pod in item.items)
    elif item.change.type in CHANGE_TYPES:
        yield item.change.object, item.at if item.change.type == "DELETED" else None


def _reserved(batch: Iterable[Item]) -> Iterator[tuple[str, str]]:
    """Yield each group of pods for which KAI reserves a GPU in a batch, and the GPU's UUID."""
    for item in batch:
        for pod, _ in pods_of(item):
            if found := reserved_gpu(pod["metadata"]):
                yield found
