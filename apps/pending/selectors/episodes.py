"""Episodes of one item, and the queue times of items that started."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from datetime import date, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from django.db.models import Case, Count, Q, QuerySet, Value, When
from django.db.models.functions import TruncDate
from msgspec import Struct

from apps.accounts.permissions import Visibility
from apps.clusters.domain.tiers import UNDETERMINED
from apps.clusters.domain.window import Window
from apps.pending.domain.day_sums import nearest_rank
from apps.pending.domain.diagnosis import Outcome
from apps.pending.domain.queues.unrecorded import CLUSTER_QUEUE
from apps.pending.models import CauseInterval, Episode
from apps.pending.selectors.current import COLUMNS, pending_row
from apps.pending.selectors.rows import (
    CauseIntervalRow,
    DayQueueTimes,
    EpisodeRow,
    PendingFilters,
    PendingGrouping,
    PendingRow,
    StartTimes,
)
from apps.pending.selectors.scope import (
    ALL_PENDING,
    INSTANT,
    NamespaceContext,
    PendingScope,
    tier_condition,
)
from gpuportal.database_functions import WholeSeconds

_MOST = 50
_MONTH = timedelta(days=30)
# Percentiles of fewer would be chance.
_FEWEST = 5
_POD = "Pod"
_STARTED_COLUMNS = {
    PendingGrouping.TIER: "tier__name",
    PendingGrouping.TEAM: "workload__namespace_id",
    PendingGrouping.CLUSTER: "cluster__name",
}


def episodes_of(
    cluster: str,
    uid: str,
    *,
    at: datetime,
    visibility: Visibility,
    context: NamespaceContext | None = None,
) -> list[EpisodeRow]:
    """Return every episode of an item with its intervals, newest first, at most 50.

    Empty where there is none, or where the reader does not see its namespace. Six queries, two with
    a context that knows how fresh it is.
    """
    return _episodes(Q(cluster__name=cluster, uid=uid), at, visibility, context)


def find_pending(
    namespace: str, name: str, *, at: datetime, visibility: Visibility, cluster: str = ""
) -> list[EpisodeRow]:
    """Return the episodes of what is called so, or is of a controller called so; newest first.

    An item pending at `at` comes before ended ones; at most 50. Six queries, one or four where
    nothing is found.
    """
    return _episodes(_called(namespace, name, cluster), at, visibility, open_first=True)


def _called(namespace: str, name: str, cluster: str) -> Q:
    where = Q(workload__namespace__name=namespace) & (Q(name=name) | Q(workload__name=name))
    return where & Q(cluster__name=cluster) if cluster else where


def find_open(
    namespace: str, name: str, *, at: datetime, visibility: Visibility, cluster: str = ""
) -> list[PendingRow]:
    """Return the rows of the same that have not ended. Five queries, one or four without any."""
    scope = PendingScope(at, ALL_PENDING, visibility)
    rows = _items().filter(_called(namespace, name, cluster), scope.condition(), until=None)
    found = rows.order_by("-since", "pk").values_list(*COLUMNS, named=True)[:_MOST]
    return [pending_row(row, at, scope) for row in found]


def _items() -> QuerySet[Episode]:
    return Episode.objects.exclude(kind=CLUSTER_QUEUE)


def _episodes(
    where: Q,
    at: datetime,
    visibility: Visibility,
    context: NamespaceContext | None = None,
    *,
    open_first: bool = False,
) -> list[EpisodeRow]:
    scope = PendingScope(at, ALL_PENDING, visibility, context)
    rows = _items().filter(where, scope.condition()).order_by("-since", "pk")
    if open_first:
        is_open = Q(until__isnull=True) | Q(until__gt=at)
        # A number, since databases order false and true differently.
        over = Case(When(is_open, then=Value(0)), default=Value(1))
        rows = rows.order_by(over, "-since", "pk")
    found = list(rows.values_list(*COLUMNS, named=True)[:_MOST])
    if not found:
        return []
    intervals = _intervals([row.pk for row in found])
    return [EpisodeRow(pending_row(row, at, scope), tuple(intervals[row.pk])) for row in found]


def _intervals(episodes: Sequence[int]) -> dict[int, list[CauseIntervalRow]]:
    found: dict[int, list[CauseIntervalRow]] = defaultdict(list)
    rows = CauseInterval.objects.filter(episode_id__in=episodes).order_by("start", "pk")
    columns = ("cause", "detail", "start", "end", "counts", "counted", "message")
    for episode_id, *values in rows.values_list("episode_id", *columns):
        found[episode_id].append(CauseIntervalRow(*values))
    return found


class TypicalQueueTime(Struct, frozen=True):
    """The time within which half, and 95 %, of `count` such requests started, at most."""

    p50_seconds: float
    p95_seconds: float
    count: int


def typical_queue_time(
    tier: str, resource: str, units: float, at: datetime, *, cluster: str = ""
) -> TypicalQueueTime | None:
    """Return the queue times of pods with the same request that started in the last 30 days.

    None where fewer than five did. Of all teams together. One query.
    """
    rows = _started(Window(at - _MONTH, at)).filter(
        tier_condition((tier,)), resource=resource, units=units
    )
    if cluster:
        rows = rows.filter(cluster__name=cluster)
    waits = {
        float(wait): count
        for wait, count in _with_wait(rows).values_list("wait").annotate(count=Count("pk"))
    }
    count = sum(waits.values())
    if count < _FEWEST:
        return None
    p50, p95 = nearest_rank(waits, (0.5, 0.95))
    return TypicalQueueTime(p50, p95, count)


def queue_time_quantiles(
    tier: str, gpu_equivalents: float, at: datetime, *, cluster: str, fractions: Sequence[float]
) -> list[float] | None:
    """Return quantiles of the queue times, in seconds, of pods of like size in the last 30 days.

    Of like size is from half to twice as many GPU-equivalents, on the cluster and in the tier.
    None where fewer than five started. Of all teams together. One query.
    """
    rows = _started(Window(at - _MONTH, at)).filter(
        tier_condition((tier,)),
        cluster__name=cluster,
        gpu_equivalents__gte=gpu_equivalents / 2,
        gpu_equivalents__lte=gpu_equivalents * 2,
    )
    found = _with_wait(rows).values_list("wait").annotate(count=Count("pk"))
    waits = {float(wait): count for wait, count in found}
    return nearest_rank(waits, fractions) if sum(waits.values()) >= _FEWEST else None


def time_to_start(
    window: Window,
    *,
    by: PendingGrouping,
    visibility: Visibility,
    filters: PendingFilters = ALL_PENDING,
    context: NamespaceContext | None = None,
) -> list[StartTimes]:
    """Return the queue times of pods that started within the window, by tier, team or cluster.

    From creation to start, in whole seconds; by nearest rank. By name. All teams together, or
    each: sums at their level, which everybody may see; narrowed to namespaces only those of
    teams that the reader sees. A team is whose the namespace is at the window's end. Four
    queries at most, one with a context. Raises ValueError for other groups.
    """
    column = _STARTED_COLUMNS.get(by)
    if column is None:
        raise ValueError(f"times to start cannot be had by {by}")
    # Windows are half-open: the last moment within says whose a namespace is at the end.
    scope = PendingScope(window.end - INSTANT, filters, visibility, context)
    rows = _started(window).filter(scope.condition(details=bool(filters.namespace)))
    groups: dict[str, Counter[float]] = defaultdict(Counter)
    for value, wait, count in _with_wait(rows).values_list(column, "wait").annotate(Count("pk")):
        name = scope.team_of(value) if by is PendingGrouping.TEAM else str(value or UNDETERMINED)
        groups[name][float(wait)] += count
    return [_times(name, groups[name]) for name in sorted(groups)]


def own_queue_times(
    window: Window, *, visibility: Visibility, filters: PendingFilters = ALL_PENDING
) -> StartTimes | None:
    """Return the queue times of pods that started within the window, of teams that the reader sees.

    None where none started. From creation to start, as `time_to_start` has them. Four queries
    at most.
    """
    scope = PendingScope(window.end - INSTANT, filters, visibility)
    waits = started_queue_times(window, scope, own=True)
    return _times("", waits) if waits else None


def started_queue_times(
    window: Window, scope: PendingScope, *, own: bool = False
) -> dict[float, int]:
    """Return how many pods started within a window after each queue time, in seconds. One query.

    Of all teams together, as `time_to_start` has them; `own`: of those that the reader sees.
    """
    details = own or bool(scope.filters.namespace)
    rows = _started(window).filter(scope.condition(details=details))
    found: Counter[float] = Counter()
    for wait, count in _with_wait(rows).values_list("wait").annotate(Count("pk")):
        found[float(wait)] += count
    return dict(found)


def queue_times_by_day(
    window: Window,
    *,
    visibility: Visibility,
    zone: ZoneInfo,
    filters: PendingFilters = ALL_PENDING,
    context: NamespaceContext | None = None,
    own: bool = False,
) -> list[DayQueueTimes]:
    """Return the queue times of each local day of the window on which pods started, oldest first.

    Of all teams together, as `time_to_start` has them; `own`: of those that the reader sees. Four
    queries at most, one with a context.
    """
    scope = PendingScope(window.end - INSTANT, filters, visibility, context)
    rows = _started(window).filter(scope.condition(details=own or bool(filters.namespace)))
    days: dict[date, Counter[float]] = defaultdict(Counter)
    # By the local day of the start, not of the creation: its queue time is known only then.
    dated = _with_wait(rows).annotate(day=TruncDate("until", tzinfo=zone))
    for day, wait, count in dated.values_list("day", "wait").annotate(Count("pk")):
        days[day][float(wait)] += count
    return [
        DayQueueTimes(day, sum(waits.values()), *nearest_rank(waits, (0.5, 0.95)))
        for day, waits in sorted(days.items())
    ]


def _started(window: Window) -> QuerySet[Episode]:
    ended = Q(until__gte=window.start, until__lt=window.end)
    return Episode.objects.filter(ended, kind=_POD, outcome=Outcome.STARTED.value)


def _with_wait(rows: QuerySet[Episode]) -> Any:
    return rows.order_by().annotate(wait=WholeSeconds("until") - WholeSeconds("since"))


def _times(name: str, waits: Mapping[float, int]) -> StartTimes:
    p50, p95 = nearest_rank(waits, (0.5, 0.95))
    return StartTimes(name, sum(waits.values()), p50, p95)
