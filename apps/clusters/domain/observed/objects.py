"""The parts of a cluster's objects beyond the pod ledger: causes of pending work, and limits.

One struct for each kind, made from an object as the API server wrote it by `observed_object`
(`domain.observed.extract`). Times are Unix seconds, amounts plain numbers (CPU in cores, memory in
bytes), names of resources and labels as Kubernetes has them. Absent is "", (), {} or None.
"""

from collections.abc import Mapping
from enum import StrEnum

from msgspec import Struct, field

from apps.clusters.domain.observed.places import (
    Amounts,
    AutoscalerSnapshot,
    NodePoolSnapshot,
    NodeResourceTopologySnapshot,
    ProvisioningSnapshot,
    TopologySnapshot,
)

NAMESPACE_NAME = "kubernetes.io/metadata.name"
"""The label that each namespace has, with its name."""
Labels = Mapping[str, str]


class ObservedKind(StrEnum):
    """What is seen; kinds of the same name in several API groups carry their group."""

    POD = "Pod"
    NODE = "Node"
    EVENT = "Event"
    REPLICA_SET = "ReplicaSet"
    STATEFUL_SET = "StatefulSet"
    JOB = "Job"
    RESOURCE_QUOTA = "ResourceQuota"
    RESOURCE_CLAIM = "ResourceClaim"
    KUEUE_WORKLOAD = "Workload.kueue.x-k8s.io"
    CLUSTER_QUEUE = "ClusterQueue.kueue.x-k8s.io"
    LOCAL_QUEUE = "LocalQueue.kueue.x-k8s.io"
    COHORT = "Cohort.kueue.x-k8s.io"
    RESOURCE_FLAVOR = "ResourceFlavor.kueue.x-k8s.io"
    TOPOLOGY = "Topology.kueue.x-k8s.io"
    NODE_RESOURCE_TOPOLOGY = "NodeResourceTopology.topology.node.k8s.io"
    NODE_POOL = "NodePool.karpenter.sh"
    AUTOSCALER_STATUS = "ConfigMap"
    PROVISIONING_REQUEST = "ProvisioningRequest.autoscaling.x-k8s.io"
    VOLCANO_POD_GROUP = "PodGroup.scheduling.volcano.sh"
    VOLCANO_QUEUE = "Queue.scheduling.volcano.sh"
    KAI_QUEUE = "Queue.scheduling.run.ai"
    COSCHEDULING_POD_GROUP = "PodGroup.scheduling.x-k8s.io"
    GANG_POD_GROUP = "PodGroup.scheduling.k8s.io"

    @property
    def short(self) -> str:
        """The kind as Kubernetes names it, without its group."""
        return self.value.partition(".")[0]


CONTROLLERS = (ObservedKind.REPLICA_SET, ObservedKind.STATEFUL_SET, ObservedKind.JOB)
POD_GROUPS = (
    ObservedKind.VOLCANO_POD_GROUP,
    ObservedKind.COSCHEDULING_POD_GROUP,
    ObservedKind.GANG_POD_GROUP,
)
OF_PLACES = frozenset(
    {
        ObservedKind.TOPOLOGY,
        ObservedKind.NODE_RESOURCE_TOPOLOGY,
        ObservedKind.NODE_POOL,
        ObservedKind.AUTOSCALER_STATUS,
        ObservedKind.PROVISIONING_REQUEST,
    }
)
"""Kinds that tell where nodes and devices are, or may be; they explain nothing that is pending."""
WITH_HISTORY = frozenset(
    {
        ObservedKind.RESOURCE_QUOTA,
        ObservedKind.CLUSTER_QUEUE,
        ObservedKind.LOCAL_QUEUE,
        ObservedKind.COHORT,
        ObservedKind.VOLCANO_QUEUE,
        ObservedKind.KAI_QUEUE,
    }
)
"""Kinds of which every change of what was set is kept, not only how they look now."""


class Condition(Struct, frozen=True):
    """A condition of a status; `since` is its last transition."""

    type: str
    status: str
    reason: str = ""
    message: str = ""
    since: float | None = None


