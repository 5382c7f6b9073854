"""Which service tier a GPU request or a node's capacity belongs to, and what one unit weighs.

The same `nvidia.com/gpu` is a whole GPU on one node, a quarter of one where GPUs are shared, and a
MIG device where these are offered under its name. A request alone does not tell.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from enum import StrEnum
from functools import lru_cache
from types import MappingProxyType
from typing import NamedTuple

from msgspec import Struct, field

from apps.clusters.domain.accelerators import CORES_LABEL, MEMORY_LABEL, NEURON_CORE
from apps.clusters.domain.devices.mig import mig_part
from apps.clusters.domain.resources import (
    GPU,
    GPU_FRACTION,
    GPU_MEMORY,
    PARTS_OF_GPU,
    ascend_part,
)

UNMATCHED = "unmatched"
UNDETERMINED = "undetermined"
UNASSIGNED = "unassigned"
NO_TEAM = "no team known"
"""Whose something is that has no namespace; unlike `unassigned` it is no team."""
UNKNOWN_MODEL = "unknown"
BUILTIN_TIERS = (UNMATCHED, UNDETERMINED)

PRODUCT_LABEL = "nvidia.com/gpu.product"
AMD_PRODUCT_LABEL = "amd.com/gpu.product-name"
MODEL_LABELS = (
    "cloud.google.com/gke-accelerator",
    "cloud.google.com/gke-tpu-accelerator",
    "karpenter.k8s.aws/instance-accelerator-name",
    "node.kubernetes.io/npu.chip.name",
)
"""Labels that name the model of GPUs or accelerators where their vendor's own does not."""
_REPLICAS_LABEL = "nvidia.com/gpu.replicas"
_STRATEGY_LABEL = "nvidia.com/gpu.sharing-strategy"
_SHARING_STRATEGIES = frozenset({"time-slicing", "mps"})
_MIG_RESOURCE = "nvidia.com/mig-"
_MIG_PRODUCT = "-MIG-"
_SHARED_PRODUCT = "-SHARED"

_DIGITS = 12
_LEAST_MIB = 16_384.0
"""Of a GPU whose memory no node tells: a request is rather over- than underestimated."""


class GpuSharing(StrEnum):
    EXCLUSIVE = "exclusive"
    MIG = "mig"
    TIME_SLICED = "time-sliced"
    MPS = "mps"
    DRA = "dra"


class CapacityType(StrEnum):
    ON_DEMAND = "on-demand"
    SPOT = "spot"
    RESERVED = "reserved"
    UNKNOWN = "unknown"


class TierRule(Struct, frozen=True):
    """One tier of the catalog as it was valid at some time; the first that matches wins."""

    tier: str
    sharing: GpuSharing
    resources: tuple[str, ...] = ()
    device_classes: tuple[str, ...] = ()
    node_selector: Mapping[str, str] = field(default_factory=dict)

    def matches(self, resource: str, labels: Mapping[str, str]) -> bool:
        """Say whether `resource`, or a device class, on a node with `labels` is of this tier."""
        return self.asks_for(resource) and all(
            labels.get(key) == value for key, value in self.node_selector.items()
        )

    def asks_for(self, resource: str) -> bool:
        """Say whether it names a resource or device class."""
        # Pods that share GPUs request parts of them: these are of the tiers of GPUs.
        asked = GPU if resource in PARTS_OF_GPU else resource
        return asked in self.resources or resource in self.device_classes


def tier_of(resource: str, labels: Mapping[str, str], rules: Sequence[TierRule]) -> str:
    """Return the name of the first tier that matches, else `unmatched`."""
    for rule in rules:
        if rule.matches(resource, labels):
            return rule.tier
    return UNMATCHED


def tier_before_binding(
    resource: str, node_selector: Mapping[str, str], rules: Sequence[TierRule]
) -> str:
    """Return the tier of a request (a resource or device class) that no node holds yet.

    The pod's own node selector may decide. Where several tiers could serve the request it counts in
    `undetermined`; where none could, in `unmatched`.
    """
    possible = [
        rule.tier
        for rule in rules
        if rule.asks_for(resource)
        and all(node_selector.get(k, v) == v for k, v in rule.node_selector.items())
    ]
    if not possible:
        return UNMATCHED
    if len(set(possible)) == 1:
        return possible[0]
    # The pod's selector may name all labels that a tier requires: then nothing is open.
    certain = tier_of(resource, node_selector, rules)
    return UNDETERMINED if certain == UNMATCHED else certain


