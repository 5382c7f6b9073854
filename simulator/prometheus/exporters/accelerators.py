"""What exporters of accelerators other than GPUs show: Intel's of Gaudi, and AWS' Neuron Monitor.

Gaudi's names the pod that has a device, by labels that clash with none of a target. Neuron Monitor
shows cores while a process has them in use, numbered over the node, and names no pod.
"""

from collections.abc import Iterator, Mapping

from simulator import identity
from simulator.epochs import DeviceRun, Epoch, tenants_activity
from simulator.fleet import CORES_OF_NEURON, GAUDI, NEURON, Device, Node
from simulator.prometheus.exporters.device_values import Metric, intervals
from simulator.prometheus.series import Segment, Series
from simulator.scenarios.base import Scenario

UTILIZATION = "habanalabs_utilization"
MEMORY = "habanalabs_memory_used_bytes"
ENERGY = "habanalabs_energy"
CORE = "neuroncore_utilization_ratio"
HARDWARE = "neuron_hardware_info"
_OF_GAUDI: Mapping[str, Metric] = {
    UTILIZATION: Metric("gauge", "Utilization of the device"),
    MEMORY: Metric("gauge", "Current used bytes of memory"),
    ENERGY: Metric("gauge", "Device Energy Usage"),
}
_OF_NEURON: Mapping[str, Metric] = {
    CORE: Metric("gauge", "NeuronCore utilization ratio"),
    HARDWARE: Metric("gauge", "Neuron Hardware Information"),
}
METRICS: Mapping[str, Metric] = {**_OF_GAUDI, **_OF_NEURON}
_RESOURCE = {**dict.fromkeys(_OF_GAUDI, GAUDI), **dict.fromkeys(_OF_NEURON, NEURON)}
_BYTES_PER_MIB = 2**20


def exported(scenario: Scenario) -> Mapping[str, Metric]:
    """Return the metrics that the exporters of a scenario's accelerators have."""
    resources = {node.resource for node in scenario.nodes}
    return {name: metric for name, metric in METRICS.items() if _RESOURCE[name] in resources}


def accelerator_series(
    scenario: Scenario, metric: str, low_ms: int, high_ms: int
) -> Iterator[Series]:
    """Yield a metric's series with all their segments that touch low..high."""
    epochs = list(scenario.epochs(low_ms // 1000, high_ms // 1000))
    for node in scenario.nodes:
        if node.resource != _RESOURCE[metric]:
            continue
        if metric == HARDWARE:
            yield _hardware(scenario, node, epochs)
            continue
        of = _cores if metric == CORE else _gaudi
        for device in node.devices:
            found: dict[tuple[str, ...], Series] = {}
            for epoch in epochs:
                for start, end, run, energy in intervals(epoch, node, device, -1, low_ms):
                    if start > high_ms or end < low_ms:
                        continue
                    for labels, segment in of(node, device, metric, (start, end, run, energy)):
                        named = {**_target(scenario, node, metric), **labels}
                        series = Series(named, node.scrape_phase_ms, [])
                        found.setdefault(tuple(labels.values()), series).segments.append(segment)
            yield from found.values()


_Interval = tuple[int, int, DeviceRun | None, float]
_Shown = Iterator[tuple[dict[str, str], Segment]]


def _gaudi(node: Node, device: Device, metric: str, interval: _Interval) -> _Shown:
    start, end, run, energy = interval
    pod = run.pods[0] if run else None
    labels = {
        "Serial": f"AM{device.uuid[-8:]}",
        "UUID": device.uuid,
        "device": f"AM{device.uuid[-8:]}",
        "id": str(device.index),
        "pod_name": pod.name if pod else "",
        "pod_namespace": pod.namespace if pod else "",
    }
    if metric == ENERGY:
        yield labels, Segment(start, end, energy, run.watts if run else node.idle_watts)
    elif metric == MEMORY:
        used = sum(one.memory_mib for one in run.pods) if run else 0
        yield labels, Segment(start, end, float(used * _BYTES_PER_MIB))
    else:
        active = tenants_activity(run.pods) if run else 0.0
        yield labels, Segment(start, end, float(round(100 * active)))


def _cores(node: Node, device: Device, metric: str, interval: _Interval) -> _Shown:
    """Yield the cores that a process has in use: the first works before the second does."""
    del node, metric
    start, end, run, _ = interval
    for core in range(CORES_OF_NEURON if run else 0):
        work = CORES_OF_NEURON * tenants_activity(run.pods) - core if run else 0.0
        # A process takes no more cores than it has work for.
        if run and (work > 0 or not core):
            labels = {
                "neuroncore": str(device.index * CORES_OF_NEURON + core),
                "runtime_tag": str(identity.below(60_000, run.pods[0].uid, "pid") + 300),
            }
            yield labels, Segment(start, end, round(min(1.0, max(0.0, work)), 6))


def _hardware(scenario: Scenario, node: Node, epochs: list[Epoch]) -> Series:
    labels = {
        **_target(scenario, node, HARDWARE),
        "neuron_device_count": str(len(node.devices)),
        "neuroncore_per_device_count": str(CORES_OF_NEURON),
    }
    segments = [Segment(epoch.start * 1000, epoch.end * 1000, 1.0) for epoch in epochs]
    return Series(labels, node.scrape_phase_ms, segments)


def _target(scenario: Scenario, node: Node, metric: str) -> dict[str, str]:
    is_gaudi = metric in _OF_GAUDI
    job = "gaudi-metric-exporter" if is_gaudi else "neuron-monitor"
    labels = {
        "__name__": metric,
        "cluster": scenario.cluster,
        "instance": f"{node.exporter_ip}:{41611 if is_gaudi else 8000}",
        "job": job,
        "namespace": "monitoring",
        "node": node.name,
        "pod": node.exporter_pod,
    }
    if not is_gaudi:
        labels |= {"instance_id": f"i-{node.devices[0].uuid[-12:]}", "instance_type": "inf2"}
    return labels
