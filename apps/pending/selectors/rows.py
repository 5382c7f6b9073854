"""Rows of pending work for pages, API and commands: frozen."""

from collections.abc import Mapping
from datetime import date, datetime
from enum import StrEnum
from typing import Annotated, Any, ClassVar

from msgspec import Struct, field

from apps.clusters.domain.columns import Column
from apps.pending.domain.diagnosis import Cause, Counts
from apps.pending.domain.queues.gangs import GangMember
from apps.pending.domain.workload_groups import QueuePlace
from apps.usage.domain.usage_query import PlaceFilters


class PendingFilters(PlaceFilters, frozen=True):
    """Narrow a reading to these names, too. `kind` is that of Kubernetes (Pod, Job).

    `text` is a part of the name of an item or its workload; only what pends now has it.
    `workload_ids` narrows to these workloads, also where there are none; None: to any.
    """

    cause: tuple[str, ...] = ()
    kind: tuple[str, ...] = ()
    text: str = ""
    workload_ids: frozenset[int] | None = None


class PendingOrder(StrEnum):
    """The order: longest pending, or largest request in GPU-equivalents, first."""

    LONGEST = "longest"
    MOST = "most"


class PendingPage(Struct, frozen=True):
    """Which rows of the list: at most `size` after a cursor, in an order."""

    cursor: str | None = None
    size: int = 100
    order: PendingOrder = PendingOrder.LONGEST


class PendingGrouping(StrEnum):
    """The groups of pending sums; `day` is local to the report zone."""

    DAY = "day"
    CAUSE = "cause"
    TIER = "tier"
    TEAM = "team"
    CLUSTER = "cluster"
    NAMESPACE = "namespace"

    @property
    def key(self) -> str:
        """The group of a row that holds it."""
        return "period" if self is PendingGrouping.DAY else self.value


class SuggestionRow(Struct, frozen=True):
    """The smallest change that would unblock it; `change` is as `diagnosis.Action` says.

    `admits` is how many workloads of a queue it lets in, 0 where it is about this one alone.
    """

    action: Annotated[str, Column(help="What to do, of a closed list: free, raise_quota.")]
    text: Annotated[str, Column(help="The same in words.")]
    change: Annotated[Mapping[str, Any], Column(help="Its particulars, by the action.")] = field(
        default_factory=dict
    )
    admits: int = 0


class CauseIntervalRow(Struct, frozen=True):
    """A span of an episode with one cause; `end` None while it lasts."""

    cause: Annotated[str, Column("Cause")]
    detail: Annotated[str, Column("Detail")]
    start: Annotated[datetime, Column("From", key="from")]
    end: Annotated[datetime | None, Column("Until", key="until")]
    counts: Annotated[str, Column("State")]
    counted: Annotated[float, Column("Counted", "GPUs", "counted as pending in sums")]
    message: Annotated[str, Column("Related events", wraps=True)]


