"""Evicted pods, and what they had held, by tier or team."""

from collections import defaultdict

from django.db.models import Count, Q, Sum

from apps.accounts.domain.structs import replace
from apps.accounts.permissions import Visibility
from apps.clusters.domain.tiers import UNDETERMINED
from apps.clusters.domain.window import Window
from apps.pending.models import Eviction
from apps.pending.selectors.rows import EvictionSum, PendingFilters, PendingGrouping
from apps.pending.selectors.scope import (
    ALL_PENDING,
    INSTANT,
    NamespaceContext,
    PendingScope,
    tier_condition,
)
from apps.usage.models import TeamHour


def eviction_sums(
    window: Window,
    *,
    by: PendingGrouping,
    visibility: Visibility,
    filters: PendingFilters = ALL_PENDING,
    context: NamespaceContext | None = None,
) -> list[EvictionSum]:
    """Return what was preempted and reclaimed within the window by tier or team; by name.

    What an evicted pod had held counts whole in the window of its end. The rate is that ÷ what
    the same tier or team had allocated in the window's hours. Sums at the level of a team, which
    everybody may see: `visibility` narrows nothing but named namespaces. A team is whose the
    namespace is at the window's end. Five queries at most, two with a context. Raises ValueError
    for other groups.
    """
    if by not in (PendingGrouping.TIER, PendingGrouping.TEAM):
        raise ValueError(f"evictions cannot be summed by {by}")
    scope = _eviction_scope(window, filters, visibility, context)
    column = "tier__name" if by is PendingGrouping.TIER else "workload__namespace_id"
    rows = Eviction.objects.filter(_evicted_within(window, scope, details=bool(filters.namespace)))
    found = rows.order_by().values_list(column, "reclaimed").annotate(Count("pk"), Sum("held"))
    sums: dict[str, list[int]] = defaultdict(lambda: [0, 0, 0])
    for value, reclaimed, pods, held in found:
        name = scope.team_of(value) if by is PendingGrouping.TEAM else value or UNDETERMINED
        sums[name][0] += pods
        # Pods, then what was preempted, then what was reclaimed.
        sums[name][2 if reclaimed else 1] += held
    allocated = _allocated(window, by, filters)
    return [
        EvictionSum(name, pods, lost, back, _eviction_rate(lost + back, whole), whole)
        for name, (pods, lost, back) in sorted(sums.items())
        for whole in (allocated.get(name, 0),)
    ]


def _eviction_scope(
    window: Window,
    filters: PendingFilters,
    visibility: Visibility,
    context: NamespaceContext | None = None,
) -> PendingScope:
    # An eviction has neither cause nor kind.
    return PendingScope(
        window.end - INSTANT, replace(filters, cause=(), kind=()), visibility, context
    )


def _evicted_within(window: Window, scope: PendingScope, *, details: bool) -> Q:
    return Q(at__gte=window.start, at__lt=window.end) & scope.condition(details=details)


def _allocated(window: Window, by: PendingGrouping, filters: PendingFilters) -> dict[str, int]:
    """Return what was allocated by tier or team; of namespaces nothing. One query."""
    if filters.namespace:
        # These hours are not kept by namespace: of a part of a team no rate is known.
        return {}
    # As evictions are: those of retired clusters belong to no view.
    where = Q(hour__gte=window.start, hour__lt=window.end, cluster__active=True)
    where &= tier_condition(filters.tier)
    if filters.cluster:
        where &= Q(cluster__name__in=filters.cluster)
    if filters.team:
        where &= Q(team__name__in=filters.team)
    column = "tier__name" if by is PendingGrouping.TIER else "team__name"
    rows = TeamHour.objects.filter(where).order_by().values_list(column)
    return dict(rows.annotate(Sum("allocated")))


def _eviction_rate(held: int, allocated: int) -> float | None:
    return held / allocated if allocated else None