class Expression(Struct, frozen=True):
    """One wish on a label; `field`: on a field of the node (metadata.name) instead."""

    key: str
    operator: str
    values: tuple[str, ...] = ()
    field: bool = False


class Toleration(Struct, frozen=True):
    """A taint that a pod bears; an empty key with `Exists` bears all, an empty effect every one."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""


class Taint(Struct, frozen=True):
    key: str
    value: str = ""
    effect: str = ""


class ClaimUse(Struct, frozen=True):
    """How a pod names a ResourceClaim: `claim` once it is known, else made from `template`."""

    name: str
    claim: str = ""
    template: str = ""


class ContainerWait(Struct, frozen=True):
    """The reason why a container of a bound pod does not run, as `ImagePullBackOff`."""

    container: str
    reason: str
    message: str = ""
    init: bool = False


class Placement(Struct, frozen=True):
    """Where a pod may go: what scheduling looks at in a pod, or in a controller's template.

    `affinity` are the required node selector terms, any of which will do; the expressions of one
    must all hold.
    """

    node_selector: Labels = field(default_factory=dict)
    affinity: tuple[tuple[Expression, ...], ...] = ()
    tolerations: tuple[Toleration, ...] = ()
    volumes: tuple[str, ...] = ()


class PodSnapshot(Struct, frozen=True):
    """A pod that requests GPUs and is not running, or that a kubelet turned away.

    `requests` is the whole effective request, cpu and memory too; `controller` is the uid of what
    made it, `owner_kind` and `owner` its top controller. `group` names its gang (PodGroup, Kueue's
    group of pods), `queue` the queue that it names. `scheduled` is the condition PodScheduled.
    """

    created: float
    requests: Amounts = field(default_factory=dict)
    placement: Placement = field(default_factory=Placement)
    owner_kind: str = ""
    owner: str = ""
    controller_kind: str = ""
    controller: str = ""
    gates: tuple[str, ...] = ()
    scheduler: str = "default-scheduler"
    priority: int = 0
    nominated_node: str = ""
    claims: tuple[ClaimUse, ...] = ()
    group: str = ""
    queue: str = ""
    node: str = ""
    bound: float | None = None
    phase: str = ""
    reason: str = ""
    message: str = ""
    deleting: float | None = None
    scheduled: Condition | None = None
    waiting: tuple[ContainerWait, ...] = ()
    disrupted: str = ""


class NodeSnapshot(Struct, frozen=True):
    """A node: what it offers and what pods that are not over have been promised of it.

    `used` is summed over all pods bound to it, also those without GPU; its key `pods` counts
    them. `devices` and `free_devices` are by device class, from ResourceSlices.
    """

    labels: Labels = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()
    allocatable: Amounts = field(default_factory=dict)
    used: Amounts = field(default_factory=dict)
    devices: Mapping[str, int] = field(default_factory=dict)
    free_devices: Mapping[str, int] = field(default_factory=dict)
    ready: bool = True
    unschedulable: bool = False


class ControllerSnapshot(Struct, frozen=True):
    """A ReplicaSet, StatefulSet or Job whose pods ask for GPU.

    `wanted` is how many pods it wants now (of a Job its parallelism, at most what is left to
    complete), `pods` how many there are that are not over; `requests` is each pod's request.
    `charged` is what quotas count of each, where that is not what it holds: of a part of a GPU that
    HAMi shares they count a GPU. `together`: a Job whose pods must run at the same time, as far as
    its spec tells.
    """

    created: float
    wanted: int = 0
    pods: int = 0
    suspended: bool = False
    requests: Amounts = field(default_factory=dict)
    placement: Placement = field(default_factory=Placement)
    owner_kind: str = ""
    owner: str = ""
    queue: str = ""
    conditions: tuple[Condition, ...] = ()
    together: bool = False
    charged: Amounts | None = None

    @property
    def counted(self) -> Amounts:
        """What quotas count of a pod."""
        return self.requests if self.charged is None else self.charged


class EventSnapshot(Struct, frozen=True):
    """An event about pending work (facts, section 5.7); `component` reported it."""

    about_kind: str
    about_name: str
    about_uid: str
    reason: str
    message: str
    component: str = ""
    count: int = 1
    first: float | None = None
    last: float | None = None


class QuotaScope(Struct, frozen=True):
    """A scope of a ResourceQuota; the plain list of scopes comes as operator `Exists`."""

    name: str
    operator: str = "Exists"
    values: tuple[str, ...] = ()


class QuotaSnapshot(Struct, frozen=True):
    """A ResourceQuota: `hard` of its spec, `observed_hard` and `used` of its status."""

    hard: Amounts = field(default_factory=dict)
    observed_hard: Amounts = field(default_factory=dict)
    used: Amounts = field(default_factory=dict)
    scopes: tuple[QuotaScope, ...] = ()


class ClaimRequest(Struct, frozen=True):
    """One request of a claim, or one alternative of it; `count` None requests all devices.

    `name` is how results refer to it, `of` the request that it is an alternative of. `selectors`
    are its own CEL expressions, beside those of its class.
    """

    name: str
    device_class: str
    count: int | None = 1
    admin: bool = False
    of: str = ""
    selectors: tuple[str, ...] = ()


class ClaimSnapshot(Struct, frozen=True):
    """A ResourceClaim for GPUs."""

    created: float
    requests: tuple[ClaimRequest, ...] = ()
    allocated: float | None = None
    node: str = ""
    pod: str = ""
    deleting: float | None = None


class PodSet(Struct, frozen=True):
    """Pods of one kind in a Kueue Workload: how many, and each pod's requests."""

    name: str
    count: int
    requests: Amounts = field(default_factory=dict)
    flavors: Labels = field(default_factory=dict)


