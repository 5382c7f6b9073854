"""Queue times by tier: how long pods were pending until they were bound."""

from collections import Counter
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db.models import Count, F, Q
from django.db.models import Window as Over
from django.db.models.functions import RowNumber

from apps.accounts.permissions import Visibility
from apps.clusters.domain.devices.resource_claims import CLAIM_KIND
from apps.clusters.domain.window import Window
from apps.clusters.models import Pod, WholeSeconds
from apps.usage.domain.usage_query import Filters

QUEUE_TIME_DAYS = 30
"""Queue times are of the pods bound in so many days."""


@dataclass(frozen=True, slots=True)
class TierQueueTimes:
    """The pods of a tier bound in a window: how many, and the p50 and p95 queue time."""

    tier: str
    pods: int
    p50_seconds: float
    p95_seconds: float


def tier_queue_times(
    window: Window, *, filters: Filters, visibility: Visibility
) -> dict[str, TierQueueTimes]:
    """Return the queue times that ended within the window by tier; tiers without one are left out.

    From a pod's creation to its binding. Percentiles are by nearest rank: the time of a real pod,
    which at least that share did not exceed. Of `filters` only `cluster` counts; all teams
    together, so `visibility` narrows nothing. One query.
    """
    ranked = _bound(window, filters).annotate(
        rank=Over(RowNumber(), partition_by="tier", order_by=("wait", "pk")),
        count=Over(Count("pk"), partition_by="tier"),
    )
    # Whole numbers divide without a rest in both databases: (n × 50 + 99) / 100 rounds up.
    median, most = (F("count") * 50 + 99) / 100, (F("count") * 95 + 99) / 100
    rows = ranked.filter(Q(rank=median) | Q(rank=most)).order_by("tier__name", "rank")
    found: dict[str, list[int]] = {}
    counts: dict[str, int] = {}
    for tier, waited, count in rows.values_list("tier__name", "wait", "count"):
        found.setdefault(tier, []).append(max(waited, 0))
        counts[tier] = count
    return {
        tier: TierQueueTimes(tier, counts[tier], float(waits[0]), float(waits[-1]))
        for tier, waits in found.items()
    }


def queue_time_window(now: datetime) -> Window:
    """Return QUEUE_TIME_DAYS up to the full hour, so that all pages show the same."""
    hour = now.replace(minute=0, second=0, microsecond=0)
    return Window(hour - timedelta(days=QUEUE_TIME_DAYS), hour)


def queue_time_counts(window: Window, *, tier: str, filters: Filters) -> dict[float, int]:
    """Return how many pods of a tier were bound after each wait, in seconds. One query.

    The same pods as those of `tier_queue_times`.
    """
    pods = _bound(window, filters).filter(tier__name=tier).order_by()
    found: Counter[float] = Counter()
    for wait, count in pods.values_list("wait").annotate(Count("pk")):
        found[float(max(wait, 0))] += count
    return dict(found)


def _bound(window: Window, filters: Filters) -> Any:
    """Return the pods bound within a window, with their `wait`."""
    pods = Pod.objects.filter(
        bound_at__gte=window.start, bound_at__lt=window.end, tier__isnull=False
    ).exclude(workload__kind=CLAIM_KIND)
    if filters.cluster:
        pods = pods.filter(cluster__name__in=filters.cluster)
    # Whole seconds, as times are kept; a difference of times is taken by Python for each row on
    # SQLite.
    return pods.annotate(wait=WholeSeconds("bound_at") - WholeSeconds("created_at"))
