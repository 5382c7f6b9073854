"""What lets a Kueue Workload in and gives its pods a place: to ask for less, quota, nodes."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from msgspec import structs

from apps.pending.domain.diagnosis import Action, Relation, Suggestion, says
from apps.pending.domain.placement.fits import EPSILON
from apps.pending.domain.placement.fixes import all_needed
from apps.pending.domain.placement.flavor_nodes import FlavorNodes, Shape, Workload
from apps.pending.domain.queues.headroom import QueueHeadroom, QueueLimits
from apps.pending.domain.queues.queued import NEAR, Queued, total


@dataclass(frozen=True, slots=True)
class Need:
    """A quota that is too small, by how much, and how many Workloads that much more admits."""

    room: QueueHeadroom
    short: float
    of: int = 1


class Admitting:
    """Finds the smallest change that starts a Workload whose queue works."""

    def __init__(
        self, queues: QueueLimits, nodes: FlavorNodes, is_gpu: Callable[[str], bool]
    ) -> None:
        self.queues = queues
        self._nodes = nodes
        self._is_gpu = is_gpu
        self._lines: dict[tuple[str, str, str, bool], tuple[float, int]] = {}

    def suggestions(self, one: Queued, *, in_line: bool) -> list[Suggestion]:
        """Suggest what admits it and gives its pods a place: to ask for less, quota, nodes."""
        wanted = total(one.body)
        chosen = self._rooms(one, wanted)
        flavors = {r: room.flavor for r, room in chosen.items() if self._is_gpu(r)}
        flavor = next(iter(flavors.values()), "")
        if not flavor or not self._nodes.known(flavor):
            return self._raise(one, wanted, chosen, in_line=in_line)
        if self._nodes.unlike((one.seen, one.body), flavor):
            return [self._nodes.missing_flavor((one.seen, one.body), one.cluster_queue)]
        first = self._nodes.agree((one.seen, one.body), flavor)
        shapes = self._nodes.shapes((one.seen, one.body), flavor, agreeing=True)
        last = []
        if not self._nodes.could_hold(shapes):
            if smaller := self._smaller(shapes, chosen):
                shape, resource, to = smaller
                first.append(_ask_less(resource, shapes[0].requests[resource], to))
                wanted = {**wanted, resource: to * shape.count}
                shapes = [shape]
            else:
                last = self._more_nodes(shapes)
        quota = self._needed(one, wanted, chosen, in_line=in_line)
        if not first and not last and not quota:
            return self._raise(one, wanted, chosen, in_line=in_line)
        if not last and one.place < NEAR:
            # Those being checked are in no line any more, but their pods are still to come.
            before = [self._nodes.admitted(w, flavor) for w in one.checked]
            before += [self._nodes.shapes(w, flavor) for w in one.ahead]
            last = self._nodes.make_room((one.seen, one.body), shapes, before)
        raised = [_raise_nominal(one.cluster_queue, need) for need in quota]
        # To free quota is no other way where the Workload itself must change.
        instead = self._instead(one, quota) if not first else []
        return [*all_needed([*first, *raised, *last]), *instead]

    def _smaller(
        self, shapes: Sequence[Shape], chosen: Mapping[str, QueueHeadroom]
    ) -> tuple[Shape, str, float] | None:
        """Return the pods with as many GPUs as queue and nodes can give; None when not even one."""
        if len(shapes) != 1:
            return None
        gpus = [r for r in shapes[0].requests if self._is_gpu(r) and r in chosen]
        if len(gpus) != 1:
            return None
        (resource,), shape = gpus, shapes[0]
        most = self._nodes.most_each(shape, resource, chosen[resource].most / shape.count)
        if most < 1:
            return None
        return replace(shape, requests={**shape.requests, resource: most}), resource, most

    def _more_nodes(self, shapes: Sequence[Shape]) -> list[Suggestion]:
        steps = []
        for shape in shapes:
            if (lacking := self._nodes.lacking(shape)) > 0:
                resource = next(r for r in sorted(shape.requests) if self._is_gpu(r))
                each = shape.requests[resource]
                change = {"resource": resource, "amount": each, "count": lacking}
                steps.append(Suggestion(Action.ADD_NODE, change, says("add_of_flavor")))
        return steps

    def _rooms(self, one: Queued, wanted: Mapping[str, float]) -> dict[str, QueueHeadroom]:
        """Return for each resource the flavor with most left, one whose nodes could hold it."""
        chosen: dict[str, QueueHeadroom] = {}
        for resource in sorted(wanted, key=lambda r: not self._is_gpu(r)):
            rooms = self.queues.rooms(one.cluster_queue, resource)
            # Resources that one group covers come from the same flavor.
            same = [room for room in rooms if room.flavor in {c.flavor for c in chosen.values()}]
            if best := max(
                same or rooms, key=lambda r: (*self._suits(one, r), r.free), default=None
            ):
                chosen[resource] = best
        return chosen

    def _suits(self, one: Queued, room: QueueHeadroom) -> tuple[bool, bool]:
        """Say whether a flavor's nodes could hold a Workload, and whether it asks for no others."""
        if not self._is_gpu(room.resource):
            return True, True
        agrees = not self._nodes.contradicted((one.seen, one.body), room.flavor)
        return self._holds((one.seen, one.body), room), agrees

    def _holds(self, one: Workload, room: QueueHeadroom) -> bool:
        """Say whether the nodes of a flavor could hold a Workload; not known counts as yes."""
        if not self._nodes.known(room.flavor):
            return True
        return self._nodes.could_hold(self._nodes.shapes(one, room.flavor))

    def _needed(
        self,
        one: Queued,
        wanted: Mapping[str, float],
        chosen: Mapping[str, QueueHeadroom],
        *,
        in_line: bool,
    ) -> list[Need]:
        """Return the quotas that are too small and by how much, with those in front let in.

        It is one change for the whole queue: what lets in all that pend there and have a place.
        """
        needed = []
        own = total(one.body)
        for resource, room in chosen.items():
            units = wanted[resource]
            if in_line:
                # Nobody is passed over in a strict queue: all in front go first.
                short = one.with_ahead[resource] - own[resource] + units - room.free
            else:
                ahead = [total(body).get(resource, 0.0) for _, body in one.ahead]
                short = _short_of(units, room.free, ahead)
            if short > EPSILON:
                as_asked = units == own.get(resource)
                asked, of = self._of_line(one, room, in_line=in_line) if as_asked else (0.0, 1)
                every = asked - room.free
                more = every >= short - EPSILON
                needed.append(Need(room, every, of) if more else Need(room, short))
        return needed

    def _of_line(self, one: Queued, room: QueueHeadroom, *, in_line: bool) -> tuple[float, int]:
        """Return what the Workloads of a queue ask for that a flavor has nodes for; how many.

        Nothing where its nodes could not hold all of them. In a strict queue nobody is left out.
        """
        key = (one.cluster_queue, room.flavor, room.resource, in_line)
        if key not in self._lines:
            line = [w for w in one.line if in_line or self._holds(w, room)]
            asked = [total(body).get(room.resource, 0.0) for _, body in line]
            most = self._nodes.offered(room.flavor, room.resource)
            units = sum(asked)
            enough = most is None or units <= most + EPSILON
            self._lines[key] = (units, sum(1 for u in asked if u > 0)) if enough else (0.0, 1)
        return self._lines[key]

    def _raise(
        self,
        one: Queued,
        wanted: Mapping[str, float],
        chosen: Mapping[str, QueueHeadroom],
        *,
        in_line: bool,
    ) -> list[Suggestion]:
        """Suggest the quotas to raise, of each resource in the flavor that lacks least."""
        needed = self._needed(one, wanted, chosen, in_line=in_line)
        raised = all_needed([_raise_nominal(one.cluster_queue, need) for need in needed])
        steps = [*raised, *self._instead(one, needed)]
        return steps or [Suggestion(Action.WAIT, {"what": "admission"}, says("wait_for_kueue"))]

    def _instead(self, one: Queued, needed: list[Need]) -> list[Suggestion]:
        alone = len(needed) == 1 and needed[0].short <= needed[0].room.most + EPSILON
        return self._free(one, needed[0].room, needed[0].short) if alone else []

    def _free(self, one: Queued, room: QueueHeadroom, short: float) -> list[Suggestion]:
        """Suggest what others are to give back: the queue itself where its own limit is in the way.

        What is given back in the queue is so in its cohort too.
        """
        needed = short + room.free
        if needed > room.most + EPSILON:
            return []
        queue, cohort = one.cluster_queue, self.queues.cohort_of(one.cluster_queue)
        here = max(0.0, needed - room.below_ceiling) if cohort else short
        parts = [(here, {"queue": queue}), (short - here, {"cohort": cohort})]
        steps = [_give_back(queue, room, *part) for part in parts if part[0] > EPSILON]
        first = [structs.replace(step, relation=Relation.OR) for step in steps[:1]]
        return [*first, *all_needed(steps)[1:]]