class WorkloadSnapshot(Struct, frozen=True):
    """A Kueue Workload; `owner_kind`, `owner` is what it was made for (Job, or Pod).

    `pods` are the names of the plain pods that it was made for, of a group of them all.
    """

    created: float
    queue: str = ""
    cluster_queue: str = ""
    priority: int = 0
    active: bool = True
    owner_kind: str = ""
    owner: str = ""
    pods: tuple[str, ...] = ()
    pod_sets: tuple[PodSet, ...] = ()
    conditions: tuple[Condition, ...] = ()


class FlavorQuota(Struct, frozen=True):
    """What a queue or cohort may use of one resource in one flavor; None: no limit set."""

    flavor: str
    resource: str
    nominal: float
    borrowing_limit: float | None = None
    lending_limit: float | None = None


class FlavorUse(Struct, frozen=True):
    """What is taken of one resource in one flavor, and how much of it is borrowed."""

    flavor: str
    resource: str
    total: float
    borrowed: float = 0.0


class ClusterQueueSnapshot(Struct, frozen=True):
    """A Kueue ClusterQueue: what is set, and what its status counts.

    `namespaces` are the labels of the namespaces whose Workloads it takes; () takes all.
    """

    cohort: str = ""
    quotas: tuple[FlavorQuota, ...] = ()
    strategy: str = ""
    stop_policy: str = ""
    weight: float | None = None
    preemption: Labels = field(default_factory=dict)
    conditions: tuple[Condition, ...] = ()
    reserved: tuple[FlavorUse, ...] = ()
    used: tuple[FlavorUse, ...] = ()
    pending: int = 0
    namespaces: tuple[Expression, ...] = ()
    fungibility: Labels = field(default_factory=dict)


class LocalQueueSnapshot(Struct, frozen=True):
    cluster_queue: str = ""
    stop_policy: str = ""
    used: tuple[FlavorUse, ...] = ()
    pending: int = 0


class CohortSnapshot(Struct, frozen=True):
    parent: str = ""
    quotas: tuple[FlavorQuota, ...] = ()
    weight: float | None = None


class FlavorSnapshot(Struct, frozen=True):
    node_labels: Labels = field(default_factory=dict)
    tolerations: tuple[Toleration, ...] = ()
    topology: str = ""


