"""What a scenario is made of: nodes with devices, controllers and pods.

Times are whole Unix seconds unless a name says milliseconds. Everything is a pure function of
time: an object exists from its creation until its deletion, and its state at any instant follows
from its times. Nothing here reads a clock.
"""

from bisect import bisect_right
from collections.abc import Mapping
from enum import StrEnum
from typing import NamedTuple

from msgspec import Struct, field

from apps.accounts.domain.structs import replace

NODE_POOL_LABEL = "karpenter.sh/nodepool"
GPU = "nvidia.com/gpu"
GPU_SHARED = "nvidia.com/gpu.shared"
AMD_GPU = "amd.com/gpu"
GAUDI = "habana.ai/gaudi"
NEURON = "aws.amazon.com/neuron"
NEURON_CORE = "aws.amazon.com/neuroncore"
CORES_OF_NEURON = 2
"""NeuronCores of a device, as Inferentia2 has them."""
MIG_PREFIX = "nvidia.com/mig-"
FOREVER = 253_402_300_799
"""The last second of the year 9999: the end of what does not end."""
BACK_OFF_SECONDS = 10
"""Of a kubelet, before it starts a container again for the first time."""
LINGER_SECONDS = 300
"""How long a finished pod stays in the API before it is cleaned up."""
DAY = 86_400


class Sharing(StrEnum):
    """How a node's GPUs are given out. A MIG node's devices have instances."""

    EXCLUSIVE = "exclusive"
    TIME_SLICED = "time-slicing"
    MPS = "mps"
    MIG_SINGLE = "single"
    MIG_MIXED = "mixed"
    DRA = "dra"


CLASSIC_METRICS = (
    "DCGM_FI_PROF_GR_ENGINE_ACTIVE",
    "DCGM_FI_DEV_GPU_UTIL",
    "DCGM_FI_DEV_FB_USED",
    "DCGM_FI_DEV_FB_FREE",
    "DCGM_FI_DEV_POWER_USAGE",
    "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION",
)

STANDARD_METRICS = (
    *CLASSIC_METRICS,
    "DCGM_FI_DEV_FB_RESERVED",
    "DCGM_FI_DEV_MEM_COPY_UTIL",
    "DCGM_FI_DEV_GPU_TEMP",
    "DCGM_FI_DEV_MEMORY_TEMP",
    "DCGM_FI_DEV_SM_CLOCK",
    "DCGM_FI_DEV_XID_ERRORS",
    "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS",
    "DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS",
    "DCGM_FI_DEV_ROW_REMAP_FAILURE",
    "up",
)
FULL_METRICS = (*STANDARD_METRICS, "DCGM_FI_PROF_SM_ACTIVE", "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE")
HEALTH_METRICS = (
    "DCGM_FI_DEV_ECC_SBE_VOL_TOTAL",
    "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL",
    "DCGM_FI_DEV_ECC_SBE_AGG_TOTAL",
    "DCGM_FI_DEV_ECC_DBE_AGG_TOTAL",
    "DCGM_FI_DEV_THERMAL_VIOLATION",
    "DCGM_FI_DEV_POWER_VIOLATION",
    "DCGM_FI_DEV_CLOCK_THROTTLE_REASONS",
)
"""What an exporter shows beside them where its operator adds ECC and throttling."""


class Exporter(Struct, frozen=True):
    """How a dcgm-exporter is set up and scraped; `version` is the exporter's, not DCGM's.

    `kubernetes` is the mapping of devices to pods, which looks at `nvidia.com/gpu`, MIG resources
    and those of `resource_names`, and at claims with `dra`. `virtual_gpus` names every container on
    a GPU, `host_pid` lets it see their processes.
    """

    version: tuple[int, int, int] = (4, 4, 0)
    metrics: tuple[str, ...] = CLASSIC_METRICS
    honor_labels: bool = False
    kubernetes: bool = True
    virtual_gpus: bool = False
    host_pid: bool = True
    dra: bool = False
    resource_names: tuple[str, ...] = ()
    interval_ms: int = 30_000
    job: str = "nvidia-dcgm-exporter"
    namespace: str = "gpu-operator"

    @property
    def per_process(self) -> bool:
        """Whether utilization and memory are told by process (4.8.2 and newer)."""
        return self.virtual_gpus and self.version >= (4, 8, 2)


