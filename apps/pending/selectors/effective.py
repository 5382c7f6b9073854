"""Effective utilization of rows of the ledger: with the pending demand of their time and group."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, date, datetime
from typing import Any
from zoneinfo import ZoneInfo

from django.db.models import Q

from apps.accounts.permissions import EVERYTHING
from apps.clusters.domain.tiers import UNASSIGNED, UNDETERMINED
from apps.clusters.domain.window import Window
from apps.pending.domain.day_sums import DayPart, DayParts, amount
from apps.pending.domain.diagnosis import OF_DEMAND, PENDING_COUNTS, Cause
from apps.pending.domain.effective import (
    UNKNOWN_MODEL,
    DemandOfGroups,
    KnownActivity,
    PendingWork,
    effective_utilization,
)
from apps.pending.domain.placement.node_search import NONE_OFFERED
from apps.pending.models import CauseInterval
from apps.pending.selectors.freshness import has_history_until, known_until, watches_away
from apps.pending.selectors.scope import NamespaceContext, tier_condition
from apps.usage.domain.usage_query import (
    BEGINNING,
    Filters,
    Grouping,
    Periods,
    UsageQuery,
    UsageRow,
)
from apps.usage.selectors import GroupingRefused, usage_rows
from gpuportal.database_functions import UnixSeconds

_CAUSES = tuple(sorted(cause.value for cause in OF_DEMAND))
_IMPOSSIBLE = Q(cause=Cause.CAPACITY.value, detail=NONE_OFFERED)
"""No node offers it: it is no unmet demand, as no team could have it."""
_WORKLOADS = (
    *(Grouping.CLUSTER, Grouping.TIER, Grouping.TEAM, Grouping.NAMESPACE),
    Grouping.WORKLOAD,
)
_GROUPS = frozenset({*_WORKLOADS, Grouping.GPU_MODEL})
"""What is known of work that has no GPU yet; its model where its tier has one alone."""
_COLUMNS = (
    *("counted", "episode__cluster_id", "episode__tier__name", "episode__workload__namespace_id"),
    *("episode__workload__kind", "episode__workload__name", "from_seconds", "to_seconds"),
)


def counted_causes() -> Q:
    """Return the condition on intervals (CauseInterval) that are demand for fairness and
    what-if.
    """
    return Q(counts__in=PENDING_COUNTS, cause__in=_CAUSES, counted__gt=0) & ~_IMPOSSIBLE


def effective_ratios(
    rows: Sequence[UsageRow], asked: UsageQuery, *, zone: ZoneInfo, now: datetime
) -> list[float | None]:
    """Return the effective utilization of each row of `usage_rows`, 0..1.

    None where the grouping cannot have it: pending work has no node and no capacity type, and no
    GPU model where its tier has several. None, too, where the pending history does not reach yet,
    and where no work of the kind was measured. `rows` are those that the reader may see. At most 30
    queries.
    """
    unknown: list[float | None] = [None] * len(rows)
    window = asked.window
    if not rows or not _can_have(asked) or not _is_known(window):
        return unknown
    periods = Periods(asked.interval, zone)
    models = _only_models(window, zone) if Grouping.GPU_MODEL in asked.group_by else {}
    pending = _pending(_span_of(rows, window, periods), periods, asked.filters, now, models)
    works = {work for demand in pending.values() for work in demand}
    activity = _activity(window, works, zone)
    names = [grouping.value for grouping in asked.group_by]
    grouped = {period: DemandOfGroups(demand, names) for period, demand in pending.items()}
    none = DemandOfGroups({}, names)
    found = (grouped.get(_start(row.period), none).of(row.groups) for row in rows)
    return [
        None if demand is None else effective_utilization(row.amounts, demand, activity)
        for row, demand in zip(rows, found, strict=True)
    ]


def _can_have(asked: UsageQuery) -> bool:
    filters = asked.filters
    # These filters would take activity away and leave all pending demand.
    narrowed = filters.gpu_model or filters.capacity_type or filters.node
    return set(asked.group_by) <= _GROUPS and not narrowed


def _span_of(rows: Sequence[UsageRow], window: Window, periods: Periods) -> Window:
    """Return the part of the window that the periods of the rows cover."""
    starts = [row.period for row in rows if row.period is not None]
    if not starts:
        return window
    first, last = min(map(_start, starts)), periods.after(max(map(_start, starts)), 1)
    return Window(max(first, window.start), min(last or window.end, window.end))


def _only_models(window: Window, zone: ZoneInfo) -> dict[str, str]:
    """Return the GPU model of each tier that has no other in the window. Five queries."""
    asked = UsageQuery(window, group_by=(Grouping.TIER, Grouping.GPU_MODEL))
    rows = usage_rows(asked, visibility=EVERYTHING, zone=zone)
    found: dict[str, set[str]] = defaultdict(set)
    for row in rows:
        found[row.groups["tier"]].add(row.groups["gpu_model"])
    # Pending work has no GPU yet: only a tier of one model says which it will be.
    return {tier: min(models) for tier, models in found.items() if len(models) == 1}


def _is_known(window: Window) -> bool:
    """Say whether the pending history has all pods of the window. Three queries.

    Of hours with facts after a watch went away it does not: series tell of them once it is back.
    """
    return has_history_until(window.end) and all(
        window.end <= watched for watched in watches_away()
    )


def _start(period: datetime | None) -> datetime:
    """Return the UTC time that a period is known by: autumn repeats an hour of local time."""
    return BEGINNING if period is None else period.astimezone(UTC)


def _pending(
    window: Window,
    periods: Periods,
    filters: Filters,
    now: datetime,
    models: Mapping[str, str],
) -> dict[date, dict[PendingWork, int]]:
    """Return pending demand in nano-GPU-hours by period and work. Five queries."""
    context = NamespaceContext(window)
    teams = {
        name: {span.team_id: span.team or UNASSIGNED for span in spans}
        for name, spans in context.spans.items()
    }
    parts = {name: _day_parts(window, periods, context, name) for name in context.spans}
    known = {pk: min(now, at).timestamp() for pk, at in known_until().items()}
    until = now.timestamp()
    found: dict[date, dict[PendingWork, int]] = defaultdict(lambda: defaultdict(int))
    for counted, cluster, tier, space, kind, name, start, end in _intervals(window, filters):
        place = context.spaces[space]
        end = known.get(cluster, until) if end is None else end
        for part, seconds in parts[place.name].parts(start, end):
            team = teams[place.name][part.team_id]
            tier = tier or UNDETERMINED
            model = models.get(tier, UNKNOWN_MODEL)
            work = PendingWork(place.cluster, tier, team, place.name, f"{kind}/{name}", model)
            # After naming: whose a namespace was differs from part to part.
            if _matches(work, filters):
                found[part.day][work] += amount(counted, seconds)
    return found


def _intervals(window: Window, filters: Filters) -> Sequence[tuple[Any, ...]]:
    in_time = Q(end__isnull=True) | Q(end__gt=window.start)
    rows = CauseInterval.objects.filter(
        in_time,
        tier_condition(filters.tier, "episode__"),
        start__lt=window.end,
        counts__in=PENDING_COUNTS,
        cause__in=_CAUSES,
        episode__cluster__active=True,
    )
    timed = rows.annotate(from_seconds=UnixSeconds("start"), to_seconds=UnixSeconds("end"))
    return list(timed.order_by("pk").values_list(*_COLUMNS))


def _day_parts(
    window: Window, periods: Periods, context: NamespaceContext, namespace: str
) -> DayParts:
    """Return the window cut at the periods' edges and where the namespace changed hands."""
    found = []
    start = window.start
    while start < window.end:
        # A period may begin before the window or end after it; only the part within counts.
        end = min(periods.after(start, 1) or window.end, window.end)
        period = periods.start_of(start)
        for span in context.spans[namespace]:
            first, last = max(start, span.start), min(end, span.end)
            if last > first:
                found.append(DayPart(first.timestamp(), last.timestamp(), period, span.team_id))
        start = end
    return DayParts(found)


