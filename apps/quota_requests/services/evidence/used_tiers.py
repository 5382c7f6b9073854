"""Where a quota key is really used: of all tiers that it can reach, those its pods hold."""

from datetime import datetime, timedelta
from typing import Final

from apps.accounts.permissions import Visibility
from apps.clusters.domain.calendar import hour_floor
from apps.clusters.domain.window import Window
from apps.clusters.selectors import report
from apps.quota_requests.models import ChangeRequest
from apps.quotas.selectors import queue_namespaces
from apps.usage.domain.amounts import Amounts
from apps.usage.domain.refusals import NamesUnknown
from apps.usage.domain.rows import Filters, Grouping, UsageQuery
from apps.usage.selectors import GroupingRefused, usage_rows

DAYS: Final = 30
_EVERYTHING = Visibility(everything=True)


def evidence_window(now: datetime) -> Window:
    """Return the 30 days before `now`; the last whole hour ends them."""
    end = hour_floor(now, report().zone)
    return Window(end - timedelta(days=DAYS), end)


def held_by_tier(
    request: ChangeRequest, window: Window, tiers: tuple[str, ...]
) -> dict[str, Amounts]:
    """Return what the team held with a key in a window, by tier; only tiers of which it held.

    Of a ResourceQuota its namespace's pods, of a queue those of the namespaces that use it. Raises
    GroupingRefused.
    """
    if not tiers:
        return {}
    try:
        rows = usage_rows(
            UsageQuery(window, group_by=(Grouping.TIER,), filters=filters_of(request, tiers)),
            visibility=_EVERYTHING,
        )
    except NamesUnknown:
        # A tier or namespace in which nothing was ever held.
        return {}
    found = ((row.groups["tier"], row.amounts) for row in rows)
    return {str(tier): amounts for tier, amounts in found if tier and amounts.allocated > 0}


def filters_of(request: ChangeRequest, tiers: tuple[str, ...]) -> Filters:
    """Return the filters of what a team holds with a key, in these tiers of its cluster."""
    namespaces = (request.namespace,) if request.namespace else _users(request)
    return Filters(
        cluster=(request.cluster.name,),
        tier=tiers,
        team=(request.team.name,),
        namespace=namespaces,
    )


def used_tiers(request: ChangeRequest, tiers: tuple[str, ...], *, now: datetime) -> tuple[str, ...]:
    """Return of these tiers those that the key's pods held in the last 30 days, in their order.

    All of them where nothing was held, or where that is not known.
    """
    try:
        held = held_by_tier(request, evidence_window(now), tiers)
    except GroupingRefused:
        return tiers
    return tuple(tier for tier in tiers if tier in held) or tiers


def _users(request: ChangeRequest) -> tuple[str, ...]:
    return queue_namespaces(request.cluster_id, request.source, request.name)
