"""How active each workload's devices were on a day, from the letters of its pods' hours."""

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from apps.clusters.models import Pod
from apps.clusters.models.sql import UnixSeconds
from apps.usage.domain.attribution.activity import JOINT, LETTERS, counted, highest
from apps.usage.domain.quiet import PodHourAmounts, QuietTime
from apps.usage.models import Day, PodHour, WorkloadActivityDay
from apps.usage.services.fact_store import day_value, insert

MOST_PODS = 200
"""Of a workload with more pods on a day it is not kept which of their GPUs were active."""
_ALMOST_IDLE = LETTERS[1]
_ROWS_AT_A_TIME = 5000
_COLUMNS = (
    *("slots", "resource", "least_units", "most_units", "gpus"),
    *("head", "tail", "idle_after", "idle_pods"),
)
_AMOUNTS = ("not_running", "unmeasured", "idle", "underused", "busy")
_HOUR = 3600


@dataclass(slots=True)
class _OfPod:
    resource: str
    units: float
    hours: list[str] = field(default_factory=list)
    amounts: list[PodHourAmounts] = field(default_factory=list)


def write_activity(day: Day, keys: Sequence[str]) -> None:
    """Replace a locked day's rows by those that its hours give; `keys` tell rows apart."""
    WorkloadActivityDay.objects.filter(cluster_id=day.cluster_id, day=day.day).delete()
    found: dict[tuple[Any, ...], dict[int, _OfPod]] = defaultdict(dict)
    first, width = day.start.timestamp(), len(keys)
    for row in _pod_hours(day, keys):
        pod, resource, units, activity, at = row[width : width + 5]
        of_pod = found[row[:width]].setdefault(pod, _OfPod(resource, units))
        of_pod.hours.append(activity)
        place = int(at - first) // _HOUR
        of_pod.amounts.append(PodHourAmounts(place, *map(int, row[width + 5 :])))
    edges = _edges(day)
    value = day_value(day.day)
    rows = ((value, *key, *_values(found[key], edges)) for key in sorted(found))
    insert(WorkloadActivityDay, ("day", *keys, *_COLUMNS), rows)


def _pod_hours(day: Day, keys: Sequence[str]) -> Iterator[tuple[Any, ...]]:
    rows = PodHour.objects.filter(
        cluster_id=day.cluster_id, hour__gte=day.start, hour__lt=day.end
    ).order_by()
    named = rows.annotate(at=UnixSeconds("hour")).values_list(
        *keys, "pod_id", "pod__resource", "pod__units", "activity", "at", *_AMOUNTS
    )
    yield from named.iterator(_ROWS_AT_A_TIME)


@dataclass(frozen=True, slots=True)
class _Edges:
    """The pods that were bound on a day, and those that ended on it."""

    began: frozenset[int]
    ended: frozenset[int]


def _edges(day: Day) -> _Edges:
    """Two queries."""
    pods = Pod.objects.filter(cluster_id=day.cluster_id).order_by()
    bound = pods.filter(bound_at__gte=day.start, bound_at__lt=day.end)
    ended = pods.filter(ended_at__gte=day.start, ended_at__lt=day.end)
    return _Edges(
        frozenset(bound.values_list("pk", flat=True)),
        frozenset(ended.values_list("pk", flat=True)),
    )


def _quiet(pods: Mapping[int, _OfPod], edges: _Edges) -> QuietTime:
    quiet = QuietTime()
    for pk, pod in pods.items():
        pod.amounts.sort()
        quiet.add(pod.amounts, begins=pk in edges.began, ends=pk in edges.ended)
    return quiet


def _values(pods: Mapping[int, _OfPod], edges: _Edges) -> tuple[object, ...]:
    """Return the values of _COLUMNS."""
    slots = counted(hour for pod in pods.values() for hour in pod.hours)
    resources = {pod.resource for pod in pods.values()}
    units = [pod.units for pod in pods.values()]
    gpus, quiet = _gpus(pods), _quiet(pods, edges)
    return (
        json.dumps(slots),
        resources.pop() if len(resources) == 1 else "",
        min(units),
        max(units),
        None if gpus is None else json.dumps(gpus),
        quiet.head,
        quiet.tail,
        json.dumps(quiet.after) if quiet.stopped else None,
        quiet.stopped,
    )


def _gpus(pods: Mapping[int, _OfPod]) -> dict[str, str] | None:
    """Return each pod's devices; None unless every pod has several and left one idle.

    A pod that used all of them settles the matter for good: there is nothing to take away.
    """
    if len(pods) > MOST_PODS:
        return None
    found = {}
    for pk, pod in sorted(pods.items()):
        letters = highest(_slots(pod.hours), int(pod.units)) if pod.units > 1 else ""
        if not letters or min(letters) > _ALMOST_IDLE:
            return None
        found[str(pk)] = letters
    return found


def _slots(hours: Iterable[str]) -> Iterator[str]:
    for hour in hours:
        yield from hour.split(JOINT)
