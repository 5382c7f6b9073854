"""What the doctor looks at: plain records of one cluster, and the rights that it needs there."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple, TypedDict, Unpack

from msgspec import Struct, field

from apps.clusters.domain.credentials import Credential
from apps.clusters.domain.devices.exporter_profile import ExporterProfile
from apps.clusters.domain.pods.ledger import PLURALS, NodeInterval
from apps.clusters.domain.tiers import TierRule, same_model
from apps.goodput.domain.advice import GpuAdvice
from apps.operations.domain.findings import Finding


class SourceTrouble(NamedTuple):
    """Why a source gave no answer; `passing` when trying again later may help."""

    text: str
    passing: bool


class ObservedDevice(NamedTuple):
    """A device (GPU or MIG instance) as the exporter showed it in the slot looked at.

    `samples` counts those of all its rows, `named` those of rows that name a pod, `pods` how many
    different ones they name. `activity`, `memory` and `energy`: whether anything tells it.
    """

    uuid: str
    gpu_instance: str
    model: str
    node: str
    samples: int
    named: int
    pods: int
    activity: bool
    memory: bool
    energy: bool


class QuotaRow(NamedTuple):
    """A GPU key of a ResourceQuota."""

    namespace: str
    quota: str
    key: str
    hard: float | None


class NodeHeadroom(NamedTuple):
    """What a node has left for pods: CPUs and bytes of memory not requested by anybody."""

    cpus: float
    memory_bytes: float


class MetricsAnswers(Struct, frozen=True):
    """What the metrics server answered to the doctor's own questions.

    `skew_seconds` is its clock minus ours. `scraped_twice` counts the devices that more than one
    target shows. `kube_state_copies` is how often a node is shown, `clusters` of how many clusters
    nodes are. `tainted` are the nodes with any taint, `room` is what nodes have left. None: not
    answered.
    """

    skew_seconds: float | None = None
    scraped_twice: int = 0
    kube_state_copies: int = 1
    clusters: int = 1
    tainted: frozenset[str] | None = None
    room: Mapping[str, NodeHeadroom] | None = None


class MetricsObservations(Struct, frozen=True):
    """What the metrics server shows of the newest closed slot.

    `nodes` are what kube-state-metrics shows, `kube_state` whether it is there at all (None: not
    looked at). `remarks` counts what the reading of devices noticed, `profile` is how the
    exporters showed themselves and `changes` what is different from before, in words, since
    `changed_at`. `answers` is None where the source does not take the doctor's own questions,
    `unasked` says in words what was not looked at. `credentials` are those that sign requests.
    """

    trouble: SourceTrouble | None = None
    version: str = ""
    devices: Sequence[ObservedDevice] = ()
    interval_seconds: float | None = None
    remarks: Mapping[str, int] = field(default_factory=dict)
    profile: ExporterProfile = field(default_factory=ExporterProfile)
    changes: tuple[str, ...] = ()
    changed_at: datetime | None = None
    kube_state: bool | None = None
    nodes: Sequence[NodeInterval] = ()
    quotas: Sequence[QuotaRow] | None = None
    answers: MetricsAnswers | None = None
    unasked: tuple[str, ...] = ()
    credentials: tuple[Credential, ...] = ()


class Right(NamedTuple):
    """A right of an account: a verb on a resource of an API group (empty: core).

    In all namespaces, or to one object by its `name` in a `namespace`.
    """

    verb: str
    group: str
    resource: str
    namespace: str = ""
    name: str = ""

    @property
    def words(self) -> str:
        of = f".{self.group}" if self.group else ""
        one = f" {self.namespace}/{self.name}" if self.name else ""
        return f"{self.verb} {self.resource}{of}{one}"


class WriterRights(Struct, frozen=True):
    """What the account that changes quotas may do.

    `denied` are rights that it lacks in all namespaces, `excess` those that it has and never uses.
    `limited` says whether the server refuses it what it never changes; None: not checked.
    """

    trouble: SourceTrouble | None = None
    denied: tuple[Right, ...] = ()
    excess: tuple[Right, ...] = ()
    limited: bool | None = None
    credentials: tuple[Credential, ...] = ()


class ApiObservations(Struct, frozen=True):
    """What the Kubernetes API shows.

    `denied` are needed rights that the account lacks, `unexplained` those to follow the causes of
    pending work, `excess` some that it has and never uses. `labels` are those of nodes as they are
    now: the ledger keeps only labels that decide capacity and tiers. `writer` is None where the
    portal changes no quotas. `elsewhere` are accounts that only other processes can use.
    """

    trouble: SourceTrouble | None = None
    version: str = ""
    denied: tuple[Right, ...] = ()
    unexplained: tuple[Right, ...] = ()
    excess: tuple[Right, ...] = ()
    writer: WriterRights | None = None
    elsewhere: frozenset[str] = frozenset()
    watched_until: datetime | None = None
    credentials: tuple[Credential, ...] = ()
    labels: Mapping[str, Mapping[str, str]] = field(default_factory=dict)


class NodeTenant(NamedTuple):
    """A pod that holds GPUs now."""

    namespace: str
    pod: str
    node: str
    resource: str
    units: float
    tier: str
    kind: str
    workload: str
    running: bool


class PodGroup(NamedTuple):
    """Pods of the past that are alike: how many there were, of one kind of workload on a tier."""

    namespace: str
    kind: str
    resource: str
    units: float
    tier: str
    pods: int


class GangGroup(NamedTuple):
    """Jobs of a namespace and a kind whose pods work together and that no gang scheduler starts."""

    namespace: str
    kind: str
    jobs: int
    pods: int


class NodeDay(NamedTuple):
    """A node's GPU-hours of the last day, and the memory peak of its pods in MiB."""

    node: str
    tier: str
    allocated: float
    not_running: float
    unmeasured: float
    unallocated: float
    memory_peak_mib: float | None


