"""An object as an API server wrote it → what of it explains waiting.

Pure, and lenient as `dra` is: what is not as the API has it counts as absent, so that a strange
object hides no other and raises nothing.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace

from apps.clusters.domain.json_fields import items, mapping, text
from apps.clusters.domain.kube_objects import seconds
from apps.clusters.domain.resource_claims import ClaimState, DeviceRequest, claim_state
from apps.clusters.domain.sighting_events import seen_event
from apps.clusters.domain.sighting_fields import (
    Fields,
    amounts,
    condition,
    created,
    number,
    taints,
    texts,
    words,
)
from apps.clusters.domain.sighting_gangs import seen_pod_group, seen_volcano_queue
from apps.clusters.domain.sighting_pods import Beside, is_settled, seen_controller, seen_pod
from apps.clusters.domain.sighting_queues import (
    seen_cluster_queue,
    seen_cohort,
    seen_flavor,
    seen_local_queue,
    seen_workload,
)
from apps.clusters.domain.sightings import (
    Body,
    ClaimRequest,
    Kind,
    Scope,
    SeenClaim,
    SeenClusterQueue,
    SeenLocalQueue,
    SeenNode,
    SeenQuota,
    SeenVolcanoQueue,
)

__all__ = ["Beside", "is_settled", "setting_of", "sighting_of", "template_classes"]


def sighting_of(kind: Kind, item: Fields, beside: Beside | None = None) -> Body | None:
    """Return what of an object explains waiting; None where it is of no interest.

    A node comes without what is promised of it and without its devices, which it does not tell.
    """
    return _READERS[kind](item, Beside() if beside is None else beside)


def setting_of(body: Body) -> Body:
    """Return of a kind with history what a person has set, without what its status counts."""
    if isinstance(body, SeenQuota):
        return replace(body, used={}, observed_hard={})
    if isinstance(body, SeenClusterQueue):
        return replace(body, conditions=(), reserved=(), used=(), pending=0)
    if isinstance(body, SeenLocalQueue):
        return replace(body, used=(), pending=0)
    if isinstance(body, SeenVolcanoQueue):
        return replace(body, allocated={}, pending=0)
    return body


def _node(item: Fields, _: Beside) -> SeenNode:
    spec, status = mapping(item, "spec"), mapping(item, "status")
    ready = condition(status, "Ready")
    return SeenNode(
        labels=words(mapping(item, "metadata").get("labels")),
        taints=taints(spec.get("taints")),
        allocatable=amounts(status.get("allocatable")),
        ready=ready is not None and ready.status == "True",
        unschedulable=spec.get("unschedulable") is True,
    )


def _quota(item: Fields, _: Beside) -> SeenQuota:
    spec, status = mapping(item, "spec"), mapping(item, "status")
    plain = [Scope(name) for name in texts(spec.get("scopes"))]
    selected = [
        Scope(
            name=text(one.get("scopeName")),
            operator=text(one.get("operator")) or "Exists",
            values=texts(one.get("values")),
        )
        for one in items(mapping(spec, "scopeSelector").get("matchExpressions"))
    ]
    return SeenQuota(
        hard=amounts(spec.get("hard")),
        observed_hard=amounts(status.get("hard")),
        used=amounts(status.get("used")),
        scopes=(*plain, *selected),
    )


def _claim(item: Fields, beside: Beside) -> SeenClaim | None:
    """Return a claim that asks for GPUs; one of channels or network cards is none."""
    state = claim_state(item)
    if state is None or not any(beside.is_gpu_class(r.device_class) for r in state.requests):
        return None
    metadata = mapping(item, "metadata")
    owners = items(metadata.get("ownerReferences"))
    allocation = state.allocation
    return SeenClaim(
        created=created(item),
        requests=tuple(_claim_request(one) for one in state.requests),
        allocated=_allocated(state, created(item)),
        node="" if allocation is None else allocation.node,
        pod=next((text(one.get("name")) for one in owners if one.get("kind") == "Pod"), ""),
        deleting=seconds(metadata.get("deletionTimestamp")),
    )


def _allocated(state: ClaimState, made: float) -> float | None:
    """Return when a claim was allocated; no sooner than it was made where nothing tells."""
    if state.allocation is None:
        return None
    known = (state.allocation.at, state.allocation.written)
    return next((at for at in known if at is not None), made)


def _claim_request(one: DeviceRequest) -> ClaimRequest:
    return ClaimRequest(
        name=one.name,
        device_class=one.device_class,
        count=None if one.count is None else number(one.count),
        admin=one.admin,
        of=one.of,
        selectors=one.selectors,
    )


def template_classes(template: Fields) -> dict[str, float]:
    """Return device class → count that a ResourceClaimTemplate asks for.

    Of alternatives the first counts; who asks for all there are asks for one at least.
    """
    inner = {"metadata": template.get("metadata"), "spec": mapping(template, "spec", "spec")}
    state = claim_state(inner)
    first: dict[str, DeviceRequest] = {}
    for one in () if state is None else state.requests:
        if not one.admin:
            first.setdefault(one.of, one)
    found: dict[str, float] = {}
    for one in first.values():
        count = 1 if one.count is None else number(one.count, 1)
        found[one.device_class] = found.get(one.device_class, 0.0) + count
    return found


_Reader = Callable[[Fields, Beside], Body | None]

_READERS: Mapping[Kind, _Reader] = {
    Kind.POD: seen_pod,
    Kind.NODE: _node,
    Kind.EVENT: lambda item, _: seen_event(item),
    Kind.REPLICA_SET: lambda item, beside: seen_controller(Kind.REPLICA_SET, item, beside),
    Kind.STATEFUL_SET: lambda item, beside: seen_controller(Kind.STATEFUL_SET, item, beside),
    Kind.JOB: lambda item, beside: seen_controller(Kind.JOB, item, beside),
    Kind.RESOURCE_QUOTA: _quota,
    Kind.RESOURCE_CLAIM: _claim,
    Kind.KUEUE_WORKLOAD: seen_workload,
    Kind.CLUSTER_QUEUE: lambda item, _: seen_cluster_queue(item),
    Kind.LOCAL_QUEUE: lambda item, _: seen_local_queue(item),
    Kind.COHORT: lambda item, _: seen_cohort(item),
    Kind.RESOURCE_FLAVOR: lambda item, _: seen_flavor(item),
    Kind.VOLCANO_POD_GROUP: seen_pod_group,
    Kind.COSCHEDULING_POD_GROUP: seen_pod_group,
    Kind.GANG_POD_GROUP: seen_pod_group,
    Kind.VOLCANO_QUEUE: lambda item, _: seen_volcano_queue(item),
}
