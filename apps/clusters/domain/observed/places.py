"""What tells where nodes and devices are, or may be: it explains nothing that is pending."""

from collections.abc import Mapping
from enum import StrEnum

from msgspec import Struct, field

Amounts = Mapping[str, float]


class TopologySnapshot(Struct, frozen=True):
    """A Kueue Topology: the node labels of its levels, the widest first."""

    levels: tuple[str, ...] = ()


class NumaZone(Struct, frozen=True):
    """A NUMA node of a host: what it has of each resource, and what is free of it."""

    name: str
    allocatable: Amounts = field(default_factory=dict)
    available: Amounts = field(default_factory=dict)


class NodeResourceTopologySnapshot(Struct, frozen=True):
    """What a host publishes of its NUMA nodes, and of its kubelet's Topology Manager.

    `policy` is as the kubelet has it: none, best-effort, restricted, single-numa-node. Empty: it
    is not published.
    """

    policy: str = ""
    zones: tuple[NumaZone, ...] = ()


class NodePoolSnapshot(Struct, frozen=True):
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


class NodeGroup(Struct, frozen=True):
    """A node group of cluster-autoscaler, in nodes; None: the status does not tell.

    `target` is how many nodes it asked the cloud for, `ready` how many registered ones are ready.
    """

    name: str
    least: int | None = None
    most: int | None = None
    ready: int | None = None
    target: int | None = None

    @property
    def room(self) -> int | None:
        """How many nodes it may still add; None where its maximum or its size is not known."""
        now = self.ready if self.target is None else self.target
        return None if self.most is None or now is None else max(0, self.most - now)


class AutoscalerSnapshot(Struct, frozen=True):
    """The status of cluster-autoscaler. `groups` None: what it wrote cannot be read.

    `hour` begins the hour in which it last wrote, in Unix seconds: it writes every few seconds.
    """

    groups: tuple[NodeGroup, ...] | None = None
    hour: float | None = None


class ProvisioningState(StrEnum):
    """How far a ProvisioningRequest is, by its conditions."""

    PENDING = "pending"
    PROVISIONED = "provisioned"
    FAILED = "failed"
    EXPIRED = "booking expired"
    REVOKED = "capacity revoked"


class ProvisioningSnapshot(Struct, frozen=True):
    """A ProvisioningRequest; `reason` and `message` are of the condition that gives its state.

    `owner` is the uid of the Kueue Workload that it was made for. Its own pods are templates, so
    what each of them requests is not in it.
    """

    created: float
    class_name: str = ""
    pods: int = 0
    state: ProvisioningState = ProvisioningState.PENDING
    reason: str = ""
    message: str = ""
    since: float | None = None
    owner: str = ""
