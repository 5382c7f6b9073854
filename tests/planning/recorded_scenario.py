"""Writes what a watch that never was away would have recorded of a simulated cluster.

Pods, nodes, queues and quotas are read off the objects that the simulated API server shows, by
the functions with which the watch reads them; only the hours in between are not waited for.
"""

from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from apps.accounts.domain.structs import replace
from apps.clusters.domain.devices.resource_claims import CLAIM_KIND, NO_CLAIMS, PodClaims
from apps.clusters.domain.observed.extract import observed_object, setting_of
from apps.clusters.domain.observed.objects import WITH_HISTORY, ObservedKind, ObservedObject
from apps.clusters.domain.pods.kube_objects import NodeState, node_state, pod_record
from apps.clusters.domain.pods.ledger import OfferedDevice, Owner, PodRecord
from apps.clusters.domain.tiers import NodeOffer, NodeOffers
from apps.clusters.models import Cluster, NodeInterval, WatchCoverage
from apps.clusters.services import NameRegistry, TierHistory
from apps.clusters.services.pods.ledger_rows import interval_values
from apps.clusters.services.pods.pod_store import TrackedPod, upsert_pods
from apps.clusters.services.watch.object_rows import write_objects
from apps.operations.services import load_catalog
from simulator.catalog import catalog_yaml
from simulator.fleet import DAY, FOREVER, Controller, Node, Pod, Sharing
from simulator.kubernetes import entities, queue_entities
from simulator.kubernetes.objects import node_object
from simulator.kubernetes.pods import pod_object
from tests.planning.recorded_pending import write_pending

_AT_ONCE = 2000
_SOURCES: Mapping[ObservedKind, Any] = {
    ObservedKind.CLUSTER_QUEUE: queue_entities.cluster_queues,
    ObservedKind.LOCAL_QUEUE: queue_entities.local_queues,
    ObservedKind.RESOURCE_FLAVOR: queue_entities.flavors,
    ObservedKind.COHORT: queue_entities.cohorts,
    ObservedKind.RESOURCE_QUOTA: entities._quotas,
    ObservedKind.NODE: entities._nodes,
}


def record_scenario(scenario: Any, *, start: int, end: int) -> Cluster:
    """Write pods, nodes, queues and quotas of a scenario from `start` to `end`; return the cluster.

    Pods that a queue or a gate held have pending episodes. Work whose pods never came to be is not
    recorded here.
    """
    at = datetime.fromtimestamp(end, UTC)
    load_catalog(
        catalog_yaml(scenario, url="http://127.0.0.1:1"), "catalog.yaml", now=at, dry_run=False
    )
    cluster = Cluster.objects.get(name="lab")
    catalog = TierHistory.load()
    WatchCoverage.objects.create(
        cluster=cluster, start=datetime.fromtimestamp(start, UTC) - timedelta(days=1), end=at
    )
    _write_nodes(cluster, scenario.nodes, catalog, start, end)
    _write_pods(cluster, scenario, catalog, start, end)
    found = [one for kind in _SOURCES for one in _objects(scenario, kind, start, end)]
    write_objects(cluster.pk, found)
    return cluster


def _write_nodes(
    cluster: Cluster, nodes: Iterable[Node], catalog: TierHistory, start: int, end: int
) -> None:
    names = NameRegistry(cluster.pk)
    ids = names.nodes({node.name for node in nodes})
    rows = []
    for node in nodes:
        times = sorted({max(node.created, start - DAY), *node.turns(start - DAY, end)})
        for at, until in zip(times, [*times[1:], None], strict=True):
            state = _state(node, at, catalog)
            rows.append(
                NodeInterval(
                    node_id=ids[node.name],
                    start=datetime.fromtimestamp(at, UTC),
                    **{
                        **interval_values(state, None),
                        "end": None if until is None else datetime.fromtimestamp(until, UTC),
                    },
                )
            )
    NodeInterval.objects.bulk_create(rows)


def _state(node: Node, at: int, catalog: TierHistory) -> NodeState:
    item, keys = node_object(node, at), catalog.label_keys
    state = node_state(item, named=catalog.resources, label_keys=keys)
    if node.sharing is not Sharing.DRA:
        return state
    return NodeState(
        state.name, state.capacity, state.allocatable, state.labels, state.ready,
        state.schedulable, tuple(_offered(node)),
    )  # fmt: skip


