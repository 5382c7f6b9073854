"""Sums of whole days, and deleting what is past its retention."""

import json
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from operator import add
from typing import Any

from django.conf import settings
from django.db import models, transaction
from django.db.models import Exists, OuterRef
from msgspec import Struct, field

from apps.clusters.domain.window import Window
from apps.clusters.models import Pod, Workload
from apps.clusters.services import chunks, forget_ledger, forget_objects, forget_people
from apps.usage.domain.activity import JOINT, LETTERS, PodHourAmounts, QuietTime, counted, highest
from apps.usage.models import (
    CollectionWindow,
    Day,
    DeviceHealthHour,
    ExporterSetUp,
    NodeHour,
    PodDevices,
    PodHour,
    QueueHour,
    QueuePending,
    SavedStates,
    ServingHour,
    WorkloadActivityDay,
    WorkloadDay,
)
from apps.usage.services.facts import HELD_COLUMNS, Rollup, day_value, insert, sum_day
from gpuportal.database_functions import UnixSeconds
from gpuportal.partitions import drop_month, month_of, own_months

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

STEADY_KINDS = frozenset(
    {"CronJob", "DaemonSet", "Deployment", "ReplicaSet", "ReplicationController", "StatefulSet"}
)
"""Kinds whose objects last, or come again under their name: they stay by name for good."""
OLDER = "(older)"
"""What the workload is called that stands for the others; no object of Kubernetes can be."""
_FOLDED_KEYS = ("team_id", "namespace_id", "cluster_id", "tier_id", "gpu_model_id", "capacity_type")
_FOLDED_AMOUNTS = HELD_COLUMNS[:-1]
_FOLDED_PEAKS = HELD_COLUMNS[-1:]
_KEYS = (
    *("team_id", "namespace_id", "workload_id"),
    *("cluster_id", "tier_id", "gpu_model_id", "capacity_type"),
)
_ROLLUP = Rollup(PodHour, WorkloadDay, _KEYS, HELD_COLUMNS)


class _PodDay(Struct):
    resource: str
    units: float
    hours: list[str] = field(default_factory=list)
    amounts: list[PodHourAmounts] = field(default_factory=list)


def write_activity(day: Day, keys: Sequence[str]) -> None:
    """Replace a locked day's rows by those that its hours give; `keys` tell rows apart."""
    WorkloadActivityDay.objects.filter(cluster_id=day.cluster_id, day=day.day).delete()
    found: dict[tuple[Any, ...], dict[int, _PodDay]] = defaultdict(dict)
    first, width = day.start.timestamp(), len(keys)
    for row in _pod_hours(day, keys):
        pod, resource, units, activity, at = row[width : width + 5]
        of_pod = found[row[:width]].setdefault(pod, _PodDay(resource, units))
        of_pod.hours.append(activity)
        # By time elapsed, not by the clock, which shows an hour twice in autumn.
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
    # A day of a large cluster is more than memory should hold at once.
    yield from named.iterator(_ROWS_AT_A_TIME)


class _Edges(Struct, frozen=True):
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


def _quiet(pods: Mapping[int, _PodDay], edges: _Edges) -> QuietTime:
    quiet = QuietTime()
    for pk, pod in pods.items():
        pod.amounts.sort()
        quiet.add(pod.amounts, begins=pk in edges.began, ends=pk in edges.ended)
    return quiet


def _values(pods: Mapping[int, _PodDay], edges: _Edges) -> tuple[object, ...]:
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


def _gpus(pods: Mapping[int, _PodDay]) -> dict[str, str] | None:
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


def due_to_fold(*, now: datetime) -> list[int]:
    """Return the days past the retention of workloads, the oldest first. One query."""
    horizon = now - timedelta(days=settings.WORKLOAD_RETENTION_DAYS)
    due = Day.objects.filter(pruned=True, folded=False, end__lt=horizon)
    return list(due.order_by("day", "pk").values_list("pk", flat=True))


