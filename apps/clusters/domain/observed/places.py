"""What tells where nodes and devices are, or may be: it explains nothing that is pending."""

from collections.abc import Mapping
from dataclasses import dataclass, field

Amounts = Mapping[str, float]


@dataclass(frozen=True, slots=True)
class TopologySnapshot:
    """A Kueue Topology: the node labels of its levels, the widest first."""

    levels: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class NumaZone:
    """A NUMA node of a host: what it has of each resource, and what is free of it."""

    name: str
    allocatable: Amounts = field(default_factory=dict)
    available: Amounts = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class NodeResourceTopologySnapshot:
    """What a host publishes of its NUMA nodes, and of its kubelet's Topology Manager.

    `policy` is as the kubelet has it: none, best-effort, restricted, single-numa-node. Empty: it
    is not published.
    """

    policy: str = ""
    zones: tuple[NumaZone, ...] = ()


@dataclass(frozen=True, slots=True)
class NodePoolSnapshot:
    """A NodePool of Karpenter: nodes that it may make, and how it removes them.

    `limits` and `used` are of GPU resources. No limit of one: any number may be made of it.
    `labels` are those that each of its nodes has. `consolidation` is when nodes go, in its words,
    `after` how long they have to be so.
    """

    limits: Amounts = field(default_factory=dict)
    used: Amounts = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    consolidation: str = ""
    after: str = ""
