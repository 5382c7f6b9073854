"""Which nodes could hold a pod, and what keeps others from it: selector, taints, resources.

Sets of nodes are bits of one number (bit i is node i), and every wish (a label, an expression, an
amount) is looked up once for all nodes: thousands of pods share them.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from apps.clusters.domain.observed.objects import (
    Expression,
    NodeSnapshot,
    ObservedObject,
    Placement,
    Taint,
    Toleration,
)
from apps.clusters.domain.resources import GPU, PARTS_OF_GPU
from apps.clusters.domain.tiers import PRODUCT_LABEL, is_shared, unit_weight
from apps.pending.domain.diagnosis import Action, BoundPod, Relation, Suggestion, says

EPSILON = 1e-9
_MEMORY_LABEL = "nvidia.com/gpu.memory"
_SHARED_PRODUCT = "-SHARED"
CORDON_TAINT = "node.kubernetes.io/unschedulable"
_SICK_TAINTS = ("node.kubernetes.io/", "node.cloudprovider.kubernetes.io/")
_LEAVING_TAINTS = (
    *("ToBeDeletedByClusterAutoscaler", "DeletionCandidateOfClusterAutoscaler"),
    *("karpenter.sh/", "aws-node-termination-handler/"),
    *("cloud.google.com/impending-node-termination", "node.cilium.io/"),
)
LIFECYCLE_TAINTS = (*_SICK_TAINTS, *_LEAVING_TAINTS)
"""Beginnings of taints that tell of a node that is sick, not up yet or about to go."""
# PreferNoSchedule is a wish that the scheduler may ignore.
_BLOCKING = ("NoSchedule", "NoExecute")
_UNSAID = frozenset({"cpu", "memory", "pods", "ephemeral-storage"})
CORDON = Taint(CORDON_TAINT, "", "NoSchedule")
_NOT_READY = Taint("node.kubernetes.io/not-ready", "", "NoSchedule")
_HOST_NAME = "metadata.name"

Requests = Mapping[str, float]


class AmountIndex:
    """Nodes ordered by an amount, so that those with at least so much are one look-up."""

    def __init__(self, amounts: Sequence[float]) -> None:
        self.amounts = amounts
        self._values: list[float] = []
        self._masks: list[int] = []
        mask = 0
        for node in sorted(range(len(amounts)), key=lambda i: (-amounts[i], i)):
            mask |= 1 << node
            if self._values and self._values[-1] == -amounts[node]:
                self._masks[-1] = mask
            else:
                self._values.append(-amounts[node])
                self._masks.append(mask)

    def at_least(self, amount: float) -> int:
        """Return the nodes that have this amount or more."""
        found = bisect_right(self._values, EPSILON - amount)
        return self._masks[found - 1] if found else 0

    def most(self, mask: int) -> int | None:
        """Return the node of the mask that has most; None of an empty mask."""
        # Each level's nodes are among the next one's, so the first that meets the mask is sought.
        level = bisect_left(self._masks, 1, key=lambda nodes: int(nodes & mask != 0))
        return next(bits(self._masks[level] & mask)) if level < len(self._masks) else None


class GpuUnit(NamedTuple):
    """One unit of a resource on a node: part of a GPU, memory in MiB (0: unknown)."""

    weight: float
    memory: float
    shared: bool


class Nodes:
    """The nodes of a cluster, asked which of them fit."""

    def __init__(self, objects: Sequence[ObservedObject], is_gpu: Callable[[str], bool]) -> None:
        known = sorted(
            (s for s in objects if isinstance(s.body, NodeSnapshot)), key=lambda s: s.name
        )
        self.names = [s.name for s in known]
        self.seen: list[NodeSnapshot] = [s.body for s in known if isinstance(s.body, NodeSnapshot)]
        self.every = (1 << len(self.names)) - 1
        self.gpu_resources = sorted({r for n in self.seen for r in n.allocatable if is_gpu(r)})
        self._places = {name: i for i, name in enumerate(self.names)}
        self._labels: dict[str, dict[str, int]] = {}
        self._offered: dict[str, AmountIndex] = {}
        self._free: dict[str, AmountIndex] = {}
        self._expressions: dict[Expression, int] = {}
        self._tolerated: dict[tuple[Toleration, ...], int] = {}
        self._sums: dict[tuple[int, str], float] = {}
        self._gpus: dict[str, dict[GpuUnit, int]] = {}
        self._open = self._where(lambda node: not node.unschedulable)

    def __len__(self) -> int:
        return len(self.names)

    def place_of(self, name: str) -> int | None:
        """Return the position of a node's bit; None for a node that is not known."""
        return self._places.get(name)

    def selected(self, placement: Placement) -> int:
        """Return the nodes that node selector and required affinity allow."""
        mask = self.every
        for key, value in placement.node_selector.items():
            mask &= self._by_label(key).get(value, 0)
        if placement.affinity:
            mask &= self._any(self.all_of(term) for term in placement.affinity)
        return mask

    def all_of(self, term: Iterable[Expression]) -> int:
        """Return the nodes for which every expression of a term holds; none for an empty term."""
        expressions = tuple(term)
        # As in Kubernetes: a term without expressions matches no node at all.
        mask = self.every if expressions else 0
        for expression in expressions:
            mask &= self.matching(expression)
        return mask

    def matching(self, expression: Expression) -> int:
        """Return the nodes for which one expression holds."""
        if expression not in self._expressions:
            self._expressions[expression] = self._matching(expression)
        return self._expressions[expression]

    def tolerated(self, tolerations: tuple[Toleration, ...]) -> int:
        """Return the nodes all of whose taints are borne; a cordon is no taint here."""
        if tolerations not in self._tolerated:
            self._tolerated[tolerations] = self._where(
                lambda node: not untolerated(node, tolerations)
            )
        return self._tolerated[tolerations]

    def uncordoned(self, tolerations: tuple[Toleration, ...]) -> int:
        """Return the nodes that take new pods, or whose cordon is borne."""
        if any(bears(one, CORDON) for one in tolerations):
            return self.every
        return self._open

    def offering(self, requests: Requests) -> int:
        """Return the nodes that would be large enough if they were empty."""
        mask = self.every
        for resource, amount in requests.items():
            mask &= self._levels(resource, self._offered, offered).at_least(amount)
        return mask

    def room(self, requests: Requests) -> int:
        """Return the nodes that have so much free."""
        mask = self.every
        for resource, amount in requests.items():
            mask &= self._levels(resource, self._free, free).at_least(amount)
        return mask

    def by_gpu(self, resource: str) -> Mapping[GpuUnit, int]:
        """Return the nodes that offer a resource by what one unit of it is there."""
        if resource not in self._gpus:
            found: dict[GpuUnit, int] = {}
            for at in bits(self.offering({resource: 2 * EPSILON})):
                one = gpu_of(resource, self.seen[at].labels)
                found[one] = found.get(one, 0) | 1 << at
            self._gpus[resource] = found
        return self._gpus[resource]

    def most_free(self, mask: int, resource: str) -> int | None:
        """Return the node of the mask with most of a resource free."""
        return self._levels(resource, self._free, free).most(mask)

    def most_offered(self, mask: int, resource: str) -> int | None:
        """Return the largest node of the mask."""
        return self._levels(resource, self._offered, offered).most(mask)

    def free_in_all(self, mask: int, resource: str) -> float:
        """Return what is free of a resource on all nodes of the mask together."""
        key = (mask, resource)
        if key not in self._sums:
            amounts = self._levels(resource, self._free, free).amounts
            self._sums[key] = sum(max(0.0, amounts[i]) for i in bits(mask))
        return self._sums[key]

    def names_of(self, mask: int, most: int = 20) -> list[str]:
        """Return the names of the nodes of a mask, at most `most`."""
        return [self.names[i] for i, _ in zip(bits(mask), range(most), strict=False)]

    def named(self, mask: int) -> dict[str, Any]:
        """Return the nodes of a mask as a sentence tells them: three names, and how many."""
        return {"names": self.names_of(mask, 3), "count": mask.bit_count()}

    def _by_label(self, key: str) -> dict[str, int]:
        if key not in self._labels:
            values: dict[str, int] = {}
            for i, node in enumerate(self.seen):
                if (value := node.labels.get(key)) is not None:
                    values[value] = values.get(value, 0) | 1 << i
            self._labels[key] = values
        return self._labels[key]

    def _by_field(self, key: str) -> dict[str, int]:
        return {name: 1 << i for i, name in enumerate(self.names)} if key == _HOST_NAME else {}

    def _matching(self, expression: Expression) -> int:
        values = (
            self._by_field(expression.key) if expression.field else self._by_label(expression.key)
        )
        has = self._any(values.values())
        among = self._any(values.get(value, 0) for value in expression.values)
        match expression.operator:
            case "In":
                return among
            case "NotIn":
                # NotIn holds for nodes without the label too, as in Kubernetes.
                return self.every & ~among
            case "Exists":
                return has
            case "DoesNotExist":
                return self.every & ~has
            case "Gt" | "Lt" as operator:
                return self._compared(values, operator, expression.values)
        return 0

    def _compared(self, values: Mapping[str, int], operator: str, than: tuple[str, ...]) -> int:
        bound = _whole(than[0]) if len(than) == 1 else None
        if bound is None:
            return 0
        mask = 0
        for value, nodes in values.items():
            label = _whole(value)
            if label is not None and (label > bound if operator == "Gt" else label < bound):
                mask |= nodes
        return mask

    def _levels(
        self,
        resource: str,
        kept: dict[str, AmountIndex],
        amount: Callable[[NodeSnapshot, str], float],
    ) -> AmountIndex:
        if resource not in kept:
            kept[resource] = AmountIndex([amount(node, resource) for node in self.seen])
        return kept[resource]

    def _where(self, holds: Callable[[NodeSnapshot], bool]) -> int:
        return sum(1 << i for i, node in enumerate(self.seen) if holds(node))

    @staticmethod
    def _any(masks: Iterable[int]) -> int:
        found = 0
        for mask in masks:
            found |= mask
        return found


