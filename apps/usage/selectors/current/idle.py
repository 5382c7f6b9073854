"""Which workloads hold GPUs now and have done nothing with them, and since when."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db.models import F, Max, Min, Q, Sum

from apps.usage.domain.amounts import hours
from apps.usage.models import HAS_FACTS, CollectionWindow, PodHour

_HOUR = timedelta(hours=1)
_BACK = timedelta(days=7)
_FRESH = timedelta(hours=6)
# An hour counts as idle when 19 parts of 20 of what was held were, and as work when 1 was none.
_PARTS, _IDLE_PARTS = 20, 19
_IDLE = Q(idle__gte=F("allocated") * _IDLE_PARTS / _PARTS)


@dataclass(frozen=True, slots=True)
class IdleWorkload:
    """A workload whose pods were idle `since` then, `until` the end of the last collected hour.

    `gpus` are GPU-equivalents held in that hour. `worked_at` is the end of the last hour in which
    one of its present pods did more; None: none did within seven days, and then `since_at_least`.
    """

    cluster: str
    namespace: str
    kind: str
    name: str
    team_id: int
    gpus: float
    since: datetime
    until: datetime
    worked_at: datetime | None
    since_at_least: bool


@dataclass(frozen=True, slots=True)
class IdleNow:
    """Idle workloads, and the names of the clusters of which that is known at all."""

    workloads: tuple[IdleWorkload, ...]
    clusters: frozenset[str]


def idle_workloads(at: datetime) -> IdleNow:
    """Return the workloads that were idle in the last collected hour of their cluster.

    Hours of which little was measured are no idle ones. A cluster whose last hour is more than
    six hours ago is not among `clusters`: nothing is known of it now. Looks back seven days. One
    query and two for each cluster.
    """
    done = CollectionWindow.objects.filter(HAS_FACTS, hour__gte=at - _FRESH, hour__lt=at)
    last = done.filter(cluster__active=True).order_by("cluster__name")
    found: list[IdleWorkload] = []
    names = set()
    columns = ("cluster_id", "cluster__name", "last")
    for cluster, name, hour in (
        last.values("cluster_id").annotate(last=Max("hour")).values_list(*columns)
    ):
        names.add(name)
        found += _of_cluster(cluster, hour)
    return IdleNow(tuple(found), frozenset(names))


def _of_cluster(cluster: int, hour: datetime) -> list[IdleWorkload]:
    held = PodHour.objects.filter(cluster_id=cluster, hour=hour, allocated__gt=0)
    columns = (
        *("workload_id", "workload__kind", "workload__name", "workload__namespace__name"),
        *("cluster__name", "team_id"),
    )
    rows = held.order_by("workload_id").values(*columns)
    sums = list(rows.annotate(held=Sum("allocated"), idle_held=Sum("idle")))
    idle = [row for row in sums if row["idle_held"] * _PARTS >= row["held"] * _IDLE_PARTS]
    pods = held.filter(workload_id__in=[row["workload_id"] for row in idle])
    past = PodHour.objects.filter(
        pod_id__in=pods.values("pod_id"), hour__gt=hour - _BACK, hour__lte=hour, allocated__gt=0
    )
    spans = {
        row["workload_id"]: row
        for row in past.order_by("workload_id")
        .values("workload_id")
        .annotate(first=Min("hour"), worked=Max("hour", filter=~_IDLE))
    }
    return [_workload(row, spans[row["workload_id"]], hour) for row in idle]


def _workload(row: Mapping[str, Any], span: Mapping[str, Any], hour: datetime) -> IdleWorkload:
    worked = None if span["worked"] is None else span["worked"] + _HOUR
    return IdleWorkload(
        cluster=row["cluster__name"],
        namespace=row["workload__namespace__name"],
        kind=row["workload__kind"],
        name=row["workload__name"],
        team_id=row["team_id"],
        gpus=hours(row["held"]),
        since=worked or span["first"],
        until=hour + _HOUR,
        worked_at=worked,
        since_at_least=worked is None and span["first"] <= hour - _BACK + _HOUR,
    )
