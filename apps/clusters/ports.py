"""What the portal asks of a cluster's Prometheus and Kubernetes API, and how these may fail."""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from msgspec import Struct, field

from apps.clusters.domain.devices.errors import HealthAnswer
from apps.clusters.domain.devices.exporter_profile import ExporterProfile
from apps.clusters.domain.devices.state import ActivitySample, DeviceSlot, DeviceState
from apps.clusters.domain.pods.kube_state_nodes import ShownSeries
from apps.clusters.domain.pods.ledger import NodeInterval, PodRecord
from apps.clusters.domain.pods.people import PersonSource
from apps.clusters.domain.serving_objectives import TtftObjectives
from apps.clusters.domain.window import Window


class SourceUnavailable(Exception):
    """The source cannot answer now (down, overloaded, timed out, cut off): try again later.

    `retry_after_seconds` is how long the server asks to wait, 0 where it does not say.
    """

    retry_after_seconds: float = 0.0


class SourceRejected(Exception):
    """The source refuses or answers nonsense (401, 403, 422, not JSON): a person must act.

    `credentials` says that the account was not accepted, as while a token is being rotated.
    """

    credentials: bool = False


class ShownMetric(NamedTuple):
    """A metric that has samples in a slot."""

    slot: int
    name: str


class QuotaSlot(NamedTuple):
    """Mean of one ResourceQuota value over one slot, as kube-state-metrics shows it."""

    slot: int
    namespace: str
    quota: str
    key: str
    hard: float | None
    used: float | None


class QueueSlot(NamedTuple):
    """Means of a ClusterQueue over one slot in units of a resource, as Kueue shows them.

    What is pending has no flavor yet: its row has an empty one and neither `nominal` nor
    `reserved`. None where there is no such series.
    """

    slot: int
    queue: str
    flavor: str
    resource: str
    nominal: float | None = None
    reserved: float | None = None
    pending: float | None = None


class QueuePendingSlot(NamedTuple):
    """Mean of what was pending in a queue of Kueue over one slot.

    Of a ClusterQueue either `units` of a resource or, where `resource` is empty, its number of
    pending `workloads`. With a `namespace` it is a LocalQueue of that namespace, of which only the
    number is exported.
    """

    slot: int
    namespace: str
    queue: str
    resource: str
    units: float | None = None
    workloads: float | None = None


class PodCheckpoints(NamedTuple):
    """When the work of a pod saved its state, as series tell; Unix seconds, in order."""

    namespace: str
    pod: str
    times: tuple[float, ...]


class ServingPodHour(NamedTuple):
    """What an inference server in a pod did for one model in one hour, as its own series tell.

    `hour` is when the hour starts, Unix seconds; `measured_seconds` for how much of it the series
    are there. Numbers are growth of counters in this time: tokens read and written, finished
    requests, first tokens of answers and those of them within the objective, which is
    `ttft_objective_ms`. `running`, `waiting` and `kv_cache` (0..1) are means. What the server does
    not export is None, never zero.
    """

    hour: int
    namespace: str
    pod: str
    model: str
    engine: str
    measured_seconds: float
    tokens_in: float | None = None
    tokens_out: float | None = None
    requests: float | None = None
    first_tokens: float | None = None
    first_tokens_in_time: float | None = None
    ttft_objective_ms: float | None = None
    running: float | None = None
    waiting: float | None = None
    kv_cache: float | None = None


Item = TypeVar("Item")


class Answered(NamedTuple, Generic[Item]):
    """What a source answered; `incomplete` has the words for what it lacks, mostly the server's.

    What is missing from an incomplete answer may be there all the same.
    """

    rows: Sequence[Item]
    incomplete: tuple[str, ...] = ()


class ShownQuery(NamedTuple):
    """A query as a person may put it to the metrics system, and what it is asked for."""

    purpose: str
    text: str


class ShownColumn(NamedTuple):
    """A column of a file that figures rest on, and what is taken from it."""

    name: str
    meaning: str


