"""Where nodes stand: the levels of a cluster's topology, read from labels of its nodes.

This is the one declaration of these labels. Kueue's `Topology` objects may name others.
"""

from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from types import MappingProxyType

HOST_NAME_LABEL = "kubernetes.io/hostname"
MACHINE_LABELS = ("nvidia.com/gpu.machine", "nvidia.com/gpu.family")
"""What GPU Feature Discovery says of a node's machine."""


class TopologyLevel(StrEnum):
    """The levels of a topology; GPUs that share a narrower one exchange data faster.

    `nvlink` are nodes whose GPUs share one NVLink domain, as the 72 GPUs of an NVL72 rack.
    """

    ZONE = "zone"
    BLOCK = "block"
    RACK = "rack"
    NVLINK = "nvlink"
    HOST = "host"


LEVELS = tuple(TopologyLevel)
"""The widest first."""
Levels = Mapping[TopologyLevel, Sequence[str]]
"""The labels that name a node's domain at each level; the first that a node has counts."""
LEVEL_LABELS: Levels = MappingProxyType(
    {
        TopologyLevel.ZONE: (
            "topology.kubernetes.io/zone",
            # The beta labels are of old clusters.
            "failure-domain.beta.kubernetes.io/zone",
            "topology.kubernetes.io/region",
            "failure-domain.beta.kubernetes.io/region",
        ),
        TopologyLevel.BLOCK: (
            "topology.kubernetes.io/block",
            "cloud.provider.com/topology-block",
            "cloud.google.com/gce-topology-block",
            # EKS numbers its layers from the core; the third is next to the instance.
            "topology.k8s.aws/network-node-layer-2",
            "oci.oraclecloud.com/rdma.network_block_id",
            "backend.coreweave.cloud/superpod",
            "network.topology.nvidia.com/spine",
            "fabric.topograph.run/tier-1",
        ),
        TopologyLevel.RACK: (
            # Kubernetes names no rack itself: the first three are customary.
            "topology.kubernetes.io/rack",
            "topology.rook.io/rack",
            "rack",
            "cloud.provider.com/topology-rack",
            "cloud.google.com/gce-topology-subblock",
            "topology.k8s.aws/network-node-layer-3",
            "oci.oraclecloud.com/rdma.local_block_id",
            "backend.coreweave.cloud/leafgroup",
            "network.topology.nvidia.com/leaf",
            "network.topology.nvidia.com/block",
            "fabric.topograph.run/tier-0",
        ),
        TopologyLevel.NVLINK: (
            "nvidia.com/gpu.clique",
            "topology.k8s.aws/ultraserver-id",
            "ds.coreweave.com/nvlink.domain",
            "network.topology.nvidia.com/accelerator",
            "accelerator.topograph.run/domain",
        ),
        TopologyLevel.HOST: (
            HOST_NAME_LABEL,
            "cloud.google.com/gce-topology-host",
            "oci.oraclecloud.com/rdma.host_id",
        ),
    }
)
TOPOLOGY_LABELS = frozenset(
    label for level in LEVELS if level is not TopologyLevel.HOST for label in LEVEL_LABELS[level]
)
"""Labels kept of every GPU node. A host is known by the name of its node."""

_LEVEL_OF = {label: level for level, labels in LEVEL_LABELS.items() for label in labels}
# An NVLink domain is one only where its label says so. The narrowest first.
_UNNAMED = (TopologyLevel.RACK, TopologyLevel.BLOCK, TopologyLevel.ZONE)

Domain = tuple[str, ...]
"""The names of the domains around a node, the widest first, down to its own at a level.

Two racks of one name in two zones are two domains.
"""


def levels_with(topologies: Iterable[Sequence[str]]) -> Levels:
    """Return the labels of each level, those that Kueue's Topology objects name before others.

    `topologies` are the `nodeLabel`s of each object, the widest first. A label that is not
    declared here takes the next level above the one below it.
    """
    found = {level: list(labels) for level, labels in LEVEL_LABELS.items()}
    for labels in topologies:
        for label, level in _placed(labels):
            if label not in found[level]:
                found[level].insert(0, label)
    return {level: tuple(labels) for level, labels in found.items()}


def _placed(labels: Sequence[str]) -> Iterable[tuple[str, TopologyLevel]]:
    """Yield the labels of one Topology that are not declared, each with its level."""
    known = {_LEVEL_OF[label] for label in labels if label in _LEVEL_OF}
    below = len(LEVELS)
    for label in reversed(labels):
        level = _LEVEL_OF.get(label)
        if level is None:
            level = next(
                (one for one in _UNNAMED if LEVELS.index(one) < below and one not in known), None
            )
            if level is None:
                return
            known.add(level)
            yield label, level
        below = LEVELS.index(level)


def domain_of(
    node: str, labels: Mapping[str, str], level: TopologyLevel, levels: Levels = LEVEL_LABELS
) -> Domain | None:
    """Return the domain of a node at a level; None where no label names one."""
    if level is TopologyLevel.HOST:
        return (node,)
    names = []
    for one in LEVELS[: LEVELS.index(level) + 1]:
        name = value_at(labels, one, levels)
        if name:
            names.append(name)
        elif one is level:
            return None
    return tuple(names)


def place_of(node: str, labels: Mapping[str, str], levels: Levels = LEVEL_LABELS) -> Domain:
    """Return the narrowest of rack, block and zone that a node's own labels name, or nothing."""
    found = (domain_of(node, labels, level, levels) for level in _UNNAMED)
    return next((domain for domain in found if domain), ())


def value_at(labels: Mapping[str, str], level: TopologyLevel, levels: Levels) -> str:
    """Return what a node's labels say at one level alone; empty where none names it."""
    return next((labels[label] for label in levels[level] if labels.get(label)), "")


def machine_of(labels: Mapping[str, str]) -> str:
    """Return the machine and GPU family that GPU Feature Discovery names, as far as it does."""
    return ", ".join(labels[label] for label in MACHINE_LABELS if labels.get(label))


def known_levels(
    nodes: Iterable[Mapping[str, str]], levels: Levels = LEVEL_LABELS
) -> tuple[TopologyLevel, ...]:
    """Return the levels that the labels of any of these nodes name, and hosts; widest first."""
    every = list(nodes)
    return tuple(
        level
        for level in LEVELS
        if level is TopologyLevel.HOST
        or any(labels.get(label) for labels in every for label in levels[level])
    )