def _matches(work: PendingWork, filters: Filters) -> bool:
    asked = (
        (filters.cluster, work.cluster),
        (filters.team, work.team),
        (filters.namespace, work.namespace),
        (filters.workload, work.workload),
    )
    return all(not names or name in names for names, name in asked)


def _activity(window: Window, works: set[PendingWork], zone: ZoneInfo) -> KnownActivity:
    """Return how active the kinds of pending work were in the window; nothing without works.

    Over long windows that do not begin and end at midnight workloads are not kept: there a team's
    mean stands for its work.
    """
    found = KnownActivity()
    if not works:
        return found
    of_works = Filters(
        cluster=tuple(sorted({work.cluster for work in works})),
        namespace=tuple(sorted({work.namespace for work in works})),
    )
    # Not kept by workload for this window: teams and tiers below stand in.
    with suppress(GroupingRefused):
        asked = UsageQuery(window, group_by=_WORKLOADS, filters=of_works)
        for row in usage_rows(asked, visibility=EVERYTHING, zone=zone):
            found.add_work(PendingWork(**row.groups), row.amounts)
    asked = UsageQuery(window, group_by=(Grouping.TIER, Grouping.TEAM))
    for row in usage_rows(asked, visibility=EVERYTHING, zone=zone):
        found.add_team(row.groups["tier"], row.groups["team"], row.amounts)
    return found