class TierMonth(NamedTuple):
    """A tier's GPU-hours of the last 30 days."""

    tier: str
    allocated: float
    stranded: float
    unattributed: float


class TeamTier(NamedTuple):
    """What a team was allocated on a tier in the last 30 days, in GPU-hours."""

    team: str
    tier: str
    allocated: float


class UnassignedNamespace(NamedTuple):
    """A namespace of no team, with its GPU-hours of the last 30 days."""

    namespace: str
    allocated: float


class CollectedHours(Struct, frozen=True):
    """The collected hours of the last day: counts by state, the newest error, what was noticed.

    `newest` is the end of the newest hour with facts, `due` of the newest that should have some.
    """

    complete: int = 0
    partial: int = 0
    failed: int = 0
    error: str = ""
    remarks: Mapping[str, int] = field(default_factory=dict)
    newest: datetime | None = None
    due: datetime | None = None


class ClusterHistory(Struct, frozen=True):
    """What the database has: the nodes as they are, who holds GPUs, and facts.

    `quotas` are the keys of ResourceQuotas as the watch lists them; None: they are not watched.
    `topology_policies` has the policy of the Topology Manager of the nodes that publish it.
    `unreliable_nodes` say what to do about nodes on which work fails too often, `gpu_advice` what
    about GPUs where it does, or that are broken.
    """

    nodes: Sequence[NodeInterval] = ()
    tenants: Sequence[NodeTenant] = ()
    groups: Sequence[PodGroup] = ()
    node_days: Sequence[NodeDay] = ()
    tiers: Sequence[TierMonth] = ()
    teams: Sequence[TeamTier] = ()
    unassigned: Sequence[UnassignedNamespace] = ()
    quotas: Sequence[QuotaRow] | None = None
    hours: CollectedHours = field(default_factory=CollectedHours)
    gangs: Sequence[GangGroup] = ()
    topology_policies: Mapping[str, str] = field(default_factory=dict)
    unreliable_nodes: Mapping[str, str] = field(default_factory=dict)
    gpu_advice: Sequence[GpuAdvice] = ()


class FindingDetails(TypedDict, total=False):
    """What a finding may say beside its sentences, as `Finding` has it."""

    pods: int | None
    gpu_hours: float | None
    places: tuple[str, ...]
    since: datetime | None
    tiers: tuple[str, ...]


