"""The portal's database for a fleet: its catalog, and the pod ledger as `watch` would write it."""

from collections.abc import Sequence

from django.db import connection

from apps.clusters.domain.kube_objects import NodeState
from apps.clusters.domain.ledger import Owner, PodRecord
from apps.clusters.models import Cluster
from apps.clusters.services.ledger_writer import write_pods, write_spans, write_spells
from apps.clusters.services.names import Names
from apps.clusters.services.node_book import Spell
from apps.clusters.services.pod_book import TrackedPod
from apps.clusters.services.tier_history import TierHistory
from apps.operations.services import load_catalog
from tests.bench.fleet import (
    AROUND_SECONDS,
    CLUSTER,
    FIRST,
    INTERVAL_SECONDS,
    LAST,
    MODELS,
    Fleet,
    FleetNode,
    FleetPod,
    moment,
)

GPU = "nvidia.com/gpu"
NOW = moment(LAST)


def watched(gpus: int) -> str:
    """Return the name of the cluster whose pods the API showed."""
    return f"bench-{gpus}"


def unwatched(gpus: int) -> str:
    """Return the name of the same cluster as known from its series alone."""
    return f"bench-{gpus}-series"


def catalog(gpus: int, url: str) -> str:
    """Return a catalog: a tier for each model, ten teams that share the namespaces."""
    reached = (
        f"{{url: '{url}', matchers: {{cluster: {CLUSTER}}}, "
        f"scrape_interval_seconds: {INTERVAL_SECONDS}}}"
    )
    clusters = (watched(gpus), unwatched(gpus))
    lines = ["clusters:", *(f"  - {{name: {n}, prometheus: {reached}}}" for n in clusters)]
    lines.append("tiers:")
    for model, _, _ in MODELS:
        product = model.replace(" ", "-")
        lines.append(
            f"  - {{name: {product.lower()}, sharing: exclusive, resources: [{GPU}], "
            f"node_selector: {{nvidia.com/gpu.product: {product}}}, promise: A whole card.}}"
        )
    lines.append("teams:")
    lines.extend(f"  - {{name: group-{n}, namespaces: ['team-*{n}']}}" for n in range(10))
    lines.append("report: {time_zone: UTC, currency: USD}")
    return "\n".join(lines) + "\n"


def measure(gpus: str, url: str) -> dict[str, int]:
    """Load the catalog and the ledger of the hour; return how many pods were written."""
    return {"pods": fill(int(gpus), url)}


def fill(gpus: int, url: str) -> int:
    """Load the catalog and the ledger of the hour; return how many pods were written."""
    load_catalog(catalog(gpus, url), "bench.yaml", now=NOW)
    cluster = Cluster.objects.get(name=watched(gpus))
    fleet = Fleet(gpus)
    names = Names(cluster.pk)
    write_spells(spells(fleet.nodes), names)
    pods = tracked(fleet)
    write_pods(cluster.pk, pods, names)
    write_spans(cluster.pk, [(FIRST - AROUND_SECONDS, LAST)])
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute("ANALYZE")
    return len(pods)


def spells(nodes: Sequence[FleetNode]) -> dict[tuple[str, float], Spell]:
    """Return a spell for each node, of before the data and lasting."""
    start = FIRST - 40 * 86400
    found = {}
    for node in nodes:
        state = NodeState(node.name, {GPU: 8.0}, {GPU: 8.0}, node.labels, True, True)
        found[node.name, float(start)] = Spell(start=start, state=state)
    return found


def tracked(fleet: Fleet) -> list[TrackedPod]:
    """Return the pods of the fleet with what they count as."""
    history = TierHistory.load()
    found = []
    for node in fleet.nodes:
        labels = node.labels
        for pod in node.pods:
            record = pod_record(pod, node.name)
            found.append(TrackedPod(record, history.assign(record, labels, LAST)))
    return found


def pod_record(pod: FleetPod, node: str) -> PodRecord:
    """Return the record that the API's words on a pod come to."""
    return PodRecord(
        uid=pod.uid,
        namespace=pod.namespace,
        name=pod.name,
        owner=Owner(pod.kind, pod.owner),
        requests={GPU: float(pod.units)},
        created=pod.created,
        node=node,
        bound=pod.bound,
        started=pod.started,
        finished=None if pod.deleted else pod.ended,
        deleted=pod.gone,
        runs=((pod.started, pod.ended),),
        end_reason="" if pod.ended is None else "Deleted" if pod.deleted else "Completed",
    )