def gpu_of(resource: str, labels: Mapping[str, str]) -> GpuUnit:
    """Return what one unit of a resource is on a node with these labels."""
    memory = labels.get(_MEMORY_LABEL, "")
    product = labels.get(PRODUCT_LABEL, "")
    return GpuUnit(
        unit_weight(resource, labels),
        float(memory) if memory.isdecimal() else 0.0,
        is_shared(resource, labels) or product.endswith(_SHARED_PRODUCT),
    )


def bits(mask: int) -> Iterator[int]:
    """Yield the positions of the bits that are set, lowest first."""
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low


def offered(node: NodeSnapshot, resource: str) -> float:
    """Return how much of a resource or device class a node offers.

    What a node does not say of CPU, memory and pods is no limit: metrics alone do not tell it.
    """
    if resource in node.allocatable:
        return node.allocatable[resource]
    if resource in node.devices:
        return float(node.devices[resource])
    # Who shares GPUs alone knows how full each is: to nodes with GPUs parts are no limit.
    part = resource in PARTS_OF_GPU and node.allocatable.get(GPU, 0.0) > 0
    return float("inf") if part or resource in _UNSAID else 0.0


def free(node: NodeSnapshot, resource: str) -> float:
    """Return how much of a resource or device class is free on a node."""
    # DRA devices are in no allocatable: what is free of them is counted from ResourceSlices.
    if resource not in node.allocatable and resource in node.free_devices:
        return float(node.free_devices[resource])
    return offered(node, resource) - node.used.get(resource, 0.0)


def bears(toleration: Toleration, taint: Taint) -> bool:
    """Say whether a toleration bears a taint."""
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    # Without a key this bears every taint.
    if toleration.operator == "Exists":
        return True
    return bool(toleration.key) and toleration.value == taint.value


def untolerated(node: NodeSnapshot, tolerations: Iterable[Toleration]) -> list[Taint]:
    """Return the taints of a node that keep a pod away, without the one of a cordon."""
    borne = tuple(tolerations)
    taints = [t for t in node.taints if t.effect in _BLOCKING and t.key != CORDON_TAINT]
    # A node that is not ready takes no pod, even where its taint was not seen.
    if not node.ready and not any(t.key.startswith(_SICK_TAINTS) for t in taints):
        taints.append(_NOT_READY)
    return [taint for taint in taints if not any(bears(one, taint) for one in borne)]


def _whole(text: str) -> int | None:
    try:
        return int(text)
    except ValueError:
        return None


class SchedulingConstraints(Struct, frozen=True):
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
