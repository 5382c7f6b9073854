"""The collections of the Kubernetes API: what is in each, when it changes, how it looks then."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial

from msgspec import Struct

from apps.accounts.domain.structs import replace
from simulator.epochs import NEVER, Epoch
from simulator.fault_scenarios.cycle import FaultCycle, gone_at, times_of
from simulator.fault_scenarios.scenario import faults_of
from simulator.fleet import FOREVER, NODE_POOL_LABEL, Claim, Controller, Pod
from simulator.kubernetes import claims, queue_entities
from simulator.kubernetes.entity import Entity
from simulator.kubernetes.objects import (
    AUTOSCALING,
    KARPENTER,
    Object,
    autoscaler_status,
    controller_object,
    event_times,
    namespace_object,
    node_object,
    node_pool_object,
    provisioning_object,
    quota_object,
    scheduling_event,
)
from simulator.kubernetes.pods import pod_object
from simulator.scenarios.base import Quota, Scenario
from simulator.scheduler.gangs import API_VERSION as VOLCANO
from simulator.scheduler.kueue import API_VERSION as KUEUE
from simulator.scheduler.store import ObjectLife

_HOUR = 3600
EVENT_SECONDS = _HOUR
"""How long an event is kept (the API server's default)."""


Source = Callable[[Scenario, int, int], Iterator[Entity]]
"""Gives the entities that exist at some time in start..end (both included)."""


class Collection(Struct, frozen=True):
    group_version: str
    plural: str
    kind: str
    namespaced: bool
    source: Source

    @property
    def prefix(self) -> str:
        """The path under which it is served."""
        return "/api/v1" if self.group_version == "v1" else f"/apis/{self.group_version}"


def _pods(scenario: Scenario, start: int, end: int) -> Iterator[Entity]:
    elsewhere = _fault_namespaces(scenario)
    for epoch in scenario.epochs(start, end):
        for pod in epoch.pods_between(start, end):
            if pod.namespace not in elsewhere:
                yield _pod(pod)


def _pod(pod: Pod) -> Entity:
    changes, render = sorted(pod.times), partial(pod_object, pod)
    return Entity(pod.namespace, pod.name, pod.created, pod.deleted, changes, render)


def _events(scenario: Scenario, start: int, end: int) -> Iterator[Entity]:
    elsewhere = _fault_namespaces(scenario)
    for epoch in scenario.epochs(start - EVENT_SECONDS, end):
        for pod in epoch.pods_between(start - EVENT_SECONDS, end):
            if pod.namespace in elsewhere:
                continue
            for at in event_times(pod):
                gone = at + EVENT_SECONDS
                if at <= end and gone > start:
                    event = scheduling_event(pod, at)
                    name = event["metadata"]["name"]
                    yield Entity(pod.namespace, name, at, gone, (at, gone), _always(event))


def _nodes(scenario: Scenario, start: int, end: int) -> Iterator[Entity]:
    for node in scenario.nodes:
        changes = sorted({node.created, *(state.since for state in node.states)})
        render = partial(node_object, node)
        yield Entity("", node.name, node.created, FOREVER, changes, render)


def _node_pools(scenario: Scenario, start: int, end: int) -> Iterator[Entity]:
    for name, limit in scenario.node_pools.items():
        own = [node for node in scenario.nodes if node.labels.get(NODE_POOL_LABEL) == name]
        found = node_pool_object(name, limit, own, scenario.begins)
        yield Entity.lasting(found, scenario.begins)


def _autoscaler_status(scenario: Scenario, start: int, end: int) -> Iterator[Entity]:
    """Yield the status of cluster-autoscaler, written each hour; none without node groups."""
    if not scenario.node_groups:
        return
    names = [node.name for node in scenario.nodes]
    groups = {
        group: sum(name.startswith(group.nodes) for name in names) for group in scenario.node_groups
    }
    made = scenario.begins

    def render(at: int) -> Object:
        return autoscaler_status(groups, made, max(made, at // _HOUR * _HOUR))

    name = autoscaler_status(groups, made, made)["metadata"]["name"]
    changes = (made, *(at for at in range(-(-start // _HOUR) * _HOUR, end + 1, _HOUR) if at > made))
    yield Entity("kube-system", name, made, FOREVER, changes, render)


def _provisioning(scenario: Scenario, start: int, end: int) -> Iterator[Entity]:
    for one in scenario.provisioning:
        yield Entity.lasting(provisioning_object(one), one.created)


def _namespaces(scenario: Scenario, start: int, end: int) -> Iterator[Entity]:
    for namespace in scenario.namespaces:
        found = namespace_object(namespace)
        yield Entity.lasting(found, namespace.created)


def _quotas(scenario: Scenario, start: int, end: int) -> Iterator[Entity]:
    epochs = list(scenario.epochs(start, end))
    for quota in scenario.quotas:
        changes = sorted({quota.created, *_quota_changes(epochs, quota, start, end)})
        yield Entity(
            quota.namespace,
            quota.name,
            quota.created,
            FOREVER,
            changes,
            partial(_quota_at, scenario, quota),
        )


def _quota_changes(epochs: Iterable[Epoch], quota: Quota, start: int, end: int) -> Iterator[int]:
    for epoch in epochs:
        for key in quota.keys:
            for _, steps in quota.counts(epoch, key):
                yield from steps.between(start, end)


def _quota_at(scenario: Scenario, quota: Quota, at: int) -> Object:
    epoch = scenario.epoch_at(at)
    counts: dict[str, dict[str, int]] = {"hard": {}, "used": {}}
    changed = quota.created
    for key in quota.keys:
        for kind, steps in quota.counts(epoch, key):
            counts[kind][key] = steps.at(at)
            changed = max(changed, steps.changed(at) or 0)
    return quota_object(quota, **counts, changed=changed)


def _controllers(kind: str) -> Source:
    def entities(scenario: Scenario, start: int, end: int) -> Iterator[Entity]:
        epochs = list(scenario.epochs(start, end))
        for controller in scenario.controllers_between(start, end):
            if controller.kind == kind:
                yield _controller(scenario, controller, epochs, start, end)

    return entities


def _controller(
    scenario: Scenario, controller: Controller, epochs: Iterable[Epoch], start: int, end: int
) -> Entity:
    counted = scenario.counted(controller)
    changes = {controller.created, controller.deleted} - {FOREVER}
    for epoch in epochs:
        changes.update(epoch.replicas.get(counted.uid, NEVER).between(start, end))
        changes.update(epoch.succeeded.get(counted.uid, NEVER).between(start, end))
    return Entity(
        controller.namespace,
        controller.name,
        controller.created,
        controller.deleted,
        sorted(at for at in changes if at <= controller.deleted),
        partial(_controller_at, scenario, controller, counted.uid),
    )


def _controller_at(scenario: Scenario, controller: Controller, uid: str, at: int) -> Object:
    epoch = scenario.epoch_at(at)
    replicas = epoch.replicas.get(uid, NEVER) if epoch else NEVER
    succeeded = epoch.succeeded.get(uid, NEVER) if epoch else NEVER
    last = max(controller.created, replicas.changed(at) or 0, succeeded.changed(at) or 0)
    return controller_object(
        controller,
        replicas=replicas.at(at),
        succeeded=succeeded.at(at),
        changed=controller.deleted if at >= controller.deleted else last,
    )


def _device_classes(scenario: Scenario, start: int, end: int) -> Iterator[Entity]:
    if scenario.claims_served and faults_of(scenario) is None:
        for name in sorted(claims.CLASSES):
            found = claims.class_object(name, scenario.begins)
            yield Entity.lasting(found, scenario.begins)


def _resource_slices(scenario: Scenario, start: int, end: int) -> Iterator[Entity]:
    for node in claims.offers(scenario.nodes):
        changes = sorted({node.created, *(state.since for state in node.states)})
        render = partial(claims.slice_object, node)
        name = render(node.created)["metadata"]["name"]
        yield Entity("", name, node.created, FOREVER, changes, render)


def _resource_claims(scenario: Scenario, start: int, end: int) -> Iterator[Entity]:
    for epoch in scenario.epochs(start, end):
        for claim in epoch.claims:
            if claim.created <= end and claim.deleted >= start:
                yield _claim(scenario, epoch, claim)


def _claim(scenario: Scenario, epoch: Epoch, claim: Claim) -> Entity:
    pods = epoch.claimants.get(claim.uid, ())
    node = next((node for node in scenario.nodes if node.name == claim.node), None)
    times = {claim.created, claim.allocated, claim.released, claim.deleted}
    times.update(at for pod in pods for at in (pod.bound, pod.released))
    return Entity(
        claim.namespace,
        claim.name,
        claim.created,
        claim.deleted,
        sorted(at for at in times - {FOREVER} if claim.created <= at <= claim.deleted),
        lambda at: claims.claim_object(claim, node, pods, at),
    )


def _always(found: Object) -> Callable[[int], Object]:
    return lambda _: found


def _fault_namespaces(scenario: Scenario) -> frozenset[str]:
    """Return the namespaces of the fault scenarios, if there are any."""
    faults = faults_of(scenario)
    return faults.namespaces if faults else frozenset()


def _with_faults(collection: Collection) -> Collection:
    """Return a collection with what the faults have of its kind, in place of what stands for it."""

    def entities(scenario: Scenario, start: int, end: int) -> Iterator[Entity]:
        faults = faults_of(scenario)
        if faults is None:
            return
        names = {*faults.namespaces, *faults.node_names}
        for entity in collection.source(scenario, start, end):
            if entity.namespace not in faults.namespaces and entity.name not in names:
                yield entity
        yield from _played(faults, collection.plural, start, end)

    return replace(collection, source=entities)


def _played(faults: FaultCycle, plural: str, start: int, end: int) -> Iterator[Entity]:
    for _, life in faults.seen(plural, start, end):
        gone = gone_at(life)
        yield Entity(
            life.namespace,
            life.name,
            life.created,
            FOREVER if gone is None else gone // 1000,
            sorted({at // 1000 for at in times_of(life)}),
            partial(_life_at, life),
            of_faults=True,
        )


def _life_at(life: ObjectLife, at: int) -> Object:
    found = life.at(at * 1000)
    if found is not None:
        return found
    if at <= life.created:
        return life.versions[0][1]
    metadata = {**life.latest["metadata"], "resourceVersion": str(at * 1000)}
    return {**life.latest, "metadata": metadata}


def _nothing(scenario: Scenario, start: int, end: int) -> Iterator[Entity]:
    """Yield what there is of kinds that only the faults have."""
    return iter(())


COLLECTIONS: Sequence[Collection] = (
    Collection("v1", "nodes", "Node", namespaced=False, source=_nodes),
    Collection("v1", "namespaces", "Namespace", namespaced=False, source=_namespaces),
    Collection("v1", "pods", "Pod", namespaced=True, source=_pods),
    Collection("v1", "resourcequotas", "ResourceQuota", namespaced=True, source=_quotas),
    Collection("v1", "events", "Event", namespaced=True, source=_events),
    Collection("v1", "configmaps", "ConfigMap", namespaced=True, source=_autoscaler_status),
    *(
        Collection(version, f"{kind.lower()}s", kind, namespaced=True, source=_controllers(kind))
        for version, kind in (
            ("apps/v1", "ReplicaSet"),
            ("apps/v1", "Deployment"),
            ("apps/v1", "StatefulSet"),
            ("batch/v1", "Job"),
            ("batch/v1", "CronJob"),
        )
    ),
)
CLAIM_COLLECTIONS: Sequence[Collection] = tuple(
    Collection(claims.API_VERSION, plural, kind, namespaced=namespaced, source=source)
    for plural, kind, namespaced, source in (
        ("deviceclasses", "DeviceClass", False, _device_classes),
        ("resourceclaims", "ResourceClaim", True, _resource_claims),
        ("resourceslices", "ResourceSlice", False, _resource_slices),
    )
)
"""Those that a cluster has whose nodes offer devices by claim."""


FAULT_COLLECTIONS: Sequence[Collection] = tuple(
    Collection(version, plural, kind, namespaced=namespaced, source=_nothing)
    for version, plural, kind, namespaced in (
        ("v1", "persistentvolumeclaims", "PersistentVolumeClaim", True),
        ("scheduling.k8s.io/v1", "priorityclasses", "PriorityClass", False),
        (KUEUE, "workloadpriorityclasses", "WorkloadPriorityClass", False),
        (VOLCANO, "podgroups", "PodGroup", True),
        (VOLCANO, "queues", "Queue", False),
    )
)
"""Those that a cluster has in which queues and gangs are at home."""
QUEUE_COLLECTIONS: Sequence[Collection] = tuple(
    Collection(KUEUE, f"{kind.lower()}s", kind, namespaced=namespaced, source=source)
    for kind, namespaced, source in (
        ("Workload", True, queue_entities.workloads),
        ("ClusterQueue", False, queue_entities.cluster_queues),
        ("LocalQueue", True, queue_entities.local_queues),
        ("Cohort", False, queue_entities.cohorts),
        ("ResourceFlavor", False, queue_entities.flavors),
        ("AdmissionCheck", False, queue_entities.checks),
    )
)
"""Those of Kueue, which the pods of a scenario may go through as those of the faults do."""


_PROVISIONING = Collection(
    AUTOSCALING,
    "provisioningrequests",
    "ProvisioningRequest",
    namespaced=True,
    source=_provisioning,
)
_NODE_POOLS = Collection(KARPENTER, "nodepools", "NodePool", namespaced=False, source=_node_pools)


def collections(scenario: Scenario) -> Sequence[Collection]:
    """Return what the API server of a scenario serves."""
    served = (*COLLECTIONS, *CLAIM_COLLECTIONS) if scenario.claims_served else COLLECTIONS
    if scenario.node_pools:
        served = (*served, _NODE_POOLS)
    if scenario.provisioning:
        served = (*served, _PROVISIONING)
    if faults_of(scenario) is None:
        return (*served, *QUEUE_COLLECTIONS) if scenario.queues else served
    return [_with_faults(one) for one in (*served, *FAULT_COLLECTIONS, *QUEUE_COLLECTIONS)]
