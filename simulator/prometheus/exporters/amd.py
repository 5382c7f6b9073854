"""What AMD's device-metrics-exporter shows of the GPUs of a scenario.

Prometheus keeps its target's `namespace` and `pod` and renames those of the workload. Activity is
in per cent, memory in MB, the energy counter in microjoules.
"""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from simulator.epochs import DeviceRun, Epoch, tenants_activity
from simulator.fleet import AMD_GPU, Device, Node, Pod
from simulator.prometheus.exporters.device_values import Metric, intervals
from simulator.prometheus.series import Segment, Series
from simulator.scenarios.base import Scenario

ACTIVITY = "gpu_gfx_activity"
MEMORY_USED = "gpu_used_vram"
MEMORY_TOTAL = "gpu_total_vram"
POWER = "gpu_package_power"
ENERGY = "gpu_energy_consumed"
HEALTH = "gpu_health"
METRICS: Mapping[str, Metric] = {
    ACTIVITY: Metric("gauge", "Graphics engine activity percentage (0-100)"),
    MEMORY_USED: Metric("gauge", "Used VRAM memory of the GPU (in MB)"),
    MEMORY_TOTAL: Metric("gauge", "Total VRAM memory of the GPU (in MB)"),
    POWER: Metric("gauge", "Current package power (in W)"),
    ENERGY: Metric("counter", "Accumulated energy consumed by the GPU (in uJ)"),
    HEALTH: Metric("gauge", "Health of the GPU (0 = unhealthy, 1 = healthy)"),
}
_MB_PER_MIB = 1.048576
_MICROJOULES_PER_MJ = 1000.0


class _Value(NamedTuple):
    value: float
    slope: float = 0.0


def exported(scenario: Scenario) -> Mapping[str, Metric]:
    """Return the metrics that the exporters of a scenario's AMD GPUs have."""
    return METRICS if any(node.resource == AMD_GPU for node in scenario.nodes) else {}


def amd_series(scenario: Scenario, metric: str, low_ms: int, high_ms: int) -> Iterator[Series]:
    """Yield a metric's series with all their segments that touch low..high."""
    epochs = list(scenario.epochs(low_ms // 1000, high_ms // 1000))
    for node in scenario.nodes:
        if node.resource != AMD_GPU:
            continue
        for device in node.devices:
            yield from _series(scenario, epochs, node, device, metric, (low_ms, high_ms))


def _series(
    scenario: Scenario,
    epochs: list[Epoch],
    node: Node,
    device: Device,
    metric: str,
    span_ms: tuple[int, int],
) -> Iterator[Series]:
    low_ms, high_ms = span_ms
    found: dict[tuple[str, ...], Series] = {}
    labels = _labels(scenario, node, device, metric)
    for epoch in epochs:
        for start, end, run, energy in intervals(epoch, node, device, -1, low_ms):
            if start > high_ms or end < low_ms:
                continue
            holder = _holder(run.pods[0] if run else None)
            # Pods of one name that follow each other are one series: uids are not shown.
            series = found.setdefault(
                tuple(holder.values()),
                Series({**labels, **holder}, node.scrape_phase_ms, []),
            )
            value = _value(metric, node, run, energy)
            series.segments.append(Segment(start, end, *value))
    yield from found.values()


def _value(metric: str, node: Node, run: DeviceRun | None, energy_mj: float) -> _Value:
    watts = run.watts if run else node.idle_watts
    if metric == ENERGY:
        return _Value(energy_mj * _MICROJOULES_PER_MJ, watts * _MICROJOULES_PER_MJ)
    used = sum(pod.memory_mib for pod in run.pods) if run else 0
    activity = tenants_activity(run.pods) if run else 0.0
    return _Value(
        {
            ACTIVITY: float(round(100 * activity)),
            MEMORY_USED: float(round(used * _MB_PER_MIB)),
            MEMORY_TOTAL: float(round(node.visible_mib * _MB_PER_MIB)),
            POWER: float(round(watts)),
            HEALTH: 1.0,
        }[metric]
    )


def _labels(scenario: Scenario, node: Node, device: Device, metric: str) -> dict[str, str]:
    exporter = node.exporters[0]
    return {
        "__name__": metric,
        "card_model": "MI300X",
        "card_series": node.model,
        "cluster": scenario.cluster,
        "container": "metrics-exporter-container",
        "gpu_compute_partition_type": "spx",
        "gpu_id": str(device.index),
        "gpu_memory_partition_type": "nps1",
        "gpu_partition_id": "0",
        "gpu_uuid": device.uuid.removeprefix("GPU-"),
        "hostname": node.name,
        "instance": f"{node.exporter_ip}:5000",
        "job": exporter.job,
        "namespace": exporter.namespace,
        "pod": node.exporter_pod,
    }


def _holder(pod: Pod | None) -> Mapping[str, str]:
    if pod is None:
        return {}
    return {
        "exported_container": "main",
        "exported_namespace": pod.namespace,
        "exported_pod": pod.name,
    }
