"""What pods hold of GPUs that HAMi or KAI Scheduler shares.

Of HAMi parts by memory and cores, of KAI fractions or parts by memory.

Neither shows in a pod's resources alone. HAMi writes into an annotation what it gave, KAI reads
from annotations what is asked; Run:ai uses those of KAI.

Sources: the documentation and the constants of both projects.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from math import fsum
from typing import Any, NamedTuple

from apps.clusters.domain.json_memo import by_text
from apps.clusters.domain.kube_json import JsonObject, items, mapping, text
from apps.clusters.domain.resources import (
    GPU,
    GPU_CORES,
    GPU_FRACTION,
    GPU_MEMORY,
    GPU_MEMORY_PERCENTAGE,
    MOST_DEVICES,
    MOST_GPU_MIB,
    PARTS_OF_GPU,
    all_amounts,
    mebibytes,
)

_POD_GPUS = "hami.io/vgpu-devices-allocated"
_MEMORY_FIELD, _CORES_FIELD = 2, 3
_ALL_CORES = 100.0
_FRACTION = "gpu-fraction"
_MEMORY = "gpu-memory"
_DEVICES = "gpu-fraction-num-devices"
_CONTAINER = "gpu-fraction-container-name"
_GROUP = "runai-gpu-group"
"""Label with the GPU that a pod shares; `runai-gpu-group/…` where it shares several."""
_RESERVED_GPU = "run.ai/reserve_for_gpu_index"
"""Annotation of the pod that reserves a GPU: its UUID, in spite of the name."""
_RESERVATIONS = frozenset({"kai-resource-reservation", "runai-reservation"})
_RESERVATION_NAME = "gpu-reservation-"
_DEFAULT_SCHEDULERS = ("", "default-scheduler")


class HamiPart(NamedTuple):
    """What HAMi gave a pod of one GPU: MiB, and per cent of its cores; 0 is no limit of cores."""

    uuid: str
    mib: float
    cores: float = 0.0


def held_of_gpus(
    requests: Mapping[str, float], metadata: JsonObject, spec: JsonObject, *, each: float = 0.0
) -> dict[str, float]:
    """Return a pod's requests with the parts of GPUs that it has, or requests, as such.

    HAMi's are in MiB (`GPU_MEMORY`) or, where it is a percentage, in GPUs (`GPU_FRACTION`);
    KAI's in GPUs or, by memory, in MiB. What requests no part comes back as it is. `each` is
    the MiB of one GPU that HAMi registered of the pod's node, or before it has one of any node;
    0 where it registered none.
    """
    annotations = mapping(metadata, "annotations")
    if GPU in requests:
        # Where HAMi is not installed anybody may write its annotation, to seem to hold less; and
        # where it is, no pod has more than the GPUs that it requests.
        parts = hami_parts_given(annotations) if text(spec.get("nodeName")) else []
        given = min(mib_of_parts(parts, each), each * requests[GPU]) if parts else 0.0
        parts_held = {GPU_MEMORY: given} if given else _requested_of_hami(spec, each)
        return in_parts(requests, parts_held)
    if not is_fractional(metadata, spec):
        return dict(requests)
    return {**requests, **_requested_of_kai(annotations)}


def may_have_hami_parts(metadata: JsonObject, spec: JsonObject) -> bool:
    """Say whether what a pod holds may depend on the memory that HAMi registered of GPUs."""
    if _POD_GPUS in mapping(metadata, "annotations"):
        return True
    return _names_parts(spec.get("containers"))


def is_fractional(metadata: JsonObject, spec: JsonObject) -> bool:
    """Say whether a pod shares GPUs by KAI: it is bound to one, or for a scheduler that may be KAI.

    The annotations alone prove nothing: where KAI is not installed anybody may write them.
    """
    if not _requested_of_kai(mapping(metadata, "annotations")):
        return False
    if text(spec.get("nodeName")):
        return _in_gpu_group(metadata)
    return text(spec.get("schedulerName")) not in _DEFAULT_SCHEDULERS


def fractional_container(metadata: JsonObject, spec: JsonObject) -> str:
    """Return the container that uses the shared GPU: the one that is named, else the first."""
    named = text(mapping(metadata, "annotations").get(_CONTAINER))
    first = next(iter(items(spec.get("containers"))), {})
    return named or text(first.get("name"))


def reserves_gpu(metadata: JsonObject, requests: Mapping[str, float]) -> bool:
    """Say whether a pod only reserves the GPU that KAI's fractional pods share: no workload.

    Those that share never request a GPU.
    """
    # The label alone would not do: a user who may write pods could hide whole GPUs with it.
    is_kai = text(metadata.get("namespace")) in _RESERVATIONS
    return is_kai and GPU in requests and _GROUP in mapping(metadata, "labels")


def reserved_gpu(metadata: JsonObject) -> tuple[str, str] | None:
    """Return the group of pods for which a pod reserves a GPU, and its UUID; None of any other."""
    # In another namespace anybody may write the annotation, and take the activity of a GPU away
    # from those that share it.
    if text(metadata.get("namespace")) not in _RESERVATIONS:
        return None
    group = text(mapping(metadata, "labels").get(_GROUP))
    uuid = text(mapping(metadata, "annotations").get(_RESERVED_GPU))
    return (group, uuid) if group and uuid else None


def shared_gpus(
    metadata: JsonObject, requests: Mapping[str, float], reserved: Mapping[str, str]
) -> tuple[str, ...]:
    """Return the UUIDs of the GPUs that a pod shares by KAI; empty unless all are known.

    `requests` are what it holds, `reserved` the UUIDs by group, of which its labels name one for
    each GPU.
    """
    # One that has whole GPUs shares none, whatever its labels say.
    if PARTS_OF_GPU.isdisjoint(requests):
        return ()
    labels = mapping(metadata, "labels")
    groups = {text(value) for key, value in labels.items() if key.partition("/")[0] == _GROUP}
    return tuple(sorted(reserved[group] for group in groups)) if groups <= reserved.keys() else ()


def given_gpus(metadata: JsonObject, requests: Mapping[str, float]) -> tuple[str, ...]:
    """Return the UUIDs of the GPUs of which HAMi gave a pod parts; `requests` are what it holds."""
    if GPU_MEMORY not in requests:
        return ()
    return tuple(sorted({part.uuid for part in hami_parts_given(mapping(metadata, "annotations"))}))


def names_reservation(namespace: str, pod: str) -> bool:
    """Say by its name alone whether a pod only reserves a GPU: series have no labels of pods.

    To the kubelet, and so to exporters, this pod has the GPU that the others share.
    """
    return namespace in _RESERVATIONS or pod.startswith(_RESERVATION_NAME)


def _in_gpu_group(metadata: JsonObject) -> bool:
    return any(key.partition("/")[0] == _GROUP for key in mapping(metadata, "labels"))


def _requested_of_kai(annotations: JsonObject) -> dict[str, float]:
    devices = _devices(annotations.get(_DEVICES))
    fraction = _positive(annotations.get(_FRACTION))
    if fraction is not None and fraction <= 1:
        return {GPU_FRACTION: fraction * devices}
    memory = _positive(annotations.get(_MEMORY))
    # No GPU has more: such a request can never be met.
    if memory is None or memory > MOST_GPU_MIB:
        return {}
    return {GPU_MEMORY: memory * devices}


def _devices(value: object) -> float:
    """Return how many GPUs a pod shares: one where no whole number says so that can be."""
    found = _positive(value)
    if found is None or not found.is_integer() or found > MOST_DEVICES:
        return 1.0
    return found


def _positive(value: object) -> float | None:
    # Nearly every pod: that there is nothing to read would be found out by an error.
    if value is None:
        return None
    found = all_amounts({"": value}).get("")
    return found if found else None


def hami_parts_given(annotations: JsonObject) -> list[HamiPart]:
    """Return the parts that HAMi gave the containers of a pod; none before that."""
    # Containers end with ";", their GPUs with ":", each uuid,vendor,MiB,cores.
    found = []
    for gpu in text(annotations.get(_POD_GPUS)).replace(";", ":").split(":"):
        fields = gpu.split(",")
        if len(fields) > _MEMORY_FIELD and (mib := mebibytes(fields[_MEMORY_FIELD])):
            cores = mebibytes(fields[_CORES_FIELD]) if len(fields) > _CORES_FIELD else 0.0
            found.append(HamiPart(fields[0], mib, cores))
    return found


def mib_of_parts(parts: Iterable[HamiPart], each: float) -> float:
    """Return what parts of GPUs of `each` MiB are in MiB: of each GPU the larger of two shares.

    They are those of its memory and of its cores: a pod with all cores leaves nothing that others
    could compute with, however little memory it has.
    """
    memory: dict[str, float] = defaultdict(float)
    cores: dict[str, float] = defaultdict(float)
    for part in parts:
        memory[part.uuid] += part.mib
        cores[part.uuid] += part.cores
    return fsum(max(mib, _of_cores(cores[uuid], each)) for uuid, mib in memory.items())


def _of_cores(cores: float, whole: float) -> float:
    """Return the part of a GPU of size `whole` that so many per cent of its cores are."""
    return whole * min(cores, _ALL_CORES) / _ALL_CORES


def _requested_of_hami(spec: JsonObject, each: float) -> dict[str, float]:
    containers = spec.get("containers")
    # Most pods request whole GPUs: nothing of them has to be read.
    if not _names_parts(containers):
        return {}
    return hami_parts(map(all_amounts, _requested_amounts(containers)), each)


@by_text
def _names_parts(containers: object) -> bool:
    # Cores alone are no part: HAMi then gives the whole memory of each GPU.
    return any(
        GPU_MEMORY in amounts or GPU_MEMORY_PERCENTAGE in amounts
        for amounts in _requested_amounts(containers)
    )


def _requested_amounts(containers: object) -> list[JsonObject]:
    kinds = [mapping(container, "resources") for container in items(containers)]
    return [{**mapping(kind, "limits"), **mapping(kind, "requests")} for kind in kinds]


def in_parts(requests: Mapping[str, float], parts: Mapping[str, float]) -> dict[str, float]:
    """Return requests with parts of GPUs in the place of GPUs; without any as they are."""
    return {**_others(requests), **parts} if parts else dict(requests)


def hami_parts(containers: Iterable[Mapping[str, float]], each: float) -> dict[str, float]:
    """Return what containers that request these amounts hold of GPUs that HAMi shares.

    In MiB or GPUs, whole ones among them; empty where none requests a part. `each` is the MiB of
    one GPU: without it cores cannot be compared with MiB, and memory alone counts.
    """
    found: dict[str, float] = {}
    parted = False
    for requested in containers:
        # Both are finite, which their product need not be.
        gpus = min(requested.get(GPU, 0.0), MOST_DEVICES)
        cores = requested.get(GPU_CORES, 0.0)
        resource, part = GPU, 1.0
        if requested.get(GPU_MEMORY):
            mib = min(requested[GPU_MEMORY], MOST_GPU_MIB)
            resource, part = GPU_MEMORY, max(mib, _of_cores(cores, each))
        elif requested.get(GPU_MEMORY_PERCENTAGE):
            fraction = min(1.0, requested[GPU_MEMORY_PERCENTAGE] / 100)
            resource, part = GPU_FRACTION, max(fraction, _of_cores(cores, 1.0))
        parted = parted or (gpus > 0 and resource != GPU)
        if gpus > 0:
            found[resource] = found.get(resource, 0.0) + gpus * part
    return found if parted else {}


def _others(requests: Mapping[str, Any]) -> dict[str, float]:
    # What HAMi's scheduler alone counts of each GPU is no request beside these GPUs.
    parts = {GPU, GPU_MEMORY, GPU_MEMORY_PERCENTAGE, GPU_CORES}
    return {resource: units for resource, units in requests.items() if resource not in parts}
