"""What is true in a scenario, whatever its exporters show of it: who held what, who did what.

Tests compute from it what a ledger must say. A GPU's activity is the sum of what its tenants do,
at most 1; of a MIG instance it is relative to the instance.
"""

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from apps.clusters.domain.devices.mig import mig_part
from simulator.epochs import Epoch, tenants_activity
from simulator.fleet import FOREVER, Device, Node, Pod, Sharing
from simulator.scenarios.base import Scenario


class Holding(NamedTuple):
    """A pod on one device or instance (`instance` -1: the GPU), bound from `start` to `end`.

    `gpus` are GPU-equivalents. Of a claim that several pods use each holds an equal part.
    """

    pod: Pod
    node: Node
    device: Device
    instance: int
    units: float
    gpus: float
    start: int
    end: int

    @property
    def gpu_hours(self) -> float:
        return self.gpus * (self.end - self.start) / 3600.0


class Doing(NamedTuple):
    """What a device or instance did from `start` to `end`: its activity, and by whom.

    `parts` add up to `activity`; a pod that is none of the API's stands under an empty uid.
    """

    node: Node
    device: Device
    instance: int
    start: int
    end: int
    activity: float
    parts: Mapping[str, float]


def holdings(scenario: Scenario, start: int, end: int) -> Iterator[Holding]:
    """Yield what pods held in start..end, cut at both ends."""
    nodes = {node.name: node for node in scenario.nodes}
    for epoch in scenario.epochs(start, end):
        for pod in epoch.pods:
            begun, ended = max(pod.bound, start), min(pod.released, end)
            if pod.bound < FOREVER and ended > begun:
                yield from _held(epoch, pod, nodes[pod.node], begun, ended)


def doings(scenario: Scenario, start: int, end: int) -> Iterator[Doing]:
    """Yield what every device and instance did in start..end while anything ran on it."""
    for epoch in scenario.epochs(start, end):
        for node in scenario.nodes:
            for device in node.devices:
                for instance in range(len(device.instances)) if device.instances else (-1,):
                    yield from _done(epoch, node, device, instance, start, end)


def gpu_hours_by_model(scenario: Scenario, start: int, end: int) -> Mapping[str, float]:
    """Return the GPU-hours that pods held, by GPU model."""
    found: dict[str, list[float]] = defaultdict(list)
    for holding in holdings(scenario, start, end):
        found[holding.node.model].append(holding.gpu_hours)
    return {model: math.fsum(hours) for model, hours in found.items()}


def unit_weight(node: Node, device: Device, instance: int) -> float:
    """Return the GPU-equivalents of one unit: a GPU, an instance of it, or a replica."""
    if instance >= 0:
        return mig_part(device.instances[instance].profile, node.model)
    shared = node.sharing in {Sharing.TIME_SLICED, Sharing.MPS}
    return 1.0 / node.replicas if shared else 1.0


def _held(epoch: Epoch, pod: Pod, node: Node, start: int, end: int) -> Iterator[Holding]:
    sharers = len(epoch.claimants[pod.claim.uid]) if pod.claim else 1
    units = pod.units / len(pod.devices) / sharers
    instances = pod.instances or (-1,) * len(pod.devices)
    for index, instance in zip(pod.devices, instances, strict=True):
        device = node.devices[index]
        gpus = units * unit_weight(node, device, instance)
        yield Holding(pod, node, device, instance, units, gpus, start, end)


def _done(
    epoch: Epoch, node: Node, device: Device, instance: int, start: int, end: int
) -> Iterator[Doing]:
    runs, place = epoch.runs_from(node, device.index, instance, start * 1000)
    for run in runs[place:]:
        if run.start_ms >= end * 1000:
            return
        activity = tenants_activity(run.pods)
        together = math.fsum(pod.activity for pod in run.pods) or 1.0
        parts: dict[str, float] = defaultdict(float)
        for pod in run.pods:
            parts[pod.uid if pod.namespace else ""] += activity * pod.activity / together
        yield Doing(
            node,
            device,
            instance,
            max(start, run.start_ms // 1000),
            min(end, run.end_ms // 1000),
            activity,
            parts,
        )
