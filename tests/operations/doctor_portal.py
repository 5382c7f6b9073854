"""A small healthy portal and its sources behind fake ports, for the doctor to examine."""

from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from msgspec import Struct, field, to_builtins

from apps.clusters.domain.devices.exporter_profile import ExporterProfile
from apps.clusters.domain.devices.state import DeviceSlot
from apps.clusters.domain.observed.objects import ObservedKind, QuotaSnapshot
from apps.clusters.domain.pods.ledger import NodeInterval, Owner, PodRecord
from apps.clusters.domain.window import Window
from apps.clusters.gateways import ClusterClients
from apps.clusters.models import Cluster, ObservedObject, Pod, WatchCoverage
from apps.clusters.models import NodeInterval as NodeIntervalRow
from apps.clusters.ports import QuotaSlot, QuotaWriter, SourceRejected
from apps.operations.adapters import metric_queries
from apps.operations.services import Diagnosis, run_doctor
from tests import factories
from tests.clusters.fakes.fake_cluster import FakeCluster
from tests.clusters.fakes.fake_metrics import FakeMetrics
from tests.operations.doctor_sources import A100, GPU, NOW, PRODUCT, PROFILE

BEGAN = NOW.replace(minute=0) - timedelta(hours=26)
KEY = "requests.nvidia.com/gpu"
SLOT = int(NOW.replace(minute=0).timestamp()) - 1800
LABELS = {PRODUCT: A100, "nvidia.com/gpu.sharing-strategy": "none", "nvidia.com/gpu.replicas": "1"}

Series = Sequence[tuple[Mapping[str, str], float]]
GIB = 2.0**30


class AskedMetrics(FakeMetrics):
    """A metrics source that takes questions, too; `replies` by question, none is an error."""

    replies: dict[str, Series] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)

    def ask(self, question: str) -> Series:
        self._called("ask")
        self.asked.append(question)
        if question not in self.replies:
            raise SourceRejected("this server does not know that function")
        return self.replies[question]


class AskedCluster(FakeCluster):
    """An API server that says what an account may do: read all but `denied`, and do `given`."""

    def __init__(
        self,
        denied: Collection[tuple[str, str, str]] = (),
        given: Collection[tuple[str, str, str]] = (),
    ) -> None:
        super().__init__()
        self.denied, self.given = denied, given

    def may(
        self, verb: str, group: str, resource: str, namespace: str = "", name: str = ""
    ) -> bool:
        self._call("may", f"{verb} {resource}.{group}")
        asked = (verb, group, resource)
        reads = verb in {"get", "list", "watch"} and resource != "secrets"
        return asked in self.given or (reads and asked not in self.denied)


def replies(nodes: Sequence[str]) -> dict[str, Series]:
    """Return the answers of a healthy server to every question, its clock apart."""
    by_node = [({"node": name}, 1.0) for name in nodes]
    room = {"cpu": 64.0, "memory": 512.0 * GIB}
    found: dict[str, Series] = {
        metric_queries.TWICE: [],
        metric_queries.KUBE_STATE_COPIES: [({}, 1.0)],
        metric_queries.CLUSTERS: [({}, 1.0)],
        metric_queries.TAINTED: by_node,
    }
    for resource, amount in room.items():
        found[metric_queries.ALLOCATABLE % resource] = [({"node": n}, amount) for n in nodes]
        found[metric_queries.REQUESTED % resource] = [({"node": n}, amount / 2) for n in nodes]
    return found


def rows(node: str, **changes: Any) -> list[DeviceSlot]:
    """Return the rows of a node's eight GPUs in the newest slot, a pod on each."""
    return [
        DeviceSlot(
            slot=SLOT,
            uuid=f"GPU-{node}-{n}",
            gpu_instance="",
            profile="",
            model="NVIDIA A100-SXM4-80GB",
            node=node,
            namespace="vision",
            pod=f"train-{node}-{n}",
            container="main",
            activity_sum=30.0,
            samples=60,
            memory_used_peak_mib=1000.0,
            energy_wh=100.0,
        )._replace(**changes)
        for n in range(8)
    ]


def interval(node: str, **labels: str) -> NodeInterval:
    held = {GPU: 8.0}
    return NodeInterval(node, BEGAN.timestamp(), NOW.timestamp(), held, held, {**LABELS, **labels})


def pods(node: str) -> list[PodRecord]:
    """Return the pods of a node as kube-state-metrics shows them."""
    began = BEGAN.timestamp()
    return [
        PodRecord(
            uid=f"{node}-{n}",
            namespace="vision",
            name=f"train-{node}-{n}",
            owner=Owner("Job", "train"),
            requests={GPU: 1.0},
            created=began,
            node=node,
            bound=began,
            started=began,
            runs=((began, None),),
        )
        for n in range(8)
    ]


class Place(Struct):
    """A healthy cluster: its row, and the sources that a clients gives for it."""

    cluster: Cluster
    metrics: AskedMetrics
    api: AskedCluster | None
    writer: FakeCluster | None = None
    quota_writer: QuotaWriter | None = None
    elsewhere: frozenset[str] = frozenset()


