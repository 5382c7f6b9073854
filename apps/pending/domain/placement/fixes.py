"""What it would take for a pod to start on one given node: the steps, exact and together enough."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from msgspec.structs import replace

from apps.clusters.domain.observed.objects import Expression, Placement, Taint
from apps.pending.domain.diagnosis import Action, BoundPod, Relation, Suggestion, says
from apps.pending.domain.placement.fits import (
    CORDON,
    EPSILON,
    LIFECYCLE_TAINTS,
    Nodes,
    bears,
    free,
    offered,
    untolerated,
)


@dataclass(frozen=True, slots=True)
class SchedulingConstraints:
    """A pod's requests and placement; `requests` with the places that it takes (`pods`: 1).

    `gpus` are the GPU resources and device classes of it, `rest` is CPU, memory and what else.
    """

    requests: Mapping[str, float]
    placement: Placement
    gpus: Mapping[str, float]
    rest: Mapping[str, float]


def constraints_of(
    requests: Mapping[str, float], placement: Placement, is_gpu: Callable[[str], bool]
) -> SchedulingConstraints:
    """Return the constraints of a pod with these requests and this placement."""
    gpus = {r: units for r, units in requests.items() if is_gpu(r)}
    rest = {r: units for r, units in requests.items() if r not in gpus} | {"pods": 1.0}
    return SchedulingConstraints({**gpus, **rest}, placement, gpus, rest)


def all_needed(steps: Sequence[Suggestion]) -> tuple[Suggestion, ...]:
    """Mark every step after the first as needed with it."""
    return (*steps[:1], *(replace(step, relation=Relation.ALSO) for step in steps[1:]))


def steps_on(
    nodes: Nodes,
    at: int,
    constraints: SchedulingConstraints,
    holders: Mapping[str, Sequence[BoundPod]],
) -> list[Suggestion]:
    """Return what must be done for the pod to start on node `at`; empty when nothing must."""

    def gpu_first(item: tuple[str, float]) -> tuple[bool, str]:
        return (item[0] not in constraints.gpus, item[0])

    room = [
        step
        for resource, wanted in sorted(constraints.requests.items(), key=gpu_first)
        for step in _make_room(nodes, at, resource, wanted, holders)
    ]
    return [
        *_select(nodes, at, constraints.placement),
        *_tolerate(nodes, at, constraints.placement),
        *_uncordon(nodes, at, constraints.placement),
        # What can never be met comes before what is only held by others now.
        *sorted(room, key=lambda step: step.action is Action.FREE),
    ]


def free_some(
    resource: str, wanted: float, names: list[str], holders: Sequence[BoundPod] = ()
) -> Suggestion:
    """Suggest to free an amount on any one of these nodes.

    Who holds it is in `change` alone: who reads the text may not be let to see others' pods.
    """
    change: dict[str, Any] = {"resource": resource, "amount": wanted, "nodes": names}
    named = _enough_holders(holders, resource, wanted)
    if named:
        change["holders"] = named
    return Suggestion(Action.FREE, change)


def tolerate(taint: Taint, names: list[str]) -> Suggestion:
    """Suggest to tolerate a taint; one that tells of a sick node is no matter of tolerations."""
    # A pod that tolerates a sick node would be placed on it and then fail.
    if taint.key.startswith(LIFECYCLE_TAINTS):
        reason = taint.key.rpartition("/")[2]
        return Suggestion(Action.CHECK_NODE, {"nodes": names, "reason": reason})
    change = {"key": taint.key, "value": taint.value, "effect": taint.effect, "nodes": names}
    return Suggestion(Action.TOLERATE, change)


def uncordon(names: list[str]) -> Suggestion:
    """Suggest to let pods onto a node again."""
    return Suggestion(Action.UNCORDON, {"nodes": names})


def ask_less(
    resource: str, wanted: float, at_most: float, node: str, *, now: bool = False
) -> Suggestion:
    """Suggest a smaller request of the same resource: as much as a node has, or has free `now`."""
    change = {"resource": resource, "from": wanted, "to": at_most}
    return Suggestion(Action.REQUEST, change, says("request", node=node, now=now))


def unmet(nodes: Nodes, at: int, placement: Placement) -> tuple[dict[str, str], list[Expression]]:
    """Return the labels of the selector, and expressions of the nearest term, that a node lacks."""
    labels = nodes.seen[at].labels
    items = {k: v for k, v in placement.node_selector.items() if labels.get(k) != v}
    terms = [
        [one for one in term if not nodes.matching(one) >> at & 1]
        for term in placement.affinity
        if term
    ]
    return items, min(terms, key=len, default=[])


def as_text(expression: Expression) -> str:
    """Return an expression as one reads it aloud: `nvidia.com/gpu.memory Gt 100000`."""
    return " ".join(
        [
            expression.key,
            expression.operator,
            *([", ".join(expression.values)] if expression.values else []),
        ]
    )


def _select(nodes: Nodes, at: int, placement: Placement) -> list[Suggestion]:
    items, expressions = unmet(nodes, at, placement)
    if not items and not expressions:
        return []
    labels = nodes.seen[at].labels
    remove: dict[str, str] | list[str]
    remove = (
        items
        if not expressions
        else [*(f"{k}={v}" for k, v in items.items()), *map(as_text, expressions)]
    )
    change: dict[str, Any] = {"remove": remove, "nodes": [nodes.names[at]]}
    keys = [*items, *(one.key for one in expressions if not one.field)]
    add = {key: labels[key] for key in dict.fromkeys(keys) if key in labels}
    if add:
        change["add"] = add
    return [Suggestion(Action.SELECT, change)]


def _tolerate(nodes: Nodes, at: int, placement: Placement) -> list[Suggestion]:
    taints = untolerated(nodes.seen[at], placement.tolerations)
    return [tolerate(taint, [nodes.names[at]]) for taint in taints]


def _uncordon(nodes: Nodes, at: int, placement: Placement) -> list[Suggestion]:
    cordoned = nodes.seen[at].unschedulable
    if not cordoned or any(bears(one, CORDON) for one in placement.tolerations):
        return []
    return [uncordon([nodes.names[at]])]


def _make_room(
    nodes: Nodes, at: int, resource: str, wanted: float, holders: Mapping[str, Sequence[BoundPod]]
) -> list[Suggestion]:
    """Return how one resource comes to be enough on a node: ask for less, free some, or both.

    Where less must be asked for anyway, it is what is free there, if anything is.
    """
    node, name, asked = nodes.seen[at], nodes.names[at], wanted
    steps = []
    size = offered(node, resource)
    if size < wanted - EPSILON:
        if size <= 0:
            change = {"resource": resource, "amount": wanted}
            return [Suggestion(Action.ADD_NODE, change, says("add_offering", node=name))]
        there = free(node, resource)
        # Extended resources are whole; CPU and memory are not.
        there = float(int(there + EPSILON)) if "/" in resource else there
        wanted = there if there > EPSILON else size
        steps.append(ask_less(resource, asked, wanted, name))
    short = wanted - max(0.0, free(node, resource))
    if short > EPSILON:
        steps.append(free_some(resource, short, [name], holders.get(name, ())))
    return steps


def _enough_holders(holders: Sequence[BoundPod], resource: str, wanted: float) -> list[str]:
    """Return pods that together hold enough: those that do not run first, else the fewest."""
    having = [h for h in holders if h.requests.get(resource, 0.0) > 0]
    # One pod that is enough disturbs less than several.
    one = [h for h in having if h.requests[resource] >= wanted - EPSILON]
    if one:
        best = min(one, key=lambda h: (h.running, h.requests[resource], h.namespace, h.name))
        return [f"{best.namespace}/{best.name}"]
    named, got = [], 0.0
    for holder in sorted(having, key=lambda h: (h.running, -h.requests[resource], h.uid)):
        if got >= wanted - EPSILON:
            break
        named.append(f"{holder.namespace}/{holder.name}")
        got += holder.requests[resource]
    return named if got >= wanted - EPSILON else []
