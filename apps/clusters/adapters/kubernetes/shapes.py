"""Which fields of Kubernetes objects are decoded, as types for msgspec.

Most of an object (managed fields, volumes, environments) is never looked at. Decoding into these
shapes skips it, which takes less time than decoding everything and a small part of the memory,
and still gives plain dictionaries. A kind without a shape is decoded whole.
"""

from typing import Any, Generic, NotRequired, TypedDict, TypeVar

import msgspec

_Words = dict[str, str] | None
_Amounts = dict[str, Any] | None

Annotations = TypedDict(
    "Annotations",
    {
        "scheduling.k8s.io/group-name": str,
        "scheduling.volcano.sh/group-name": str,
        "scheduling.volcano.sh/queue-name": str,
        "volcano.sh/queue-name": str,
        "hami.io/vgpu-devices-allocated": str,
        "gpu-fraction": str,
        "gpu-fraction-container-name": str,
        "gpu-fraction-num-devices": str,
        "gpu-memory": str,
        "run.ai/reserve_for_gpu_index": str,
        "gpuportal.io/last-checkpoint": str,
        "gpuportal.io/kept-for-latency": str,
    },
    total=False,
)
NodeAnnotations = TypedDict("NodeAnnotations", {"hami.io/node-nvidia-register": str}, total=False)
ListMeta = TypedDict("ListMeta", {"resourceVersion": str, "continue": str}, total=False)
T = TypeVar("T")


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


class MarkedMetaShape(MetaShape, total=False):
    """Metadata with annotations of gang, queue, GPUs, checkpoint or mark; the others are long."""

    annotations: Annotations | None


class NodeMetaShape(MetaShape, total=False):
    """Metadata with the annotation in which HAMi lists a node's GPUs."""

    annotations: NodeAnnotations | None


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


class PortShape(TypedDict, total=False):
    hostPort: int | None


class ContainerShape(TypedDict, total=False):
    name: str
    restartPolicy: str | None
    resources: ResourcesShape | None
    ports: list[PortShape] | None


class ExpressionShape(TypedDict, total=False):
    key: str
    operator: str
    values: list[str] | None


class TermShape(TypedDict, total=False):
    matchExpressions: list[ExpressionShape] | None
    matchFields: list[ExpressionShape] | None


class RequiredShape(TypedDict, total=False):
    nodeSelectorTerms: list[TermShape] | None


class NodeAffinityShape(TypedDict, total=False):
    requiredDuringSchedulingIgnoredDuringExecution: RequiredShape | None


class PodTermShape(TypedDict, total=False):
    topologyKey: str


class PodAffinityShape(TypedDict, total=False):
    requiredDuringSchedulingIgnoredDuringExecution: list[PodTermShape] | None


class AffinityShape(TypedDict, total=False):
    nodeAffinity: NodeAffinityShape | None
    podAffinity: PodAffinityShape | None
    podAntiAffinity: PodAffinityShape | None


class TolerationShape(TypedDict, total=False):
    key: str | None
    operator: str | None
    value: str | None
    effect: str | None


class SpreadShape(TypedDict, total=False):
    whenUnsatisfiable: str


class GateShape(TypedDict, total=False):
    name: str


class VolumeClaimShape(TypedDict, total=False):
    claimName: str


class EphemeralShape(TypedDict, total=False):
    volumeClaimTemplate: dict[str, Any] | None


class VolumeShape(TypedDict, total=False):
    name: str
    persistentVolumeClaim: VolumeClaimShape | None
    ephemeral: EphemeralShape | None


class SchedulingGroupShape(TypedDict, total=False):
    podGroupName: str | None


class WorkloadRefShape(TypedDict, total=False):
    name: str | None


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
    tolerations: list[TolerationShape] | None
    topologySpreadConstraints: list[SpreadShape] | None
    schedulingGates: list[GateShape] | None
    schedulerName: str | None
    priority: int | None
    preemptionPolicy: str | None
    volumes: list[VolumeShape] | None
    overhead: _Amounts
    resources: ResourcesShape | None
    schedulingGroup: SchedulingGroupShape | None
    workloadRef: WorkloadRefShape | None


class RunningShape(TypedDict, total=False):
    startedAt: str | None


class TerminatedShape(TypedDict, total=False):
    startedAt: str | None
    finishedAt: str | None
    reason: str | None
    exitCode: int | None


class WaitingShape(TypedDict, total=False):
    reason: str | None
    message: str | None


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
    nominatedNodeName: str | None
    conditions: list[ConditionShape] | None
    containerStatuses: list[ContainerStatusShape] | None
    initContainerStatuses: list[ContainerStatusShape] | None
    resourceClaimStatuses: list[PodClaimStatusShape] | None
    extendedResourceClaimStatus: ExtendedClaimShape | None


class PodShape(TypedDict):
    metadata: MarkedMetaShape
    spec: NotRequired[PodSpecShape | None]
    status: NotRequired[PodStatusShape | None]


class AnnotatedMetaShape(MetaShape, total=False):
    """Metadata with all annotations: those that name a person are chosen by the operator."""

    annotations: _Words


class AnnotatedPodShape(PodShape):
    """A pod where some annotation names a person."""

    metadata: AnnotatedMetaShape  # type: ignore[misc]


class TaintShape(TypedDict, total=False):
    key: str
    value: str | None
    effect: str