def unreachable(rules: Sequence[TierRule]) -> list[tuple[str, str]]:
    """Return (tier, earlier tier) for every rule that can never match.

    A rule is dead when, for each of its resources, an earlier rule takes the same resource and
    requires no label that the later one does not require, too.
    """
    dead = []
    for position, rule in enumerate(rules):
        shadows = [_shadow(rule, resource, rules[:position]) for resource in _asks(rule)]
        if shadows and all(shadows):
            dead.append((rule.tier, str(shadows[0])))
    return dead


def _asks(rule: TierRule) -> tuple[str, ...]:
    return rule.resources + rule.device_classes


def _shadow(rule: TierRule, resource: str, earlier: Sequence[TierRule]) -> str | None:
    for other in earlier:
        if resource in _asks(other) and other.node_selector.items() <= rule.node_selector.items():
            return other.tier
    return None


def unit_weight(resource: str, labels: Mapping[str, str]) -> float:
    """Return the GPU-equivalents of one unit of `resource` on a node with `labels`.

    A whole GPU weighs 1, a MIG device its compute slices over the GPU's, a replica of either 1 /
    replicas, a MiB of a GPU 1 / its memory, a core of a Neuron device 1 / cores. The node's labels
    decide, not the tier: they say what the device plug-in offers.
    """
    if resource == GPU_FRACTION:
        # KAI shares what the device plug-in offers as a GPU, which may be a part itself.
        return unit_weight(GPU, labels)
    if resource == GPU_MEMORY:
        return 1.0 / _number(labels.get(MEMORY_LABEL, ""), _LEAST_MIB)
    if (part := ascend_part(resource)) is not None:
        return part
    if resource == NEURON_CORE:
        return 1.0 / _number(labels.get(CORES_LABEL, ""))
    profile = mig_profile(resource, labels)
    # Under the strategy `single` MIG devices are offered as `nvidia.com/gpu`.
    part = mig_part(profile, gpu_model(labels)) if profile else 1.0
    return part / _replicas(resource, profile, labels)


def _number(text: str, unknown: float = 1.0) -> float:
    try:
        return max(1.0, float(text))
    except ValueError:
        return unknown


def is_shared(resource: str, labels: Mapping[str, str]) -> bool:
    """Say whether several pods may be on the device that a unit of `resource` stands for."""
    profile = mig_profile(resource, labels)
    strategy = _STRATEGY_LABEL
    if resource.startswith(_MIG_RESOURCE):
        strategy = f"{_MIG_RESOURCE}{profile}.sharing-strategy"
    if (
        resource.endswith(".shared")
        or resource in PARTS_OF_GPU
        or labels.get(strategy) in _SHARING_STRATEGIES
    ):
        return True
    return _replicas(resource, profile, labels) > 1


def mig_profile(resource: str, labels: Mapping[str, str]) -> str:
    """Return the profile of a MIG resource, or of whole-looking ones under `single`; else ``."""
    if resource.startswith(_MIG_RESOURCE):
        return resource.removeprefix(_MIG_RESOURCE).removesuffix(".shared")
    return labels.get(PRODUCT_LABEL, "").removesuffix(_SHARED_PRODUCT).partition(_MIG_PRODUCT)[2]


def _replicas(resource: str, profile: str, labels: Mapping[str, str]) -> int:
    of_profile = resource.startswith(_MIG_RESOURCE)
    label = f"{_MIG_RESOURCE}{profile}.replicas" if of_profile else _REPLICAS_LABEL
    try:
        return max(1, int(labels.get(label, "1")))
    except ValueError:
        return 1


def gpu_model(labels: Mapping[str, str]) -> str:
    """Return the GPU model that a node's labels name, `unknown` when none does.

    GPU Feature Discovery adds to the product that a GPU is shared, or into which MIG devices it is
    cut (strategy `single`). Both are properties of the tier; the GPU model is the same.
    """
    product = labels.get(PRODUCT_LABEL, "").removesuffix(_SHARED_PRODUCT)
    product = product.partition(_MIG_PRODUCT)[0]
    # AMD's node labeller writes blanks, which no label's value may have, as underscores.
    product = product or labels.get(AMD_PRODUCT_LABEL, "").replace("_", " ")
    return product or next(filter(None, map(labels.get, MODEL_LABELS)), UNKNOWN_MODEL)


def same_model(one: str, other: str) -> bool:
    """Compare GPU models without regard to case, blanks and dashes (GFD and DCGM differ)."""
    return model_key(one) == model_key(other)


