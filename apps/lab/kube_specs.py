"""Amounts and addresses that the API and kube-state-metrics both show."""

from collections.abc import Mapping

from apps.lab import identity
from apps.lab.fleet import GPU, Node, Pod

CONTAINER = "main"
IMAGE = "registry.example/ml/train:1.0"

Amount = tuple[float, str, str]
"""Value and unit as kube-state-metrics writes them, and the quantity of the API."""


def pod_requests(units: int) -> Mapping[str, Amount]:
    """Return what a pod with `units` GPUs asks for."""
    return {
        "cpu": (4.0 * units, "core", str(4 * units)),
        "memory": (units * 32.0 * 2**30, "byte", f"{32 * units}Gi"),
        GPU: (float(units), "integer", str(units)),
    }


def node_resources(node: Node) -> Mapping[str, Amount]:
    """Return a node's capacity, all of it allocatable."""
    cards = len(node.devices)
    return {
        "cpu": (16.0 * cards, "core", str(16 * cards)),
        "ephemeral-storage": (3500.0 * 2**30, "byte", "3500Gi"),
        "memory": (cards * 128.0 * 2**30, "byte", f"{128 * cards}Gi"),
        GPU: (float(cards), "integer", str(cards)),
        "pods": (110.0, "integer", "110"),
    }


def pod_ip(pod: Pod) -> str:
    """Return the address of a pod that is bound."""
    number = identity.below(64_000, "ip", pod.uid)
    return f"10.244.{number // 250}.{number % 250 + 2}"
