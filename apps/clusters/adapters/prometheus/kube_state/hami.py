"""What the series of HAMi's scheduler tell of the GPUs that it shares, and of what pods got.

kube-state-metrics shows of such a node nothing but units, ten a GPU unless configured otherwise,
and of its pods what they ask of each GPU. What GPUs have stands in the scheduler's own series.

Sources: the source of HAMi's scheduler, releases 2.3 to 2.9.
"""

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from math import fsum

import msgspec

from apps.clusters.adapters.prometheus.http_api import END_MARGIN_SECONDS
from apps.clusters.adapters.prometheus.kube_state.metrics import LARGEST, Plausible, over_all
from apps.clusters.adapters.prometheus.window_reader import WindowReader
from apps.clusters.domain.accelerators import MEMORY_LABEL, HamiGpu
from apps.clusters.domain.gpu_shares import HamiPart, mib_of_parts
from apps.clusters.domain.pods.kube_state import READ_AHEAD_SECONDS, PodSeries
from apps.clusters.domain.pods.kube_state_nodes import NodeSeries
from apps.clusters.domain.resources import GPU, GPU_MEMORY, mebibytes, sanitise
from apps.clusters.domain.window import Window

# Bytes, under the names of today and those of releases before 2.9.
LIMIT = "hami_gpu_memory_limit_bytes|GPUDeviceMemoryLimit"
ALLOCATED = "hami_vgpu_memory_allocated_bytes|vGPUMemoryAllocated|vGPUPodsDeviceAllocated"
# Per cent of a GPU's cores, under its names of today, before 2.9 and before 2.8.
CORES = "hami_vgpu_core_allocated_ratio|vGPUCoreAllocated|vGPUCorePercentage"
_BYTES_PER_MIB = 1024.0**2
_EARLIER_SECONDS = 86_400.0
_GPU = sanitise(GPU)
_PartKey = tuple[str, str, str, str, str]
"""(namespace, pod, node, container, UUID)."""


class _GpuLabels(msgspec.Struct, frozen=True, gc=False):
    """A target that has a label `node` itself renames the scheduler's; old names never clash."""

    node: str = ""
    exported_node: str = ""
    nodeid: str = ""
    device_uuid: str = ""
    deviceuuid: str = ""
    device_type: str = ""
    devicetype: str = ""

    @property
    def own_node(self) -> str:
        return self.nodeid or self.exported_node or self.node

    @property
    def uuid(self) -> str:
        return self.deviceuuid or self.device_uuid


class _PodGpuLabels(msgspec.Struct, frozen=True, gc=False):
    """The same of a pod: the scheduler's own pod has the plain names where it is a target."""

    namespace: str = ""
    exported_namespace: str = ""
    podnamespace: str = ""
    pod: str = ""
    exported_pod: str = ""
    podname: str = ""
    node: str = ""
    exported_node: str = ""
    nodename: str = ""
    container_index: str = ""
    containeridx: str = ""
    device_uuid: str = ""
    deviceuuid: str = ""

    @property
    def place(self) -> tuple[str, str, str]:
        """(namespace, pod, node)."""
        namespace = self.podnamespace or self.exported_namespace or self.namespace
        pod = self.podname or self.exported_pod or self.pod
        return namespace, pod, self.nodename or self.exported_node or self.node


def read_hami(
    reading: WindowReader,
    plausible: Plausible,
    window: Window,
    pods: Collection[PodSeries],
    nodes: Mapping[str, NodeSeries],
) -> None:
    """Note the GPUs of nodes that HAMi shares and what its pods got of them, in place.

    A pod on a node of which no series tells the memory of a GPU keeps whole GPUs.
    """
    asking = [pod for pod in pods if any(_GPU in units for units in pod.requests.values())]
    parted = any(pod.of_each_gpu for pod in asking)
    found = _limits(reading, plausible, window.end_seconds, window.seconds + READ_AHEAD_SECONDS)
    if parted and not found:
        # GPUs stay what they are while the scheduler is away, and so must the figures.
        found = _limits(reading, plausible, window.end_seconds, window.seconds + _EARLIER_SECONDS)
    for name, gpus in found.items():
        if name in nodes:
            nodes[name].shared = tuple(gpu for _, gpu in sorted(gpus.items()))
    if not (parted or found):
        return
    given = _allocated(reading, plausible, window)
    anywhere = [mib for node in nodes.values() if (mib := _memory(node))]
    for pod in asking:
        node = nodes.get(pod.node)
        memory = _memory(node) if node else 0.0
        # A pending pod may come to any node: series do not tell its node selector.
        may_have = anywhere if not pod.node else [memory]
        _limit(pod, max(may_have, default=0.0))
        pod.gpu_mib = min(may_have, default=0.0)
        if memory and pod.node:
            _give(pod, given.get((pod.namespace, pod.name, pod.node), ()), memory)