class PodGroupSnapshot(Struct, frozen=True):
    """A gang of Volcano, of the scheduler plug-ins or of Kubernetes itself.

    `requests` is what the smallest gang requests in all, where it says so.
    """

    created: float
    queue: str = ""
    min_member: int = 0
    requests: Amounts = field(default_factory=dict)
    phase: str = ""
    owner_kind: str = ""
    owner: str = ""
    conditions: tuple[Condition, ...] = ()
    running: int = 0
    scheduled: int = 0


class VolcanoQueueSnapshot(Struct, frozen=True):
    state: str = ""
    parent: str = ""
    weight: float | None = None
    capability: Amounts = field(default_factory=dict)
    deserved: Amounts = field(default_factory=dict)
    guarantee: Amounts = field(default_factory=dict)
    allocated: Amounts = field(default_factory=dict)
    reclaimable: bool = True
    pending: int = 0


class KaiQueueSnapshot(Struct, frozen=True):
    """A queue of KAI Scheduler or Run:ai: a project, or the department above it (`parent`).

    `quota` is what it is meant to have, `limit` the most it may hold, in GPUs; None: no such limit.
    """

    parent: str = ""
    quota: float | None = None
    limit: float | None = None
    weight: float | None = None
    allocated: Amounts = field(default_factory=dict)


Body = (
    PodSnapshot
    | NodeSnapshot
    | EventSnapshot
    | ControllerSnapshot
    | QuotaSnapshot
    | ClaimSnapshot
    | WorkloadSnapshot
    | ClusterQueueSnapshot
    | LocalQueueSnapshot
    | CohortSnapshot
    | FlavorSnapshot
    | TopologySnapshot
    | NodeResourceTopologySnapshot
    | NodePoolSnapshot
    | AutoscalerSnapshot
    | ProvisioningSnapshot
    | PodGroupSnapshot
    | VolcanoQueueSnapshot
    | KaiQueueSnapshot
)

BODIES: Mapping[ObservedKind, type[Body]] = {
    ObservedKind.POD: PodSnapshot,
    ObservedKind.NODE: NodeSnapshot,
    ObservedKind.EVENT: EventSnapshot,
    ObservedKind.REPLICA_SET: ControllerSnapshot,
    ObservedKind.STATEFUL_SET: ControllerSnapshot,
    ObservedKind.JOB: ControllerSnapshot,
    ObservedKind.RESOURCE_QUOTA: QuotaSnapshot,
    ObservedKind.RESOURCE_CLAIM: ClaimSnapshot,
    ObservedKind.KUEUE_WORKLOAD: WorkloadSnapshot,
    ObservedKind.CLUSTER_QUEUE: ClusterQueueSnapshot,
    ObservedKind.LOCAL_QUEUE: LocalQueueSnapshot,
    ObservedKind.COHORT: CohortSnapshot,
    ObservedKind.RESOURCE_FLAVOR: FlavorSnapshot,
    ObservedKind.TOPOLOGY: TopologySnapshot,
    ObservedKind.NODE_RESOURCE_TOPOLOGY: NodeResourceTopologySnapshot,
    ObservedKind.NODE_POOL: NodePoolSnapshot,
    ObservedKind.AUTOSCALER_STATUS: AutoscalerSnapshot,
    ObservedKind.PROVISIONING_REQUEST: ProvisioningSnapshot,
    ObservedKind.VOLCANO_POD_GROUP: PodGroupSnapshot,
    ObservedKind.VOLCANO_QUEUE: VolcanoQueueSnapshot,
    ObservedKind.KAI_QUEUE: KaiQueueSnapshot,
    ObservedKind.COSCHEDULING_POD_GROUP: PodGroupSnapshot,
    ObservedKind.GANG_POD_GROUP: PodGroupSnapshot,
}


class ObservedObject(Struct, frozen=True):
    """One object as it was last seen: `changed` is since when it looks so, `gone` when it went.

    `first` is when it (of kinds with history: this setting of it) was first seen.
    """

    kind: ObservedKind
    uid: str
    namespace: str
    name: str
    body: Body
    first: float
    changed: float
    gone: float | None = None
