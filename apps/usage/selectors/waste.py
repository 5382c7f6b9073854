"""What was held and not used, workload by workload."""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from heapq import nsmallest
from typing import Any
from zoneinfo import ZoneInfo

from django.db.models import Q

from apps.accounts.permissions import Visibility
from apps.clusters.domain.window import Window
from apps.clusters.selectors import report
from apps.usage.domain.periods import Periods
from apps.usage.domain.rows import Filters, Grouping, Interval
from apps.usage.selectors.names import Names
from apps.usage.selectors.plan import Plan, with_days
from apps.usage.selectors.sources import Source, condition, filtered, source_of
from apps.usage.selectors.sums import sums_of_unused

_GROUPS = (
    Grouping.CLUSTER,
    Grouping.NAMESPACE,
    Grouping.WORKLOAD,
    Grouping.TEAM,
    Grouping.TIER,
)
_COLUMNS = tuple(f"{grouping}_id" for grouping in _GROUPS)
_Ids = tuple[int, ...]
_Sums = tuple[int, int, int, int]


@dataclass(frozen=True, slots=True)
class WasteRow:
    """What one workload of a team held on one tier without using it, in nano-GPU-hours.

    `workload` reads `Kind/name`. What was not measured is in none of the three causes.
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
    never summed up, add nothing. Five queries, and two for the names of what is returned.
    """
    source = source_of(_GROUPS, filters, visibility)
    names = Names({*_GROUPS, *filtered(filters)})
    clusters = [
        pk
        for pk, name in names.known(Grouping.CLUSTER).items()
        if isinstance(pk, int) and (not filters.cluster or name in filters.cluster)
    ]
    periods = Periods(Interval.TOTAL, zone or report().zone)
    plan = with_days(window, clusters=sorted(clusters), periods=periods, rolled=True)
    found: dict[_Ids, _Sums] = defaultdict(lambda: (0, 0, 0, 0))
    for ids, sums in _facts(source, plan, condition(source, filters, visibility)):
        allocated, not_running, idle, underused = found[ids]
        found[ids] = (
            allocated + sums[0],
            not_running + sums[1],
            idle + sums[2],
            underused + sums[3],
        )
    wasted = ((ids, sums) for ids, sums in found.items() if sum(sums[1:]) > 0)
    return _rows(nsmallest(limit, wasted, key=lambda row: (-sum(row[1][1:]), row[0])), names)


def _facts(source: Source, plan: Plan, where: Q) -> Iterator[tuple[_Ids, _Sums]]:
    """Yield (group ids, sums): of days one query, of hours another."""
    parts = [(source.hours, part) for part in plan.hour_conditions()]
    days: Any = source.days
    parts.extend((days, part) for part in plan.day_conditions())
    sums = sums_of_unused()
    for table, part in parts:
        rows = table._default_manager.order_by().values(*_COLUMNS).annotate(**sums)
        for row in rows.filter(where & part).values_list(*_COLUMNS, *sums):
            yield row[: len(_COLUMNS)], row[len(_COLUMNS) :]


def _rows(found: list[tuple[_Ids, _Sums]], names: Names) -> list[WasteRow]:
    of = [
        names.of(grouping, {ids[place] for ids, _ in found})
        for place, grouping in enumerate(_GROUPS)
    ]
    rows = []
    for ids, sums in found:
        cluster, namespace, workload, team, tier = (
            table[pk] for table, pk in zip(of, ids, strict=True)
        )
        rows.append(WasteRow(cluster, namespace, workload, team, tier, *sums))
    return rows