class PendingRow(Struct, frozen=True):
    """One pending workload, and why it is pending.

    Of an episode that ended `until` and `outcome` say when and how; of an open one `until` is None,
    `outcome` empty, and `wait_seconds` go until now. `again`: it was pending before. `blockers`
    name the nodes or queues whose pods hold what it requests. `id` is for cursors and links.
    """

    cluster: Annotated[str, Column("Cluster")]
    namespace: Annotated[str, Column("Namespace")]
    team: Annotated[str, Column("Team")]
    kind: Annotated[
        str, Column("Kind", help="As Kubernetes names it: Pod, Job, Workload, PodGroup.")
    ]
    name: Annotated[str, Column("Name")]
    uid: Annotated[str, Column("UID", help="Of the object; of refused pods, of their controller.")]
    workload: Annotated[str, Column("Workload", help="Kind/name of the top controller.")]
    tier: Annotated[str, Column("Tier", help="undetermined where several could serve it.")]
    resource: Annotated[str, Column("Resource", help="As Kubernetes names it: nvidia.com/gpu.")]
    units: Annotated[float, Column("Units", help="Units of the resource that it requests in all.")]
    gpu_equivalents: Annotated[
        float, Column("Size", "GPUs", "Units × weight; a physical GPU is 1.")
    ]
    counted: Annotated[
        float,
        Column(
            *("Counted", "GPUs", "What of that counts: a gang and its pods count once."),
            key="counted_gpu_equivalents",
        ),
    ]
    counts: Annotated[str, Column("Counts as", help="The sum that it counts in.", values=Counts)]
    since: Annotated[datetime, Column("Since")]
    wait_seconds: Annotated[float, Column("Pending for", "s")]
    cause: Annotated[str, Column("Cause", values=Cause)]
    detail: Annotated[
        str, Column("Detail", help="What exactly: none free, fragmented, queue-stopped.")
    ]
    explanation: Annotated[str, Column("Explanation", help="In words, with figures.", wraps=True)]
    message: Annotated[
        str, Column("Scheduler message", help="Unchanged from the cluster.", wraps=True)
    ]
    node_reasons: Annotated[
        Mapping[str, int],
        Column(
            help="Nodes by the scheduler's reason; one node may count several times.", files=False
        ),
    ]
    suggestion: Annotated[
        str | None,
        Column(
            "How to fix",
            help="The smallest change that would unblock it.",
            api_note="Null where unknown.",
            wraps=True,
        ),
    ]
    suggestions: Annotated[tuple[SuggestionRow, ...], Column(files=False)]
    context: Annotated[
        tuple[str, ...],
        Column(help="Related events, as of an autoscaler.", key="notes", files=False),
    ]
    as_of: Annotated[datetime | None, Column(help="Until when this is known; null where never.")]
    stale: Annotated[
        bool,
        Column("Stale", help="No watch follows the cluster, or this kind, now: it may be over."),
    ]
    queue: Annotated[str, Column("Queue", api=False)]
    priority: Annotated[int, Column("Priority", api=False)]
    id: int
    bound_at: datetime | None
    until: datetime | None
    outcome: str
    again: bool
    blockers: tuple[str, ...]
    place: QueuePlace | None = None


class EpisodeRow(Struct, frozen=True):
    """An episode with every change of its cause, oldest first."""

    row: PendingRow
    intervals: tuple[CauseIntervalRow, ...]


class PendingSum(Struct, frozen=True):
    """Work pending now of one cause, tier or team: GPU-equivalents, and how many items.

    `oldest_at` is since when the oldest of them is pending.
    """

    name: str
    pending: float
    suppressed: float
    starting: float
    items: int
    oldest_at: datetime


class RefreshRow(Struct, frozen=True):
    """The freshness of a cluster's pending data: `at` is the last refresh that worked, None before
    it.

    `as_of` is until when `watch` vouches for it; `stale` when that is too long ago, or where the
    last refresh failed. `error` is for who sees how the portal runs.
    """

    cluster: str
    at: datetime | None
    as_of: datetime | None
    stale: bool
    waiting: int
    error: str


class QueueTimeSums(Struct):
    """Nano-GPU-hours pending, blocked and starting; episodes that began and ended."""

    waited: Annotated[
        int,
        Column(
            *("Pending", "GPU-h", "Requested by pods that were not bound, × hours."),
            key="waiting_gpu_hours",
            digits=9,
        ),
    ] = 0
    suppressed: Annotated[
        int,
        Column(
            *("Blocked at admission", "GPU-h", "Work blocked at admission: not part of pending."),
            key="suppressed_gpu_hours",
            digits=9,
        ),
    ] = 0
    starting: Annotated[
        int,
        Column(
            *("Starting", "GPU-h", "Bound, and no container runs: allocated, so not pending."),
            key="starting_gpu_hours",
            digits=9,
            api_note="A part of the ledger's not_running.",
        ),
    ] = 0
    began: Annotated[int, Column("Entered queue", help="Episodes that began in the window.")] = 0
    ended: Annotated[int, Column("Left queue", help="Episodes that ended in the window.")] = 0

    def add(self, other: "QueueTimeSums") -> None:
        """Add another row to this one in place."""
        self.waited += other.waited
        self.suppressed += other.suppressed
        self.starting += other.starting
        self.began += other.began
        self.ended += other.ended


_PERIOD = "period"
_GROUPS = (
    Column(
        help="Start of the local day, with the report zone's offset.",
        key=_PERIOD,
        type=datetime,
        keep_offset=True,
    ),
    Column("Cause", key="cause", values=Cause),
    Column("Tier", key="tier"),
    Column("Team", key="team"),
    Column("Cluster", key="cluster"),
    Column("Namespace", key="namespace"),
)


