"""Unused allocation: by workload in a window, and workloads that are idle now."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from functools import cache
from heapq import nsmallest
from operator import add
from typing import Any
from zoneinfo import ZoneInfo

from django.db.models import Count, F, Max, Min, Q, Sum
from msgspec import Struct

from apps.accounts.permissions import Visibility
from apps.clusters.domain.window import Window
from apps.clusters.selectors import report
from apps.usage.domain.amounts import hours
from apps.usage.domain.usage_query import Filters, Grouping, Periods, TimeStep
from apps.usage.models import HAS_FACTS, CollectionWindow, PodHour, ServingHour
from apps.usage.selectors.fact_tables import (
    condition,
    filtered,
    source_of,
    sum_of_unused,
    sums_of_unused,
    with_days,
)
from apps.usage.selectors.names import NameLookup
from gpuportal.queries import GroupedQuery

_GROUPS = (
    Grouping.CLUSTER,
    Grouping.NAMESPACE,
    Grouping.WORKLOAD,
    Grouping.TEAM,
    Grouping.TIER,
)
_COLUMNS = tuple(grouping.column for grouping in _GROUPS)
# What tells rows apart: cluster and namespace are those of the workload.
_RANKED = ("workload_id", "team_id", "tier_id")
_PLACES = tuple(_COLUMNS.index(column) for column in _RANKED)
_Ids = tuple[int, ...]
_Sums = tuple[int, int, int, int]
_SumsMade = Callable[[], Mapping[str, Any]]


class WasteRow(Struct, frozen=True):
    """What one workload of a team held on one tier without using it, in nano-GPU-hours.

    `workload` reads `Kind/name`. GPU-hours without metrics are in none of the three causes.
    """

    cluster: str
    namespace: str
    workload: str
    team: str
    tier: str
    allocated: int
    not_running: int
    idle: int
    underused: int

    @property
    def not_used(self) -> int:
        return self.not_running + self.idle + self.underused


def largest_waste(
    window: Window,
    *,
    filters: Filters,
    visibility: Visibility,
    limit: int,
    zone: ZoneInfo | None = None,
) -> list[WasteRow]:
    """Return the workloads that held most without using it, largest first.

    Only workloads of teams that the reader sees. `zone` is the report's, where the caller has
    read it. Hours that are no longer kept, and whose day was
    never summed up, add nothing. Six queries, and two for the names of what is returned.
    """
    source = source_of(_GROUPS, filters, visibility)
    names = NameLookup({*_GROUPS, *filtered(filters)})
    periods = Periods(TimeStep.TOTAL, zone or report().zone)
    plan = with_days(window, clusters=names.clusters(filters), periods=periods, rolled=True)
    where = condition(source, filters, visibility)
    few = bool(filters.team or filters.workload)
    found: dict[_Ids, _Sums] = defaultdict(lambda: (0, 0, 0, 0))
    unused: dict[_Ids, int] = defaultdict(int)
    hours = [(source.hours, part) for part in plan.hour_conditions()]
    for row in _facts(hours, where, _COLUMNS, sums_of_unused):
        _add(found, row)
        unused[_ranked(row)] += sum(row[-3:])
    days: Any = source.days
    # Of many days what is ranked by comes alone: of most workloads no more is wanted.
    every = [(days, part) for part in plan.day_conditions(few=few)]
    if few:
        for row in _facts(every, where, _COLUMNS, sums_of_unused):
            _add(found, row)
            unused[_ranked(row)] += sum(row[-3:])
    else:
        for row in _facts(every, where, _RANKED, _sum_alone):
            unused[row[:-1]] += row[-1]
    order = _order(unused, limit)
    some = [] if few else [(days, part) for part in plan.day_conditions(few=True)]
    chosen = where & Q(workload_id__in={ids[0] for ids in order})
    for row in _facts(some if order else (), chosen, _COLUMNS, sums_of_unused):
        _add(found, row)
    rows = ((ids, sums) for ids, sums in found.items() if _ranked(ids) in order)
    return _rows(sorted(rows, key=lambda item: order[_ranked(item[0])]), names)


def _add(found: dict[_Ids, _Sums], row: tuple[int, ...]) -> None:
    ids, sums = row[: len(_COLUMNS)], row[len(_COLUMNS) :]
    found[ids] = tuple(map(add, found[ids], sums))


def _order(unused: Mapping[_Ids, int], limit: int) -> dict[_Ids, int]:
    """Return the places of the largest, from 0."""
    some = ((ids, amount) for ids, amount in unused.items() if amount > 0)
    # By ids between equals, so that each reading gives the same order.
    largest = nsmallest(limit, some, key=lambda item: (-item[1], item[0]))
    return {ids: place for place, (ids, _) in enumerate(largest)}


def _ranked(ids: _Ids) -> _Ids:
    return tuple(ids[place] for place in _PLACES)


def _facts(
    parts: Iterable[tuple[Any, Q]], where: Q, columns: tuple[str, ...], sums: _SumsMade
) -> Iterator[tuple[Any, ...]]:
    """Yield `columns` and sums; one query for each (table, condition)."""
    for table, part in parts:
        yield from _grouped(table, columns, sums).rows(where & part)


@cache
def _grouped(table: Any, columns: tuple[str, ...], sums: _SumsMade) -> GroupedQuery:
    made = sums()
    rows = table._default_manager.order_by().values(*columns).annotate(**made)
    return GroupedQuery(rows.values_list(*columns, *made))


def _sum_alone() -> Mapping[str, Any]:
    return {"sum_unused": sum_of_unused()}


def _rows(found: list[tuple[_Ids, _Sums]], names: NameLookup) -> list[WasteRow]:
    # Workloads tell their namespaces.
    workloads_first = sorted(enumerate(_GROUPS), key=lambda one: one[1] is not Grouping.WORKLOAD)
    known = {
        place: names.of(grouping, {ids[place] for ids, _ in found})
        for place, grouping in workloads_first
    }
    of = [known[place] for place in range(len(_GROUPS))]
    rows = []
    for ids, sums in found:
        cluster, namespace, workload, team, tier = (
            table[pk] for table, pk in zip(of, ids, strict=True)
        )
        rows.append(WasteRow(cluster, namespace, workload, team, tier, *sums))
    return rows


_HOUR = timedelta(hours=1)
_BACK = timedelta(days=7)
_FRESH = timedelta(hours=6)
# An hour counts as idle when 19 parts of 20 of what was held were, and as work when 1 was none.
_PARTS, _IDLE_PARTS = 20, 19
_IDLE = Q(idle__gte=F("allocated") * _IDLE_PARTS / _PARTS)


class IdleWorkload(Struct, frozen=True):
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


class IdleNow(Struct, frozen=True):
    """Idle workloads, and the names of the clusters of which that is known at all."""

    workloads: tuple[IdleWorkload, ...]
    clusters: frozenset[str]


def idle_workloads(at: datetime) -> IdleNow:
    """Return the workloads that were idle in the last collected hour of their cluster.

    Hours of which little was measured are no idle ones. Services that are marked as kept for
    latency, or that had a request within seven days, are idle for a reason. A cluster whose last
    hour is more than six hours ago is not among `clusters`: nothing is known of it now. Looks back
    seven days. One query and two for each cluster.
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
    kept = Count("pk", filter=Q(pod__kept_for_latency=True))
    sums = rows.annotate(held=Sum("allocated"), idle_held=Sum("idle"), kept=kept).filter(kept=0)
    # A service that answers now and then has to stay up for requests: stopping it would break its
    # callers.
    answered = ServingHour.objects.filter(
        cluster_id=cluster, hour__gt=hour - _BACK, hour__lte=hour, requests__gt=0
    )
    sums = sums.exclude(workload_id__in=answered.values("workload_id"))
    # In whole numbers: a float share of 0.95 would miss what is exactly at it.
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
        # Only where pods were there at the other end of the seven days: others began idle.
        since_at_least=worked is None and span["first"] <= hour - _BACK + _HOUR,
    )