class GpuSpec(Struct, frozen=True):
    """A model of GPU; `product` is as GPU Feature Discovery labels it.

    `profiling` says whether it has profiling counters (Volta and newer), `hbm` whether it tells
    the temperature of its memory, `resource` what it is offered as when whole.
    """

    model: str
    product: str
    board_mib: int
    visible_mib: int
    idle_watts: float
    board_watts: float
    clock_mhz: int
    family: str = "ampere"
    compute: tuple[int, int] = (8, 0)
    mig: bool = False
    hbm: bool = False
    profiling: bool = True
    resource: str = GPU


class Instance(Struct, frozen=True):
    """A GPU instance of a GPU in MIG mode; `number` is its id on the GPU."""

    number: int
    profile: str
    uuid: str
    visible_mib: int


class Device(Struct, frozen=True):
    """One GPU. `index` counts from 0 on its node.

    A `stuck` one has profiling counters that stay 0. `xids` are (time, code) of its errors, of
    which the exporter shows the latest; `remapped_rows` those of its memory from the beginning.
    `memory_faults` are the times of errors that ECC could not correct, each of which costs a row,
    `hot` the (start, end) in which its clocks are held down for heat.
    """

    index: int
    uuid: str
    pci_bus_id: str
    instances: tuple[Instance, ...] = ()
    stuck: bool = False
    xids: tuple[tuple[int, int], ...] = ()
    remapped_rows: int = 0
    memory_faults: tuple[int, ...] = ()
    hot: tuple[tuple[int, int], ...] = ()


class NodeState(Struct, frozen=True):
    """What a node is like from `since` on; `unhealthy` are indexes of devices, `labels` extra."""

    since: int
    ready: bool = True
    cordoned: bool = False
    unhealthy: tuple[int, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)


class Node(Struct, frozen=True):
    """A machine and the exporter that runs on it; `scrape_phase_ms` is when that is scraped.

    `replicas` are those of each GPU of a shared node; `renamed` says that they are offered as
    `nvidia.com/gpu.shared`. `states` are in the order of time; before the first all is well.
    With `repeats` their times count from the start of each stretch of so many seconds.
    `cpu_cores` and `memory_gib` 0 stand for the usual amount. Of a second exporter pod, address
    and phase follow from its job.
    """

    name: str
    position: int
    created: int
    labels: Mapping[str, str]
    model: str
    devices: tuple[Device, ...]
    idle_watts: float
    visible_mib: int
    ip: str
    exporter_pod: str
    exporter_ip: str
    scrape_phase_ms: int
    gpu: GpuSpec | None = None
    sharing: Sharing = Sharing.EXCLUSIVE
    replicas: int = 1
    renamed: bool = False
    exporters: tuple[Exporter, ...] = (Exporter(),)
    states: tuple[NodeState, ...] = ()
    taints: tuple[tuple[str, str, str], ...] = ()
    cpu_cores: int = 0
    memory_gib: int = 0
    repeats: int = 0

    @property
    def resource(self) -> str:
        """What its whole GPUs or their replicas are offered as; nothing by DRA."""
        if self.sharing is Sharing.DRA:
            return ""
        if self.renamed:
            return GPU_SHARED
        return self.gpu.resource if self.gpu else GPU

    def state(self, at: int) -> NodeState:
        if self.repeats:
            return self._repeated(at)
        place = bisect_right(self.states, at, key=lambda state: state.since)
        return self.states[place - 1] if place else NodeState(self.created)

    def _repeated(self, at: int) -> NodeState:
        into = (at - self.created) % self.repeats
        place = bisect_right(self.states, into, key=lambda state: state.since)
        found = self.states[place - 1]
        return replace(found, since=at - into + found.since)

    def turns(self, start: int, end: int) -> list[int]:
        """Return when it begins to be otherwise, in start..end (both included), oldest first."""
        if not self.repeats:
            return [state.since for state in self.states if start <= state.since <= end]
        first = (
            self.created + (max(start, self.created) - self.created) // self.repeats * self.repeats
        )
        return [
            at
            for base in range(first, end + 1, self.repeats)
            for state in self.states
            if start <= (at := base + state.since) <= end
        ]

    def labels_at(self, at: int) -> Mapping[str, str]:
        extra = self.state(at).labels
        return {**self.labels, **extra} if extra else self.labels


