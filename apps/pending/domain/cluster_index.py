"""A cluster's state, with indexes over what a diagnosis reads again and again."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from functools import cache
from typing import TypeVar

from apps.clusters.domain.observed.objects import (
    CONTROLLERS,
    Body,
    ControllerSnapshot,
    EventSnapshot,
    ObservedKind,
    ObservedObject,
    PodSnapshot,
)
from apps.pending.domain.diagnosis import BoundPod, ClusterState
from apps.pending.domain.placement.fits import Nodes
from apps.pending.domain.placement.node_search import PlacementContext

B = TypeVar("B", bound=Body)
Owner = tuple[str, str, str]
"""Namespace, kind and name of a top controller; of a group its name, of kind ""."""
SIMILAR = "(combined from similar events): "
# All three are events of type Normal: a filter on warnings would lose them.
_AUTOSCALERS = frozenset({"NotTriggerScaleUp", "TriggeredScaleUp", "Nominated"})
_KARPENTER = "karpenter"


class ClusterIndex:
    """Indexes over a `ClusterState`; nothing in it is changed after it was made."""

    def __init__(self, state: ClusterState) -> None:
        self.state = state
        self.is_gpu = cache(state.is_gpu)
        self.nodes = Nodes(state.of(ObservedKind.NODE), self.is_gpu)
        self.pods = bodies(state.of(ObservedKind.POD), PodSnapshot)
        self.controllers = {
            seen.uid: (seen, body)
            for seen, body in bodies(state.of(*CONTROLLERS), ControllerSnapshot)
        }
        self.around = PlacementContext(self._holders())
        self._held_by = self._by_owner()
        self._around: dict[tuple[Owner, ...], PlacementContext] = {(): self.around}
        self._events = self._by_subject()
        self._not_ready = self._gangs_not_ready()
        self.preempted = self._preempted()
        # Failed pods are left over from earlier tries and no longer stand for missing ones.
        self.waiting_of = Counter(pod.controller for _, pod in self.pods if pod.phase != "Failed")
        self.schedulers = self._schedulers()

    def assuming(self, state: ClusterState) -> "ClusterIndex":
        """Return the index of a state that differs in its nodes, quotas or queues alone."""
        found = copy(self)
        found.state = state
        if state.of(ObservedKind.NODE) != self.state.of(ObservedKind.NODE):
            found.nodes = Nodes(state.of(ObservedKind.NODE), self.is_gpu)
        return found

    def gpus(self, requests: Mapping[str, float]) -> dict[str, float]:
        """Return the GPU resources and device classes of a request."""
        return {r: a for r, a in sorted(requests.items()) if a > 0 and self.is_gpu(r)}

    def events(self, about: ObservedObject, *reasons: str) -> list[EventSnapshot]:
        """Return the events about an object, latest first; of these reasons, where given.

        Of its own namespace alone: in another anybody may write what names the same uid.
        """
        found = self._events.get((about.namespace, about.uid), ())
        return [e for e in found if not reasons or e.reason in reasons]

    def context(self, about: ObservedObject) -> tuple[str, ...]:
        """Return what autoscalers said of a pod, word for word, latest first."""
        return tuple(
            f"{event.component or event.reason}: {event.message}"
            for event in self.events(about)
            if event.reason in _AUTOSCALERS or _of_karpenter(event)
        )

    def failed_scheduling(self, about: ObservedObject) -> str:
        """Return the scheduler's last text about a pod, as its events have it."""
        # Karpenter uses the scheduler's reason for its own texts, which the parser must not see.
        # `Unschedulable` is KAI's, which may be told to leave the pod's condition alone.
        reasons = ("FailedScheduling", "Unschedulable")
        found = (e for e in self.events(about, *reasons) if not _of_karpenter(e))
        return next((e.message for e in found), "")

    def about_groups(self, namespace: str) -> list[EventSnapshot]:
        """Return the events that say that a gang is not whole yet, latest first."""
        return self._not_ready.get(namespace, [])

    def preempted_at(self, pod: PodSnapshot) -> float | None:
        """Return when a pod of the same controller lost its GPUs, before this one was made."""
        times = self.preempted.get(pod.controller, ()) if pod.controller else ()
        return max((at for at in times if at <= pod.created + 5.0), default=None)

    def mine(self, namespace: str, pod: PodSnapshot) -> tuple[Owner, ...]:
        """Return of the owner and the group of a pod those that hold something already."""
        keys = [(namespace, pod.owner_kind, pod.owner), (namespace, "", pod.group)]
        return tuple(key for key in keys if key[2] and key in self._held_by)

    def held_by(self, owner: Owner) -> Sequence[BoundPod]:
        """Return the pods of an owner that hold something already."""
        return self._held_by.get(owner, ())

    def around_of(self, mine: tuple[Owner, ...]) -> PlacementContext:
        """Return who holds what besides these owners: none is asked to let go of its own."""
        if mine not in self._around:
            own = {holder.uid: holder for key in mine for holder in self._held_by[key]}
            # Only nodes of the owner differ; a copy of all holders for each owner would take
            # minutes.
            nodes = {holder.node for holder in own.values()}
            others = {
                node: [h for h in self.around.holders.get(node, ()) if h.uid not in own]
                for node in nodes
            }
            held: dict[str, dict[str, float]] = {node: {} for node in nodes}
            for holder in own.values():
                on = held[holder.node]
                for resource, units in holder.requests.items():
                    on[resource] = on.get(resource, 0.0) + units
            self._around[mine] = PlacementContext({**self.around.holders, **others}, held)
        return self._around[mine]

    def _by_owner(self) -> dict[Owner, list[BoundPod]]:
        found: dict[Owner, list[BoundPod]] = defaultdict(list)
        for one in self.state.holders:
            found[one.namespace, one.owner_kind, one.owner].append(one)
            if one.group:
                found[one.namespace, "", one.group].append(one)
        return dict(found)

    def _holders(self) -> dict[str, list[BoundPod]]:
        found: dict[str, list[BoundPod]] = defaultdict(list)
        for holder in self.state.holders:
            found[holder.node].append(holder)
        return dict(found)

    def _by_subject(self) -> dict[tuple[str, str], list[EventSnapshot]]:
        """Return the events by namespace and uid of what they are about, latest first."""
        found: dict[tuple[str, str], list[EventSnapshot]] = defaultdict(list)
        for seen, event in bodies(self.state.of(ObservedKind.EVENT), EventSnapshot):
            found[seen.namespace, event.about_uid].append(event)
        for events in found.values():
            events.sort(key=lambda e: (-(e.last or e.first or 0.0), e.reason, e.message))
        return dict(found)

    def _gangs_not_ready(self) -> dict[str, list[EventSnapshot]]:
        """Return by namespace what KAI says of gangs whose pods are not all there."""
        found: dict[str, list[EventSnapshot]] = defaultdict(list)
        for (namespace, _), events in self._events.items():
            found[namespace] += [e for e in events if e.reason == "NotReady"]
        for some in found.values():
            some.sort(key=lambda e: -(e.last or e.first or 0.0))
        return found

    def _preempted(self) -> dict[str, list[float]]:
        """Return controller uid → when pods of it were preempted."""
        found: dict[str, list[float]] = defaultdict(list)
        for seen, pod in [*self.pods, *bodies(self.state.gone, PodSnapshot)]:
            if pod.controller and pod.disrupted.startswith("Preempt"):
                found[pod.controller].append(pod.deleting or seen.changed)
        makers = {
            (s.namespace, s.name): uid
            for uid, (s, _) in self.controllers.items()
            if s.kind is not ObservedKind.STATEFUL_SET
        }
        for seen, event in bodies(self.state.of(ObservedKind.EVENT), EventSnapshot):
            # The event is on the victim, whose object may be gone: its name leads to the
            # controller.
            if event.reason == "Preempted" and event.about_kind == "Pod":
                uid = makers.get((seen.namespace, event.about_name.rpartition("-")[0]))
                if uid is not None:
                    found[uid].append(event.last or event.first or seen.first)
        return dict(found)

    def _schedulers(self) -> frozenset[str]:
        """Return the schedulers that were seen at work on some pod."""
        return frozenset(
            pod.scheduler
            for seen, pod in self.pods
            if pod.node or pod.scheduled is not None or self.failed_scheduling(seen)
        )


def bodies(objects: Iterable[ObservedObject], of: type[B]) -> list[tuple[ObservedObject, B]]:
    """Return observed objects with their bodies, those of one class."""
    return [(one, one.body) for one in objects if isinstance(one.body, of)]


def plain(message: str) -> str:
    """Return an event's text without the prefix of combined events."""
    return message.removeprefix(SIMILAR)


def _of_karpenter(event: EventSnapshot) -> bool:
    return _KARPENTER in event.component or event.message.startswith("Failed to schedule pod, ")