def fold_workload_day(day: Day) -> set[int]:
    """Fold the sums of a locked day by workload; return the workloads that are in them no more."""
    return fold_rows(
        WorkloadDay, day, keys=_FOLDED_KEYS, amounts=_FOLDED_AMOUNTS, peaks=_FOLDED_PEAKS
    )


def fold_rows(
    model: type[models.Model],
    day: Day,
    *,
    keys: Sequence[str],
    amounts: Sequence[str],
    peaks: Sequence[str] = (),
    series: Sequence[str] = (),
) -> set[int]:
    """Fold a day's rows of a table by workload; return the workloads that are in it no more.

    Rows that agree in `keys` are one: `amounts` add up, of `peaks` the largest counts, and `series`
    are JSON lists of one length that add up place by place.
    """
    rows = model._default_manager.filter(cluster_id=day.cluster_id, day=day.day).order_by()
    named = set(rows.values_list("workload_id", flat=True))
    older = older_workloads(named, make=True)
    if not older:
        return set()
    found: dict[tuple[Any, ...], list[Any]] = {}
    columns = (*keys, *amounts, *peaks, *series)
    for part in chunks(sorted(older), 500):
        of_part = rows.filter(workload__in=part)
        for workload, *values in of_part.values_list("workload_id", *columns):
            place = (older[workload], *values[: len(keys)])
            _join(found, place, values[len(keys) :], len(amounts))
        of_part.delete()
    insert(
        model,
        ("day", "workload_id", *columns),
        (
            (day_value(day.day), *place, *map(_stored, values))
            for place, values in sorted(found.items(), key=str)
        ),
    )
    return set(older)


def _stored(value: Any) -> Any:
    """Return a value as rows that go past the models have it: a list is JSON."""
    return json.dumps(value) if isinstance(value, list) else value


def _join(
    found: dict[tuple[Any, ...], list[Any]],
    place: tuple[Any, ...],
    values: list[Any],
    amounts: int,
) -> None:
    known = found.setdefault(place, values)
    if known is values:
        return
    for at, value in enumerate(values):
        if value is None:
            continue  # not exported, which adds nothing
        if at < amounts:
            # None and a value make the value: what one row does not export another one may.
            known[at] = (known[at] or 0) + value
        elif isinstance(value, list):
            known[at] = list(map(add, known[at], value)) if known[at] else value
        elif known[at] is None or value > known[at]:
            known[at] = value


def older_workloads(ids: Collection[int], *, make: bool = False) -> Mapping[int, int]:
    """Return for each of these workloads that are forgotten in time the one that stands for it.

    With `make` it is made where it is not there; else who has none is left out.
    """
    named: dict[int, tuple[int, str]] = {}
    for part in chunks(sorted(ids), 500):
        once = Workload.objects.filter(pk__in=part).exclude(kind__in=STEADY_KINDS)
        rows = once.exclude(name=OLDER).order_by("pk").values_list("pk", "namespace_id", "kind")
        named.update({pk: (namespace, kind) for pk, namespace, kind in rows})
    wanted = set(named.values())
    if make:
        made = [Workload(namespace_id=n, kind=kind, name=OLDER) for n, kind in sorted(wanted)]
        Workload.objects.bulk_create(made, ignore_conflicts=True)
    there = _in_place_of({namespace for namespace, _ in wanted})
    return {pk: there[place] for pk, place in named.items() if place in there}


def _in_place_of(namespaces: Iterable[int]) -> dict[tuple[int, str], int]:
    rows = Workload.objects.filter(namespace__in=set(namespaces), name=OLDER).order_by("pk")
    return {(n, kind): pk for pk, n, kind in rows.values_list("pk", "namespace_id", "kind")}


def roll_days(*, now: datetime) -> int:
    """Sum the hours of every finished day by workload; return how many days were rolled.

    Until a day is rolled its workload sums are read from the hours: made once a day they cost
    little, made with every hour they would cost more than the hour itself.
    """
    due = Day.objects.filter(rolled=False, pruned=False, end__lte=now).order_by("pk")
    return sum(roll_day(pk) for pk in due.values_list("pk", flat=True))


