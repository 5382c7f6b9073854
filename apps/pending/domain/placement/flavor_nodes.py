"""The nodes of Kueue's flavors: whether the pods of a Workload have a place once it is admitted."""

from collections.abc import Callable, Iterable, Mapping, Sequence

from msgspec import Struct, field, structs

from apps.accounts.domain.structs import replace
from apps.clusters.domain.observed.objects import (
    FlavorSnapshot,
    NodeSnapshot,
    ObservedKind,
    ObservedObject,
    Placement,
    WorkloadSnapshot,
)
from apps.pending.domain.cluster_index import ClusterIndex, Owner, bodies
from apps.pending.domain.diagnosis import Action, Relation, Suggestion, says
from apps.pending.domain.placement.fits import EPSILON, bits, free, free_some, offered
from apps.pending.domain.placement.node_search import equivalent_nodes
from apps.pending.domain.placement.unschedulable import PlacementDiagnoser, shape_key

Workload = tuple[ObservedObject, WorkloadSnapshot]
_MOST_NODES = 4
_MOST_PODS = 10_000


class PodShape(Struct, frozen=True):
    """So many pods alike, of a Workload."""

    count: int
    requests: Mapping[str, float]
    placement: Placement


class UnitsTaken(Struct):
    """What pods that are not placed yet would take, by position of the node and resource.

    What is about to go is less than nothing, and `more` are the nodes where it does.
    """

    by_node: dict[int, dict[str, float]] = field(default_factory=dict)
    more: int = 0

    def add(self, at: int, requests: Mapping[str, float], pods: int) -> None:
        on = self.by_node.setdefault(at, {})
        for resource, units in requests.items():
            on[resource] = on.get(resource, 0.0) + units * pods

    def of(self, at: int, resource: str) -> float:
        return self.by_node.get(at, {}).get(resource, 0.0)


