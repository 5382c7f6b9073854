"""What the series of HAMi's scheduler tell of the GPUs that it shares, and of what pods got.

kube-state-metrics shows of such a node nothing but units, ten a GPU unless configured otherwise,
and of its pods what they ask of each GPU. What GPUs have stands in the scheduler's own series.

Sources: the source of HAMi's scheduler, releases 2.3 to 2.9.
"""

from collections import defaultdict
from collections.abc import Collection, Mapping
from math import fsum

import msgspec

from apps.clusters.adapters.prometheus.http_api import END_MARGIN_SECONDS
from apps.clusters.adapters.prometheus.kube_state.metrics import LARGEST, Plausible, over_all
from apps.clusters.adapters.prometheus.window_reader import WindowReader
from apps.clusters.domain.accelerators import MEMORY_LABEL, HamiGpu
from apps.clusters.domain.pods.kube_state import READ_AHEAD_SECONDS, PodSeries
from apps.clusters.domain.pods.kube_state_nodes import NodeSeries
from apps.clusters.domain.resources import GPU, GPU_MEMORY, mebibytes, sanitise
from apps.clusters.domain.window import Window

# Bytes, under the names of today and those of releases before 2.9.
LIMIT = "hami_gpu_memory_limit_bytes|GPUDeviceMemoryLimit"
ALLOCATED = "hami_vgpu_memory_allocated_bytes|vGPUMemoryAllocated|vGPUPodsDeviceAllocated"
_BYTES_PER_MIB = 1024.0**2
_EARLIER_SECONDS = 86_400.0
_GPU = sanitise(GPU)


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
    anywhere = max((_memory(node) for node in nodes.values()), default=0.0)
    for pod in asking:
        node = nodes.get(pod.node)
        # A pod that waits may come to any node.
        memory = _memory(node) if node else 0.0 if pod.node else anywhere
        _limit(pod, memory)
        if memory and pod.node:
            parts = given.get((pod.namespace, pod.name, pod.node), {}).values()
            # A pod that was made anew under its name may be on another GPU: its last ones cannot
            # be told from those before, but of how many GPUs it has parts is known.
            most = sorted((min(one, memory) for one in parts), reverse=True)
            pod.given_mib = fsum(most[: _gpus(pod)])


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
) -> dict[tuple[str, str, str], dict[tuple[str, str], float]]:
    """Return the MiB of each part that a pod has, by (container, UUID)."""
    seconds = window.seconds + READ_AHEAD_SECONDS
    query, kind = over_all(_PodGpuLabels, LARGEST, ALLOCATED, reading.matchers, seconds)
    found: dict[tuple[str, str, str], dict[tuple[str, str], float]] = defaultdict(dict)
    for one in reading.instant(query, _after(window.end_seconds), kind):
        labels = one.metric
        mib = plausible.mebibytes(ALLOCATED, one.value[1] / _BYTES_PER_MIB)
        if mib:
            part = (
                labels.container_index or labels.containeridx,
                labels.deviceuuid or labels.device_uuid,
            )
            # Releases that write both the old and the new name tell the same twice.
            found[labels.place][part] = max(mib, found[labels.place].get(part, 0.0))
    return found


def _after(end: float) -> float:
    return end + READ_AHEAD_SECONDS - END_MARGIN_SECONDS
