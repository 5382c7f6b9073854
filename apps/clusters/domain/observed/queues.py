"""The objects of Kueue (v1beta2 and v1beta1) as observed objects."""

from collections.abc import Iterator

from apps.clusters.domain.json_fields import items, mapping, text
from apps.clusters.domain.observed.fields import (
    Fields,
    amount,
    conditions,
    created,
    number,
    request,
    tolerations,
    words,
)
from apps.clusters.domain.observed.objects import (
    ClusterQueueSnapshot,
    CohortSnapshot,
    FlavorQuota,
    FlavorSnapshot,
    FlavorUse,
    LocalQueueSnapshot,
    PodSet,
    WorkloadSnapshot,
)
from apps.clusters.domain.observed.pods import ExtractionContext, top_owner


def workload_snapshot(item: Fields, beside: ExtractionContext) -> WorkloadSnapshot | None:
    """Return a Workload that waits or holds quota, whether it asks for GPU or not.

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
    owner_kind, owner = top_owner(item, beside)
    owners = items(mapping(item, "metadata").get("ownerReferences"))
    return WorkloadSnapshot(
        created=created(item),
        queue=text(spec.get("queueName")),
        cluster_queue=text(admission.get("clusterQueue")),
        priority=number(spec.get("priority")),
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


def cluster_queue_snapshot(item: Fields) -> ClusterQueueSnapshot:
    """Return a ClusterQueue; v1beta1 calls the name of its cohort `cohort`."""
    spec, status = mapping(item, "spec"), mapping(item, "status")
    preemption = mapping(spec, "preemption")
    borrowing = text(mapping(preemption, "borrowWithinCohort").get("policy"))
    policies = words(preemption) | ({"borrowWithinCohort": borrowing} if borrowing else {})
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
    )


def local_queue_snapshot(item: Fields) -> LocalQueueSnapshot:
    """Return a LocalQueue; v1beta1 calls the plural of its use `flavorUsage`."""
    spec, status = mapping(item, "spec"), mapping(item, "status")
    return LocalQueueSnapshot(
        cluster_queue=text(spec.get("clusterQueue")),
        stop_policy=text(spec.get("stopPolicy")),
        used=tuple(_uses(status.get("flavorsUsage") or status.get("flavorUsage"))),
        pending=number(status.get("pendingWorkloads")),
    )


def cohort_snapshot(item: Fields) -> CohortSnapshot:
    """Return a Cohort; versions before v1beta2 call its parent `parent`."""
    spec = mapping(item, "spec")
    return CohortSnapshot(
        parent=text(spec.get("parentName")) or text(spec.get("parent")),
        quotas=tuple(_quotas(spec)),
        weight=amount(mapping(spec, "fairSharing").get("weight")),
    )


def flavor_snapshot(item: Fields) -> FlavorSnapshot:
    """Return a ResourceFlavor."""
    spec = mapping(item, "spec")
    return FlavorSnapshot(
        node_labels=words(spec.get("nodeLabels")),
        tolerations=tolerations(spec.get("tolerations")),
    )


def _quotas(spec: Fields) -> Iterator[FlavorQuota]:
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