@lru_cache(maxsize=1_000)
def model_key(model: str) -> str:
    """Return what is compared of a model's name."""
    return model.replace(" ", "").replace("-", "").lower()


_CAPACITY_VALUES = {
    "on-demand": CapacityType.ON_DEMAND,
    "on_demand": CapacityType.ON_DEMAND,
    "spot": CapacityType.SPOT,
    "reserved": CapacityType.RESERVED,
    "capacity_block": CapacityType.RESERVED,
}


def capacity_type(labels: Mapping[str, str]) -> CapacityType:
    """Return how a node is paid for, from the labels of Karpenter, EKS, GKE and AKS."""
    for key in ("karpenter.sh/capacity-type", "eks.amazonaws.com/capacityType"):
        # A page asks of thousands of nodes, of which most have none of these labels.
        value = labels.get(key)
        if value is not None and (found := _CAPACITY_VALUES.get(value.lower())) is not None:
            return found
    for key in ("cloud.google.com/gke-spot", "cloud.google.com/gke-preemptible"):
        if key in labels and labels[key].lower() == "true":
            return CapacityType.SPOT
    if labels.get("kubernetes.azure.com/scalesetpriority", "").lower() == "spot":
        return CapacityType.SPOT
    return CapacityType.UNKNOWN


class NodeOffer(NamedTuple):
    """A node's labels, and the resources and device classes it offers; None: not known.

    `parts` has the GPU-equivalents of a device by its class, where ResourceSlices tell.
    """

    labels: Mapping[str, str]
    offers: AbstractSet[str] | None = None
    parts: Mapping[str, float] = MappingProxyType({})

    def serves(self, resource: str) -> bool:
        """Say whether a pod may get units of a resource there; of a GPU it may get parts."""
        if self.offers is None or resource in self.offers:
            return True
        return resource in PARTS_OF_GPU and not self.offers.isdisjoint({GPU, GPU_MEMORY})

    def weight(self, resource: str) -> float:
        """Return the GPU-equivalents of one unit on the node."""
        part = self.parts.get(resource)
        return unit_weight(resource, self.labels) if part is None else part


class NodeOffers(Struct):
    """The nodes of a cluster at one time; what was found out under the same rules is kept."""

    nodes: Sequence[NodeOffer] = ()
    _known: dict[tuple[object, ...], float] = field(default_factory=dict)
    _rules: Sequence[TierRule] = ()

    def weight(
        self,
        resource: str,
        node_selector: Mapping[str, str],
        tier: str,
        rules: Sequence[TierRule],
    ) -> float:
        """Return the GPU-equivalents of one unit that is pending in a tier.

        That is what it weighs on the nodes of the tier that offer it and fit the selector, on
        most of them where they differ. A request that may come to several tiers, and one that
        fits no node, count as the request alone tells.
        """
        if tier == UNDETERMINED and resource != GPU_MEMORY:
            return unit_weight(resource, {})
        key = (resource, tuple(sorted(node_selector.items())), tier)
        if rules != self._rules:
            self._rules = list(rules)
            self._known.clear()
        if key not in self._known:
            self._known[key] = self._found(resource, node_selector, tier)
        return self._known[key]

    def _found(self, resource: str, node_selector: Mapping[str, str], tier: str) -> float:
        offering = [node for node in self.nodes if node.serves(resource)]
        # Memory is no part of a GPU by itself: of a tier that is not known all nodes tell.
        of_tier = [
            node
            for node in offering
            if tier == UNDETERMINED or tier_of(resource, node.labels, self._rules) == tier
        ]
        # Rounded, as sevenths that were reached in two ways must count as one weight.
        weights = Counter(
            round(node.weight(resource), _DIGITS) for node in _fitting(of_tier, node_selector)
        )
        if not weights:
            return unit_weight(resource, {})
        # The larger of equals: a request is rather over- than underestimated.
        return max(weights, key=lambda weight: (weights[weight], weight))


def _fitting(nodes: Iterable[NodeOffer], node_selector: Mapping[str, str]) -> list[NodeOffer]:
    """Return the nodes that a selector fits; where none does, those that do not contradict it.

    Not every label of a node is kept: one that is not known may well be as it should.
    """
    every = list(nodes)
    sure = [one for one in every if node_selector.items() <= one.labels.items()]
    return sure or [
        one for one in every if all(one.labels.get(k, v) == v for k, v in node_selector.items())
    ]
