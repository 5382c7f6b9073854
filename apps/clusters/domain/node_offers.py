"""What a unit that nobody holds yet would weigh: by the nodes that it could come to.

The same `nvidia.com/gpu` is a whole card on one node, a quarter of one where cards are shared,
and a MIG device where these are offered under its name. A request alone does not tell.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import NamedTuple

from apps.clusters.domain.tiers import UNDETERMINED, TierRule, tier_of, unit_weight

_DIGITS = 12


class NodeOffer(NamedTuple):
    """A node's labels, and the resources and device classes it offers; None: not known.

    `parts` has the GPU-equivalents of a device by its class, where ResourceSlices tell.
    """

    labels: Mapping[str, str]
    offers: Collection[str] | None = None
    parts: Mapping[str, float] = MappingProxyType({})

    def weight(self, resource: str) -> float:
        """Return the GPU-equivalents of one unit on the node."""
        part = self.parts.get(resource)
        return unit_weight(resource, self.labels) if part is None else part


@dataclass(slots=True)
class NodeOffers:
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
        """Return the GPU-equivalents of one unit that waits in a tier.

        That is what it weighs on the nodes of the tier that offer it and fit the selector, on
        most of them where they differ. A request that may come to several tiers, and one that
        fits no node, count as the request alone tells.
        """
        if tier == UNDETERMINED:
            return unit_weight(resource, {})
        key = (resource, tuple(sorted(node_selector.items())), tier)
        if rules != self._rules:
            self._rules = list(rules)
            self._known.clear()
        if key not in self._known:
            self._known[key] = self._found(resource, node_selector, tier, rules)
        return self._known[key]

    def _found(
        self,
        resource: str,
        node_selector: Mapping[str, str],
        tier: str,
        rules: Sequence[TierRule],
    ) -> float:
        offering = [node for node in self.nodes if node.offers is None or resource in node.offers]
        of_tier = [node for node in offering if tier_of(resource, node.labels, rules) == tier]
        weights = Counter(
            round(node.weight(resource), _DIGITS) for node in _fitting(of_tier, node_selector)
        )
        if not weights:
            return unit_weight(resource, {})
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
