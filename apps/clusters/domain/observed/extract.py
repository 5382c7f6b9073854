"""An object as an API server wrote it → what of it explains waiting.

Pure, and lenient as `dra` is: what is not as the API has it counts as absent, so that a strange
object hides no other and raises nothing.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace

from apps.clusters.domain.devices.resource_claims import ClaimState, DeviceRequest, claim_state
from apps.clusters.domain.json_fields import items, mapping, seconds, text
from apps.clusters.domain.observed.events import event_snapshot
from apps.clusters.domain.observed.fields import (
    Fields,
    amounts,
    condition,
    created,
    number,
    taints,
    texts,
    words,
)
from apps.clusters.domain.observed.gangs import pod_group_snapshot, volcano_queue_snapshot
from apps.clusters.domain.observed.objects import (
    Body,
    ClaimRequest,
    ClaimSnapshot,
    ClusterQueueSnapshot,
    LocalQueueSnapshot,
    NodeSnapshot,
    ObservedKind,
    QuotaScope,
    QuotaSnapshot,
    VolcanoQueueSnapshot,
)
from apps.clusters.domain.observed.pods import (
    ExtractionContext,
    controller_snapshot,
    is_settled,
    pod_snapshot,
)
from apps.clusters.domain.observed.queues import (
    cluster_queue_snapshot,
    cohort_snapshot,
    flavor_snapshot,
    local_queue_snapshot,
    workload_snapshot,
)

__all__ = ["ExtractionContext", "is_settled", "observed_object", "setting_of", "template_classes"]


def observed_object(
    kind: ObservedKind, item: Fields, beside: ExtractionContext | None = None
) -> Body | None:
    """Return what of an object explains waiting; None where it is of no interest.

    A node comes without what is promised of it and without its devices, which it does not tell.
    """
    return _READERS[kind](item, ExtractionContext() if beside is None else beside)


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
    return body


def _node(item: Fields, _: ExtractionContext) -> NodeSnapshot:
    spec, status = mapping(item, "spec"), mapping(item, "status")
    ready = condition(status, "Ready")
    return NodeSnapshot(
        labels=words(mapping(item, "metadata").get("labels")),
        taints=taints(spec.get("taints")),
        allocatable=amounts(status.get("allocatable")),
        ready=ready is not None and ready.status == "True",
        unschedulable=spec.get("unschedulable") is True,
    )


def _quota(item: Fields, _: ExtractionContext) -> QuotaSnapshot:
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


def _claim(item: Fields, beside: ExtractionContext) -> ClaimSnapshot | None:
    """Return a claim that asks for GPUs; one of channels or network cards is none."""
    state = claim_state(item)
    if state is None or not any(beside.is_gpu_class(r.device_class) for r in state.requests):
        return None
    metadata = mapping(item, "metadata")
    owners = items(metadata.get("ownerReferences"))
    allocation = state.allocation
    return ClaimSnapshot(
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


_Reader = Callable[[Fields, ExtractionContext], Body | None]

_READERS: Mapping[ObservedKind, _Reader] = {
    ObservedKind.POD: pod_snapshot,
    ObservedKind.NODE: _node,
    ObservedKind.EVENT: lambda item, _: event_snapshot(item),
    ObservedKind.REPLICA_SET: lambda item, beside: controller_snapshot(
        ObservedKind.REPLICA_SET, item, beside
    ),
    ObservedKind.STATEFUL_SET: lambda item, beside: controller_snapshot(
        ObservedKind.STATEFUL_SET, item, beside
    ),
    ObservedKind.JOB: lambda item, beside: controller_snapshot(ObservedKind.JOB, item, beside),
    ObservedKind.RESOURCE_QUOTA: _quota,
    ObservedKind.RESOURCE_CLAIM: _claim,
    ObservedKind.KUEUE_WORKLOAD: workload_snapshot,
    ObservedKind.CLUSTER_QUEUE: lambda item, _: cluster_queue_snapshot(item),
    ObservedKind.LOCAL_QUEUE: lambda item, _: local_queue_snapshot(item),
    ObservedKind.COHORT: lambda item, _: cohort_snapshot(item),
    ObservedKind.RESOURCE_FLAVOR: lambda item, _: flavor_snapshot(item),
    ObservedKind.VOLCANO_POD_GROUP: pod_group_snapshot,
    ObservedKind.COSCHEDULING_POD_GROUP: pod_group_snapshot,
    ObservedKind.GANG_POD_GROUP: pod_group_snapshot,
    ObservedKind.VOLCANO_QUEUE: lambda item, _: volcano_queue_snapshot(item),
}