def _ask_less(resource: str, wanted: float, to: float) -> Suggestion:
    change = {"resource": resource, "from": wanted, "to": to}
    return Suggestion(Action.REQUEST, change, says("request_each"))


def _short_of(wanted: float, room: float, ahead: Sequence[float]) -> float:
    """Return how much more room lets something in after those in front that it lets in too."""
    short = max(0.0, wanted - room)
    if short <= EPSILON:
        return 0.0
    for _ in range(len(ahead) + 1):
        left = room + short
        for units in ahead:
            left -= units if units <= left + EPSILON else 0.0
        if wanted <= left + EPSILON:
            return short
        short += wanted - left
    return wanted + sum(ahead) - room


def _give_back(
    queue: str, room: QueueHeadroom, units: float, where: Mapping[str, str]
) -> Suggestion:
    change = {
        "resource": room.resource,
        "amount": units,
        "nodes": [],
        "cluster_queue": queue,
        "flavor": room.flavor,
    }
    return Suggestion(Action.FREE, change, says("free_quota", **where))


def _raise_nominal(queue: str, need: Need) -> Suggestion:
    room, to = need.room, need.room.nominal + need.short
    change = {
        "cluster_queue": queue,
        "flavor": room.flavor,
        "resource": room.resource,
        "from": room.nominal,
        "to": to,
    }
    every = says("raise_for_all", more=need.short, of=need.of) if need.of > 1 else None
    return Suggestion(Action.RAISE_QUEUE_QUOTA, change, every)