def _offered(node: Node) -> Iterator[OfferedDevice]:
    for device in node.devices:
        profiles = [one.profile for one in device.instances] or [""]
        for place, profile in enumerate(profiles):
            name = "mig.nvidia.com" if profile else "gpu.nvidia.com"
            yield OfferedDevice(
                "gpu.nvidia.com", node.name, f"gpu-{device.index}-{place}", device.uuid,
                profile, node.model, (name,),
            )  # fmt: skip


def _write_pods(
    cluster: Cluster, scenario: Any, catalog: TierHistory, start: int, end: int
) -> None:
    labels = {node.name: dict(node.labels) for node in scenario.nodes}
    places = NodeOffers([NodeOffer(own) for _, own in sorted(labels.items())])
    pods = {
        pod.uid: pod
        for epoch in scenario.epochs(start, end)
        for pod in epoch.pods_between(start, end)
        if pod.namespace not in entities._fault_namespaces(scenario)
    }
    records = [found for pod in pods.values() if (found := _record(pod, catalog, end))]
    records += _claims(scenario, start, end)
    tracked = [
        TrackedPod(one, catalog.assign(one, labels.get(one.node), one.created, places=places))
        for one in records
    ]
    names = NameRegistry(cluster.pk)
    for first in range(0, len(tracked), _AT_ONCE):
        upsert_pods(cluster.pk, tracked[first : first + _AT_ONCE], names)
    write_pending(cluster.pk, pods.values(), end)


def _record(pod: Pod, catalog: TierHistory, end: int) -> PodRecord | None:
    gone, at = pod.deleted <= end, min(pod.deleted, end)
    claims = NO_CLAIMS
    if pod.claim is not None:
        # Of several pods of one claim the watch knows whose it is; here each has its own.
        counts = {pod.claim.device_class: float(pod.claim.count)}
        claims = PodClaims(counts, (pod.claim.uid,), frozenset({"main"}))
    return pod_record(
        pod_object(pod, at),
        owner=_top(pod.owner),
        named=catalog.resources,
        deleted=float(pod.deleted) if gone and pod.deleted < FOREVER else None,
        claims=claims,
    )


def _claims(scenario: Any, start: int, end: int) -> Iterator[PodRecord]:
    """Yield allocated claims, which have rows of their own."""
    found = {
        claim.uid: claim
        for epoch in scenario.epochs(start, end)
        for claim in getattr(epoch, "claims", ())
        if claim.allocated < min(end, claim.released) and claim.released > start and not claim.admin
    }
    for claim in found.values():
        over = claim.released if claim.released <= end else None
        yield PodRecord(
            claim.uid, claim.namespace, claim.name, Owner(CLAIM_KIND, claim.name),
            {claim.device_class: float(claim.count)}, float(claim.allocated),
            node=claim.node, bound=float(claim.allocated),
            deleted=None if over is None else float(over),
        )  # fmt: skip


def _top(owner: Controller) -> Owner:
    while owner.parent is not None:
        owner = owner.parent
    return Owner(owner.kind, owner.name)


def _objects(scenario: Any, kind: ObservedKind, start: int, end: int) -> Iterator[ObservedObject]:
    """Yield the settings of the objects of a kind, one after another."""
    plain = (ObservedKind.RESOURCE_QUOTA, ObservedKind.NODE)
    if not getattr(scenario, "queues", ()) and kind not in plain:
        return
    for entity in _SOURCES[kind](scenario, start, end):
        last: ObservedObject | None = None
        for at in sorted({max(entity.created, start), *entity.changes}):
            if not start <= at <= min(end, entity.deleted):
                continue
            item = entity.render(at)
            body = observed_object(kind, item)
            if body is None:
                continue
            body = setting_of(body)
            if last is not None and last.body == body:
                continue
            if last is not None and kind in WITH_HISTORY:
                yield replace(last, gone=float(at))
            metadata = item["metadata"]
            last = ObservedObject(
                kind, metadata["uid"], metadata.get("namespace", ""), metadata["name"], body,
                first=float(at), changed=float(at),
            )  # fmt: skip
        if last is not None:
            yield last
