"""Accelerators that a node offers in more than one way, and GPUs that HAMi shares.

AWS' device plugin offers each Neuron device whole and, at the same time, by its cores. HAMi's
offers each NVIDIA GPU as a number of units that say nothing of its parts: what the GPUs have
stands in an annotation of the node. What pods get of them: `gpu_shares`.

Sources: the device plugins' own documentation.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import Any, NamedTuple

import msgspec

from apps.clusters.domain.resources import GPU, GPU_MEMORY, MOST_DEVICES, MOST_GPU_MIB, mebibytes

NEURON_CORE = "aws.amazon.com/neuroncore"
CORES_LABEL = "gpuportal/neuroncores-per-device"
"""Made here from what a node offers: no label of the cluster tells it."""
MEMORY_LABEL = "nvidia.com/gpu.memory"
"""MiB of one GPU, as GPU Feature Discovery writes it."""
_NEURON = ("aws.amazon.com/neuron", "aws.amazon.com/neurondevice", NEURON_CORE)
_PRODUCT = "nvidia.com/gpu.product"
_NODE_GPUS = "hami.io/node-nvidia-register"
_MEMORY_FIELD = 2


class Offer(NamedTuple):
    """What a node has in units by resource, what of it can be allocated, and its labels."""

    capacity: Mapping[str, float]
    allocatable: Mapping[str, float]
    labels: Mapping[str, str]


class HamiGpu(msgspec.Struct, frozen=True):
    """A GPU that HAMi shares: its memory in MiB, its model, and whether it works."""

    # Fields of value zero are left out by HAMi.
    devmem: float = 0.0
    type: str = ""
    health: bool = False


def counted_once(
    offer: Offer,
    *,
    annotations: Mapping[str, Any] | None = None,
    named: Collection[str] = (),
    shared: Collection[HamiGpu] = (),
) -> Offer:
    """Return what a node offers with each accelerator in it once.

    `named` are resources that tiers name. Of Neuron devices these decide whether devices or cores
    are counted, devices where they name both or neither. GPUs shared by HAMi are counted by their
    memory, which is what pods get of them; `shared` are these where HAMi's series list them.
    """
    known = _hami_gpus((annotations or {}).get(_NODE_GPUS)) or shared
    return _without_hami_units(_without_neuron_copies(offer, named), known)


def _without_neuron_copies(offer: Offer, named: Collection[str]) -> Offer:
    found = [resource for resource in _NEURON if offer.capacity.get(resource, 0.0) > 0]
    if len(found) < 2:
        return offer
    kept = next((resource for resource in found if resource in named), found[0])
    copies = set(found) - {kept}
    labels = dict(offer.labels)
    if found[-1] == NEURON_CORE:
        cores = offer.capacity[NEURON_CORE] / offer.capacity[found[0]]
        labels[CORES_LABEL] = f"{cores:g}"
    return Offer(_without(offer.capacity, copies), _without(offer.allocatable, copies), labels)


def _without_hami_units(offer: Offer, gpus: Collection[HamiGpu]) -> Offer:
    memory = sum(gpu.devmem for gpu in gpus)
    if memory <= 0 or GPU not in offer.capacity:
        return offer
    healthy = sum(gpu.devmem for gpu in gpus if gpu.health)
    # A node whose plugin is gone offers no unit, whatever its annotation still says.
    free = healthy if offer.allocatable.get(GPU, 0.0) > 0 else 0.0
    labels = {**offer.labels, **_memory_label(gpus)}
    models = {gpu.type for gpu in gpus}
    if _PRODUCT not in labels and len(models) == 1:
        labels[_PRODUCT] = models.pop()
    return Offer(
        {**_without(offer.capacity, {GPU}), GPU_MEMORY: memory},
        {**_without(offer.allocatable, {GPU}), GPU_MEMORY: free},
        labels,
    )


def hami_memory(annotations: Mapping[str, Any]) -> dict[str, str]:
    """Return the label with the MiB of one GPU of a node of HAMi; empty for any other node."""
    return _memory_label(_hami_gpus(annotations.get(_NODE_GPUS)))


def least_memory(
    nodes: Iterable[tuple[float, Mapping[str, str]]], wanted: Mapping[str, str]
) -> float:
    """Return the MiB of the smallest GPU of the nodes that have the wanted labels; 0: of none.

    `nodes` are the MiB of one GPU, 0 where it is not known, and the labels of each.
    """
    fitting = (mib for mib, labels in nodes if mib and wanted.items() <= labels.items())
    return min(fitting, default=0.0)


def labelled_memory(labels: Mapping[str, str]) -> float:
    """Return the MiB of one GPU of a node, as its label has it; 0 where none tells."""
    return mebibytes(labels.get(MEMORY_LABEL, ""))


def registered_memory(node: Mapping[str, Any]) -> float:
    """Return the MiB of the largest GPU that HAMi registered of a node; 0 where it did of none."""
    annotations = node["metadata"].get("annotations") or {}
    return max((gpu.devmem for gpu in _hami_gpus(annotations.get(_NODE_GPUS))), default=0.0)


def _memory_label(gpus: Collection[HamiGpu]) -> dict[str, str]:
    memory = sum(gpu.devmem for gpu in gpus)
    return {MEMORY_LABEL: f"{memory / len(gpus):g}"} if memory > 0 else {}


def _hami_gpus(register: object) -> list[HamiGpu]:
    """Return the GPUs that a node's annotation lists; none where it cannot be read."""
    if not isinstance(register, str):
        return []
    try:
        found = msgspec.json.decode(register, type=list[HamiGpu])
    except (msgspec.DecodeError, RecursionError):
        found = [gpu for part in register.split(":") if (gpu := _old_gpu(part)) is not None]
    # One GPU that cannot be is no reason to lose the others; more than a node takes are none.
    plausible = [gpu for gpu in found if 0 <= gpu.devmem <= MOST_GPU_MIB]
    return plausible if len(plausible) <= MOST_DEVICES else []


def _old_gpu(part: str) -> HamiGpu | None:
    # uuid,units,MiB,cores,type,numa,health: how releases before 2.5 wrote it.
    fields = part.split(",")
    memory = mebibytes(fields[_MEMORY_FIELD]) if len(fields) >= 7 else 0.0
    return HamiGpu(memory, fields[4], fields[6] == "true") if memory else None


def _without(amounts: Mapping[str, float], left_out: Collection[str]) -> dict[str, float]:
    return {resource: units for resource, units in amounts.items() if resource not in left_out}
