"""Fragmentation: GPUs that are free and yet of no use for what is asked for.

The measure is that of Weng et al., "Beware of Fragmentation" (USENIX ATC 2023), with one
difference: of a node, what remains after as many pods as fit is unusable too. See
docs/definitions.md#fragmentation.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

WHOLE = 1000
"""The parts of a GPU: amounts are whole thousandths."""


class GpuRequest(NamedTuple):
    """What a pod requests on one node: `part` thousandths of each of `gpus` different GPUs."""

    gpus: int
    part: int = WHOLE


def usable_parts(free: Sequence[int], request: GpuRequest) -> int:
    """Return the most thousandths that pods of one kind could take together on a node.

    `free` has the free thousandths of each of its GPUs. Each pod needs different GPUs, so a GPU
    serves as many of them as fit into it, but no more than there are pods.
    """
    if request.gpus < 1 or request.part < 1:
        return 0
    fits = [one // request.part for one in free]
    pods = sum(fits) // request.gpus
    # Fewer pods may use fewer of a GPU's fits: lowered until the two agree.
    while pods and (able := sum(min(one, pods) for one in fits) // request.gpus) < pods:
        pods = able
    return pods * request.gpus * request.part


def unusable_parts(
    nodes: Iterable[Sequence[int]], asked: Mapping[GpuRequest, float]
) -> float | None:
    """Return the free thousandths that are of no use, on average over what is asked for.

    `nodes` has the free thousandths of each GPU of each node; `asked` weighs the requests. None
    where nothing is asked for.
    """
    total = sum(asked.values())
    if total <= 0:
        return None
    return sum(
        weight / total * (sum(free) - usable_parts(free, request))
        for free in nodes
        for request, weight in asked.items()
    )


def unusable_gpus(
    nodes_by_free: Iterable[Mapping[int, int]], asked: Mapping[int, float]
) -> list[float] | None:
    """Return the same of whole GPUs at each time: `asked` weighs pods by their GPUs.

    `nodes_by_free` has, for each time, the number of nodes by their free GPUs. None where nothing
    is asked for.
    """
    if sum(asked.values()) <= 0:
        return None
    requests = {GpuRequest(size): weight for size, weight in asked.items()}
    # A node's free GPUs are few numbers: what is of no use of each is found once.
    rest: dict[int, float] = {}
    lost = []
    for nodes in nodes_by_free:
        for free in nodes.keys() - rest.keys():
            rest[free] = (unusable_parts([[WHOLE] * free], requests) or 0.0) / WHOLE
        lost.append(sum(rest[free] * count for free, count in nodes.items()))
    return lost


def fragmentation_index(unusable: float | None, free: float) -> float | None:
    """Return the part of what is free that is of no use, 0..1; None where nothing is free."""
    return unusable / free if unusable is not None and free > 0 else None