class FlavorNodes:
    """Finds room for the pods of Workloads on the nodes of a flavor."""

    def __init__(self, index: ClusterIndex, placer: PlacementDiagnoser) -> None:
        self._index = index
        self._placer = placer
        found = bodies(index.state.of(ObservedKind.RESOURCE_FLAVOR), FlavorSnapshot)
        self._could: dict[tuple[object, ...], bool] = {}
        self._flavors = {seen.name: body for seen, body in found}
        self._placements: dict[Owner, Placement] = {
            (seen.namespace, seen.kind.short, seen.name): body.placement
            for seen, body in index.controllers.values()
        }
        for seen, pod in index.pods:
            self._placements.setdefault((seen.namespace, "Pod", seen.name), pod.placement)
            if pod.group:
                self._placements.setdefault((seen.namespace, "", pod.group), pod.placement)

    def known(self, flavor: str) -> bool:
        """Say whether the flavor and nodes at all were seen."""
        return flavor in self._flavors and len(self._index.nodes) > 0

    def shapes(self, one: Workload, flavor: str, *, agreeing: bool = False) -> list[PodShape]:
        """Return the pods of a Workload that ask for GPUs, as the flavor makes them.

        With `agreeing`, as if their selector did not contradict the labels of the flavor.
        """
        placement = self._placement(one, flavor, agreeing=agreeing)
        return [
            PodShape(part.count, part.requests, placement)
            for part in one[1].pod_sets
            if part.count > 0 and self._index.gpus(part.requests)
        ]

    def admitted(self, one: Workload, flavor: str) -> list[PodShape]:
        """Return the pods of a Workload that Kueue has given GPUs of the flavor."""
        seen, body = one
        given = [
            part
            for part in body.pod_sets
            if flavor in {part.flavors.get(r, flavor) for r in self._index.gpus(part.requests)}
        ]
        return self.shapes((seen, replace(body, pod_sets=tuple(given))), flavor)

    def contradicted(self, one: Workload, flavor: str) -> dict[str, str]:
        """Return the selectors of a Workload's pods that the flavor contradicts."""
        labels = self._flavors.get(flavor, FlavorSnapshot()).node_labels
        asked = self._requested(one).node_selector
        return {k: v for k, v in asked.items() if labels.get(k, v) != v}

    def agree(self, one: Workload, flavor: str) -> list[Suggestion]:
        """Return what makes a Workload's pods ask for the nodes of a flavor, where they do not."""
        remove = self.contradicted(one, flavor)
        if not remove:
            return []
        labels, nodes = self._flavors[flavor].node_labels, self._index.nodes
        add = {key: labels[key] for key in remove}
        mask = nodes.selected(Placement(node_selector=labels))
        change = {"remove": remove, "add": add, "nodes": nodes.names_of(mask, _MOST_NODES)}
        return [Suggestion(Action.SELECT, change, says("select_flavor", flavor=flavor))]

    def unlike(self, one: Workload, flavor: str) -> bool:
        """Say whether a flavor's nodes match no request of a Workload, and have other GPUs."""
        if not self.contradicted(one, flavor):
            return False
        nodes, asked = self._index.nodes, self._requested(one)
        mask = nodes.selected(Placement(node_selector=self._flavors[flavor].node_labels))
        gpus = {r for part in one[1].pod_sets for r in self._index.gpus(part.requests)}
        return bool(mask) and not all(mask & equivalent_nodes(nodes, r, asked) for r in gpus)

    def missing_flavor(self, one: Workload, queue: str) -> Suggestion:
        """Return that a queue lacks a flavor of the GPUs that a Workload requests."""
        asked = [name for name in sorted(self._flavors) if not self.contradicted(one, name)]
        fitting = [name for name in asked if self.could_hold(self.shapes(one, name))]
        flavor = fitting[0] if fitting else ""
        labels = {} if flavor else dict(self._requested(one).node_selector)
        change = {"cluster_queue": queue, "flavor": flavor}
        return Suggestion(Action.CREATE_FLAVOR, change, says("add_flavor", labels=labels))

    def could_hold(self, shapes: Sequence[PodShape]) -> bool:
        """Say whether all these pods had a place on empty nodes."""
        # Hundreds of Workloads of a queue are alike, and each asks this of every flavor.
        key = tuple((one.count, shape_key(one.requests, one.placement)) for one in shapes)
        if key not in self._could:
            taken = UnitsTaken()
            self._could[key] = all(self._lay(s, taken, offered) >= s.count for s in shapes)
        return self._could[key]

    def most_each(self, shape: PodShape, resource: str, at_most: float) -> float:
        """Return the most of a resource that each of these pods may ask for to have a place."""
        # By halves: fewer GPUs always fit where more do.
        least, most = 0, int(min(shape.requests[resource], at_most) + EPSILON)
        while least < most:
            middle = (least + most + 1) // 2
            smaller = replace(shape, requests={**shape.requests, resource: float(middle)})
            if self.could_hold([smaller]):
                least = middle
            else:
                most = middle - 1
        return float(least)

    def offered(self, flavor: str, resource: str) -> float | None:
        """Return how much of a resource all nodes of a flavor have; None where it is not known."""
        if not self.known(flavor):
            return None
        nodes = self._index.nodes
        mask = nodes.selected(Placement(node_selector=self._flavors[flavor].node_labels))
        return sum(offered(nodes.seen[at], resource) for at in bits(mask))

    def lacking(self, shape: PodShape) -> int:
        """Return how many of these pods had no place even if the nodes were empty."""
        return shape.count - self._lay(shape, UnitsTaken(), offered)

    def make_room(
        self, one: Workload, shapes: Sequence[PodShape], before: Iterable[Sequence[PodShape]]
    ) -> list[Suggestion]:
        """Return what is to be freed for these pods, beside those that are admitted before them."""
        taken = self._going(one)
        for others in before:
            for shape in others:
                self._lay(shape, taken, free)
        return [step for shape in shapes for step in self._free(one, shape, taken)]

    def _requested(self, one: Workload) -> Placement:
        seen, body = one
        keys = [(seen.namespace, body.owner_kind, body.owner), (seen.namespace, "", seen.name)]
        return next((self._placements[k] for k in keys if k in self._placements), Placement())

    def _placement(self, one: Workload, flavor: str, *, agreeing: bool) -> Placement:
        placement, found = self._requested(one), self._flavors[flavor]
        never = not agreeing and self.contradicted(one, flavor)
        return replace(
            placement,
            node_selector={**placement.node_selector, **found.node_labels},
            # No node has two values of one label, and none matches a term without expressions.
            affinity=((),) if never else placement.affinity,
            tolerations=(*placement.tolerations, *found.tolerations),
        )

    def _going(self, one: Workload) -> UnitsTaken:
        """Return what a Workload's own pods give back: it is not admitted, so they are to go."""
        taken, (seen, body) = UnitsTaken(), one
        for holder in self._index.held_by((seen.namespace, body.owner_kind, body.owner)):
            at = self._index.nodes.place_of(holder.node)
            if at is not None:
                taken.add(at, holder.requests, -1)
                taken.more |= 1 << at
        return taken

    def _lay(
        self, shape: PodShape, taken: UnitsTaken, has: Callable[[NodeSnapshot, str], float]
    ) -> int:
        """Place as many pods as have room, the first node first; return how many."""
        fitting = self._placer.fit_of(shape.requests, shape.placement)
        left = shape.count
        mask = fitting.now | taken.more & fitting.could if has is free else fitting.could
        for at in bits(mask):
            if left <= 0:
                break
            pods = min(left, self._times(shape, at, taken, has))
            taken.add(at, shape.requests, pods)
            left -= pods
        return shape.count - left

    def _times(
        self, shape: PodShape, at: int, taken: UnitsTaken, has: Callable[[NodeSnapshot, str], float]
    ) -> int:
        node = self._index.nodes.seen[at]
        times = (
            # What is about to go is counted as less than nothing; no node gives more than it has.
            (min(has(node, r) - taken.of(at, r), offered(node, r)) + EPSILON) / units
            for r, units in shape.requests.items()
            if units > EPSILON
        )
        return int(max(0.0, min(min(times, default=0.0), _MOST_PODS)))

    def _free(self, one: Workload, shape: PodShape, taken: UnitsTaken) -> list[Suggestion]:
        left = shape.count - self._lay(shape, taken, free)
        if left <= 0:
            return []
        seen, body = one
        mine = (seen.namespace, body.owner_kind, body.owner)
        around = self._index.around_of((mine,) if self._index.held_by(mine) else ())
        resource, units = next(iter(self._index.gpus(shape.requests).items()))
        fitting = self._placer.fit_of(shape.requests, shape.placement)
        roomy = fitting.could & fitting.nodes.room(fitting.constraints.rest)
        # Freed GPUs start nothing where CPU or memory are short: that comes first.
        if not roomy:
            why = self._placer.by_state(shape.requests, shape.placement)
            first = why.suggestions if why is not None else ()
            group = [s for i, s in enumerate(first) if i == 0 or s.relation is Relation.ALSO]
            return [structs.replace(s, relation=Relation.ALONE) for s in group]
        largest = fitting.nodes.most_offered(roomy, resource)
        at_once = self._times(shape, largest, UnitsTaken(), offered) if largest is not None else 0
        # A list of dozens of nodes is no advice: then the sum is told.
        few = left <= _MOST_NODES * at_once
        needed = self._by_node(shape, resource, units, left, taken, roomy) if few else []
        if len(needed) > _MOST_NODES or sum(pods for _, pods, _ in needed) < left:
            change = {"group": seen.name, "missing": left}
            change |= {"amount": units * left, "resource": resource}
            return [Suggestion(Action.COMPLETE_GANG, change, says("flavor_room", each=units))]
        names = self._index.nodes.names
        return [
            free_some(resource, short, [names[at]], around.holders.get(names[at], ()))
            for at, _, short in needed
        ]

    def _by_node(
        self, shape: PodShape, resource: str, units: float, left: int, taken: UnitsTaken, mask: int
    ) -> list[tuple[int, int, float]]:
        """Return (node, pods, what is to be freed there): nodes where least is missing first."""
        nodes = self._index.nodes
        found = []
        for at in bits(mask):
            node = nodes.seen[at]
            pods = self._times(shape, at, taken, offered)
            if pods > 0:
                left_there = free(node, resource) - taken.of(at, resource)
                there = max(0.0, min(left_there, offered(node, resource)))
                found.append((units - there, at, pods, there))
        chosen: list[tuple[int, int, float]] = []
        for _, at, pods, there in sorted(found):
            if left <= 0:
                break
            pods = min(pods, left)
            short = units * pods - there
            if short > EPSILON:
                chosen.append((at, pods, short))
                left -= pods
        return chosen
