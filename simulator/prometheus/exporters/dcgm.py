"""What the dcgm-exporters of a scenario show of its GPUs, each as it is set up.

A row is a GPU, or an instance of a GPU in MIG mode under the UUID of the GPU. Which pod a row
names is the exporter's setting: the one that is listed last, every container on the GPU, or none.
A workload is named while its container runs. Without honorLabels Prometheus keeps its target
labels (`namespace`, `pod`, `container` are the exporter's) and renames the workload's to
`exported_*`; an idle GPU has none of these.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

from simulator import identity
from simulator.epochs import Epoch
from simulator.fleet import Device, Exporter, Node
from simulator.prometheus.exporters.device_names import Name, Naming, namings
from simulator.prometheus.exporters.device_values import (
    MEMORY_RESERVED,
    MEMORY_TEMPERATURE,
    METRICS,
    NOT_ON_MIG,
    PROFILING,
    UP,
    Metric,
    Piece,
    pieces,
)
from simulator.prometheus.series import Segment, Series
from simulator.scenarios.base import Scenario

CLUSTER = "lab"
FIXED = frozenset({"UUID", "cluster", "gpu", "job", "modelName"})
"""Labels that say the same of a GPU whatever runs on it."""
_CONTAINER = "main"
_NO_LABELS: Mapping[str, str] = {}


class _Target(NamedTuple):
    """An exporter's pod as Prometheus scrapes it."""

    pod: str
    address: str
    phase_ms: int


class _Unit(NamedTuple):
    """What has rows of its own: a GPU (`instance` -1), or an instance of a GPU."""

    node: Node
    device: Device
    instance: int


def exported(scenario: Scenario) -> Mapping[str, Metric]:
    """Return the metrics that an exporter of the scenario has."""
    names = {name for node in scenario.nodes for e in node.exporters for name in e.metrics}
    return {name: metric for name, metric in METRICS.items() if name in names}


