"""Which nodes recorded work may come to: its node labels, and taints as its family bore them.

The ledger does not keep what a pod tolerates. Where nodes of one tier differ in taints, work of a
family goes where pods of the family have run.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence

from msgspec import Struct

from apps.accounts.domain.structs import replace
from apps.clusters.domain.observed.objects import NodeSnapshot
from apps.planning.domain.cluster_replay.inputs import Labels, ReplayNode
from apps.planning.domain.recorded.works import LedgerPod, family_of

TAINTS = "taints"
"""The label of replayed nodes by which work finds those whose taints it bears."""
_KEEPING_OFF = frozenset({"NoSchedule", "NoExecute"})


def with_observed(
    nodes: Iterable[ReplayNode], seen: Mapping[str, NodeSnapshot]
) -> tuple[ReplayNode, ...]:
    """Return the nodes with all labels that were observed, and with their taints as a label."""
    found = []
    for node in nodes:
        own = seen.get(node.name)
        # Intervals keep the labels of tiers alone; flavors and selectors name others as well.
        labels = {**(own.labels if own is not None else {}), **node.labels}
        taints = own.taints if own is not None else ()
        kept = sorted(f"{t.key}={t.value}" for t in taints if t.effect in _KEEPING_OFF)
        found.append(replace(node, labels={**labels, TAINTS: ",".join(kept)}))
    return tuple(found)


class NodeLabels(Struct, frozen=True):
    """What nodes tell of their labels: the keys that any has, and taints by node and tier."""

    keys: frozenset[str]
    of_nodes: Mapping[str, str]
    of_tiers: Mapping[str, Counter[str]]

    @classmethod
    def of(cls, nodes: Sequence[ReplayNode]) -> "NodeLabels":
        tiers: dict[str, Counter[str]] = defaultdict(Counter)
        for node in nodes:
            for tier in {device.tier for device in node.devices}:
                tiers[tier][node.labels[TAINTS]] += 1
        keys = frozenset(key for node in nodes for key in node.labels)
        return cls(keys, {node.name: node.labels[TAINTS] for node in nodes}, tiers)

    def known(self, labels: Iterable[tuple[str, str]]) -> Labels:
        """Return the labels whose keys are recorded of any node: of others nothing is known."""
        return tuple((key, value) for key, value in labels if key in self.keys)


def needed_taints(nodes: Sequence[ReplayNode], tier: str) -> Labels:
    """Return the taints that work has to bear which never ran in a tier: those of most nodes."""
    return _most_taints(NodeLabels.of(nodes), tier)


def constrained(pods: Sequence[LedgerPod], nodes: NodeLabels) -> list[LedgerPod]:
    """Return the pods with the node labels that a replay can hold them to."""
    borne: dict[tuple[str, str], set[str]] = defaultdict(set)
    for pod in pods:
        if pod.node in nodes.of_nodes:
            borne[pod.tier, family_of(pod.owner)].add(nodes.of_nodes[pod.node])
    return [
        replace(
            pod,
            requires=tuple(sorted((*nodes.known(pod.requires), *_taints(pod, nodes, borne)))),
        )
        for pod in pods
    ]


def _taints(
    pod: LedgerPod, nodes: NodeLabels, borne: Mapping[tuple[str, str], Collection[str]]
) -> Labels:
    most = _most_taints(nodes, pod.tier)
    own = borne.get((pod.tier, family_of(pod.owner)), ())
    if not most or len(own) > 1:
        return ()
    # Work that never ran is taken to bear the taints of most nodes of its tier.
    return ((TAINTS, next(iter(own))),) if own else most


def _most_taints(nodes: NodeLabels, tier: str) -> Labels:
    """Return the taints of most nodes of a tier as a label; none where all have the same."""
    kinds = nodes.of_tiers.get(tier, Counter())
    if len(kinds) < 2:
        return ()
    return ((TAINTS, max(kinds, key=lambda kind: (kinds[kind], kind))),)
