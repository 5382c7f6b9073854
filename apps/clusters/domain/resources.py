"""Names and amounts of GPU resources, as Kubernetes writes them and as sentences say them."""

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import lru_cache
from math import isfinite, nan
from typing import Any

from apps.clusters.domain.json_memo import by_text

GPU = "nvidia.com/gpu"
GPU_MEMORY = "nvidia.com/gpumem"
"""MiB of a GPU that HAMi or KAI Scheduler shares."""
GPU_MEMORY_PERCENTAGE = "nvidia.com/gpumem-percentage"
GPU_CORES = "nvidia.com/gpucores"
"""Per cent of the cores of each GPU that HAMi shares."""
GPU_FRACTION = "nvidia.com/gpu-fraction"
"""Parts of a GPU that KAI Scheduler shares, in GPUs. Made here: pods ask by annotations."""
PARTS_OF_GPU = frozenset({GPU_MEMORY, GPU_FRACTION})
MOST_GPU_MIB = 2.0**24
"""MiB of one GPU, above which none is believed: 16 TiB, with memory lent out many times."""
MOST_DEVICES = 1024
"""Devices of one node, or that one pod shares, above which a number is not believed."""
PREFIXES = (
    GPU,
    "nvidia.com/mig-",
    "amd.com/gpu",
    "gpu.intel.com/",
    "aws.amazon.com/neuron",
    "habana.ai/gaudi",
    "google.com/tpu",
    "huawei.com/Ascend",
)
# What HAMi lets a pod ask for of each GPU, beside the number of GPUs. Its own scheduler alone
# counts these; no node offers them.
_OF_EACH_GPU = frozenset({GPU_MEMORY, GPU_MEMORY_PERCENTAGE, GPU_CORES})
_ASCEND_PART = re.compile(r"^huawei\.com/Ascend\w+-")
_ASCEND_310P_PART = re.compile(r"^huawei\.com/Ascend310P-([124])c(?:\.\dcpu)?$")
_310P_CORES = 8
_310P_SANITISED = re.compile(r"^huawei_com_Ascend310P_([124]c)(?:_(\dcpu))?$")
_MONITORING = "_monitoring"
GPU_DRIVERS = frozenset({"gpu.nvidia.com", "gpu.amd.com", "gpu.intel.com"})
"""Drivers of dynamic resource allocation whose devices are GPUs."""
GPU_TYPES = frozenset({"gpu", "mig", "vfio"})
_NVIDIA = ".nvidia.com"
_MIG_SANITISED = re.compile(r"^nvidia_com_mig_(\dg)_(\d+gb)((?:_me)?(?:_all)?)(_shared)?$")
_KNOWN = (
    "nvidia.com/gpu",
    "nvidia.com/gpu.shared",
    "amd.com/gpu",
    "gpu.intel.com/i915",
    "gpu.intel.com/xe",
    "aws.amazon.com/neuron",
    "aws.amazon.com/neurondevice",
    "aws.amazon.com/neuroncore",
    "habana.ai/gaudi",
    "google.com/tpu",
)
_ASCEND_SANITISED = re.compile(r"^huawei_com_(Ascend\w+)$")
_SUFFIXES = {
    "m": 1e-3,
    "k": 1e3,
    "M": 1e6,
    "G": 1e9,
    "T": 1e12,
    "P": 1e15,
    "E": 1e18,
    "Ki": 2.0**10,
    "Mi": 2.0**20,
    "Gi": 2.0**30,
    "Ti": 2.0**40,
    "Pi": 2.0**50,
    "Ei": 2.0**60,
    "u": 1e-6,
    "n": 1e-9,
}
_QUANTITY = re.compile(r"^([0-9.]+(?:[eE][+-]?[0-9]+)?)([numkMGTPE]|[KMGTPE]i)?$")

_Read = Callable[[Mapping[str, object]], dict[str, float]]


def is_gpu(resource: str, named: Collection[str] = ()) -> bool:
    """Say whether `resource` is a GPU resource: by its prefix, or because a tier names it."""
    return resource in named or _is_gpu(resource)


# A cluster has a dozen resources, and asks of each for every container of its pods.
@lru_cache(maxsize=10_000)
def _is_gpu(resource: str) -> bool:
    return resource.startswith(PREFIXES) and not _is_no_device(resource)