class World:
    """Clusters by name with their sources; a clients that leads to them."""

    def __init__(self, *places: Place) -> None:
        self.places = {place.cluster.name: place for place in places}

    def __getitem__(self, name: str) -> Place:
        return self.places[name]

    @property
    def clients(self) -> ClusterClients:
        return ClusterClients(
            metrics=lambda cluster: self.places[cluster.name].metrics,
            kubernetes=lambda cluster: self.places[cluster.name].api,
            writer=lambda cluster: self.places[cluster.name].quota_writer,
            writer_account=lambda cluster: self.places[cluster.name].writer,
            accounts_elsewhere=lambda cluster: self.places[cluster.name].elsewhere,
        )


def world_of(clusters: tuple[Cluster, Cluster]) -> World:
    """Return the clusters that `make_clusters` made, each with healthy sources of its own."""
    west, east = clusters
    return World(
        Place(west, _metrics("west-1"), AskedCluster()), Place(east, _metrics("east-1"), None)
    )


def make_clusters() -> tuple[Cluster, Cluster]:
    """Fill the database: west with API and a day of facts, east known from metrics alone."""
    factories.make_report("UTC")
    factories.ensure_builtin()
    tier = factories.make_tier("silver", model=A100)
    team = factories.make_team("vision", "vision")
    west = factories.make_cluster("west", kubernetes={"in_cluster": True})
    east = factories.make_cluster("east")
    WatchCoverage.objects.create(cluster=west, start=BEGAN, end=NOW - timedelta(seconds=10))
    held: list[Pod] = []
    node_gpus = [factories.make_gpus(one, f"{one.name}-1", tier) for one in (west, east)]
    for of, cluster in zip(node_gpus, (west, east), strict=True):
        workload = factories.make_workload(cluster, "vision", "train")
        held += [_pod(workload, f"train-{cluster.name}-1-{n}", of, cluster) for n in range(8)]
    see_quotas(west, **{KEY: 8.0})
    NodeIntervalRow.objects.create(
        node=node_gpus[0].node,
        start=BEGAN,
        ready=True,
        schedulable=True,
        capacity={GPU: 8},
        allocatable={GPU: 8},
        labels=LABELS,
    )
    hours = factories.hours_of(Window(BEGAN, NOW.replace(minute=0)))
    facts = [
        factories.PodFact(pod, node_gpus[n // 8], team, factories.held(1.0, busy=0.5))
        for n, pod in enumerate(held)
    ]
    factories.collect(hours, node_gpus, lambda _hour: facts, zone=factories.make_report("UTC"))
    return west, east


def see_quotas(cluster: Cluster, **hard: float) -> None:
    """Let the watch list one ResourceQuota of vision with these keys; without any: none."""
    rows = ObservedObject.objects.filter(cluster=cluster, kind=ObservedKind.RESOURCE_QUOTA.value)
    rows.delete()
    if hard:
        ObservedObject.objects.create(
            cluster=cluster,
            kind=ObservedKind.RESOURCE_QUOTA.value,
            uid="quota",
            namespace="vision",
            name="gpu",
            first_at=BEGAN,
            changed_at=BEGAN,
            body=to_builtins(QuotaSnapshot(hard=hard)),
        )


def _pod(workload: Any, name: str, node_gpus: factories.NodeGpus, cluster: Cluster) -> Pod:
    began = BEGAN.timestamp()
    source = "api" if cluster.kubernetes else "metrics"
    return factories.make_pod(
        workload,
        name,
        created_at=BEGAN,
        node_gpus=node_gpus,
        units=1.0,
        runs=[[began, None]],
        source=source,
    )


def _metrics(node: str) -> AskedMetrics:
    quota = QuotaSlot(SLOT, "vision", "gpu", KEY, 8.0, 8.0)
    return AskedMetrics(
        device_slots=rows(node),
        pods=pods(node),
        nodes=[interval(node)],
        quota_slots=[quota],
        profile=PROFILE,
        replies=replies([node]),
    )


def changed_profile(world: World, name: str, profile: ExporterProfile) -> None:
    world[name].metrics.profile = profile


Planted = Callable[[World], object]


def examined(world: World, now: datetime = NOW, cluster: str | None = None) -> Diagnosis:
    return run_doctor(now, cluster=cluster, clients=world.clients)


def codes(found: Diagnosis) -> list[tuple[str, str]]:
    return [(finding.cluster, finding.code) for finding in found.findings]


def plant(world: World, **values: object) -> None:
    found = values.get("findings")
    if isinstance(found, dict):
        values["findings"] = {(SLOT, name): count for name, count in found.items()}
    for name, value in values.items():
        setattr(world["west"].metrics, name, value)


def deny(world: World, *rights: tuple[str, str, str]) -> None:
    world["west"].api = AskedCluster(rights)