class ClusterObservations(Struct, frozen=True):
    """All that is known of one cluster at `now`.

    `api` is None where the catalog gives metrics only. `rules` are the tiers as they are valid,
    `allowed` the teams of those tiers that not all may use. `tiers_elsewhere` are the tiers that
    other clusters match.
    """

    cluster: str
    now: datetime
    metrics: MetricsObservations
    api: ApiObservations | None = None
    past: ClusterHistory = field(default_factory=ClusterHistory)
    rules: Sequence[TierRule] = ()
    allowed: Mapping[str, frozenset[str]] = field(default_factory=dict)
    tiers_elsewhere: frozenset[str] = frozenset()
    catalog_interval_seconds: float = 30.0

    def finding(
        self, code: str, subject: str, what: str, fix: str, **about: Unpack[FindingDetails]
    ) -> Finding:
        """Return a finding about this cluster."""
        return Finding(code, self.cluster, subject, what, fix, **about)

    @property
    def nodes(self) -> Sequence[NodeInterval]:
        """The nodes with GPUs, from the API where it is watched, else from kube-state-metrics."""
        return self.past.nodes or self.metrics.nodes

    @property
    def quotas(self) -> Sequence[QuotaRow] | None:
        """The keys of ResourceQuotas: as the watch lists them, else as series show them.

        None where neither tells. Without a series nothing is told: quotas may not be exported.
        """
        return self.past.quotas if self.past.quotas is not None else (self.metrics.quotas or None)

    def labels_of(self, node: NodeInterval) -> Mapping[str, str]:
        """Return all labels of a node, where the API shows them; else those of the ledger."""
        shown = self.api.labels.get(node.node, {}) if self.api else {}
        # The API last: the ledger keeps some labels alone, perhaps of before a change.
        return {**node.labels, **shown}

    @property
    def measured(self) -> bool:
        """Whether the metrics server could be asked at all."""
        return self.metrics.trouble is None

    def devices_of(self, model: str) -> list[ObservedDevice]:
        return [device for device in self.metrics.devices if same_model(device.model, model)]

    def allocated(self, tier: str) -> float:
        """Return the GPU-hours that a tier had allocated in the last 30 days."""
        return sum(row.allocated for row in self.past.tiers if row.tier == tier)


DRA_GROUP = "resource.k8s.io"
LEDGER = (("", "nodes"), ("", "namespaces"), ("", "pods"))
DRA = tuple((DRA_GROUP, r) for r in ("resourceclaims", "resourceslices", "deviceclasses"))
_FOLLOWED = ("list", "watch")
_GROUPS = {"Job": "batch", "CronJob": "batch", "ReplicationController": ""}
OWNERS = tuple((_GROUPS.get(kind, "apps"), plural) for kind, plural in PLURALS.items())


def explaining(collections: Iterable[str]) -> Iterator[Right]:
    """Yield the rights to follow collections, given by their paths, that explain pending work."""
    for path in collections:
        # /apis/GROUP/VERSION/PLURAL; the core group is under /api and has no name.
        plain, _, narrowed = path.partition("?")
        parts = plain.split("/")
        group = parts[2] if plain.startswith("/apis/") else ""
        # One object: …/namespaces/NAMESPACE/PLURAL?fieldSelector=metadata.name=NAME
        one = (parts[-2], narrowed.rpartition("=")[2]) if narrowed else ()
        for verb in _FOLLOWED:
            yield Right(verb, group, parts[-1], *one)


def needed(rules: Iterable[TierRule]) -> Iterator[Right]:
    """Yield the rights that watch and collect use; those on DRA objects where a tier is of DRA."""
    with_claims = any(rule.device_classes for rule in rules)
    for group, resource in (*LEDGER, *(DRA if with_claims else ())):
        for verb in _FOLLOWED:
            yield Right(verb, group, resource)
    for group, resource in OWNERS:
        # Controllers are looked up one by one, never listed or followed.
        yield Right("get", group, resource)


# ---------------------------------------------------------------- the account that changes quotas

RESOURCE_QUOTAS = ("", "resourcequotas")
# What limits are kept in, where a cluster has it.
QUEUES = (("kueue.x-k8s.io", "clusterqueues"), ("scheduling.volcano.sh", "queues"))
LIMITS = (RESOURCE_QUOTAS, *QUEUES)
_CHANGED = ("get", "patch")
ANYTHING = Right("*", "*", "*")


def changing(collections: Iterable[str]) -> Iterator[Right]:
    """Yield the rights to change limits; of queues where the cluster has them, by their paths."""
    served = (path for path in collections if path.startswith("/apis/"))
    there = {(path.split("/")[2], path.rpartition("/")[2]) for path in served}
    for group, resource in (RESOURCE_QUOTAS, *(queue for queue in QUEUES if queue in there)):
        for verb in _CHANGED:
            yield Right(verb, group, resource)


# Asked for as signs: who may do one of these may do harm that no change of a quota needs. Rights
# that every account has, as to ask for its own, are none of them.
_HARM = (
    Right("create", "", "pods"),
    Right("delete", "", "pods"),
    Right("patch", "", "nodes"),
    Right("patch", "apps", "deployments"),
    Right("get", "", "secrets"),
    Right("list", "", "secrets"),
    Right("impersonate", "", "users"),
    Right("patch", "rbac.authorization.k8s.io", "clusterroles"),
)
# A limit is never made, never taken away and never written as a whole, not for a moment.
WRITER_EXCESS = (
    *(Right(verb, *limit) for limit in LIMITS for verb in ("create", "update", "delete")),
    *_HARM,
)
READER_EXCESS = (
    *(Right(verb, *limit) for limit in LIMITS for verb in ("create", "update", "patch", "delete")),
    *_HARM,
)
