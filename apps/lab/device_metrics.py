"""What a dcgm-exporter behind a ServiceMonitor without honorLabels shows of the scenario's cards.

Prometheus keeps its target labels (`namespace`, `pod`, `container` are the exporter's) and renames
the workload's to `exported_*`; an idle card has none of these. The workload is named while its
container runs.
"""

from bisect import bisect_right
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from apps.lab.fleet import Device, Node, Pod
from apps.lab.laps import Lap, Run
from apps.lab.scenarios.base import Scenario
from apps.lab.series import Segment, Series

CLUSTER = "lab"
ENERGY = "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION"
_CONTAINER = "main"


class Metric(NamedTuple):
    """Type and help as the exporter writes them."""

    type: str
    help: str


METRICS: Mapping[str, Metric] = {
    "DCGM_FI_PROF_GR_ENGINE_ACTIVE": Metric(
        "gauge", "Ratio of time the graphics engine is active."
    ),
    "DCGM_FI_DEV_GPU_UTIL": Metric("gauge", "GPU utilization (in %)."),
    "DCGM_FI_DEV_FB_USED": Metric("gauge", "Framebuffer memory used (in MiB)."),
    "DCGM_FI_DEV_FB_FREE": Metric("gauge", "Framebuffer memory free (in MiB)."),
    "DCGM_FI_DEV_POWER_USAGE": Metric("gauge", "Power draw (in W)."),
    ENERGY: Metric("counter", "Total energy consumption since boot (in mJ)."),
}


def device_series(scenario: Scenario, metric: str, low_ms: int, high_ms: int) -> Iterator[Series]:
    """Yield a metric's series with all their segments that touch low..high."""
    laps = list(scenario.laps(low_ms // 1000, high_ms // 1000))
    for node in scenario.nodes:
        for device in node.devices:
            yield from _series(laps, node, device, metric, low_ms, high_ms)


def _series(
    laps: list[Lap], node: Node, device: Device, metric: str, low_ms: int, high_ms: int
) -> Iterator[Series]:
    labels = _labels(node, device, metric)
    idle: list[Segment] = []
    for lap in laps:
        for start, end, pod, energy in _spells(lap, node, device, low_ms, high_ms):
            segment = _segment(metric, node, pod, start, end, energy)
            if pod is None:
                idle.append(segment)
            else:
                yield Series({**labels, **_holder(pod)}, node.scrape_phase_ms, [segment])
    if idle:
        yield Series(labels, node.scrape_phase_ms, idle)


def _spells(
    lap: Lap, node: Node, device: Device, low_ms: int, high_ms: int
) -> Iterator[tuple[int, int, Pod | None, float]]:
    """Yield (start, end, pod or None while idle, energy counter at the start), in order."""
    runs = lap.runs(node, device.index)
    place = bisect_right(runs, low_ms, key=lambda run: run.end_ms)
    at, energy = lap.start * 1000, 0.0
    if place:
        at, energy = _after(runs[place - 1])
    while place < len(runs) and at <= high_ms:
        run = runs[place]
        if run.start_ms > at:
            yield at, run.start_ms, None, energy
        yield run.start_ms, run.end_ms, run.pod, run.energy_mj
        at, energy = _after(run)
        place += 1
    if at <= high_ms and at < lap.end * 1000:
        end = runs[place].start_ms if place < len(runs) else lap.end * 1000
        yield at, end, None, energy


def _after(run: Run) -> tuple[int, float]:
    return run.end_ms, run.energy_mj + run.pod.power_watts * (run.end_ms - run.start_ms)


def _segment(
    metric: str, node: Node, pod: Pod | None, start: int, end: int, energy: float
) -> Segment:
    if metric == ENERGY:
        return Segment(start, end, energy, pod.power_watts if pod else node.idle_watts)
    return Segment(start, end, _value(metric, node, pod))


def _value(metric: str, node: Node, pod: Pod | None) -> float:
    used = pod.memory_mib if pod else 0
    activity = pod.activity if pod else 0.0
    return {
        "DCGM_FI_PROF_GR_ENGINE_ACTIVE": activity,
        "DCGM_FI_DEV_GPU_UTIL": float(round(100 * activity)),
        "DCGM_FI_DEV_FB_USED": float(used),
        "DCGM_FI_DEV_FB_FREE": float(node.visible_mib - used),
        "DCGM_FI_DEV_POWER_USAGE": pod.power_watts if pod else node.idle_watts,
    }[metric]


def _labels(node: Node, device: Device, metric: str) -> dict[str, str]:
    return {
        "__name__": metric,
        "DCGM_FI_DRIVER_VERSION": node.labels["nvidia.com/cuda.driver-version.full"],
        "Hostname": node.name,
        "UUID": device.uuid,
        "cluster": CLUSTER,
        "container": "nvidia-dcgm-exporter",
        "device": f"nvidia{device.index}",
        "endpoint": "gpu-metrics",
        "gpu": str(device.index),
        "instance": f"{node.exporter_ip}:9400",
        "job": "nvidia-dcgm-exporter",
        "modelName": node.model,
        "namespace": "gpu-operator",
        "pci_bus_id": device.pci_bus_id,
        "pod": node.exporter_pod,
        "service": "nvidia-dcgm-exporter",
    }


def _holder(pod: Pod) -> dict[str, str]:
    return {
        "exported_container": _CONTAINER,
        "exported_namespace": pod.namespace,
        "exported_pod": pod.name,
    }
