"""What a scenario is made of: nodes with devices, controllers and pods.

Times are whole Unix seconds unless a name says milliseconds. Everything is a pure function of
time: an object exists from its creation until its deletion, and its state at any instant follows
from its times. Nothing here reads a clock.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

GPU = "nvidia.com/gpu"
FOREVER = 253_402_300_799
"""The last second of the year 9999: the end of what does not end."""
LINGER_SECONDS = 300
"""How long a finished pod stays in the API before it is cleaned up."""
DAY = 86_400


@dataclass(frozen=True, slots=True)
class Device:
    """One GPU. `index` counts from 0 on its node."""

    index: int
    uuid: str
    pci_bus_id: str


@dataclass(frozen=True, slots=True)
class Node:
    """A machine and the exporter that runs on it; `scrape_phase_ms` is when that is scraped."""

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


@dataclass(frozen=True, slots=True)
class Controller:
    """A Deployment, ReplicaSet, StatefulSet, Job or CronJob; `parent` is what controls it."""

    kind: str
    name: str
    namespace: str
    uid: str
    created: int
    deleted: int = FOREVER
    parent: "Controller | None" = None


@dataclass(frozen=True, slots=True)
class Pod:
    """One pod. A time that has not come, or never comes, is FOREVER.

    A pod that ended is Succeeded from `finished` until `deleted`; one that gave up waiting has
    `deleted` alone. `devices` are indexes on `node`. Its signals do not change while it runs.
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
    waiting_message: str = ""

    @property
    def released(self) -> int:
        """When it stopped asking for or holding GPUs."""
        return min(self.finished, self.deleted)

    def exists(self, at: int) -> bool:
        return self.created <= at < self.deleted

    def changed(self, at: int) -> int:
        """Return the time of its last change up to `at`."""
        times = (self.created, self.bound, self.started, self.finished, self.deleted)
        return max(t for t in times if t <= at)