class DeviceAnswer(Struct, frozen=True):
    """The device rows of a window, with what the source said about its answer.

    `activity_metric` names the metric used. `intervals` gives the seconds between samples of a
    device in a slot, by (slot, UUID, MIG instance), as raw spacing shows; a device that is not in
    it has the interval `scrape_interval_seconds`, the common one (None: could not be seen).

    `profile` describes the exporters as this window showed them. `findings` counts the devices by
    slot and finding: `stuck_counter` (the profiling counter stayed at 0 while utilization, used
    instead, did not), `no_process_values` (a shared GPU whose pods all read 0 while it was active).
    `incomplete` are the server's warnings that parts of an answer are missing.
    """

    rows: Sequence[DeviceSlot]
    activity_metric: str = ""
    scrape_interval_seconds: float | None = None
    warnings: tuple[str, ...] = ()
    intervals: Mapping[tuple[int, str, str], float] = field(default_factory=dict)
    profile: ExporterProfile = field(default_factory=ExporterProfile)
    findings: Mapping[tuple[int, str], int] = field(default_factory=dict)
    incomplete: tuple[str, ...] = ()

    def findings_of(self, slots: Sequence[int]) -> Counter[str]:
        """Return the findings on these slots, by their name."""
        found: Counter[str] = Counter()
        for (slot, name), count in self.findings.items():
            if slot in slots:
                found[name] += count
        return found


class LedgerAnswer(Struct, frozen=True):
    """Pods and node intervals read from kube-state-metrics series, graded `inferred`.

    `covered` says for each slot whether kube-state-metrics was there throughout, without a hole
    of more than 90 seconds. `shown` describes the series themselves.
    """

    pods: Sequence[PodRecord]
    nodes: Sequence[NodeInterval]
    covered: Mapping[int, bool]
    warnings: tuple[str, ...] = ()
    shown: ShownSeries = field(default_factory=ShownSeries)
    incomplete: tuple[str, ...] = ()


class SourceHealth(Struct, frozen=True):
    """What a source says of itself."""

    version: str


class MetricsSource(Protocol):
    """A server that speaks the Prometheus HTTP API; every method raises the two errors above.

    A source of another kind that inherits it has nothing of what it does not write itself.
    """

    def devices(self, window: Window) -> DeviceAnswer:
        """Return every device row of the window's slots (whole slots; any length)."""
        return DeviceAnswer(rows=())

    def activity_samples(self, uuids: Sequence[str], window: Window) -> Answered[ActivitySample]:
        """Return raw samples of these devices alone, for what slots cannot tell apart."""
        return Answered(())

    def ledger(
        self,
        window: Window,
        *,
        gpu_resources: Sequence[str] = (),
        label_keys: Sequence[str] = (),
    ) -> LedgerAnswer:
        """Return the pods and nodes of the window as kube-state-metrics saw them.

        `gpu_resources` are resources that tiers name beside the known ones, `label_keys` node
        labels that tiers select on. A pod that was over before the window is left out.
        """

    def people(self, window: Window, sources: Sequence[PersonSource]) -> Mapping[str, str]:
        """Return uid → person of the pods of which series of a window name one.

        Pods of all kinds, also of those without GPUs. The first source that names one counts.
        """

    def quotas(self, window: Window) -> Answered[QuotaSlot]:
        """Return the GPU quota keys of the window's slots."""
        return Answered(())

    def queues(self, window: Window) -> Answered[QueueSlot]:
        """Return what ClusterQueues of Kueue have of GPUs in the window's slots."""
        return Answered(())

    def queue_pending(
        self, window: Window, *, gpu_resources: Sequence[str] = ()
    ) -> Answered[QueuePendingSlot]:
        """Return what was pending in Kueue's queues in the window's slots; empty without Kueue.

        `gpu_resources` are resources that tiers name beside the known ones.
        """
        return Answered(())

    def shown_metrics(self, window: Window) -> Answered[ShownMetric]:
        """Return the metrics of inference servers and of health of GPUs that have samples.

        One query for a day: most clusters have none of them.
        """
        return Answered(())

    def serving(
        self,
        window: Window,
        *,
        objectives: TtftObjectives,
        shown: Collection[ShownMetric] | None = None,
    ) -> Answered[ServingPodHour]:
        """Return what inference servers did in each whole hour of the window; empty without any.

        `objectives` tell the time to first token that each pod is held against. `shown` is what
        `shown_metrics` returned; None finds out first which of its series there are.
        """
        return Answered(())

    def checkpoints(self, window: Window) -> Answered[PodCheckpoints]:
        """Return when workloads saved their state, by pod, as far as series of the window tell.

        Empty, and no query, where the catalog names no metric of it.
        """
        return Answered(())

    def device_health(
        self, window: Window, *, shown: Collection[ShownMetric] | None = None
    ) -> HealthAnswer:
        """Return in which whole hours of the window something went wrong on a GPU, and what.

        `shown` is as of `serving`.
        """
        return HealthAnswer()

    def device_states(self, at: datetime) -> Answered[DeviceState]:
        """Return what every device shown at `at` says of itself, by UUID and MIG instance."""
        return Answered(())

    def health(self) -> SourceHealth:
        """Return the server's version; the cheapest call there is."""

    def retention(self) -> timedelta | None:
        """Return how long the server keeps samples; None where it does not tell."""
        return None


