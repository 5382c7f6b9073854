"""Which fields of Kubernetes objects are decoded, as types for msgspec.

Most of an object (managed fields, volumes, environments) is never looked at. Decoding into these
shapes skips it, which takes less time than decoding everything and a small part of the memory,
and still gives plain dictionaries. A kind without a shape is decoded whole.
"""

from typing import Any, Generic, NotRequired, TypedDict, TypeVar

import msgspec

_Words = dict[str, str] | None
_Amounts = dict[str, Any] | None


class OwnerShape(TypedDict, total=False):
    apiVersion: str
    kind: str
    name: str
    uid: str
    controller: bool | None


class MetaShape(TypedDict, total=False):
    name: str
    namespace: str
    uid: str
    resourceVersion: str
    creationTimestamp: str | None
    deletionTimestamp: str | None
    labels: _Words
    ownerReferences: list[OwnerShape] | None


class ConditionShape(TypedDict, total=False):
    type: str
    status: str
    reason: str | None
    message: str | None
    lastTransitionTime: str | None


class ClaimUseShape(TypedDict, total=False):
    name: str
    request: str | None


class ResourcesShape(TypedDict, total=False):
    limits: _Amounts
    requests: _Amounts
    claims: list[ClaimUseShape] | None


class ContainerShape(TypedDict, total=False):
    name: str
    restartPolicy: str | None
    resources: ResourcesShape | None


class ExpressionShape(TypedDict, total=False):
    key: str
    operator: str
    values: list[str] | None


class TermShape(TypedDict, total=False):
    matchExpressions: list[ExpressionShape] | None


class RequiredShape(TypedDict, total=False):
    nodeSelectorTerms: list[TermShape] | None


class NodeAffinityShape(TypedDict, total=False):
    requiredDuringSchedulingIgnoredDuringExecution: RequiredShape | None


class AffinityShape(TypedDict, total=False):
    nodeAffinity: NodeAffinityShape | None


class PodClaimShape(TypedDict, total=False):
    name: str
    resourceClaimName: str | None
    resourceClaimTemplateName: str | None


class PodClaimStatusShape(TypedDict, total=False):
    name: str
    resourceClaimName: str | None


class RequestMappingShape(TypedDict, total=False):
    containerName: str
    resourceName: str
    requestName: str


class ExtendedClaimShape(TypedDict, total=False):
    resourceClaimName: str | None
    requestMappings: list[RequestMappingShape] | None


class PodSpecShape(TypedDict, total=False):
    nodeName: str | None
    nodeSelector: _Words
    priorityClassName: str | None
    containers: list[ContainerShape] | None
    initContainers: list[ContainerShape] | None
    affinity: AffinityShape | None
    resourceClaims: list[PodClaimShape] | None


class RunningShape(TypedDict, total=False):
    startedAt: str | None


class TerminatedShape(TypedDict, total=False):
    startedAt: str | None
    finishedAt: str | None
    reason: str | None
    exitCode: int | None


class WaitingShape(TypedDict, total=False):
    reason: str | None


class StateShape(TypedDict, total=False):
    running: RunningShape | None
    terminated: TerminatedShape | None
    waiting: WaitingShape | None


class ContainerStatusShape(TypedDict, total=False):
    name: str
    state: StateShape | None
    lastState: StateShape | None
    restartCount: int | None


class PodStatusShape(TypedDict, total=False):
    phase: str | None
    reason: str | None
    message: str | None
    startTime: str | None
    conditions: list[ConditionShape] | None
    containerStatuses: list[ContainerStatusShape] | None
    initContainerStatuses: list[ContainerStatusShape] | None
    resourceClaimStatuses: list[PodClaimStatusShape] | None
    extendedResourceClaimStatus: ExtendedClaimShape | None


class PodShape(TypedDict):
    metadata: MetaShape
    spec: NotRequired[PodSpecShape | None]
    status: NotRequired[PodStatusShape | None]


class NodeSpecShape(TypedDict, total=False):
    unschedulable: bool | None


class NodeStatusShape(TypedDict, total=False):
    capacity: _Amounts
    allocatable: _Amounts
    conditions: list[ConditionShape] | None


class NodeShape(TypedDict):
    metadata: MetaShape
    spec: NotRequired[NodeSpecShape | None]
    status: NotRequired[NodeStatusShape | None]


class MetadataShape(TypedDict):
    """All that is read of namespaces, and of the controllers between a pod and its top owner."""

    metadata: MetaShape


ListMeta = TypedDict("ListMeta", {"resourceVersion": str, "continue": str}, total=False)

SHAPES: dict[str, Any] = {
    "pods": PodShape,
    "nodes": NodeShape,
    "namespaces": MetadataShape,
    "replicasets": MetadataShape,
    "deployments": MetadataShape,
    "statefulsets": MetadataShape,
    "jobs": MetadataShape,
    "cronjobs": MetadataShape,
}


class StatusBody(msgspec.Struct):
    """A `Status` object: what the API server answers when it cannot do what was asked."""

    kind: str = ""
    message: str = ""
    reason: str = ""
    code: int = 0
    metadata: dict[str, Any] = {}

    @property
    def token(self) -> str:
        """The continue token that a 410 to a chunk carries; empty when it has none."""
        return str(self.metadata.get("continue") or "")


class WatchLine(msgspec.Struct):
    """One line of a watch; what the object is depends on the type."""

    type: str
    object: msgspec.Raw


T = TypeVar("T")


class Page(msgspec.Struct, Generic[T]):
    """One chunk of a list."""

    kind: str = ""
    metadata: ListMeta | None = None
    items: list[T] | None = None


class Decoders:
    """Decoders of one kind of object, by its plural: of a chunk of a list and of one object."""

    def __init__(self, plural: str) -> None:
        shape = SHAPES.get(plural, dict[str, Any])
        self.page: msgspec.json.Decoder[Page[Any]] = msgspec.json.Decoder(
            Page[shape]  # type: ignore[valid-type]
        )
        self.item: msgspec.json.Decoder[Any] = msgspec.json.Decoder(shape)


STATUS = msgspec.json.Decoder(StatusBody)
LINE = msgspec.json.Decoder(WatchLine)
