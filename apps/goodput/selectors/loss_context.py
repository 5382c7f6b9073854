"""What was with the GPUs and the node of a pod when its run failed."""

from collections import defaultdict
from collections.abc import Collection, Mapping
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from django.db.models import Q, QuerySet
from msgspec import Struct

from apps.clusters.domain.window import SLOT_SECONDS, Window
from apps.clusters.models import NodeInterval, Pod
from apps.usage.models import CollectionWindow, DeviceHealthHour

# A failure counts as after an XID that came at most so long before it.
_XID_SECONDS = 600.0
# The time of an XID is that of the first scrape that showed it, which may be after the crash.
_SCRAPE_SECONDS = 60.0
_HOUR = timedelta(hours=1)
_Event = tuple[int, float]


class LossContext(Struct):
    """Of failures: how many GPUs had shown an XID, how many nodes were not ready or cordoned.

    Each beside what these cost, nano-GPU-hours, and how many could be checked: of the others
    nothing is known. A failure may be of several kinds, and its cost is that of each.
    """

    xid: int = 0
    xid_lost: int = 0
    xid_checked: int = 0
    not_ready: int = 0
    not_ready_lost: int = 0
    cordoned: int = 0
    cordoned_lost: int = 0
    node_checked: int = 0


class _PodPlace(NamedTuple):
    cluster: int
    node: str
    uuids: tuple[str, ...]


class _NodeState(NamedTuple):
    start: float
    end: float
    ready: bool
    schedulable: bool


def loss_contexts(
    events: Mapping[str, Mapping[_Event, int]], pods: QuerySet[Pod, Pod]
) -> dict[str, LossContext]:
    """Return the context of failures, (pod, Unix seconds), and of their cost, by reason.

    Costs are nano-GPU-hours. `pods` are those of the events, and maybe others. Four queries.
    """
    times = [failed for own in events.values() for _, failed in own]
    if not times:
        return {}
    found = _Facts(pods, min(times), max(times))
    return {reason: found.context_of(own) for reason, own in events.items()}


class _Facts:
    """What is known of the nodes and GPUs of pods around their failures."""

    def __init__(self, pods: QuerySet[Pod, Pod], first: float, last: float) -> None:
        start, end = (datetime.fromtimestamp(at, UTC) for at in (first - _XID_SECONDS, last))
        # From the hour of facts on in which `start` lies, whichever it is.
        window = Window(start - _HOUR, end + _HOUR)
        rows = pods.order_by().values_list("pk", "cluster_id", "node_name", "on_devices__uuids")
        self.places = {
            pk: _PodPlace(cluster, node, tuple((uuids or "").split()))
            for pk, cluster, node, uuids in rows.iterator()
        }
        clusters = {one.cluster for one in self.places.values()}
        self.xids = _xids(clusters, window)
        self.exported = _exported(clusters, window)
        self.nodes = _node_states({one.node for one in self.places.values()}, clusters, window)

    def context_of(self, events: Mapping[_Event, int]) -> LossContext:
        found = LossContext()
        for (pod, failed), lost in events.items():
            # A pod that ended meanwhile is told with the next reading.
            place = self.places.get(pod)
            if place is None:
                continue
            if place.uuids and self._is_exported(place.cluster, failed):
                found.xid_checked += 1
                if self._has_xid(place, failed):
                    found.xid += 1
                    found.xid_lost += lost
            state = self._state_at(place, failed)
            if state is not None:
                found.node_checked += 1
                if not state.ready:
                    found.not_ready += 1
                    found.not_ready_lost += lost
                if not state.schedulable:
                    found.cordoned += 1
                    found.cordoned_lost += lost
        return found

    def _is_exported(self, cluster: int, failed: float) -> bool:
        # Hours of facts begin at half past in zones that do: two hours may hold a time.
        slot = failed // SLOT_SECONDS * SLOT_SECONDS
        return any((cluster, at) in self.exported for at in (slot, slot - SLOT_SECONDS))

    def _has_xid(self, place: _PodPlace, failed: float) -> bool:
        return any(
            failed - _XID_SECONDS <= at <= failed + _SCRAPE_SECONDS
            for uuid in place.uuids
            for at in self.xids.get((place.cluster, uuid), ())
        )

    def _state_at(self, place: _PodPlace, failed: float) -> _NodeState | None:
        states = self.nodes.get((place.cluster, place.node), ())
        # At the second itself: what the failure did to the node begins then, and is not its cause.
        return next((one for one in states if one.start < failed <= one.end), None)


def _xids(clusters: Collection[int], window: Window) -> Mapping[tuple[int, str], list[float]]:
    hours = DeviceHealthHour.objects.filter(
        cluster_id__in=clusters, hour__gte=window.start, hour__lt=window.end
    )
    found: defaultdict[tuple[int, str], list[float]] = defaultdict(list)
    for cluster, uuid, xids in hours.order_by().values_list("cluster_id", "uuid", "xids"):
        found[cluster, uuid] += [at for at, _ in xids]
    return found


def _exported(clusters: Collection[int], window: Window) -> set[tuple[int, float]]:
    """Return the hours of clusters in which some exporter showed XIDs."""
    hours = CollectionWindow.objects.filter(
        cluster_id__in=clusters, hour__gte=window.start, hour__lt=window.end
    )
    rows = hours.order_by().values_list("cluster_id", "hour", "health")
    return {
        (cluster, hour.timestamp()) for cluster, hour, health in rows if "xid" in health.split()
    }


def _node_states(
    names: Collection[str], clusters: Collection[int], window: Window
) -> Mapping[tuple[int, str], list[_NodeState]]:
    there = Q(end__isnull=True) | Q(end__gte=window.start)
    spans = NodeInterval.objects.filter(
        there, node__cluster__in=clusters, start__lt=window.end
    ).order_by("start")
    columns = ("node__cluster_id", "node__name", "start", "end", "ready", "schedulable")
    found: defaultdict[tuple[int, str], list[_NodeState]] = defaultdict(list)
    for cluster, name, start, end, ready, schedulable in spans.values_list(*columns).iterator():
        if name in names:
            until = window.end_seconds if end is None else end.timestamp()
            found[cluster, name].append(_NodeState(start.timestamp(), until, ready, schedulable))
    return found