def device_series(
    scenario: Scenario,
    metric: str,
    low_ms: int,
    high_ms: int,
    *,
    wanted: Callable[[Mapping[str, str]], bool] = lambda _: True,
) -> Iterator[Series]:
    """Yield a metric's series with all their segments that touch low..high.

    Those of a GPU are left out where `wanted` refuses its FIXED labels.
    """
    epochs = list(scenario.epochs(low_ms // 1000, high_ms // 1000))
    for node in scenario.nodes:
        for number, exporter in enumerate(node.exporters):
            if metric not in exporter.metrics:
                continue
            target = _target(node, number)
            if metric == UP:
                yield _up(node, exporter, target, epochs)
                continue
            for unit in _units(node, exporter, metric):
                if not wanted(_fixed(unit, exporter)):
                    continue
                yield from _series(epochs, unit, exporter, target, metric, (low_ms, high_ms))


def _units(node: Node, exporter: Exporter, metric: str) -> Iterator[_Unit]:
    """Yield what has rows of a metric: under MIG there is no utilization, and no whole GPU."""
    unprofiled = node.gpu is not None and not node.gpu.profiling
    if metric in PROFILING and unprofiled:
        return
    if metric == MEMORY_TEMPERATURE and not (node.gpu and node.gpu.hbm):
        return
    if metric == MEMORY_RESERVED and exporter.version < (4, 4, 0):
        return
    for device in node.devices:
        if not device.instances:
            yield _Unit(node, device, -1)
        elif metric not in NOT_ON_MIG:
            for place in range(len(device.instances)):
                yield _Unit(node, device, place)


def _series(
    epochs: Sequence[Epoch],
    unit: _Unit,
    exporter: Exporter,
    target: _Target,
    metric: str,
    span_ms: tuple[int, int],
) -> Iterator[Series]:
    low_ms, high_ms = span_ms
    labels = _labels(unit, exporter, target, metric)
    found: dict[tuple[object, ...], Series] = {}
    idle: dict[tuple[object, ...], Series] = {}
    for epoch in epochs:
        values = pieces(epoch, *unit, metric, low_ms)
        names = namings(epoch, unit, exporter, metric, low_ms, high_ms)
        for piece, name, segment in _joined(values, names, low_ms, high_ms):
            group = idle if name.pod is None else found
            key = (name.key, *piece.labels.values())
            series = group.get(key)
            if series is None:
                named = _named(name, unit, exporter)
                series = group[key] = Series(
                    {**labels, **piece.labels, **named}, target.phase_ms, [], exporter.interval_ms
                )
            series.segments.append(segment)
    yield from found.values()
    yield from idle.values()


def _joined(
    values: Iterator[Piece], names: Iterator[Naming], low_ms: int, high_ms: int
) -> Iterator[tuple[Piece, Name, Segment]]:
    """Lay values and names, both in order and without a gap, over each other."""
    piece, naming = next(values, None), next(names, None)
    while piece is not None and naming is not None:
        start = max(piece.start_ms, naming.start_ms)
        if start > high_ms:
            return
        end = min(piece.end_ms, naming.end_ms)
        if end > start and end >= low_ms:
            for name in naming.names:
                yield piece, name, _segment(piece, name, start, end)
        if piece.end_ms <= end:
            piece = next(values, None)
        if naming.end_ms <= end:
            naming = next(names, None)


def _segment(piece: Piece, name: Name, start: int, end: int) -> Segment:
    if name.value is not None:
        return Segment(start, end, name.value)
    if piece.slope:
        return Segment(
            start, end, piece.value + piece.slope * (start - piece.start_ms), piece.slope
        )
    return Segment(start, end, piece.value)


# ---------------------------------------------------------------- labels


@lru_cache(maxsize=4096)
def _address(name: str, job: str) -> tuple[str, int]:
    return identity.suffix(5, name, job), identity.below(200, name, job, "address")


def _target(node: Node, number: int) -> _Target:
    """Return a node's exporter; of a second one all follows from its job."""
    exporter = node.exporters[number]
    phase = node.scrape_phase_ms % exporter.interval_ms
    if not number:
        return _Target(node.exporter_pod, node.exporter_ip, phase)
    suffix, low = _address(node.name, exporter.job)
    phase = (phase + exporter.interval_ms // 3) % exporter.interval_ms
    return _Target(f"{exporter.job}-{suffix}", f"10.43.{node.position % 250}.{low + 2}", phase)


def _target_labels(exporter: Exporter, target: _Target) -> dict[str, str]:
    return {
        "cluster": CLUSTER,
        "container": "nvidia-dcgm-exporter",
        "endpoint": "gpu-metrics",
        "instance": f"{target.address}:9400",
        "job": exporter.job,
        "namespace": exporter.namespace,
        "pod": target.pod,
        "service": exporter.job,
    }


def _labels(unit: _Unit, exporter: Exporter, target: _Target, metric: str) -> dict[str, str]:
    node, device, instance = unit
    host = "hostname" if exporter.version >= (4, 8, 3) else "Hostname"
    labels = {
        "DCGM_FI_DRIVER_VERSION": node.labels["nvidia.com/cuda.driver-version.full"],
        host: node.name,
        "UUID": device.uuid,
        "device": f"nvidia{device.index}",
        "gpu": str(device.index),
        "modelName": node.model,
        **_target_labels(exporter, target),
    }
    if exporter.version >= (3, 5, 0):
        labels["pci_bus_id"] = device.pci_bus_id
    if instance >= 0:
        labels["GPU_I_ID"] = str(device.instances[instance].number)
        labels["GPU_I_PROFILE"] = device.instances[instance].profile
    return {"__name__": metric, **dict(sorted(labels.items()))}


def _fixed(unit: _Unit, exporter: Exporter) -> Mapping[str, str]:
    return {
        "UUID": unit.device.uuid,
        "cluster": CLUSTER,
        "gpu": str(unit.device.index),
        "job": exporter.job,
        "modelName": unit.node.model,
    }


def _named(name: Name, unit: _Unit, exporter: Exporter) -> Mapping[str, str]:
    """Return the labels by which a row names its workload."""
    pod = name.pod
    if pod is None:
        return _NO_LABELS
    prefix = "" if exporter.honor_labels else "exported_"
    labels = {
        f"{prefix}container": _CONTAINER,
        f"{prefix}namespace": pod.namespace,
        f"{prefix}pod": pod.name,
    }
    if name.vgpu:
        labels["vgpu"] = name.vgpu
    if name.with_uid:
        labels["pod_uid"] = pod.uid
    if pod.claim is not None and exporter.dra:
        labels |= {
            "dra_claim_name": pod.claim.name,
            "dra_claim_namespace": pod.claim.namespace,
            "dra_device_name": dra_device_name(unit.device, unit.instance),
            "dra_driver_name": "gpu.nvidia.com",
            "dra_pool_name": unit.node.name,
        }
        if unit.instance >= 0:
            instance = unit.device.instances[unit.instance]
            labels["dra_mig_profile"] = instance.profile
            labels["dra_mig_device_uuid"] = instance.uuid
    return labels


def dra_device_name(device: Device, instance: int) -> str:
    """Return the name under which a ResourceSlice offers a GPU or an instance."""
    if instance < 0:
        return f"gpu-{device.index}"
    one = device.instances[instance]
    return f"gpu-{device.index}-mig-{one.profile.replace('.', '')}-{one.number}"


def _up(node: Node, exporter: Exporter, target: _Target, epochs: Sequence[Epoch]) -> Series:
    labels = {"__name__": UP, **_target_labels(exporter, target)}
    segments = [Segment(epoch.start * 1000, epoch.end * 1000, 1.0) for epoch in epochs]
    return Series(labels, target.phase_ms, segments, exporter.interval_ms)
