"""Which nodes fit a pod in which respect, and what keeps it from the others."""

from dataclasses import dataclass

from apps.clusters.domain.observed.objects import Expression, Placement
from apps.pending.domain.causes import Cause
from apps.pending.domain.placement.fits import EPSILON, Gpu, Nodes, gpu_of
from apps.pending.domain.placement.fixes import SchedulingConstraints


@dataclass(frozen=True, slots=True)
class Fit:
    """Sets of nodes as to one pod (bits, see `Nodes`).

    `selected`, `tolerated` and `open` each by one condition alone; `offering` are large enough
    when empty, `room` have it free now; `gpu_offering` and `gpu_room` as to GPUs alone.
    """

    nodes: Nodes
    constraints: SchedulingConstraints
    selected: int
    tolerated: int
    open: int
    offering: int
    room: int
    gpu_offering: int
    gpu_room: int

    @property
    def allowed(self) -> int:
        """Nodes that the pod may go to, large enough or not."""
        return self.selected & self.tolerated & self.open

    @property
    def could(self) -> int:
        """Nodes that could hold it at all."""
        return self.allowed & self.offering

    @property
    def now(self) -> int:
        """Nodes that have room for it now."""
        return self.could & self.room


def fit(nodes: Nodes, constraints: SchedulingConstraints) -> Fit:
    """Return which nodes fit a pod in which respect."""
    gpus, tolerations = constraints.gpus, constraints.placement.tolerations
    return Fit(
        nodes=nodes,
        constraints=constraints,
        selected=nodes.selected(constraints.placement),
        tolerated=nodes.tolerated(tolerations),
        open=nodes.uncordoned(tolerations),
        offering=nodes.offering(constraints.requests),
        room=nodes.room(constraints.requests),
        gpu_offering=nodes.offering(gpus),
        gpu_room=nodes.room(gpus),
    )


def cause_of(found: Fit) -> Cause | None:
    """Return why no node takes the pod; None when one has room for it."""
    if found.now:
        return None
    suited = found.selected & found.offering
    if found.could or not found.offering:
        return Cause.CAPACITY
    if not suited:
        return Cause.CAPACITY if found.selected else Cause.AFFINITY
    only_cordoned, only_tainted = suited & found.tolerated, suited & found.open
    if only_cordoned & found.room or not only_tainted & found.room:
        return Cause.CORDON if only_cordoned else Cause.TAINT
    return Cause.TAINT


def almost(found: Fit) -> int:
    """Return the nodes that miss one label or expression alone of those asked for."""
    nodes, placement = found.nodes, found.constraints.placement
    expressions = [Expression(k, "In", (v,)) for k, v in placement.node_selector.items()]
    if len(placement.affinity) == 1:
        expressions += placement.affinity[0]
    each = [nodes.matching(expression) for expression in expressions]
    if len(placement.affinity) > 1:
        each.append(nodes.selected(Placement(affinity=placement.affinity)))
    mask = 0
    for left_out in range(len(each)):
        others = nodes.every
        for i, one in enumerate(each):
            others &= one if i != left_out else nodes.every
        mask |= others
    return mask & ~found.selected


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