def _give(pod: PodSeries, parts: Collection[HamiPart], memory: float) -> None:
    """Note what HAMi gave a pod of GPUs that have so many MiB each."""
    limited = [part._replace(mib=min(part.mib, memory)) for part in parts]
    # A pod that was made anew under its name may be on another GPU: its last ones cannot be told
    # from those before, but of how many GPUs it has parts is known.
    limited.sort(key=lambda part: mib_of_parts([part], memory), reverse=True)
    pod.given_mib = mib_of_parts(limited[: _gpus(pod)], memory)
    if len(limited) <= _gpus(pod):
        pod.given_gpus = tuple(sorted({part.uuid for part in limited}))


def _gpus(pod: PodSeries) -> int:
    return round(sum(units.get(_GPU, 0.0) for units in pod.requests.values()))


def _limit(pod: PodSeries, memory: float) -> None:
    """Let a pod ask for no more than a GPU has; drop what is of a GPU of unknown memory."""
    for amounts in pod.of_each_gpu.values():
        if not memory:
            amounts.pop(GPU_MEMORY, None)
        elif GPU_MEMORY in amounts:
            amounts[GPU_MEMORY] = min(memory, amounts[GPU_MEMORY])


def _memory(node: NodeSeries) -> float:
    """Return the MiB of one GPU of a node, as its label will have it; 0 where nothing tells."""
    if node.shared:
        return fsum(gpu.devmem for gpu in node.shared) / len(node.shared)
    told = {labels[MEMORY_LABEL] for labels in node.labels.values() if MEMORY_LABEL in labels}
    numbers = [mib for text in told if (mib := mebibytes(text))]
    return min(numbers, default=0.0)


def _limits(
    reading: WindowReader, plausible: Plausible, end: float, seconds: float
) -> dict[str, dict[str, HamiGpu]]:
    """Return the GPUs of each node by UUID."""
    query, kind = over_all(_GpuLabels, LARGEST, LIMIT, reading.matchers, seconds)
    found: dict[str, dict[str, HamiGpu]] = defaultdict(dict)
    for one in reading.instant(query, _after(end), kind):
        mib = plausible.mebibytes(LIMIT, one.value[1] / _BYTES_PER_MIB)
        if mib and one.metric.own_node and one.metric.uuid:
            model = one.metric.devicetype or one.metric.device_type
            found[one.metric.own_node][one.metric.uuid] = HamiGpu(mib, _model(model), health=True)
    return found


def _model(model: str) -> str:
    # As GPU Feature Discovery writes it.
    return model.replace(" ", "-")


def _allocated(
    reading: WindowReader, plausible: Plausible, window: Window
) -> dict[tuple[str, str, str], list[HamiPart]]:
    """Return the parts of GPUs that each pod has, by (namespace, pod, node)."""
    cores: dict[_PartKey, float] = defaultdict(float)
    for key, percent in _of_parts(reading, window, CORES):
        share = plausible.fraction(CORES, percent / 100)
        # Releases that write both the old and the new name tell the same twice.
        cores[key] = max(cores[key], 100 * (share or 0.0))
    memory: dict[_PartKey, float] = defaultdict(float)
    for key, size in _of_parts(reading, window, ALLOCATED):
        mib = plausible.mebibytes(ALLOCATED, size / _BYTES_PER_MIB)
        memory[key] = max(memory[key], mib or 0.0)
    found: dict[tuple[str, str, str], list[HamiPart]] = defaultdict(list)
    for key, mib in memory.items():
        if mib:
            found[key[:3]].append(HamiPart(key[-1], mib, cores[key]))
    return found


def _of_parts(
    reading: WindowReader, window: Window, metric: str
) -> Iterator[tuple[_PartKey, float]]:
    """Yield the largest value of a metric for each part of a GPU that a pod has."""
    seconds = window.seconds + READ_AHEAD_SECONDS
    query, kind = over_all(_PodGpuLabels, LARGEST, metric, reading.matchers, seconds)
    for one in reading.instant(query, _after(window.end_seconds), kind):
        labels = one.metric
        container = labels.container_index or labels.containeridx
        yield (*labels.place, container, labels.deviceuuid or labels.device_uuid), one.value[1]


def _after(end: float) -> float:
    return end + READ_AHEAD_SECONDS - END_MARGIN_SECONDS