def _is_no_device(resource: str) -> bool:
    # Intel's `…_monitoring` shows all GPUs to a pod and allocates none. Chips of the Ascend 910
    # family have 20 to 32 cores, which no label tells: what a part of one weighs is not known.
    return (
        resource.endswith(_MONITORING)
        or resource in _OF_EACH_GPU - {GPU_MEMORY}
        or (_ASCEND_PART.match(resource) is not None and ascend_part(resource) is None)
    )


def ascend_part(resource: str) -> float | None:
    """Return the part of a chip that a vNPU is, by its AI cores; None for any other resource."""
    found = _ASCEND_310P_PART.match(resource)
    return None if found is None else int(found[1]) / _310P_CORES


_PARTS_SANITISED = {re.sub(r"[^A-Za-z0-9_]", "_", name): name for name in _OF_EACH_GPU}


def part_of_each_gpu(sanitised: str) -> str:
    """Return what HAMi lets a pod ask for of each GPU, as kube-state-metrics writes it, else ``."""
    return _PARTS_SANITISED.get(sanitised, "")


def counts_no_device(sanitised: str) -> bool:
    """Say of a resource, as kube-state-metrics writes it, that units of it are no devices."""
    return sanitised.endswith(_MONITORING) or sanitised in _PARTS_SANITISED


def names_gpus(device_class: str, named: Collection[str] = ()) -> bool:
    """Say whether a device class is of GPUs: by its name, or because a tier names it."""
    # `gpu.nvidia.com`, `mig.nvidia.com` and `vfio.gpu.nvidia.com` are made by the driver's chart.
    kind = device_class.removesuffix(_NVIDIA)
    if device_class in named or (kind != device_class and kind in GPU_TYPES):
        return True
    drivers = tuple(f".{driver}" for driver in GPU_DRIVERS)
    return device_class in GPU_DRIVERS or device_class.endswith(drivers)


def main_resource(requests: Mapping[str, float]) -> tuple[str, float]:
    """Return the resource that a request is filed under, the one with most units, and these."""
    if len(requests) == 1:  # nearly always
        ((resource, units),) = requests.items()
        return resource, units
    return min(requests.items(), key=lambda item: (-item[1], item[0]))


def parse_quantity(text: object) -> float:
    """Return the number that a Kubernetes quantity such as `2`, `1500m` or `1Gi` stands for.

    Raises ValueError for anything else.
    """
    return _number(str(text))


def mebibytes(text: str) -> float:
    """Return the MiB of one GPU that whole digits stand for; 0 where they cannot be that."""
    # Digits of other scripts and raised ones are digits to Python, and no number; a long row of
    # nines is infinite. An annotation may hold both.
    if not (text.isascii() and text.isdigit()) or len(text) > 20:
        return 0.0
    found = float(text)
    return found if found <= MOST_GPU_MIB else 0.0


@lru_cache(maxsize=10_000)
def _number(text: str) -> float:
    match = _QUANTITY.match(text)
    found = float(match[1]) * _SUFFIXES.get(match[2] or "", 1.0) if match else nan
    # Nothing that the API server checked is infinite, but series and files may hold anything.
    if not isfinite(found):
        raise ValueError(f"not a quantity: {text!r}")
    return found


def gpu_amounts(amounts: Mapping[str, object], named: Collection[str] = ()) -> dict[str, float]:
    """Return the GPU resources of a capacity, allocatable or request map, with their units.

    An amount that cannot be read counts as absent: one strange node must not hide the others.
    """
    return all_amounts(
        {r: n for r, n in amounts.items() if is_gpu(r, named) and r not in _OF_EACH_GPU}
    )


def all_amounts(amounts: Mapping[str, object]) -> dict[str, float]:
    """Return every amount that can be read: CPU in cores, memory in bytes, GPUs in units."""
    found = {}
    for resource, amount in amounts.items():
        try:
            found[resource] = parse_quantity(amount)
        except ValueError:
            continue
    return found


@by_text
def effective_request(
    containers: Sequence[Mapping[str, Any]],
    init_containers: Sequence[Mapping[str, Any]] = (),
    named: Collection[str] = (),
) -> Mapping[str, float]:
    """Return GPU resource → units that a pod holds: max(sum of containers, each init step).

    A sidecar (an init container with restartPolicy Always) keeps running: it adds to the
    containers and to every init step after it (facts, section 3.1). Zero units are left out.
    """
    return _effective(containers, init_containers, lambda amounts: gpu_amounts(amounts, named))


