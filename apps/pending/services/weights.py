"""What a waiting item asks for: its tier, its main resource, and how much that is in GPUs."""

from collections.abc import Iterable
from dataclasses import dataclass

from apps.clusters.domain.node_offers import NodeOffer, NodeOffers
from apps.clusters.domain.observed.objects import NodeSnapshot, ObservedObject
from apps.clusters.domain.pods.kube_objects import main_resource
from apps.clusters.domain.tiers import UNDETERMINED, UNMATCHED, tier_before_binding
from apps.clusters.models import Tier
from apps.clusters.services import TierHistory
from apps.pending.domain.state import PendingItem


@dataclass(frozen=True, slots=True)
class PendingDemand:
    """What an item asks for; `resource` is empty and `units` 0 where that is no GPU any more."""

    tier_id: int | None
    resource: str
    units: float
    gpu_equivalents: float


class Weights:
    """The catalog's rules of one time and the nodes there are; one query, when it is made."""

    def __init__(
        self, catalog: TierHistory, now: float, nodes: Iterable[ObservedObject] = ()
    ) -> None:
        self._rules = catalog.at(now)
        self._places = NodeOffers(
            [_place(one.body) for one in nodes if isinstance(one.body, NodeSnapshot)]
        )
        self._tiers = dict(Tier.objects.order_by("pk").values_list("name", "pk"))

    def is_open(self, demand: PendingDemand) -> bool:
        """Say whether the request of a pod alone leaves open which tier it is for."""
        return demand.tier_id is not None and demand.tier_id == self._tiers.get(UNDETERMINED)

    def demand(self, item: PendingItem) -> PendingDemand:
        """Return what it asks for before any node holds it: as it weighs where it could come to."""
        if not item.requests:
            return PendingDemand(self._tiers.get(UNMATCHED), "", 0.0, 0.0)
        resource, units = main_resource(item.requests)
        tier = tier_before_binding(resource, item.node_selector, self._rules)
        total = sum(
            n * self._places.weight(name, item.node_selector, tier, self._rules)
            for name, n in item.requests.items()
        )
        return PendingDemand(self._tiers.get(tier), resource, units, total)


def _place(node: NodeSnapshot) -> NodeOffer:
    return NodeOffer(node.labels, {*node.allocatable, *node.devices})
