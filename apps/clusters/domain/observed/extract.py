"""Observed objects, made from objects as an API server wrote them.

Pure, and lenient as `dra` is: what is not as the API has it counts as absent, so that a strange
object hides no other and raises nothing.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping

from apps.accounts.domain.structs import replace
from apps.clusters.domain.accelerators import hami_memory
from apps.clusters.domain.devices.resource_claims import ClaimState, claim_state
from apps.clusters.domain.kube_json import (
    JsonObject,
    amount,
    amounts,
    condition,
    conditions,
    created,
    items,
    label_selector,
    mapping,
    number,
    request,
    seconds,
    taints,
    text,
    texts,
    tolerations,
    words,
)
from apps.clusters.domain.observed.autoscaling import autoscaler_snapshot, provisioning_snapshot
from apps.clusters.domain.observed.objects import (
    NAMESPACE_NAME,
    Body,
    ClaimRequest,
    ClaimSnapshot,
    ClusterQueueSnapshot,
    CohortSnapshot,
    Expression,
    FlavorQuota,
    FlavorSnapshot,
    FlavorUse,
    KaiQueueSnapshot,
    LocalQueueSnapshot,
    NodeSnapshot,
    ObservedKind,
    PodGroupSnapshot,
    PodSet,
    QuotaScope,
    QuotaSnapshot,
    VolcanoQueueSnapshot,
    WorkloadSnapshot,
)
from apps.clusters.domain.observed.places import (
    NodePoolSnapshot,
    NodeResourceTopologySnapshot,
    NumaZone,
    TopologySnapshot,
)
from apps.clusters.domain.observed.pods import (
    ExtractionContext,
    controller_snapshot,
    event_snapshot,
    pod_snapshot,
    top_owner,
)
from apps.clusters.domain.pods.kube_objects import queue_name
from apps.clusters.domain.resources import is_gpu

_OVER = frozenset({"Completed", "Finished", "Failed"})
_NO_NAMESPACE = (Expression(NAMESPACE_NAME, "In"),)
_Reader = Callable[[JsonObject, ExtractionContext], Body | None]


def workload_snapshot(item: JsonObject, context: ExtractionContext) -> WorkloadSnapshot | None:
    """Return a Workload that is pending or holds quota, with or without GPUs.

    Those that ask for none wait in the same queues. What is over is left out.
    """
    spec, status = mapping(item, "spec"), mapping(item, "status")
    states = conditions(status)
    if any(one.type == "Finished" and one.status == "True" for one in states):
        return None
    admission = mapping(status, "admission")
    flavors = {
        text(one.get("name")): words(one.get("flavors"))
        for one in items(admission.get("podSetAssignments"))
    }
    owner_kind, owner = top_owner(item, context)
    owners = items(mapping(item, "metadata").get("ownerReferences"))
    return WorkloadSnapshot(
        created=created(item),
        queue=text(spec.get("queueName")),
        cluster_queue=text(admission.get("clusterQueue")),
        priority=number(spec.get("priority")),
        # An absent field is the API's default, here and for `reclaimable`: true.
        active=spec.get("active") is not False,
        owner_kind=owner_kind,
        owner=owner,
        pods=tuple(text(one.get("name")) for one in owners if one.get("kind") == "Pod"),
        pod_sets=tuple(
            PodSet(
                name=text(one.get("name")),
                count=number(one.get("count"), 1),
                requests=request(mapping(one, "template", "spec")),
                flavors=flavors.get(text(one.get("name")), {}),
            )
            for one in items(spec.get("podSets"))
        ),
        conditions=states,
    )


def cluster_queue_snapshot(item: JsonObject) -> ClusterQueueSnapshot:
    """Return a ClusterQueue; v1beta1 calls the name of its cohort `cohort`."""
    spec, status = mapping(item, "spec"), mapping(item, "status")
    preemption = mapping(spec, "preemption")
    borrowing = text(mapping(preemption, "borrowWithinCohort").get("policy"))
    policies = words(preemption) | ({"borrowWithinCohort": borrowing} if borrowing else {})
    selector = spec.get("namespaceSelector")
    return ClusterQueueSnapshot(
        cohort=text(spec.get("cohortName")) or text(spec.get("cohort")),
        quotas=tuple(_quotas(spec)),
        strategy=text(spec.get("queueingStrategy")),
        stop_policy=text(spec.get("stopPolicy")),
        weight=amount(mapping(spec, "fairSharing").get("weight")),
        preemption=policies,
        conditions=conditions(status),
        reserved=tuple(_uses(status.get("flavorsReservation"))),
        used=tuple(_uses(status.get("flavorsUsage"))),
        pending=number(status.get("pendingWorkloads")),
        # Absent, it takes Workloads of no namespace; empty, of all.
        namespaces=_NO_NAMESPACE if selector is None else label_selector(selector),
        fungibility=words(spec.get("flavorFungibility")),
    )


def local_queue_snapshot(item: JsonObject) -> LocalQueueSnapshot:
    """Return a LocalQueue; v1beta1 calls the plural of its use `flavorUsage`."""
    spec, status = mapping(item, "spec"), mapping(item, "status")
    return LocalQueueSnapshot(
        cluster_queue=text(spec.get("clusterQueue")),
        stop_policy=text(spec.get("stopPolicy")),
        used=tuple(_uses(status.get("flavorsUsage") or status.get("flavorUsage"))),
        pending=number(status.get("pendingWorkloads")),
    )


def cohort_snapshot(item: JsonObject) -> CohortSnapshot:
    """Return a Cohort; versions before v1beta2 call its parent `parent`."""
    spec = mapping(item, "spec")
    return CohortSnapshot(
        parent=text(spec.get("parentName")) or text(spec.get("parent")),
        quotas=tuple(_quotas(spec)),
        weight=amount(mapping(spec, "fairSharing").get("weight")),
    )


def flavor_snapshot(item: JsonObject) -> FlavorSnapshot:
    """Return a ResourceFlavor."""
    spec = mapping(item, "spec")
    return FlavorSnapshot(
        node_labels=words(spec.get("nodeLabels")),
        tolerations=tolerations(spec.get("tolerations")),
        topology=text(spec.get("topologyName")),
    )


def topology_snapshot(item: JsonObject) -> TopologySnapshot:
    """Return a Kueue Topology."""
    levels = (text(one.get("nodeLabel")) for one in items(mapping(item, "spec").get("levels")))
    return TopologySnapshot(tuple(label for label in levels if label))


# How the exporters of before 0.1.2 name policy and scope of the Topology Manager in one word.
_POLICIES: Mapping[str, str] = {
    "None": "none",
    "BestEffort": "best-effort",
    "BestEffortContainerLevel": "best-effort",
    "BestEffortPodLevel": "best-effort",
    "Restricted": "restricted",
    "RestrictedContainerLevel": "restricted",
    "RestrictedPodLevel": "restricted",
    "SingleNUMANodeContainerLevel": "single-numa-node",
    "SingleNUMANodePodLevel": "single-numa-node",
}


def node_resource_topology_snapshot(item: JsonObject) -> NodeResourceTopologySnapshot:
    """Return a NodeResourceTopology; its name is that of its node."""
    named = {text(one.get("name")): text(one.get("value")) for one in items(item.get("attributes"))}
    old = next((_POLICIES.get(one, "") for one in texts(item.get("topologyPolicies"))), "")
    return NodeResourceTopologySnapshot(
        policy=named.get("topologyManagerPolicy") or old,
        zones=tuple(
            NumaZone(
                name=text(zone.get("name")),
                allocatable=_numa_amounts(zone, "allocatable"),
                available=_numa_amounts(zone, "available"),
            )
            for zone in items(item.get("zones"))
            if text(zone.get("type")) == "Node"
        ),
    )


def node_pool_snapshot(item: JsonObject) -> NodePoolSnapshot:
    """Return a NodePool of Karpenter, with the labels that all of its nodes have."""
    spec = mapping(item, "spec")
    template = mapping(spec, "template")
    labels = words(mapping(template, "metadata").get("labels"))
    for one in items(mapping(template, "spec").get("requirements")):
        values = texts(one.get("values"))
        # Of several values each node has one of its own.
        if text(one.get("operator")) == "In" and len(values) == 1:
            labels[text(one.get("key"))] = values[0]
    disruption = mapping(spec, "disruption")
    return NodePoolSnapshot(
        limits=_of_gpus(spec.get("limits")),
        used=_of_gpus(mapping(item, "status").get("resources")),
        labels=labels,
        consolidation=text(disruption.get("consolidationPolicy")),
        after=text(disruption.get("consolidateAfter")),
    )


def _of_gpus(value: object) -> dict[str, float]:
    return {name: units for name, units in amounts(value).items() if is_gpu(name)}


def _numa_amounts(zone: JsonObject, key: str) -> dict[str, float]:
    found = ((text(one.get("name")), amount(one.get(key))) for one in items(zone.get("resources")))
    return {name: there for name, there in found if name and there is not None}


def _quotas(spec: JsonObject) -> Iterator[FlavorQuota]:
    for group in items(spec.get("resourceGroups")):
        for flavor in items(group.get("flavors")):
            for one in items(flavor.get("resources")):
                yield FlavorQuota(
                    flavor=text(flavor.get("name")),
                    resource=text(one.get("name")),
                    nominal=amount(one.get("nominalQuota")) or 0.0,
                    borrowing_limit=amount(one.get("borrowingLimit")),
                    lending_limit=amount(one.get("lendingLimit")),
                )


def _uses(flavors: object) -> Iterator[FlavorUse]:
    for flavor in items(flavors):
        for one in items(flavor.get("resources")):
            yield FlavorUse(
                flavor=text(flavor.get("name")),
                resource=text(one.get("name")),
                total=amount(one.get("total")) or 0.0,
                borrowed=amount(one.get("borrowed")) or 0.0,
            )


def pod_group_snapshot(item: JsonObject, context: ExtractionContext) -> PodGroupSnapshot | None:
    """Return a PodGroup of whichever scheduler; None for one that is over.

    Of Kubernetes' own, `minCount` of its policy is the smallest gang, in 1.35 that of all the
    groups of a Workload together.
    """
    spec, status = mapping(item, "spec"), mapping(item, "status")
    phase = text(status.get("phase"))
    if phase in _OVER:
        return None
    owner_kind, owner = top_owner(item, context)
    return PodGroupSnapshot(
        created=created(item),
        queue=text(spec.get("queue")) or queue_name(mapping(item, "metadata")),
        min_member=_min_member(spec),
        requests=amounts(spec.get("minResources")),
        phase=phase,
        owner_kind=owner_kind,
        owner=owner,
        conditions=conditions(status),
        running=number(status.get("running")),
        scheduled=number(status.get("scheduled")),
    )


def _min_member(spec: JsonObject) -> int:
    if "minMember" in spec:
        return number(spec.get("minMember"))
    # Versions put the gang in three places: an object has it in one of them.
    policies = [mapping(spec, "schedulingPolicy"), mapping(spec, "policy")]
    policies += [mapping(group, "policy") for group in items(spec.get("podGroups"))]
    return sum(max(0, number(mapping(policy, "gang").get("minCount"))) for policy in policies)


def volcano_queue_snapshot(item: JsonObject) -> VolcanoQueueSnapshot:
    """Return a Queue of Volcano; one that does not say so may be reclaimed from."""
    spec, status = mapping(item, "spec"), mapping(item, "status")
    return VolcanoQueueSnapshot(
        state=text(status.get("state")),
        parent=text(spec.get("parent")),
        weight=amount(spec.get("weight")),
        capability=amounts(spec.get("capability")),
        deserved=amounts(spec.get("deserved")),
        guarantee=amounts(mapping(spec, "guarantee").get("resource")),
        allocated=amounts(status.get("allocated")),
        reclaimable=spec.get("reclaimable") is not False,
        pending=number(status.get("pending")),
    )


def kai_queue_snapshot(item: JsonObject) -> KaiQueueSnapshot:
    """Return a Queue of KAI Scheduler; -1 in it means without a limit."""
    spec = mapping(item, "spec")
    gpus = mapping(mapping(spec, "resources"), "gpu")
    return KaiQueueSnapshot(
        parent=text(spec.get("parentQueue")),
        # No quantity is negative: what is without a limit comes out as None.
        quota=amount(gpus.get("quota")),
        limit=amount(gpus.get("limit")),
        weight=amount(gpus.get("overQuotaWeight")),
        allocated=amounts(mapping(item, "status").get("allocated")),
    )


def observed_object(
    kind: ObservedKind, item: JsonObject, context: ExtractionContext | None = None
) -> Body | None:
    """Return the part of an object that explains pending work; None where there is none.

    A node comes without what is promised of it and without its devices, which it does not tell.
    """
    return _READERS[kind](item, ExtractionContext() if context is None else context)


def setting_of(body: Body) -> Body:
    """Return of a kind with history what a person has set, without what its status counts."""
    if isinstance(body, QuotaSnapshot):
        return replace(body, used={}, observed_hard={})
    if isinstance(body, ClusterQueueSnapshot):
        return replace(body, conditions=(), reserved=(), used=(), pending=0)
    if isinstance(body, LocalQueueSnapshot):
        return replace(body, used=(), pending=0)
    if isinstance(body, VolcanoQueueSnapshot):
        return replace(body, allocated={}, pending=0)
    if isinstance(body, KaiQueueSnapshot):
        return replace(body, allocated={})
    return body


def _node(item: JsonObject, _: ExtractionContext) -> NodeSnapshot:
    spec, status = mapping(item, "spec"), mapping(item, "status")
    metadata = mapping(item, "metadata")
    ready = condition(status, "Ready")
    return NodeSnapshot(
        # How many GPUs a pending pod's request for memory is depends on the node.
        labels=words(metadata.get("labels")) | hami_memory(mapping(metadata, "annotations")),
        taints=taints(spec.get("taints")),
        allocatable=amounts(status.get("allocatable")),
        ready=ready is not None and ready.status == "True",
        unschedulable=spec.get("unschedulable") is True,
    )


def _quota(item: JsonObject, _: ExtractionContext) -> QuotaSnapshot:
    spec, status = mapping(item, "spec"), mapping(item, "status")
    plain = [QuotaScope(name) for name in texts(spec.get("scopes"))]
    selected = [
        QuotaScope(
            name=text(one.get("scopeName")),
            operator=text(one.get("operator")) or "Exists",
            values=texts(one.get("values")),
        )
        for one in items(mapping(spec, "scopeSelector").get("matchExpressions"))
    ]
    return QuotaSnapshot(
        hard=amounts(spec.get("hard")),
        observed_hard=amounts(status.get("hard")),
        used=amounts(status.get("used")),
        scopes=(*plain, *selected),
    )


def _claim(item: JsonObject, context: ExtractionContext) -> ClaimSnapshot | None:
    """Return a claim that requests GPUs; None for one of channels or network devices."""
    state = claim_state(item)
    if state is None or not any(context.is_gpu_class(r.device_class) for r in state.requests):
        return None
    metadata = mapping(item, "metadata")
    owners = items(metadata.get("ownerReferences"))
    allocation = state.allocation
    return ClaimSnapshot(
        created=created(item),
        requests=state.requests,
        allocated=_allocated(state, created(item)),
        node="" if allocation is None else allocation.node,
        pod=next((text(one.get("name")) for one in owners if one.get("kind") == "Pod"), ""),
        deleting=seconds(metadata.get("deletionTimestamp")),
    )


def _allocated(state: ClaimState, made: float) -> float | None:
    """Return when a claim was allocated; no sooner than it was made where nothing tells."""
    if state.allocation is None:
        return None
    # Servers before 1.34 write no time: the managed fields are the next best.
    known = (state.allocation.at, state.allocation.written)
    return next((at for at in known if at is not None), made)


def template_classes(template: JsonObject) -> dict[str, float]:
    """Return device class → count that a ResourceClaimTemplate requests.

    Of alternatives the first counts; a request for all devices counts one.
    """
    inner = {"metadata": template.get("metadata"), "spec": mapping(template, "spec", "spec")}
    state = claim_state(inner)
    return {} if state is None else requested_classes(state.requests)


def requested_classes(requests: Iterable[ClaimRequest]) -> dict[str, float]:
    """Return device class → count of a claim's requests.

    Of alternatives the first counts; a request for all devices counts one, one for
    administration none.
    """
    first: dict[str, ClaimRequest] = {}
    for one in requests:
        if not one.admin:
            # The scheduler tries alternatives in this order.
            first.setdefault(one.of, one)
    found: dict[str, float] = {}
    for one in first.values():
        count = 1 if one.count is None else one.count
        found[one.device_class] = found.get(one.device_class, 0.0) + count
    return found


_READERS: Mapping[ObservedKind, _Reader] = {
    ObservedKind.POD: pod_snapshot,
    ObservedKind.NODE: _node,
    ObservedKind.EVENT: lambda item, _: event_snapshot(item),
    ObservedKind.REPLICA_SET: lambda item, context: controller_snapshot(
        ObservedKind.REPLICA_SET, item, context
    ),
    ObservedKind.STATEFUL_SET: lambda item, context: controller_snapshot(
        ObservedKind.STATEFUL_SET, item, context
    ),
    ObservedKind.JOB: lambda item, context: controller_snapshot(ObservedKind.JOB, item, context),
    ObservedKind.RESOURCE_QUOTA: _quota,
    ObservedKind.RESOURCE_CLAIM: _claim,
    ObservedKind.KUEUE_WORKLOAD: workload_snapshot,
    ObservedKind.CLUSTER_QUEUE: lambda item, _: cluster_queue_snapshot(item),
    ObservedKind.LOCAL_QUEUE: lambda item, _: local_queue_snapshot(item),
    ObservedKind.COHORT: lambda item, _: cohort_snapshot(item),
    ObservedKind.RESOURCE_FLAVOR: lambda item, _: flavor_snapshot(item),
    ObservedKind.TOPOLOGY: lambda item, _: topology_snapshot(item),
    ObservedKind.NODE_RESOURCE_TOPOLOGY: lambda item, _: node_resource_topology_snapshot(item),
    ObservedKind.NODE_POOL: lambda item, _: node_pool_snapshot(item),
    ObservedKind.AUTOSCALER_STATUS: lambda item, _: autoscaler_snapshot(item),
    ObservedKind.PROVISIONING_REQUEST: lambda item, _: provisioning_snapshot(item),
    ObservedKind.VOLCANO_POD_GROUP: pod_group_snapshot,
    ObservedKind.COSCHEDULING_POD_GROUP: pod_group_snapshot,
    ObservedKind.GANG_POD_GROUP: pod_group_snapshot,
    ObservedKind.VOLCANO_QUEUE: lambda item, _: volcano_queue_snapshot(item),
    ObservedKind.KAI_QUEUE: lambda item, _: kai_queue_snapshot(item),
}
