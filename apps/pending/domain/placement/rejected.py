"""Pods that a kubelet turned away: one waiting item for each controller that goes on trying."""

import re

from apps.clusters.domain.observed.objects import ControllerSnapshot, ObservedObject, PodSnapshot
from apps.pending.domain.causes import Cause, Counts
from apps.pending.domain.cluster_index import ClusterIndex
from apps.pending.domain.diagnosis import Action, Diagnosis, Suggestion, says
from apps.pending.domain.placement.fixes import free_some
from apps.pending.domain.placement.refusals import LONGEST, rejection
from apps.pending.domain.state import PendingItem

_OUT_OF = re.compile(
    r"enough resource: (?P<resource>[^,]+), requested: (?P<requested>[0-9]{1,18}),"
    r" used: (?P<used>[0-9]{1,18}), capacity: (?P<capacity>[0-9]{1,18})",
    re.ASCII,
)
_RECENT_SECONDS = 900.0
"""A controller makes a new pod sooner than this: one that did not has stopped trying."""


def turned_away(index: ClusterIndex, refused: frozenset[str]) -> list[PendingItem]:
    """Return what waits because a kubelet turned its pods away.

    `refused` are the uids of controllers whose missing pods are accounted for already.
    """
    groups: dict[str, list[tuple[ObservedObject, PodSnapshot]]] = {}
    for seen, pod in index.pods:
        if pod.phase == "Failed" and rejection(pod.reason, pod.message) is not None:
            groups.setdefault(pod.controller or seen.uid, []).append((seen, pod))
    found = []
    for uid, pods in groups.items():
        if uid in refused:
            continue
        controller = index.controllers.get(uid)
        if controller is None:
            found.append(_alone(index, pods))
        elif one := _of_controller(index, *controller, pods):
            found.append(one)
    return found


def _of_controller(
    index: ClusterIndex,
    seen: ObservedObject,
    body: ControllerSnapshot,
    pods: list[tuple[ObservedObject, PodSnapshot]],
) -> PendingItem | None:
    """Return what of a controller does not run; None when the pods it made since then do.

    Only those of the last row of tries tell: an old one that is left over explains nothing.
    """
    waiting = index.waiting_of.get(seen.uid, 0)
    missing = max(0, body.wanted - body.pods)
    idle = missing + waiting
    if not idle:
        return None
    pods = _recent(pods, index.state.at)
    if not pods:
        return None
    last, pod = _last(pods)
    each = index.gpus(body.requests)
    return PendingItem(
        kind=seen.kind.short,
        uid=seen.uid,
        namespace=seen.namespace,
        name=seen.name,
        owner_kind=body.owner_kind or seen.kind.short,
        owner=body.owner or seen.name,
        since=min(_at(one) for _, one in pods),
        requests={r: units * idle for r, units in each.items()},
        counts=Counts.SUPPRESSED if missing else Counts.NOTHING,
        diagnosis=_diagnosis(last, pod, len(pods)),
        share=missing / idle,
        node=pod.node,
        node_selector=body.placement.node_selector,
        queue=body.queue,
    )


def _alone(index: ClusterIndex, pods: list[tuple[ObservedObject, PodSnapshot]]) -> PendingItem:
    """Return a pod that nobody is known to make again: it adds to nothing."""
    seen, pod = _last(pods)
    owned = bool(pod.controller)
    return PendingItem(
        kind=pod.controller_kind if owned else "Pod",
        uid=pod.controller or seen.uid,
        namespace=seen.namespace,
        name=pod.owner if owned else seen.name,
        owner_kind=pod.owner_kind or "Pod",
        owner=pod.owner or seen.name,
        since=min(_at(one) for _, one in pods),
        requests=index.gpus(pod.requests),
        counts=Counts.NOTHING,
        diagnosis=_diagnosis(seen, pod, len(pods)),
        share=0.0,
        node=pod.node,
        node_selector=pod.placement.node_selector,
        queue=pod.queue,
        priority=pod.priority,
    )


def _at(pod: PodSnapshot) -> float:
    return pod.bound or pod.created


def _recent(
    pods: list[tuple[ObservedObject, PodSnapshot]], now: float
) -> list[tuple[ObservedObject, PodSnapshot]]:
    """Return the last tries that followed close upon each other; none when that is long ago."""
    found, after = [], now
    for one in sorted(pods, key=lambda one: -_at(one[1])):
        if after - _at(one[1]) > _RECENT_SECONDS:
            break
        found.append(one)
        after = _at(one[1])
    return found


def _last(pods: list[tuple[ObservedObject, PodSnapshot]]) -> tuple[ObservedObject, PodSnapshot]:
    return max(pods, key=lambda one: (_at(one[1]), one[0].uid))


def _diagnosis(seen: ObservedObject, pod: PodSnapshot, times: int) -> Diagnosis:
    cause = rejection(pod.reason, pod.message) or Cause.ADMISSION
    turned_away = says("turned_away", times=times, pod=seen.name, node=pod.node, reason=pod.reason)
    return Diagnosis(
        cause,
        pod.reason,
        pod.message,
        sentences=(turned_away,),
        suggestions=(_suggestion(pod, cause),),
    )


def _suggestion(pod: PodSnapshot, cause: Cause) -> Suggestion:
    if shortage := _OUT_OF.search(pod.message[:LONGEST]):
        short = float(shortage["requested"]) + float(shortage["used"]) - float(shortage["capacity"])
        if short > 0:
            return free_some(shortage["resource"], short, [pod.node])
    look = says("look_at_numa" if cause is Cause.TOPOLOGY else "look_at_devices")
    change = {"nodes": [pod.node], "reason": pod.reason}
    return Suggestion(Action.LOOK_AT_NODE, change, look)
