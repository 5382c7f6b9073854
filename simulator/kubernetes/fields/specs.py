"""Amounts and addresses that the API and kube-state-metrics both show."""

from collections import Counter
from collections.abc import Mapping

from simulator import identity
from simulator.fleet import (
    CORES_OF_NEURON,
    GPU,
    MIG_PREFIX,
    NEURON,
    NEURON_CORE,
    Device,
    Node,
    Pod,
    Sharing,
)

CONTAINER = "main"
IMAGE = "registry.example/ml/train:1.0"

Amount = tuple[float, str, str]
"""Value and unit as kube-state-metrics writes them, and the quantity of the API."""


def pod_requests(pod: Pod) -> Mapping[str, Amount]:
    """Return what a pod requests; its claims are no resource."""
    cores = pod.cpu_cores or 4 * pod.units
    gib = pod.memory_gib or 32 * pod.units
    amounts: dict[str, Amount] = {
        "cpu": (float(cores), "core", str(cores)),
        "memory": (gib * 2.0**30, "byte", f"{gib}Gi"),
    }
    if pod.resource and pod.claim is None:
        amounts[pod.resource] = (float(pod.units), "integer", str(pod.units))
    return amounts


def node_resources(node: Node, unhealthy: tuple[int, ...] = ()) -> Mapping[str, Amount]:
    """Return what a node has, or what of it can be allocated while devices are `unhealthy`."""
    cores = node.cpu_cores or 16 * len(node.devices)
    gib = node.memory_gib or 128 * len(node.devices)
    return {
        "cpu": (float(cores), "core", str(cores)),
        "ephemeral-storage": (3500.0 * 2**30, "byte", "3500Gi"),
        "memory": (gib * 2.0**30, "byte", f"{gib}Gi"),
        **{
            name: (float(count), "integer", str(count))
            for name, count in gpu_amounts(node, unhealthy).items()
        },
        "pods": (110.0, "integer", "110"),
    }


def gpu_amounts(node: Node, unhealthy: tuple[int, ...] = ()) -> Mapping[str, int]:
    """Return the GPU resources of a node; one without an available device is there with 0."""
    amounts: Counter[str] = Counter()
    for device in node.devices:
        for name, count in _offered(node, device).items():
            amounts[name] += 0 if device.index in unhealthy else count
    return amounts


def _offered(node: Node, device: Device) -> Mapping[str, int]:
    if node.sharing is Sharing.DRA:
        return {}
    if node.sharing is Sharing.MIG_SINGLE:
        return {GPU: len(device.instances)}
    if node.sharing is Sharing.MIG_MIXED and device.instances:
        return Counter(MIG_PREFIX + instance.profile for instance in device.instances)
    if node.resource == NEURON:
        # AWS' device plugin offers each device whole, and by its cores at the same time.
        return {NEURON: 1, NEURON_CORE: CORES_OF_NEURON}
    return {node.resource: node.replicas}


def pod_ip(pod: Pod) -> str:
    """Return the address of a pod that is bound."""
    number = identity.below(64_000, "ip", pod.uid)
    return f"10.244.{number // 250}.{number % 250 + 2}"