class NodeSpecShape(TypedDict, total=False):
    unschedulable: bool | None
    taints: list[TaintShape] | None


class NodeStatusShape(TypedDict, total=False):
    capacity: _Amounts
    allocatable: _Amounts
    conditions: list[ConditionShape] | None


class NodeShape(TypedDict):
    metadata: NodeMetaShape
    spec: NotRequired[NodeSpecShape | None]
    status: NotRequired[NodeStatusShape | None]


class TemplateMetaShape(TypedDict, total=False):
    labels: _Words
    annotations: Annotations | None


class TemplateShape(TypedDict, total=False):
    metadata: TemplateMetaShape | None
    spec: PodSpecShape | None


class ControllerSpecShape(TypedDict, total=False):
    replicas: int | None
    parallelism: int | None
    completions: int | None
    completionMode: str | None
    suspend: bool | None
    template: TemplateShape | None


class ControllerStatusShape(TypedDict, total=False):
    replicas: int | None
    active: int | None
    succeeded: int | None
    conditions: list[ConditionShape] | None


class ControllerShape(TypedDict):
    """A ReplicaSet, StatefulSet or Job: how many pods it wants, each pod's requests, its state."""

    metadata: MarkedMetaShape
    spec: NotRequired[ControllerSpecShape | None]
    status: NotRequired[ControllerStatusShape | None]


class AnnotatedTemplateMetaShape(TypedDict, total=False):
    labels: _Words
    annotations: _Words


class AnnotatedTemplateShape(TypedDict, total=False):
    metadata: AnnotatedTemplateMetaShape | None
    spec: PodSpecShape | None


class AnnotatedControllerSpecShape(ControllerSpecShape, total=False):
    template: AnnotatedTemplateShape | None  # type: ignore[misc]


class AnnotatedControllerShape(ControllerShape):
    """A controller where some annotation names a person: work without a pod is told by it alone."""

    metadata: AnnotatedMetaShape  # type: ignore[misc]
    spec: NotRequired[AnnotatedControllerSpecShape | None]  # type: ignore[misc]


class AboutShape(TypedDict, total=False):
    kind: str
    name: str
    uid: str


class EventSourceShape(TypedDict, total=False):
    component: str | None


class SeriesShape(TypedDict, total=False):
    count: int | None
    lastObservedTime: str | None


class EventShape(TypedDict, total=False):
    """An event of the core group."""

    metadata: MetaShape
    involvedObject: AboutShape | None
    reason: str | None
    message: str | None
    type: str | None
    source: EventSourceShape | None
    reportingComponent: str | None
    count: int | None
    series: SeriesShape | None
    firstTimestamp: str | None
    lastTimestamp: str | None
    eventTime: str | None


class MetadataShape(TypedDict):
    """All that is read of namespaces, and of the controllers between a pod and its top owner."""

    metadata: MetaShape


class AnnotatedMetadataShape(TypedDict):
    """A namespace where an annotation names a person."""

    metadata: AnnotatedMetaShape


SHAPES: dict[str, Any] = {
    "pods": PodShape,
    "nodes": NodeShape,
    "namespaces": MetadataShape,
    "replicasets": ControllerShape,
    "deployments": MetadataShape,
    "statefulsets": ControllerShape,
    "jobs": ControllerShape,
    "events": EventShape,
    "cronjobs": MetadataShape,
}
ANNOTATED: dict[str, Any] = {
    "pods": AnnotatedPodShape,
    "namespaces": AnnotatedMetadataShape,
    **dict.fromkeys(("replicasets", "statefulsets", "jobs"), AnnotatedControllerShape),
}
"""What is decoded instead where an annotation may name a person."""


class StatusBody(msgspec.Struct):
    """A `Status` object: what the API server answers when it cannot do what was asked."""

    kind: str = ""
    message: str = ""
    reason: str = ""
    code: int = 0
    metadata: dict[str, Any] = {}
    details: dict[str, Any] | None = None

    @property
    def retry_after_seconds(self) -> float:
        """How long the server asks to wait; 0 where it does not say."""
        asked = (self.details or {}).get("retryAfterSeconds")
        return float(asked) if isinstance(asked, int) else 0.0

    @property
    def token(self) -> str:
        """The continue token that a 410 to a chunk carries; empty when it has none."""
        return str(self.metadata.get("continue") or "")


class WatchLine(msgspec.Struct):
    """One line of a watch; what the object is depends on the type."""

    type: str
    object: msgspec.Raw


class ListPage(msgspec.Struct, Generic[T]):
    """One chunk of a list."""

    kind: str = ""
    metadata: ListMeta | None = None
    items: list[T] | None = None


class Decoders:
    """Decoders of one kind of object, by its plural: of a chunk of a list and of one object.

    `annotated`: pods, their controllers and namespaces come with all of their annotations.
    """

    def __init__(self, plural: str, *, annotated: bool = False) -> None:
        shape = SHAPES.get(plural, dict[str, Any])
        if annotated:
            shape = ANNOTATED.get(plural, shape)
        self.page: msgspec.json.Decoder[ListPage[Any]] = msgspec.json.Decoder(
            ListPage[shape]  # type: ignore[valid-type]
        )
        self.item: msgspec.json.Decoder[Any] = msgspec.json.Decoder(shape)


STATUS = msgspec.json.Decoder(StatusBody)
LINE = msgspec.json.Decoder(WatchLine)
