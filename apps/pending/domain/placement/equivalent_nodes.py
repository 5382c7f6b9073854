"""Which nodes have GPUs that do for a pod what those would that it asks for."""

from apps.clusters.domain.observed.objects import Placement
from apps.pending.domain.placement.fits import EPSILON, Gpu, Nodes, gpu_of


def equivalent_nodes(nodes: Nodes, resource: str, placement: Placement) -> int:
    """Return the nodes (bits) of which one unit of `resource` is no less than what is asked for.

    That is as large a part of a card with as much memory, and not shared where it was not. What
    is asked for is seen on the nodes that the pod may choose; where there are none, the pod's
    own labels tell. Two replicas of a shared card are no two GPUs.
    """
    kinds, selected = nodes.by_gpu(resource), nodes.selected(placement)
    asked = [one for one, mask in kinds.items() if mask & selected]
    asked = asked or [gpu_of(resource, placement.node_selector)]
    found = selected
    for one, mask in kinds.items():
        if _does(one, asked):
            found |= mask
    return found


def _does(one: Gpu, asked: list[Gpu]) -> bool:
    enough = not one.memory or one.memory >= min(gpu.memory for gpu in asked)
    whole = not one.shared or any(gpu.shared for gpu in asked)
    return enough and whole and one.weight >= min(gpu.weight for gpu in asked) - EPSILON