class Claim(Struct, frozen=True):
    """A ResourceClaim for `count` devices of a class; `template` is empty where none made it.

    It is given its devices at `allocated` and loses them at `released`. `node`, `devices` and
    `instances` are as those of a pod; one for administration (`admin`) takes nothing.
    """

    name: str
    namespace: str
    uid: str
    device_class: str
    created: int
    template: str = ""
    allocated: int = FOREVER
    released: int = FOREVER
    deleted: int = FOREVER
    node: str = ""
    devices: tuple[int, ...] = ()
    instances: tuple[int, ...] = ()
    count: int = 1
    admin: bool = False


class Admission(Struct, frozen=True):
    """How a pod is let to the scheduler: it has the scheduling gate `gate` until `at`.

    By a queue of Kueue: its `workload` (a uid) is considered from `evaluated_at` on, quota is
    reserved for it at `reserved`, and its pod gets the node labels `adds` on admission. `queue` is
    the ClusterQueue, `local` the LocalQueue; both are empty where another gate holds it.
    """

    gate: str
    at: int = FOREVER
    queue: str = ""
    local: str = ""
    evaluated_at: int = FOREVER
    reserved: int = FOREVER
    workload: str = ""
    adds: Mapping[str, str] = field(default_factory=dict)


class Refusal(Struct, frozen=True):
    """Pods that a controller wants and a quota refuses, of `units` each; `message` says so."""

    wanted: int
    units: int
    resource: str
    node_selector: Mapping[str, str]
    message: str


class Suspension(Struct, frozen=True):
    """A Job that is pending in a queue of Kueue, suspended, as long as it is there: without pods.

    It wants `parallelism` pods of `units` each. `queue` is the ClusterQueue, `local` the
    LocalQueue, `workload` the uid of its Workload.
    """

    queue: str
    local: str
    parallelism: int
    units: int
    resource: str
    node_selector: Mapping[str, str]
    workload: str

    @property
    def wanted(self) -> int:
        """Units of all its pods."""
        return self.parallelism * self.units


class Controller(Struct, frozen=True):
    """A Deployment, ReplicaSet, StatefulSet, Job, CronJob or a kind of gangs; `parent` controls it.

    One with a `refusal` or a `suspension` has none of the pods that it wants.
    """

    kind: str
    name: str
    namespace: str
    uid: str
    created: int
    deleted: int = FOREVER
    parent: "Controller | None" = None
    refusal: Refusal | None = None
    suspension: Suspension | None = None


class Phase(Struct, frozen=True):
    """What a pod does on each of its devices from `since` on."""

    since: int
    activity: float
    power_watts: float
    sm_active: float


class Crash(NamedTuple):
    """A container's end at `at`, for a kubelet's `reason`, after which it was started again."""

    at: int
    reason: str = "Error"
    back_off: int = BACK_OFF_SECONDS

    @property
    def restarted(self) -> int:
        """When it runs again."""
        return self.at + self.back_off


