"""What the nodes of a cluster offer: each GPU resource of each node, with what it really is."""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from apps.clusters.domain.tiers import (
    GpuSharing,
    gpu_model,
    is_shared,
    mig_profile,
    tier_of,
    unit_weight,
)
from apps.operations.domain.observations import ClusterLook

STRATEGY = "nvidia.com/gpu.sharing-strategy"
REPLICAS = "nvidia.com/gpu.replicas"


class Offer(NamedTuple):
    """Units of a GPU resource on a node, the tier that takes them, and how they are shared."""

    node: str
    resource: str
    units: float
    labels: Mapping[str, str]
    tier: str
    sharing: GpuSharing

    @property
    def model(self) -> str:
        return gpu_model(self.labels)

    @property
    def gpus(self) -> float:
        return self.units * unit_weight(self.resource, self.labels)

    @property
    def shared(self) -> bool:
        return self.sharing in {GpuSharing.TIME_SLICED, GpuSharing.MPS}


def offers(look: ClusterLook) -> Iterator[Offer]:
    """Yield what node capacity shows, with GPUs that are there; nothing of DRA is in it."""
    for node in look.nodes:
        for resource, units in sorted(node.capacity.items()):
            if units > 0:
                tier = tier_of(resource, node.labels, look.rules)
                how = sharing_of(resource, node.labels)
                yield Offer(node.node, resource, units, node.labels, tier, how)


def sharing_of(resource: str, labels: Mapping[str, str]) -> GpuSharing:
    """Return how a unit of `resource` is shared, by what the node's labels say."""
    if mig_profile(resource, labels):
        return GpuSharing.MIG
    if not is_shared(resource, labels):
        return GpuSharing.EXCLUSIVE
    return GpuSharing.MPS if labels.get(STRATEGY) == "mps" else GpuSharing.TIME_SLICED
