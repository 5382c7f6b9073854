"""What a pod belongs to by its labels and annotations: a queue, and a gang."""

from apps.clusters.domain.kube_json import JsonObject, mapping, text

_QUEUE_LABELS = (
    "kueue.x-k8s.io/queue-name",
    "volcano.sh/queue-name",
    "kai.scheduler/queue",
    "runai/queue",
)
_QUEUE_ANNOTATIONS = ("scheduling.volcano.sh/queue-name", "volcano.sh/queue-name")
_GROUP_ANNOTATIONS = ("scheduling.k8s.io/group-name", "scheduling.volcano.sh/group-name")
_GROUP_LABELS = ("scheduling.x-k8s.io/pod-group", "kueue.x-k8s.io/pod-group-name")


def gang_name(metadata: JsonObject, spec: JsonObject) -> str:
    """Return the gang that a pod belongs to, in whichever of their ways it says so."""
    return (
        _first(mapping(metadata, "annotations"), _GROUP_ANNOTATIONS)
        or _first(mapping(metadata, "labels"), _GROUP_LABELS)
        or text(mapping(spec, "schedulingGroup").get("podGroupName"))
        or text(mapping(spec, "workloadRef").get("name"))
    )


def queue_name(metadata: JsonObject) -> str:
    """Return the queue that an object is to go through; empty where it names none."""
    return _first(mapping(metadata, "labels"), _QUEUE_LABELS) or _first(
        mapping(metadata, "annotations"), _QUEUE_ANNOTATIONS
    )


def _first(found: JsonObject, keys: tuple[str, ...]) -> str:
    return next((text(found[key]) for key in keys if text(found.get(key))), "")