def whole_request(spec: Mapping[str, Any]) -> Mapping[str, float]:
    """Return resource → amount that a pod of this spec holds, CPU and memory too.

    Pod-level requests (`spec.resources`) replace those of the containers; the overhead of the
    runtime class is added.
    """
    containers, inits = spec.get("containers") or (), spec.get("initContainers") or ()
    return _whole_request(containers, inits, spec.get("resources"), spec.get("overhead"))


@by_text
def _whole_request(
    containers: Sequence[Mapping[str, Any]],
    inits: Sequence[Mapping[str, Any]],
    whole: Mapping[str, Any] | None,
    overhead: Mapping[str, Any] | None,
) -> Mapping[str, float]:
    found = _effective(containers, inits, _scheduled)
    if whole:
        of_pod = _container_request({"resources": whole}, _scheduled)
        found |= {r: n for r, n in of_pod.items() if n > 0}
    return _sum((found, all_amounts(overhead))) if overhead else found


def _scheduled(amounts: Mapping[str, object]) -> dict[str, float]:
    # The scheduler passes over what HAMi's extender counts: no node has any of it.
    return all_amounts({r: n for r, n in amounts.items() if r not in _OF_EACH_GPU})


def _effective(
    containers: Sequence[Mapping[str, Any]],
    init_containers: Sequence[Mapping[str, Any]],
    read: _Read,
) -> dict[str, float]:
    # Init containers run one after the other before the rest: the largest step counts.
    total = _sum(_container_request(c, read) for c in containers)
    if not init_containers:
        return {r: units for r, units in sorted(total.items()) if units > 0}
    sidecars: dict[str, float] = {}
    peak: dict[str, float] = {}
    for container in init_containers:
        request = _container_request(container, read)
        step = _sum((sidecars, request))
        peak = {r: max(peak.get(r, 0.0), step.get(r, 0.0)) for r in peak.keys() | step.keys()}
        if container.get("restartPolicy") == "Always":
            sidecars = step
    running = _sum((total, sidecars))
    both = {r: max(running.get(r, 0.0), peak.get(r, 0.0)) for r in running.keys() | peak.keys()}
    return {r: units for r, units in sorted(both.items()) if units > 0}


def _container_request(container: Mapping[str, Any], read: _Read) -> dict[str, float]:
    resources = container.get("resources") or {}
    return read({**(resources.get("limits") or {}), **(resources.get("requests") or {})})


def _sum(parts: Iterable[Mapping[str, float]]) -> dict[str, float]:
    total: dict[str, float] = {}
    for part in parts:
        for resource, units in part.items():
            total[resource] = total.get(resource, 0.0) + units
    return total


def sanitise(name: str) -> str:
    """Return `name` as kube-state-metrics writes it: all but letters, digits and _ become _."""
    return re.sub(r"[^A-Za-z0-9_]", "_", name)


def desanitise(name: str, named: Collection[str] = ()) -> str:
    """Return the resource that kube-state-metrics wrote as `name`.

    The mapping is not reversible in general, so known names and those that tiers use are tried
    first, then the shape of MIG names. What stays unknown comes back unchanged.
    """
    for known in (*named, *_KNOWN):
        if sanitise(known) == name:
            return known
    if part := _310P_SANITISED.match(name):
        return f"huawei.com/Ascend310P-{part[1]}" + (f".{part[2]}" if part[2] else "")
    if ascend := _ASCEND_SANITISED.match(name):
        return f"huawei.com/{ascend[1]}"
    match = _MIG_SANITISED.match(name)
    if match is None:
        return name
    extra = match[3].replace("_", ".")
    return f"nvidia.com/mig-{match[1]}.{match[2]}{extra}{'.shared' if match[4] else ''}"


def quantity(value: float) -> str:
    """Write an amount with at most two decimals: `8`, `2.5`, `<0.01`."""
    if 0 < value < 0.005:
        return "<0.01"
    text = f"{value:,.2f}".rstrip("0").rstrip(".")
    return "0" if text == "-0" else text


def gpus(amount: float) -> str:
    """Write a number of GPUs: `1 GPU`, `2.5 GPUs`."""
    return counted(amount, "GPU")


def counted(number: float, one: str, many: str = "") -> str:
    """Return `1 pod`, `3 pods`, `2.5 GPUs`."""
    text = quantity(number)
    return f"{text} {one if text == '1' else many or one + 's'}"
