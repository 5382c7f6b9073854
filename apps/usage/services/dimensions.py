"""Names of an hour's facts turned into the ids they are stored under."""

from collections.abc import Callable, Collection, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import NamedTuple

from apps.clusters.domain.tiers import model_key
from apps.clusters.models import Cluster, GpuModel, Node, Pod, Tier
from apps.usage.domain.attribution.gpu_classes import GpuClass

_UIDS_PER_QUERY = 5000


class PodIds(NamedTuple):
    """The ids of a pod row and of what it belongs to."""

    pod: int
    workload: int
    namespace: int
    namespace_name: str


@dataclass(frozen=True, slots=True)
class Dimensions:
    """The ids of everything that facts name. `team_of` maps a namespace's name to a team id."""

    cluster: int
    pods: Mapping[str, PodIds]
    nodes: dict[str, int]
    models: dict[str, int]
    tiers: dict[str, int]
    team_of: Callable[[str], int]
    _kinds: dict[GpuClass, tuple[object, ...]] = field(default_factory=dict)

    def kind(self, card: GpuClass) -> tuple[object, ...]:
        """Return the ids of cluster, tier and model of a kind of card, and its capacity type."""
        known = self._kinds.get(card)
        if known is None:
            model = self.model(card.model)
            known = (self.cluster, self.tiers[card.tier], model, card.capacity_type)
            self._kinds[card] = known
        return known

    def model(self, name: str) -> int:
        return self.models[model_key(name)]


def pod_ids(
    cluster: Cluster, uids: AbstractSet[str], known: Mapping[str, PodIds]
) -> Mapping[str, PodIds]:
    """Return the ids of the pods of `uids`; one query for every 5,000 that are not known."""
    missing = sorted(uids - known.keys())
    if not missing:
        return known
    found = dict(known)
    for start in range(0, len(missing), _UIDS_PER_QUERY):
        some = missing[start : start + _UIDS_PER_QUERY]
        rows = Pod.objects.filter(cluster=cluster, uid__in=some).values_list(
            "uid", "pk", "workload_id", "workload__namespace_id", "workload__namespace__name"
        )
        found.update({row[0]: PodIds(*row[1:]) for row in rows.order_by("pk")})
    return found


def node_ids(cluster: Cluster, names: Collection[str]) -> dict[str, int]:
    """Return name → id of nodes, made where they are new. Two queries, three when some are."""
    known = dict(Node.objects.filter(cluster=cluster).order_by("pk").values_list("name", "pk"))
    new = sorted(set(names) - known.keys())
    if new:
        rows = [Node(cluster=cluster, name=name) for name in new]
        Node.objects.bulk_create(rows, ignore_conflicts=True)
        found = Node.objects.filter(cluster=cluster).order_by("pk")
        known = dict(found.values_list("name", "pk"))
    return known


def model_ids(names: Collection[str]) -> dict[str, int]:
    """Return model key → id of GPU models, made where they are new."""
    known = dict(GpuModel.objects.order_by("pk").values_list("key", "pk"))
    new = {model_key(name): name for name in sorted(names) if model_key(name) not in known}
    if new:
        rows = [GpuModel(key=key, name=name) for key, name in new.items()]
        GpuModel.objects.bulk_create(rows, ignore_conflicts=True)
        known = dict(GpuModel.objects.order_by("pk").values_list("key", "pk"))
    return known


def tier_ids() -> dict[str, int]:
    """Return name → id of every tier there ever was."""
    return dict(Tier.objects.order_by("pk").values_list("name", "pk"))