class Pod(Struct, frozen=True):
    """One pod. A time that has not come, or never comes, is FOREVER.

    A pod that ended is Succeeded from `finished` until `deleted`; one that was canceled before its
    start has `deleted` alone. `devices` are indexes on `node`, and `instances`, where they are of
    MIG, the places among the instances of each. Its `units` are spread evenly over them.

    `activity` (0..1 of each device or instance it is on), memory and power are what it adds to
    each while it runs; with `phases`, the first of which begins with it, they change over time.
    `cpu_cores` 0 requests the usual amount. It `tolerates` taints beside that of GPUs.

    One that a kubelet turned away `failed`; one that is `crashing` counts as running and never
    does; one of which no scheduler says that it cannot be placed is not `unschedulable`. `attempts`
    are (time, what the scheduler said) while it was pending, instead of `pending_message` alone;
    before its `admission` no scheduler looks at it. One that did not end as it should has the
    `end_reason` that a kubelet or a scheduler gives. `crashes` of its container are in the order of
    time, as its `checkpoints` are, of which an annotation tells the last, or a series where it is
    not `annotating` them. Its template may carry `annotations`.
    """

    uid: str
    name: str
    namespace: str
    owner: Controller
    units: int
    created: int
    bound: int = FOREVER
    started: int = FOREVER
    finished: int = FOREVER
    deleted: int = FOREVER
    node: str = ""
    host_ip: str = ""
    devices: tuple[int, ...] = ()
    activity: float = 0.0
    memory_mib: int = 0
    power_watts: float = 0.0
    node_selector: Mapping[str, str] = field(default_factory=dict)
    pending_message: str = ""
    resource: str = GPU
    instances: tuple[int, ...] = ()
    claim: Claim | None = None
    sm_active: float = 0.0
    cpu_cores: int = 0
    memory_gib: int = 0
    tolerates_gpu: bool = False
    failed: bool = False
    annotations: Mapping[str, str] = field(default_factory=dict)
    crashing: bool = False
    unschedulable: bool = True
    admission: Admission | None = None
    attempts: tuple[tuple[int, str], ...] = ()
    tolerates: tuple[tuple[str, str, str], ...] = ()
    phases: tuple[Phase, ...] = ()
    end_reason: str = ""
    crashes: tuple[Crash, ...] = ()
    checkpoints: tuple[int, ...] = ()
    annotating: bool = True

    @property
    def runs(self) -> tuple[tuple[int, int], ...]:
        """The spans in which its container ran, the last of them until it finished."""
        starts = (self.started, *(crash.restarted for crash in self.crashes))
        ends = (*(crash.at for crash in self.crashes), self.finished)
        return tuple(zip(starts, ends, strict=True))

    def crash(self, at: int) -> Crash | None:
        """Return the last crash up to a time; None before the first."""
        place = bisect_right(self.crashes, at, key=lambda crash: crash.at)
        return self.crashes[place - 1] if place else None

    def checkpoint(self, at: int) -> int | None:
        """Return the last checkpoint up to a time; None before the first."""
        place = bisect_right(self.checkpoints, at)
        return self.checkpoints[place - 1] if place else None

    @property
    def has_failed(self) -> bool:
        """Whether its phase is Failed once it is over."""
        return self.failed or bool(self.end_reason)

    @property
    def stretches(self) -> "tuple[Pod, ...]":
        """The pod as it is on its devices in each of its phases or runs, one after another."""
        if self.crashes and not self.phases:
            # While a kubelet backs off it does nothing there.
            return tuple(
                replace(self, started=start, finished=end, crashes=()) for start, end in self.runs
            )
        if not self.phases:
            return (self,)
        ends = [phase.since for phase in self.phases[1:]] + [self.finished]
        return tuple(
            replace(
                self,
                started=max(self.started, phase.since),
                finished=end,
                activity=phase.activity,
                power_watts=phase.power_watts,
                sm_active=phase.sm_active,
                phases=(),
            )
            for phase, end in zip(self.phases, ends, strict=True)
        )

    @property
    def admitted(self) -> int:
        """When schedulers began to look at it."""
        return self.created if self.admission is None else self.admission.at

    @property
    def tried(self) -> tuple[tuple[int, str], ...]:
        """When a scheduler looked at it in vain, and what it said."""
        if self.attempts or self.admission is not None:
            return self.attempts
        return ((self.created, self.pending_message),) if self.bound != self.created else ()

    @property
    def times(self) -> set[int]:
        """When it becomes another: all that happens to it as long as it is there."""
        found = {self.created, self.bound, self.started, self.finished, self.deleted}
        found.update(crash.at for crash in self.crashes)
        found.update(crash.restarted for crash in self.crashes)
        found.update(self.checkpoints)
        if self.admission is not None:
            found.add(self.admission.at)
            found.update(at for at, _ in self.attempts)
        return {at for at in found if at < FOREVER and self.created <= at <= self.deleted}

    @property
    def released(self) -> int:
        """When it stopped asking for or holding GPUs."""
        return min(self.finished, self.deleted)

    def exists(self, at: int) -> bool:
        return self.created <= at < self.deleted

    def changed(self, at: int) -> int:
        """Return the time of its last change up to `at`."""
        return max(t for t in self.times if t <= at)
