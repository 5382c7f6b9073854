"""How long things waited until they started."""

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db.models import Count, Q, QuerySet

from apps.accounts.permissions import Visibility
from apps.clusters.domain.tiers import UNDETERMINED
from apps.clusters.domain.window import Window
from apps.clusters.models.sql import WholeSeconds
from apps.pending.domain.causes import Outcome
from apps.pending.domain.history import nearest_rank
from apps.pending.models import Episode
from apps.pending.selectors.context import INSTANT, Context
from apps.pending.selectors.rows import PendingFilters, PendingGrouping, StartTimes
from apps.pending.selectors.scope import EVERYTHING_WAITING, PendingScope, tier_condition

_MONTH = timedelta(days=30)
_FEWEST = 5
_POD = "Pod"


@dataclass(frozen=True, slots=True)
class TypicalWait:
    """How long half, and 95 %, of `count` such requests waited for their start, at most."""

    p50_seconds: float
    p95_seconds: float
    count: int


def typical_wait(
    tier: str, resource: str, units: float, at: datetime, *, cluster: str = ""
) -> TypicalWait | None:
    """Return how long pods that asked for the same waited that started in the last 30 days.

    None where fewer than five did. Of all teams together. One query.
    """
    rows = _started(Window(at - _MONTH, at)).filter(
        tier_condition((tier,)), resource=resource, units=units
    )
    if cluster:
        rows = rows.filter(cluster__name=cluster)
    waits = {
        float(wait): count
        for wait, count in _waits(rows).values_list("wait").annotate(count=Count("pk"))
    }
    count = sum(waits.values())
    if count < _FEWEST:
        return None
    p50, p95 = nearest_rank(waits, (0.5, 0.95))
    return TypicalWait(p50, p95, count)


def time_to_start(
    window: Window,
    *,
    by: PendingGrouping,
    visibility: Visibility,
    filters: PendingFilters = EVERYTHING_WAITING,
    context: Context | None = None,
) -> list[StartTimes]:
    """Return how long pods waited that started within the window, by tier, team or cluster.

    From creation to start, in whole seconds; by nearest rank. By name. All teams together, or
    each: sums at their level, which everybody may see; narrowed to namespaces only those of
    teams that the reader sees. A team is whose the namespace is at the window's end. Four
    queries at most, one with a context. Raises ValueError for other groups.
    """
    column = _COLUMNS.get(by)
    if column is None:
        raise ValueError(f"times to start cannot be had by {by}")
    scope = PendingScope(window.end - INSTANT, filters, visibility, context)
    rows = _started(window).filter(scope.condition(details=bool(filters.namespace)))
    groups: dict[str, Counter[float]] = defaultdict(Counter)
    for value, wait, count in _waits(rows).values_list(column, "wait").annotate(Count("pk")):
        name = scope.team_of(value) if by is PendingGrouping.TEAM else str(value or UNDETERMINED)
        groups[name][float(wait)] += count
    return [_times(name, groups[name]) for name in sorted(groups)]


def started_waits(window: Window, scope: PendingScope) -> dict[float, int]:
    """Return how many pods started within a window after each queue time, in seconds. One query.

    Of all teams together, as `time_to_start` has them.
    """
    rows = _started(window).filter(scope.condition(details=bool(scope.filters.namespace)))
    found: Counter[float] = Counter()
    for wait, count in _waits(rows).values_list("wait").annotate(Count("pk")):
        found[float(wait)] += count
    return dict(found)


_COLUMNS = {
    PendingGrouping.TIER: "tier__name",
    PendingGrouping.TEAM: "workload__namespace_id",
    PendingGrouping.CLUSTER: "cluster__name",
}


def _started(window: Window) -> QuerySet[Episode]:
    ended = Q(until__gte=window.start, until__lt=window.end)
    return Episode.objects.filter(ended, kind=_POD, outcome=Outcome.STARTED.value)


def _waits(rows: QuerySet[Episode]) -> Any:
    return rows.order_by().annotate(wait=WholeSeconds("until") - WholeSeconds("since"))


def _times(name: str, waits: Mapping[float, int]) -> StartTimes:
    p50, p95 = nearest_rank(waits, (0.5, 0.95))
    return StartTimes(name, sum(waits.values()), p50, p95)