class Listing(Struct, frozen=True):
    """A whole list of one kind, as decoded JSON objects, and the version to watch from."""

    items: Sequence[Mapping[str, Any]]
    resource_version: str


class ObjectChange(Struct, frozen=True):
    """One line of a watch: type ADDED, MODIFIED, DELETED or BOOKMARK."""

    type: str
    object: Mapping[str, Any]

    @property
    def resource_version(self) -> str:
        return str(self.object.get("metadata", {}).get("resourceVersion", ""))


class WatchExpired(Exception):
    """The server no longer knows the version asked for (410): list again."""


class ClusterSource(Protocol):
    """A Kubernetes API server; `path` is that of a collection, as `/api/v1/pods`."""

    def list(self, path: str) -> Listing:
        """Return all objects of a collection, read in chunks, as of one version."""

    def version(self, path: str) -> str:
        """Return the present version of a collection, without its objects."""

    def watch(self, path: str, *, resource_version: str) -> Iterator[ObjectChange]:
        """Yield changes from that version on until the server ends the stream.

        Raises WatchExpired on 410, SourceUnavailable when the stream breaks.
        """

    def get(self, path: str) -> Mapping[str, Any] | None:
        """Return one object; None when there is none (404)."""

    def health(self) -> SourceHealth:
        """Return the server's version."""

    def close(self) -> None:
        """Let go of the connections; streams that are open end."""


class Unanswered(StrEnum):
    """Why a request has no answer. UNSENT: certainly nothing reached the server."""

    UNSENT = "not sent"
    LOST = "sent, no answer"


class Reply(Struct, frozen=True):
    """What an API server answered: `body` is decoded JSON, None where it was none.

    Without an answer `status` is 0 and `unanswered` says why. `retry_after` is the header,
    `warnings` are those of that name.
    """

    status: int = 0
    body: object = None
    retry_after: str | None = None
    warnings: tuple[str, ...] = ()
    unanswered: Unanswered | None = None


class QuotaWriter(Protocol):
    """A Kubernetes API server under the account that may change quotas.

    Nothing is raised for what a server answers or for one that is away: each request is sent at
    most once, and what is known of its fate is the answer.
    """

    def send(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str],
        headers: Mapping[str, str],
        body: bytes = b"",
    ) -> Reply:
        """Send one request, to its end or to its time-out."""

    def close(self) -> None:
        """Let go of the connections."""
