"""Why no node takes a pod, found from the nodes themselves; and what would let one take it."""

import re
from collections.abc import Mapping, Sequence

from msgspec import Struct, field

from apps.clusters.domain.observed.objects import Expression, Placement
from apps.pending.domain.diagnosis import (
    Action,
    BoundPod,
    Cause,
    Diagnosis,
    Sentence,
    Suggestion,
    says,
)
from apps.pending.domain.placement.fits import (
    EPSILON,
    LIFECYCLE_TAINTS,
    GpuUnit,
    Nodes,
    SchedulingConstraints,
    all_needed,
    ask_less,
    bits,
    free,
    free_some,
    gpu_of,
    offered,
    steps_on,
    tolerate,
    uncordon,
    untolerated,
)

NONE_OFFERED = "none offered"
NONE_FREE = "none free"
# The scheduler says `Insufficient` here too: only the sum over nodes tells the difference.
FRAGMENTED = "fragmented"
NOT_READY = "node not ready"
_SLICES = re.compile(r"mig-([0-9])g", re.ASCII)
_MOST_BLOCKERS = 50
_NAMED = 10


class NodeFit(Struct, frozen=True):
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


def fit(nodes: Nodes, constraints: SchedulingConstraints) -> NodeFit:
    """Return which nodes fit a pod in which respect."""
    gpus, tolerations = constraints.gpus, constraints.placement.tolerations
    return NodeFit(
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


def cause_of(found: NodeFit) -> Cause | None:
    """Return why no node takes the pod; None when one has room for it."""
    if found.now:
        return None
    suited = found.selected & found.offering
    # Some node would do if it were empty, or none is large enough: either way room is lacking.
    if found.could or not found.offering:
        return Cause.CAPACITY
    if not suited:
        return Cause.CAPACITY if found.selected else Cause.AFFINITY
    only_cordoned, only_tainted = suited & found.tolerated, suited & found.open
    # Of a cordon and a taint on different nodes, the one in front of free room is the cause.
    if only_cordoned & found.room or not only_tainted & found.room:
        return Cause.CORDON if only_cordoned else Cause.TAINT
    return Cause.TAINT


def almost(found: NodeFit) -> int:
    """Return the nodes that miss one label or expression alone of those asked for."""
    nodes, placement = found.nodes, found.constraints.placement
    expressions = [Expression(k, "In", (v,)) for k, v in placement.node_selector.items()]
    if len(placement.affinity) == 1:
        expressions += placement.affinity[0]
    each = [nodes.matching(expression) for expression in expressions]
    if len(placement.affinity) > 1:
        each.append(nodes.selected(Placement(affinity=placement.affinity)))
    # One pass: a manifest may have thousands of labels.
    missing_none, missing_one = nodes.every if each else 0, 0
    for one in each:
        missing_one = (missing_one & one) | (missing_none & ~one)
        missing_none &= one
    return (missing_one | missing_none) & ~found.selected


def equivalent_nodes(nodes: Nodes, resource: str, placement: Placement) -> int:
    """Return the nodes (bits) on which one unit of `resource` is at least what is requested.

    That is as large a part of a GPU with as much memory, and not shared where it was not. The
    request is measured on the nodes that the pod may choose; where there are none, the pod's own
    labels tell. Two replicas of a shared GPU are no two GPUs.
    """
    kinds, selected = nodes.by_gpu(resource), nodes.selected(placement)
    asked = [one for one, mask in kinds.items() if mask & selected]
    # The selector may name a model that no node has: its labels still tell what is wanted.
    asked = asked or [gpu_of(resource, placement.node_selector)]
    found = selected
    for one, mask in kinds.items():
        if _does(one, asked):
            found |= mask
    return found


def _does(one: GpuUnit, asked: list[GpuUnit]) -> bool:
    enough = not one.memory or one.memory >= min(gpu.memory for gpu in asked)
    whole = not one.shared or any(gpu.shared for gpu in asked)
    return enough and whole and one.weight >= min(gpu.weight for gpu in asked) - EPSILON


class PlacementContext(Struct, frozen=True):
    """What besides the nodes a suggestion may name: who holds what, by node.

    `own` is what the owner of the pod itself holds, by node and resource. It is not among the
    holders: to free it would not help.
    """

    holders: Mapping[str, Sequence[BoundPod]] = field(default_factory=dict)
    own: Mapping[str, Mapping[str, float]] = field(default_factory=dict)

    def blocked_by_own(self, nodes: Nodes, requests: Mapping[str, float]) -> int:
        """Return the nodes that would not have room even if all others let go of them."""
        mask = 0
        for name, held in self.own.items():
            at = nodes.place_of(name)
            if at is not None and any(
                offered(nodes.seen[at], r) - units < requests.get(r, 0.0) - EPSILON
                for r, units in held.items()
            ):
                mask |= 1 << at
        return mask


def diagnose(found: NodeFit, around: PlacementContext) -> Diagnosis | None:
    """Return why no node takes the pod, in words, and how to fix it; None when one has room."""
    cause = cause_of(found)
    if cause is None:
        return None
    detail = _detail(found, cause)
    return Diagnosis(
        cause=cause,
        detail=detail,
        sentences=_sentences(found, cause, detail),
        suggestions=tuple(_suggestions(found, cause, around)),
        blockers=tuple(f"node:{name}" for name in _holding(found, cause)),
    )


def _detail(found: NodeFit, cause: Cause) -> str:
    match cause:
        case Cause.CAPACITY:
            return _short_of(found)
        case Cause.AFFINITY:
            return "affinity" if not found.constraints.placement.node_selector else "selector"
        case Cause.TAINT:
            return NOT_READY if _sick(found) else "untolerated"
    return "cordoned"


def _short_of(found: NodeFit) -> str:
    """Return what capacity lacks: `none offered`, `none free`, `fragmented`, `cpu short` …"""
    if not found.could:
        gpu = found.gpu_offering & (found.selected or found.nodes.every)
        return f"{_short(found, gpu)[0]} short" if gpu else NONE_OFFERED
    if lacking := _short(found, found.could & found.gpu_room):
        return f"{lacking[0]} short"
    gpus = found.constraints.gpus or found.constraints.requests
    if all(found.nodes.free_in_all(found.could, r) >= a - EPSILON for r, a in gpus.items()):
        return FRAGMENTED
    return NONE_FREE


def _short(found: NodeFit, mask: int) -> list[str]:
    """Return what, other than GPU, no node of a mask has enough of (free, else at all)."""
    if not mask:
        return []
    rest = found.constraints.rest
    never = [r for r, a in sorted(rest.items()) if not mask & found.nodes.offering({r: a})]
    now = [r for r, a in sorted(rest.items()) if not mask & found.nodes.room({r: a})]
    return never or now or sorted(rest)[:1]


def _sick(found: NodeFit) -> bool:
    mask = found.selected & found.offering & ~found.tolerated
    tolerations = found.constraints.placement.tolerations
    taints = [t for i in bits(mask) for t in untolerated(found.nodes.seen[i], tolerations)]
    return bool(taints) and all(t.key.startswith(LIFECYCLE_TAINTS) for t in taints)


def _holding(found: NodeFit, cause: Cause) -> list[str]:
    """Return the nodes whose holders are in front: where the pod could be, were they empty."""
    if cause is not Cause.CAPACITY:
        return []
    return found.nodes.names_of(found.could or found.allowed & found.gpu_offering, _MOST_BLOCKERS)


def _sentences(found: NodeFit, cause: Cause, detail: str) -> tuple[Sentence, ...]:
    nodes, constraints = found.nodes, found.constraints
    asked = _requested(constraints)
    asks = says("asks", requests=dict(asked))
    if cause is not Cause.CAPACITY:
        return asks, _excluded(found, cause)
    resource, wanted = asked[0]
    if detail == NONE_OFFERED:
        largest = nodes.most_offered(found.allowed or nodes.every, resource)
        size = offered(nodes.seen[largest], resource) if largest is not None else 0.0
        return asks, says("none_offered", most=size)
    could, name, other = found.could, "too_little_free", resource
    if detail.endswith(" short"):
        other = detail.removesuffix(" short")
        could = found.could & found.gpu_room or found.could or found.gpu_offering
        wanted = constraints.requests.get(other, wanted)
    most = nodes.most_free(could, other)
    return asks, says(
        name if other == resource else "too_little_else",
        nodes=nodes.named(could),
        gpus_only=not found.could,
        resource=other,
        most=max(0.0, free(nodes.seen[most], other)) if most is not None else 0.0,
        wanted=wanted,
        total=nodes.free_in_all(could, other),
        detail=detail,
    )


def _excluded(found: NodeFit, cause: Cause) -> Sentence:
    nodes = found.nodes
    if cause is Cause.AFFINITY:
        big = found.offering & found.tolerated & found.open or found.offering
        return says("no_node_matches", nodes=nodes.named(big))
    state = "cordoned" if cause is Cause.CORDON else "tainted"
    return says("kept_away", nodes=nodes.named(found.selected & found.offering), state=state)


def _requested(constraints: SchedulingConstraints) -> list[tuple[str, float]]:
    gpus = sorted(constraints.gpus.items())
    rest = sorted((r, a) for r, a in constraints.requests.items() if r != "pods")
    return gpus or rest or [("pods", 1.0)]


def _suggestions(found: NodeFit, cause: Cause, around: PlacementContext) -> list[Suggestion]:
    main = _main(found, cause, around)
    rest = [s for s in _alternatives(found) if s.change not in [m.change for m in main]]
    return [*main, *rest]


def _main(found: NodeFit, cause: Cause, around: PlacementContext) -> list[Suggestion]:
    """Return the steps on the one node where least must be done."""
    kept = around.blocked_by_own(found.nodes, found.constraints.requests)
    at = _nearest(found, cause, kept)
    if at is None:
        resource, wanted = _requested(found.constraints)[0]
        change = {"resource": resource, "amount": wanted}
        return [Suggestion(Action.ADD_NODE, change, says("add_node", own=bool(kept)))]
    steps = steps_on(found.nodes, at, found.constraints, around.holders)
    # Freed GPUs help on any such node, while a taint or label belongs to one node.
    if len(steps) == 1 and steps[0].action is Action.FREE:
        return [_anywhere(found, at, steps[0], around, kept)]
    return list(all_needed(steps))


def _anywhere(
    found: NodeFit, at: int, step: Suggestion, around: PlacementContext, kept: int
) -> Suggestion:
    """Name all nodes on which freeing the same amount is enough, the nearest first."""
    resource, short = step.change["resource"], step.change["amount"]
    wanted = found.constraints.requests[resource]
    others = {r: a for r, a in found.constraints.requests.items() if r != resource}
    like = found.could & found.nodes.room({**others, resource: wanted - short}) & ~(1 << at | kept)
    names = [found.nodes.names[at], *found.nodes.names_of(like, _NAMED - 1)]
    if len(names) == 1:
        return step
    return free_some(resource, short, names, around.holders.get(names[0], ()))


def _nearest(found: NodeFit, cause: Cause, kept: int) -> int | None:
    """Return the node where least must be done, None where none offers what is asked for."""
    resource = _requested(found.constraints)[0][0]
    rest = found.nodes.room(found.constraints.rest)
    with_gpus = found.could & found.gpu_room & ~kept
    if lacking := _short(found, with_gpus):
        return found.nodes.most_free(with_gpus, lacking[0])
    for mask in _candidates(found, cause):
        for nearer in (mask & found.room, mask & rest, mask):
            at = found.nodes.most_free(nearer & ~kept, resource)
            if at is not None:
                return at
    return None


def _candidates(found: NodeFit, cause: Cause) -> list[int]:
    suited = found.selected & found.offering
    unselected = found.offering & ~found.selected
    resource = _requested(found.constraints)[0][0]
    some = found.nodes.offering({resource: EPSILON * 2})
    by_cause = {
        Cause.CORDON: [suited & found.tolerated],
        Cause.TAINT: [suited & found.open],
        Cause.AFFINITY: [
            almost(found) & found.tolerated & found.open & found.offering & found.room
        ],
    }
    # From the nodes that lack least to those that lack most: the first that has any wins.
    masks = [
        found.could,
        *by_cause.get(cause, []),
        suited,
        *([found.allowed & found.gpu_offering] if found.selected else []),
        unselected & found.tolerated & found.open & found.room,
        found.allowed & some,
        unselected & found.tolerated & found.open,
        found.offering,
        found.gpu_offering,
        found.selected & some,
    ]
    good = found.selected | _equivalent_nodes(found)
    return [mask & good for mask in masks]


def _equivalent_nodes(found: NodeFit) -> int:
    """Return the nodes that a pod may be told to choose instead of those it requests."""
    nodes = found.nodes.every
    for resource in found.constraints.gpus:
        nodes &= equivalent_nodes(found.nodes, resource, found.constraints.placement)
    return nodes


def _alternatives(found: NodeFit) -> list[Suggestion]:
    """Return other single steps after which some node has room now."""
    nodes, suited = found.nodes, found.selected & found.room
    steps: list[Suggestion] = []
    steps += _less(found)
    steps += _instead(found)
    if tainted := suited & found.open & ~found.tolerated:
        steps += _bear_one(found, tainted)
    if cordoned := suited & found.tolerated & ~found.open:
        steps.append(uncordon(nodes.names_of(cordoned, _NAMED)))
    elsewhere = found.room & found.tolerated & found.open & _equivalent_nodes(found)
    elsewhere &= ~found.selected
    at = nodes.most_free(elsewhere, _requested(found.constraints)[0][0])
    if at is not None and not found.now:
        steps += steps_on(nodes, at, found.constraints, {})
    return steps


def _bear_one(found: NodeFit, tainted: int) -> list[Suggestion]:
    """Suggest the taint whose toleration opens most nodes, of nodes with no other taint."""
    tolerations = found.constraints.placement.tolerations
    by_taint: dict[tuple[str, str, str], list[int]] = {}
    for i in bits(tainted):
        taints = untolerated(found.nodes.seen[i], tolerations)
        if len(taints) == 1:
            one = taints[0]
            by_taint.setdefault((one.key, one.value, one.effect), []).append(i)
    if not by_taint:
        return []
    _, where = max(by_taint.items(), key=lambda item: (len(item[1]), item[0]))
    taint = untolerated(found.nodes.seen[where[0]], tolerations)[0]
    return [tolerate(taint, [found.nodes.names[i] for i in where[:_NAMED]])]


def _less(found: NodeFit) -> list[Suggestion]:
    """Suggest as many of the same GPUs as one node has free, when that is at least one."""
    gpus = found.constraints.gpus
    if len(gpus) != 1:
        return []
    ((resource, wanted),) = gpus.items()
    place = found.allowed & found.nodes.room(found.constraints.rest)
    at = found.nodes.most_free(place, resource)
    there = float(int(free(found.nodes.seen[at], resource) + EPSILON)) if at is not None else 0.0
    if at is None or not 1 <= there < wanted:
        return []
    return [ask_less(resource, wanted, there, found.nodes.names[at], now=True)]


def _instead(found: NodeFit) -> list[Suggestion]:
    """Suggest one unit of another GPU resource that is free where the pod may go."""
    gpus = found.constraints.gpus
    # Two MIG devices or replicas are no two GPUs: work for several cannot be moved to them.
    if len(gpus) != 1 or next(iter(gpus.values())) != 1:
        return []
    (resource,) = gpus
    place = found.allowed & found.nodes.room(found.constraints.rest)
    options = []
    for other in found.nodes.gpu_resources:
        if other == resource:
            continue
        at = found.nodes.most_free(place, other)
        there = int(free(found.nodes.seen[at], other) + EPSILON) if at is not None else 0
        if there >= 1 and at is not None:
            options.append((there, other, found.nodes.names[at]))
    if not options:
        return []
    size = _size(resource)
    # The smallest that is no smaller than what was asked for, else the largest there is.
    there, other, name = min(
        options, key=lambda o: (_size(o[1]) < size, abs(_size(o[1]) - size), -o[0], o[1])
    )
    change = {"resource": resource, "from": 1.0, "to": 1.0, "instead": other}
    return [Suggestion(Action.REQUEST, change, says("request_instead", free=there, node=name))]


def _size(resource: str) -> int:
    """Return about how many slices of a GPU one unit of a resource is: 8 a GPU, 0 a share."""
    if found := _SLICES.search(resource):
        return int(found[1])
    return 0 if "shared" in resource else 8
