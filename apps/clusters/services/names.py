"""Ids of namespaces, workloads, nodes and GPU models, made in bulk where they are new."""

from collections.abc import Collection, Iterator, Sequence
from typing import TypeVar

from apps.clusters.domain.pods.ledger import PodRecord
from apps.clusters.domain.tiers import model_key
from apps.clusters.models import GpuModel, Namespace, Node, Tier, Workload

Item = TypeVar("Item")

CHUNK = 500
_MOST = 200_000

# (namespace, kind, name of the top controller)
WorkloadName = tuple[str, str, str]


def chunks(items: Sequence[Item], size: int = CHUNK) -> Iterator[Sequence[Item]]:
    """Yield parts of at most `size`, which every database takes as parameters of one query."""
    for start in range(0, len(items), size):
        yield items[start : start + size]


def workload_name(record: PodRecord) -> WorkloadName:
    return (record.namespace, record.owner.kind, record.owner.name)


class NameRegistry:
    """Ids by name for one cluster, remembered; rows that are not there yet are made.

    Several processes may do so at once: a row made by another is found, not an error.
    """

    def __init__(self, cluster_id: int) -> None:
        self._cluster = cluster_id
        self._namespaces: dict[str, int] = {}
        self._nodes: dict[str, int] = {}
        self._models: dict[str, int] = {}
        self._workloads: dict[WorkloadName, int] = {}
        self._tiers: dict[str, int] = {}

    def namespaces(self, names: Collection[str]) -> dict[str, int]:
        """Return name → id of namespaces. Three queries when some are new, else none."""
        if len(self._namespaces) > _MOST:
            self._namespaces.clear()
        for part in chunks(sorted(set(names) - self._namespaces.keys())):
            rows = [Namespace(cluster_id=self._cluster, name=name) for name in part]
            Namespace.objects.bulk_create(rows, ignore_conflicts=True)
            found = Namespace.objects.filter(cluster_id=self._cluster, name__in=part)
            self._namespaces.update(found.order_by("pk").values_list("name", "pk"))
        return self._namespaces

    def nodes(self, names: Collection[str]) -> dict[str, int]:
        """Return name → id of nodes."""
        if len(self._nodes) > _MOST:
            self._nodes.clear()
        for part in chunks(sorted(set(names) - self._nodes.keys())):
            rows = [Node(cluster_id=self._cluster, name=name) for name in part]
            Node.objects.bulk_create(rows, ignore_conflicts=True)
            found = Node.objects.filter(cluster_id=self._cluster, name__in=part)
            self._nodes.update(found.order_by("pk").values_list("name", "pk"))
        return self._nodes

    def models(self, names: Collection[str]) -> dict[str, int]:
        """Return model key → id of GPU models."""
        new = {model_key(n): n for n in sorted(names) if model_key(n) not in self._models}
        if new:
            rows = [GpuModel(key=key, name=name) for key, name in new.items()]
            GpuModel.objects.bulk_create(rows, ignore_conflicts=True)
            found = GpuModel.objects.filter(key__in=list(new))
            self._models.update(found.order_by("pk").values_list("key", "pk"))
        return self._models

    def tiers(self, names: Collection[str]) -> dict[str, int]:
        """Return name → id of tiers; one that the catalog has not is left out."""
        if set(names) - self._tiers.keys():
            self._tiers = dict(Tier.objects.order_by("pk").values_list("name", "pk"))
        return self._tiers

    def workloads(self, names: Collection[WorkloadName]) -> dict[WorkloadName, int]:
        """Return (namespace, kind, name) → id of workloads."""
        if len(self._workloads) > _MOST:
            self._workloads.clear()
        new = sorted(set(names) - self._workloads.keys())
        namespaces = self.namespaces({name[0] for name in new})
        for start in range(0, len(new), CHUNK):
            part = new[start : start + CHUNK]
            rows = [
                Workload(namespace_id=namespaces[namespace], kind=kind, name=name)
                for namespace, kind, name in part
            ]
            Workload.objects.bulk_create(rows, ignore_conflicts=True)
            found = Workload.objects.filter(
                namespace__cluster_id=self._cluster,
                namespace__name__in={n[0] for n in part},
                name__in={n[2] for n in part},
            )
            for row in found.order_by("pk").values_list("namespace__name", "kind", "name", "pk"):
                self._workloads[row[0], row[1], row[2]] = row[3]
        return self._workloads
