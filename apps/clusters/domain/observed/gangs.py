"""Gangs of Volcano, of the scheduler plug-ins and of Kubernetes itself, and Volcano's queues."""

from apps.clusters.domain.json_fields import items, mapping, text
from apps.clusters.domain.observed.fields import (
    Fields,
    amount,
    amounts,
    conditions,
    created,
    number,
)
from apps.clusters.domain.observed.objects import PodGroupSnapshot, VolcanoQueueSnapshot
from apps.clusters.domain.observed.pods import ExtractionContext, queue_name, top_owner

_OVER = frozenset({"Completed", "Finished", "Failed"})


def pod_group_snapshot(item: Fields, beside: ExtractionContext) -> PodGroupSnapshot | None:
    """Return a PodGroup of whichever scheduler; None for one that is over.

    Of Kubernetes' own, `minCount` of its policy is the smallest gang, in 1.35 that of all the
    groups of a Workload together.
    """
    spec, status = mapping(item, "spec"), mapping(item, "status")
    phase = text(status.get("phase"))
    if phase in _OVER:
        return None
    owner_kind, owner = top_owner(item, beside)
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


def _min_member(spec: Fields) -> int:
    if "minMember" in spec:
        return number(spec.get("minMember"))
    policies = [mapping(spec, "schedulingPolicy"), mapping(spec, "policy")]
    policies += [mapping(group, "policy") for group in items(spec.get("podGroups"))]
    return sum(max(0, number(mapping(policy, "gang").get("minCount"))) for policy in policies)


def volcano_queue_snapshot(item: Fields) -> VolcanoQueueSnapshot:
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