@transaction.atomic
def roll_day(day_id: int) -> bool:
    """Sum one day by workload; False when another process did so meanwhile."""
    day = Day.objects.select_for_update().get(pk=day_id)
    if day.rolled or day.pruned:
        return False
    sum_day(_ROLLUP, day.day, Window(day.start, day.end), cluster_id=day.cluster_id)
    write_activity(day, _KEYS)
    Day.objects.filter(pk=day_id).update(rolled=True)
    return True


def prune(*, now: datetime) -> int:
    """Delete the hourly rows by pod and node of rolled days past their retention.

    How active workloads were on these days goes with them. Returns how many days were pruned.
    Sums by workload and day, and hourly sums by team and tier, are kept for good.

    On PostgreSQL a month that has partitions of its own goes as a whole once its last day is due.
    """
    horizon = now - timedelta(days=settings.HOURLY_RETENTION_DAYS)
    own = own_months(PodHour._meta.db_table)
    # The last day may end in the next month: that of a zone of its own.
    over = {month for month in own if month_of(month, 1) + timedelta(days=2) < horizon}
    pruned = sum(_prune_month(month) for month in sorted(over))
    # Only days with sums by workload: without these nothing would tell who held what.
    due = Day.objects.filter(rolled=True, pruned=False, end__lt=horizon).order_by("pk")
    for pk, start in due.values_list("pk", "start"):
        if month_of(start) not in own - over:
            pruned += _prune_day(pk)
    return pruned


@transaction.atomic
def _prune_month(month: datetime) -> int:
    """Drop a month of all clusters; 0 where a day is not rolled: its days then go one by one."""
    end = month_of(month, 1)
    of_month = Day.objects.filter(start__lt=end, end__gt=month, pruned=False).order_by("pk")
    days = list(of_month.select_for_update())
    if not all(day.rolled for day in days):
        return 0
    # First, since it blocks until readers end: no row of a day is locked by it alone.
    drop_month([model._meta.db_table for model in (PodHour, NodeHour)], month)
    for day in days:
        _delete_hours(day)
    return len(days)


@transaction.atomic
def _prune_day(day_id: int) -> bool:
    day = Day.objects.select_for_update().get(pk=day_id)
    if not day.rolled or day.pruned:
        return False
    _delete_hours(day)
    return True


def _delete_hours(day: Day) -> None:
    for model in (PodHour, NodeHour, ServingHour, DeviceHealthHour):
        model._default_manager.filter(
            cluster_id=day.cluster_id, hour__gte=day.start, hour__lt=day.end
        ).delete()
    WorkloadActivityDay.objects.filter(cluster_id=day.cluster_id, day=day.day).delete()
    Day.objects.filter(pk=day.pk).update(pruned=True)


def forget(*, now: datetime) -> int:
    """Delete what is past the ledger's retention: collected hours, series of queues, pods, nodes.

    What was seen to go two days ago goes too, but for the settings of quotas and queues, and who
    was behind pods by a retention of its own. Returns how many rows.
    """
    horizon = now - timedelta(days=settings.LEDGER_RETENTION_DAYS)
    deleted, _ = CollectionWindow.objects.filter(hour__lt=horizon).delete()
    for shown in (QueuePending, QueueHour):
        deleted += shown._default_manager.filter(hour__lt=horizon).delete()[0]
    # Many hours share a profile: it goes with the last of them.
    ExporterSetUp.objects.filter(collectionwindow__isnull=True).delete()
    deleted += forget_people(now=now)
    deleted += forget_objects(now=now, history_before=horizon)
    deleted += forget_ledger(before=horizon)
    # The database does not tie them to their pods, of which the ledger forgot some just now.
    pods = Pod.objects.filter(pk=OuterRef("pod_id"))
    for beside in (PodDevices, SavedStates):
        deleted += beside._default_manager.filter(~Exists(pods)).delete()[0]
    return deleted
