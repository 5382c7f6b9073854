"""What a replay of a cluster takes and gives: nodes, queues, recorded work, policies, results.

Amounts are units of a tier: whole GPUs, MIG devices, replicas of a GPU, or devices of
claims. The weight of a unit is in GPU-equivalents. Times are Unix seconds, durations seconds.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import NamedTuple

from msgspec import Struct, field

SLACK = 1e-9
"""Units are floats: sums of parts of a GPU are not exact."""

Labels = tuple[tuple[str, str], ...]
"""Labels that a node must have, sorted by key."""
FlavorTier = tuple[str, str]
"""A Kueue flavor, and what is counted of it: a resource, or a tier (`RecordedWork.counted`)."""


class Packing(StrEnum):
    """Which node of those with room is taken: the fullest or the emptiest, by part allocated, or
    the first in the order of the cluster's nodes.
    """

    PACK = "pack"
    SPREAD = "spread"
    FIRST = "first"


class Reclaim(StrEnum):
    """Which work of queues that borrow may be preempted (Kueue: reclaimWithinCohort)."""

    NEVER = "never"
    LOWER_PRIORITY = "lower-priority"
    ANY = "any"


class PendingOrder(StrEnum):
    """Who comes first of pending work without a queue, or admitted by one.

    `fifo`: by priority, then the oldest. `fair`: by priority, then of teams that hold less than
    their entitlement, then of the team that holds least for its weight, then the oldest.
    """

    FIFO = "fifo"
    FAIR = "fair"


class ReplayAssumption(StrEnum):
    """What a result takes for granted; `assumption_text` words it."""

    SAME_DEMAND = "same-demand"
    WHOLE_GANGS = "whole-gangs"
    GREEDY_PLACEMENT = "greedy-placement"
    RECORDED_NODES = "recorded-nodes"
    SMALL_PASSES = "small-passes"
    STRICT_ORDER = "strict-order"
    KUEUE_ORDER = "kueue-order"
    FAIR_SHARING = "fair-sharing"
    VICTIMS_BY_PRIORITY = "victims-by-priority"
    RESTARTS = "restarts"
    PREEMPTION_CIRCLES = "preemption-circles"
    NO_PREEMPTION = "no-preemption"
    OPEN_END = "open-end"
    RUNNING_KEEPS = "running-keeps"
    START_DELAYS = "start-delays"
    IDLE_ENDED = "idle-ended"
    NO_OTHER_RESOURCES = "no-other-resources"
    NODES_FROM_SERIES = "nodes-from-series"
    LABELS_UNKNOWN = "labels-unknown"
    PENDING_FROM_SERIES = "pending-from-series"
    DELAYS_FROM_SERIES = "delays-from-series"
    LIMITS_UNKNOWN = "limits-unknown"
    LIMITS_AS_WATCHED = "limits-as-watched"
    BORROWERS_WAIT = "borrowers-wait"
    EQUALS_STAY = "equals-stay"
    FLAVORS_FIRST = "flavors-first"
    NO_FAIR_SHARING = "no-fair-sharing"


class ClosedSpan(NamedTuple):
    """A time in which a node takes no new pods: it is away, not ready or cordoned."""

    start: float
    end: float


class MissingUnits(NamedTuple):
    """A time in which a node lacks `units` of a tier: unavailable devices, or another layout.

    What runs on them goes on until it ends.
    """

    start: float
    end: float
    tier: str
    units: float


class ReplayDevice(Struct, frozen=True):
    """A device of a node with room for `units`; `weight` is the GPU-equivalents of one.

    A whole GPU and a MIG device have one unit, a GPU with replicas as many as these. MIG devices
    of one GPU have its `gpu` number.
    """

    tier: str
    units: float = 1.0
    weight: float = 1.0
    gpu: int = 0
    profile: str = ""


class ReplayNode(Struct, frozen=True):
    """A node with the most devices that it ever had; `missing` tells when it had fewer.

    `closed` spans, and `missing` ones of one tier, are in order and do not overlap.
    """

    name: str
    devices: tuple[ReplayDevice, ...]
    labels: Mapping[str, str] = field(default_factory=dict)
    closed: tuple[ClosedSpan, ...] = ()
    missing: tuple[MissingUnits, ...] = ()


class FlavorQuota(Struct, frozen=True):
    """What a queue or cohort may use of a flavor, in units; None is no limit, as in Kueue."""

    nominal: float
    borrowing_limit: float | None = None
    lending_limit: float | None = None


class ReplayQueue(Struct, frozen=True):
    """A ClusterQueue: `quotas` in the order in which its flavors are tried.

    `preempts_own`: pending work preempts running work of the queue with lower priority (Kueue:
    withinClusterQueue). `next_before_borrowing`: a later flavor is tried before this one borrows
    (Kueue: whenCanBorrow TryNextFlavor).
    """

    name: str
    quotas: Mapping[FlavorTier, FlavorQuota]
    cohort: str = ""
    weight: float = 1.0
    strict: bool = False
    reclaim: Reclaim = Reclaim.NEVER
    preempts_own: bool = False
    next_before_borrowing: bool = False


class ReplayCohort(Struct, frozen=True):
    """A cohort with quota of its own, or below another one."""

    name: str
    parent: str = ""
    quotas: Mapping[FlavorTier, FlavorQuota] = field(default_factory=dict)


class ReplayCluster(Struct, frozen=True):
    """The nodes, queues and flavors that work is replayed on.

    `flavors` have the node labels of each flavor. Work of a queue that is not here needs no quota.
    `namespace_quotas` are limits of ResourceQuotas, in units of what is counted, by namespace: what
    does not fit is not created until there is room. `namespace_lending` is what a limit lends, by
    namespace and what is counted: namespaces with a limit on it borrow that, as in a cohort of
    Kueue whose other members lend nothing.
    """

    nodes: tuple[ReplayNode, ...]
    queues: tuple[ReplayQueue, ...] = ()
    cohorts: tuple[ReplayCohort, ...] = ()
    flavors: Mapping[str, Labels] = field(default_factory=dict)
    namespace_quotas: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    namespace_lending: Mapping[tuple[str, str], float] = field(default_factory=dict)


class ReplayPolicy(Struct, frozen=True):
    """How pending work is ordered, placed and ended.

    `entitlements` and `weights` are of (team, tier), in GPU-equivalents; a weight is by default the
    entitlement. With `half_life` what a team held counts as well as what it holds, half after so
    long. `strict`: work that does not fit blocks all later work. `fair_sharing`: of queues that
    borrow the one with the least share after that comes first, before priority and age. Shares do
    not choose who is preempted, and let no work preempt more than otherwise. `resumes`: preempted
    work goes on where it was, else it begins again. `idle_limit`: work that does nothing
    until its end is ended when that has lasted so long. `recorded_nodes`: work takes the nodes that
    it ran on where these have room, and the best one only elsewhere.
    """

    order: PendingOrder = PendingOrder.FIFO
    packing: Packing = Packing.SPREAD
    strict: bool = False
    entitlements: Mapping[tuple[str, str], float] = field(default_factory=dict)
    weights: Mapping[tuple[str, str], float] | None = None
    half_life: float | None = None
    borrowing: bool = True
    fair_sharing: bool = False
    preemption: bool = False
    resumes: bool = False
    idle_limit: float | None = None
    recorded_nodes: bool = False


class RecordedWork(Struct, frozen=True, kw_only=True):
    """A pod, or a gang of `pods` alike that start together; `units` are those of one pod.

    `runs_seconds` counts from the start, None where the end is not known. `leaves_at`: when it was
    canceled, unless it has started by then. `ends_at`: when it ends, whenever it started, as a
    service that is scaled down; it takes the place of `runs_seconds`. `running`: it held GPUs when
    the replay begins. `nodes` are those of its pods, where it ran. `delay_seconds`: before it joins
    its queue, what neither quota nor room explains. `check_seconds`: such delays and admission
    checks, which begin when it has quota. `idle_seconds`: how long it did nothing before it ended.
    `queue` is a ClusterQueue. `resource` is what queues and quotas count; empty: they count the
    tier.
    """

    team: str
    tier: str
    units: float
    asked_at: float
    pods: int = 1
    runs_seconds: float | None = None
    leaves_at: float | None = None
    ends_at: float | None = None
    priority: int = 0
    queue: str = ""
    namespace: str = ""
    resource: str = ""
    requires: Labels = ()
    running: bool = False
    nodes: tuple[str, ...] = ()
    delay_seconds: float = 0.0
    check_seconds: float = 0.0
    idle_seconds: float = 0.0

    @property
    def total_units(self) -> float:
        return self.units * self.pods

    @property
    def counted(self) -> str:
        """What queues and quotas count of it."""
        return self.resource or self.tier


class DevicePart(NamedTuple):
    """Units of a device that a pod holds: the places of the node and of its device."""

    node: int
    device: int
    units: float


class HeldSpan(NamedTuple):
    """A time that a work ran, and on what; `end` None while it does."""

    start: float
    end: float | None
    parts: tuple[DevicePart, ...]


class PlayedWork(Struct):
    """What became of a work: `runs` are one after another.

    `ended_at` is when it finished or was canceled. `flavor` is that of its last admission.
    """

    work: RecordedWork
    flavor: str = ""
    runs: list[HeldSpan] = field(default_factory=list)
    ended_at: float | None = None

    @property
    def started_at(self) -> float | None:
        return self.runs[0].start if self.runs else None


class ClusterReplay(Struct, frozen=True):
    """Each work in the order given, without those asked for after the end; and what is assumed."""

    played: tuple[PlayedWork, ...]
    assumptions: tuple[ReplayAssumption, ...]