class HistoryRow(Struct, frozen=True):
    """Pending work of one group within a window: `groups` has the requested names, in order.

    Where days were asked for, its `period` is the start of the local day.
    """

    groups: Annotated[Mapping[str, Any], Column(groups=_GROUPS)]
    sums: QueueTimeSums

    @property
    def day(self) -> date | None:
        """The local day; None where days were not asked for."""
        period = self.groups.get(_PERIOD)
        return None if period is None else period.date()

    @property
    def names(self) -> dict[str, str]:
        """The groups but for the day."""
        return {key: name for key, name in self.groups.items() if key != _PERIOD}


class StartTimes(Struct, frozen=True):
    """Queue times of items that started, from creation to start; nearest rank."""

    schema: ClassVar[str] = "QueueTimes"

    name: str
    count: Annotated[int, Column(help="Pods that started.")]
    p50_seconds: Annotated[float, Column(help="Half of them started within it.")]
    p95_seconds: Annotated[float, Column(help="95 % of them started within it.")]


class DayQueueTimes(Struct, frozen=True):
    """Queue times of the pods that started on a local day; nearest rank."""

    day: date
    count: int
    p50_seconds: float
    p95_seconds: float


class BlockingPod(Struct, frozen=True):
    """A pod that holds what a pending item needs; `utilization` of the last closed 24 hours.

    None where nothing of it was measured.
    """

    cluster: str
    namespace: str
    pod: Annotated[str, Column("Pod")]
    uid: str
    workload: Annotated[str, Column("Workload")]
    node: Annotated[str, Column("Node")]
    tier: str
    gpu_equivalents: Annotated[float, Column("Holds", "GPUs")]
    utilization: Annotated[float | None, Column("Utilization", "%", key="utilization_ratio")]
    bound_at: Annotated[datetime, Column("Bound")]


class BlockingTeam(Struct, frozen=True):
    """The pods of a team that hold what a pending item needs; the most idle first.

    `listed` is empty for teams that the reader does not see.
    """

    team: Annotated[str, Column("Team")]
    pods: Annotated[int, Column("Pods")]
    gpu_equivalents: Annotated[float, Column("Hold", "GPUs")]
    utilization: Annotated[
        float | None,
        Column("Utilization", "%", "of the last 24 hours known", key="utilization_ratio"),
    ]
    listed: tuple[BlockingPod, ...]


class PartialGang(Struct, frozen=True):
    """A job that needs all its pods and has some of them on GPUs; see docs/definitions.md.

    `holding` and `waiting` count pods, `since` is when the first of those that wait now began
    to. `held` is in nano-GPU-hours: what was held for nothing since then. `utilization` is that
    of the holders since then, None where nothing was measured.
    """

    workload: Annotated[str, Column("Job")]
    cluster: Annotated[str, Column("Cluster")]
    namespace: Annotated[str, Column("Namespace")]
    team: Annotated[str, Column("Team")]
    tier: Annotated[str, Column("Tier")]
    holding: Annotated[int, Column("Allocated", "pods")]
    holding_gpu_equivalents: Annotated[float, Column("Allocated", "GPUs")]
    waiting: Annotated[int, Column("Pending", "pods")]
    waiting_gpu_equivalents: Annotated[float, Column("Missing", "GPUs")]
    cause: Annotated[str, Column("Cause")]
    since: Annotated[datetime, Column("Since")]
    held: Annotated[
        int,
        Column("GPU-hours lost", "GPU-h", "held since the others pend", key="held_gpu_hours"),
    ]
    utilization: Annotated[
        float | None,
        Column(
            "Utilization",
            "%",
            "of the pods that hold, since the others pend",
            key="utilization_ratio",
        ),
    ]
    pods: tuple[str, ...]
    holders: tuple[GangMember, ...] = ()


class EvictionSum(Struct, frozen=True):
    """What was lost to others within a window, by tier or team; amounts in nano-GPU-hours.

    `rate` is what evicted pods had held ÷ all that was allocated in the window; None without.
    """

    name: str
    pods: int
    preempted: int
    reclaimed: int
    rate: float | None
    allocated: int = 0
