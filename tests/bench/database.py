"""The portal's database for a fleet: its catalog, and the pod ledger as `watch` would write it."""

from collections.abc import Mapping, Sequence

from django.db import connection

from apps.clusters.domain.pods.kube_objects import NodeState
from apps.clusters.domain.pods.ledger import Owner, PodRecord
from apps.clusters.models import Cluster
from apps.clusters.services.catalog import TierHistory
from apps.clusters.services.pods.ledger_rows import NameRegistry
from apps.clusters.services.pods.node_store import NodeStateInterval, write_intervals
from apps.clusters.services.pods.pod_store import TrackedPod, write_pods, write_spans
from apps.operations.services import load_catalog
from tests.bench.fleet import (
    AROUND_SECONDS,
    CLUSTER,
    FIRST,
    GPUS_PER_NODE,
    INTERVAL_SECONDS,
    LAST,
    MODELS,
    WHOLE,
    Fleet,
    FleetNode,
    FleetPod,
    moment,
)
from tests.bench.shared_fleet import MIG, TIME_SLICED, SharedFleet

NOW = moment(LAST)


def watched(gpus: int) -> str:
    """Return the name of the cluster whose pods the API showed."""
    return f"bench-{gpus}"


def unwatched(gpus: int) -> str:
    """Return the name of the same cluster as known from its series alone."""
    return f"bench-{gpus}-series"


def sharing(gpus: int) -> str:
    """Return the name of the cluster of as many GPUs of which two thirds are shared or MIG."""
    return f"bench-{gpus}-shared"


def catalog(gpus: int, url: str, shared: str | None = None) -> str:
    """Return a catalog: tiers for each model, ten teams that share the namespaces.

    `shared` is the URL of the metrics of the cluster that is `sharing`; None leaves it out.
    """
    urls = {watched(gpus): url, unwatched(gpus): url}
    if shared is not None:
        urls[sharing(gpus)] = shared
    return catalog_of(urls)


def catalog_of(urls: Mapping[str, str]) -> str:
    """Return a catalog of clusters, by name, of which each URL has the metrics."""
    lines = ["clusters:", *(_cluster(name, url) for name, url in urls.items()), "tiers:"]
    for model, _, _ in MODELS:
        lines += (_tier(model.replace(" ", "-"), *one) for one in _TIERS)
    lines.append("teams:")
    lines.extend(f"  - {{name: group-{n}, namespaces: ['team-*{n}']}}" for n in range(10))
    lines.append("report: {time_zone: UTC, currency: USD}")
    return "\n".join(lines) + "\n"


_TIERS = (
    ("", "exclusive", WHOLE.resource),
    ("shared-", "time-sliced", TIME_SLICED.resource),
    ("mig-", "mig", MIG.resource),
)


def _cluster(name: str, url: str) -> str:
    return (
        f"  - {{name: {name}, prometheus: {{url: '{url}', matchers: {{cluster: {CLUSTER}}}, "
        f"scrape_interval_seconds: {INTERVAL_SECONDS}}}}}"
    )


def _tier(product: str, prefix: str, how: str, resource: str) -> str:
    return (
        f"  - {{name: {prefix}{product.lower()}, sharing: {how}, resources: [{resource}], "
        f"node_selector: {{nvidia.com/gpu.product: {product}}}, promise: A GPU or a part of it.}}"
    )


def measure(gpus: str, url: str) -> dict[str, int]:
    """Load the catalog and the ledger of the hour; return how many pods were written."""
    return {"pods": fill(int(gpus), url)}


def fill(gpus: int, url: str) -> int:
    """Load the catalog and the ledger of the hour; return how many pods were written."""
    load_catalog(catalog(gpus, url), "bench.yaml", now=NOW)
    return write_ledger(watched(gpus), Fleet(gpus))


def fill_shared(gpus: int, url: str, shared: str) -> int:
    """Add the cluster that is `sharing` to a database that is filled; return its pods' number."""
    load_catalog(catalog(gpus, url, shared), "bench.yaml", now=NOW)
    return write_ledger(sharing(gpus), SharedFleet(gpus))


def write_ledger(name: str, fleet: Fleet) -> int:
    """Write the pods and nodes of a fleet to a cluster; return how many pods."""
    cluster = Cluster.objects.get(name=name)
    names = NameRegistry(cluster.pk)
    write_intervals(intervals(fleet.nodes), names)
    pods = tracked(fleet)
    write_pods(cluster.pk, pods, names)
    write_spans(cluster.pk, [(FIRST - AROUND_SECONDS, LAST)])
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute("ANALYZE")
    return len(pods)


def intervals(nodes: Sequence[FleetNode]) -> dict[tuple[str, float], NodeStateInterval]:
    """Return an interval for each node, of before the data and lasting."""
    start = FIRST - 40 * 86400
    found = {}
    for node in nodes:
        units = {node.kind.resource: float(node.kind.per_gpu * GPUS_PER_NODE)}
        state = NodeState(node.name, units, units, node.labels, True, True)
        found[node.name, float(start)] = NodeStateInterval(start=start, state=state)
    return found


def tracked(fleet: Fleet) -> list[TrackedPod]:
    """Return the pods of the fleet with what they count as."""
    history = TierHistory.load()
    found = []
    for node in fleet.nodes:
        labels = node.labels
        for pod in node.pods:
            record = pod_record(pod, node)
            found.append(TrackedPod(record, history.assign(record, labels, LAST)))
    return found


def pod_record(pod: FleetPod, node: FleetNode) -> PodRecord:
    """Return the record that the API's words on a pod come to."""
    return PodRecord(
        uid=pod.uid,
        namespace=pod.namespace,
        name=pod.name,
        owner=Owner(pod.kind, pod.owner),
        requests={node.kind.resource: float(pod.units)},
        created=pod.created,
        node=node.name,
        bound=pod.bound,
        started=pod.started,
        finished=None if pod.deleted else pod.ended,
        deleted=pod.gone,
        runs=((pod.started, pod.ended),),
        end_reason="" if pod.ended is None else "Deleted" if pod.deleted else "Completed",
    )
